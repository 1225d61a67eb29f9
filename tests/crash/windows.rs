//! Event time through crashes: windows of records that come out of order, by event-time timers, each emitted once with the right count.

use crate::check;
use crate::job::{Job, execution, plugin};
use crate::kills::number;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// Records of each source.
const RECORDS: i64 = 8_000;
const SOURCES: i64 = 2;
/// Files of each source: as many as subtasks read them at first.
const FILES: i64 = 2;
const USERS: i64 = 40;
/// From one record of a file to the next one in time, in milliseconds.
const STEP: i64 = 10;
/// Records among which the order is lost.
const TOGETHER: usize = 32;
const WINDOW: i64 = 1_000;
/// Kills of one job before it may finish.
const KILLS_A_JOB: u32 = 6;

/// A line of the output.
#[derive(Debug, Deserialize)]
struct Window {
    key: String,
    start: i64,
    count: u64,
}

/// User and time of a record; the multiplier is that of SplitMix64: neighbours differ in all digits.
fn record(source: i64, file: i64, number: i64) -> (i64, i64) {
    let mixed = (source * 1_000_003 + file * 7_919 + number + 1).unsigned_abs().wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (i64::try_from((mixed >> 33) % USERS.unsigned_abs()).unwrap(), number * STEP + source * 500 + file)
}

/// The records of a file in the order of time.
fn records(source: i64, file: i64) -> Vec<(i64, i64)> {
    (0..RECORDS / FILES).map(|number| record(source, file, number)).collect()
}

/// Two sources of files that are out of order → counts in windows by user → files, exactly once.
fn job() -> Job {
    Job::of(|folder| {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        for source in 0..SOURCES {
            std::fs::create_dir(folder.join(format!("in-{source}"))).unwrap();
            for file in 0..FILES {
                let mut records = records(source, file);
                records.chunks_mut(TOGETHER).for_each(|chunk| chunk.shuffle(&mut random));
                let mut text = String::new();
                records.iter().for_each(|(user, at)| writeln!(text, r#"{{"user":"user-{user}","at":{at}}}"#).unwrap());
                std::fs::write(folder.join(format!("in-{source}/{file}.jsonl")), text).unwrap();
            }
        }
        specification(folder)
    })
}

fn specification(folder: &Path) -> Value {
    let bound = i64::try_from(TOGETHER).unwrap() * STEP;
    let source = |number: i64| {
        json!({
            "uid": format!("in-{number}"), "type": "file", "path": folder.join(format!("in-{number}")), "rate": 2_000,
            "event-time": {
                "timestamp": {"json-pointer": "/at"},
                "watermark": {"out-of-orderness": bound, "interval": "10 ms"},
            },
        })
    };
    let input = |number: i64| json!({"from": format!("in-{number}"), "key-by": {"json-pointer": "/user"}});
    json!({
        "name": "windows",
        "parallelism": 2,
        "sources": (0..SOURCES).map(source).collect::<Vec<_>>(),
        "operators": [{
            "uid": "count", "plugin": plugin("tumbling-count"), "config": {"size-ms": WINDOW},
            "inputs": (0..SOURCES).map(input).collect::<Vec<_>>(),
            // A record that became late by a crash would be missing.
            "late-records": "drop",
        }],
        "sinks": [{"uid": "totals", "type": "file", "path": folder.join("totals"), "inputs": ["count"], "delivery-guarantee": "exactly-once"}],
        "execution": execution(folder, 50),
    })
}

fn windows(job: &Job) -> BTreeMap<(String, i64), Vec<u64>> {
    let mut windows: BTreeMap<(String, i64), Vec<u64>> = BTreeMap::new();
    for line in check::lines(&job.totals(), "") {
        let Window { key, start, count } = serde_json::from_str(&line).unwrap_or_else(|error| panic!("no window: {line}: {error}"));
        windows.entry((key, start)).or_default().push(count);
    }
    windows
}

/// Each window is there once, with the right count.
#[track_caller]
fn check_windows(job: &Job) {
    let mut expected: BTreeMap<(String, i64), Vec<u64>> = BTreeMap::new();
    for (user, at) in (0..SOURCES).flat_map(|source| (0..FILES).flat_map(move |file| records(source, file))) {
        expected.entry((format!("user-{user}"), at.div_euclid(WINDOW) * WINDOW)).or_insert_with(|| vec![0])[0] += 1;
    }
    let found = windows(job);
    let wrong = expected.iter().find(|(window, count)| found.get(window) != Some(count));
    assert!(wrong.is_none(), "{wrong:?} is {:?}", wrong.and_then(|(window, _)| found.get(window)));
    assert_eq!(found.len(), expected.len());
}

#[test]
fn random_kills_leave_each_window_once_with_the_right_count() {
    let seed = number("WATERWHEEL_SEED").unwrap_or_else(rand::random);
    println!("WATERWHEEL_SEED={seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut killed, mut before_the_end) = (0, 0);
    for _ in 0..2 {
        let job = job();
        for kill in 0..KILLS_A_JOB {
            // The first time there is surely a checkpoint in the middle of event time.
            let process = if kill == 0 { job.run_until(1) } else { job.start() };
            std::thread::sleep(Duration::from_millis(random.random_range(5..900)));
            killed += u64::from(process.kill());
        }
        before_the_end += windows(&job).len();
        job.hurry();
        job.run(&[]).expect(0, &["finished"]);
        check_windows(&job);
    }
    println!("{killed} kills landed, {before_the_end} windows were visible before the last run");
    assert!(before_the_end > 0, "no window came out before the end of the input: nothing was tested");
}

#[test]
fn event_time_goes_on_with_another_parallelism() {
    let job = job();
    for (parallelism, killed) in [(3, true), (1, false), (4, true)] {
        let process = job.run_until(2);
        if killed {
            process.kill();
        } else {
            process.signal("TERM");
            process.wait().expect(0, &["was stopped"]);
        }
        job.change(|job| job["parallelism"] = json!(parallelism));
    }
    job.finish();
    check_windows(&job);
}

#[test]
fn a_record_without_a_timestamp_fails_the_job_or_is_left_out() {
    let job = job();
    let file = job.path("in-0/0.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{{\"user\":\"user-1\"}}\n{text}{{\"user\":\"user-1\",\"at\":\"noon\"}}\n")).unwrap();
    job.hurry();
    let words = [
        "the timestamp of the record at source in-0",
        "split 0.jsonl",
        "position 0 cannot be read: there is nothing at /at",
        "event-time.on-error: skip",
    ];
    job.run(&[]).expect(1, &words);
    job.change(|job| job["sources"][0]["event-time"]["on-error"] = json!("skip"));
    job.finish();
    check_windows(&job);
}

#[test]
fn a_job_that_is_drained_emits_all_its_windows_and_leaves_no_state() {
    for crash in [None, Some("checkpoint::after-manifest=12*off->return(abort)")] {
        let job = job();
        let to = job.path("sp").to_str().unwrap().to_owned();
        let mut process = job.start_with(&["--savepoint-on-stop", &to, "--drain"], crash.unwrap_or_default());
        if crash.is_some() {
            process.wait().expect_abort("checkpoint::after-manifest");
            process = job.start_with(&["--savepoint-on-stop", &to, "--drain"], "");
        }
        let before = windows(&job).len();
        process.wait_until("windows came out", |_| windows(&job).len() > before + 40);
        process.signal("TERM");
        process.wait().expect(0, &["has finished", &format!("savepoint {to}")]);
        let found = windows(&job);
        assert!(found.values().all(|counts| counts.len() == 1), "a window was emitted twice");
        let emitted: u64 = found.values().flatten().sum();
        assert_eq!(emitted, lines_read(&to, &job), "not every record that was read is in a window");
        assert!(emitted < (RECORDS * SOURCES).unsigned_abs(), "it had read all before it was drained");
        for state in ["counts", "waterwheel.timers"] {
            assert_eq!(savepoint(&["read", &to, "--state", state]), "", "{state}");
        }
        job.run(&[]).expect(0, &["had finished before"]);
    }
}

fn savepoint(arguments: &[&str]) -> String {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_waterwheel")).arg("savepoint").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// How many lines the sources had read, by the positions in a savepoint, which are bytes.
fn lines_read(path: &str, job: &Job) -> u64 {
    let shown: Value = serde_json::from_str(&savepoint(&["show", path])).unwrap();
    let mut lines = 0;
    for source in shown["snapshot"]["sources"].as_object().unwrap().values() {
        for state in source["splits"].as_object().unwrap().values() {
            let position = &state["position"];
            let content = std::fs::read(job.path(position["path"].as_str().unwrap())).unwrap();
            let read = usize::try_from(position["offset"].as_u64().unwrap_or_else(|| panic!("{state}"))).unwrap();
            lines += content[..read].iter().filter(|byte| **byte == b'\n').count() as u64;
        }
    }
    lines
}
