//! What one entry of a job's log says: the manifest and its parts.
//!
//! The part of a manifest that describes the *job* (positions, state, prepared work) is a
//! [`JobSnapshot`]; a new run copies it into a manifest of its own as it is.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::envelope::Checksum;
use super::ids::{Attempt, Generation, JobId, JobName, Slot, StorageId};

/// What an entry of the log is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ManifestKind {
    /// Manifest 0: the resolved start of every split, put before the first record. A fork's names what it replaces.
    Start,
    /// A checkpoint.
    Checkpoint,
    /// A new run's first entry: the manifest it restores from, under an attempt of its own.
    Copy {
        /// The attempt that was restored.
        of: Attempt,
        /// The slot it stood in.
        of_slot: Slot,
        /// Whether the restored one was manifest 0 or a copy of it.
        of_start: bool,
    },
    /// A stop was asked for: the last completed checkpoint again, with the request. A crash finishes the stop.
    StopRecorded,
    /// The job has finished and all of its output is visible. Nothing follows.
    Final,
    /// The job was cancelled and its checkpoints were deleted on request. Only a fork goes on from here.
    Discarded,
    /// A savepoint: it stands in a folder of its own with all of its files, and never in a log.
    Savepoint {
        /// It was written from entries, not made of a checkpoint: restoring it replaces no job.
        bootstrap: bool,
    },
    /// The log is closed: another incarnation or job took over. Counts only as the newest entry; never deleted.
    Forked {
        /// Who took over.
        by: JobId,
        /// What it set out to restore, so that a crashed fork can be finished.
        intent: ForkIntent,
    },
}

/// What a fork restores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ForkIntent {
    /// Nothing: the job begins again.
    Fresh,
    /// An older checkpoint or a savepoint.
    Restore {
        /// The incarnation it was made by.
        job: JobId,
        /// The slot it stands (or stood) in.
        slot: Slot,
        /// The checkpoint itself.
        attempt: Attempt,
        /// Where the manifest was read from, as the person wrote it.
        path: String,
    },
}

/// One entry of a job's log. It is written once and never changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// What the entry is for.
    pub kind: ManifestKind,
    /// The checkpoint directory that it was put into.
    pub storage: StorageId,
    /// The incarnation whose log this is (for `forked`: whose log was closed).
    pub job: JobId,
    /// The name a person knows the job by.
    pub job_name: JobName,
    /// The run that put it (for `forked`: the fork's run).
    pub generation: Generation,
    /// The slot it was put into.
    pub slot: Slot,
    /// This attempt.
    pub attempt: Attempt,
    /// What was known to be committed when it was put, if anything was.
    pub committed: Option<CommittedPoint>,
    /// The job before was stopped, cancelled or finished exactly here: a fork from here repeats nothing.
    pub released: bool,
    /// When the checkpoint was triggered and when the manifest was written.
    pub timing: Timing,
    /// Bytes of state that were uploaded for this checkpoint alone.
    pub uploaded_bytes: u64,
    /// The job as it was. Empty in a `forked` entry.
    pub snapshot: JobSnapshot,
}

/// A checkpoint whose output is known to be visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommittedPoint {
    /// Its slot.
    pub slot: Slot,
    /// Its attempt.
    pub attempt: Attempt,
}

/// Moments in milliseconds since 1970 (UTC).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// When the checkpoint was triggered (for entries that are no checkpoint: when they were made).
    pub triggered_at_millis: u64,
    /// When the manifest was written.
    pub written_at_millis: u64,
}

/// Everything that is needed to go on: what a copy carries over unchanged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSnapshot {
    /// The checkpoint (or manifest 0) that this describes. A copy keeps it, so it tells where a job stands.
    pub checkpoint: Attempt,
    /// What runs: the newest copy of a manifest gives the revision.
    pub plan: PlanRevision,
    /// Positions, by source uid.
    pub sources: BTreeMap<String, SourceState>,
    /// State, by operator uid.
    pub operators: BTreeMap<String, OperatorState>,
    /// What a sink keeps between checkpoints beside its prepared work (counters, open parts), by sink uid.
    pub sinks: BTreeMap<String, Value>,
    /// Batches that a barrier overtook; processed before any new input.
    pub in_flight: Vec<InFlightFile>,
    /// Output that is prepared but perhaps not yet visible, in the order it was prepared: all of it belongs
    /// to this manifest, also what was prepared for checkpoints that were given up before.
    pub prepared: Vec<PreparedWork>,
    /// Ids of transactional producers that a new run must fence.
    pub transactional_ids: Vec<String>,
    /// How many checkpoints lie on the line that led here; forks count from what they restored.
    pub checkpoints_on_line: u64,
    /// All inputs had ended at this checkpoint: once committed, the job is finished.
    pub end_of_input: bool,
    /// A stop that was asked for and is not yet finished.
    pub pending_stop: Option<StopRequest>,
    /// For an incarnation that replaced another: what and why.
    pub replaces: Option<Replaced>,
}

/// A request to end the job with a last checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopRequest {
    /// Let event time run out: maximal watermark, timers fire.
    pub drain: bool,
    /// Where to leave a savepoint, if one is wanted.
    pub savepoint: Option<String>,
}

/// What an incarnation replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replaced {
    /// The job whose log was closed; `None` when it could not be reached and was taken over without it.
    pub closed: Option<ReplacedPoint>,
    /// What was restored; `None` when the job began again.
    pub restored: Option<ReplacedPoint>,
    /// The attempt that the last resource's marker named then: while it still does, nothing has happened since.
    /// It may be older than `closed`, when that was itself a fork that had not committed anything yet.
    pub marker: Option<Attempt>,
    /// Why, as a sentence.
    pub reason: String,
}

/// One manifest of a replaced job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplacedPoint {
    /// The incarnation.
    pub job: JobId,
    /// The slot.
    pub slot: Slot,
    /// The attempt.
    pub attempt: Attempt,
}

/// The strongest guarantee that a sink of the job gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutputGuarantee {
    /// No sink promises more: output may repeat after a failure anyway.
    #[default]
    AtLeastOnce,
    /// At least one sink shows each result exactly once: nothing may be done that repeats output unasked.
    ExactlyOnce,
}

/// What was running: enough to see what changed, and to restore with the same code.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanRevision {
    /// Counts the changes of the plan within the job; the first plan is 1.
    pub number: u64,
    /// Each source, operator and sink by uid.
    pub parts: BTreeMap<String, PlanPart>,
    /// Number of key groups; never changes in the life of a state.
    pub max_parallelism: u32,
    /// The strongest guarantee that a sink of this plan gives.
    pub guarantee: OutputGuarantee,
}

/// One source, operator or sink of the plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanPart {
    /// Digest of the plugin; `None` for what is built in.
    pub digest: Option<String>,
    /// Its type name or plugin name, for messages.
    pub type_name: String,
    /// The configuration it ran with.
    pub config: Value,
    /// How many subtasks.
    pub parallelism: u32,
    /// Of a source: what its positions depend on, as it declares it. Empty in manifests of versions that did not keep it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub identity: BTreeMap<String, Value>,
    /// Of an operator with state by key: by what its inputs are dealt. Empty in manifests of versions that did not keep it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<KeyedInput>,
    /// Of an operator: the states that its plugin declares; none where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub states: Option<Vec<DeclaredState>>,
}

/// An input of an operator with state by key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyedInput {
    /// What it reads.
    pub from: String,
    /// The number of the operator's input.
    pub number: u8,
    /// By what its records are dealt, as the job has it; null: all of them to every subtask.
    pub key_by: Value,
}

/// A state that a plugin declares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeclaredState {
    /// The name that it is stored under.
    pub name: String,
    /// The version of its encoding.
    pub version: u32,
    /// What it is: `value` or `map`.
    pub kind: String,
}

/// The splits of one source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceState {
    /// Each split by its id.
    pub splits: BTreeMap<String, SplitState>,
    /// What the source keeps beside its splits (discovery, seeds).
    pub extra: Value,
}

/// Where one split stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitState {
    /// The next record to read, in the source's own terms.
    pub position: Value,
    /// Where a bounded split ends, resolved once at the start.
    pub stop: Option<Value>,
    /// The split has been read to its end.
    pub finished: bool,
}

/// The state of one operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorState {
    /// Each subtask by its index.
    pub subtasks: BTreeMap<u32, SubtaskState>,
    /// What belongs to the operator as a whole (skipped records).
    pub extra: Value,
}

/// The state of one subtask.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubtaskState {
    /// State files in the order in which they are imported: at most one base, first, then deltas.
    pub chain: Vec<StateFile>,
    /// What else the subtask needs (watermark of each input, progress of an isolation).
    pub extra: Value,
}

/// Whether a state file begins a chain or continues one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateFileKind {
    /// All entries.
    Base,
    /// Entries that changed since the file before.
    Delta,
}

/// One uploaded state file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateFile {
    /// Relative to the checkpoint directory; in a savepoint, to the savepoint's own folder.
    pub path: String,
    /// Base or delta.
    pub kind: StateFileKind,
    /// Length in bytes.
    pub bytes: u64,
    /// Checksum of the whole file.
    pub checksum: Checksum,
    /// First and last key group whose entries are inside.
    pub key_groups: KeyGroupRange,
}

impl StateFile {
    /// What is wrong with the content that was read of the file, if something is.
    #[must_use]
    pub fn problem(&self, content: Option<&Bytes>) -> Option<&'static str> {
        match content {
            None => Some("is missing"),
            Some(content) if content.len() as u64 != self.bytes => Some("has the wrong length"),
            Some(content) if Checksum::of(content) != self.checksum => Some("does not match its checksum"),
            Some(_) => None,
        }
    }
}

/// Key groups from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyGroupRange {
    /// The first one.
    pub first: u32,
    /// The last one.
    pub last: u32,
}

/// Batches that were on their way into one input when a barrier overtook them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InFlightFile {
    /// Uid of the operator they were on their way to.
    pub operator: String,
    /// Its subtask.
    pub subtask: u32,
    /// The numbered input.
    pub input: u32,
    /// The file.
    pub file: StateFile,
}

/// Output of one sink that a commit makes visible.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreparedWork {
    /// The sink.
    pub sink: String,
    /// The incarnation it was prepared by.
    pub job: JobId,
    /// The run it was prepared by.
    pub generation: Generation,
    /// The checkpoint it was prepared for, which may have been given up since.
    pub checkpoint: Attempt,
    /// What the sink needs to commit it, in its own terms.
    pub work: Value,
}

impl Manifest {
    /// Whether this is manifest 0 or a copy of it: nothing was committed by the incarnation itself.
    #[must_use]
    pub fn is_start(&self) -> bool {
        matches!(self.kind, ManifestKind::Start | ManifestKind::Copy { of_start: true, .. })
    }

    /// Whether this is the start of an incarnation that replaced what the last resource's marker still names: it has
    /// committed nothing of its own yet.
    #[must_use]
    pub fn replaces_marker(&self, marker: Attempt) -> bool {
        self.is_start() && self.snapshot.replaces.as_ref().is_some_and(|replaces| replaces.marker == Some(marker))
    }

    /// Whether this is a savepoint that was written from entries: no job made it, so none is replaced when it is restored.
    #[must_use]
    pub fn is_bootstrap(&self) -> bool {
        matches!(self.kind, ManifestKind::Savepoint { bootstrap: true })
    }

    /// Who closed this log, if this is a `forked` entry.
    #[must_use]
    pub fn forked_by(&self) -> Option<&JobId> {
        match &self.kind {
            ManifestKind::Forked { by, .. } => Some(by),
            _ => None,
        }
    }

    /// Where this manifest stands, for another one to name it.
    #[must_use]
    pub fn point(&self) -> ReplacedPoint {
        ReplacedPoint { job: self.job.clone(), slot: self.slot, attempt: self.attempt }
    }
}

impl JobSnapshot {
    /// Adds ids of transactional producers, each once.
    pub fn add_transactional_ids(&mut self, ids: &[String]) {
        for id in ids {
            if !self.transactional_ids.contains(id) {
                self.transactional_ids.push(id.clone());
            }
        }
    }

    /// All state files that a restore reads, with the in-flight batches.
    pub fn files(&self) -> impl Iterator<Item = &StateFile> {
        let chains = self.operators.values().flat_map(|operator| operator.subtasks.values()).flat_map(|subtask| &subtask.chain);
        chains.chain(self.in_flight.iter().map(|batches| &batches.file))
    }

    /// The same files, to change where they are.
    pub fn files_mut(&mut self) -> impl Iterator<Item = &mut StateFile> {
        let subtasks = self.operators.values_mut().flat_map(|operator| operator.subtasks.values_mut());
        let chains = subtasks.flat_map(|subtask| &mut subtask.chain);
        chains.chain(self.in_flight.iter_mut().map(|batches| &mut batches.file))
    }

    /// Bytes that a restore reads.
    #[must_use]
    pub fn full_bytes(&self) -> u64 {
        self.files().map(|file| file.bytes).sum()
    }
}
