//! Another parallelism at a restart: keyed state and timers go with their key groups, positions with their splits.

use crate::check;
use crate::job::{Job, NARROW, WIDE};
use serde_json::json;

#[test]
fn a_job_goes_on_with_another_parallelism_after_a_stop_and_after_a_crash() {
    for shape in [NARROW, WIDE] {
        let job = Job::new(shape);
        for (parallelism, killed) in [(3, true), (2, false), (5, true), (1, true)] {
            let process = job.run_until(3);
            if killed {
                process.kill();
            } else {
                process.signal("TERM");
                process.wait().expect(0, &["was stopped"]);
            }
            job.change(|job| job["parallelism"] = json!(parallelism));
        }
        let shown = check::lines(&job.totals(), "").len() as u64;
        assert!(shown < shape.records, "the job ended before it had run with every parallelism");
        job.finish();
        job.check();
    }
}

#[test]
fn another_parallelism_survives_a_crash_before_its_first_checkpoint() {
    let job = Job::new(WIDE);
    job.run_until(3).kill();
    job.change(|job| job["parallelism"] = json!(1));
    job.crash(&[], "checkpoint::before-manifest=return(abort)");
    job.change(|job| job["parallelism"] = json!(4));
    job.crash(&[], "commit::before-sinks=return(abort)");
    job.finish();
    job.check();
}

#[test]
fn max_parallelism_never_changes() {
    let job = Job::new(NARROW);
    job.run_until(3).kill();
    job.change(|job| job["max-parallelism"] = json!(64));
    job.run(&[]).expect(1, &["max-parallelism is 64", "written with 128", "--fresh"]);
    job.change(|job| {
        job.as_object_mut().unwrap().remove("max-parallelism");
    });
    job.finish();
    job.check();
}
