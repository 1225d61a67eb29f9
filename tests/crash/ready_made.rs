//! The plugins that need no code, in whole jobs and through crashes: what windows, sessions and joins put out is what a program of its own in
//! another language (`tests/reference`) computes from the same lines. And rules by broadcast, through changes of the parallelism.

use crate::check;
use crate::job::{Job, execution, plugin};
use crate::kills::number;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SOURCES: i64 = 2;
const FILES: i64 = 2;
/// Records of each file.
const RECORDS: i64 = 3_000;
const USERS: u64 = 60;
/// From one record of a file to the next one in time, in milliseconds.
const STEP: i64 = 10;
/// Records among which the order is lost.
const TOGETHER: usize = 32;
const KILLS_A_JOB: u32 = 6;

/// Writes the lines of all sources, out of order, some of them from before 1970; no two have the same time.
fn write_lines(folder: &Path) {
    let mut random = ChaCha8Rng::seed_from_u64(11);
    for source in 0..SOURCES {
        std::fs::create_dir(folder.join(format!("in-{source}"))).unwrap();
        for file in 0..FILES {
            let mut lines: Vec<String> = (0..RECORDS)
                .map(|number| {
                    let (user, at) = (random.random_range(0..USERS), (number - RECORDS / 2) * STEP + file * 2 + source);
                    let amount = format!("{}.{:02}", random.random_range(-20..100), random.random_range(0..100));
                    let product = if number % 7 == 0 { "null".to_owned() } else { format!("\"p-{}\"", random.random_range(0..5)) };
                    format!(r#"{{"user":"user-{user}","at":{at},"amount":{amount},"product":{product}}}"#)
                })
                .collect();
            lines.chunks_mut(TOGETHER).for_each(|chunk| chunk.shuffle(&mut random));
            std::fs::write(folder.join(format!("in-{source}/{file}.jsonl")), lines.join("\n") + "\n").unwrap();
        }
    }
}

/// All aggregates over these windows.
fn aggregates(window: &Value, allowed_lateness: i64) -> Value {
    json!({
        "window": window,
        "allowed-lateness-ms": allowed_lateness,
        "aggregates": [
            {"function": "count"}, {"function": "sum", "field": "/amount", "name": "total"}, {"function": "avg", "field": "/amount"},
            {"function": "min", "field": "/amount"}, {"function": "max", "field": "/amount"}, {"function": "first", "field": "/at"},
            {"function": "last", "field": "/product"}, {"function": "count-distinct", "field": "/product", "name": "products"},
        ],
    })
}

/// A file source whose watermark is so far behind.
fn source(folder: &Path, number: i64, bound: i64) -> Value {
    json!({
        "uid": format!("in-{number}"), "type": "file", "path": folder.join(format!("in-{number}")), "rate": 3_000,
        "event-time": {"timestamp": {"json-pointer": "/at"}, "watermark": {"out-of-orderness": bound, "interval": "10 ms"}},
    })
}

/// Operators by their configurations; each has a sink of its name. A join has both sources as its inputs, windows have them all as one.
fn specification(folder: &Path, bound: i64, operators: &[(&str, &str, Value)]) -> Value {
    let operator = |(uid, name, config): &(&str, &str, Value)| {
        let input = |number: i64| json!({"from": format!("in-{number}"), "key-by": {"json-pointer": "/user"}, "as": if *name == "join" { number } else { 0 }});
        json!({"uid": uid, "plugin": plugin(name), "config": config, "inputs": (0..SOURCES).map(input).collect::<Vec<_>>()})
    };
    let sink = |(uid, ..): &(&str, &str, Value)| {
        let (sink, path) = (format!("{uid}-out"), if *uid == operators[0].0 { "totals" } else { *uid });
        json!({"uid": sink, "type": "file", "path": folder.join(path), "inputs": [uid], "delivery-guarantee": "exactly-once"})
    };
    for (uid, _, config) in operators {
        std::fs::write(folder.join(format!("{uid}.json")), config.to_string()).unwrap();
    }
    json!({
        "name": "ready-made",
        "parallelism": 2,
        "sources": (0..SOURCES).map(|number| source(folder, number, bound)).collect::<Vec<_>>(),
        "operators": operators.iter().map(operator).collect::<Vec<_>>(),
        "sinks": operators.iter().map(sink).collect::<Vec<_>>(),
        "execution": execution(folder, 50),
    })
}

/// What a reference program prints, line by line, in order.
fn reference(job: &Job, program: &str, uid: &str) -> Vec<String> {
    let files = |source: i64| (0..FILES).map(move |file| job.path(&format!("in-{source}/{file}.jsonl")));
    let mut arguments: Vec<PathBuf> = vec![job.path(&format!("{uid}.json")), "user".into(), "at".into()];
    arguments.extend(files(0));
    if program == "join.py" {
        arguments.push("--".into());
    }
    arguments.extend(files(1));
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/reference").join(program);
    let output = Command::new("python3").arg(program).args(arguments).output().expect("python3 computes what has to come out");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut lines: Vec<String> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    assert!(lines.len() > 100, "{} lines are too few to test anything", lines.len());
    lines
}

#[track_caller]
fn assert_same(mut found: Vec<String>, expected: &[String]) {
    found.sort();
    let wrong = found.iter().zip(expected).find(|(found, expected)| found != expected);
    assert!(wrong.is_none() && found.len() == expected.len(), "{} lines and not {}; {wrong:?}", found.len(), expected.len());
}

/// The last line of each key and window: one that was late has the window come again.
fn last_panes(lines: Vec<String>) -> Vec<String> {
    let mut panes = BTreeMap::new();
    for line in lines {
        let pane: Value = serde_json::from_str(&line).unwrap();
        panes.insert((pane["key"].as_str().unwrap().to_owned(), pane["start"].as_i64(), pane["end"].as_i64()), line);
    }
    panes.into_values().collect()
}

#[test]
fn windows_of_late_records_and_joins_are_those_of_the_reference() {
    let tumbling = aggregates(&json!({"type": "tumbling", "size-ms": 1_000, "offset-ms": 300}), 1_000);
    let sliding = aggregates(&json!({"type": "sliding", "size-ms": 1_500, "slide-ms": 500}), 1_000);
    // Records are up to 320 ms late, and the watermark waits for 20 ms only.
    let job = Job::of(|folder| {
        write_lines(folder);
        specification(folder, 20, &[("tumbling", "window-aggregate", tumbling), ("sliding", "window-aggregate", sliding)])
    });
    // At its rate: read at once, everything would be there before the first watermark.
    job.run(&[]).expect(0, &["finished"]);
    let shown = check::lines(&job.totals(), "");
    let panes = shown.len();
    let last = last_panes(shown);
    assert!(panes > last.len(), "no window came again: no record was late");
    assert_same(last, &reference(&job, "windows.py", "tumbling"));
    assert_same(last_panes(check::lines(&job.path("sliding"), "")), &reference(&job, "windows.py", "sliding"));
}

/// Sessions, and a join in which some left records stay alone; no record is late.
fn sessions_and_pairs() -> Job {
    let sessions = aggregates(&json!({"type": "session", "gap-ms": 150}), 0);
    let pairs = json!({"lower-ms": -40, "upper-ms": 70, "type": "left-outer", "right-name": "other"});
    Job::of(|folder| {
        write_lines(folder);
        let bound = i64::try_from(TOGETHER).unwrap() * STEP;
        specification(folder, bound, &[("sessions", "window-aggregate", sessions), ("pairs", "join", pairs)])
    })
}

#[track_caller]
fn check_sessions_and_pairs(job: &Job) {
    assert_same(check::lines(&job.totals(), ""), &reference(job, "windows.py", "sessions"));
    assert_same(check::lines(&job.path("pairs"), ""), &reference(job, "join.py", "pairs"));
}

#[test]
fn sessions_and_joins_are_exact_after_random_kills() {
    let seed = number("WATERWHEEL_SEED").unwrap_or_else(rand::random);
    println!("WATERWHEEL_SEED={seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut killed, mut before_the_end) = (0, 0);
    for _ in 0..2 {
        let job = sessions_and_pairs();
        for kill in 0..KILLS_A_JOB {
            let process = if kill == 0 { job.run_until(1) } else { job.start() };
            std::thread::sleep(Duration::from_millis(random.random_range(5..700)));
            killed += u64::from(process.kill());
        }
        before_the_end += check::lines(&job.totals(), "").len();
        job.finish();
        check_sessions_and_pairs(&job);
    }
    println!("{killed} kills landed, {before_the_end} sessions were visible before the last run");
    assert!(before_the_end > 0, "no session came out before the end of the input: nothing was tested");
}

#[test]
fn sessions_and_joins_go_on_with_another_parallelism() {
    let job = sessions_and_pairs();
    for parallelism in [3, 1, 4] {
        job.run_until(1).kill();
        job.change(|job| job["parallelism"] = json!(parallelism));
    }
    job.finish();
    check_sessions_and_pairs(&job);
}

/// Records that meet three rules, each known by the time of the first checkpoint; then the rules are nowhere but in state.
fn rules() -> Job {
    Job::of(|folder| {
        let mut records = String::new();
        (0..6_000).for_each(|number| writeln!(records, r#"{{"user":"user-{}","number":{number}}}"#, number % 97).unwrap());
        std::fs::write(folder.join("records.jsonl"), records).unwrap();
        let rule = |name: &str| format!("{{\"rule\":\"{name}\",\"field\":\"/number\",\"at-least\":0}}\n");
        std::fs::write(folder.join("rules.jsonl"), rule("gone") + &rule("a") + &rule("b") + &rule("c") + "{\"rule\":\"gone\"}\n").unwrap();
        let inputs = json!([{"from": "records", "key-by": {"json-pointer": "/user"}}, {"from": "rules", "broadcast": true, "as": 1}]);
        json!({
            "name": "rules",
            "parallelism": 1,
            "sources": [
                {"uid": "records", "type": "file", "path": folder.join("records.jsonl"), "rate": 1_000},
                {"uid": "rules", "type": "file", "path": folder.join("rules.jsonl")},
            ],
            "operators": [{"uid": "match", "plugin": plugin("match-rules"), "inputs": inputs}],
            "sinks": [{"uid": "matches", "type": "file", "path": folder.join("totals"), "inputs": ["match"], "delivery-guarantee": "exactly-once"}],
            "execution": execution(folder, 50),
        })
    })
}

#[test]
fn broadcast_rules_reach_every_subtask_whatever_the_parallelism_becomes() {
    let job = rules();
    let mut first = None;
    for (parallelism, killed) in [(3, true), (2, false), (2, true)] {
        // Many checkpoints, so that chains of files are folded.
        let process = job.run_until(22);
        if killed {
            process.kill();
        } else {
            process.signal("TERM");
            process.wait().expect(0, &["was stopped"]);
        }
        first.get_or_insert(check::lines(&job.totals(), "").len() / 3);
        job.change(|job| job["parallelism"] = json!(parallelism));
    }
    job.finish();
    let mut rules: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for line in check::lines(&job.totals(), "") {
        let found: Value = serde_json::from_str(&line).unwrap();
        rules.entry(found["record"]["number"].as_u64().unwrap()).or_default().push(found["rule"].as_str().unwrap().to_owned());
    }
    // Before the rules were read there were none.
    let known = rules.iter().find(|(_, rules)| rules.iter().collect::<BTreeSet<_>>().len() == 3).map_or(u64::MAX, |(number, _)| *number);
    assert!(known < 500, "the rules came with record {known}");
    let later = u64::try_from(first.unwrap()).unwrap();
    assert!(later > known && later < 5_000, "{later} records at the first kill");
    for number in known + 100..6_000 {
        let mut found = rules.remove(&number).unwrap_or_default();
        found.sort();
        assert_eq!(found, ["a", "b", "c"], "record {number}");
    }
}
