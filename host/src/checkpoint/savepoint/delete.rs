//! Deletes a savepoint.

use super::super::failpoints::crash_point;
use super::find::local;
use super::{Found, METADATA, SavepointError, find};

/// Deletes the savepoint at `path`: first `_metadata`, so that what is left after a crash is no savepoint.
///
/// # Errors
/// There is none, it cannot be read, or it is a checkpoint.
pub async fn delete(path: &str) -> Result<Found, SavepointError> {
    let found = find(path).await?;
    if !found.is_savepoint() {
        return Err(SavepointError::IsCheckpoint { path: found.path, job: found.manifest.job });
    }
    let storage = &found.files.storage;
    crash_point("savepoint::before-delete");
    storage.delete(METADATA).await?;
    for file in found.manifest.snapshot.files() {
        crash_point("savepoint::between-deletes");
        storage.delete(&file.path).await?;
    }
    if let Some(folder) = local(&found.path) {
        // Only what is empty by now: a folder with other files is not the savepoint's alone.
        let _left = std::fs::remove_dir(folder.join(found.manifest.attempt.to_string()));
        let _left = std::fs::remove_dir(folder);
    }
    Ok(found)
}
