//! Restart strategies, and what comes of output when the job fails in the middle.

use super::{Lab, Numbers};
use std::time::Duration;
use waterwheel::config::Span;
use waterwheel::host::JobEnd;
use waterwheel::pipeline::JobBuilder;
use waterwheel::pipeline::run::JobState;
use waterwheel::pipeline::spec::{CheckpointMode, ExponentialDelay, FailureRate, FixedDelay, RestartType};
use waterwheel::sink::Guarantee;

const SOON: Span = Span::from_millis(5);

fn fixed_delay(job: JobBuilder, attempts: u32) -> JobBuilder {
    job.execution(|execution| {
        execution.restart_strategy.kind = Some(RestartType::FixedDelay);
        execution.restart_strategy.fixed_delay = Some(FixedDelay { attempts, delay: SOON });
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_restarted_as_often_as_fixed_delay_allows_and_its_output_is_exact() {
    let lab = Lab::new(Numbers::new(2, 300).pause(1).failing(3));
    let (end, status) = lab.run(&fixed_delay(lab.job().parallelism(2), 3).build()).await;
    assert!(matches!(end, JobEnd::Finished), "{end:?}");
    assert_eq!((status.state, status.restarts), (JobState::Finished, 3));
    assert!(status.exceptions.iter().all(|exception| exception.message.contains("source in: the numbers are gone")), "{status:?}");
    lab.expect_each_number_once();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_more_than_fixed_delay_allows_ends_the_job() {
    let lab = Lab::new(Numbers::new(1, 300).pause(1).failing(3));
    let (end, status) = lab.run(&fixed_delay(lab.job(), 2).build()).await;
    assert!(matches!(&end, JobEnd::Failed(error) if error.to_string().contains("the numbers are gone")), "{end:?}");
    assert_eq!((status.state, status.restarts), (JobState::Failed, 2));
    assert!(lab.store.visible().len() < 300);
}

#[tokio::test(flavor = "multi_thread")]
async fn none_ends_the_job_at_once_and_a_later_start_goes_on() {
    let lab = Lab::new(Numbers::new(1, 300).pause(1).failing(1));
    let spec = lab.job().execution(|execution| execution.restart_strategy.kind = Some(RestartType::None)).build();
    let (end, status) = lab.run(&spec).await;
    assert!(matches!(end, JobEnd::Failed(_)), "{end:?}");
    assert_eq!(status.restarts, 0);
    assert!(matches!(lab.run(&spec).await.0, JobEnd::Finished));
    lab.expect_each_number_once();
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_rate_ends_a_job_that_fails_too_often() {
    for (failures, finishes) in [(2, true), (3, false)] {
        let lab = Lab::new(Numbers::new(1, 300).pause(1).failing(failures));
        let spec = lab.job().execution(|execution| {
            execution.restart_strategy.kind = Some(RestartType::FailureRate);
            let failure_rate_interval = Span::from_millis(3_600_000);
            execution.restart_strategy.failure_rate =
                Some(FailureRate { max_failures_per_interval: 2, failure_rate_interval, delay: SOON });
        });
        let (end, status) = lab.run(&spec.build()).await;
        assert_eq!(matches!(end, JobEnd::Finished), finishes, "{end:?}");
        assert_eq!(status.restarts, 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exponential_delay_is_what_a_job_with_checkpoints_has_by_default() {
    let lab = Lab::new(Numbers::new(1, 300).pause(1).failing(3));
    let delays = ExponentialDelay {
        initial_backoff: Span::from_millis(40),
        backoff_multiplier: 2.0,
        jitter_factor: 0.0,
        ..ExponentialDelay::default()
    };
    let spec = lab.job().execution(|execution| execution.restart_strategy.exponential_delay = Some(delays)).build();
    let began = std::time::Instant::now();
    let (end, status) = lab.run(&spec).await;
    assert!(matches!(end, JobEnd::Finished), "{end:?}");
    assert_eq!(status.restarts, 3);
    assert!(began.elapsed() >= Duration::from_millis(40 + 80 + 160));
    lab.expect_each_number_once();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_without_checkpoints_is_not_restarted_by_default_and_begins_again_where_it_is_asked_to_be() {
    let lab = Lab::new(Numbers::new(1, 300).failing(1));
    let (end, _) = lab.run(&lab.job_with(Guarantee::None).build()).await;
    assert!(matches!(end, JobEnd::Failed(_)), "{end:?}");

    let lab = Lab::new(Numbers::new(1, 300).failing(1));
    let (end, status) = lab.run(&fixed_delay(lab.job_with(Guarantee::None), 1).build()).await;
    assert!(matches!(end, JobEnd::Finished), "{end:?}");
    assert_eq!(status.restarts, 1);
    assert_eq!(lab.numbers.records_read(), 400, "100 records before the failure, and all of them after it");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_least_once_loses_nothing_and_may_repeat() {
    let lab = Lab::new(Numbers::new(2, 300).pause(1).failing(2));
    let job = lab.job_with(Guarantee::AtLeastOnce).checkpoint_every(Duration::from_millis(20), lab.checkpoints());
    let job = job.parallelism(2).execution(|execution| execution.checkpointing.mode = CheckpointMode::AtLeastOnce);
    let (end, status) = lab.run(&fixed_delay(job, 2).build()).await;
    assert!(matches!(end, JobEnd::Finished), "{end:?}");
    assert_eq!(status.restarts, 2);
    let mut visible = lab.store.visible_values();
    visible.sort();
    visible.dedup();
    assert_eq!(visible, lab.numbers.all_values());
}
