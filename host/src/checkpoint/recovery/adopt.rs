//! A fork takes what it restores into a folder of its own, before it closes the log of the job that it replaces.
//!
//! That job may still be deleting older checkpoints while it learns that it was replaced, and a savepoint may be moved
//! or deleted at any time: from here on the fork depends on neither, also when it crashes and another run finishes it.
//! What cannot be read is refused while the old job still runs.
//!
//! ```text
//! {directory}/{fork}/shared/{generation}/restored-{n}   copies of the state files
//! {directory}/{fork}/restored/{attempt}                 the manifest with their paths, put when all are there
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::super::log::{JobLog, LogError};
use super::super::protocol::fork::StartFrom;
use super::super::protocol::{Attempt, ForkIntent, Generation, Manifest, Slot, StateFile, envelope, retain};
use super::{FilesAt, StartError, StartRequest};

/// The manifest that `intent` restores, with its state files in the fork's own folder; `None` for a fresh start.
pub(super) async fn restored(
    request: &StartRequest<'_>,
    own: &JobLog,
    generation: Generation,
    intent: &ForkIntent,
) -> Result<Option<Arc<Manifest>>, StartError> {
    let ForkIntent::Restore { attempt, .. } = intent else {
        return Ok(None);
    };
    let record = record_path(own, *attempt);
    if let Some(bytes) = own.storage().read(&record).await.map_err(LogError::from)? {
        return Ok(Some(decode(&record, &bytes)?));
    }
    let original = find(request, own, intent, *attempt).await?;
    let adopted = copy_files(request, own, generation, &original).await?;
    let bytes = Bytes::from(envelope::encode(&adopted).map_err(LogError::from)?);
    // Another run of this fork may have been faster; its copies are as good.
    let there = own.create_or_read(&record, &bytes).await?;
    Ok(Some(decode(&record, &there)?))
}

/// The manifest that `intent` restores and where its files are now, before anything is taken over; `None` for a fresh start.
pub(super) async fn candidate(
    request: &StartRequest<'_>,
    own: &JobLog,
    intent: &ForkIntent,
) -> Result<Option<(Arc<Manifest>, FilesAt)>, StartError> {
    let ForkIntent::Restore { attempt, .. } = intent else {
        return Ok(None);
    };
    let record = record_path(own, *attempt);
    if let Some(bytes) = own.storage().read(&record).await.map_err(LogError::from)? {
        return Ok(Some((decode(&record, &bytes)?, FilesAt::root(Arc::clone(own.storage())))));
    }
    Ok(Some((find(request, own, intent, *attempt).await?, files_of(request))))
}

/// Where the files of what is restored are, before the fork has copies.
fn files_of(request: &StartRequest<'_>) -> FilesAt {
    request.files.clone().unwrap_or_else(|| FilesAt::root(Arc::clone(&request.storage)))
}

/// The manifest with the paths of the copies.
fn record_path(own: &JobLog, attempt: Attempt) -> String {
    format!("{}/restored/{attempt}", own.job())
}

fn decode(path: &str, bytes: &[u8]) -> Result<Arc<Manifest>, StartError> {
    let manifest = envelope::decode(bytes).map_err(|damage| LogError::Damaged { path: path.to_owned(), damage })?;
    Ok(Arc::new(manifest))
}

/// The manifest where it was made, or as the caller read it.
async fn find(request: &StartRequest<'_>, own: &JobLog, intent: &ForkIntent, attempt: Attempt) -> Result<Arc<Manifest>, StartError> {
    if let StartFrom::Manifest { manifest, .. } = &request.from
        && manifest.attempt == attempt
    {
        return Ok(Arc::clone(manifest));
    }
    let ForkIntent::Restore { job, slot, path, .. } = intent else {
        return Err(StartError::RestoredGone { path: "nothing".to_owned() });
    };
    let entry = own.of(job.clone()).read_slot(*slot).await?;
    let manifest = entry.and_then(|entry| entry.content.ok()).filter(|manifest| manifest.attempt == attempt);
    manifest.ok_or_else(|| StartError::RestoredGone { path: path.clone() })
}

async fn copy_files(request: &StartRequest<'_>, own: &JobLog, generation: Generation, manifest: &Manifest) -> Result<Manifest, StartError> {
    let from = files_of(request);
    let folder = retain::state_folder(own.job(), generation);
    let mut adopted = manifest.clone();
    let mut copied: BTreeMap<String, String> = BTreeMap::new();
    for file in adopted.snapshot.files_mut() {
        let number = copied.len();
        let path = match copied.get(&file.path) {
            Some(path) => path.clone(),
            None => {
                let path = format!("{folder}/restored-{number}");
                let content = read_checked(&from, file, manifest.slot).await?;
                own.storage().write(&path, vec![content]).await.map_err(LogError::from)?;
                copied.insert(file.path.clone(), path.clone());
                path
            }
        };
        file.path = path;
    }
    Ok(adopted)
}

async fn read_checked(from: &FilesAt, file: &StateFile, slot: Slot) -> Result<Bytes, StartError> {
    let path = from.path(&file.path);
    let content = from.storage.read(&path).await.map_err(LogError::from)?;
    match (file.problem(content.as_ref()), content) {
        (None, Some(content)) => Ok(content),
        (problem, _) => Err(StartError::StateFile { path, slot, problem: problem.unwrap_or("is missing") }),
    }
}
