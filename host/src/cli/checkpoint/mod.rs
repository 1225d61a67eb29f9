//! `waterwheel checkpoint list|show|verify|prune`: looks into the checkpoints that a job has left, without running it.

mod list;
mod prune;
mod show;
mod verify;

pub(super) use list::time;

use super::{Format, Outcome};
use crate::Error;
use crate::checkpoint::log::JobLog;
use crate::checkpoint::participants::System;
use crate::checkpoint::protocol::{JobId, JobName, LogView, Manifest, ManifestKind, Slot};
use crate::checkpoint::storage::{self, StorageOptions};
use crate::pipeline::{Connectors, Job};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// What to do with the checkpoints of a job.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// The checkpoints that are there, the oldest first.
    List(list::Arguments),
    /// A checkpoint as JSON: positions, state files, prepared output, the plan.
    Show(show::Arguments),
    /// Reads every file of the checkpoints and compares lengths and checksums.
    Verify(verify::Arguments),
    /// Deletes all but the newest checkpoints, and the state files that only they needed.
    Prune(prune::Arguments),
}

/// Whose checkpoints.
#[derive(Debug, clap::Args)]
pub(super) struct Whose {
    /// The job: its file, or the folder that its checkpoints are in, `{dir}/{job}` (a path or a URL).
    pub(super) job: String,
}

/// Runs a command. What is wrong is one sentence on the standard error, and exit code 1.
pub(super) fn run(arguments: &Arguments, connectors: &Connectors) -> ExitCode {
    super::answer(async {
        match &arguments.command {
            Command::List(arguments) => list::run(arguments, connectors).await,
            Command::Show(arguments) => show::run(arguments, connectors).await,
            Command::Verify(arguments) => verify::run(arguments, connectors).await,
            Command::Prune(arguments) => prune::run(arguments, connectors).await,
        }
    })
}

impl Whose {
    /// Opens the log: of a job file the newest incarnation's, of a folder its own.
    ///
    /// # Errors
    /// There is none, or the storage fails.
    pub(super) async fn open(&self, connectors: &Connectors) -> Result<JobLog, Error> {
        if Path::new(&self.job).is_file() {
            let faults = |faults: crate::config::Faults| Error::user(format!("{}: {faults}", self.job));
            let job = Job::read(Path::new(&self.job), connectors).map_err(faults)?;
            let settings = job.settings().checkpointing.as_ref();
            let settings =
                settings.ok_or_else(|| Error::user(format!("{}: the job has no checkpoints (execution.checkpointing)", self.job)))?;
            let name = JobName::new(&job.spec().name).map_err(|error| Error::user(error.to_string()))?;
            return newest_incarnation(open_log(&settings.dir, name.first_incarnation()).await?).await;
        }
        let trimmed = self.job.trim_end_matches('/');
        let (dir, job) = trimmed.rsplit_once('/').unwrap_or((".", trimmed));
        let job = JobId::try_from(job.to_owned()).map_err(|error| Error::user(format!("{}: {error}", self.job)))?;
        open_log(dir, job).await
    }

    /// Opens the log and reads it.
    ///
    /// # Errors
    /// There is none, or the storage fails.
    async fn read(&self, connectors: &Connectors) -> Result<(JobLog, LogView), Error> {
        let log = self.open(connectors).await?;
        let view = log.read().await.map_err(failed)?;
        Ok((log, view))
    }
}

async fn open_log(dir: &str, job: JobId) -> Result<JobLog, Error> {
    let nothing = || Error::user(format!("there are no checkpoints of job {job} in {dir}"));
    // Looking makes no folder.
    if !dir.contains("://") && !Path::new(dir).is_dir() {
        return Err(nothing());
    }
    let storage = storage::open_to_read(dir, StorageOptions::default()).map_err(|error| Error::user(error.to_string()))?;
    if storage.folders(job.as_str()).await.map_err(failed)?.is_empty() {
        return Err(nothing());
    }
    JobLog::open(storage, Arc::new(System), job).await.map_err(failed)
}

/// Follows the entries by which a job was started afresh or from an older checkpoint.
async fn newest_incarnation(mut log: JobLog) -> Result<JobLog, Error> {
    loop {
        let view = log.read().await.map_err(failed)?;
        match view.closed_by() {
            Some(by) if by.name() == log.job().name() && by.incarnation() > log.job().incarnation() => log = log.of(by.clone()),
            _ => return Ok(log),
        }
    }
}

/// The entry of a number, or the newest that is intact.
fn find(view: &LogView, number: Option<u64>) -> Result<&Arc<Manifest>, Error> {
    let Some(number) = number else {
        return view.manifests().next_back().ok_or_else(|| Error::user(format!("job {} has no intact checkpoint", view.job)));
    };
    match view.get(Slot(number)).map(|entry| &entry.content) {
        Some(Ok(manifest)) => Ok(manifest),
        Some(Err(damage)) => Err(Error::user(format!("checkpoint {number} of job {} is damaged: {damage}", view.job))),
        None => {
            let there: Vec<String> = view.entries().map(|(slot, _)| slot.to_string()).collect();
            Err(Error::user(format!("job {} has no checkpoint {number}; there are: {}", view.job, there.join(", "))))
        }
    }
}

/// What an entry is, in the words of the log.
fn kind(manifest: &Manifest) -> String {
    match &manifest.kind {
        ManifestKind::Start => "start".to_owned(),
        ManifestKind::Checkpoint => "checkpoint".to_owned(),
        ManifestKind::Copy { of_slot, .. } => format!("restart from {of_slot}"),
        ManifestKind::StopRecorded => "stop asked for".to_owned(),
        ManifestKind::Final => "finished".to_owned(),
        ManifestKind::Discarded => "discarded".to_owned(),
        ManifestKind::Savepoint { .. } => "savepoint".to_owned(),
        ManifestKind::Forked { by, .. } => format!("replaced by {by}"),
    }
}

/// Bytes for people: three digits and a unit.
#[allow(clippy::cast_precision_loss, reason = "rounded for people")]
pub(super) fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 999.5 {
            return if unit == "B" { format!("{count} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::external("the checkpoints cannot be looked at").caused_by(error)
}
