//! How a job runs: checkpoints, recovery, batches. Names and defaults are Flink's, without the leading `execution.`.

use super::RestartSpec;
use crate::config::{Size, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a job runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Execution {
    /// When and how checkpoints are taken.
    pub checkpointing: Checkpointing,
    /// What happens after a failure.
    pub restart_strategy: RestartSpec,
    /// Which checkpoint a job starts from.
    pub state_recovery: StateRecovery,
    /// How many records travel together.
    pub batch: BatchSpec,
}

/// When and how checkpoints are taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Checkpointing {
    /// How often a checkpoint is triggered. By default never: checkpointing is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Span>,
    /// Whether barriers are aligned, so that state is exactly-once. By default `exactly-once`.
    pub mode: CheckpointMode,
    /// How long a checkpoint may take before it is given up. By default 10 minutes.
    pub timeout: Span,
    /// The least time between the end of a checkpoint and the beginning of the next. By default 0.
    pub min_pause: Span,
    /// How many checkpoints may be under way at once. By default 1.
    #[schemars(range(min = 1))]
    pub max_concurrent_checkpoints: u32,
    /// How many checkpoints may fail in a row before the job fails. By default 0.
    pub tolerable_failed_checkpoints: u32,
    /// How many completed checkpoints are kept. By default 1.
    #[schemars(range(min = 1))]
    pub num_retained: u32,
    /// What happens to the checkpoints of a job that is cancelled. By default `delete-on-cancellation`.
    pub externalized_checkpoint_retention: Retention,
    /// Whether a checkpoint holds only what changed. Waterwheel always does so and merges in the background, so it is true by default.
    pub incremental: bool,
    /// Where checkpoints are kept: a folder, or a URL such as `file:///var/lib/waterwheel/checkpoints` or `memory://`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// Where savepoints are kept for which nobody says more, each in a folder `savepoint-{job}-{checkpoint}`: a folder, or a URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub savepoint_dir: Option<String>,
    /// Barriers that overtake records.
    pub unaligned: Unaligned,
    /// How long a barrier is aligned before it overtakes records, when unaligned checkpoints are enabled. By default 0: at once.
    pub aligned_checkpoint_timeout: Span,
}

impl Default for Checkpointing {
    fn default() -> Self {
        Self {
            interval: None,
            mode: CheckpointMode::ExactlyOnce,
            timeout: Span::from_millis(600_000),
            min_pause: Span::from_millis(0),
            max_concurrent_checkpoints: 1,
            tolerable_failed_checkpoints: 0,
            num_retained: 1,
            externalized_checkpoint_retention: Retention::DeleteOnCancellation,
            incremental: true,
            dir: None,
            savepoint_dir: None,
            unaligned: Unaligned::default(),
            aligned_checkpoint_timeout: Span::from_millis(0),
        }
    }
}

/// What checkpoints promise about state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CheckpointMode {
    /// Every record is counted once in the state.
    #[default]
    ExactlyOnce,
    /// Records may be counted again after a failure; no input waits for another.
    AtLeastOnce,
}

/// What happens to the checkpoints of a job that is cancelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Retention {
    /// They are deleted, all but the newest completed one: a later start goes on from it and so repeats no output.
    #[default]
    DeleteOnCancellation,
    /// They are kept, as many as `num-retained` says.
    RetainOnCancellation,
}

/// Barriers that overtake records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Unaligned {
    /// Whether they do. By default false.
    pub enabled: bool,
}

/// Which checkpoint a job starts from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct StateRecovery {
    /// The checkpoint. By default the newest completed one of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Whether state that no operator claims may be left behind. By default false.
    pub ignore_unclaimed_state: bool,
    /// Who owns the checkpoint afterwards. By default `no-claim`.
    pub claim_mode: ClaimMode,
}

/// Who owns a checkpoint that a job was started from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimMode {
    /// Whoever owned it before; the job never deletes it.
    #[default]
    NoClaim,
    /// The job, which deletes it when it is not needed any more.
    Claim,
}

/// How many records travel together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct BatchSpec {
    /// Records at most. By default 512.
    #[schemars(range(min = 1))]
    pub max_records: u32,
    /// Bytes at most; a larger record travels alone. By default 64 KiB.
    pub max_bytes: Size,
    /// How long a batch waits to be filled once it has a record. By default 5 ms.
    pub linger: Span,
}

impl Default for BatchSpec {
    fn default() -> Self {
        Self { max_records: 512, max_bytes: Size(64 << 10), linger: Span::from_millis(5) }
    }
}
