//! A fork takes the state files that it restores into a folder of its own.
//!
//! The job that it replaces may still be deleting older checkpoints while it learns that it was replaced, and a
//! savepoint may be moved or deleted at any time: from manifest 0 on the fork depends on neither.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::super::log::{JobLog, LogError};
use super::super::protocol::{Checksum, Generation, Manifest, StateFile, retain};
use super::{FilesAt, StartError, StartRequest};

/// The manifest with its state files copied, and checked, into the folder of this run.
pub(super) async fn adopt(
    request: &StartRequest<'_>,
    own: &JobLog,
    generation: Generation,
    manifest: &Manifest,
) -> Result<Arc<Manifest>, StartError> {
    let from = request.files.clone().unwrap_or_else(|| FilesAt { storage: Arc::clone(&request.storage), folder: String::new() });
    let folder = retain::state_folder(own.job(), generation);
    let mut adopted = manifest.clone();
    let mut copied: BTreeMap<String, String> = BTreeMap::new();
    for file in adopted.snapshot.files_mut() {
        let number = copied.len();
        let path = match copied.get(&file.path) {
            Some(path) => path.clone(),
            None => {
                let path = format!("{folder}/restored-{number}");
                let content = read_checked(&from, file).await?;
                own.storage().write(&path, vec![content]).await.map_err(LogError::from)?;
                copied.insert(file.path.clone(), path.clone());
                path
            }
        };
        file.path = path;
    }
    Ok(Arc::new(adopted))
}

async fn read_checked(from: &FilesAt, file: &StateFile) -> Result<Bytes, StartError> {
    let path = if from.folder.is_empty() { file.path.clone() } else { format!("{}/{}", from.folder.trim_end_matches('/'), file.path) };
    let content = from.storage.read(&path).await.map_err(LogError::from)?;
    let problem = match &content {
        None => "is missing",
        Some(content) if content.len() as u64 != file.bytes => "has the wrong length",
        Some(content) if Checksum::of(content) != file.checksum => "does not match its checksum",
        Some(content) => return Ok(content.clone()),
    };
    Err(StartError::StateFile { path, problem })
}
