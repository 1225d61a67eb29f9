//! Checkpoints that do not complete in time: what was prepared for them goes into the next one.

use super::{Lab, Numbers};
use std::time::Duration;
use waterwheel::config::Span;
use waterwheel::host::JobEnd;
use waterwheel::pipeline::JobBuilder;
use waterwheel::pipeline::run::CheckpointState;
use waterwheel::pipeline::spec::{FixedDelay, RestartType, SinkSpec};
use waterwheel::sink::Guarantee;

/// Longer than a checkpoint may take.
const STALL: Duration = Duration::from_millis(1200);

fn impatient(job: JobBuilder, tolerable: u32) -> JobBuilder {
    job.execution(|execution| {
        execution.checkpointing.timeout = Span::from_millis(400);
        execution.checkpointing.tolerable_failed_checkpoints = tolerable;
        execution.restart_strategy.kind = Some(RestartType::FixedDelay);
        execution.restart_strategy.fixed_delay = Some(FixedDelay { attempts: 20, delay: Span::from_millis(5) });
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_prepared_for_an_expired_checkpoint_is_committed_by_a_later_one() {
    let lab = Lab::new(Numbers::new(2, 2_000).pause(5));
    lab.store.stall(1, STALL);
    // Subtask 1 has acknowledged when the checkpoint expires, subtask 0 does so later: both carry over.
    let (end, status) = lab.run(&impatient(lab.job().parallelism(2), 100).build()).await;
    assert!(matches!(end, JobEnd::Finished), "{end:?}");
    assert_eq!(status.restarts, 0, "{status:?}");
    let failed = status.checkpoints.latest.failed.unwrap();
    assert_eq!(failed.status, CheckpointState::Failed);
    assert!(failed.failure_message.unwrap().contains("not acknowledged by"));
    let prepared = lab.store.prepared_for(failed.id);
    assert!(prepared.len() >= 2 && prepared.iter().all(|(_, committed)| *committed), "{prepared:?}");
    assert_eq!(lab.store.pending(), 0);
    lab.expect_each_number_once();
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_that_fail_in_a_row_are_tolerated_as_often_as_the_job_says() {
    let lab = Lab::new(Numbers::new(1, 2_000).pause(5));
    lab.store.stall(2, STALL);
    let (end, status) = lab.run(&impatient(lab.job(), 0).build()).await;
    assert!(matches!(end, JobEnd::Finished), "{end:?}");
    assert!(status.restarts >= 1, "{status:?}");
    let message = &status.exceptions[0].message;
    assert!(message.contains("tolerable-failed-checkpoints is 0"), "{message}");
    lab.expect_each_number_once();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_sinks_show_everything_once_although_one_of_them_stalls() {
    let lab = Lab::new(Numbers::new(2, 1_000).pause(5));
    lab.store.stall(1, STALL);
    let second = SinkSpec::new("second", "store").input("in").guarantee(Guarantee::ExactlyOnce).parallelism(3);
    let (end, status) = lab.run(&impatient(lab.job().sink(second), 100).build()).await;
    assert!(matches!(end, JobEnd::Finished), "{end:?}");
    assert!(status.checkpoints.counts.failed >= 1, "{status:?}");
    for sink in ["out", "second"] {
        let mut visible: Vec<String> =
            lab.store.visible().into_iter().filter(|record| record.sink == sink).map(|record| record.value).collect();
        visible.sort();
        assert_eq!(visible, lab.numbers.all_values(), "{sink}");
    }
}
