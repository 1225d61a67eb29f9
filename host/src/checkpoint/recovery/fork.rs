//! A fork: closes the log of the job it replaces, and only then fences, reads the marker and takes over.

use std::sync::Arc;

use super::super::failpoints::crash_point;
use super::super::log::JobLog;
use super::super::protocol::fork::{AfterClosing, BeforeClosing, Fork, Repeats, after_closing, before_closing, repeats};
use super::super::protocol::slot::SlotHolder;
use super::super::protocol::{
    Attempt, Decision, ForkIntent, Generation, JobSnapshot, LogView, Manifest, ManifestKind, MarkerView, Slot, Timing,
};
use super::own_log::{Inheritance, begin as begin_in_own_log, decide_now};
use super::{StartError, StartRequest, Started, Starter, adopt};

/// Makes the fork, or finishes one that a crashed run began.
pub(super) async fn begin(starter: &mut Starter, request: &StartRequest<'_>, any: &JobLog, fork: Fork) -> Result<Started, StartError> {
    let own = any.of(fork.id.clone());
    let old = any.of(fork.closes.clone());
    let view = old.read().await?;
    if let BeforeClosing::ClosedByAnother(by) = before_closing(&view, &fork.id) {
        return Err(StartError::ReplacedByAnother { old: view.job.clone(), by });
    }
    if let Some((candidate, files)) = adopt::candidate(request, &own, &fork.intent).await? {
        refuse_early(request, &view, Some(&candidate))?;
        request.hooks.check_restore(&candidate, &files).await.map_err(StartError::Pipeline)?;
    }
    if fork.replaces_nothing() {
        refuse_foreign_prefix(request, &own, &view).await?;
    }
    let (own, generation) = starter.take_generation(&own).await?;
    let restored = adopt::restored(request, &own, generation, &fork.intent).await?;
    refuse_early(request, &view, restored.as_deref())?;
    let closed = close(request, &old, &view, &fork, generation).await?;
    crash_point("recovery::after-forked");

    let (replaced, marker) = if closed { replaced(request, &old, &fork, restored.as_deref()).await? } else { (None, None) };
    let reason = match &fork.intent {
        ForkIntent::Fresh => "the job was started afresh".to_owned(),
        ForkIntent::Restore { path, .. } => format!("{path} was restored"),
    };
    let inheritance = Inheritance { fork, restored, replaced, marker, reason };
    begin_in_own_log(request, own, generation, Some(inheritance)).await
}

/// A new job that begins with a state which no job made: the transactional prefix must be nobody else's, as for every new job.
async fn refuse_foreign_prefix(request: &StartRequest<'_>, own: &JobLog, view: &LogView) -> Result<(), StartError> {
    let Some(last_resource) = request.last_resource else { return Ok(()) };
    let decide = async || {
        let marker = request.marker().await?;
        let newest = own.newest_generation().await?;
        match decide_now(request, own, view, newest, &marker) {
            Decision::Refuse(refusal) => Err(StartError::Refused(refusal)),
            Decision::NewJob | Decision::Restore(_) | Decision::Finished(_) => Ok(()),
        }
    };
    decide().await?;
    last_resource.fence(&[]).await.map_err(StartError::LastResource)?;
    decide().await
}

/// Refuses what can be seen to be wrong before the old log is closed, so that the old job is not stopped for nothing.
fn refuse_early(request: &StartRequest<'_>, old: &LogView, restored: Option<&Manifest>) -> Result<(), StartError> {
    // With a last resource the marker decides what is replaced: the count is made after closing.
    let newest = old.manifests().rev().find(|manifest| manifest.forked_by().is_none());
    match (request.last_resource, newest) {
        (None, Some(newest)) => refuse_repeats(request, restored, newest),
        _ => Ok(()),
    }
}

fn refuse_repeats(request: &StartRequest<'_>, restored: Option<&Manifest>, replaced: &Manifest) -> Result<(), StartError> {
    let old = || replaced.job.clone();
    match repeats(restored, replaced) {
        Repeats::Nothing => Ok(()),
        Repeats::Checkpoints(_) if request.options.allow_duplicate_output => Ok(()),
        Repeats::Checkpoints(checkpoints) => Err(StartError::WouldRepeat { old: old(), checkpoints }),
        Repeats::NeverCommitted => Err(StartError::NeverCommitted { old: old() }),
    }
}

/// Puts `forked` into the slot after the newest entry of the old log, and makes sure that it is the newest one.
/// False when the log cannot be reached and a person said that it is to be taken over without.
async fn close(request: &StartRequest<'_>, old: &JobLog, view: &LogView, fork: &Fork, generation: Generation) -> Result<bool, StartError> {
    match before_closing(view, &fork.id) {
        BeforeClosing::ClosedByAnother(by) => return Err(StartError::ReplacedByAnother { old: fork.closes.clone(), by }),
        BeforeClosing::ClosedByThisFork => {}
        BeforeClosing::Empty if fork.replaces_nothing() => return Ok(false),
        BeforeClosing::Empty if request.options.take_over_prefix => {
            let first = old.of(request.name.first_incarnation());
            lead_here(request, &first, fork, generation).await?;
            return Ok(false);
        }
        BeforeClosing::Empty => {
            return Err(StartError::OldLogUnreachable { old: fork.closes.clone(), storage: old.storage().describe() });
        }
        BeforeClosing::Close(slot) => match old.put_forked(&forked(request, old, fork, generation, slot)).await? {
            SlotHolder::Ours => {}
            SlotHolder::Forked { by } if by == fork.id => {}
            SlotHolder::Forked { by } => return Err(StartError::ReplacedByAnother { old: fork.closes.clone(), by }),
            SlotHolder::EarlierAttemptOfThisRun | SlotHolder::AnotherRun { .. } => {
                return Err(StartError::OldJobMoved { old: fork.closes.clone(), newest: slot });
            }
        },
    }
    Ok(true)
}

/// A job that moved here from another directory under its own name: its first incarnation's log, which is empty here,
/// has to lead to the new one.
async fn lead_here(request: &StartRequest<'_>, first: &JobLog, fork: &Fork, generation: Generation) -> Result<(), StartError> {
    if *first.job() == fork.id || first.job().name() != fork.id.name() {
        return Ok(());
    }
    let mut entry = forked(request, first, fork, generation, Slot::FIRST);
    entry.job = first.job().clone();
    match first.put_forked(&entry).await? {
        SlotHolder::Ours => Ok(()),
        SlotHolder::Forked { by } if by == fork.id => Ok(()),
        SlotHolder::Forked { by } => Err(StartError::ReplacedByAnother { old: first.job().clone(), by }),
        SlotHolder::EarlierAttemptOfThisRun | SlotHolder::AnotherRun { .. } => {
            Err(StartError::OldJobMoved { old: first.job().clone(), newest: Slot::FIRST })
        }
    }
}

fn forked(request: &StartRequest<'_>, old: &JobLog, fork: &Fork, generation: Generation, slot: Slot) -> Manifest {
    let now = request.environment.now_millis();
    Manifest {
        kind: ManifestKind::Forked { by: fork.id.clone(), intent: fork.intent.clone() },
        storage: old.storage_id(),
        job: fork.closes.clone(),
        job_name: fork.closes.name(),
        generation,
        slot,
        attempt: request.environment.attempt(),
        committed: None,
        released: false,
        timing: Timing { triggered_at_millis: now, written_at_millis: now },
        uploaded_bytes: 0,
        snapshot: JobSnapshot::default(),
    }
}

/// Reads the closed log again, fences, reads the marker, and finds what is replaced; with what the marker names.
async fn replaced(
    request: &StartRequest<'_>,
    old: &JobLog,
    fork: &Fork,
    restored: Option<&Manifest>,
) -> Result<(Option<Arc<Manifest>>, Option<Attempt>), StartError> {
    let view = old.read().await?;
    // Before anything is fenced: retention may have freed the slot far below the newest entry.
    if let AfterClosing::NotClosed { newest } = after_closing(&view, &fork.id, &MarkerView::NoLastResource) {
        return Err(StartError::OldJobMoved { old: fork.closes.clone(), newest });
    }
    if let Some(last_resource) = request.last_resource {
        let newest = view.manifests().rev().find(|manifest| manifest.forked_by().is_none());
        let ids = newest.map(|manifest| manifest.snapshot.transactional_ids.clone()).unwrap_or_default();
        last_resource.fence(&ids).await.map_err(StartError::LastResource)?;
    }
    let marker = request.marker().await?;
    let take_over = request.options.take_over_prefix;
    let named = match &marker {
        MarkerView::Found(marker) => Some(marker.attempt),
        MarkerView::NoLastResource | MarkerView::Absent(_) => None,
    };
    match after_closing(&view, &fork.id, &marker) {
        AfterClosing::Closed(replaced) => {
            refuse_repeats(request, restored, &replaced)?;
            Ok((Some(replaced), named))
        }
        AfterClosing::NotClosed { newest } => Err(StartError::OldJobMoved { old: fork.closes.clone(), newest }),
        AfterClosing::Damaged { .. } if take_over || request.options.older_than_damaged => Ok((None, named)),
        AfterClosing::MarkerElsewhere if take_over => Ok((None, named)),
        AfterClosing::Damaged { path, damage } => Err(StartError::ReplacedDamaged { path, damage }),
        // An earlier run of this fork may have got as far as its own marker: then its log says what counts.
        AfterClosing::MarkerElsewhere => match &marker {
            MarkerView::Found(marker) if marker.job == fork.id => Ok((None, named)),
            _ => Err(StartError::MarkerElsewhere { old: fork.closes.clone() }),
        },
    }
}
