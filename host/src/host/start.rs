//! Submitting a job: load its plugins, make the plan, open the storage, start the supervisor.

use super::operators::PluginOperators;
use super::{Host, JobHandle};
use crate::Error;
use crate::checkpoint::log::LogError;
use crate::checkpoint::protocol::Slot;
use crate::checkpoint::protocol::fork::StartFrom;
use crate::checkpoint::recovery::{FilesAt, StartOptions, read_manifest};
use crate::checkpoint::storage::{self, CheckpointStorage, OpenError, StorageOptions};
use crate::config::Faults;
use crate::pipeline::plan::LoadedPlugins;
use crate::pipeline::run::{StartChoice, StatusWriter, Supervisor};
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
    /// `latest` (also when none is given), the number of a checkpoint of the job, or the path of a checkpoint: its folder.
    pub from_checkpoint: Option<String>,
    /// Begin again, whatever checkpoints there are.
    pub fresh: bool,
    /// State that no operator of the job claims may be left behind.
    pub allow_non_restored_state: bool,
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
        };
        let ended = tokio::spawn(supervisor.run(commands));
        Ok(JobHandle { plan, status: status.subscribe(), metrics, dropped, operators, control, ended })
    }
}

/// Reads what a person wrote about where to start.
async fn choice(options: SubmitOptions, checkpointing: bool) -> Result<StartChoice, SubmitError> {
    let SubmitOptions { from_checkpoint, fresh, allow_non_restored_state, allowed } = options;
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
            let (manifest, files) = manifest_at(path).await?;
            choice.from = manifest;
            choice.files = files;
        }
    }
    Ok(choice)
}

/// A checkpoint by its path, `…/{job}/chk-{number}`: the manifest, and the storage that its state files are in, which is two folders up.
async fn manifest_at(path: &str) -> Result<(StartFrom, Option<FilesAt>), SubmitError> {
    let trimmed = path.trim_end_matches('/').trim_end_matches("/_metadata");
    let mut parts = trimmed.rsplitn(3, '/');
    let (checkpoint, job, root) = (parts.next(), parts.next().filter(|job| !job.is_empty()), parts.next());
    let (Some(checkpoint), Some(job)) = (checkpoint, job) else {
        return Err(not_there(path, trimmed));
    };
    let root = match root {
        None => ".",
        Some("") => "/",
        Some(root) => root,
    };
    let local = trimmed.strip_prefix("file://").filter(|local| local.starts_with('/')).unwrap_or(trimmed);
    if !local.contains("://") && !Path::new(local).join("_metadata").is_file() {
        return Err(not_there(path, local));
    }
    let storage: Arc<dyn CheckpointStorage> = storage::open(root, StorageOptions::default()).await?;
    let folder = format!("{job}/{checkpoint}");
    let manifest = read_manifest(&*storage, &folder).await;
    let mut manifest = manifest.map_err(|source| SubmitError::Checkpoint { path: path.to_owned(), source })?;
    // Its state files are beside it, also when the job's folder was copied to one of another name.
    for file in manifest.snapshot.files_mut() {
        if let Some(name) = file.path.strip_prefix(manifest.job.as_str()).and_then(|rest| rest.strip_prefix('/')) {
            file.path = format!("{job}/{name}");
        }
    }
    let files = FilesAt { storage, folder: String::new() };
    Ok((StartFrom::Manifest { manifest: Arc::new(manifest), path: path.to_owned() }, Some(files)))
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
