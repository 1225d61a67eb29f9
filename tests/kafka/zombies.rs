//! Two instances of one job: the later one takes over, and the earlier one stops for good, whenever it wakes and notices.

use crate::harness::{SUMMARY, Summary};
use crate::job::{Job, MIXED, NARROW, Shape, WIDE, wait_until_stopped};
use crate::output::Isolation;

const SUPERSEDED: i32 = 3;

pub(crate) fn a_second_instance_takes_over_and_the_first_one_says_so() {
    for shape in [NARROW, MIXED] {
        let job = Job::new(shape);
        let first = job.run_until(200);
        let second = job.start();
        first.wait().expect(SUPERSEDED, &["superseded by generation 2", "another instance of this job", "this one stops"]);
        job.conclude(second);
        job.check();
    }
}

pub(crate) fn instances_that_take_over_in_turn_leave_exact_output() {
    // Enough that orders still come for the last one.
    let job = Job::new(Shape { records: 16_000, ..WIDE });
    let mut running = job.run_until(100);
    for _ in 0..4 {
        let next = job.run_until(100);
        running.wait().expect(SUPERSEDED, &["superseded"]);
        running = next;
    }
    job.conclude(running);
    job.check();
}

/// Asleep at each step of a checkpoint, and awake while the second instance is at work.
pub(crate) fn an_instance_that_slept_while_another_ran_writes_nothing_more() {
    for point in SLEEP_POINTS {
        let job = Job::new(WIDE);
        let first = job.start_with(&[], &format!("{point}=3*off->1*return(stop)->off"));
        wait_until_stopped(&first);
        let second = job.run_until(300);
        Summary::count(&SUMMARY.zombies);
        first.signal("CONT");
        first.wait().expect(SUPERSEDED, &["superseded by generation 2"]);
        job.conclude(second);
        job.check();
    }
}

pub(crate) fn an_instance_that_slept_through_the_end_writes_nothing_more() {
    for point in SLEEP_POINTS {
        let job = Job::new(WIDE);
        let first = job.start_with(&[], &format!("{point}=3*off->1*return(stop)->off"));
        wait_until_stopped(&first);
        job.finish();
        job.check();
        let before = ["totals", "cleaned"].map(|topic| job.read(topic, Isolation::Uncommitted));
        Summary::count(&SUMMARY.zombies);
        first.signal("CONT");
        first.wait().expect(SUPERSEDED, &["superseded by generation 2"]);
        let after = ["totals", "cleaned"].map(|topic| job.read(topic, Isolation::Uncommitted));
        assert!(before == after, "the first instance wrote after it was superseded, at {point}");
        job.check();
    }
}

/// The moments at which an instance is put to sleep.
pub(crate) const SLEEP_POINTS: [&str; 5] = [
    "checkpoint::before-manifest",
    "checkpoint::after-manifest",
    "commit::before-last-resource",
    "commit::after-sinks",
    "retention::before-deletes",
];
