//! Folders, inputs, plugins and job files that are not as they must be: one clear sentence, the right exit code, and nothing lost.

use crate::check;
use crate::job::{Job, NARROW, Shape};
use serde_json::json;
use std::fs;

const SMALL: Shape = Shape { records: 2_000, two_sinks: false, ..NARROW };
const FAILED: i32 = 1;
const WRONG_SPECIFICATION: i32 = 2;

#[test]
fn a_checkpoint_folder_that_is_a_file_is_named() {
    let job = Job::new(SMALL);
    fs::write(job.path("checkpoints"), "").unwrap();
    job.run(&[]).expect(FAILED, &["the checkpoint directory", job.path("checkpoints").to_str().unwrap(), "cannot be used"]);
}

#[test]
fn a_checkpoint_folder_that_cannot_be_made_is_named() {
    let job = Job::new(SMALL);
    // Nobody can make folders there, whatever their rights.
    job.change(|job| job["execution"]["checkpointing"]["dir"] = json!("/proc/waterwheel/checkpoints"));
    job.run(&[]).expect(
        FAILED,
        &["the checkpoint directory /proc/waterwheel/checkpoints cannot be used", "create it, or give the program the right"],
    );
}

#[test]
fn an_output_folder_that_is_a_file_is_named() {
    let job = Job::new(SMALL);
    fs::write(job.totals(), "precious").unwrap();
    job.run(&[]).expect(FAILED, &["sink totals", job.totals().to_str().unwrap()]);
    assert_eq!(fs::read(job.totals()).unwrap(), b"precious");
    fs::remove_file(job.totals()).unwrap();
    job.finish();
    job.check();
}

#[test]
fn an_output_folder_that_was_replaced_by_a_file_stops_the_job_until_it_is_back() {
    let job = Job::new(Shape { two_sinks: false, ..NARROW });
    assert!(job.run_until(5).kill());
    fs::rename(job.totals(), job.path("moved")).unwrap();
    fs::write(job.totals(), "").unwrap();
    job.run(&[]).expect(FAILED, &["sink totals", job.totals().to_str().unwrap()]);
    fs::remove_file(job.totals()).unwrap();
    fs::rename(job.path("moved"), job.totals()).unwrap();
    job.finish();
    job.check();
}

#[test]
fn pending_output_that_somebody_deleted_is_named_and_never_passed_over() {
    let job = Job::new(Shape { two_sinks: false, ..NARROW });
    job.crash(&[], "commit::before-sinks=3*off->return(abort)");
    let pending = |path: &std::path::PathBuf| path.to_string_lossy().ends_with(".pending");
    let pending = fs::read_dir(job.totals()).unwrap().map(|entry| entry.unwrap().path()).find(pending).unwrap();
    fs::rename(&pending, job.path("moved")).unwrap();
    job.hurry();
    // A commit is never given up: the job says what is wrong, in its progress as well, and waits.
    let mut process = job.start();
    let said = ["sink totals: cannot commit", pending.to_str().unwrap(), "would be missing", "put back", " – sink totals"];
    process.wait_until("the job said what is missing", |process| said.iter().all(|words| process.said().contains(words)));
    fs::rename(job.path("moved"), &pending).unwrap();
    process.wait().expect(0, &["has finished"]);
    job.check();
}

#[test]
fn an_input_that_is_not_there_is_named() {
    let job = Job::new(SMALL);
    fs::remove_dir_all(job.path("orders-0")).unwrap();
    job.run(&[]).expect(FAILED, &["source orders-0", job.path("orders-0").to_str().unwrap()]);
}

#[test]
fn an_input_that_was_lost_in_the_middle_is_named() {
    let job = Job::new(Shape { two_sinks: false, ..NARROW });
    assert!(job.run_until(5).kill());
    let file = job.path("orders-0/0.jsonl");
    fs::rename(&file, job.path("moved")).unwrap();
    job.run(&[]).expect(FAILED, &["source orders-0", file.to_str().unwrap()]);
    fs::rename(job.path("moved"), &file).unwrap();
    job.finish();
    job.check();
}

#[test]
fn plugins_that_are_none_are_named() {
    let job = Job::new(SMALL);
    let core_module = b"\0asm\x01\0\0\0";
    for (content, words) in
        [(None, "there is no plugin at"), (Some(b"#!/bin/sh".as_slice()), "is not"), (Some(core_module.as_slice()), "core module")]
    {
        let path = job.path("plugin.wasm");
        if let Some(content) = content {
            fs::write(&path, content).unwrap();
        }
        job.change(|job| job["operators"][0]["plugin"] = json!(path));
        job.run(&[]).expect(WRONG_SPECIFICATION, &["/operators/0/plugin: ", words, "1 fault"]);
    }
    assert!(check::visible(&job.totals()).is_empty());
}

#[test]
fn every_fault_of_a_job_file_is_named() {
    let job = Job::new(SMALL);
    job.change(|job| {
        job["sources"][0]["typo"] = json!(1);
        job["operators"][1]["inputs"][0]["from"] = json!("cleen");
        job["sinks"][0]["delivery-guarantee"] = json!("exactly-twice");
    });
    job.run(&[]).expect(WRONG_SPECIFICATION, &["typo", "cleen", "exactly-twice", "faults"]);
    let wrong = job.path("job.yaml");
    fs::write(&wrong, "name: [").unwrap();
    job.run(&[]).expect(WRONG_SPECIFICATION, &["job.yaml"]);
    fs::remove_file(&wrong).unwrap();
    job.run(&[]).expect(WRONG_SPECIFICATION, &["job.yaml"]);
}
