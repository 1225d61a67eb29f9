//! Finds a savepoint or a checkpoint by its path, and tells which it is.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::super::protocol::{Manifest, ManifestKind, OperatorState, StateFile, envelope};
use super::super::storage::{self, CheckpointStorage, FilesAt, StorageOptions};
use super::make::read_checked;
use super::{METADATA, SavepointError};

/// A savepoint or a checkpoint.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its path, as a person wrote it.
    pub path: String,
    /// What it says. The paths of its files are relative to `files`.
    pub manifest: Manifest,
    /// Where its files are.
    pub files: FilesAt,
}

impl Found {
    /// Whether it is a savepoint.
    #[must_use]
    pub fn is_savepoint(&self) -> bool {
        matches!(self.manifest.kind, ManifestKind::Savepoint { .. })
    }

    /// Reads a state file and checks that it is as it was written.
    ///
    /// # Errors
    /// It cannot be read, is missing or was changed.
    pub async fn read(&self, file: &StateFile) -> Result<Bytes, SavepointError> {
        read_checked(&self.files, file).await
    }

    /// The files of each subtask of an operator, under names for messages.
    ///
    /// # Errors
    /// See [`Found::read`].
    pub async fn chains(&self, operator: &OperatorState) -> Result<Vec<Vec<(String, Bytes)>>, SavepointError> {
        let mut chains = Vec::with_capacity(operator.subtasks.len());
        for subtask in operator.subtasks.values() {
            let mut chain = Vec::with_capacity(subtask.chain.len());
            for file in &subtask.chain {
                chain.push((self.files.describe(&file.path), self.read(file).await?));
            }
            chains.push(chain);
        }
        Ok(chains)
    }

    /// How many key groups its keys are dealt to.
    #[must_use]
    pub fn max_parallelism(&self) -> u16 {
        match u16::try_from(self.manifest.snapshot.plan.max_parallelism) {
            Ok(0) | Err(_) => 128,
            Ok(groups) => groups,
        }
    }
}

/// Finds the savepoint in a folder, or the checkpoint: `{dir}/{job}/chk-{number}`, whose files are below `{dir}/{job}`. Nothing is written.
///
/// # Errors
/// There is neither, or it is damaged.
pub async fn find(path: &str) -> Result<Found, SavepointError> {
    let trimmed = trim(path);
    let not_there = || SavepointError::NotThere { path: trimmed.to_owned() };
    // Looking makes no folder.
    if !local(trimmed).is_none_or(|folder| folder.join(METADATA).is_file()) {
        return Err(not_there());
    }
    let own = storage::open_to_read(trimmed, StorageOptions::default())?;
    let bytes = own.read(METADATA).await?.ok_or_else(not_there)?;
    let manifest = envelope::decode(&bytes).map_err(|damage| SavepointError::Damaged { path: trimmed.to_owned(), damage })?;
    if matches!(manifest.kind, ManifestKind::Savepoint { .. }) {
        return Ok(Found { path: trimmed.to_owned(), manifest, files: FilesAt::root(own) });
    }
    checkpoint(trimmed, manifest)
}

/// A checkpoint's files are beside it, also when the job's folder was copied to one of another name.
fn checkpoint(path: &str, mut manifest: Manifest) -> Result<Found, SavepointError> {
    let mut parts = path.rsplitn(3, '/').skip(1);
    let job = parts.next().filter(|job| !job.is_empty()).ok_or_else(|| SavepointError::NotThere { path: path.to_owned() })?;
    let root = match parts.next() {
        None => ".",
        Some("") => "/",
        Some(root) => root,
    };
    let storage: Arc<dyn CheckpointStorage> = storage::open_to_read(root, StorageOptions::default())?;
    let of = manifest.job.clone();
    for file in manifest.snapshot.files_mut() {
        if let Some(name) = file.path.strip_prefix(of.as_str()).and_then(|rest| rest.strip_prefix('/')) {
            file.path = format!("{job}/{name}");
        }
    }
    Ok(Found { path: path.to_owned(), manifest, files: FilesAt::root(storage) })
}

/// The savepoints in a folder, or the one that the folder is; also those whose manifest is damaged, by path.
///
/// # Errors
/// The folder is not there, or cannot be read.
pub async fn list(dir: &str) -> Result<Vec<Result<Found, SavepointError>>, SavepointError> {
    let trimmed = trim(dir);
    if !local(trimmed).is_none_or(Path::is_dir) {
        return Err(SavepointError::NotThere { path: trimmed.to_owned() });
    }
    let storage = storage::open_to_read(trimmed, StorageOptions::default())?;
    let mut paths = Vec::new();
    if storage.read(METADATA).await?.is_some() {
        paths.push(trimmed.to_owned());
    }
    for folder in storage.folders("").await? {
        if storage.read(&format!("{folder}/{METADATA}")).await?.is_some() {
            paths.push(format!("{trimmed}/{folder}"));
        }
    }
    let mut found = Vec::with_capacity(paths.len());
    for path in paths {
        found.push(find(&path).await);
    }
    Ok(found)
}

fn trim(path: &str) -> &str {
    let trimmed = path.trim_end_matches('/');
    let trimmed = trimmed.strip_suffix("/_metadata").unwrap_or(trimmed).trim_end_matches('/');
    if trimmed.is_empty() { path } else { trimmed }
}

/// The folder of a path on this machine.
pub(super) fn local(path: &str) -> Option<&Path> {
    match path.strip_prefix("file://") {
        Some(local) if local.starts_with('/') => Some(Path::new(local)),
        None if !path.contains("://") => Some(Path::new(path)),
        _ => None,
    }
}
