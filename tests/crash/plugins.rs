//! Plugins that panic, loop and take memory without end: the record is found, named, and left to the error policy, also through kills.

use crate::check;
use crate::job::{Job, execution, plugin};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const LINES: usize = 3_000;
/// The line that a plugin cannot process.
const BAD: usize = 700;
const FAILED: i32 = 1;

/// A dead letter.
#[derive(Debug, Deserialize)]
struct Letter {
    key: Option<String>,
    value: String,
    headers: Vec<LetterHeader>,
}

#[derive(Debug, Deserialize)]
struct LetterHeader {
    name: String,
    value: String,
}

impl Letter {
    fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|header| header.name == format!("waterwheel-error-{name}"));
        &found.unwrap_or_else(|| panic!("the letter has no header {name}: {self:?}")).value
    }
}

/// Lines from a file → operators → output, and dead letters to a sink of their own where the policy says so.
fn job(folder: &Path, lines: &[String], mut operators: Vec<Value>, policy: &str) -> Value {
    let path = |name: &str| folder.join(name);
    fs::write(path("lines.txt"), lines.join("\n")).unwrap();
    fs::write(path("nothing.txt"), "").unwrap();
    let last = operators.last_mut().unwrap();
    let from = last["uid"].clone();
    last["error-policy"] = json!(policy);
    let mut sinks =
        vec![json!({"uid": "totals", "type": "file", "path": path("totals"), "inputs": [from], "delivery-guarantee": "exactly-once"})];
    if policy == "dead-letter" {
        last["dead-letter-sink"] = json!("letters");
        sinks.push(
            json!({"uid": "letters", "type": "file", "path": path("letters"), "delivery-guarantee": "exactly-once", "format": "json"}),
        );
    }
    let mut sources = vec![json!({"uid": "lines", "type": "file", "format": "lines", "path": path("lines.txt"), "rate": 2000})];
    if operators.len() > 1 {
        sources.push(json!({"uid": "nothing", "type": "file", "path": path("nothing.txt")}));
    }
    json!({
        "name": "orders",
        "sources": sources,
        "operators": operators, "sinks": sinks, "execution": execution(folder, 50),
    })
}

/// Tight where they are to be met; a busy machine must not meet the deadline otherwise.
fn limits(bad: &str) -> Value {
    let call_timeout = if bad == "loop" { "300 ms" } else { "10 s" };
    json!({"call-timeout": call_timeout, "memory": "32 MiB"})
}

/// A map plugin that meets a bad value.
fn map_job(bad: &str, policy: &str) -> Job {
    let line = |number| if number == BAD { bad.to_owned() } else { format!("line {number}") };
    let lines: Vec<String> = (0..LINES).map(line).collect();
    let limits = limits(bad);
    let operator = json!({"uid": "map", "plugin": plugin("faulty"), "inputs": ["lines"], "limits": limits});
    Job::of(|folder| job(folder, &lines, vec![operator], policy))
}

/// A keyed plugin that meets a bad value, three keys in turn.
fn keyed_job(bad: &str, policy: &str) -> Job {
    let line = |number: usize| format!("key:user-{}:{}", number % 3, if number == BAD { bad } else { "fine" });
    let lines: Vec<String> = (0..LINES).map(line).collect();
    let limits = limits(bad);
    let map = json!({"uid": "map", "plugin": plugin("faulty"), "inputs": ["lines"]});
    // The plugin has a second input, which nothing arrives at.
    let inputs = json!([{"from": "map", "key-by": "key"}, {"from": "nothing", "key-by": "key", "as": 1}]);
    let keyed = json!({"uid": "keyed", "plugin": plugin("faulty-keyed"), "inputs": inputs, "limits": limits, "parallelism": 2});
    Job::of(|folder| job(folder, &lines, vec![map, keyed], policy))
}

/// All lines but the bad one, each once and in order.
fn check_lines(job: &Job) {
    let expected: Vec<String> = (0..LINES).filter(|number| *number != BAD).map(|number| format!("line {number}")).collect();
    let found = check::lines(&job.totals(), "");
    let wrong = found.iter().zip(&expected).find(|(found, expected)| found != expected);
    assert!(
        found.len() == expected.len() && wrong.is_none(),
        "{} of {} lines, the first wrong one: {wrong:?}",
        found.len(),
        expected.len()
    );
}

/// The counts of each key rise by one, and the record that was left out left nothing behind.
fn check_counts(job: &Job) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for line in check::lines(&job.totals(), "") {
        let (user, count) = line.split_once(' ').unwrap();
        let last = counts.entry(user.to_owned()).or_default();
        assert_eq!(count.parse::<usize>().unwrap(), *last + 1, "{line} comes after {last}");
        *last += 1;
    }
    let expected = |user: usize| LINES / 3 - usize::from(BAD % 3 == user);
    assert_eq!(counts, (0..3).map(|user| (format!("user-{user}"), expected(user))).collect());
}

fn letters(job: &Job) -> Vec<Letter> {
    check::lines(&job.path("letters"), "")
        .iter()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

/// One letter, which says all that is known.
fn check_letter(job: &Job, value: &str, reason: &str, operator: &str) {
    let letters = letters(job);
    assert_eq!(letters.len(), 1, "{letters:?}");
    let letter = &letters[0];
    assert_eq!(letter.value, value);
    assert!(letter.header("reason").contains(reason), "{letter:?}");
    assert_eq!((letter.header("operator"), letter.header("source")), (operator, "lines"));
    assert!(letter.header("split").contains("lines.txt") && letter.header("position").parse::<u64>().is_ok(), "{letter:?}");
    assert_eq!(letter.key.is_some(), operator == "keyed");
}

#[test]
fn a_map_plugin_that_panics_fails_the_job_and_the_record_is_named() {
    let job = map_job("panic:ouch", "fail");
    job.run(&[]).expect(FAILED, &["operator map", "source lines", "lines.txt", "position", "cannot be processed", "ouch"]);
    // What came before is still exact, and nothing is passed over when it is started again.
    job.run(&[]).expect(FAILED, &["cannot be processed", "ouch"]);
    let shown = check::lines(&job.totals(), "");
    assert!(shown.len() <= BAD && shown.iter().enumerate().all(|(number, line)| *line == format!("line {number}")));
}

#[test]
fn a_record_that_a_map_plugin_cannot_process_is_skipped() {
    for bad in ["panic:ouch", "fail:no", "allocate"] {
        let job = map_job(bad, "skip");
        job.finish();
        check_lines(&job);
    }
}

#[test]
fn a_record_that_a_map_plugin_cannot_process_becomes_a_dead_letter() {
    let job = map_job("panic:ouch", "dead-letter");
    let mut process = job.start();
    process.wait_until("there was a letter", |_| !letters(&job).is_empty());
    process.kill();
    job.finish();
    check_lines(&job);
    check_letter(&job, "panic:ouch", "ouch", "map");
}

#[test]
fn a_map_plugin_that_loops_is_ended_and_the_record_is_found() {
    let job = map_job("loop", "skip");
    job.finish();
    check_lines(&job);
    let job = map_job("loop", "fail");
    job.run(&[]).expect(FAILED, &["operator map", "source lines", "position", "call-timeout"]);
}

#[test]
fn a_keyed_plugin_that_panics_fails_the_job_and_the_record_is_named() {
    let job = keyed_job("panic:ouch", "fail");
    job.run(&[]).expect(FAILED, &["operator keyed", "source lines", "lines.txt", "position", "cannot be processed", "ouch"]);
}

#[test]
fn a_record_that_a_keyed_plugin_cannot_process_is_found_and_stays_skipped() {
    for bad in ["panic:ouch", "allocate", "fail-batch:no"] {
        let job = keyed_job(bad, "skip");
        let mut process = job.start();
        // The record was found, and a checkpoint knows it.
        process.wait_until("it was past the record", |_| check::lines(&job.totals(), "").len() > BAD + 10);
        assert!(process.said().contains("the job is restarted to find the record"), "{}", process.said());
        process.kill();
        let ended = job.run(&[]);
        ended.expect(0, &["has finished"]);
        assert!(!ended.said.contains("restarted"), "the record was not left out by the second process:\n{}", ended.said);
        check_counts(&job);
    }
}

#[test]
fn a_record_that_a_keyed_plugin_cannot_process_becomes_one_dead_letter_through_kills() {
    let job = keyed_job("panic:ouch", "dead-letter");
    let mut process = job.start();
    process.wait_until("it failed", |process| process.said().contains("restarted"));
    process.kill();
    let mut process = job.start();
    process.wait_until("there was a letter", |_| !letters(&job).is_empty());
    process.kill();
    job.finish();
    check_counts(&job);
    check_letter(&job, "panic:ouch", "ouch", "keyed");
}

#[test]
fn a_keyed_plugin_that_loops_is_ended_and_the_record_is_found() {
    let job = keyed_job("loop", "dead-letter");
    job.finish();
    check_counts(&job);
    check_letter(&job, "loop", "call-timeout", "keyed");
}
