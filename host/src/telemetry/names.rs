//! Every metric's name, meaning and unit. The words are those of Apache Flink, the units and endings those of Prometheus.
//!
//! Names are written without the prefix `waterwheel_`, the unit and `_total`, which are added: `busy` in seconds is
//! `waterwheel_busy_seconds_total`.

use super::{JobReading, PluginReading, TaskReading};
use std::time::Duration;

/// What all names begin with.
pub(super) const PREFIX: &str = "waterwheel";

/// Whether a number only rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only rises, from 0 at the start of the process; what is asked for is its rate.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A metric as a scrape shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricName {
    /// The whole name.
    pub name: String,
    /// Whether it only rises.
    pub kind: MetricKind,
    /// What it says.
    pub help: &'static str,
    /// The labels that its samples have.
    pub labels: &'static [&'static str],
}

/// A number to show; none where it is not known, and then the sample is left out.
pub(super) enum Number {
    Whole(Option<u64>),
    Real(Option<f64>),
}

pub(super) struct Metric<R> {
    pub(super) name: &'static str,
    pub(super) unit: Option<&'static str>,
    pub(super) kind: MetricKind,
    pub(super) help: &'static str,
    pub(super) number: fn(&R) -> Number,
}

const fn counter<R>(name: &'static str, unit: Option<&'static str>, help: &'static str, number: fn(&R) -> Number) -> Metric<R> {
    Metric { name, unit, kind: MetricKind::Counter, help, number }
}

const fn gauge<R>(name: &'static str, unit: Option<&'static str>, help: &'static str, number: fn(&R) -> Number) -> Metric<R> {
    Metric { name, unit, kind: MetricKind::Gauge, help, number }
}

impl<R> Metric<R> {
    fn public(&self, labels: &'static [&'static str]) -> MetricName {
        let unit = self.unit.map(|unit| format!("_{unit}")).unwrap_or_default();
        let end = if self.kind == MetricKind::Counter { "_total" } else { "" };
        MetricName { name: format!("{PREFIX}_{}{unit}{end}", self.name), kind: self.kind, help: self.help, labels }
    }
}

const SECONDS: Option<&str> = Some("seconds");
const BYTES: Option<&str> = Some("bytes");

fn whole(number: u64) -> Number {
    Number::Whole(Some(number))
}

fn seconds(time: Duration) -> Number {
    Number::Real(Some(time.as_secs_f64()))
}

fn known_seconds(time: Option<Duration>) -> Number {
    Number::Real(time.map(|time| time.as_secs_f64()))
}

/// Milliseconds in seconds; exact for every time that a clock shows, which is far below 2^53 milliseconds.
fn in_seconds(time: Option<i64>) -> Number {
    Number::Real(time.map(|time| time as f64 / 1000.0))
}

/// Labels: `job`, `uid`, `subtask`.
pub(super) const TASK: [Metric<TaskReading>; 14] = [
    counter("records_in", None, "Records that a subtask received", |task| whole(task.records_in)),
    counter("bytes_in", None, "Bytes of keys, values and headers that a subtask received", |task| whole(task.bytes_in)),
    counter("records_out", None, "Records that a subtask sent on, or a sink wrote", |task| whole(task.records_out)),
    counter("bytes_out", None, "Bytes of keys, values and headers that a subtask sent on, or a sink wrote", |task| whole(task.bytes_out)),
    counter("busy", SECONDS, "Time that a subtask spent working", |task| seconds(task.busy)),
    counter("idle", SECONDS, "Time that a subtask waited for input", |task| seconds(task.idle)),
    counter("back_pressured", SECONDS, "Time that a subtask waited for room in its outputs", |task| seconds(task.back_pressured)),
    gauge("current_watermark_timestamp", SECONDS, "The current watermark of a subtask, since the Unix epoch", |task| {
        in_seconds(task.watermark)
    }),
    counter("late_records", None, "Records that came after the watermark had passed their time", |task| whole(task.late_records)),
    counter("unwritten_records", None, "Records that a sink left out because they could not be written", |task| {
        whole(task.unwritten_records)
    }),
    counter("untimed_records", None, "Records that a source left out because their timestamp could not be read", |task| {
        whole(task.untimed_records)
    }),
    gauge("pending_records", None, "Records that a source knows to be waiting", |task| Number::Whole(task.pending_records)),
    gauge("alignment", SECONDS, "How long a subtask waited for the last barrier of its other inputs", |task| known_seconds(task.alignment)),
    gauge("start_delay", SECONDS, "How long the last barrier took to a subtask", |task| known_seconds(task.start_delay)),
];

/// Labels: `job`, `uid`, `subtask`.
pub(super) const PLUGIN: [Metric<PluginReading>; 8] = [
    counter("plugin_calls", None, "Calls of a subtask's plugin", |plugin| whole(plugin.calls)),
    counter("plugin_call", SECONDS, "Time that calls of a subtask's plugin took", |plugin| seconds(plugin.call_time)),
    counter("plugin_traps", None, "Plugin instances lost to a trap, a deadline or the limit of memory", |plugin| whole(plugin.traps)),
    counter("failed_records", None, "Records and timers that a plugin could not process", |plugin| whole(plugin.failures)),
    counter("skipped_records", None, "Failed records that were skipped", |plugin| whole(plugin.skipped)),
    counter("dead_letters", None, "Failed records that went to the dead letters", |plugin| whole(plugin.dead_letters)),
    counter("dropped_timers", None, "Processing-time timers that were still set when the input had ended", |plugin| {
        whole(plugin.dropped_timers)
    }),
    gauge("plugin_memory", BYTES, "Memory of a subtask's plugin instance", |plugin| whole(plugin.memory_bytes)),
];

/// The counters that plugins make themselves. Labels: `job`, `uid`, `subtask`, `name`.
pub(super) const PLUGIN_COUNTER: Metric<u64> =
    counter("plugin_counter", None, "A counter that a plugin makes itself", |counter| whole(*counter));

/// The splits of a source. Labels: `job`, `uid`, `subtask`, `split`.
pub(super) const SPLIT: Metric<u64> =
    gauge("split_pending_records", None, "Records that a source knows to be waiting in a split: the lag of a partition", |records| {
        whole(*records)
    });

/// Labels: `job`.
pub(super) const JOB: [Metric<JobReading>; 14] = [
    counter("checkpoints_completed", None, "Checkpoints that were completed", |job| whole(job.checkpoints_completed)),
    counter("checkpoints_failed", None, "Checkpoints that failed or expired", |job| whole(job.checkpoints_failed)),
    gauge("checkpoints_in_progress", None, "Checkpoints that are under way", |job| whole(job.checkpoints_in_progress)),
    gauge("last_checkpoint_duration", SECONDS, "From trigger to completion of the last completed checkpoint", |job| {
        known_seconds(job.last_checkpoint.map(|last| last.duration))
    }),
    gauge("last_checkpoint_size", BYTES, "What was written for the last completed checkpoint", |job| {
        Number::Whole(job.last_checkpoint.map(|last| last.size_bytes))
    }),
    gauge("last_checkpoint_full_size", BYTES, "What a restore from the last completed checkpoint reads", |job| {
        Number::Whole(job.last_checkpoint.map(|last| last.full_size_bytes))
    }),
    gauge("last_checkpoint_alignment", SECONDS, "The longest alignment of a subtask in the last completed checkpoint", |job| {
        known_seconds(job.last_checkpoint.map(|last| last.alignment))
    }),
    gauge("last_checkpoint_start_delay", SECONDS, "The longest way of the last completed checkpoint's barrier to a subtask", |job| {
        known_seconds(job.last_checkpoint.map(|last| last.start_delay))
    }),
    counter("restarts", None, "How often the job was started again after a failure", |job| whole(job.restarts)),
    gauge("open_transaction_age", SECONDS, "How long the oldest open transaction has been open", |job| {
        known_seconds(job.transactions.and_then(|transactions| transactions.oldest_open))
    }),
    counter("committed_transactions", None, "Transactions that were committed", |job| {
        Number::Whole(job.transactions.map(|transactions| transactions.committed))
    }),
    counter("aborted_transactions", None, "Transactions that were aborted", |job| {
        Number::Whole(job.transactions.map(|transactions| transactions.aborted))
    }),
    gauge("transaction_waiting_writers", None, "Writers that wait with a barrier for the others", |job| {
        Number::Whole(job.transactions.map(|transactions| transactions.waiting_writers))
    }),
    gauge("transaction_barrier_wait", SECONDS, "How long the first writer waited for the last one at the last barrier", |job| {
        known_seconds(job.transactions.and_then(|transactions| transactions.barrier_wait))
    }),
];

/// The process. Labels: `version`.
pub(super) const BUILD: Metric<()> = gauge("build_info", None, "1, with the version of the host as a label", |()| whole(1));

/// All metrics, in the order of a scrape.
pub fn metric_names() -> Vec<MetricName> {
    const OF_JOB: &[&str] = &["job"];
    const OF_TASK: &[&str] = &["job", "uid", "subtask"];
    let mut names = vec![BUILD.public(&["version"])];
    names.extend(JOB.iter().map(|metric| metric.public(OF_JOB)));
    names.extend(TASK.iter().map(|metric| metric.public(OF_TASK)));
    names.push(SPLIT.public(&["job", "uid", "subtask", "split"]));
    names.extend(PLUGIN.iter().map(|metric| metric.public(OF_TASK)));
    names.push(PLUGIN_COUNTER.public(&["job", "uid", "subtask", "name"]));
    names
}
