//! A crash at every step of the protocol, once each in a narrow and in a wide job. The process must really die there.

use crate::job::{Job, NARROW, Shape, WIDE};
use waterwheel::checkpoint::failpoints::CRASH_POINTS;

/// Passed by a fork alone.
pub(crate) const FORK_POINT: &str = "recovery::after-forked";
/// Passed only by a job with a last resource, a sink that commits in a transaction of its own.
const LAST_RESOURCE_POINT: &str = "commit::before-last-resource";

fn points(first: &str) -> impl Iterator<Item = &'static str> {
    let elsewhere = [FORK_POINT, LAST_RESOURCE_POINT];
    let first = first.to_owned();
    CRASH_POINTS.iter().copied().filter(move |point| point.starts_with(&first) && !elsewhere.contains(point))
}

/// Crashes at the first passage, at a later one, and goes on to the end.
fn crash_while_running(shape: Shape, first: &str) {
    for point in points(first) {
        let job = Job::new(shape);
        job.crash(&[], &format!("{point}=return(abort)"));
        job.crash(&[], &format!("{point}=4*off->return(abort)"));
        job.finish();
        job.check();
    }
}

/// Crashes between the manifest and the commit, then at the point in the recovery from that, and goes on to the end.
fn crash_while_recovering(shape: Shape) {
    for point in points("recovery::") {
        let job = Job::new(shape);
        job.crash(&[], "commit::before-sinks=2*off->return(abort)");
        job.crash(&[], &format!("{point}=return(abort)"));
        // A crash in the recovery from a crash in the recovery.
        job.crash(&[], &format!("{point}=return(abort)"));
        job.finish();
        job.check();
    }
}

#[test]
fn narrow_job_crashes_at_each_point_of_preparing_and_of_the_manifest() {
    crash_while_running(NARROW, "sink-file::");
    crash_while_running(NARROW, "checkpoint::");
}

#[test]
fn narrow_job_crashes_at_each_point_of_the_commit() {
    crash_while_running(NARROW, "commit::");
    crash_while_running(NARROW, "retention::");
}

#[test]
fn narrow_job_crashes_at_each_point_of_a_recovery() {
    crash_while_recovering(NARROW);
}

#[test]
fn wide_job_crashes_at_each_point_of_preparing_and_of_the_manifest() {
    crash_while_running(WIDE, "sink-file::");
    crash_while_running(WIDE, "checkpoint::");
}

#[test]
fn wide_job_crashes_at_each_point_of_the_commit() {
    crash_while_running(WIDE, "commit::");
    crash_while_running(WIDE, "retention::");
}

#[test]
fn wide_job_crashes_at_each_point_of_a_recovery() {
    crash_while_recovering(WIDE);
}

/// A new job's first start: there is no checkpoint yet, or only manifest 0.
#[test]
fn a_crash_while_a_job_starts_for_the_first_time_loses_nothing() {
    for point in points("recovery::").filter(|point| *point != "recovery::between-sinks") {
        let job = Job::new(Shape { records: 2_000, ..NARROW });
        job.crash(&[], &format!("{point}=return(abort)"));
        job.finish();
        job.check();
    }
}

/// At the end of the input the last checkpoint, its commit and the entry `final` come one after the other.
#[test]
fn a_crash_at_the_end_of_the_input_loses_nothing() {
    for point in points("checkpoint::").chain(points("commit::")).chain(points("sink-file::")) {
        // Without an interval that comes to anything, the only checkpoint is the last one.
        let job = Job::new(Shape { records: 2_000, interval_ms: 600_000, ..WIDE });
        job.crash(&[], &format!("{point}=return(abort)"));
        job.finish();
        job.check();
    }
}
