//! Submitting a job: load its plugins, make the plan, open the storage, start the supervisor.

use super::operators::PluginOperators;
use super::{Host, JobHandle};
use crate::Error;
use crate::checkpoint::log::LogError;
use crate::checkpoint::protocol::fork::StartFrom;
use crate::checkpoint::protocol::{ManifestKind, Slot};
use crate::checkpoint::recovery::StartOptions;
use crate::checkpoint::savepoint::{self, Found, SavepointError};
use crate::checkpoint::storage::{self, OpenError, StorageOptions};
use crate::config::Faults;
use crate::pipeline::plan::LoadedPlugins;
use crate::pipeline::run::{Claim, StartChoice, StatusWriter, StopAsked, Supervisor};
use crate::pipeline::{Job, Plan};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use tokio::sync::mpsc;

/// Commands to a job that wait at most.
const COMMANDS: usize = 16;

/// Where a job starts, and what a person allows.
#[derive(Clone, Debug, Default)]
pub struct SubmitOptions {
    /// `latest` (also when none is given), the number of a checkpoint of the job, or the path of a checkpoint or savepoint: its folder.
    pub from_checkpoint: Option<String>,
    /// Begin again, whatever checkpoints there are.
    pub fresh: bool,
    /// State that no operator of the job claims may be left behind.
    pub allow_non_restored_state: bool,
    /// The savepoint that the job starts from belongs to it, and is deleted once the job has completed a checkpoint of its own.
    pub claim: bool,
    /// What is allowed that could repeat or lose output.
    pub allowed: StartOptions,
}

/// Why a job was not started.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// The specification does not fit its plugins.
    #[error(transparent)]
    Plan(#[from] Faults),
    /// The checkpoint storage cannot be used.
    #[error(transparent)]
    Storage(#[from] OpenError),
    /// The checkpoint to start from cannot be read.
    #[error("the checkpoint {path} cannot be read: {source}")]
    Checkpoint {
        /// The path.
        path: String,
        /// Why.
        source: LogError,
    },
    /// The savepoint to start from cannot be read.
    #[error(transparent)]
    Savepoint(#[from] SavepointError),
    /// A wrong option.
    #[error("{0}")]
    Options(String),
}

impl Host {
    /// Loads a job's plugins and makes its plan, without running it.
    ///
    /// # Errors
    /// Every fault at once: plugins that are not there or do not fit.
    pub async fn plan(&self, job: &Job) -> Result<Plan, Faults> {
        Plan::build(job, &LoadedPlugins::of(job, &self.plugins).await)
    }

    /// Starts a job. It goes on from its newest completed checkpoint unless the options say otherwise.
    ///
    /// # Errors
    /// See [`SubmitError`]; what goes wrong later is told by the handle.
    pub async fn submit(&self, job: &Job, options: SubmitOptions) -> Result<JobHandle, SubmitError> {
        let loaded = LoadedPlugins::of(job, &self.plugins).await;
        let plan = Arc::new(Plan::build(job, &loaded)?);
        let storage = match &plan.settings.checkpointing {
            Some(settings) => Some(storage::open(&settings.dir, StorageOptions::default()).await?),
            None => None,
        };
        let choice = choice(options, storage.is_some()).await?;
        let metrics = self.metrics.job(&plan.name);
        let dropped = Arc::new(AtomicU64::new(0));
        let status = Arc::new(StatusWriter::new(&plan.name, Arc::clone(&metrics)));
        let (control, commands) = mpsc::channel(COMMANDS);
        let operators = Arc::new(PluginOperators::new(&plan, loaded, &metrics));
        let supervisor = Supervisor {
            plan: Arc::clone(&plan),
            operators: Arc::clone(&operators) as _,
            storage,
            choice,
            metrics: Arc::clone(&metrics),
            dropped: Arc::clone(&dropped),
            status: Arc::clone(&status),
            has_begun: AtomicBool::new(false),
            stop_asked: StopAsked::new(),
        };
        let ended = tokio::spawn(supervisor.run(commands));
        Ok(JobHandle { plan, status: status.subscribe(), metrics, dropped, operators, control, ended })
    }
}

/// Reads what a person wrote about where to start.
async fn choice(options: SubmitOptions, checkpointing: bool) -> Result<StartChoice, SubmitError> {
    let SubmitOptions { from_checkpoint, fresh, allow_non_restored_state, claim, allowed } = options;
    let mut choice = StartChoice { options: allowed, ignore_unclaimed_state: allow_non_restored_state, ..StartChoice::default() };
    if (fresh || from_checkpoint.is_some()) && !checkpointing {
        let wanted = if fresh { "--fresh" } else { "--from-checkpoint" };
        return Err(SubmitError::Options(format!("{wanted} says nothing for a job without checkpoints: set execution.checkpointing")));
    }
    match from_checkpoint.as_deref() {
        Some(_) if fresh => return Err(SubmitError::Options("a job starts from a checkpoint or fresh, not both".into())),
        None if fresh => choice.from = StartFrom::Fresh,
        None | Some("latest") => {}
        Some(number) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
            let slot = number.parse().map_err(|_| SubmitError::Options(format!("there is no checkpoint {number}")))?;
            choice.from = StartFrom::Slot(Slot(slot));
        }
        Some(path) => {
            let Found { path: folder, manifest, files } = manifest_at(path).await?;
            if matches!(manifest.kind, ManifestKind::Savepoint { .. }) {
                let whole = Claim { path: folder, attempt: manifest.attempt, checkpoint: manifest.snapshot.checkpoint };
                choice.claim = claim.then_some(whole);
            }
            choice.from = StartFrom::Manifest { manifest: Arc::new(manifest), path: path.to_owned() };
            choice.files = Some(files);
        }
    }
    if claim && choice.claim.is_none() {
        return Err(SubmitError::Options(
            "only a savepoint can be claimed, by --from-checkpoint and its path: checkpoints belong to the job that took them".into(),
        ));
    }
    Ok(choice)
}

/// A savepoint by its path, or a checkpoint, `…/{job}/chk-{number}`.
async fn manifest_at(path: &str) -> Result<Found, SubmitError> {
    let trimmed = path.trim_end_matches('/').trim_end_matches("/_metadata");
    let local = trimmed.strip_prefix("file://").filter(|local| local.starts_with('/')).unwrap_or(trimmed);
    if !local.contains("://") && !Path::new(local).join("_metadata").is_file() {
        return Err(not_there(path, local));
    }
    savepoint::find(path).await.map_err(|error| match error {
        SavepointError::NotThere { .. } => not_there(path, local),
        SavepointError::Damaged { damage, .. } => {
            SubmitError::Checkpoint { path: path.to_owned(), source: LogError::Damaged { path: format!("{trimmed}/_metadata"), damage } }
        }
        error => error.into(),
    })
}

/// What is said of a path at which there is no checkpoint: what was looked for, and what is there instead.
fn not_there(path: &str, trimmed: &str) -> SubmitError {
    let looked_for = format!("there is no checkpoint at {path}: its file {trimmed}/_metadata is not there");
    let checkpoints = |folder: &Path| {
        let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut numbers: Vec<u64> = names.filter_map(|name| name.strip_prefix("chk-")?.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    };
    // The folder itself may be that of the job, and the one above is where others would be.
    let folders = [Some(Path::new(trimmed)), Path::new(trimmed).parent()];
    let found = folders.into_iter().flatten().map(|folder| (folder, checkpoints(folder))).find(|(_, numbers)| !numbers.is_empty());
    SubmitError::Options(match found {
        Some((folder, numbers)) => {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            let names = numbers.iter().map(|number| format!("chk-{number}")).collect::<Vec<_>>().join(", ");
            format!("{looked_for}; in {} there are {names}", folder.display())
        }
        None => format!(
            "{looked_for}; give the folder of one, {{dir}}/{{job}}/chk-{{number}}, or the number of one of this job, or leave the option out for the newest"
        ),
    })
}

impl From<SubmitError> for Error {
    fn from(error: SubmitError) -> Self {
        Error::user(error.to_string())
    }
}
