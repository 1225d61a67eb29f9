//! The metrics of one subtask.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

/// Stands for "not known" where a number is stored.
const UNKNOWN: u64 = u64::MAX;

/// Counts what one subtask does. Shared between the task, which counts once a batch, and whoever reads; nothing here waits.
///
/// A subtask that is restarted gets the same handle again, and counts on.
#[derive(Debug)]
pub struct TaskMetrics {
    records_in: AtomicU64,
    bytes_in: AtomicU64,
    records_out: AtomicU64,
    bytes_out: AtomicU64,
    busy_nanoseconds: AtomicU64,
    idle_nanoseconds: AtomicU64,
    back_pressured_nanoseconds: AtomicU64,
    watermark: AtomicI64,
    late_records: AtomicU64,
    unwritten_records: AtomicU64,
    untimed_records: AtomicU64,
    pending_records: AtomicU64,
    alignment_nanoseconds: AtomicU64,
    start_delay_nanoseconds: AtomicU64,
    plugin: RwLock<Option<PluginSource>>,
    splits: RwLock<Option<SplitSource>>,
}

/// Where the numbers of a subtask's plugin are read when somebody asks for them.
struct PluginSource(Box<dyn Fn() -> PluginReading + Send + Sync>);

impl fmt::Debug for PluginSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PluginSource")
    }
}

/// Where the records that wait in each split are read when somebody asks for them.
struct SplitSource(Box<dyn Fn() -> Vec<(String, u64)> + Send + Sync>);

impl fmt::Debug for SplitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SplitSource")
    }
}

/// The numbers of one subtask at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskReading {
    /// Records that arrived; of a source, none.
    pub records_in: u64,
    /// Bytes of their keys, values and headers.
    pub bytes_in: u64,
    /// Records that were sent on; of a sink, those that were written.
    pub records_out: u64,
    /// Bytes of their keys, values and headers.
    pub bytes_out: u64,
    /// Time spent working.
    pub busy: Duration,
    /// Time spent waiting for input.
    pub idle: Duration,
    /// Time spent waiting for room in an output.
    pub back_pressured: Duration,
    /// The current watermark, milliseconds since the Unix epoch; none before the first.
    pub watermark: Option<i64>,
    /// Records that came after the watermark had passed their time.
    pub late_records: u64,
    /// Records that a sink left out because they could not be written.
    pub unwritten_records: u64,
    /// Records that a source left out because their timestamp could not be read.
    pub untimed_records: u64,
    /// Records that a source knows to be waiting, if it knows.
    pub pending_records: Option<u64>,
    /// Records that a source knows to be waiting, split by split.
    pub pending_by_split: Vec<(String, u64)>,
    /// How long the barrier of the last checkpoint was waited for after the first input had delivered it.
    pub alignment: Option<Duration>,
    /// How long the barrier of the last checkpoint took from the coordinator to this subtask.
    pub start_delay: Option<Duration>,
    /// The numbers of the plugin, where the subtask runs one.
    pub plugin: Option<PluginReading>,
}

/// The numbers of a subtask's plugin at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PluginReading {
    /// Calls of the plugin.
    pub calls: u64,
    /// The time that they took together.
    pub call_time: Duration,
    /// Instances lost to a trap, a deadline or the limit of memory.
    pub traps: u64,
    /// Records, and timers, that could not be processed.
    pub failures: u64,
    /// Those of them that were skipped.
    pub skipped: u64,
    /// Those of them that went to the dead letters.
    pub dead_letters: u64,
    /// Processing-time timers that were still set when the input had ended.
    pub dropped_timers: u64,
    /// The memory of the instance that runs, in bytes.
    pub memory_bytes: u64,
    /// The plugin's own counters by name.
    pub counters: BTreeMap<String, u64>,
}

impl Default for TaskMetrics {
    fn default() -> Self {
        Self {
            records_in: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            records_out: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            busy_nanoseconds: AtomicU64::new(0),
            idle_nanoseconds: AtomicU64::new(0),
            back_pressured_nanoseconds: AtomicU64::new(0),
            watermark: AtomicI64::new(i64::MIN),
            late_records: AtomicU64::new(0),
            unwritten_records: AtomicU64::new(0),
            untimed_records: AtomicU64::new(0),
            pending_records: AtomicU64::new(UNKNOWN),
            alignment_nanoseconds: AtomicU64::new(UNKNOWN),
            start_delay_nanoseconds: AtomicU64::new(UNKNOWN),
            plugin: RwLock::new(None),
            splits: RwLock::new(None),
        }
    }
}

impl TaskMetrics {
    /// A batch arrived: its records, and bytes of keys, values and headers.
    pub fn received(&self, records: usize, bytes: usize) {
        self.records_in.fetch_add(records as u64, Relaxed);
        self.bytes_in.fetch_add(bytes as u64, Relaxed);
    }

    /// A batch was sent on, or written by a sink.
    pub fn sent(&self, records: usize, bytes: usize) {
        self.records_out.fetch_add(records as u64, Relaxed);
        self.bytes_out.fetch_add(bytes as u64, Relaxed);
    }

    /// Time was spent working.
    pub fn busy(&self, time: Duration) {
        self.busy_nanoseconds.fetch_add(nanoseconds(time), Relaxed);
    }

    /// Time was spent waiting for input.
    pub fn idle(&self, time: Duration) {
        self.idle_nanoseconds.fetch_add(nanoseconds(time), Relaxed);
    }

    /// Time was spent waiting for room in an output.
    pub fn back_pressured(&self, time: Duration) {
        self.back_pressured_nanoseconds.fetch_add(nanoseconds(time), Relaxed);
    }

    /// The watermark has moved; milliseconds since the Unix epoch, `i64::MIN` when there is none any more.
    pub fn set_watermark(&self, watermark: i64) {
        self.watermark.store(watermark, Relaxed);
    }

    /// Records came after the watermark had passed their time.
    pub fn late(&self, records: u64) {
        self.late_records.fetch_add(records, Relaxed);
    }

    /// A sink left out a record that cannot be written; how many it has left out now.
    pub fn unwritten(&self) -> u64 {
        self.unwritten_records.fetch_add(1, Relaxed) + 1
    }

    /// A source left out records whose timestamp could not be read.
    pub fn untimed(&self, records: u64) {
        self.untimed_records.fetch_add(records, Relaxed);
    }

    /// How many records a source knows to be waiting, if it knows.
    pub fn set_pending(&self, records: Option<u64>) {
        self.pending_records.store(records.unwrap_or(UNKNOWN), Relaxed);
    }

    /// A barrier was handled: how long it took from the coordinator to this subtask, and how long the other inputs' were waited for.
    pub fn aligned(&self, start_delay: Duration, alignment: Duration) {
        self.start_delay_nanoseconds.store(nanoseconds(start_delay), Relaxed);
        self.alignment_nanoseconds.store(nanoseconds(alignment), Relaxed);
    }

    /// From now on the plugin's numbers are read there, when somebody asks for them.
    pub fn read_plugin_from(&self, source: impl Fn() -> PluginReading + Send + Sync + 'static) {
        *self.plugin.write().unwrap_or_else(PoisonError::into_inner) = Some(PluginSource(Box::new(source)));
    }

    /// From now on the records that wait in each split, by its id, are read there, when somebody asks for them.
    pub fn read_splits_from(&self, source: impl Fn() -> Vec<(String, u64)> + Send + Sync + 'static) {
        *self.splits.write().unwrap_or_else(PoisonError::into_inner) = Some(SplitSource(Box::new(source)));
    }

    /// The numbers at this moment.
    pub fn reading(&self) -> TaskReading {
        let known = |stored: &AtomicU64| Some(stored.load(Relaxed)).filter(|stored| *stored != UNKNOWN);
        let time = |stored: &AtomicU64| Duration::from_nanos(stored.load(Relaxed));
        let plugin = self.plugin.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(|source| (source.0)());
        let splits = self.splits.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(|source| (source.0)());
        TaskReading {
            records_in: self.records_in.load(Relaxed),
            bytes_in: self.bytes_in.load(Relaxed),
            records_out: self.records_out.load(Relaxed),
            bytes_out: self.bytes_out.load(Relaxed),
            busy: time(&self.busy_nanoseconds),
            idle: time(&self.idle_nanoseconds),
            back_pressured: time(&self.back_pressured_nanoseconds),
            watermark: Some(self.watermark.load(Relaxed)).filter(|watermark| *watermark != i64::MIN),
            late_records: self.late_records.load(Relaxed),
            unwritten_records: self.unwritten_records.load(Relaxed),
            untimed_records: self.untimed_records.load(Relaxed),
            pending_records: known(&self.pending_records),
            pending_by_split: splits.unwrap_or_default(),
            alignment: known(&self.alignment_nanoseconds).map(Duration::from_nanos),
            start_delay: known(&self.start_delay_nanoseconds).map(Duration::from_nanos),
            plugin,
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(UNKNOWN - 1)
}
