//! Why a savepoint could not be made, read or deleted, each with what to do.

use super::super::log::LogError;
use super::super::protocol::{Damage, JobId, Slot};
use super::super::storage::{OpenError, StorageError, StorageErrorClass};
use crate::state::StateFileError;

/// Why a savepoint could not be made, read or deleted.
#[derive(Debug, thiserror::Error)]
pub enum SavepointError {
    /// There is nothing at a path.
    #[error("there is no savepoint or checkpoint at {path}: its file {path}/_metadata is not there")]
    NotThere {
        /// The path.
        path: String,
    },
    /// The manifest is there and cannot be read.
    #[error("the savepoint or checkpoint {path} cannot be read: its file _metadata is damaged: {damage}")]
    Damaged {
        /// The path.
        path: String,
        /// What is wrong with it.
        damage: Damage,
    },
    /// A checkpoint, where only a savepoint will do.
    #[error(
        "{path} is a checkpoint of job {job}, not a savepoint: it belongs to the job, and `waterwheel checkpoint prune` deletes what is old"
    )]
    IsCheckpoint {
        /// The path.
        path: String,
        /// Whose.
        job: JobId,
    },
    /// There is another savepoint where one is to be made.
    #[error(
        "there is a savepoint at {path} already, of job {job}: name another folder, or delete that one with `waterwheel savepoint delete`"
    )]
    Exists {
        /// The path.
        path: String,
        /// Whose.
        job: JobId,
    },
    /// Savepoints in memory end with the process.
    #[error("{path}: a savepoint in memory ends with the process; give a folder")]
    InMemory {
        /// The path.
        path: String,
    },
    /// Nobody said where.
    #[error("nobody says where the savepoint is to be: give its path, or set execution.checkpointing.savepoint-dir")]
    NoPlace,
    /// A file is missing or changed.
    #[error("the state file {path} {problem}")]
    File {
        /// Where it was looked for.
        path: String,
        /// `is missing`, or what is wrong with it.
        problem: &'static str,
    },
    /// A file holds no entries.
    #[error("the state file {path} is {damage}")]
    StateFile {
        /// Where it is.
        path: String,
        /// What is wrong with it.
        damage: StateFileError,
    },
    /// A checkpoint with batches that a barrier overtook.
    #[error("checkpoint {slot} of job {job} holds batches that were under way: only an aligned checkpoint becomes a savepoint")]
    InFlight {
        /// Whose.
        job: JobId,
        /// Which.
        slot: Slot,
    },
    /// No entry of a log can be made into a savepoint.
    #[error(transparent)]
    Choice(#[from] super::choose::NoChoice),
    /// A line of entries is wrong.
    #[error("line {line}: {problem}")]
    Line {
        /// Which, from 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// A name that a savepoint cannot have.
    #[error(transparent)]
    Name(#[from] super::super::protocol::InvalidJobName),
    /// The place cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The log cannot be read, or the manifest not be written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl SavepointError {
    /// Whether the same call may succeed later.
    #[must_use]
    pub fn retry_helps(&self) -> bool {
        match self {
            Self::Storage(error) | Self::Open(OpenError::Storage(error)) => error.class == StorageErrorClass::Unavailable,
            Self::Log(error) => error.retry_helps(),
            _ => false,
        }
    }

    /// Whether a file was not there: retention may have been faster.
    #[must_use]
    pub(super) fn is_missing_file(&self) -> bool {
        matches!(self, Self::File { problem: "is missing", .. })
    }
}

impl From<SavepointError> for crate::Error {
    fn from(error: SavepointError) -> Self {
        let retry = error.retry_helps();
        match error {
            SavepointError::Storage(_) | SavepointError::Log(_) | SavepointError::File { .. } | SavepointError::StateFile { .. } => {
                Self::external(crate::error::chain_of(&error)).with_retry(retry)
            }
            _ => Self::user(crate::error::chain_of(&error)),
        }
    }
}
