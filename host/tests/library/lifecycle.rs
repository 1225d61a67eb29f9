//! From the submission of a job to its end.

use super::{Lab, Numbers, until};
use std::time::Duration;
use waterwheel::checkpoint::recovery::StartOptions;
use waterwheel::host::{JobEnd, SubmitOptions};
use waterwheel::pipeline::Job;
use waterwheel::pipeline::run::JobState;
use waterwheel::sink::Guarantee;

#[tokio::test(flavor = "multi_thread")]
async fn a_job_from_the_builder_runs_until_it_is_finished_and_then_there_is_nothing_to_do() {
    let lab = Lab::new(Numbers::new(2, 500));
    let spec = lab.job().build();
    let (end, status) = lab.run(&spec).await;
    assert!(matches!(end, JobEnd::Finished), "{end:?}");
    assert_eq!((status.state, status.restarts), (JobState::Finished, 0));
    assert!(status.checkpoints.latest.completed.is_some(), "{status:?}");
    lab.expect_each_number_once();

    let (end, status) = lab.run(&spec).await;
    assert!(matches!(end, JobEnd::AlreadyFinished { .. }), "{end:?}");
    assert_eq!(status.state, JobState::Finished);
    lab.expect_each_number_once();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_from_a_specification_names_the_types_that_the_service_registered() {
    let lab = Lab::new(Numbers::new(1, 100));
    let text = format!(
        "name: lab\nsources: [{{uid: in, type: numbers}}]\n\
         sinks: [{{uid: out, type: store, inputs: [in], delivery-guarantee: exactly-once}}]\n\
         execution: {{checkpointing.interval: 20 ms, checkpointing.dir: {}}}\n",
        lab.checkpoints()
    );
    let job = Job::from_text(&text, ".", lab.host.connectors()).unwrap();
    let handle = lab.host.submit(&job, SubmitOptions::default()).await.unwrap();
    assert!(matches!(handle.wait().await, JobEnd::Finished));
    lab.expect_each_number_once();

    let wrong = text.replace("type: numbers", "type: nmbers, rate: 1");
    let faults = Job::from_text(&wrong, ".", lab.host.connectors()).unwrap_err().to_string();
    assert!(faults.contains("did you mean \"numbers\"?"), "{faults}");
    let wrong = text.replace("type: numbers", "type: numbers, rate: 1");
    let faults = Job::from_text(&wrong, ".", lab.host.connectors()).unwrap_err().to_string();
    assert!(faults.contains("/sources/0/rate: unknown key"), "{faults}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_is_asked_for_completes_and_makes_output_visible() {
    let lab = Lab::new(Numbers::new(1, 0).endless().pause(1));
    let spec = lab.job().checkpoint_every(Duration::from_secs(3600), lab.checkpoints()).build();
    let handle = lab.submit(&spec).await;
    let mut control = handle.control();
    until(&mut control, "the start", |status| status.state == JobState::Running).await;
    let first = control.checkpoint().await.unwrap();
    let shown = lab.store.visible().len();
    let read = control.nodes()[0].records_out;
    while control.nodes()[0].records_out == read {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let second = control.checkpoint().await.unwrap();
    assert!(second > first, "{second} after {first}");
    assert!(lab.store.visible().len() > shown, "{shown} records before, {} after", lab.store.visible().len());
    let status = control.status();
    assert_eq!(status.checkpoints.latest.completed.unwrap().id, second);
    control.cancel().await;
    assert!(matches!(handle.wait().await, JobEnd::Cancelled));
    assert!(control.checkpoint().await.unwrap_err().contains("has ended"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_was_stopped_goes_on_exactly() {
    let lab = Lab::new(Numbers::new(3, 3_000).pause(2));
    let spec = lab.job().parallelism(2).build();
    let mut stops = 0;
    loop {
        let handle = lab.submit(&spec).await;
        let mut control = handle.control();
        let shown = lab.store.visible().len();
        until(&mut control, "records", |status| status.state.is_terminal() || lab.store.visible().len() > shown + 100).await;
        control.stop().await;
        let end = handle.wait().await;
        let state = control.status().state;
        match end {
            JobEnd::Stopped => assert_eq!(state, JobState::Suspended),
            JobEnd::Finished => break,
            end => panic!("{end:?}"),
        }
        assert_eq!(lab.store.pending(), 0, "a stopped job leaves nothing undecided");
        stops += 1;
    }
    assert!(stops >= 2, "{stops}");
    lab.expect_each_number_once();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_was_cancelled_goes_on_from_its_last_completed_checkpoint() {
    let lab = Lab::new(Numbers::new(1, 400).pause(1));
    let spec = lab.job().build();
    let handle = lab.submit(&spec).await;
    let mut control = handle.control();
    until(&mut control, "records", |_| lab.store.visible().len() > 50).await;
    control.cancel().await;
    assert!(matches!(handle.wait().await, JobEnd::Cancelled));
    assert_eq!(control.status().state, JobState::Canceled);
    let (end, status) = lab.run(&spec).await;
    assert!(matches!(end, JobEnd::Finished), "{end:?}");
    assert_eq!(status.checkpoints.counts.restored, 1);
    lab.expect_each_number_once();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_without_checkpoints_runs_says_so_and_begins_again() {
    let lab = Lab::new(Numbers::new(1, 200).pause(1));
    let spec = lab.job_with(Guarantee::AtLeastOnce).build();
    let handle = lab.submit(&spec).await;
    let mut control = handle.control();
    until(&mut control, "the start", |status| status.state == JobState::Running).await;
    assert!(control.checkpoint().await.unwrap_err().contains("checkpointing is off"));
    assert!(matches!(handle.wait().await, JobEnd::Finished));
    assert_eq!(control.status().checkpoints.counts.total, 0);
    lab.expect_each_number_once();

    let handle = lab.submit(&spec).await;
    handle.control().stop().await;
    assert!(matches!(handle.wait().await, JobEnd::Stopped));
    let job = lab.host.check_job(&spec, ".").unwrap();
    let fresh = SubmitOptions { fresh: true, ..SubmitOptions::default() };
    let refused = lab.host.submit(&job, fresh).await.unwrap_err().to_string();
    assert!(refused.contains("without checkpoints"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_instance_takes_over_and_the_first_one_says_so() {
    let lab = Lab::new(Numbers::new(1, 0).endless().pause(1));
    let spec = lab.job().build();
    let first = lab.submit(&spec).await;
    let mut control = first.control();
    until(&mut control, "records", |_| lab.store.visible().len() > 50).await;
    let second = lab.submit(&spec).await;
    let JobEnd::Superseded(reason) = first.wait().await else { panic!("the first one was not superseded: {:?}", control.status()) };
    assert!(reason.contains("superseded"), "{reason}");
    let shown = lab.store.visible().len();
    until(&mut second.control(), "records of the second", |_| lab.store.visible().len() > shown).await;
    second.control().stop().await;
    assert!(matches!(second.wait().await, JobEnd::Stopped));
    let values: Vec<String> = (0..lab.store.visible().len()).map(|number| format!("0:{number}")).collect();
    assert_eq!(lab.store.visible_values(), values);
}

#[tokio::test(flavor = "multi_thread")]
async fn fresh_begins_again_and_shows_everything_again() {
    let lab = Lab::new(Numbers::new(1, 50));
    let spec = lab.job().build();
    assert!(matches!(lab.run(&spec).await.0, JobEnd::Finished));
    let job = lab.host.check_job(&spec, ".").unwrap();
    let options = SubmitOptions { fresh: true, ..SubmitOptions::default() };
    let handle = lab.host.submit(&job, options.clone()).await.unwrap();
    let JobEnd::Failed(refused) = handle.wait().await else { panic!("output was repeated without permission") };
    assert!(refused.to_string().contains("--allow-duplicate-output"), "{refused}");
    let allowed = StartOptions { allow_duplicate_output: true, ..StartOptions::default() };
    let handle = lab.host.submit(&job, SubmitOptions { allowed, ..options }).await.unwrap();
    assert!(matches!(handle.wait().await, JobEnd::Finished));
    assert_eq!(lab.store.visible().len(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_handle_leaves_the_job_running() {
    let lab = Lab::new(Numbers::new(1, 300).pause(1));
    let handle = lab.submit(&lab.job().build()).await;
    let mut control = handle.control();
    drop(handle);
    until(&mut control, "the end", |status| status.state == JobState::Finished).await;
    lab.expect_each_number_once();
}
