//! The Kafka source, read through its traits.

mod changes;
mod faults;
mod gaps;
mod records;
mod starts;
mod suite;

use super::broker::{Broker, broker};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use waterwheel::Error;
use waterwheel::record::{Batch, SplitTable};
use waterwheel::source::{BatchLimits, KafkaType, ReadStatus, ReaderContext, Source, SourceReader, SourceType, Split};

const LIMITS: BatchLimits = BatchLimits { records: 100, bytes: 64 << 10, linger: Duration::from_millis(5) };

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a test waits for what must not come.
const QUIET: Duration = Duration::from_millis(700);

/// A record as a test compares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) split: String,
    pub(crate) offset: u64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) timestamp: i64,
    pub(crate) headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Record {
    fn text(&self) -> &str {
        std::str::from_utf8(self.value.as_deref().unwrap()).unwrap()
    }
}

/// The source of these options at the shared broker.
fn source(options: Value) -> Arc<dyn Source> {
    source_at(broker(), options)
}

fn source_at(broker: &Broker, mut options: Value) -> Arc<dyn Source> {
    if options.get("bootstrap-servers").is_none() {
        options["bootstrap-servers"] = json!(broker.bootstrap());
    }
    KafkaType.create("in", &options).unwrap_or_else(|faults| panic!("{faults:?}"))
}

/// The source that reads a topic to the end that it has when it starts.
fn bounded(topic: &str) -> Arc<dyn Source> {
    source(json!({"topics": topic, "bounded-mode": "latest-offset"}))
}

/// A reader and what it brought.
struct Reading {
    source: Arc<dyn Source>,
    reader: Box<dyn SourceReader>,
    table: SplitTable,
    records: Vec<Record>,
    status: ReadStatus,
}

impl Reading {
    async fn open(source: &Arc<dyn Source>, splits: Vec<Split>) -> Self {
        Self::open_with(source, splits, LIMITS).await
    }

    async fn open_with(source: &Arc<dyn Source>, splits: Vec<Split>, limits: BatchLimits) -> Self {
        let table = SplitTable::default();
        let context = ReaderContext { uid: "in".into(), subtask: 0, parallelism: 1, limits, split_table: table.clone() };
        let mut reader = source.open(context).await.unwrap();
        reader.add_splits(splits).await.unwrap();
        Self { source: Arc::clone(source), reader, table, records: Vec::new(), status: ReadStatus::Open }
    }

    /// Opens the source where it starts.
    async fn start(source: &Arc<dyn Source>) -> Self {
        Self::open(source, source.discover(&BTreeSet::new()).await.unwrap()).await
    }

    async fn try_next(&mut self) -> Result<(), Error> {
        let mut batch = Batch::default();
        self.status = self.reader.next_batch(&mut batch).await?;
        for (index, row) in batch.rows().enumerate() {
            let place = self.table.place(row.origin).unwrap();
            let headers = batch.headers().row(index).map(|header| (header.name.to_owned(), header.value.map(<[u8]>::to_vec)));
            self.records.push(Record {
                split: place.split,
                offset: place.position,
                key: row.key.map(<[u8]>::to_vec),
                value: row.value.map(<[u8]>::to_vec),
                timestamp: row.timestamp,
                headers: headers.collect(),
            });
        }
        Ok(())
    }

    /// Reads to the end.
    async fn finish(&mut self) -> &mut Self {
        let reading = async {
            while self.status == ReadStatus::Open {
                self.try_next().await.unwrap();
            }
        };
        let ended = tokio::time::timeout(PATIENCE, reading).await.is_ok();
        assert!(ended, "no end after {} records, at {:?}", self.records.len(), self.reader.positions());
        self
    }

    /// Reads until there are so many records, and a while longer to see that there are no more.
    async fn until(&mut self, records: usize) -> &mut Self {
        let reading = async {
            while self.records.len() < records {
                self.try_next().await.unwrap();
            }
        };
        let came = tokio::time::timeout(PATIENCE, reading).await.is_ok();
        assert!(came, "only {} of {records} came, at {:?}", self.records.len(), self.reader.positions());
        self.pause().await;
        assert_eq!(self.records.len(), records, "{:?}", self.values());
        self
    }

    /// Goes on reading for a while.
    async fn pause(&mut self) {
        let reading = async {
            loop {
                self.try_next().await.unwrap();
            }
        };
        let _over = tokio::time::timeout(QUIET, reading).await;
    }

    /// Goes on reading until something is so.
    async fn wait_for(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let end = tokio::time::Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(tokio::time::Instant::now() < end, "not so: {what}, at {:?}", self.reader.positions());
            if let Ok(result) = tokio::time::timeout(Duration::from_millis(50), self.try_next()).await {
                result.unwrap();
            }
        }
    }

    /// Reads until it fails.
    async fn failure(&mut self) -> Error {
        let failing = tokio::time::timeout(Duration::from_secs(90), async {
            loop {
                if let Err(error) = self.try_next().await {
                    return error;
                }
                assert_eq!(self.status, ReadStatus::Open, "no failure, but the end: {:?}", self.records);
            }
        });
        failing.await.unwrap_or_else(|_| panic!("no failure, at {:?}", self.reader.positions()))
    }

    /// Looks for new partitions, as the host does.
    async fn discover(&mut self) -> usize {
        let known = self.reader.positions().into_iter().map(|split| split.id).collect();
        let splits = self.source.discover(&known).await.unwrap();
        let found = splits.len();
        self.reader.add_splits(splits).await.unwrap();
        found
    }

    fn values(&self) -> Vec<&str> {
        self.records.iter().map(Record::text).collect()
    }

    fn sorted_values(&self) -> Vec<&str> {
        let mut values = self.values();
        values.sort_unstable();
        values
    }

    /// The position of each split.
    fn positions(&self) -> Vec<i64> {
        self.reader.positions().iter().map(|split| split.position.as_i64().unwrap()).collect()
    }
}

/// All values, in the order of reading.
async fn read(source: &Arc<dyn Source>) -> Vec<String> {
    let mut reading = Reading::start(source).await;
    reading.finish().await.values().into_iter().map(str::to_owned).collect()
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}
