//! Savepoints through stops, moves, other parallelisms and crashes: what is restored goes on exactly where it stood.

use crate::check::{self, Shown};
use crate::job::{Job, NARROW, Shape};
use crate::kills::number;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use waterwheel::checkpoint::failpoints::CRASH_POINTS;

const ONE_SINK: Shape = Shape { two_sinks: false, ..NARROW };
/// Restored in a place that has no log of the job.
const ELSEWHERE: &str = "--take-over-prefix";

/// Runs `waterwheel savepoint …`.
fn savepoint(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_waterwheel")).arg("savepoint").args(arguments).output().unwrap()
}

/// The same, which must go well.
#[track_caller]
fn says(arguments: &[&str]) -> String {
    let output = savepoint(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

impl Job {
    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Runs it until there are more files of totals, and stops it with a savepoint.
    #[track_caller]
    fn stop_with_savepoint(&self, arguments: &[&str], to: &str) {
        let to = self.text(to);
        let before = check::visible(&self.totals()).len();
        let mut process = self.start_with(&[arguments, &["--savepoint-on-stop", &to]].concat(), "");
        process.wait_until("there was output", |_| check::visible(&self.totals()).len() >= before + 3);
        process.signal("TERM");
        process.wait().expect(0, &["was stopped", "last checkpoint", &format!("savepoint {to}")]);
        assert!(says(&["verify", &to]).contains("intact"));
    }

    /// A place without any checkpoint.
    fn forget_checkpoints(&self) {
        fs::remove_dir_all(self.path("checkpoints")).unwrap();
    }
}

#[test]
fn a_stop_leaves_a_savepoint_that_is_moved_and_restored_with_another_parallelism_and_another_one_again() {
    let job = Job::new(NARROW);
    job.stop_with_savepoint(&[], "sp-1");
    job.forget_checkpoints();
    fs::create_dir(job.path("moved")).unwrap();
    fs::rename(job.path("sp-1"), job.path("moved/first")).unwrap();
    job.change(|job| job["parallelism"] = json!(3));
    job.stop_with_savepoint(&["--from-savepoint", &job.text("moved/first"), ELSEWHERE], "sp-2");
    job.forget_checkpoints();
    job.change(|job| job["parallelism"] = json!(2));
    job.hurry();
    job.run(&["--from-savepoint", &job.text("sp-2"), ELSEWHERE]).expect(0, &["has finished"]);
    job.check();
    assert!(job.path("moved/first/_metadata").exists(), "a savepoint that is not claimed is never touched");
}

/// The totals in a savepoint, by user.
fn totals_in(savepoint: &str) -> HashMap<String, u64> {
    let lines = says(&["read", savepoint, "--operator", "total", "--state", "totals"]);
    let total = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        (line["key"].as_str().unwrap().to_owned(), line["value"]["count"].as_u64().unwrap())
    };
    lines.lines().map(total).collect()
}

/// What a job shows that was started from a savepoint, in a folder of its own: each user's totals go on where they stood.
#[track_caller]
fn check_restored(job: &Job, savepoint: &str, name: &str) {
    let before = totals_in(savepoint);
    job.change(|specification| {
        specification["sinks"][0]["path"] = json!(job.path(name));
        specification["execution"]["checkpointing"]["dir"] = json!(job.path(&format!("{name}-checkpoints")));
    });
    job.hurry();
    job.run(&["--from-savepoint", savepoint, ELSEWHERE]).expect(0, &["has finished"]);
    let shown = check::totals_from(&job.path(name), "", &job.sources, false);
    for (user, (first, _)) in &shown {
        assert_eq!(*first, before.get(user).copied().unwrap_or(0) + 1, "{user} does not go on where it stood");
    }
    let untouched = before.iter().filter(|(user, _)| !shown.contains_key(*user)).map(|(user, count)| (user.clone(), (*count, *count)));
    let whole: Shown = untouched.chain(shown.clone()).collect();
    check::assert_complete(&whole, &job.sources);
}

#[test]
fn savepoints_of_a_running_job_are_exact_through_kills() {
    let seed = number("WATERWHEEL_SEED").unwrap_or_else(rand::random);
    println!("WATERWHEEL_SEED={seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let job = Job::new(ONE_SINK);
    let file = job.text("job.yaml");
    let mut made = Vec::new();
    for kill in 0..6 {
        let process = job.run_until(2);
        for number in 0..2 {
            let to = job.text(&format!("sp-{kill}-{number}"));
            let said = says(&["create", &file, "--to", &to]);
            assert!(said.contains(&to) && said.contains("of job orders, checkpoint"), "{said}");
            made.push(to);
            std::thread::sleep(Duration::from_millis(random.random_range(0..60)));
        }
        process.kill();
        // The same beside nobody.
        let to = job.text(&format!("sp-{kill}-still"));
        says(&["create", &file, "--to", &to]);
        made.push(to);
    }
    job.finish();
    job.check();
    for savepoint in &made {
        assert!(says(&["verify", savepoint]).contains("intact"));
    }
    let mut sums: Vec<u64> = made.iter().map(|savepoint| totals_in(savepoint).values().sum()).collect();
    assert!(sums.is_sorted() && sums[0] > 0, "{sums:?}");
    sums.dedup();
    assert!(sums.len() >= 6, "the savepoints are of the same checkpoints: {sums:?}");
    for (name, savepoint) in [("first", made.first()), ("middle", made.get(made.len() / 2)), ("last", made.last())] {
        check_restored(&job, savepoint.unwrap(), name);
    }
}

/// The points of making a savepoint.
fn points() -> impl Iterator<Item = &'static str> {
    CRASH_POINTS.iter().copied().filter(|point| point.starts_with("savepoint::") && !point.contains("delete"))
}

#[test]
fn a_crash_at_each_point_of_a_stop_with_a_savepoint_leaves_a_whole_one_or_none_and_the_job_goes_on() {
    assert_eq!(points().count(), 4);
    for point in points() {
        let job = Job::new(NARROW);
        let to = job.text("sp");
        let mut process = job.start_with(&["--savepoint-on-stop", &to], &format!("{point}=return(abort)"));
        process.wait_until("there was output", |_| check::visible(&job.totals()).len() >= 3);
        process.signal("TERM");
        process.wait().expect_abort(point);
        let is_there = savepoint(&["verify", &to]).status.success();
        assert_eq!(is_there, point == "savepoint::after-manifest", "{point}");
        // The last checkpoint is there, and gives the same savepoint.
        says(&["create", &job.text("job.yaml"), "--to", &to]);
        assert!(says(&["verify", &to]).contains("intact"), "{point}");
        job.finish();
        job.check();
    }
}

#[test]
fn a_crash_at_each_point_beside_the_running_job_does_it_no_harm() {
    let job = Job::new(ONE_SINK);
    let process = job.run_until(3);
    for point in points() {
        let to = job.text(&point.replace("::", "-"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_waterwheel"));
        command.args(["savepoint", "create", &job.text("job.yaml"), "--to", &to]).env("FAILPOINTS", format!("{point}=return(abort)"));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), None, "it did not crash at {point}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(savepoint(&["verify", &to]).status.success(), point == "savepoint::after-manifest", "{point}");
    }
    drop(process);
    job.finish();
    job.check();
}

/// A job that was stopped with a savepoint and has gone on since.
fn gone_on() -> Job {
    let job = Job::new(ONE_SINK);
    job.stop_with_savepoint(&[], "sp");
    job.run_until(3).kill();
    job
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() { found.extend(files(&entry.path())) } else { found.push(entry.path()) }
    }
    found
}

#[test]
fn a_damaged_savepoint_is_refused_by_the_name_of_the_file_and_the_job_goes_on() {
    let job = gone_on();
    let restore = ["--from-savepoint", &job.text("sp"), "--allow-duplicate-output"];
    let all = files(&job.path("sp"));
    assert!(all.len() >= 2, "{all:?}");
    for file in all {
        let content = fs::read(&file).unwrap();
        let mut flipped = content.clone();
        flipped[content.len() / 2] ^= 4;
        let name = file.file_name().unwrap().to_str().unwrap();
        for damaged in [Some(&content[..content.len() - 3]), Some(&flipped), None] {
            match damaged {
                Some(damaged) => fs::write(&file, damaged).unwrap(),
                None => fs::remove_file(&file).unwrap(),
            }
            let ended = job.run(&restore);
            assert!(matches!(ended.status.code(), Some(1 | 2)), "{}", ended.said);
            assert!(ended.said.contains(name), "{name} is not named:\n{}", ended.said);
            let verified = savepoint(&["verify", &job.text("sp")]);
            assert!(!verified.status.success() && String::from_utf8_lossy(&verified.stderr).contains(name));
            fs::write(&file, &content).unwrap();
        }
    }
    // Nothing was closed, fenced or written.
    assert!(!job.path("checkpoints/orders.2/chk-0").exists());
    job.finish();
    job.check();
}

#[test]
fn a_plugin_that_refuses_the_state_leaves_everything_as_it_was() {
    let job = gone_on();
    let line = r#"{"operator":"total","state":"totals","version":9,"key":"user-1","value":{"count":1,"sum":1}}"#;
    fs::write(job.path("lines"), line).unwrap();
    let newer = job.text("newer");
    says(&["write", &job.text("lines"), "--job", "orders", "--to", &newer]);
    let before = files(&job.path("checkpoints"));
    let ended = job.run(&["--from-savepoint", &newer, "--allow-duplicate-output"]);
    ended.expect(1, &["operator total", "refuses its state \"totals\" of version 9"]);
    assert_eq!(files(&job.path("checkpoints")), before, "a refused start wrote something");
    job.finish();
    job.check();
}

#[test]
fn a_savepoint_of_the_past_is_restored_with_permission_and_repeats_what_came_after() {
    let job = gone_on();
    let sp = job.text("sp");
    job.run(&["--from-savepoint", &sp]).expect(1, &["would be shown again", "--allow-duplicate-output"]);
    let before = totals_in(&sp);
    job.hurry();
    job.run(&["--from-savepoint", &sp, "--allow-duplicate-output"]).expect(0, &["has finished"]);
    let new = check::totals_from(&job.totals(), "@orders.2-", &job.sources, false);
    assert!(!new.is_empty());
    for (user, (first, _)) in &new {
        assert_eq!(*first, before.get(user).copied().unwrap_or(0) + 1, "{user}");
    }
    // The same command again: it was restored, and the job has finished.
    job.run(&["--from-savepoint", &sp, "--allow-duplicate-output"]).expect(0, &["had finished before"]);
}

#[test]
fn state_from_a_batch_is_what_a_job_begins_with() {
    let job = Job::new(ONE_SINK);
    // A smaller batch of the same orders computes it.
    let other = Job::new(Shape { records: 2_000, ..ONE_SINK });
    other.stop_with_savepoint(&[], "sp");
    let shape = says(&["read", &other.text("sp"), "--operator", "total", "--state", "totals"]);
    assert!(shape.lines().count() > 100, "{shape}");
    fs::write(job.path("lines"), &shape).unwrap();
    let to = job.text("bootstrap");
    says(&["write", &job.text("lines"), "--job", "orders", "--to", &to]);
    let before = totals_in(&to);
    job.change(|job| job["parallelism"] = json!(2));
    job.hurry();
    // No job made it, so none is replaced.
    job.run(&["--from-savepoint", &to]).expect(0, &["has finished"]);
    for (user, (first, last)) in shown_loosely(&job) {
        let begun = before.get(&user).copied().unwrap_or(0);
        assert_eq!(first, begun + 1, "{user}");
        assert!(last > begun);
    }
    job.run(&["--from-savepoint", &to]).expect(0, &["had finished before"]);
}

/// First and last total of each user, whatever the sums.
fn shown_loosely(job: &Job) -> HashMap<String, (u64, u64)> {
    let mut shown: HashMap<String, (u64, u64)> = HashMap::new();
    for line in check::lines(&job.totals(), "") {
        let line: Value = serde_json::from_str(&line).unwrap();
        let count = line["count"].as_u64().unwrap();
        shown.entry(line["key"].as_str().unwrap().to_owned()).or_insert((count, 0)).1 = count;
    }
    shown
}

#[test]
fn a_claimed_savepoint_is_deleted_after_the_first_own_checkpoint_through_crashes() {
    for point in [None, Some("savepoint::before-delete"), Some("savepoint::between-deletes")] {
        let job = Job::new(NARROW);
        job.stop_with_savepoint(&[], "sp");
        job.forget_checkpoints();
        let claim = ["--from-savepoint", &job.text("sp"), "--claim", ELSEWHERE];
        // Before its first checkpoint is completed the savepoint stays.
        job.crash(&claim, "commit::before-sinks=return(abort)");
        assert!(says(&["verify", &job.text("sp")]).contains("intact"));
        if let Some(point) = point {
            job.crash(&claim, &format!("{point}=return(abort)"));
            assert_eq!(job.path("sp/_metadata").exists(), point == "savepoint::before-delete");
        }
        job.hurry();
        let again: &[&str] = if job.path("sp/_metadata").exists() { &claim } else { &[] };
        job.run(again).expect(0, &["has finished"]);
        assert!(!job.path("sp/_metadata").exists());
        job.check();
    }
}

#[test]
fn only_a_savepoint_can_be_claimed() {
    let job = Job::new(ONE_SINK);
    job.run_until(3).kill();
    job.run(&["--from-checkpoint", "latest", "--claim"]).expect(2, &["only a savepoint can be claimed"]);
    job.finish();
    job.check();
}

#[test]
fn a_stop_that_cannot_leave_a_savepoint_is_refused_at_the_start() {
    let job = Job::new(ONE_SINK);
    job.stop_with_savepoint(&[], "sp");
    job.run(&["--savepoint-on-stop", &job.text("sp")]).expect(2, &["--savepoint-on-stop", "there is a savepoint at"]);
    job.run(&["--savepoint-on-stop"]).expect(2, &["savepoint-dir"]);
    job.change(|specification| {
        specification["execution"]["checkpointing"]["savepoint-dir"] = json!(job.path("many"));
    });
    let mut process = job.start_with(&["--savepoint-on-stop"], "");
    let before = check::visible(&job.totals()).len();
    process.wait_until("there was output", |_| check::visible(&job.totals()).len() > before);
    process.signal("INT");
    process.wait().expect(0, &["many/savepoint-orders-"]);
    says(&["create", &job.text("job.yaml")]);
    assert_eq!(says(&["list", &job.text("many")]).lines().count(), 2, "the same checkpoint gives the same savepoint");
    job.finish();
    job.check();
}
