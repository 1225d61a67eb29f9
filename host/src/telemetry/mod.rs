//! What can be watched from outside: metrics, all their names in one place, and the log.
//!
//! Tasks count into handles that cost an atomic addition a batch ([`TaskMetrics`]); whoever asks reads all of them at that moment, as text for
//! Prometheus ([`Metrics::encode`]) or as numbers for a terminal and the REST interface ([`JobMetrics::reading`], [`TaskMetrics::reading`]).
//! Metrics are for watching: they are not in checkpoints, and what is replayed counts again.

mod encode;
mod job;
mod logging;
mod metrics;
mod names;
mod task;

pub use job::{CheckpointReading, JobMetrics, JobReading, TransactionsReading};
pub use logging::{LogError, LogFormat, init};
pub use metrics::Metrics;
pub use names::{MetricKind, MetricName, metric_names};
pub use task::{PluginReading, TaskMetrics, TaskReading};

#[cfg(test)]
mod tests;
