//! The Kafka sink against a real broker.

mod errors;
mod jobs;
mod plain;
mod records;
mod secure;
mod transactions;

use super::broker::{Broker, broker};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use waterwheel::Error;
use waterwheel::checkpoint::protocol::{Attempt, Generation, JobName, Marker, MarkerState, Slot, StorageId};
use waterwheel::pipeline::plan::CheckpointSettings;
use waterwheel::pipeline::spec::{CheckpointMode, Retention};
use waterwheel::record::{Batch, Header, Origin, Row, SplitTable};
use waterwheel::sink::{
    CheckpointBarrier, Guarantee, KafkaType, RunIdentity, Sink, SinkType, SinkWriter, TransactionContext, Transactions, WriterContext,
};
use waterwheel::telemetry::{JobMetrics, TaskMetrics, TransactionsReading};

/// A sink of the shared broker.
fn sink(options: &Value, guarantee: Guarantee) -> Arc<dyn Sink> {
    sink_at(broker(), options, guarantee)
}

fn sink_at(broker: &Broker, options: &Value, guarantee: Guarantee) -> Arc<dyn Sink> {
    let mut options = options.clone();
    if options["properties"]["bootstrap.servers"].is_null() && options["bootstrap-servers"].is_null() {
        options["bootstrap-servers"] = json!(broker.bootstrap());
    }
    KafkaType.create("out", &options, guarantee).unwrap()
}

/// What the writers of a test share.
#[derive(Clone, Default)]
struct Shared {
    split_table: SplitTable,
    metrics: Arc<TaskMetrics>,
    transactions: Option<Arc<dyn Transactions>>,
}

impl Shared {
    async fn writer(&self, sink: &dyn Sink) -> Result<Box<dyn SinkWriter>, Error> {
        let (split_table, metrics, transactions) = (self.split_table.clone(), Arc::clone(&self.metrics), self.transactions.clone());
        let (job, uid) = ("test".to_owned(), "out".to_owned());
        Sink::open(sink, WriterContext { job, uid, subtask: 0, parallelism: 1, generation: 1, split_table, metrics, transactions }).await
    }
}

/// A batch of values without keys.
fn texts<T: AsRef<str>>(values: &[T]) -> Batch {
    let mut batch = Batch::default();
    for value in values {
        batch.push(Row { key: None, value: Some(value.as_ref().as_bytes()), timestamp: 0, origin: Origin::NONE });
    }
    batch
}

/// Adds headers to the last record.
fn with_headers(batch: &mut Batch, headers: &[(&str, Option<&[u8]>)]) {
    let row = batch.len() - 1;
    for (name, value) in headers {
        batch.headers_mut().push(row, Header { name, value: *value });
    }
}

/// The transactions of a job with one exactly-once sink.
struct Job {
    sink: Arc<dyn Sink>,
    shared: Shared,
    identity: RunIdentity,
    metrics: Arc<JobMetrics>,
}

impl Job {
    /// Opens them for a job of this name, which is also the prefix. Nothing is taken over yet.
    async fn open(name: &str, sink: &Arc<dyn Sink>, interval: Duration) -> Result<Self, Error> {
        let checkpointing = CheckpointSettings {
            savepoint_dir: None,
            interval,
            dir: "memory://".to_owned(),
            mode: CheckpointMode::ExactlyOnce,
            timeout: Duration::from_secs(600),
            min_pause: Duration::ZERO,
            max_concurrent: 1,
            tolerable_failed: 0,
            num_retained: 1,
            retention: Retention::default(),
        };
        let metrics = Arc::new(JobMetrics::default());
        let context = TransactionContext { job: name.to_owned(), checkpointing, metrics: Arc::clone(&metrics) };
        let transactions = sink.as_transactional().unwrap().open(context).await?;
        sink.verify().await?;
        let job = JobName::new(name.to_owned()).unwrap().first_incarnation();
        let identity = RunIdentity { job, storage: StorageId(Attempt::random().0), generation: Generation(1) };
        let shared = Shared { transactions: Some(transactions), ..Shared::default() };
        Ok(Self { sink: Arc::clone(sink), shared, identity, metrics })
    }

    /// The same with a first marker, and a run of so many writers begun.
    async fn begun(name: &str, topic: &str, writers: usize) -> Self {
        let sink = sink(&json!({"topic": topic}), Guarantee::ExactlyOnce);
        let job = Self::open(name, &sink, Duration::from_secs(1)).await.unwrap();
        job.start(writers).await;
        job
    }

    /// Takes over, commits a first marker and begins a run.
    async fn start(&self, writers: usize) {
        self.transactions().fence(&[]).await.unwrap();
        self.transactions().commit_genesis(&self.marker(0)).await.unwrap();
        self.transactions().begin(self.identity.clone(), writers).await.unwrap();
    }

    fn reading(&self) -> TransactionsReading {
        self.metrics.reading().transactions.unwrap()
    }

    fn transactions(&self) -> &dyn Transactions {
        self.shared.transactions.as_deref().unwrap()
    }

    async fn writer(&self) -> Box<dyn SinkWriter> {
        self.shared.writer(&*self.sink).await.unwrap()
    }

    fn marker(&self, checkpoint: u64) -> Marker {
        let RunIdentity { job, storage, generation } = self.identity.clone();
        Marker { job, storage, generation, checkpoint: Slot(checkpoint), attempt: Attempt::random(), state: MarkerState::Running }
    }
}

fn barrier(checkpoint: u64) -> CheckpointBarrier {
    CheckpointBarrier { checkpoint, attempt: Attempt::random(), last: false }
}
