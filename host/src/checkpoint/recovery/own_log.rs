//! A run takes its place in its own log: decide, put, read the generation, roll forward, clean up.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::commit::Run;
use super::super::failpoints::crash_point;
use super::super::log::{CommitPermit, JobLog, PutOutcome};
use super::super::participants::Leftovers;
use super::super::protocol::decide::{Facts, decide};
use super::super::protocol::fork::{Fork, StartFrom};
use super::super::protocol::{
    Attempt, CommittedPoint, Decision, Generation, JobSnapshot, Line, LogView, Manifest, ManifestKind, Marker, MarkerState, MarkerView,
    Replaced, RestorePlan, SourceState,
};
use super::{Origin, Recovered, StartError, StartRequest, Started, state_files};

/// What a fork's manifest 0 takes over; worked out after the old log was closed.
pub(super) struct Inheritance {
    pub(super) fork: Fork,
    /// The manifest that is restored, with its state files in this job's own folder; `None`: the job begins again.
    pub(super) restored: Option<Arc<Manifest>>,
    /// The manifest that is replaced, whose prepared work is committed; `None` when the old log is out of reach.
    pub(super) replaced: Option<Arc<Manifest>>,
    /// The attempt that the marker named when the fork took over.
    pub(super) marker: Option<Attempt>,
    pub(super) reason: String,
}

/// What was put and may now be acted on.
struct Position {
    run: Run,
    permit: CommitPermit,
    own: Arc<Manifest>,
    decided: Option<Arc<Manifest>>,
    genesis: bool,
    passed_over: Vec<String>,
}

/// The decision on what is known now.
pub(super) fn decide_now(
    request: &StartRequest<'_>,
    log: &JobLog,
    view: &LogView,
    newest_generation: Option<Generation>,
    marker: &MarkerView,
) -> Decision {
    decide(&Facts {
        log: view,
        storage: log.storage_id(),
        newest_generation,
        marker,
        guarantee: request.guarantee,
        allowed: request.allowed(),
    })
}

/// Starts the run that took `generation` in `log`.
pub(super) async fn begin(
    request: &StartRequest<'_>,
    log: JobLog,
    generation: Generation,
    inheritance: Option<Inheritance>,
) -> Result<Started, StartError> {
    // A fork has fenced already: after it closed the old log, before it read the marker.
    if let (Some(last_resource), None) = (request.last_resource, &inheritance) {
        let view = log.read().await?;
        let ids = view.newest_manifest().map(|newest| newest.snapshot.transactional_ids.clone()).unwrap_or_default();
        last_resource.fence(&ids).await.map_err(StartError::LastResource)?;
    }
    let position = match take_position(request, log, generation, inheritance.as_ref()).await? {
        Placed::At(position) => position,
        Placed::Finished(finished) => return Ok(finished),
    };
    crash_point("recovery::after-copy");
    finish(request, *position, inheritance).await
}

enum Placed {
    At(Box<Position>),
    Finished(Started),
}

/// Decides and puts this run's first entry, until the decision and the slot agree.
async fn take_position(
    request: &StartRequest<'_>,
    log: JobLog,
    generation: Generation,
    inheritance: Option<&Inheritance>,
) -> Result<Placed, StartError> {
    // Resolved at most once by this run; what another run of this job put first counts instead.
    let mut resolved: Option<BTreeMap<String, SourceState>> = None;
    loop {
        let marker = request.marker().await?;
        let view = read_log(request, &log).await?;
        let decision = if inheritance.is_some() && view.is_empty() {
            // The marker is still the old job's: `after_closing` has looked at it.
            Decision::NewJob
        } else {
            decide_now(request, &log, &view, Some(generation), &marker)
        };
        let plan = match decision {
            Decision::Refuse(refusal) => return Err(refusal.into()),
            Decision::Finished(last) => {
                return Ok(Placed::Finished(Started::Finished { job: last.job.clone(), slot: last.slot }));
            }
            Decision::NewJob => None,
            Decision::Restore(plan) => Some(plan),
        };
        let decided = plan.as_ref().map(|plan| Arc::clone(&plan.manifest));
        let possible = match (&plan, inheritance) {
            (Some(plan), _) => state_files::check_there(&log, &plan.manifest).await,
            (None, None) => refuse_output_without_log(request, &log).await,
            (None, Some(_)) => Ok(()),
        };
        if let Err(refusal) = possible {
            // Another run may have gone on meanwhile, and deleted what it does not need.
            if read_log(request, &log).await? == view {
                return Err(refusal);
            }
            continue;
        }
        let run = empty_run(request, log.clone(), generation, &view, plan.as_ref(), &marker);
        let own = match &plan {
            Some(plan) => copy_of(request, &run, plan)?,
            None => start_manifest(request, &run, inheritance, &mut resolved).await?,
        };
        crash_point("recovery::before-copy");
        match log.put(&own).await? {
            PutOutcome::Durable(permit) => {
                let last_resource = request.last_resource.is_some();
                return Ok(Placed::At(Box::new(Position {
                    run,
                    permit,
                    own: Arc::new(own),
                    decided,
                    genesis: plan.as_ref().map_or(last_resource, |plan| plan.genesis),
                    passed_over: plan.map(|plan| plan.passed_over).unwrap_or_default(),
                })));
            }
            PutOutcome::Superseded(newer) => return Err(StartError::Superseded(newer)),
            PutOutcome::Forked(by) => return Err(StartError::ForkedBy { job: log.job().clone(), by }),
            PutOutcome::HeldByEarlierAttempt(other) | PutOutcome::HeldByAnotherRun(other) => {
                tracing::info!(slot = %own.slot, generation = %other.generation, "the slot was taken meanwhile; deciding again");
            }
        }
    }
}

/// The log as it counts for this start.
pub(super) async fn read_log(request: &StartRequest<'_>, log: &JobLog) -> Result<LogView, StartError> {
    let view = log.read().await?;
    if request.options.older_than_damaged { state_files::with_their_damage(log, view).await } else { Ok(view) }
}

/// A job that begins has no output yet. If there is some, its checkpoints are missing, and it would be written again.
async fn refuse_output_without_log(request: &StartRequest<'_>, log: &JobLog) -> Result<(), StartError> {
    if request.from != StartFrom::Latest {
        return Ok(());
    }
    let output = request.participants.visible_output(log.job()).await.map_err(StartError::Pipeline)?;
    match output {
        None => Ok(()),
        Some(output) => Err(StartError::OutputWithoutLog { job: log.job().clone(), storage: log.storage().describe(), output }),
    }
}

/// A run that stands before its first entry.
fn empty_run(
    request: &StartRequest<'_>,
    log: JobLog,
    generation: Generation,
    view: &LogView,
    plan: Option<&RestorePlan>,
    marker: &MarkerView,
) -> Run {
    let decided = plan.map(|plan| &plan.manifest);
    let committed = match marker {
        // The marker says so.
        MarkerView::Found(_) => {
            decided.filter(|_| plan.is_some_and(|plan| !plan.genesis)).map(|m| CommittedPoint { slot: m.slot, attempt: m.attempt })
        }
        MarkerView::NoLastResource | MarkerView::Absent(_) => decided.and_then(|m| m.committed),
    };
    let line = Line::new(log.job().clone(), generation, JobSnapshot::default());
    Run { name: request.name.clone(), generation, next_slot: view.next_slot(), committed, line, own_completed: None, log }
}

/// The copy of a decided manifest: with its prepared work, its state and its revision.
fn copy_of(request: &StartRequest<'_>, run: &Run, plan: &RestorePlan) -> Result<Manifest, StartError> {
    let original = &plan.manifest;
    let mut recorded = Manifest::clone(original);
    recorded.snapshot.plan = plan.revision.clone();
    recorded.snapshot.pending_stop.clone_from(&plan.pending_stop);
    let mut snapshot = recorded.snapshot.clone();
    if request.options.withdraw_stop && snapshot.pending_stop.take().is_some() {
        tracing::info!("a stop was asked for before the job ended, and is withdrawn by this start");
    }
    snapshot.plan = request.hooks.plan(Some(&recorded)).map_err(StartError::Pipeline)?;
    name_producers(&mut snapshot, request);
    let kind = ManifestKind::Copy { of: original.attempt, of_slot: original.slot, of_start: original.is_start() };
    Ok(run.manifest(kind, run.log().environment().attempt(), snapshot))
}

/// Manifest 0 of a new job, or of a fork with what it inherits.
async fn start_manifest(
    request: &StartRequest<'_>,
    run: &Run,
    inheritance: Option<&Inheritance>,
    resolved: &mut Option<BTreeMap<String, SourceState>>,
) -> Result<Manifest, StartError> {
    let attempt = run.log().environment().attempt();
    let restored = inheritance.and_then(|inheritance| inheritance.restored.as_deref());
    let mut snapshot = match restored {
        Some(restored) => restored.snapshot.clone(),
        None => {
            let sources = match resolved.take() {
                Some(sources) => sources,
                None => request.hooks.resolve_start().await.map_err(StartError::Pipeline)?,
            };
            *resolved = Some(sources.clone());
            JobSnapshot { sources, ..JobSnapshot::default() }
        }
    };
    snapshot.plan = request.hooks.plan(restored).map_err(StartError::Pipeline)?;
    snapshot.checkpoint = attempt;
    snapshot.end_of_input = false;
    snapshot.pending_stop = None;
    snapshot.prepared.clear();
    snapshot.transactional_ids.clear();
    if let Some(inheritance) = inheritance {
        inherit(&mut snapshot, inheritance);
    }
    name_producers(&mut snapshot, request);
    Ok(run.manifest(ManifestKind::Start, attempt, snapshot))
}

/// Adds this run's producers to those that a later run has to fence. Without a last resource the decision that is copied here was made
/// without one, and producers of earlier runs have no say any more.
fn name_producers(snapshot: &mut JobSnapshot, request: &StartRequest<'_>) {
    match request.last_resource {
        None => snapshot.transactional_ids.clear(),
        Some(last_resource) => snapshot.add_transactional_ids(&last_resource.ids()),
    }
}

/// Names what is replaced and carries its prepared work, also when an older state is restored.
fn inherit(snapshot: &mut JobSnapshot, inheritance: &Inheritance) {
    if let Some(replaced) = &inheritance.replaced {
        snapshot.prepared.clone_from(&replaced.snapshot.prepared);
        snapshot.add_transactional_ids(&replaced.snapshot.transactional_ids);
    }
    snapshot.replaces = Some(Replaced {
        closed: inheritance.replaced.as_ref().map(|manifest| manifest.point()),
        restored: inheritance.restored.as_ref().map(|manifest| manifest.point()),
        marker: inheritance.marker,
        reason: inheritance.reason.clone(),
    });
}

/// Rolls forward and cleans up; then the run may process records, or the job is finished.
async fn finish(request: &StartRequest<'_>, position: Position, inheritance: Option<Inheritance>) -> Result<Started, StartError> {
    let Position { mut run, permit, own, decided, genesis, passed_over } = position;
    run.next_slot = own.slot.next();
    let snapshot = &own.snapshot;

    crash_point("recovery::before-roll-forward");
    run.commit_sinks(&snapshot.prepared, request.participants, "recovery::between-sinks", &permit).await?;
    crash_point("recovery::after-roll-forward");
    clean_up(request, &run, &own).await?;
    crash_point("recovery::after-clean-up");
    if genesis {
        commit_genesis(request, &run, decided.as_deref().unwrap_or(&own)).await?;
    }

    let point = decided.as_deref().unwrap_or(&own);
    run.committed = Some(CommittedPoint { slot: point.slot, attempt: point.attempt });
    run.line = Line::new(run.log.job().clone(), run.generation, snapshot.clone());
    if snapshot.end_of_input {
        run.put_final(snapshot).await?;
        let slot = run.next_slot.previous().unwrap_or(own.slot);
        return Ok(Started::Finished { job: run.log.job().clone(), slot });
    }
    let origin = match (&decided, inheritance) {
        (None, Some(inheritance)) => Origin::Forked(inheritance.fork),
        (None, None) => Origin::New,
        (Some(_), _) => Origin::Resumed,
    };
    let decided = decided.map(|manifest| manifest.slot);
    Ok(Started::Running(Box::new(Recovered { run, restored: own, origin, decided, passed_over })))
}

/// Rolls back what runs before this one left; from a fork's manifest 0 also whatever else the closed job left.
async fn clean_up(request: &StartRequest<'_>, run: &Run, own: &Manifest) -> Result<(), StartError> {
    let keep = &own.snapshot.prepared;
    let leftovers = Leftovers { job: run.log.job(), before: Some(run.generation), keep };
    request.participants.clean_up(&leftovers).await.map_err(StartError::CleanUp)?;
    let closed = own.snapshot.replaces.as_ref().and_then(|replaces| replaces.closed.as_ref());
    if let (true, Some(closed)) = (own.is_start(), closed) {
        let leftovers = Leftovers { job: &closed.job, before: None, keep };
        request.participants.clean_up(&leftovers).await.map_err(StartError::CleanUp)?;
    }
    Ok(())
}

async fn commit_genesis(request: &StartRequest<'_>, run: &Run, decided: &Manifest) -> Result<(), StartError> {
    let Some(last_resource) = request.last_resource else {
        return Ok(());
    };
    let marker = Marker {
        job: run.log.job().clone(),
        storage: run.log.storage_id(),
        generation: run.generation,
        checkpoint: decided.slot,
        attempt: decided.attempt,
        state: MarkerState::Running,
    };
    last_resource.commit_genesis(&marker).await.map_err(StartError::LastResource)
}
