//! The library as a service meets it that embeds it: jobs from specifications and from the builder, with sources and sinks of its own.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod checkpoints;
mod event_time;
mod exchanges;
mod lifecycle;
mod numbers;
mod restarts;
mod savepoints;
mod store;
mod timed;

use numbers::Numbers;
use std::sync::Arc;
use std::time::Duration;
use store::Store;
use tempfile::TempDir;
use waterwheel::Host;
use waterwheel::host::{JobControl, JobEnd, JobHandle, SubmitOptions};
use waterwheel::pipeline::run::JobStatus;
use waterwheel::pipeline::spec::{SinkSpec, SourceSpec};
use waterwheel::pipeline::{JobBuilder, JobSpec};
use waterwheel::sink::Guarantee;

/// Longest wait for anything in these tests; on a busy machine things take their time.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a test works with: a host that knows the source type `numbers` and the sink type `store`, and a folder for checkpoints.
struct Lab {
    numbers: Numbers,
    store: Store,
    host: Host,
    folder: TempDir,
}

impl Lab {
    fn new(numbers: Numbers) -> Self {
        let store = Store::default();
        let host = Host::builder().source(Arc::new(numbers.clone())).sink(Arc::new(store.clone())).build().unwrap();
        Self { numbers, store, host, folder: TempDir::new().unwrap() }
    }

    /// The numbers into the store, exactly once, with a checkpoint every 20 ms.
    fn job(&self) -> JobBuilder {
        self.job_with(Guarantee::ExactlyOnce).checkpoint_every(Duration::from_millis(20), self.checkpoints())
    }

    /// The numbers into the store, without checkpoints.
    fn job_with(&self, guarantee: Guarantee) -> JobBuilder {
        let sink = SinkSpec::new("out", "store").input("in").guarantee(guarantee);
        JobBuilder::new("lab").source(SourceSpec::new("in", "numbers")).sink(sink)
    }

    fn checkpoints(&self) -> String {
        self.folder.path().join("checkpoints").display().to_string()
    }

    async fn submit(&self, spec: &JobSpec) -> JobHandle {
        let job = self.host.check_job(spec, ".").unwrap();
        self.host.submit(&job, SubmitOptions::default()).await.unwrap()
    }

    /// Runs a job to its end.
    async fn run(&self, spec: &JobSpec) -> (JobEnd, JobStatus) {
        let handle = self.submit(spec).await;
        let control = handle.control();
        let end = tokio::time::timeout(PATIENCE, handle.wait()).await.unwrap();
        (end, control.status())
    }

    /// Asserts that every number is visible once.
    fn expect_each_number_once(&self) {
        let mut visible = self.store.visible_values();
        visible.sort();
        assert_eq!(visible, self.numbers.all_values());
    }
}

/// Waits until the status fits.
async fn until(control: &mut JobControl, what: &str, fits: impl Fn(&JobStatus) -> bool) -> JobStatus {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let status = control.status();
        if fits(&status) {
            return status;
        }
        let changed = tokio::time::timeout_at(deadline, control.changed()).await;
        assert!(matches!(changed, Ok(true)), "{what} did not come: {status:?}");
    }
}
