//! One reader under the suite's eyes: what it brought, and where it says to be.

use super::{Conformance, Violation, batch_with};
use crate::Error;
use crate::record::{Batch, Origin, Row, SplitTable};
use crate::source::{ReadStatus, ReaderContext, Source, SourceReader, Split};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

const UID: &str = "source-under-test";

/// A record as it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
    timestamp: Option<i64>,
    position: u64,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text =
            |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or("null".to_owned(), |bytes| format!("{:?}", String::from_utf8_lossy(bytes)));
        write!(f, "position {}, key {}, value {}", self.position, text(&self.key), text(&self.value))?;
        if !self.headers.is_empty() {
            write!(f, ", {} headers", self.headers.len())?;
        }
        self.timestamp.map_or(Ok(()), |timestamp| write!(f, ", timestamp {timestamp}"))
    }
}

/// Records by split, in order.
pub(super) type Records = BTreeMap<String, Vec<Record>>;

/// What a reader has to bring.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) records: Records,
    /// Whether this is all there is; otherwise more may follow.
    pub(super) is_whole: bool,
}

impl Expected {
    /// What has to follow a snapshot.
    pub(super) fn behind(&self, snapshot: &Snapshot) -> Self {
        let rest = |(id, all): (&String, &Vec<Record>)| {
            let before = snapshot.counts.get(id).copied().unwrap_or(0).min(all.len());
            (id.clone(), all[before..].to_vec())
        };
        Self { records: self.records.iter().map(rest).collect(), is_whole: self.is_whole }
    }
}

/// Reported positions, and how many records of each split had been appended.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) splits: Vec<Split>,
    counts: BTreeMap<String, usize>,
}

/// When the future of `next_batch` is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cutting {
    Never,
    /// Often after a few polls.
    AtRandom,
}

/// A reader and all that it brought.
pub(super) struct Reading<'a> {
    suite: &'a Conformance,
    is_bounded: bool,
    reader: Box<dyn SourceReader>,
    table: SplitTable,
    ids: BTreeSet<String>,
    random: ChaCha8Rng,
    pub(super) records: Records,
    pub(super) cancellations: usize,
}

impl<'a> Reading<'a> {
    /// Opens a reader at positions and checks that it reports them.
    pub(super) async fn open(suite: &'a Conformance, source: &dyn Source, splits: &[Split], subtask: usize) -> Result<Self, Violation> {
        let table = SplitTable::default();
        let context = ReaderContext { uid: UID.to_owned(), subtask, parallelism: 2, limits: suite.limits, split_table: table.clone() };
        let reader = suite.within("open", source.open(context)).await?;
        let mut reading = Self {
            suite,
            is_bounded: source.is_bounded(),
            reader,
            table,
            ids: BTreeSet::new(),
            random: ChaCha8Rng::seed_from_u64(suite.seed),
            records: Records::new(),
            cancellations: 0,
        };
        if !splits.is_empty() {
            reading.add(splits).await?;
        }
        let reported = reading.snapshot()?.splits;
        match splits.iter().find(|split| !reported.contains(split)) {
            Some(split) => {
                Err(Violation::new(format!("a reader that was given {split:?} reports {reported:?} before it has read anything")))
            }
            None => Ok(reading),
        }
    }

    /// Adds splits.
    pub(super) async fn add(&mut self, splits: &[Split]) -> Result<(), Violation> {
        self.ids.extend(splits.iter().map(|split| split.id.clone()));
        self.suite.within("add_splits", self.reader.add_splits(splits.to_vec())).await
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub(super) fn has_split(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    /// All records that came.
    pub(super) fn total(&self) -> usize {
        self.records.values().map(Vec::len).sum()
    }

    /// The reported positions, which must be those of the splits that were added.
    pub(super) fn snapshot(&self) -> Result<Snapshot, Violation> {
        let splits = self.reader.positions();
        let ids: BTreeSet<_> = splits.iter().map(|split| split.id.clone()).collect();
        if ids != self.ids || ids.len() != splits.len() {
            return Err(Violation::new(format!("positions has the splits {:?}, but {:?} were added", ids, self.ids)));
        }
        Ok(Snapshot { splits, counts: self.records.iter().map(|(id, records)| (id.clone(), records.len())).collect() })
    }

    /// Reads once more. False when there is no more: the reader is finished, or an unbounded source had nothing for as long as the patience lasts.
    pub(super) async fn next(&mut self, cutting: Cutting) -> Result<bool, Violation> {
        let polls = match cutting {
            Cutting::Never => None,
            // A third is let through, since a reader that is always broken off need not get on.
            Cutting::AtRandom => (!self.random.next_u32().is_multiple_of(3)).then(|| 1 + self.random.next_u32() % 3),
        };
        let has_row = self.random.next_u32().is_multiple_of(4) && self.suite.limits.records > 1;
        let mut batch =
            if has_row { batch_with(Row { key: None, value: None, timestamp: 0, origin: Origin::NONE }) } else { Batch::default() };
        let outcome = deadline(self.suite.patience, at_most(polls, self.reader.next_batch(&mut batch))).await;
        let before = usize::from(has_row);
        if has_row && batch.origins().first() != Some(&Origin::NONE) {
            return Err(Violation::new("next_batch took away records that were in the batch before it"));
        }
        self.collect(&batch, before)?;
        match outcome {
            Some(Some(Ok(status))) => {
                let limits = self.suite.limits;
                if batch.len() > limits.records || (batch.len() > 1 + before && batch.byte_len() > limits.bytes) {
                    let (records, bytes) = (batch.len(), batch.byte_len());
                    return Err(Violation::new(format!("a batch of {records} records, {bytes} bytes is above the limits, {limits:?}")));
                }
                if status == ReadStatus::Finished && !self.is_bounded {
                    return Err(Violation::new("a reader of an unbounded source says that it is finished"));
                }
                Ok(status == ReadStatus::Open)
            }
            Some(Some(Err(error))) => Err(error.into()),
            Some(None) => {
                self.cancellations += 1;
                Ok(true)
            }
            None if batch.len() > before => Err(Violation::new("next_batch had records and waited on, far beyond the linger time")),
            None if self.is_bounded => Err(Violation::new("a bounded source brought nothing and was not finished either")),
            None => Ok(false),
        }
    }

    /// One call of `next_batch`, none when it was not ready in time.
    pub(super) async fn raw(&mut self, time: Duration) -> Option<Result<ReadStatus, Error>> {
        let mut batch = Batch::default();
        let outcome = deadline(time, self.reader.next_batch(&mut batch)).await;
        match self.collect(&batch, 0) {
            Err(Violation::Failed(error)) => Some(Err(error)),
            Err(Violation::Broken(message)) => Some(Err(Error::internal(message))),
            Ok(()) => outcome,
        }
    }

    fn collect(&mut self, batch: &Batch, from: usize) -> Result<(), Violation> {
        for (index, row) in batch.rows().enumerate().skip(from) {
            let place = self.table.place(row.origin).filter(|place| place.source == UID && self.ids.contains(&place.split));
            let place = place
                .ok_or_else(|| Violation::new(format!("a record has the origin {:?}, which is no split of the reader", row.origin)))?;
            let records = self.records.entry(place.split.clone()).or_default();
            if let Some(last) = records.last()
                && last.position >= place.position
            {
                return Err(Violation::new(format!("a record of {place} came after one of position {}", last.position)));
            }
            let headers = batch.headers().row(index).map(|header| (header.name.to_owned(), header.value.map(<[u8]>::to_vec))).collect();
            let timestamp = self.suite.compare_timestamps.then_some(row.timestamp);
            let (key, value) = (row.key.map(<[u8]>::to_vec), row.value.map(<[u8]>::to_vec));
            records.push(Record { key, value, headers, timestamp, position: place.position });
        }
        Ok(())
    }

    /// Whether as many records came of each split as are expected.
    pub(super) fn has_all(&self, expected: &Expected) -> bool {
        expected.records.iter().all(|(id, expected)| self.records.get(id).map_or(0, Vec::len) >= expected.len())
    }

    /// Compares what came with what is expected, split by split.
    pub(super) fn compare(&self, expected: &Expected) -> Result<(), Violation> {
        let none = Vec::new();
        for id in self.records.keys().chain(expected.records.keys()) {
            let came = self.records.get(id).unwrap_or(&none);
            let wanted = expected.records.get(id).unwrap_or(&none);
            if let Some(index) = came.iter().zip(wanted).position(|(came, wanted)| came != wanted) {
                let (came, wanted) = (&came[index], &wanted[index]);
                return Err(Violation::new(format!("record {index} of split {id} is ({came}), but ({wanted}) was read there before")));
            }
            let (came, wanted) = (came.len(), wanted.len());
            if came < wanted || (expected.is_whole && came > wanted) {
                return Err(Violation::new(format!("split {id} brought {came} records where {wanted} were read before")));
            }
        }
        Ok(())
    }
}

/// The result of a future, none when it was not ready in time; it is dropped then.
pub(super) async fn deadline<T>(time: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(time, future).await.ok()
}

/// The result of a future, none when it was not ready after so many polls; it is dropped then.
async fn at_most<T>(polls: Option<u32>, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut left) = (pin!(future), polls);
    std::future::poll_fn(|context| {
        if let Poll::Ready(result) = future.as_mut().poll(context) {
            return Poll::Ready(Some(result));
        }
        left = left.map(|left| left - 1);
        if left == Some(0) { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}
