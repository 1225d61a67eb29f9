//! Savepoints as a service asks for them: of a running job, and with a stop.

use super::{Lab, Numbers, until};
use waterwheel::checkpoint::savepoint;
use waterwheel::config::Span;
use waterwheel::host::{JobEnd, StopOptions, SubmitOptions};
use waterwheel::pipeline::run::JobState;
use waterwheel::pipeline::spec::{FixedDelay, RestartType};
use waterwheel::sink::Guarantee;

impl Lab {
    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn savepoints_are_made_while_the_job_goes_on() {
    let lab = Lab::new(Numbers::new(2, 3_000).pause(2));
    let handle = lab.submit(&lab.job().parallelism(2).build()).await;
    let mut control = handle.control();
    until(&mut control, "records", |_| lab.store.visible().len() > 20).await;
    let (first, second) = (lab.path("first"), lab.path("second/"));
    let made = tokio::join!(control.savepoint(Some(&first)), control.savepoint(Some(&second)));
    assert_eq!(made.0.unwrap(), first);
    assert!(made.1.unwrap().starts_with(&format!("{second}savepoint-lab-")));
    assert!(savepoint::verify(&savepoint::find(&first).await.unwrap()).await.unwrap().is_empty());
    let latest = control.status().checkpoints.latest.savepoint.unwrap();
    assert!(latest.is_savepoint && latest.external_path.is_some(), "{latest:?}");
    let refused = control.savepoint(Some(&first)).await.unwrap_err();
    assert!(refused.contains("there is a savepoint at"), "{refused}");
    let refused = control.savepoint(None).await.unwrap_err();
    assert!(refused.contains("savepoint-dir"), "{refused}");
    assert!(matches!(handle.wait().await, JobEnd::Finished));
    assert!(control.savepoint(Some(&lab.path("late"))).await.unwrap_err().contains("has ended"));
    lab.expect_each_number_once();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_was_stopped_with_a_savepoint_goes_on_from_it_in_another_place() {
    let lab = Lab::new(Numbers::new(2, 2_000).pause(2));
    let handle = lab.submit(&lab.job().build()).await;
    let mut control = handle.control();
    until(&mut control, "records", |_| lab.store.visible().len() > 20).await;
    let sp = lab.path("sp");
    control.stop_with(StopOptions { savepoint: Some(sp.clone()), drain: false }).await.unwrap();
    assert!(matches!(handle.wait().await, JobEnd::Stopped));
    assert_eq!(control.status().checkpoints.latest.savepoint.unwrap().external_path, Some(sp.clone()));
    assert_eq!(control.status().state, JobState::Suspended);
    // In a folder of checkpoints that knows nothing of the job.
    let spec = lab.job().checkpoint_every(std::time::Duration::from_millis(20), lab.path("elsewhere")).build();
    let mut options = SubmitOptions { from_checkpoint: Some(sp), claim: true, ..SubmitOptions::default() };
    options.allowed.take_over_prefix = true;
    let job = lab.host.check_job(&spec, ".").unwrap();
    let handle = lab.host.submit(&job, options).await.unwrap();
    assert!(matches!(handle.wait().await, JobEnd::Finished));
    lab.expect_each_number_once();
    assert!(!lab.folder.path().join("sp").exists(), "it was claimed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_job_has_finished_and_leaves_its_savepoint() {
    let lab = Lab::new(Numbers::new(2, 0).endless().pause(1));
    let handle = lab.submit(&lab.job().parallelism(2).build()).await;
    let mut control = handle.control();
    until(&mut control, "records", |_| lab.store.visible().len() > 20).await;
    let sp = lab.path("sp");
    control.stop_with(StopOptions { savepoint: Some(sp.clone()), drain: true }).await.unwrap();
    assert!(matches!(handle.wait().await, JobEnd::Finished));
    let found = savepoint::find(&sp).await.unwrap();
    assert!(found.manifest.snapshot.end_of_input && found.manifest.released);
    assert_eq!(lab.store.pending(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_that_cannot_leave_its_savepoint_is_refused_and_the_job_goes_on() {
    let lab = Lab::new(Numbers::new(1, 0).endless().pause(1));
    let handle = lab.submit(&lab.job().build()).await;
    let mut control = handle.control();
    until(&mut control, "the start", |status| status.state == JobState::Running).await;
    std::fs::write(lab.path("file"), "no folder").unwrap();
    let refused = control.stop_with(StopOptions { savepoint: Some(lab.path("file/sp")), drain: false }).await.unwrap_err();
    assert!(refused.contains("cannot be used"), "{refused}");
    let shown = lab.store.visible().len();
    until(&mut control, "more records", |_| lab.store.visible().len() > shown).await;
    control.stop().await;
    assert!(matches!(handle.wait().await, JobEnd::Stopped));

    let without = lab.submit(&lab.job_with(Guarantee::AtLeastOnce).build()).await;
    let refused = without.control().savepoint(Some(&lab.path("sp"))).await.unwrap_err();
    assert!(refused.contains("checkpointing is off"), "{refused}");
    without.control().stop_with(StopOptions { savepoint: None, drain: true }).await.unwrap();
    assert!(matches!(without.wait().await, JobEnd::Finished));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_with_a_savepoint_that_comes_while_the_job_restarts_is_finished_when_it_runs() {
    for drain in [false, true] {
        let lab = Lab::new(Numbers::new(1, 0).endless().pause(1).failing(1));
        let spec = lab.job().execution(|execution| {
            execution.restart_strategy.kind = Some(RestartType::FixedDelay);
            execution.restart_strategy.fixed_delay = Some(FixedDelay { attempts: 3, delay: Span::from_millis(700) });
        });
        let handle = lab.submit(&spec.build()).await;
        let mut control = handle.control();
        until(&mut control, "the restart", |status| status.state == JobState::Restarting).await;
        let sp = lab.path("sp");
        control.stop_with(StopOptions { savepoint: Some(sp.clone()), drain }).await.unwrap();
        let end = handle.wait().await;
        assert!(if drain { matches!(end, JobEnd::Finished) } else { matches!(end, JobEnd::Stopped) }, "{end:?}");
        assert_eq!(control.status().restarts, 1);
        assert!(savepoint::find(&sp).await.unwrap().manifest.released);
    }
}
