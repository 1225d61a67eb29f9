//! The marker gone, or another one than the job's: refused by name, before anything is fenced, until a person decides.

use crate::harness::BROKER;
use crate::job::{Job, NARROW, WIDE};
use crate::output::Isolation;
use crate::topics;
use serde_json::json;

/// Killed between the manifest and the commit: whether its transaction was committed is the question.
fn job_killed_before_a_commit() -> Job<'static> {
    let job = Job::new(WIDE);
    job.crash(&[], "checkpoint::after-manifest=4*off->return(abort)");
    job
}

pub(crate) fn a_marker_topic_that_was_deleted_is_named_and_a_person_decides() {
    let job = job_killed_before_a_commit();
    let topic = job.marker_topic();
    topics::delete(&BROKER, &topic);
    job.run(&[]).expect(1, &["no marker", &job.name, "--marker-missing"]);
    // Nothing of it was committed, which nobody but this test can know.
    job.conclude(job.start_with(&["--marker-missing", "aborted"], ""));
    job.check();
}

pub(crate) fn a_marker_topic_that_was_emptied_is_named_and_a_person_decides() {
    let job = job_killed_before_a_commit();
    topics::empty(&BROKER, &job.marker_topic(), 0);
    job.run(&[]).expect(1, &["no marker", &job.name, "--marker-missing"]);
    job.conclude(job.start_with(&["--marker-missing", "aborted"], ""));
    job.check();

    // After a stop all is committed; the marker of the stop is gone.
    let job = Job::new(NARROW);
    let process = job.run_until(200);
    process.signal("TERM");
    process.wait().expect(0, &["was stopped"]);
    topics::empty(&BROKER, &job.marker_topic(), 0);
    job.run(&[]).expect(1, &["no marker", "--marker-missing"]);
    job.conclude(job.start_with(&["--marker-missing", "committed"], ""));
    job.check();
}

/// Another job that runs under the same prefix: it must not notice that somebody tried.
pub(crate) fn another_jobs_prefix_is_refused() {
    let (owner, other) = (Job::new(NARROW), Job::new(NARROW));
    let mut running = owner.run_until(200);
    other.change(|job| {
        for sink in job["sinks"].as_array_mut().unwrap() {
            sink["transactional-id-prefix"] = json!(owner.name);
        }
    });
    other.run(&[]).expect(1, &[&owner.name, &other.name]);
    owner.wait_for_more(&mut running, 200);
    owner.conclude(running);
    owner.check();
    let uncommitted = other.read("totals", Isolation::Uncommitted);
    assert!(uncommitted.iter().all(Vec::is_empty), "the refused job wrote something");
    // The owner was stopped, which released the prefix.
    other.finish();
    other.check();
}

pub(crate) fn the_same_job_on_another_storage_is_refused() {
    let job = Job::new(NARROW);
    let mut running = job.run_until(200);
    let mut elsewhere: serde_json::Value = serde_json::from_slice(&std::fs::read(job.path("job.yaml")).unwrap()).unwrap();
    elsewhere["execution"]["checkpointing"]["dir"] = json!(job.path("other-checkpoints"));
    let file = job.path("elsewhere.yaml");
    std::fs::write(&file, serde_json::to_vec(&elsewhere).unwrap()).unwrap();
    job.start_file(&file, &[], "").wait().expect(1, &["checkpoint directory", &job.name]);
    job.wait_for_more(&mut running, 200);
    job.conclude(running);
    job.check();
}
