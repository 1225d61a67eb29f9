//! How a run starts: find the job's newest incarnation → take a generation → fence → decide → put a copy (or
//! manifest 0) → read the generation → roll forward → clean up → go on.
//!
//! ```text
//! new job     manifest 0 with resolved positions ──────────────────────────────▶ run
//! resume      decide M ─▶ copy of M ─▶ generation ─▶ commit M's work ─▶ clean up ─▶ run
//! in process  the same, with exactly the next generation
//! fork        close the old log with `forked` ─▶ fence ─▶ manifest 0 ─▶ generation ─▶ commit the old
//!             job's work ─▶ delete what else it left ─▶ run
//! finished    nothing, or what is left of the last commit
//! ```
//! A crash anywhere in here is repaired by the next start: every step is repeated or found done.

mod adopt;
mod error;
mod fork;
mod incarnation;
mod own_log;
mod state_files;

use std::sync::Arc;

pub use error::{OTHER_CHECKPOINTS, StartError};

use super::commit::Run;
use super::failpoints::crash_point;
use super::log::{Claimed, JobLog, LogError, RunRecord};
use super::participants::{Environment, LastResource, Participants, StartHooks};
use super::protocol::decide::Allowed;
use super::protocol::fork::{Fork, StartFrom, StartPlan, plan_start};
use super::protocol::{Decision, Generation, JobId, JobName, Manifest, MarkerView, MissingMarker, OutputGuarantee, Refusal, Slot};
use super::storage::CheckpointStorage;

pub use super::storage::FilesAt;

/// What a person allows at a start, beyond what is safe by itself. By default nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartOptions {
    /// `--allow-duplicate-output`: a fork may show output again.
    pub allow_duplicate_output: bool,
    /// `--take-over-prefix`: go on although the job that is replaced cannot be reached or closed.
    pub take_over_prefix: bool,
    /// Restore an older checkpoint when the newest manifest is damaged.
    pub older_than_damaged: bool,
    /// `--marker-missing`.
    pub missing_marker: MissingMarker,
    /// A stop that was asked for and not finished is withdrawn: the job is to run.
    pub withdraw_stop: bool,
}

/// Everything that a start needs.
#[derive(Clone)]
pub struct StartRequest<'a> {
    /// Where the checkpoints are.
    pub storage: Arc<dyn CheckpointStorage>,
    /// Clock, randomness, identity.
    pub environment: Arc<dyn Environment>,
    /// The job.
    pub name: JobName,
    /// Where to start from.
    pub from: StartFrom,
    /// Where the state files of `from`'s manifest are, when that is a savepoint or stands in another storage;
    /// `None`: in `storage`, at the paths that it names.
    pub files: Option<FilesAt>,
    /// What is allowed.
    pub options: StartOptions,
    /// The strongest guarantee of a sink in the plan.
    pub guarantee: OutputGuarantee,
    /// What the pipeline contributes.
    pub hooks: &'a dyn StartHooks,
    /// The two-phase sinks.
    pub participants: &'a dyn Participants,
    /// The last resource, if the plan has one.
    pub last_resource: Option<&'a dyn LastResource>,
}

impl std::fmt::Debug for StartRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StartRequest")
            .field("name", &self.name)
            .field("from", &self.from)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl StartRequest<'_> {
    fn allowed(&self) -> Allowed {
        let StartOptions { older_than_damaged, take_over_prefix, missing_marker, .. } = self.options;
        Allowed { older_than_damaged, take_over_prefix, missing_marker }
    }

    async fn marker(&self) -> Result<MarkerView, StartError> {
        let Some(last_resource) = self.last_resource else {
            return Ok(MarkerView::NoLastResource);
        };
        let marker = last_resource.read_marker().await.map_err(StartError::LastResource)?;
        Ok(marker.map_or(MarkerView::Absent(self.options.missing_marker), MarkerView::Found))
    }
}

/// How a run came to be.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// The job never ran before.
    New,
    /// It goes on from where it stood.
    Resumed,
    /// It replaced another incarnation or job.
    Forked(Fork),
}

/// A run that may begin to process records.
#[derive(Debug)]
pub struct Recovered {
    /// The hold on the log.
    pub run: Run,
    /// What to restore: this run's own entry (manifest 0, or the copy). Its prepared work is visible, its plan is
    /// the revision to run, `pending_stop` says that the run exists only to finish a stop.
    pub restored: Arc<Manifest>,
    /// How it came to be.
    pub origin: Origin,
    /// The slot whose manifest was decided on; `None` for a new job.
    pub decided: Option<Slot>,
    /// Damaged entries that were passed over, by path.
    pub passed_over: Vec<String>,
}

/// What a start led to.
#[derive(Debug)]
pub enum Started {
    /// The job runs.
    Running(Box<Recovered>),
    /// The job had finished, and all of its output is visible.
    Finished {
        /// The incarnation.
        job: JobId,
        /// Its last entry.
        slot: Slot,
    },
}

/// Starts a job, and starts it again in the same process after a failure.
///
/// The first start takes the generation after the newest; each later one exactly the number after its own, and if
/// that is taken the process was superseded. One starter lives as long as the process works on the job.
#[derive(Debug)]
pub struct Starter {
    record: RunRecord,
    held: Option<(JobLog, Generation)>,
    /// Whether a start of this process has put an entry: its log is never empty again.
    has_run: bool,
}

impl Starter {
    /// A starter for a process that has not started the job yet.
    #[must_use]
    pub fn new(environment: &dyn Environment) -> Self {
        Self { record: RunRecord::new(environment), held: None, has_run: false }
    }

    /// The generation that was taken last, once there is one.
    #[must_use]
    pub fn generation(&self) -> Option<Generation> {
        self.held.as_ref().map(|(_, generation)| *generation)
    }

    /// Starts, or starts again. Once the job's log holds an entry of this process's incarnation, `from` says nothing
    /// any more: the job goes on from where it stands.
    ///
    /// Dropping the future is like a crash; the next call repairs it.
    ///
    /// # Errors
    /// See [`StartError`]: each says what to do; where [`StartError::retry_helps`], call again.
    pub async fn start(&mut self, request: &StartRequest<'_>) -> Result<Started, StartError> {
        let started = self.start_somewhere(request).await?;
        self.has_run = true;
        Ok(started)
    }

    async fn start_somewhere(&mut self, request: &StartRequest<'_>) -> Result<Started, StartError> {
        if let Some((log, own)) = &self.held {
            let (log, own) = (log.clone(), *own);
            if self.has_run {
                log.check_held(own).await?;
            }
            let view = log.read().await?;
            if !view.is_empty() {
                if let Some(finished) = preflight(request, &log).await.map_err(replaced_while_running)? {
                    return Ok(finished);
                }
                let (log, generation) = self.take_generation(&log).await?;
                return own_log::begin(request, log, generation, None).await.map_err(replaced_while_running);
            }
            if self.has_run {
                return Err(log.removed(format!("the log {}", log.job())).into());
            }
        }
        let found = incarnation::newest(request).await?;
        match plan_start(&found.view, found.parent.as_ref(), &request.from)? {
            StartPlan::OwnLog => {
                if let Some(finished) = preflight(request, &found.log).await? {
                    return Ok(finished);
                }
                let (log, generation) = self.take_generation(&found.log).await?;
                own_log::begin(request, log, generation, None).await
            }
            StartPlan::ContinueFork(fork) | StartPlan::Fork(fork) => Box::pin(fork::begin(self, request, &found.log, fork)).await,
        }
    }

    /// Takes a generation, and gives the log to write to with it.
    async fn take_generation(&mut self, log: &JobLog) -> Result<(JobLog, Generation), StartError> {
        let own = self.held.as_ref().filter(|(held, _)| held.job() == log.job()).map(|(_, generation)| *generation);
        let generation = match own {
            None => log.take_generation(&self.record).await?,
            Some(own) => match log.take_generation_exactly_after(own, &self.record).await? {
                Claimed::Taken(generation) => generation,
                Claimed::Superseded(newer) => return Err(StartError::Superseded(newer)),
            },
        };
        let log = log.held_by(&self.record);
        self.held = Some((log.clone(), generation));
        crash_point("recovery::after-generation");
        Ok((log, generation))
    }
}

/// A process that worked on a job which was replaced meanwhile is told so like one that lost a put to the fork.
fn replaced_while_running(error: StartError) -> StartError {
    match error {
        StartError::Refused(Refusal::ForkedBy { job, by, .. }) => StartError::ForkedBy { job, by },
        other => other,
    }
}

/// Refuses, or finds the job finished, before anything is fenced.
///
/// Another run of the job may be at work meanwhile, and a broker may show a commit only some time after it was decided. The marker is therefore read
/// first, because what it names is in the log before, and a marker that lags behind the log refuses nothing: fencing waits until what was decided is
/// visible, and then the decision is made again.
async fn preflight(request: &StartRequest<'_>, log: &JobLog) -> Result<Option<Started>, StartError> {
    let marker = request.marker().await?;
    let newest_generation = log.newest_generation().await?;
    let view = own_log::read_log(request, log).await?;
    match own_log::decide_now(request, log, &view, newest_generation, &marker) {
        Decision::Refuse(refusal) if request.last_resource.is_some() && refusal.may_be_a_late_marker() => {
            tracing::info!(%refusal, "the marker lags behind the log: what counts is decided once all transactions are complete");
            Ok(None)
        }
        Decision::Refuse(refusal) => Err(StartError::Refused(refusal)),
        Decision::Finished(last) => Ok(Some(Started::Finished { job: last.job.clone(), slot: last.slot })),
        Decision::NewJob => Ok(None),
        Decision::Restore(plan) => {
            let mut recorded = Manifest::clone(&plan.manifest);
            recorded.snapshot.plan = plan.revision;
            let files = FilesAt::root(Arc::clone(log.storage()));
            match request.hooks.check_restore(&recorded, &files).await {
                // An instance that is at work may have deleted the files meanwhile. Once this one has the generation it cannot.
                Err(error) if own_log::read_log(request, log).await?.newest_manifest() != view.newest_manifest() => {
                    tracing::info!(error = %error.chain(), "the job went on while its state was tried");
                    Ok(None)
                }
                checked => checked.map(|()| None).map_err(StartError::Pipeline),
            }
        }
    }
}

/// Reads the manifest of a checkpoint or savepoint from a storage path such as `orders/chk-7`.
///
/// # Errors
/// When there is none, or it is damaged.
pub async fn read_manifest(storage: &dyn CheckpointStorage, folder: &str) -> Result<Manifest, LogError> {
    let path = if folder.is_empty() { "_metadata".to_owned() } else { format!("{}/_metadata", folder.trim_end_matches('/')) };
    let damaged = |damage| LogError::Damaged { path: path.clone(), damage };
    let bytes = storage.read(&path).await?.ok_or_else(|| damaged(super::protocol::Damage::Empty))?;
    super::protocol::envelope::decode(&bytes).map_err(damaged)
}
