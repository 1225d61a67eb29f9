//! The event time of a source task: reads the timestamps of its records and makes its watermarks.

use super::combine::EventTime;
use super::splits::{SplitWatermarks, WatermarkSettings};
use super::stamp::Stamp;
use crate::Error;
use crate::pipeline::spec::{EventTimeSpec, OnTimestampError, TimestampSpec};
use crate::record::{Batch, JsonPointer, SplitTable};
use crate::source::{SourceReader, Split};
use crate::telemetry::TaskMetrics;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The event time of one subtask of a source.
#[derive(Debug)]
pub(in crate::pipeline::run) struct SourceTime {
    uid: Arc<str>,
    /// None where records have their timestamps already.
    stamp: Option<Stamp>,
    on_error: OnTimestampError,
    watermarks: SplitWatermarks,
    /// The greatest timestamps of splits that are still to be added.
    restored: BTreeMap<String, i64>,
    split_table: SplitTable,
    metrics: Arc<TaskMetrics>,
    left_out: u64,
}

impl SourceTime {
    /// For the subtask of the source `uid` whose splits had these greatest timestamps.
    pub(in crate::pipeline::run) fn new(
        uid: &Arc<str>,
        spec: &EventTimeSpec,
        restored: BTreeMap<String, i64>,
        split_table: SplitTable,
        metrics: Arc<TaskMetrics>,
    ) -> Result<Self, Error> {
        let stamp = match &spec.timestamp {
            TimestampSpec::Record(_) => None,
            TimestampSpec::Value(place) => Some(Stamp::new(JsonPointer::parse(&place.json_pointer).map_err(Error::user)?, place.unit)),
        };
        let settings = WatermarkSettings {
            out_of_orderness_ms: i64::try_from(spec.watermark.out_of_orderness.0.as_millis()).unwrap_or(i64::MAX),
            idle_timeout: spec.watermark.idle_timeout.map(|timeout| timeout.0),
            interval: spec.watermark.interval.0,
        };
        Ok(Self {
            uid: Arc::clone(uid),
            stamp,
            on_error: spec.on_error,
            watermarks: SplitWatermarks::new(settings, Instant::now()),
            restored,
            split_table,
            metrics,
            left_out: 0,
        })
    }

    /// Splits are to be read.
    pub(in crate::pipeline::run) fn add(&mut self, splits: &[Split]) {
        for split in splits {
            let number = self.split_table.number(&self.uid, &split.id);
            self.watermarks.add(&split.id, number, self.restored.remove(&split.id), Instant::now());
            if split.finished {
                self.watermarks.finished(&split.id);
            }
        }
    }

    /// Gives records their timestamps, and takes out those whose timestamp cannot be read where the job says so.
    ///
    /// # Errors
    /// A timestamp cannot be read: the record's place and the reason.
    pub(in crate::pipeline::run) fn stamp(&mut self, mut batch: Batch) -> Result<Batch, Error> {
        let Some(stamp) = &mut self.stamp else { return Ok(batch) };
        let mut without = Vec::new();
        for row in 0..batch.len() {
            let reason = match stamp.read(batch.value(row)) {
                Ok(timestamp) => {
                    batch.set_timestamp(row, timestamp);
                    continue;
                }
                Err(reason) => reason,
            };
            let place = self.split_table.place(batch.origins()[row]);
            let place = place.map_or_else(|| format!("source {}", self.uid), |place| place.to_string());
            if self.on_error == OnTimestampError::Fail {
                return Err(Error::user(format!(
                    "the timestamp of the record at {place} cannot be read: {reason}; mend the record or `event-time.timestamp`, or leave \
                     such records out with `event-time.on-error: skip`"
                )));
            }
            self.left_out += 1;
            // Not each one: a stream of bad records must not become a stream of messages.
            if self.left_out.is_power_of_two() {
                tracing::warn!(
                    left_out = self.left_out,
                    "the record at {place} is left out, because its timestamp cannot be read: {reason}"
                );
            }
            without.push(row);
        }
        self.metrics.untimed(without.len() as u64);
        Ok(batch.without(&without))
    }

    /// Records are about to be sent on; what comes back is to be told before them.
    pub(in crate::pipeline::run) fn observe(&mut self, batch: &Batch) -> Option<EventTime> {
        self.watermarks.observe(batch.origins(), batch.timestamps())
    }

    /// The task has waited for records.
    pub(in crate::pipeline::run) fn waited(&mut self, time: Duration) {
        self.watermarks.waited(time);
    }

    /// When something may be to be told, if the task waits from now on.
    pub(in crate::pipeline::run) fn wake_at(&self, now: Instant) -> Option<Instant> {
        self.watermarks.wake_at(now)
    }

    /// Whether something may be to be told now.
    pub(in crate::pipeline::run) fn is_due(&self, now: Instant) -> bool {
        self.watermarks.is_due(now)
    }

    /// Looks which splits have been read to their ends. All that was read has to be observed before: a split's last records too.
    pub(in crate::pipeline::run) fn look(&mut self, reader: &dyn SourceReader) {
        if self.watermarks.is_any_quiet() {
            for split in reader.positions().iter().filter(|split| split.finished) {
                self.watermarks.finished(&split.id);
            }
        }
    }

    /// What is to be told now; to be called until there is nothing more.
    pub(in crate::pipeline::run) fn poll(&mut self, now: Instant) -> Option<EventTime> {
        self.watermarks.poll(now)
    }

    /// The greatest timestamp of each split, for a checkpoint.
    pub(in crate::pipeline::run) fn greatest(&self) -> Vec<(String, i64)> {
        self.watermarks.greatest().map(|(split, timestamp)| (split.to_owned(), timestamp)).collect()
    }
}
