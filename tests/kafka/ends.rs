//! Stopping with a last checkpoint, finishing, cancelling, and starting again afterwards.

use crate::job::{Job, MIXED, NARROW, Shape, WIDE};
use crate::output::Isolation;
use waterwheel::Host;
use waterwheel::host::{JobEnd, SubmitOptions};

pub(crate) fn a_stopped_job_goes_on_where_it_stopped() {
    for (signal, shape) in [("TERM", MIXED), ("INT", NARROW)] {
        let job = Job::new(shape);
        for _ in 0..2 {
            let process = job.run_until(200);
            process.signal(signal);
            process.wait().expect(0, &["stopping with a last checkpoint", "was stopped, last checkpoint", "the same command goes on"]);
            job.settle();
        }
        let stopped = job.seen();
        assert!(stopped < 4_000, "it was not stopped in the middle: {stopped}");
        job.finish();
        job.check();
    }
}

pub(crate) fn a_finished_job_says_so_and_writes_nothing() {
    let job = Job::new(Shape { records: 2_000, bounded: true, ..WIDE });
    job.finish();
    job.check();
    let before = job.read("totals", Isolation::Uncommitted);
    job.run(&[]).expect(0, &["had finished before", "nothing to do", "--fresh"]);
    assert!(job.read("totals", Isolation::Uncommitted) == before, "a finished job wrote something");
    job.check();
}

/// Cancelled by the program that embeds the host: what was not committed is aborted, and comes again.
pub(crate) fn a_cancelled_job_goes_on_from_its_newest_checkpoint() {
    let job = Job::new(WIDE);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let host = Host::builder().build().unwrap();
        let read = host.read_job(&job.path("job.yaml")).unwrap();
        let handle = host.submit(&read, SubmitOptions::default()).await.unwrap();
        let control = handle.control();
        let reached = async {
            while job.seen() < 300 {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(crate::process::PATIENCE, reached).await.unwrap();
        control.cancel().await;
        assert!(matches!(handle.wait().await, JobEnd::Cancelled));
    });
    job.finish();
    job.check();
}

pub(crate) fn an_interrupted_stop_is_like_a_crash() {
    let job = Job::new(NARROW);
    // The last checkpoint hangs.
    let mut process = job.start_with(&[], "commit::before-last-resource=4*off->sleep(30000)");
    job.wait_for_more(&mut process, 50);
    process.signal("TERM");
    process.wait_until("the first signal was heard", |process| process.said().contains("stopping"));
    process.signal("TERM");
    process.wait().expect(130, &["interrupted"]);
    job.finish();
    job.check();
}
