//! `waterwheel savepoint create JOB [--checkpoint N] [--to PATH]`

use super::Outcome;
use crate::Error;
use crate::checkpoint::protocol::Slot;
use crate::checkpoint::savepoint::{Target, make_of_log};
use crate::cli::checkpoint::{Whose, bytes};
use crate::pipeline::{Connectors, Job};
use std::path::Path;

/// Of what, and where.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    whose: Whose,
    /// The number of the checkpoint; by default the newest that counts.
    #[arg(long, value_name = "NUMBER")]
    checkpoint: Option<u64>,
    /// The folder of the savepoint, or with `/` at the end the folder that it gets one of its own in. By default that one is the job's savepoint-dir.
    #[arg(long, value_name = "PATH")]
    to: Option<String>,
}

pub(super) async fn run(arguments: &Arguments, connectors: &Connectors) -> Outcome {
    let target = Target::new(arguments.to.as_deref(), savepoint_dir(&arguments.whose.job, connectors)?.as_deref())?;
    let log = arguments.whose.open(connectors).await?;
    let (path, manifest) = make_of_log(&log, arguments.checkpoint.map(Slot), &target).await?;
    let (files, size) = (manifest.snapshot.files().count(), bytes(manifest.snapshot.full_bytes()));
    Ok(format!("savepoint {path} of job {}, checkpoint {}: {files} files, {size}\n", manifest.job, manifest.slot))
}

/// Where a job file says that savepoints are.
fn savepoint_dir(job: &str, connectors: &Connectors) -> Result<Option<String>, Error> {
    let file = Path::new(job);
    if !file.is_file() {
        return Ok(None);
    }
    let job = Job::read(file, connectors).map_err(|faults| Error::user(format!("{job}: {faults}")))?;
    Ok(job.spec().execution.checkpointing.savepoint_dir.clone())
}
