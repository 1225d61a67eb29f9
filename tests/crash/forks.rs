//! Beginning again and restoring an older checkpoint: a new incarnation closes the old one's log, through crashes on the way. Output repeats where a
//! person allowed it, and only there.

use crate::check;
use crate::job::{Job, NARROW, Shape};
use crate::points::FORK_POINT;
use waterwheel::checkpoint::failpoints::CRASH_POINTS;

const OLD: &str = "@orders-";
const NEW: &str = "@orders.2-";

fn job_that_was_killed() -> Job {
    let job = Job::new(Shape { two_sinks: false, ..NARROW });
    assert!(job.run_until(10).kill(), "it was to be killed in the middle");
    job
}

/// The points that a fork passes, with prepared work of one sink.
fn points() -> impl Iterator<Item = &'static str> {
    CRASH_POINTS.iter().copied().filter(|point| point.starts_with("recovery::") && *point != "recovery::between-sinks")
}

/// The slots of the completed checkpoints of the first incarnation.
fn slots(job: &Job) -> Vec<u64> {
    let entries = std::fs::read_dir(job.path("checkpoints/orders")).unwrap().map(Result::unwrap);
    // A kill in the middle of a deletion leaves an empty folder.
    let names = entries.filter(|entry| entry.path().join("_metadata").exists()).map(|entry| entry.file_name().into_string().unwrap());
    let mut slots: Vec<u64> = names.filter_map(|name| name.strip_prefix("chk-")?.parse().ok()).collect();
    slots.sort_unstable();
    slots
}

/// Finishes a fork that crashed. Once its first manifest is there, the job's plain command goes on with it; between that and the closing of the old log
/// permission is asked for again.
fn finish(job: &Job, point: &str, arguments: &[&str]) {
    job.hurry();
    if [FORK_POINT, "recovery::before-copy"].contains(&point) {
        job.run(&[]).expect(1, &["would be shown again", "--allow-duplicate-output"]);
        job.run(arguments).expect(0, &["has finished"]);
    } else {
        job.run(&[]).expect(0, &["has finished"]);
    }
}

#[test]
fn a_crash_at_each_point_of_beginning_again_is_finished_by_the_same_command() {
    assert!(points().any(|point| point == FORK_POINT));
    let again = ["--fresh", "--allow-duplicate-output"];
    for point in points() {
        let job = job_that_was_killed();
        job.crash(&again, &format!("{point}=return(abort)"));
        finish(&job, point, &again);
        let newest = if check::lines(&job.totals(), NEW).is_empty() { OLD } else { NEW };
        if point == FORK_POINT {
            assert_eq!(newest, NEW);
        }
        let shown = check::totals_from(&job.totals(), newest, &job.sources, true);
        check::assert_complete(&shown, &job.sources);
        // What the old one showed is exact as far as it goes.
        check::totals_from(&job.totals(), OLD, &job.sources, true);
    }
}

#[test]
fn a_crash_at_each_point_of_restoring_an_older_checkpoint_is_finished_by_the_same_command() {
    for point in points() {
        let job = job_that_was_killed();
        let slots = slots(&job);
        let oldest = slots.first().unwrap().to_string();
        job.run(&["--from-checkpoint", &oldest]).expect(1, &["would be shown again", "--allow-duplicate-output"]);
        let restore = ["--from-checkpoint", &oldest, "--allow-duplicate-output"];
        job.crash(&restore, &format!("{point}=return(abort)"));
        finish(&job, point, &restore);
        if check::lines(&job.totals(), NEW).is_empty() {
            // It crashed before it had closed the old log: the plain command goes on with the old incarnation.
            job.check();
            continue;
        }
        let old = check::totals_from(&job.totals(), OLD, &job.sources, true);
        let new = check::totals_from(&job.totals(), NEW, &job.sources, false);
        for (user, (first, _)) in &new {
            let shown = old.get(user).map_or(0, |(_, last)| *last);
            assert!(*first <= shown + 1, "{user}: totals {shown} to {first} are missing");
        }
        let together = old.into_iter().chain(new).collect();
        check::assert_complete(&together, &job.sources);
    }
}

#[test]
fn an_instance_that_was_replaced_stops_for_good() {
    let job = Job::new(Shape { two_sinks: false, ..NARROW });
    let old = job.run_until(4);
    job.hurry();
    let new = job.start_with(&["--fresh", "--allow-duplicate-output"], "");
    old.wait().expect(3, &["orders", "replaced by orders.2"]);
    new.wait().expect(0, &["has finished"]);
    let shown = check::totals_from(&job.totals(), NEW, &job.sources, true);
    check::assert_complete(&shown, &job.sources);
    check::totals_from(&job.totals(), OLD, &job.sources, true);
}
