//! A source of its own: numbered records in splits, which can be slow, wait, and fail.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use waterwheel::Error;
use waterwheel::config::{Fault, parse_options};
use waterwheel::record::{Batch, Origin, Row};
use waterwheel::source::{ReadStatus, ReaderContext, Source, SourceReader, SourceType, Split};

/// Keys that records have.
pub(crate) const KEYS: u64 = 20;

/// The source. Value `SPLIT:NUMBER`, key `key-N`.
#[derive(Clone, Debug)]
pub(crate) struct Numbers(Arc<Settings>);

#[derive(Debug)]
struct Settings {
    splits: u64,
    /// Records of a split; none for an endless one.
    records: Option<u64>,
    /// Time before each batch of 10 records.
    pause: Duration,
    /// Failures still to come, each in the middle of split 0.
    failures: AtomicU32,
    /// Records read, those read again too.
    read: AtomicU64,
}

impl Numbers {
    /// So many splits of so many records, as fast as possible.
    pub(crate) fn new(splits: u64, records: u64) -> Self {
        let records = Some(records);
        Self(Arc::new(Settings { splits, records, pause: Duration::ZERO, failures: AtomicU32::new(0), read: AtomicU64::new(0) }))
    }

    /// Waits before each batch of 10.
    pub(crate) fn pause(mut self, millis: u64) -> Self {
        Arc::get_mut(&mut self.0).unwrap().pause = Duration::from_millis(millis);
        self
    }

    /// Never ends.
    pub(crate) fn endless(mut self) -> Self {
        Arc::get_mut(&mut self.0).unwrap().records = None;
        self
    }

    /// Fails so many times.
    pub(crate) fn failing(self, times: u32) -> Self {
        self.0.failures.store(times, Relaxed);
        self
    }

    pub(crate) fn records_read(&self) -> u64 {
        self.0.read.load(Relaxed)
    }

    /// The values of all records, sorted.
    pub(crate) fn all_values(&self) -> Vec<String> {
        let records = self.0.records.unwrap();
        let mut values: Vec<String> =
            (0..self.0.splits).flat_map(|split| (0..records).map(move |number| format!("{split}:{number}"))).collect();
        values.sort();
        values
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoOptions {}

impl SourceType for Numbers {
    fn name(&self) -> &str {
        "numbers"
    }

    fn options_schema(&self) -> schemars::Schema {
        schemars::schema_for!(NoOptions)
    }

    fn create(&self, _uid: &str, options: &Value) -> Result<Arc<dyn Source>, Vec<Fault>> {
        let NoOptions {} = parse_options(options)?;
        Ok(Arc::new(self.clone()))
    }
}

#[async_trait]
impl Source for Numbers {
    async fn discover(&self, known: &BTreeSet<String>) -> Result<Vec<Split>, Error> {
        let split = |id: u64| Split { id: id.to_string(), position: json!(0), stop: self.0.records.map(|end| json!(end)), finished: false };
        Ok((0..self.0.splits).map(split).filter(|split| !known.contains(&split.id)).collect())
    }

    fn is_bounded(&self) -> bool {
        self.0.records.is_some()
    }

    async fn open(&self, context: ReaderContext) -> Result<Box<dyn SourceReader>, Error> {
        Ok(Box::new(Reader { settings: Arc::clone(&self.0), context, splits: Vec::new() }))
    }
}

struct Reader {
    settings: Arc<Settings>,
    context: ReaderContext,
    /// Each split with the number of its next record.
    splits: Vec<(Split, u64)>,
}

impl Reader {
    fn is_finished(&self, next: u64) -> bool {
        self.settings.records.is_some_and(|end| next >= end)
    }

    /// One of the failures that were asked for.
    fn fail(&self, split: &str, next: u64) -> Result<(), Error> {
        let one_less = |left: u32| left.checked_sub(1);
        if split == "0" && next >= 100 && self.settings.failures.fetch_update(Relaxed, Relaxed, one_less).is_ok() {
            return Err(Error::external("the numbers are gone for a moment"));
        }
        Ok(())
    }
}

#[async_trait]
impl SourceReader for Reader {
    async fn add_splits(&mut self, splits: Vec<Split>) -> Result<(), Error> {
        self.splits.extend(splits.into_iter().map(|split| {
            let next = split.position.as_u64().unwrap();
            (split, next)
        }));
        Ok(())
    }

    async fn next_batch(&mut self, batch: &mut Batch) -> Result<ReadStatus, Error> {
        if self.splits.is_empty() {
            return std::future::pending().await;
        }
        tokio::time::sleep(self.settings.pause).await;
        // The split that is behind comes first, so that all are read together.
        let behind =
            (0..self.splits.len()).filter(|index| !self.is_finished(self.splits[*index].1)).min_by_key(|index| self.splits[*index].1);
        let Some(index) = behind else { return Ok(ReadStatus::Finished) };
        let (split, next) = &self.splits[index];
        let next = *next;
        self.fail(&split.id, next)?;
        let end = self.settings.records.map_or(next + 10, |end| end.min(next + 10));
        let (split, position) = &mut self.splits[index];
        let number = self.context.split_table.number(&self.context.uid, &split.id);
        for record in next..end {
            let (key, value) = (format!("key-{}", record % KEYS), format!("{}:{record}", split.id));
            let origin = Origin { split: number, position: record };
            batch.push(Row { key: Some(key.as_bytes()), value: Some(value.as_bytes()), timestamp: 0, origin });
        }
        self.settings.read.fetch_add(end - next, Relaxed);
        *position = end;
        Ok(ReadStatus::Open)
    }

    fn positions(&self) -> Vec<Split> {
        let split = |(split, next): &(Split, u64)| Split { position: json!(next), finished: self.is_finished(*next), ..split.clone() };
        self.splits.iter().map(split).collect()
    }
}
