//! The settings of a job with every default filled in.

use crate::pipeline::spec::{CheckpointMode, ExponentialDelay, FailureRate, FixedDelay, Retention};
use crate::source::BatchLimits;
use std::time::Duration;

/// Checkpoints, restarts and batches of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// When and how checkpoints are taken; none when checkpointing is off.
    pub checkpointing: Option<CheckpointSettings>,
    /// What happens after a failure.
    pub restart: RestartStrategy,
    /// How large batches may become.
    pub batch: BatchLimits,
    /// Whether the job may lose its checkpoints with the process.
    pub ephemeral: bool,
}

/// When and how checkpoints are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointSettings {
    /// Where checkpoints are kept: a folder or a URL.
    pub dir: String,
    /// Where savepoints are kept for which nobody says more: a folder or a URL.
    pub savepoint_dir: Option<String>,
    /// How often one is triggered.
    pub interval: Duration,
    /// Whether barriers are aligned.
    pub mode: CheckpointMode,
    /// How long one may take.
    pub timeout: Duration,
    /// The least time between the end of one and the beginning of the next.
    pub min_pause: Duration,
    /// How many may be under way at once.
    pub max_concurrent: u32,
    /// How many may fail in a row.
    pub tolerable_failed: u32,
    /// How many completed ones are kept; at least 1.
    pub num_retained: u32,
    /// What happens to them when the job is cancelled.
    pub retention: Retention,
}

/// What happens after a failure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RestartStrategy {
    /// The job fails.
    None,
    /// A number of restarts, each after the same delay.
    FixedDelay(FixedDelay),
    /// Restarts as long as failures are not too frequent.
    FailureRate(FailureRate),
    /// Restarts after delays that grow.
    ExponentialDelay(ExponentialDelay),
}
