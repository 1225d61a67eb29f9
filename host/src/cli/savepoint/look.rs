//! `waterwheel savepoint show|verify|delete PATH`

use super::Outcome;
use crate::Error;
use crate::checkpoint::savepoint;
use crate::cli::checkpoint::bytes;

/// Which.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The folder of the savepoint; to show and to verify, also that of a checkpoint, `{dir}/{job}/chk-{number}`.
    path: String,
}

pub(super) async fn show(arguments: &Arguments) -> Outcome {
    let found = savepoint::find(&arguments.path).await?;
    let document = serde_json::to_string_pretty(&found.manifest).map_err(|error| Error::internal(error.to_string()))?;
    Ok(format!("{document}\n"))
}

pub(super) async fn verify(arguments: &Arguments) -> Outcome {
    let found = savepoint::find(&arguments.path).await?;
    let problems = savepoint::verify(&found).await?;
    if !problems.is_empty() {
        return Err(Error::user(problems.join("\nwaterwheel: ")));
    }
    let snapshot = &found.manifest.snapshot;
    let what = if found.is_savepoint() { "savepoint" } else { "checkpoint" };
    Ok(format!("{what} {}: {} files, {}: intact\n", found.path, snapshot.files().count(), bytes(snapshot.full_bytes())))
}

pub(super) async fn delete(arguments: &Arguments) -> Outcome {
    let deleted = savepoint::delete(&arguments.path).await?;
    Ok(format!("savepoint {} of job {}, checkpoint {} was deleted\n", deleted.path, deleted.manifest.job, deleted.manifest.slot))
}
