//! Stopping with a last checkpoint, going on, and running a job that has finished.

use crate::check;
use crate::job::{Job, NARROW, Shape, WIDE};

#[test]
fn a_stopped_job_goes_on_where_it_stopped() {
    for signal in ["TERM", "INT"] {
        let job = Job::new(WIDE);
        for _ in 0..2 {
            let process = job.run_until(4);
            process.signal(signal);
            process.wait().expect(0, &["stopping with a last checkpoint", "was stopped, last checkpoint", "the same command goes on"]);
        }
        let stopped = check::lines(&job.totals(), "").len();
        assert!(stopped > 0 && (stopped as u64) < WIDE.records, "it was not stopped in the middle: {stopped}");
        job.finish();
        job.check();
    }
}

#[test]
fn what_a_stop_leaves_is_visible_and_no_more_is_repeated() {
    let job = Job::new(Shape { interval_ms: 600_000, ..NARROW });
    let mut process = job.start();
    process.wait_until("records were written", |_| std::fs::read_dir(job.totals()).is_ok_and(|mut files| files.next().is_some()));
    assert!(check::visible(&job.totals()).is_empty(), "output is visible before any checkpoint");
    process.signal("TERM");
    process.wait().expect(0, &["was stopped"]);
    assert!(!check::visible(&job.totals()).is_empty(), "the last checkpoint shows nothing");
    job.finish();
    job.check();
}

#[test]
fn a_job_that_died_while_it_stopped_goes_on_when_it_is_started_again() {
    let job = Job::new(NARROW);
    // A stop is recorded, and the process dies before its checkpoint is complete.
    let mut process = job.start_with(&[], "commit::before-sinks=6*off->sleep(1500)->return(abort)");
    process.wait_until("there was output", |_| !check::visible(&job.totals()).is_empty());
    process.signal("TERM");
    process.wait_until("the stop was heard", |process| process.said().contains("stopping"));
    std::thread::sleep(std::time::Duration::from_millis(300));
    process.kill();
    job.hurry();
    job.run(&[]).expect(0, &["has finished"]);
    job.check();
}

#[test]
fn a_second_signal_ends_at_once() {
    let job = Job::new(NARROW);
    // The last checkpoint hangs.
    let mut process = job.start_with(&[], "commit::before-sinks=2*off->sleep(30000)");
    process.wait_until("there was output", |_| !check::visible(&job.totals()).is_empty());
    process.signal("TERM");
    process.wait_until("the first signal was heard", |process| process.said().contains("stopping"));
    process.signal("TERM");
    process.wait().expect(130, &["interrupted"]);
    job.hurry();
    job.run(&[]).expect(0, &["has finished"]);
    job.check();
}

#[test]
fn a_finished_job_says_so_and_writes_nothing() {
    let job = Job::new(Shape { records: 3_000, ..NARROW });
    job.finish();
    let before = check::visible(&job.totals());
    job.run(&[]).expect(0, &["had finished before", "nothing to do", "--fresh"]);
    assert_eq!(check::visible(&job.totals()), before);
    job.check();
}

#[test]
fn beginning_again_after_the_end_needs_permission_and_repeats_all() {
    let job = Job::new(Shape { records: 3_000, two_sinks: false, ..NARROW });
    job.finish();
    let before = check::visible(&job.totals());
    job.run(&["--fresh"]).expect(1, &["would be shown again", "--allow-duplicate-output"]);
    assert_eq!(check::visible(&job.totals()), before, "a refused start wrote something");
    job.hurry();
    job.run(&["--fresh", "--allow-duplicate-output"]).expect(0, &["has finished"]);
    for incarnation in ["@orders-", "@orders.2-"] {
        let shown = check::totals_from(&job.totals(), incarnation, &job.sources, true);
        check::assert_complete(&shown, &job.sources);
    }
    job.run(&[]).expect(0, &["had finished before", "orders.2"]);
}
