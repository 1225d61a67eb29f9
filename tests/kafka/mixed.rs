//! Several sinks in one job.

use crate::job::{Job, MIXED, WIDE};
use crate::output::Isolation;
use std::time::{Duration, Instant};

/// Both topics belong to the same transactions: with the totals of an order there is the order itself, at each moment at which one looks.
pub(crate) fn two_kafka_sinks_become_visible_together() {
    let job = Job::new(WIDE);
    let mut process = job.run_until(100);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        let before = count(&job, "cleaned");
        let totals = count(&job, "totals");
        let after = count(&job, "cleaned");
        assert!(before <= totals && totals <= after, "{totals} totals beside {before} to {after} orders");
    }
    assert!(process.is_running(), "{}", process.said());
    assert!(job.kill(process));
    job.finish();
    assert_eq!(count(&job, "cleaned"), count(&job, "totals"));
    job.check();
}

fn count(job: &Job<'_>, topic: &str) -> usize {
    job.read(topic, Isolation::Committed).iter().map(Vec::len).sum()
}

/// Kafka is committed first, and the files follow, also when the process dies between the two.
pub(crate) fn kafka_and_files_are_both_exact() {
    for point in ["commit::before-sinks", "sink-file::before-rename", "sink-file::between-renames", "commit::after-sinks"] {
        let job = Job::new(MIXED);
        job.crash(&[], &format!("{point}=2*off->return(abort)"));
        job.crash(&[], &format!("{point}=3*off->return(abort)"));
        let process = job.run_until(300);
        assert!(job.kill(process));
        job.finish();
        job.check();
    }
}
