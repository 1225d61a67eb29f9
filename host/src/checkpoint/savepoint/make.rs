//! Makes a savepoint of a checkpoint: folds each subtask's files, and puts the manifest last.

use std::sync::Arc;

use bytes::Bytes;

use super::super::failpoints::crash_point;
use super::super::log::{JobLog, LogError, Resolved, create_resolved};
use super::super::participants::System;
use super::super::protocol::{Checksum, KeyGroupRange, Manifest, ManifestKind, Slot, StateFile, StateFileKind, SubtaskState, envelope};
use super::super::storage::{self, CheckpointStorage, FilesAt, StorageOptions};
use super::{METADATA, SavepointError, choose};
use crate::state::merge;

/// How often the log is read again because files were deleted while they were read.
const TRIES: u32 = 8;

/// Where a savepoint is to be. What ends with `/` is the folder that it gets a folder of its own in, `savepoint-{job}-{checkpoint}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target(String);

impl Target {
    /// What a person wrote; without it the folder that the job keeps its savepoints in.
    ///
    /// # Errors
    /// Neither says where, or it would be in memory.
    pub fn new(written: Option<&str>, savepoint_dir: Option<&str>) -> Result<Self, SavepointError> {
        let path = match (written.filter(|path| !path.is_empty()), savepoint_dir) {
            (Some(path), _) => path.to_owned(),
            (None, Some(dir)) => format!("{}/", dir.trim_end_matches('/')),
            (None, None) => return Err(SavepointError::NoPlace),
        };
        if storage::is_ephemeral(&path) { Err(SavepointError::InMemory { path }) } else { Ok(Self(path)) }
    }

    /// The text, from which [`Target::new`] makes the same.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The folder of the savepoint of a checkpoint.
    #[must_use]
    pub fn folder(&self, manifest: &Manifest) -> String {
        if self.0.ends_with('/') { format!("{}savepoint-{}-{}", self.0, manifest.job, manifest.slot) } else { self.0.clone() }
    }

    /// Makes sure that a savepoint can be made here, as far as that can be known before.
    ///
    /// # Errors
    /// The place cannot be written to, or has a savepoint already.
    pub async fn check(&self) -> Result<(), SavepointError> {
        let storage = open(&self.0).await?;
        match existing(&storage, &self.0).await? {
            Some(there) if !self.0.ends_with('/') => Err(SavepointError::Exists { path: self.0.clone(), job: there.job }),
            _ => Ok(()),
        }
    }
}

async fn open(path: &str) -> Result<Arc<dyn CheckpointStorage>, SavepointError> {
    Ok(storage::open(path, StorageOptions::default()).await?)
}

/// The savepoint that is there already.
async fn existing(storage: &Arc<dyn CheckpointStorage>, path: &str) -> Result<Option<Manifest>, SavepointError> {
    let Some(bytes) = storage.read(METADATA).await? else { return Ok(None) };
    envelope::decode(&bytes).map(Some).map_err(|damage| SavepointError::Damaged { path: path.to_owned(), damage })
}

/// Makes a savepoint of the newest checkpoint that counts, or of one by its number; beside the running job or without it. The path of its folder.
///
/// Retention may delete files while they are read: then the log is read again, and a newer checkpoint is taken.
///
/// # Errors
/// See [`SavepointError`]. What was written is then deleted again, if it can be.
pub async fn make_of_log(log: &JobLog, slot: Option<Slot>, target: &Target) -> Result<(String, Manifest), SavepointError> {
    let mut last = None;
    for _ in 0..TRIES {
        let view = log.read().await?;
        let manifest = match slot {
            Some(slot) => choose::of_slot(&view, slot)?,
            None => choose::newest(&view)?,
        };
        match make(manifest, &FilesAt::root(Arc::clone(log.storage())), target).await {
            // The same files are not there twice: that is damage, not retention.
            Err(error) if error.is_missing_file() && last != Some(manifest.attempt) => last = Some(manifest.attempt),
            made => return made,
        }
    }
    Err(choose::NoChoice::NotCommitted { job: log.job().clone() }.into())
}

/// Makes a savepoint of the entry in a slot of which the caller knows that it counts.
///
/// # Errors
/// See [`SavepointError`].
pub async fn make_of_slot(log: &JobLog, slot: Slot, target: &Target) -> Result<(String, Manifest), SavepointError> {
    let nothing = || choose::NoChoice::NoSuch { job: log.job().clone(), slot, present: "not that one".to_owned() };
    let entry = log.read_slot(slot).await?.ok_or_else(nothing)?;
    let manifest = entry.content.map_err(|damage| choose::NoChoice::Damaged { path: entry.path, damage })?;
    make(&manifest, &FilesAt::root(Arc::clone(log.storage())), target).await
}

/// Makes a savepoint of a checkpoint whose state files are at `files`; the path of its folder, and its manifest.
///
/// It may be called again after a crash: the same checkpoint gives the same savepoint. Dropping the future leaves files without a manifest,
/// which are no savepoint.
///
/// # Errors
/// See [`SavepointError`]. What was written is then deleted again, if it can be.
pub async fn make(checkpoint: &Manifest, files: &FilesAt, target: &Target) -> Result<(String, Manifest), SavepointError> {
    let path = target.folder(checkpoint);
    if !checkpoint.snapshot.in_flight.is_empty() {
        return Err(SavepointError::InFlight { job: checkpoint.job.clone(), slot: checkpoint.slot });
    }
    let storage = open(&path).await?;
    if let Some(there) = existing(&storage, &path).await? {
        let same = there.attempt == checkpoint.attempt;
        return if same { Ok((path, there)) } else { Err(SavepointError::Exists { path, job: there.job }) };
    }
    let mut written = Vec::new();
    let made = fill(checkpoint, files, &storage, &path, &mut written).await;
    if made.is_err() {
        for file in written {
            // Without a manifest they are no savepoint, and only cost space.
            let _left = storage.delete(&file).await;
        }
    }
    made.map(|manifest| (path, manifest))
}

async fn fill(
    checkpoint: &Manifest,
    files: &FilesAt,
    storage: &Arc<dyn CheckpointStorage>,
    path: &str,
    written: &mut Vec<String>,
) -> Result<Manifest, SavepointError> {
    crash_point("savepoint::before-files");
    let mut manifest = checkpoint.clone();
    let mut bytes = 0;
    for (uid, operator) in &mut manifest.snapshot.operators {
        for (index, subtask) in &mut operator.subtasks {
            let Some((key_groups, content)) = folded(subtask, files).await? else { continue };
            let name = format!("{}/{uid}-{index}.state", checkpoint.attempt);
            written.push(name.clone());
            let file = write_base(storage, name, key_groups, content).await?;
            bytes += file.bytes;
            subtask.chain = vec![file];
            crash_point("savepoint::after-file");
        }
    }
    manifest.kind = ManifestKind::Savepoint { bootstrap: false };
    manifest.uploaded_bytes = bytes;
    manifest.snapshot.prepared.clear();
    manifest.snapshot.transactional_ids.clear();
    manifest.snapshot.pending_stop = None;
    crash_point("savepoint::before-manifest");
    put(storage, path, &manifest).await?;
    crash_point("savepoint::after-manifest");
    Ok(manifest)
}

/// Puts the manifest: from here on the folder is a savepoint.
pub(super) async fn put(storage: &Arc<dyn CheckpointStorage>, path: &str, manifest: &Manifest) -> Result<(), SavepointError> {
    let content = Bytes::from(envelope::encode(manifest).map_err(LogError::from)?);
    match create_resolved(&**storage, &System, METADATA, &content).await? {
        Resolved::Ours => Ok(()),
        Resolved::Theirs(there) => {
            let there = envelope::decode(&there).map_err(|damage| SavepointError::Damaged { path: path.to_owned(), damage })?;
            // Two who make the same savepoint write the same.
            if there.attempt == manifest.attempt { Ok(()) } else { Err(SavepointError::Exists { path: path.to_owned(), job: there.job }) }
        }
    }
}

pub(super) async fn write_base(
    storage: &Arc<dyn CheckpointStorage>,
    path: String,
    key_groups: KeyGroupRange,
    content: Bytes,
) -> Result<StateFile, SavepointError> {
    let (bytes, checksum) = (content.len() as u64, Checksum::of(&content));
    storage.write(&path, vec![content]).await?;
    Ok(StateFile { path, kind: StateFileKind::Base, bytes, checksum, key_groups })
}

/// The files of a subtask as one; none where it has no state.
async fn folded(subtask: &SubtaskState, files: &FilesAt) -> Result<Option<(KeyGroupRange, Bytes)>, SavepointError> {
    let ranges = subtask.chain.iter().map(|file| file.key_groups);
    let Some(range) = ranges.reduce(|a, b| KeyGroupRange { first: a.first.min(b.first), last: a.last.max(b.last) }) else {
        return Ok(None);
    };
    let mut chain = Vec::with_capacity(subtask.chain.len());
    for file in &subtask.chain {
        chain.push((files.describe(&file.path), read_checked(files, file).await?));
    }
    // Folding computes: it must not hold up the job beside it.
    let merged = match tokio::task::spawn_blocking(move || merge(chain)).await {
        Ok(merged) => merged.map_err(|(path, damage)| SavepointError::StateFile { path, damage })?,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_the_runtime_stops) => std::future::pending().await,
        },
    };
    Ok(Some((range, merged)))
}

/// Reads a state file and checks that it is as it was written.
pub(super) async fn read_checked(files: &FilesAt, file: &StateFile) -> Result<Bytes, SavepointError> {
    let content = files.storage.read(&files.path(&file.path)).await?;
    match (file.problem(content.as_ref()), content) {
        (None, Some(content)) => Ok(content),
        (problem, _) => Err(SavepointError::File { path: files.describe(&file.path), problem: problem.unwrap_or("is missing") }),
    }
}
