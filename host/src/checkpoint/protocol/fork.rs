//! Restoring an older checkpoint, or beginning again, is a fork: it first closes the log of the job that it
//! replaces, and only then looks at what it takes over.

use std::sync::Arc;

use super::decide::Refusal;
use super::ids::{JobId, Slot};
use super::manifest::{ForkIntent, Manifest, OutputGuarantee};
use super::marker::MarkerView;
use super::view::LogView;

/// What a person wants to start from.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum StartFrom {
    /// Where the job stands.
    #[default]
    Latest,
    /// Nothing: begin again.
    Fresh,
    /// A slot in the log of the job's newest incarnation.
    Slot(Slot),
    /// A manifest that was read from a path: a checkpoint or a savepoint, of this job or another one.
    Manifest {
        /// The manifest.
        manifest: Arc<Manifest>,
        /// The path, for messages and for the record.
        path: String,
    },
}

/// How a run starts.
#[derive(Clone, Debug, PartialEq)]
pub enum StartPlan {
    /// In its own log: a new job, or on from where it stands.
    OwnLog,
    /// By a fork that was begun and not finished: its log was closed, manifest 0 is missing.
    ContinueFork(Fork),
    /// By a new fork.
    Fork(Fork),
}

/// A fork that is to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Fork {
    /// The new incarnation.
    pub id: JobId,
    /// The log to close; its own where there is nothing to close.
    pub closes: JobId,
    /// What is restored.
    pub intent: ForkIntent,
}

impl Fork {
    /// Whether it is a new job with a state that no other job made.
    #[must_use]
    pub fn replaces_nothing(&self) -> bool {
        self.closes == self.id
    }
}

/// The incarnation before the newest one.
#[derive(Clone, Debug, PartialEq)]
pub struct Parent {
    /// Its log, closed.
    pub view: LogView,
    /// What its `forked` entry says that the newest one restores.
    pub intent: ForkIntent,
}

/// Why a start was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartRefusal {
    /// No such checkpoint.
    #[error("checkpoint {slot} is not in the log of {job}; there: {present}")]
    NoSuchCheckpoint {
        /// The job.
        job: JobId,
        /// The slot asked for.
        slot: Slot,
        /// What is there.
        present: String,
    },
    /// The checkpoint was passed over by a later run.
    #[error("checkpoint {slot} of {job} was rejected: a later run went on from an older one, and its output was rolled back")]
    Rejected {
        /// The job.
        job: JobId,
        /// The slot asked for.
        slot: Slot,
    },
    /// The checkpoint is there and damaged.
    #[error(transparent)]
    Damaged(Refusal),
    /// The name is in use.
    #[error(
        "job {job} has run before and did not start from {path}: it cannot replace {other} as well; choose another job name, or restore a checkpoint of its own"
    )]
    AlreadyExists {
        /// This job.
        job: JobId,
        /// The other one.
        other: JobId,
        /// What was to be restored.
        path: String,
    },
}

/// Plans the start of a job.
///
/// `newest` is the log of the newest incarnation of the job's name, `parent` the one before it.
///
/// # Errors
/// When what was asked for is not there, or the name is in use for something else.
pub fn plan_start(newest: &LogView, parent: Option<&Parent>, from: &StartFrom) -> Result<StartPlan, StartRefusal> {
    if newest.is_empty() {
        return plan_in_empty_log(newest, parent, from);
    }
    let replaces = |intent| StartPlan::Fork(Fork { id: newest.job.next_incarnation(), closes: newest.job.clone(), intent });
    match from {
        StartFrom::Latest => Ok(StartPlan::OwnLog),
        StartFrom::Fresh => Ok(replaces(ForkIntent::Fresh)),
        StartFrom::Slot(slot) => {
            let manifest = checkpoint_in(newest, *slot)?;
            let here = stands_at(newest, manifest);
            Ok(if here { StartPlan::OwnLog } else { replaces(intent_to_restore(newest, manifest)) })
        }
        StartFrom::Manifest { manifest, path } => {
            if started_from(newest, manifest) || stands_at(newest, manifest) {
                return Ok(StartPlan::OwnLog);
            }
            if manifest.job_name == newest.job.name() {
                return Ok(replaces(intent_of(manifest, path)));
            }
            Err(StartRefusal::AlreadyExists { job: newest.job.clone(), other: manifest.job.clone(), path: path.clone() })
        }
    }
}

/// Nothing was ever put: a new job, or a fork that closed its predecessor's log and died. For the latter what is
/// asked for now decides, else what it set out to do.
fn plan_in_empty_log(newest: &LogView, parent: Option<&Parent>, from: &StartFrom) -> Result<StartPlan, StartRefusal> {
    let id = newest.job.clone();
    let Some(parent) = parent else {
        return Ok(match from {
            StartFrom::Manifest { manifest, path } if manifest.is_bootstrap() => {
                StartPlan::Fork(Fork { id: id.clone(), closes: id, intent: intent_of(manifest, path) })
            }
            StartFrom::Manifest { manifest, path } => {
                // A job that moves here under its own name is a new incarnation: what it prepares must not be taken
                // for what it prepared elsewhere.
                let moved = manifest.job_name == id.name();
                let id = if moved { manifest.job.next_incarnation() } else { id };
                StartPlan::Fork(Fork { id, closes: manifest.job.clone(), intent: intent_of(manifest, path) })
            }
            StartFrom::Latest | StartFrom::Fresh => StartPlan::OwnLog,
            StartFrom::Slot(slot) => {
                return Err(StartRefusal::NoSuchCheckpoint { job: id, slot: *slot, present: "nothing".to_owned() });
            }
        });
    };
    let intent = match from {
        StartFrom::Latest => parent.intent.clone(),
        StartFrom::Fresh => ForkIntent::Fresh,
        StartFrom::Slot(slot) => intent_to_restore(&parent.view, checkpoint_in(&parent.view, *slot)?),
        StartFrom::Manifest { manifest, path } => intent_of(manifest, path),
    };
    Ok(StartPlan::ContinueFork(Fork { id, closes: parent.view.job.clone(), intent }))
}

fn intent_to_restore(log: &LogView, manifest: &Manifest) -> ForkIntent {
    intent_of(manifest, &format!("{}/chk-{}", log.job, manifest.slot))
}

fn intent_of(manifest: &Manifest, path: &str) -> ForkIntent {
    ForkIntent::Restore { job: manifest.job.clone(), slot: manifest.slot, attempt: manifest.attempt, path: path.to_owned() }
}

/// Whether the incarnation began with this manifest, so that the same command goes on with it after a crash.
fn started_from(log: &LogView, manifest: &Manifest) -> bool {
    let replaces = log.newest_manifest().and_then(|newest| newest.snapshot.replaces.as_ref());
    replaces.and_then(|replaces| replaces.restored.as_ref()).is_some_and(|point| point.attempt == manifest.attempt)
}

/// Whether this is where the job stands anyway.
fn stands_at(log: &LogView, manifest: &Manifest) -> bool {
    log.newest_manifest().is_some_and(|newest| newest.job == manifest.job && newest.snapshot.checkpoint == manifest.snapshot.checkpoint)
}

fn checkpoint_in(log: &LogView, slot: Slot) -> Result<&Arc<Manifest>, StartRefusal> {
    match log.get(slot).map(|entry| (&entry.path, &entry.content)) {
        Some((_, Ok(manifest))) if manifest.forked_by().is_none() => {
            let newest = log.newest().map_or(slot, |(newest, _)| newest);
            let broken_off = log.damaged().any(|(damaged, _, _)| damaged > slot);
            if broken_off || log.line(newest).contains(&slot) {
                return Ok(manifest);
            }
            Err(StartRefusal::Rejected { job: log.job.clone(), slot })
        }
        Some((path, Err(damage))) => {
            Err(StartRefusal::Damaged(Refusal::Damaged { path: path.clone(), damage: damage.clone(), older: None }))
        }
        _ => {
            let present: Vec<String> = log.entries().map(|(slot, _)| slot.to_string()).collect();
            Err(StartRefusal::NoSuchCheckpoint { job: log.job.clone(), slot, present: present.join(", ") })
        }
    }
}

/// What the old log says before the fork closes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BeforeClosing {
    /// Put `forked` here.
    Close(Slot),
    /// A crashed run of this fork has closed it.
    ClosedByThisFork,
    /// Another fork was first.
    ClosedByAnother(JobId),
    /// There is nothing to close.
    Empty,
}

/// Looks at the old log before closing it.
#[must_use]
pub fn before_closing(old: &LogView, fork: &JobId) -> BeforeClosing {
    match old.closed_by() {
        Some(by) if by == fork => BeforeClosing::ClosedByThisFork,
        Some(by) => BeforeClosing::ClosedByAnother(by.clone()),
        None if old.is_empty() => BeforeClosing::Empty,
        None => BeforeClosing::Close(old.next_slot()),
    }
}

/// What the old log says after `forked` was put.
#[derive(Clone, Debug, PartialEq)]
pub enum AfterClosing {
    /// It is closed; this manifest is replaced, and its prepared work is to be committed.
    Closed(Arc<Manifest>),
    /// Something newer than `forked` is there: it counts for nothing, and the old job goes on.
    NotClosed {
        /// The newest slot.
        newest: Slot,
    },
    /// What is to be replaced cannot be read.
    Damaged {
        /// The file.
        path: String,
        /// What is wrong with it.
        damage: super::envelope::Damage,
    },
    /// The marker names no manifest of the old log: it is not this job that the last resource belongs to.
    MarkerElsewhere,
}

/// Looks at the old log after closing it, and finds what is replaced: the marker's manifest, or without a last
/// resource the entry before `forked`.
#[must_use]
pub fn after_closing(old: &LogView, fork: &JobId, marker: &MarkerView) -> AfterClosing {
    if old.closed_by() != Some(fork) {
        return AfterClosing::NotClosed { newest: old.newest().map_or(Slot::FIRST, |(slot, _)| slot) };
    }
    let before = old.entries().rev().nth(1);
    let by_position = || match before.map(|(_, entry)| (&entry.path, &entry.content)) {
        Some((_, Ok(manifest))) => AfterClosing::Closed(Arc::clone(manifest)),
        Some((path, Err(damage))) => AfterClosing::Damaged { path: path.clone(), damage: damage.clone() },
        None => AfterClosing::MarkerElsewhere,
    };
    match marker {
        MarkerView::NoLastResource => by_position(),
        MarkerView::Found(marker) if marker.job == old.job => match old.by_attempt(marker.attempt) {
            Some(manifest) => AfterClosing::Closed(Arc::clone(manifest)),
            None => AfterClosing::MarkerElsewhere,
        },
        // The old job is itself a fork that had not committed anything yet.
        MarkerView::Found(marker) => match old.manifests().find(|manifest| manifest.replaces_marker(marker.attempt)) {
            Some(start) => AfterClosing::Closed(Arc::clone(start)),
            None => AfterClosing::MarkerElsewhere,
        },
        // A job that never committed: only manifest 0 and its copies stand below `forked`. Or one without a last resource so far.
        MarkerView::Absent(_) => {
            let mut others = old.manifests().filter(|manifest| manifest.forked_by().is_none());
            let had_none =
                before.is_some_and(|(_, entry)| entry.content.as_ref().is_ok_and(|newest| newest.snapshot.transactional_ids.is_empty()));
            if had_none || others.all(|manifest| manifest.is_start()) { by_position() } else { AfterClosing::MarkerElsewhere }
        }
    }
}

/// How much output a fork shows again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeats {
    /// None.
    Nothing,
    /// That of at least this many checkpoints.
    Checkpoints(u64),
    /// The restored checkpoint was never committed: output between would be missing.
    NeverCommitted,
}

/// Counts the checkpoints whose output repeats when `restored` (`None`: the beginning) replaces `replaced`.
#[must_use]
pub fn repeats(restored: Option<&Manifest>, replaced: &Manifest) -> Repeats {
    let at = replaced.snapshot.checkpoints_on_line;
    if restored.is_some_and(|restored| restored.job == replaced.job && restored.snapshot.checkpoints_on_line > at) {
        return Repeats::NeverCommitted;
    }
    if replaced.snapshot.plan.guarantee == OutputGuarantee::AtLeastOnce {
        return Repeats::Nothing;
    }
    let Some(restored) = restored else {
        return if at == 0 { Repeats::Nothing } else { Repeats::Checkpoints(at) };
    };
    if restored.snapshot.checkpoint == replaced.snapshot.checkpoint || began_with(replaced, restored) {
        return Repeats::Nothing;
    }
    Repeats::Checkpoints(at.saturating_sub(restored.snapshot.checkpoints_on_line).max(1))
}

/// `replaced` is a fork's manifest 0 that itself restored the same checkpoint: whatever repeats was allowed then.
fn began_with(replaced: &Manifest, restored: &Manifest) -> bool {
    let point = replaced.snapshot.replaces.as_ref().and_then(|replaces| replaces.restored.as_ref());
    replaced.is_start() && point.is_some_and(|point| point.attempt == restored.attempt)
}
