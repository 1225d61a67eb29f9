//! How a checkpoint of a running job becomes visible: put the manifest → read the generation → the last resource
//! → the other sinks in the order of the plan → completed.

use std::time::Duration;

use super::failpoints::crash_point;
use super::log::{CommitPermit, JobLog, LogError, NewerRun, PutOutcome};
use super::participants::{LastResource, LastResourceError, Leftovers, Participants};
use super::protocol::slot::{AfterFencing, after_fencing};
use super::protocol::{
    Attempt, CheckpointDraft, CommittedPoint, Generation, JobId, JobName, JobSnapshot, Line, Manifest, ManifestKind, PreparedWork, Slot,
    StopRequest, Timing,
};
use crate::Error;

/// The pause before a commit is tried again; doubled up to [`LONGEST_BACKOFF`].
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
/// The longest pause between two tries of a commit.
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);

/// Why a run cannot go on as it is.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A newer run of the same job exists. Stop for good.
    #[error("superseded by {}: another instance of this job was started after this one, and this one stops", newer_sentence(.0))]
    Superseded(NewerRun),
    /// The job was replaced. Stop for good.
    #[error("job {job} was replaced by {by}, and stops")]
    ForkedBy {
        /// This job.
        job: JobId,
        /// Who replaced it.
        by: JobId,
    },
    /// The state of the log or of the last resource has moved under this run: recover in the process.
    #[error("the job has to recover: {0}")]
    Recover(String),
    /// The manifest could not be put, or it is not known whether it was. The checkpoint may be given up.
    #[error("the manifest of the checkpoint could not be put: {0}")]
    NotDurable(#[source] LogError),
    /// A sink cannot commit what it prepared, and trying again will not help.
    #[error("sink {sink} cannot make its prepared output visible: {error}")]
    CommitFailed {
        /// The sink.
        sink: String,
        /// What it says.
        #[source]
        error: Error,
    },
    /// The manifest names a sink that the plan does not have.
    #[error(
        "sink {sink} has prepared output that is not visible yet, but the job has no exactly-once sink with that uid any more: make it what it was (uid, type, delivery-guarantee), and change it after the job was stopped with a last checkpoint"
    )]
    UnknownSink {
        /// The sink.
        sink: String,
    },
    /// The log could not be read or written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The last resource refuses.
    #[error(transparent)]
    LastResource(LastResourceError),
}

fn newer_sentence(newer: &NewerRun) -> String {
    match &newer.owner {
        Some(owner) => format!("generation {} ({owner})", newer.generation),
        None => format!("generation {}", newer.generation),
    }
}

/// Whom a commit involves.
#[derive(Clone, Copy)]
pub struct Parties<'a> {
    /// The two-phase sinks.
    pub participants: &'a dyn Participants,
    /// The last resource, if the job has one.
    pub last_resource: Option<&'a dyn LastResource>,
}

impl std::fmt::Debug for Parties<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parties").field("sinks", &self.participants.order()).field("last_resource", &self.last_resource.is_some()).finish()
    }
}

/// A completed checkpoint: all of its output is visible.
#[derive(Clone, Debug, PartialEq)]
pub struct Completed {
    /// Its identity.
    pub attempt: Attempt,
    /// The slot it took.
    pub slot: Slot,
    /// Its snapshot, as it is in the manifest.
    pub snapshot: JobSnapshot,
}

/// A running job's hold on its log: made by recovery, used by the coordinator for each checkpoint.
#[derive(Debug)]
pub struct Run {
    pub(super) log: JobLog,
    pub(super) name: JobName,
    pub(super) generation: Generation,
    pub(super) next_slot: Slot,
    pub(super) committed: Option<CommittedPoint>,
    pub(super) line: Line,
    /// The newest checkpoint that this run itself completed: before there is one, nothing may be deleted.
    pub(super) own_completed: Option<Slot>,
}

impl Run {
    /// This run's generation.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The incarnation.
    #[must_use]
    pub fn job(&self) -> &JobId {
        self.log.job()
    }

    /// The log, to read and to find state files.
    #[must_use]
    pub fn log(&self) -> &JobLog {
        &self.log
    }

    /// The slot that the next checkpoint takes, unless an earlier attempt turns out to hold it. The number that
    /// people see.
    #[must_use]
    pub fn next_slot(&self) -> Slot {
        self.next_slot
    }

    /// Where the job stands, and what is carried over.
    #[must_use]
    pub fn line(&self) -> &Line {
        &self.line
    }

    /// The same, to adopt a compaction.
    pub fn line_mut(&mut self) -> &mut Line {
        &mut self.line
    }

    /// The newest checkpoint that this run completed.
    #[must_use]
    pub fn own_completed(&self) -> Option<Slot> {
        self.own_completed
    }

    /// Gives up a checkpoint, in whole or what was acknowledged of it so far: its output and its exported state are
    /// carried into the next one. See [`Line::give_up`].
    pub fn give_up(&mut self, draft: &CheckpointDraft) {
        self.line.give_up(draft);
    }

    /// Makes a fully acknowledged checkpoint durable and visible.
    ///
    /// A commit is tried for as long as it takes. After [`RunError::NotDurable`] the checkpoint may be put again with
    /// the same draft, or given up with [`give_up`](Self::give_up); after every other error the run is over.
    /// Dropping the future is a crash: recover before anything else.
    ///
    /// # Errors
    /// See [`RunError`].
    pub async fn checkpoint(&mut self, draft: &CheckpointDraft, parties: &Parties<'_>) -> Result<Completed, RunError> {
        let mut snapshot = self.line.assemble(draft);
        crash_point("checkpoint::before-manifest");
        let permit = loop {
            let mut manifest = self.manifest(ManifestKind::Checkpoint, draft.attempt, snapshot.clone());
            manifest.released = draft.released;
            manifest.uploaded_bytes = draft.uploaded_bytes;
            manifest.timing.triggered_at_millis = draft.triggered_at_millis;
            if let Some(permit) = self.put(&manifest).await? {
                break permit;
            }
            // An earlier attempt counts: what it prepared is in this one too, which comes after it.
            snapshot.checkpoints_on_line = snapshot.checkpoints_on_line.saturating_add(1);
        };
        crash_point("checkpoint::after-manifest");
        self.line.completed(&snapshot);
        if let Some(last_resource) = parties.last_resource {
            crash_point("commit::before-last-resource");
            self.commit_last_resource(&permit, last_resource).await?;
        }
        crash_point("commit::before-sinks");
        self.commit_sinks(&snapshot.prepared, parties.participants, "commit::between-sinks", &permit).await?;
        crash_point("commit::after-sinks");
        self.committed = Some(CommittedPoint { slot: permit.slot(), attempt: permit.attempt() });
        self.own_completed = Some(permit.slot());
        if let Some(last_resource) = parties.last_resource.filter(|_| draft.released) {
            last_resource.settled().await;
        }
        if snapshot.end_of_input {
            self.put_final(&snapshot).await?;
        }
        Ok(Completed { attempt: permit.attempt(), slot: permit.slot(), snapshot })
    }

    /// Rolls back what older runs left behind: a run that was superseded while it was at work goes on until it notices, and what it prepares
    /// until then stands in no manifest. Only to be called between checkpoints, when this run has completed one of its own.
    ///
    /// # Errors
    /// When something could not be removed; nothing depends on it.
    pub async fn clean_up(&self, participants: &dyn Participants) -> Result<(), Error> {
        let Some(_) = self.own_completed else { return Ok(()) };
        participants.clean_up(&Leftovers { job: self.log.job(), before: Some(self.generation), keep: &self.line.last().prepared }).await
    }

    /// Records that a stop was asked for, before its barrier: a crash from here on finishes the stop.
    ///
    /// # Errors
    /// See [`RunError`]; after [`RunError::NotDurable`] the call may be repeated.
    pub async fn record_stop(&mut self, request: StopRequest) -> Result<(), RunError> {
        let mut snapshot = self.line.last().clone();
        snapshot.pending_stop = Some(request.clone());
        let manifest_attempt = self.log.environment().attempt();
        loop {
            let manifest = self.manifest(ManifestKind::StopRecorded, manifest_attempt, snapshot.clone());
            if self.put(&manifest).await?.is_some() {
                self.line.stop_requested(request);
                return Ok(());
            }
        }
    }

    /// Says in the log that the job was cancelled and that its checkpoints are to be deleted; then deletes them with
    /// their state files. What the sinks have pending is theirs to roll back.
    ///
    /// # Errors
    /// See [`RunError`]. Once the entry is in the log a failing deletion costs space and nothing else.
    pub async fn discard(&mut self) -> Result<(), RunError> {
        let last = self.line.last();
        let mut snapshot = JobSnapshot {
            checkpoint: last.checkpoint,
            plan: last.plan.clone(),
            checkpoints_on_line: last.checkpoints_on_line,
            replaces: last.replaces.clone(),
            ..JobSnapshot::default()
        };
        snapshot.transactional_ids.clone_from(&last.transactional_ids);
        let attempt = self.log.environment().attempt();
        loop {
            let mut manifest = self.manifest(ManifestKind::Discarded, attempt, snapshot.clone());
            manifest.released = true;
            if self.put(&manifest).await?.is_some() {
                return Ok(self.delete_discarded().await?);
            }
        }
    }

    /// A manifest of this run in the next slot.
    pub(super) fn manifest(&self, kind: ManifestKind, attempt: Attempt, snapshot: JobSnapshot) -> Manifest {
        let now = self.log.environment().now_millis();
        Manifest {
            kind,
            storage: self.log.storage_id(),
            job: self.log.job().clone(),
            job_name: self.name.clone(),
            generation: self.generation,
            slot: self.next_slot,
            attempt,
            committed: self.committed,
            released: false,
            timing: Timing { triggered_at_millis: now, written_at_millis: now },
            uploaded_bytes: 0,
            snapshot,
        }
    }

    /// Puts a manifest of this run; `None` when an earlier attempt of the run held the slot and counts.
    async fn put(&mut self, manifest: &Manifest) -> Result<Option<CommitPermit>, RunError> {
        match self.log.put(manifest).await {
            Ok(PutOutcome::Durable(permit)) => {
                self.next_slot = manifest.slot.next();
                Ok(Some(permit))
            }
            Ok(PutOutcome::HeldByEarlierAttempt(earlier)) => {
                tracing::info!(slot = %manifest.slot, attempt = %earlier.attempt, "a checkpoint that was given up had reached the log; it counts");
                self.next_slot = manifest.slot.next();
                Ok(None)
            }
            Ok(PutOutcome::Superseded(newer)) => Err(RunError::Superseded(newer)),
            Ok(PutOutcome::Forked(by)) => Err(RunError::ForkedBy { job: self.log.job().clone(), by }),
            Ok(PutOutcome::HeldByAnotherRun(other)) => {
                Err(RunError::Recover(format!("slot {} holds an entry of generation {}", manifest.slot, other.generation)))
            }
            Err(error @ LogError::Storage(_)) => Err(RunError::NotDurable(error)),
            Err(error) => Err(error.into()),
        }
    }

    async fn commit_last_resource(&self, permit: &CommitPermit, last_resource: &dyn LastResource) -> Result<(), RunError> {
        let mut backoff = Backoff::new();
        loop {
            match last_resource.commit(permit.attempt()).await {
                Ok(()) => return Ok(()),
                // Nothing else may be done before there is an answer.
                Err(LastResourceError::Unknown(reason)) => {
                    tracing::warn!(reason, "the commit of the last resource has no answer yet and is tried again");
                    self.log.environment().sleep(backoff.next()).await;
                }
                Err(LastResourceError::Lost(reason)) => return Err(RunError::Recover(reason)),
                Err(LastResourceError::Fenced(reason)) => return Err(self.fenced(reason, last_resource).await?),
                Err(error @ LastResourceError::Refused(_)) => return Err(RunError::LastResource(error)),
            }
        }
    }

    /// Tells whether a fenced run was superseded or has to recover: the coordinator calls it too, when a send is fenced.
    ///
    /// # Errors
    /// When generation or marker cannot be read; the answer itself is the `Ok` value.
    pub async fn fenced(&self, reason: String, last_resource: &dyn LastResource) -> Result<RunError, RunError> {
        let newer = self.log.newer_run(self.generation).await?;
        let marker = last_resource.read_marker().await.map_err(RunError::LastResource)?;
        let newest = newer.as_ref().map_or(self.generation, |newer| newer.generation);
        Ok(match after_fencing(self.log.job(), self.generation, newest, marker.as_ref()) {
            AfterFencing::Superseded { by } => RunError::Superseded(newer.unwrap_or(NewerRun { generation: by, owner: None })),
            AfterFencing::TakenOver { by } => RunError::ForkedBy { job: self.log.job().clone(), by },
            AfterFencing::Recover => RunError::Recover(reason),
        })
    }

    /// Commits prepared work sink by sink in the order of the plan. The permit proves that the manifest which names
    /// the work is in the log and that this run was the newest one after it was put.
    pub(super) async fn commit_sinks(
        &self,
        prepared: &[PreparedWork],
        participants: &dyn Participants,
        between: &'static str,
        _permit: &CommitPermit,
    ) -> Result<(), RunError> {
        let order = participants.order();
        if let Some(unknown) = prepared.iter().find(|work| !order.contains(&work.sink)) {
            return Err(RunError::UnknownSink { sink: unknown.sink.clone() });
        }
        let mut first = true;
        for sink in &order {
            let work: Vec<PreparedWork> = prepared.iter().filter(|work| work.sink == *sink).cloned().collect();
            if work.is_empty() {
                continue;
            }
            if !std::mem::take(&mut first) {
                crash_point(between);
            }
            self.commit_sink(sink, &work, participants).await?;
        }
        Ok(())
    }

    async fn commit_sink(&self, sink: &str, work: &[PreparedWork], participants: &dyn Participants) -> Result<(), RunError> {
        let mut backoff = Backoff::new();
        let mut tries = 0;
        loop {
            let Err(error) = participants.commit(sink, work).await else {
                return Ok(());
            };
            // A newer run may have committed it, moved on, and tidied up: then the failure says nothing.
            match self.log.newer_run(self.generation).await {
                Ok(Some(newer)) => return Err(RunError::Superseded(newer)),
                Ok(None) => {}
                Err(unread) if error.retry_helps() => tracing::warn!(error = %unread, "the generation could not be read"),
                Err(unread) => return Err(unread.into()),
            }
            if !error.retry_helps() {
                return Err(RunError::CommitFailed { sink: sink.to_owned(), error });
            }
            tries += 1;
            tracing::warn!(sink, tries, error = %error.chain(), "a commit failed and is tried again");
            participants.commit_retried(sink, &error, tries);
            self.log.environment().sleep(backoff.next()).await;
        }
    }

    /// Says in the log that the job has finished and that all of its output is visible. Tried for as long as it takes.
    pub(super) async fn put_final(&mut self, snapshot: &JobSnapshot) -> Result<(), RunError> {
        let mut snapshot = snapshot.clone();
        snapshot.prepared.clear();
        snapshot.pending_stop = None;
        let attempt = self.log.environment().attempt();
        let mut backoff = Backoff::new();
        loop {
            let mut manifest = self.manifest(ManifestKind::Final, attempt, snapshot.clone());
            manifest.released = true;
            match self.put(&manifest).await {
                Ok(Some(_)) => return Ok(()),
                Ok(None) => {}
                Err(RunError::NotDurable(error)) if error.retry_helps() => {
                    tracing::warn!(%error, "the end of the job could not be recorded and is tried again");
                    self.log.environment().sleep(backoff.next()).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Growing pauses between tries.
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) fn new() -> Self {
        Self(FIRST_BACKOFF)
    }

    pub(super) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = pause.saturating_mul(2).min(LONGEST_BACKOFF);
        pause
    }
}
