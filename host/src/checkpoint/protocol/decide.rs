//! What a run restores: the one decision after which everything else follows.
//!
//! Without a last resource the newest manifest *is* the decision. With one, the marker inside its transaction
//! is: the manifest with the attempt that the marker names, wherever it stands in the log.

use std::sync::Arc;

use super::envelope::Damage;
use super::ids::{Generation, JobId, Slot, StorageId};
use super::manifest::{Manifest, ManifestKind, OutputGuarantee, PlanRevision, StopRequest};
use super::marker::{Marker, MarkerState, MarkerView, MissingMarker};
use super::view::LogView;

/// What is known when the decision is made.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The job's own log.
    pub log: &'a LogView,
    /// The directory that the log is in.
    pub storage: StorageId,
    /// The newest generation that was taken in it; `None`: none yet.
    pub newest_generation: Option<Generation>,
    /// The marker.
    pub marker: &'a MarkerView,
    /// The strongest guarantee of a sink in the plan that is about to run.
    pub guarantee: OutputGuarantee,
    /// What a person allowed.
    pub allowed: Allowed,
}

/// What a person may allow, beyond what is safe by itself. By default nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Restore an older checkpoint when the newest manifest is damaged, although output may repeat.
    pub older_than_damaged: bool,
    /// Take over a last resource that belongs to another job.
    pub take_over_prefix: bool,
    /// What to take for granted where the job had a last resource and has none any more.
    pub missing_marker: MissingMarker,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Nothing was ever put: begin with manifest 0.
    NewJob,
    /// Restore.
    Restore(RestorePlan),
    /// The job has finished; nothing is left to do.
    Finished(Arc<Manifest>),
    /// Do nothing, say why.
    Refuse(Refusal),
}

/// The manifest to restore, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct RestorePlan {
    /// The manifest.
    pub manifest: Arc<Manifest>,
    /// The plan revision that was last recorded for it: that of its newest copy.
    pub revision: PlanRevision,
    /// A stop that was recorded on top of it and is not finished.
    pub pending_stop: Option<StopRequest>,
    /// The last resource has no marker of this job yet: commit one before the first record.
    pub genesis: bool,
    /// Damaged entries that were passed over, by path.
    pub passed_over: Vec<String>,
}

/// Why nothing may be restored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The log was closed.
    #[error("job {job} was replaced by {by} (its log ends with `forked` in slot {slot}): run that job instead")]
    ForkedBy {
        /// This job.
        job: JobId,
        /// Who replaced it.
        by: JobId,
        /// Where the log was closed.
        slot: Slot,
    },
    /// The checkpoints are gone.
    #[error("job {job} was cancelled and its checkpoints were deleted: start it again with --fresh, or restore a savepoint")]
    Discarded {
        /// This job.
        job: JobId,
    },
    /// The manifest that decides is damaged.
    #[error("the manifest {path} is damaged: {damage}; {}", older_sentence(*.older))]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong with it.
        damage: Damage,
        /// The newest intact checkpoint before it.
        older: Option<Slot>,
    },
    /// A manifest of another directory.
    #[error(
        "the manifest in slot {slot} belongs to the checkpoint directory {theirs}, and this one is {ours}: the log was copied; use the directory it was made in, or restore from the copy as a savepoint"
    )]
    OtherDirectory {
        /// The slot.
        slot: Slot,
        /// This directory.
        ours: StorageId,
        /// The one named in the manifest.
        theirs: StorageId,
    },
    /// The last resource belongs to another job.
    #[error(
        "the transactional prefix belongs to job {theirs} (checkpoint {checkpoint}, not released): stop that job, use another prefix, or take it over with --take-over-prefix"
    )]
    ForeignMarker {
        /// The other job.
        theirs: JobId,
        /// Its checkpoint.
        checkpoint: Slot,
        /// Whether it is another incarnation of this job, with the same checkpoint directory.
        same_name: bool,
    },
    /// The marker was written with another checkpoint directory.
    #[error(
        "the last transaction of job {job} was made with the checkpoint directory {theirs}, and this one is {ours}: use that directory, or take the prefix over with --take-over-prefix"
    )]
    MarkerOfOtherStorage {
        /// The job.
        job: JobId,
        /// This directory.
        ours: StorageId,
        /// The marker's.
        theirs: StorageId,
    },
    /// The marker is of a run that this directory does not know.
    #[error(
        "the last transaction was committed by generation {marker}, but the newest that this directory knows is {known}: the directory was put back to an older state; restore the newer one"
    )]
    MarkerFromLaterGeneration {
        /// The marker's generation.
        marker: Generation,
        /// The newest known.
        known: Generation,
    },
    /// The committed checkpoint is not in the log.
    #[error(
        "the last transaction committed checkpoint {checkpoint} (attempt {attempt}), which is not in the log of {job} (newest slot: {newest}): its manifest was deleted or the directory is not the right one"
    )]
    MarkerNotInLog {
        /// This job.
        job: JobId,
        /// The number in the marker.
        checkpoint: Slot,
        /// The attempt in the marker.
        attempt: super::ids::Attempt,
        /// The newest slot of the log.
        newest: Slot,
    },
    /// The marker is older than what is known to be committed.
    #[error(
        "the marker names slot {marker}, but the log says that slot {committed} was committed: the marker was put back to an older state; restore it, or say --marker-missing=committed"
    )]
    MarkerTooOld {
        /// Where the marker's manifest stands.
        marker: Slot,
        /// What the newest manifest says was committed.
        committed: Slot,
    },
    /// The job had a last resource, which alone knows whether the newest checkpoint was committed.
    #[error(
        "checkpoint {newest} of {job} was made with an exactly-once sink that held the decision in its transactions ({}), and the job has no such sink any more: whether its output was committed is unknown; run the job with that sink again, or say --marker-missing=committed or --marker-missing=aborted", .ids.join(", ")
    )]
    LastResourceGone {
        /// This job.
        job: JobId,
        /// The newest slot.
        newest: Slot,
        /// The ids of its producers.
        ids: Vec<String>,
    },
    /// There is no marker, and the log has checkpoints.
    #[error(
        "no marker was found, but the log of {job} has checkpoints (newest slot: {newest}): whether the newest was committed is unknown; say --marker-missing=committed or --marker-missing=aborted"
    )]
    MarkerMissing {
        /// This job.
        job: JobId,
        /// The newest slot.
        newest: Slot,
    },
}

impl Refusal {
    /// Whether the decision may be another one once the commits that were decided are visible.
    #[must_use]
    pub fn may_be_a_late_marker(&self) -> bool {
        match self {
            Self::MarkerNotInLog { .. } | Self::MarkerTooOld { .. } | Self::MarkerMissing { .. } | Self::Damaged { .. } => true,
            Self::ForeignMarker { same_name, .. } => *same_name,
            Self::ForkedBy { .. }
            | Self::Discarded { .. }
            | Self::OtherDirectory { .. }
            | Self::MarkerOfOtherStorage { .. }
            | Self::MarkerFromLaterGeneration { .. }
            | Self::LastResourceGone { .. } => false,
        }
    }
}

fn older_sentence(older: Option<Slot>) -> String {
    match older {
        Some(slot) => {
            format!("slot {slot} before it is intact: going back to it may show output again, so it is only done with --older-than-damaged")
        }
        None => "no intact checkpoint is left: start again with --fresh".to_owned(),
    }
}

/// Decides. See the module's documentation for the rule.
#[must_use]
pub fn decide(facts: &Facts<'_>) -> Decision {
    match decide_manifest(facts) {
        Ok(decision) => decision,
        Err(refusal) => Decision::Refuse(refusal),
    }
}

fn decide_manifest(facts: &Facts<'_>) -> Result<Decision, Refusal> {
    let log = facts.log;
    if let (Some(by), Some((slot, _))) = (log.closed_by(), log.newest()) {
        return Err(Refusal::ForkedBy { job: log.job.clone(), by: by.clone(), slot });
    }
    if log.newest_manifest().is_some_and(|newest| newest.kind == ManifestKind::Discarded) {
        return Err(Refusal::Discarded { job: log.job.clone() });
    }
    if let Some(stranger) = log.manifests().find(|manifest| manifest.storage != facts.storage) {
        return Err(Refusal::OtherDirectory { slot: stranger.slot, ours: facts.storage, theirs: stranger.storage });
    }
    match facts.marker {
        MarkerView::NoLastResource => by_newest(facts),
        MarkerView::Absent(policy) => without_marker(facts, *policy),
        MarkerView::Found(marker) if marker.job == log.job => by_marker(facts, marker),
        MarkerView::Found(marker) => by_foreign_marker(facts, marker),
    }
}

fn by_newest(facts: &Facts<'_>) -> Result<Decision, Refusal> {
    let Some((slot, entry)) = facts.log.newest() else {
        return Ok(Decision::NewJob);
    };
    match &entry.content {
        Ok(manifest) if had_last_resource(manifest) => {
            let ids = manifest.snapshot.transactional_ids.clone();
            let gone = Refusal::LastResourceGone { job: facts.log.job.clone(), newest: slot, ids };
            by_word(facts, facts.allowed.missing_marker, gone)
        }
        Ok(manifest) => Ok(restore(facts, manifest, false)),
        Err(damage) => older_than_damaged(facts, &entry.path, damage),
    }
}

/// The newest manifest is damaged and no marker says what counts.
fn older_than_damaged(facts: &Facts<'_>, path: &str, damage: &Damage) -> Result<Decision, Refusal> {
    let usable = |manifest: &&Arc<Manifest>| !matches!(manifest.kind, ManifestKind::Forked { .. });
    let older = facts.log.manifests().rev().find(usable);
    let exact = facts.guarantee == OutputGuarantee::ExactlyOnce
        || facts.log.manifests().any(|manifest| manifest.snapshot.plan.guarantee == OutputGuarantee::ExactlyOnce);
    // A format that only a newer program reads is no damage: going back would undo that program's work.
    let readable_elsewhere = matches!(damage, Damage::Version { .. });
    match older {
        Some(manifest) if !readable_elsewhere && (!exact || facts.allowed.older_than_damaged) => Ok(restore(facts, manifest, false)),
        _ => Err(Refusal::Damaged { path: path.to_owned(), damage: damage.clone(), older: older.map(|manifest| manifest.slot) }),
    }
}

fn by_marker(facts: &Facts<'_>, marker: &Marker) -> Result<Decision, Refusal> {
    let log = facts.log;
    if marker.storage != facts.storage && !facts.allowed.take_over_prefix {
        return Err(Refusal::MarkerOfOtherStorage { job: log.job.clone(), ours: facts.storage, theirs: marker.storage });
    }
    let known = facts.newest_generation.unwrap_or(Generation(0));
    if marker.generation > known {
        return Err(Refusal::MarkerFromLaterGeneration { marker: marker.generation, known });
    }
    let Some(manifest) = log.by_attempt(marker.attempt) else {
        return Err(not_in_log(facts, marker));
    };
    let committed = log.manifests().next_back().and_then(|newest| newest.committed);
    match committed {
        Some(point) if point.slot > manifest.slot => Err(Refusal::MarkerTooOld { marker: manifest.slot, committed: point.slot }),
        _ => Ok(restore(facts, manifest, false)),
    }
}

/// The manifest that the marker names is missing: perhaps it is one of the damaged ones.
fn not_in_log(facts: &Facts<'_>, marker: &Marker) -> Refusal {
    let log = facts.log;
    match log.damaged().next_back() {
        Some((_, path, damage)) => {
            let older = log.manifests().next_back().map(|manifest| manifest.slot);
            Refusal::Damaged { path: path.to_owned(), damage: damage.clone(), older }
        }
        None => Refusal::MarkerNotInLog {
            job: log.job.clone(),
            checkpoint: marker.checkpoint,
            attempt: marker.attempt,
            newest: log.newest().map_or(Slot::FIRST, |(slot, _)| slot),
        },
    }
}

/// The marker is another job's. A fork goes on from its manifest 0 while the marker is exactly what it replaces.
fn by_foreign_marker(facts: &Facts<'_>, marker: &Marker) -> Result<Decision, Refusal> {
    let log = facts.log;
    if let Some(start) = log.manifests().find(|manifest| manifest.replaces_marker(marker.attempt)) {
        return Ok(restore(facts, start, true));
    }
    if marker.state != MarkerState::Released && !facts.allowed.take_over_prefix {
        let same_name = marker.job.name() == log.job.name() && marker.storage == facts.storage;
        return Err(Refusal::ForeignMarker { theirs: marker.job.clone(), checkpoint: marker.checkpoint, same_name });
    }
    // The prefix is free, or taken over by a person's word: our own marker, if there ever was one, is gone.
    without_marker(facts, MissingMarker::Refuse)
}

fn without_marker(facts: &Facts<'_>, policy: MissingMarker) -> Result<Decision, Refusal> {
    let log = facts.log;
    let Some((newest_slot, newest)) = log.newest() else {
        return Ok(Decision::NewJob);
    };
    if log.only_start() {
        let original = log.manifests().find(|manifest| manifest.kind == ManifestKind::Start);
        if let Some(start) = original.or_else(|| log.newest_manifest()) {
            return Ok(restore(facts, start, true));
        }
    }
    if let Ok(manifest) = &newest.content
        && !had_last_resource(manifest)
    {
        // The last resource is new to the job: so far its log decided.
        return Ok(restore(facts, manifest, true));
    }
    by_word(facts, policy, Refusal::MarkerMissing { job: log.job.clone(), newest: newest_slot })
}

/// Whether a marker decides on a manifest.
fn had_last_resource(manifest: &Manifest) -> bool {
    manifest.kind != ManifestKind::Final && !manifest.snapshot.transactional_ids.is_empty()
}

/// The marker that should decide is not to be had: a person says what it would say.
fn by_word(facts: &Facts<'_>, policy: MissingMarker, missing: Refusal) -> Result<Decision, Refusal> {
    let log = facts.log;
    let Some((_, newest)) = log.newest() else { return Err(missing) };
    match policy {
        MissingMarker::Refuse => Err(missing),
        MissingMarker::Committed => match &newest.content {
            Ok(manifest) => Ok(restore(facts, manifest, true)),
            Err(damage) => older_than_damaged(facts, &newest.path, damage),
        },
        MissingMarker::Aborted => {
            let committed = log.manifests().next_back().and_then(|manifest| manifest.committed);
            let manifest = committed.and_then(|point| log.by_attempt(point.attempt));
            manifest.map(|manifest| restore(facts, manifest, true)).ok_or(missing)
        }
    }
}

fn restore(facts: &Facts<'_>, manifest: &Arc<Manifest>, genesis: bool) -> Decision {
    let log = facts.log;
    let done = |entry: &&Arc<Manifest>| {
        entry.kind == ManifestKind::Final
            && (entry.attempt == manifest.attempt || entry.snapshot.checkpoint == manifest.snapshot.checkpoint)
    };
    if let Some(last) = log.manifests().find(done) {
        return Decision::Finished(Arc::clone(last));
    }
    let recorded = log.newest_record_of(manifest);
    Decision::Restore(RestorePlan {
        manifest: Arc::clone(manifest),
        revision: recorded.snapshot.plan.clone(),
        pending_stop: recorded.snapshot.pending_stop.clone(),
        genesis,
        passed_over: log.damaged().map(|(_, path, _)| path.to_owned()).collect(),
    })
}
