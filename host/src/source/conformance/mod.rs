//! A suite that any implementation of [`Source`] can run against itself: what the rest of the system relies on, checked from outside.
//!
//! ```
//! # async fn example(source: &dyn waterwheel::source::Source) -> Result<(), Box<dyn std::error::Error>> {
//! use waterwheel::source::conformance::Conformance;
//!
//! let summary = Conformance::default().check(source).await?;
//! assert!(summary.records > 100, "give the suite something to read");
//! # Ok(())
//! # }
//! ```
//!
//! The source must have records to read, the same ones each time that it is opened at the same positions; several splits and records that
//! arrive slowly show most. A source that is not bounded is read until [`Conformance::records`] or until nothing more comes.

mod reading;
#[cfg(test)]
mod tests;

use super::{BatchLimits, ReadStatus, Source, Split};
use crate::Error;
use crate::record::Batch;
use reading::{Cutting, Expected, Reading, Snapshot, deadline};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How the suite reads.
#[derive(Clone, Debug)]
pub struct Conformance {
    /// Records to read of a source that is not bounded, and the most of one that is. By default 5,000.
    pub records: usize,
    /// The limits of batches; small ones give many positions to check. By default 7 records, 4 KiB, 2 ms.
    pub limits: BatchLimits,
    /// How many of the reported positions are read from again, for each way of reading. By default 25.
    pub replays: usize,
    /// How long nothing may come before a bounded source counts as stuck, and another one as having no more for now. By default 2 s.
    pub patience: Duration,
    /// Whether a replay must bring the same timestamps: no for a source that takes the time of reading. By default no.
    pub compare_timestamps: bool,
    /// The seed of the random moments at which reading is broken off. By default 1.
    pub seed: u64,
}

/// What the suite did, so that a test can assert that it was enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Splits of the source.
    pub splits: usize,
    /// Records read in the first pass.
    pub records: usize,
    /// Positions from which was read again.
    pub replays: usize,
    /// Futures of `next_batch` that were dropped before they were ready.
    pub cancellations: usize,
}

/// A promise that the source broke: a sentence.
#[derive(Debug, thiserror::Error)]
pub enum Violation {
    /// A promise of the traits.
    #[error("{0}")]
    Broken(String),
    /// The source failed.
    #[error("the source failed: {0}")]
    Failed(#[from] Error),
}

impl Violation {
    fn new(message: impl Into<String>) -> Self {
        Self::Broken(message.into())
    }
}

impl Default for Conformance {
    fn default() -> Self {
        Self {
            records: 5_000,
            limits: BatchLimits { records: 7, bytes: 4 << 10, linger: Duration::from_millis(2) },
            replays: 25,
            patience: Duration::from_secs(2),
            compare_timestamps: false,
            seed: 1,
        }
    }
}

impl Conformance {
    /// Checks a source.
    ///
    /// 1. Splits have distinct ids, and known ones are not found again.
    /// 2. Records of a split come in order, keep to the batch limits, are appended, and name their split.
    /// 3. From every position that is read again the same records follow, also after the position went through JSON; before anything is
    ///    read, a reader reports the positions that it was given.
    /// 4. Whenever the future of `next_batch` is dropped, no record is lost or repeated, and the positions fit the records.
    /// 5. Splits can be added while others are read, and dealt to several readers.
    /// 6. A reader without splits waits.
    /// 7. What is finished stays finished, also after a restart.
    ///
    /// # Errors
    /// The first promise that was found broken.
    pub async fn check(&self, source: &dyn Source) -> Result<Summary, Violation> {
        let splits = self.discover(source).await?;
        let mut summary = Summary { splits: splits.len(), ..Summary::default() };
        let (expected, snapshots) = self.first_pass(source, &splits).await?;
        summary.records = expected.records.values().map(Vec::len).sum();
        for snapshot in sample(&snapshots, self.replays) {
            self.replay(source, snapshot, &expected).await.map_err(|violation| from(violation, snapshot))?;
            summary.replays += 1;
        }
        let (snapshots, cancellations) = self.broken_off(source, &splits, &expected).await?;
        summary.cancellations = cancellations;
        for snapshot in sample(&snapshots, self.replays) {
            self.replay(source, snapshot, &expected).await.map_err(|violation| from(violation, snapshot))?;
            summary.replays += 1;
        }
        self.dealt(source, &splits, &expected).await?;
        self.without_splits(source).await?;
        if source.is_bounded() {
            self.finished(source, &splits).await?;
        }
        Ok(summary)
    }

    async fn discover(&self, source: &dyn Source) -> Result<Vec<Split>, Violation> {
        let splits = source.discover(&BTreeSet::new()).await?;
        let ids: BTreeSet<_> = splits.iter().map(|split| split.id.clone()).collect();
        if ids.len() != splits.len() {
            return Err(Violation::new("discover found two splits with the same id"));
        }
        if ids.is_empty() {
            return Err(Violation::new("discover found no splits: give the suite something to read"));
        }
        if let Some(split) = splits.iter().find(|split| source.is_bounded() && split.stop.is_none()) {
            return Err(Violation::new(format!("split {} of a bounded source has no stop", split.id)));
        }
        let again = source.discover(&ids).await?;
        match again.iter().find(|split| ids.contains(&split.id)) {
            Some(split) => Err(Violation::new(format!("discover found split {} again, though it was known", split.id))),
            None => Ok(splits),
        }
    }

    async fn first_pass(&self, source: &dyn Source, splits: &[Split]) -> Result<(Expected, Vec<Snapshot>), Violation> {
        let mut reading = Reading::open(self, source, splits, 0).await?;
        let mut snapshots = vec![reading.snapshot()?];
        let mut ended = false;
        while reading.total() < self.records && !ended {
            ended = !reading.next(Cutting::Never).await?;
            snapshots.push(reading.snapshot()?);
        }
        Ok((Expected { is_whole: ended && source.is_bounded(), records: reading.records }, snapshots))
    }

    /// Reads again from a snapshot: all that followed must follow again.
    async fn replay(&self, source: &dyn Source, snapshot: &Snapshot, expected: &Expected) -> Result<(), Violation> {
        let no_json = |error: serde_json::Error| Violation::new(format!("its positions do not survive JSON: {error}"));
        let text = serde_json::to_string(&snapshot.splits).map_err(no_json)?;
        let splits: Vec<Split> = serde_json::from_str(&text).map_err(no_json)?;
        let mut reading = Reading::open(self, source, &splits, 0).await?;
        self.read_rest(&mut reading, &expected.behind(snapshot), Cutting::Never).await.map(drop)
    }

    /// Reads with futures that are dropped at random moments.
    async fn broken_off(&self, source: &dyn Source, splits: &[Split], expected: &Expected) -> Result<(Vec<Snapshot>, usize), Violation> {
        let mut reading = Reading::open(self, source, splits, 0).await?;
        let snapshots = self.read_rest(&mut reading, expected, Cutting::AtRandom).await?;
        Ok((snapshots, reading.cancellations))
    }

    /// Deals the splits to two readers, one at a time.
    async fn dealt(&self, source: &dyn Source, splits: &[Split], expected: &Expected) -> Result<(), Violation> {
        let mut readers = [Reading::open(self, source, &[], 0).await?, Reading::open(self, source, &[], 1).await?];
        for (index, split) in splits.iter().enumerate() {
            let reading = &mut readers[index % 2];
            reading.add(std::slice::from_ref(split)).await?;
            reading.next(Cutting::AtRandom).await?;
        }
        for reading in readers.iter_mut().filter(|reading| !reading.is_empty()) {
            let own = expected.records.iter().filter(|(id, _)| reading.has_split(id));
            let own = Expected { is_whole: expected.is_whole, records: own.map(|(id, all)| (id.clone(), all.clone())).collect() };
            self.read_rest(reading, &own, Cutting::Never).await?;
        }
        Ok(())
    }

    /// Reads what is left and compares all with what is expected. Gives the positions after each step.
    async fn read_rest(&self, reading: &mut Reading<'_>, expected: &Expected, cutting: Cutting) -> Result<Vec<Snapshot>, Violation> {
        let mut snapshots = Vec::new();
        while (expected.is_whole || !reading.has_all(expected)) && reading.next(cutting).await? {
            snapshots.push(reading.snapshot()?);
        }
        reading.compare(expected)?;
        Ok(snapshots)
    }

    async fn without_splits(&self, source: &dyn Source) -> Result<(), Violation> {
        let mut reading = Reading::open(self, source, &[], 0).await?;
        match reading.raw(Duration::from_millis(50)).await {
            Some(Err(error)) => Err(error.into()),
            Some(Ok(status)) => Err(Violation::new(format!("next_batch of a reader without splits gave {status:?} instead of waiting"))),
            None => Ok(()),
        }
    }

    /// Reads to the end, and then some more.
    async fn finished(&self, source: &dyn Source, splits: &[Split]) -> Result<(), Violation> {
        let mut reading = Reading::open(self, source, splits, 0).await?;
        while reading.next(Cutting::Never).await? {}
        let end = reading.snapshot()?;
        if let Some(split) = end.splits.iter().find(|split| !split.finished) {
            return Err(Violation::new(format!("the reader is finished, but split {} is not", split.id)));
        }
        self.stays_finished(&mut reading, &end).await?;
        let mut restarted = Reading::open(self, source, &end.splits, 0).await?;
        self.stays_finished(&mut restarted, &end).await
    }

    async fn stays_finished(&self, reading: &mut Reading<'_>, end: &Snapshot) -> Result<(), Violation> {
        for _ in 0..3 {
            let before = reading.total();
            match reading.raw(self.patience).await {
                Some(Ok(ReadStatus::Finished)) => {}
                Some(Ok(ReadStatus::Open)) => return Err(Violation::new("a finished reader was open again")),
                Some(Err(error)) => return Err(error.into()),
                None => return Err(Violation::new("a finished reader waited instead of saying that it is finished")),
            }
            if reading.total() != before {
                return Err(Violation::new("a finished reader brought another record"));
            }
            if reading.snapshot()?.splits != end.splits {
                return Err(Violation::new("the positions of a finished reader changed"));
            }
        }
        Ok(())
    }

    async fn within<T>(&self, what: &str, future: impl Future<Output = Result<T, Error>>) -> Result<T, Violation> {
        match deadline(self.patience, future).await {
            Some(result) => Ok(result?),
            None => Err(Violation::new(format!("{what} was not ready within {:?}", self.patience))),
        }
    }
}

/// Says from which position a violation was found.
fn from(violation: Violation, snapshot: &Snapshot) -> Violation {
    let positions: BTreeMap<_, _> = snapshot.splits.iter().map(|split| (&split.id, split.position.to_string())).collect();
    match violation {
        Violation::Broken(message) => Violation::new(format!("reading again from {positions:?}: {message}")),
        Violation::Failed(error) => Violation::Failed(error.within(format!("reading again from {positions:?}"))),
    }
}

/// Up to `count` of the items, evenly, the first and the last among them.
fn sample<T>(items: &[T], count: usize) -> impl Iterator<Item = &T> {
    let step = items.len().saturating_sub(1).max(1) as f64 / count.saturating_sub(1).max(1) as f64;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index of the items")]
    let index = move |sample: usize| (sample as f64 * step.max(1.0)).round() as usize;
    (0..count).map_while(move |sample| items.get(index(sample)))
}

/// A batch as it was handed to a reader with records in it already.
fn batch_with(record: crate::record::Row<'_>) -> Batch {
    let mut batch = Batch::default();
    batch.push(record);
    batch
}
