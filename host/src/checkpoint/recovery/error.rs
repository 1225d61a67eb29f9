//! Why a start failed, each with what to do.

use crate::Error;

use super::super::commit::RunError;
use super::super::log::{LogError, NewerRun};
use super::super::participants::LastResourceError;
use super::super::protocol::fork::StartRefusal;
use super::super::protocol::{Damage, JobId, Refusal, Slot};

/// What helps when a state file of a checkpoint is damaged.
pub const OTHER_CHECKPOINTS: &str = "put it back from a copy; or find out with `waterwheel checkpoint verify` which checkpoints are intact, and \
     start from the newest of them with --older-than-damaged, or from one of them with --from-checkpoint NUMBER --allow-duplicate-output: output \
     after it is written again";

/// Why a start failed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A newer run of the same job exists. Stop for good (exit code 3).
    #[error("superseded by generation {}{}: another instance of this job was started after this one, and this one stops", .0.generation, .0.owner.as_deref().map(|owner| format!(" ({owner})")).unwrap_or_default())]
    Superseded(NewerRun),
    /// Another incarnation or job replaced this one while it started. Stop for good (exit code 3).
    #[error("job {job} was replaced by {by}, and stops")]
    ForkedBy {
        /// This job.
        job: JobId,
        /// Who replaced it.
        by: JobId,
    },
    /// The decision is to do nothing.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// What to start from is not there.
    #[error(transparent)]
    NothingToStartFrom(#[from] StartRefusal),
    /// A fork was refused because the old job was replaced by somebody else.
    #[error("job {old} was already replaced by {by}: restore from {by} instead, or start it under its own name")]
    ReplacedByAnother {
        /// The old job.
        old: JobId,
        /// Who was first.
        by: JobId,
    },
    /// A fork was refused because the old job is still going on.
    #[error("job {old} put checkpoint {newest} while it was being replaced, so nothing was taken over: try again")]
    OldJobMoved {
        /// The old job.
        old: JobId,
        /// What it put.
        newest: Slot,
    },
    /// A fork was refused because the old job's log is not there.
    #[error(
        "the log of job {old} is not in {storage}: it cannot be closed, and an instance of it that still runs would not be stopped; stop it and say --take-over-prefix"
    )]
    OldLogUnreachable {
        /// The old job.
        old: JobId,
        /// Where it was looked for.
        storage: String,
    },
    /// A fork was refused because what it replaces cannot be read.
    #[error(
        "{path}, which is to be replaced, is damaged: {damage}; what it prepared would be lost. Repair it, or say --older-than-damaged to leave that out"
    )]
    ReplacedDamaged {
        /// The file.
        path: String,
        /// What is wrong with it.
        damage: Damage,
    },
    /// A fork was refused because the last resource belongs to somebody else.
    #[error(
        "the transactional prefix is not the one of job {old}, which is to be replaced: use the prefix of that job, or a new one with --take-over-prefix"
    )]
    MarkerElsewhere {
        /// The old job.
        old: JobId,
    },
    /// A fork was refused because output would repeat.
    #[error(
        "output of {checkpoints} checkpoint(s) of job {old} after the restored point is visible and would be shown again: say --allow-duplicate-output if that is wanted"
    )]
    WouldRepeat {
        /// The old job.
        old: JobId,
        /// How many at least.
        checkpoints: u64,
    },
    /// A fork was refused because output would be missing.
    #[error(
        "the checkpoint to restore is newer than what job {old} committed: output between would be missing; restore the newest committed one"
    )]
    NeverCommitted {
        /// The old job.
        old: JobId,
    },
    /// The manifest to restore is gone.
    #[error("the checkpoint to restore ({path}) is not in the storage any more: name another one with --from-checkpoint")]
    RestoredGone {
        /// What was to be restored.
        path: String,
    },
    /// A state file of the manifest to restore is gone or damaged.
    #[error("the state file {path} of checkpoint {slot}, which is to be restored, {problem}; {OTHER_CHECKPOINTS}")]
    StateFile {
        /// The file.
        path: String,
        /// The checkpoint.
        slot: Slot,
        /// `is missing`, or what is wrong with it.
        problem: &'static str,
    },
    /// Output of the job is there, and its log is not.
    #[error(
        "job {job} has no checkpoints in {storage} and would begin, but output of it is there: {output}. Its checkpoints were deleted, or are elsewhere (execution.checkpointing.dir): point the job at them; or move the output away; or say --fresh to write all records again beside it"
    )]
    OutputWithoutLog {
        /// The job.
        job: JobId,
        /// Where its checkpoints were looked for.
        storage: String,
        /// Where output of it was found.
        output: String,
    },
    /// The pipeline refused (positions, plan).
    #[error(transparent)]
    Pipeline(Error),
    /// What dead runs left could not be removed.
    #[error("what an earlier run left behind could not be removed: {0}")]
    CleanUp(#[source] Error),
    /// Rolling forward failed.
    #[error(transparent)]
    RollForward(RunError),
    /// The last resource failed.
    #[error(transparent)]
    LastResource(LastResourceError),
    /// The storage failed, or the log is damaged where it matters.
    #[error(transparent)]
    Log(#[from] LogError),
}

impl StartError {
    /// Whether this run must never start again by itself: another one has its place. Exit code 3.
    #[must_use]
    pub fn is_superseded(&self) -> bool {
        matches!(self, Self::Superseded(_) | Self::ForkedBy { .. })
    }

    /// Whether a later start may succeed without anybody doing anything.
    #[must_use]
    pub fn retry_helps(&self) -> bool {
        match self {
            Self::Log(error) => error.retry_helps(),
            // A checkpoint of the old job came in between: the next try closes its log behind that one.
            Self::OldJobMoved { .. } => true,
            Self::CleanUp(error) | Self::Pipeline(error) => error.retry_helps(),
            Self::RollForward(RunError::Log(error)) => error.retry_helps(),
            Self::RollForward(RunError::Recover(_)) => true,
            Self::LastResource(error) => !matches!(error, LastResourceError::Refused(_)),
            _ => false,
        }
    }
}

impl From<RunError> for StartError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Superseded(newer) => Self::Superseded(newer),
            RunError::ForkedBy { job, by } => Self::ForkedBy { job, by },
            RunError::Log(error) | RunError::NotDurable(error) => Self::Log(error),
            other => Self::RollForward(other),
        }
    }
}
