//! The line of checkpoints of a running job: how the next manifest is assembled from what the tasks reported,
//! from the last durable one, and from what checkpoints that were given up had prepared.
//!
//! **Nothing that was prepared for a checkpoint is dropped when the checkpoint is**: state and sources have
//! moved on, so its output and its exported changes go into the next manifest.

use std::collections::BTreeMap;

use serde_json::Value;

use super::ids::{Attempt, Generation, JobId};
use super::manifest::{
    InFlightFile, JobSnapshot, OperatorState, PlanRevision, PreparedWork, SourceState, StateFile, StateFileKind, StopRequest, SubtaskState,
};

/// How a subtask's chain of state files changes with a checkpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ChainChange {
    /// Nothing changed since the last export.
    #[default]
    Unchanged,
    /// One more file; a base begins the chain anew.
    Append(StateFile),
    /// A whole new chain (the first checkpoint after rescaling).
    Replace(Vec<StateFile>),
}

/// What one subtask reported.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SubtaskDraft {
    /// Its exported state.
    pub chain: ChainChange,
    /// What else it needs.
    pub extra: Value,
}

/// What the subtasks of one operator reported.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OperatorDraft {
    /// By subtask; each subtask that runs is here, also one that finished.
    pub subtasks: BTreeMap<u32, SubtaskDraft>,
    /// What belongs to the operator as a whole.
    pub extra: Value,
}

/// Output that one sink subtask prepared.
#[derive(Clone, Debug, PartialEq)]
pub struct SinkWork {
    /// The sink.
    pub sink: String,
    /// What it needs to commit.
    pub work: Value,
}

/// Everything that was acknowledged for one checkpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckpointDraft {
    /// Its identity, chosen when the barrier was sent.
    pub attempt: Attempt,
    /// When that was.
    pub triggered_at_millis: u64,
    /// Positions, by source uid.
    pub sources: BTreeMap<String, SourceState>,
    /// State, by operator uid.
    pub operators: BTreeMap<String, OperatorDraft>,
    /// What the sinks keep, by sink uid.
    pub sinks: BTreeMap<String, Value>,
    /// Batches the barrier overtook.
    pub in_flight: Vec<InFlightFile>,
    /// Output, in the order of preparation.
    pub prepared: Vec<SinkWork>,
    /// Ids of transactional producers in use.
    pub transactional_ids: Vec<String>,
    /// A new plan that is in force from this checkpoint on.
    pub plan: Option<PlanRevision>,
    /// All inputs have ended.
    pub end_of_input: bool,
    /// This checkpoint is the last one of a run that was stopped or cancelled.
    pub released: bool,
    /// Bytes uploaded for it.
    pub uploaded_bytes: u64,
}

/// Where a running job stands.
#[derive(Clone, Debug)]
pub struct Line {
    job: JobId,
    generation: Generation,
    last: JobSnapshot,
    carried_chains: BTreeMap<(String, u32), Vec<ChainChange>>,
    carried_work: Vec<PreparedWork>,
}

impl Line {
    /// The line of a run that restored `snapshot`, whose prepared work has been committed.
    #[must_use]
    pub fn new(job: JobId, generation: Generation, mut snapshot: JobSnapshot) -> Self {
        snapshot.prepared.clear();
        Self { job, generation, last: snapshot, carried_chains: BTreeMap::new(), carried_work: Vec::new() }
    }

    /// The last durable snapshot, without prepared work.
    #[must_use]
    pub fn last(&self) -> &JobSnapshot {
        &self.last
    }

    /// Output that waits for the next checkpoint because its own was given up.
    #[must_use]
    pub fn carried_work(&self) -> &[PreparedWork] {
        &self.carried_work
    }

    /// The snapshot that the manifest of `draft` holds.
    #[must_use]
    pub fn assemble(&self, draft: &CheckpointDraft) -> JobSnapshot {
        let mut prepared = self.carried_work.clone();
        prepared.extend(draft.prepared.iter().map(|work| self.work_of(draft.attempt, work)));
        JobSnapshot {
            checkpoint: draft.attempt,
            plan: draft.plan.clone().unwrap_or_else(|| self.last.plan.clone()),
            sources: draft.sources.clone(),
            operators: draft.operators.iter().map(|(uid, operator)| (uid.clone(), self.operator_of(uid, operator))).collect(),
            sinks: draft.sinks.clone(),
            in_flight: draft.in_flight.clone(),
            prepared,
            transactional_ids: draft.transactional_ids.clone(),
            checkpoints_on_line: self.last.checkpoints_on_line.saturating_add(1),
            end_of_input: draft.end_of_input,
            pending_stop: if draft.released { None } else { self.last.pending_stop.clone() },
            replaces: self.last.replaces.clone(),
        }
    }

    fn work_of(&self, checkpoint: Attempt, work: &SinkWork) -> PreparedWork {
        PreparedWork { sink: work.sink.clone(), job: self.job.clone(), generation: self.generation, checkpoint, work: work.work.clone() }
    }

    fn operator_of(&self, uid: &str, draft: &OperatorDraft) -> OperatorState {
        let subtask_of = |(index, subtask): (&u32, &SubtaskDraft)| {
            let mut chain = self.chain(uid, *index);
            apply(&mut chain, &subtask.chain);
            (*index, SubtaskState { chain, extra: subtask.extra.clone() })
        };
        OperatorState { subtasks: draft.subtasks.iter().map(subtask_of).collect(), extra: draft.extra.clone() }
    }

    /// The chain of a subtask as it is now: that of the last durable manifest, then what was carried.
    #[must_use]
    pub fn chain(&self, uid: &str, subtask: u32) -> Vec<StateFile> {
        let state = self.last.operators.get(uid).and_then(|operator| operator.subtasks.get(&subtask));
        let mut chain = state.map(|state| state.chain.clone()).unwrap_or_default();
        for change in self.carried_chains.get(&(uid.to_owned(), subtask)).into_iter().flatten() {
            apply(&mut chain, change);
        }
        chain
    }

    /// Gives a checkpoint up: what was acknowledged for it is carried into the next manifest. A part of the
    /// acknowledgements is enough; what arrives later is handed over by another call, before anything that the
    /// same subtask acknowledges for a later checkpoint.
    pub fn give_up(&mut self, draft: &CheckpointDraft) {
        let work: Vec<_> = draft.prepared.iter().map(|work| self.work_of(draft.attempt, work)).collect();
        self.carried_work.extend(work);
        for (uid, operator) in &draft.operators {
            for (index, subtask) in &operator.subtasks {
                if subtask.chain != ChainChange::Unchanged {
                    self.carried_chains.entry((uid.clone(), *index)).or_default().push(subtask.chain.clone());
                }
            }
        }
    }

    /// The manifest with `snapshot` is durable and committed: the line goes on from it.
    pub fn completed(&mut self, snapshot: &JobSnapshot) {
        self.last = snapshot.clone();
        self.last.prepared.clear();
        self.carried_chains.clear();
        self.carried_work.clear();
    }

    /// Records that a stop was asked for; the next entries say so until one is the last.
    pub fn stop_requested(&mut self, request: StopRequest) {
        self.last.pending_stop = Some(request);
    }

    /// Replaces the first files of a chain by one base that folds them. Only files of completed checkpoints
    /// are folded, so the chain of the last one must begin with exactly `folded`.
    #[must_use]
    pub fn compact(&mut self, uid: &str, subtask: u32, folded: &[StateFile], base: StateFile) -> Compacted {
        let state = self.last.operators.get_mut(uid).and_then(|operator| operator.subtasks.get_mut(&subtask));
        match state {
            Some(state) if base.kind == StateFileKind::Base && !folded.is_empty() && state.chain.starts_with(folded) => {
                state.chain.splice(..folded.len(), [base]);
                Compacted::Adopted
            }
            _ => Compacted::Outdated,
        }
    }
}

/// What became of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compacted {
    /// The next manifest uses it.
    Adopted,
    /// The chain has changed meanwhile: the new file is not used.
    Outdated,
}

fn apply(chain: &mut Vec<StateFile>, change: &ChainChange) {
    match change {
        ChainChange::Unchanged => {}
        ChainChange::Append(file) => {
            if file.kind == StateFileKind::Base {
                chain.clear();
            }
            chain.push(file.clone());
        }
        ChainChange::Replace(files) => chain.clone_from(files),
    }
}
