//! A crash at every step of the protocol, once at the first passage and once at a later one, in a narrow and in a wide job. The process must really die
//! there.

use crate::job::{Job, MIXED, NARROW, Shape, WIDE};
use waterwheel::checkpoint::failpoints::CRASH_POINTS;

/// Passed by a fork alone.
pub(crate) const FORK_POINT: &str = "recovery::after-forked";
/// Steps between two sinks beside Kafka's, which are one here at most.
const OTHER_SINKS: [&str; 2] = ["recovery::between-sinks", "commit::between-sinks"];

/// Steps of a start that the sinks take.
const START: [&str; 2] = ["sink-kafka::after-marker-read", "sink-kafka::after-fencing-one"];

/// The points that a job passes, in its starts or while it runs.
fn points(shape: Shape, starting: bool) -> Vec<&'static str> {
    let has_files = shape.second == crate::job::Second::Files;
    let passes = |point: &str| {
        let elsewhere = point == FORK_POINT || OTHER_SINKS.contains(&point) || point.starts_with("savepoint::");
        !elsewhere && (has_files || !point.starts_with("sink-file::"))
    };
    let at_a_start = |point: &str| point.starts_with("recovery::") || START.contains(&point);
    CRASH_POINTS.iter().copied().filter(|point| passes(point) && at_a_start(point) == starting).collect()
}

/// Crashes at the first passage, at a later one, and goes on to the end.
fn crash_while_running(shape: Shape) {
    for point in points(shape, false) {
        let job = Job::new(shape);
        job.crash(&[], &format!("{point}=return(abort)"));
        job.crash(&[], &format!("{point}=4*off->return(abort)"));
        job.finish();
        job.check();
    }
}

/// Crashes between the manifest and the commit, then at the point in the recovery from that, twice, and goes on to the end.
fn crash_while_recovering(shape: Shape) {
    for point in points(shape, true) {
        let job = Job::new(shape);
        job.crash(&[], "checkpoint::after-manifest=2*off->return(abort)");
        job.crash(&[], &format!("{point}=return(abort)"));
        job.crash(&[], &format!("{point}=return(abort)"));
        job.finish();
        job.check();
    }
}

pub(crate) fn narrow_job_crashes_at_each_point_of_a_checkpoint() {
    crash_while_running(NARROW);
}

pub(crate) fn narrow_job_crashes_at_each_point_of_a_recovery() {
    crash_while_recovering(NARROW);
}

pub(crate) fn wide_job_crashes_at_each_point_of_a_checkpoint() {
    crash_while_running(MIXED);
}

pub(crate) fn wide_job_crashes_at_each_point_of_a_recovery() {
    crash_while_recovering(WIDE);
}

/// A new job's first start: there is no marker yet, or only that of manifest 0.
pub(crate) fn a_crash_while_a_job_starts_for_the_first_time_loses_nothing() {
    for point in points(NARROW, true) {
        let job = Job::new(Shape { records: 1_000, ..NARROW });
        job.crash(&[], &format!("{point}=return(abort)"));
        job.finish();
        job.check();
    }
}

/// At the end of the input the last checkpoint, its commit and the entry `final` come one after the other.
pub(crate) fn a_crash_at_the_end_of_the_input_loses_nothing() {
    for point in points(MIXED, false).into_iter().filter(|point| !point.starts_with("retention::")) {
        // With such an interval the only checkpoint is the last one.
        let job = Job::new(Shape { records: 1_000, interval_ms: 30_000, bounded: true, ..MIXED });
        job.crash(&[], &format!("{point}=return(abort)"));
        job.finish();
        job.check();
    }
}
