//! What the last resource's own transaction says: which checkpoint its output belongs to.

use serde::{Deserialize, Serialize};

use super::ids::{Attempt, Generation, JobId, Slot, StorageId};

/// The record inside a last resource's transaction. It commits with the output, so it *is* the decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Marker {
    /// The incarnation whose output this is.
    pub job: JobId,
    /// The checkpoint directory it works with.
    pub storage: StorageId,
    /// The run.
    pub generation: Generation,
    /// The slot the checkpoint was going to take, for messages: only the attempt identifies it.
    pub checkpoint: Slot,
    /// The checkpoint.
    pub attempt: Attempt,
    /// Whether the job was going on.
    pub state: MarkerState,
}

/// Whether the job goes on behind a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MarkerState {
    /// The job goes on.
    Running,
    /// The job was stopped or finished here: another one may take the prefix over.
    Released,
}

/// What is known of the marker when a decision is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarkerView {
    /// The job has no last resource: the newest manifest is the decision.
    NoLastResource,
    /// There is surely no marker.
    Absent(MissingMarker),
    /// The newest committed marker.
    Found(Marker),
}

/// What a person says about a marker that is gone (`--marker-missing`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingMarker {
    /// Nothing was said: refuse where it matters.
    #[default]
    Refuse,
    /// The newest checkpoint's output was committed.
    Committed,
    /// It was not: go back to what is known to be committed.
    Aborted,
}
