//! Where checkpoints live: a small trait over object storage, and nothing that decides.
//!
//! Reading order: [`CheckpointStorage`] (what the protocol needs from a storage) → [`ObjectStorage`] (any
//! storage that the crate `object_store` reaches, behind time-outs) → [`open()`] (from a URL or a path, probed).
//! With feature `testing`: `conformance` (the suite that every implementation runs) and `faults` (a storage that
//! fails on demand).

#[cfg(any(test, feature = "testing"))]
pub mod conformance;
#[cfg(any(test, feature = "testing"))]
pub mod faults;
mod object;
mod open;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

pub use object::{ObjectStorage, StorageOptions};
pub use open::{OpenError, is_ephemeral, open, open_to_read};

/// What a create-if-absent found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Created {
    /// This call made the object: it is durable, and no other call ever made it.
    Now,
    /// Something is there. It may be what an earlier try of the same call wrote: read it back.
    AlreadyThere,
}

/// One object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its path from the storage's root, segments separated by `/`.
    pub path: String,
    /// Its length.
    pub bytes: u64,
}

/// Why a storage did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {path} in {storage} failed: {source}")]
pub struct StorageError {
    /// What was tried: `reading`, `creating`, …
    pub operation: &'static str,
    /// The object.
    pub path: String,
    /// The storage, as a person wrote it.
    pub storage: String,
    /// Whether it may work later.
    pub class: StorageErrorClass,
    /// The cause.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// What a failure says about what happened and about the next try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageErrorClass {
    /// Try again. A write that failed like this may have happened, or may still happen later.
    Unavailable,
    /// Trying again will not help: no permission, an invalid path, a setting. Nothing was written.
    Refused,
}

/// A place for checkpoints.
///
/// An implementation must give these guarantees, which `conformance` checks:
/// 1. **Read after write**: what a completed call wrote or deleted is what every later `get` and `list` sees,
///    from any process.
/// 2. **Atomic create**: of any number of concurrent [`create`](Self::create) calls for one path, exactly one
///    answers [`Created::Now`]; its content is there whole or not at all, never in part, also after a crash.
/// 3. **Durability**: when a call answers, its effect survives a crash of machine and process (except in a
///    storage that says of itself that it is ephemeral).
/// 4. A write whose answer is an error of class [`Unavailable`](StorageErrorClass::Unavailable) may have
///    happened, or happen later: the protocol is built for that.
///
/// No call here decides anything, and none tries a `create` a second time by itself.
#[async_trait]
pub trait CheckpointStorage: fmt::Debug + Send + Sync {
    /// The storage as a person would write it, for messages.
    fn describe(&self) -> String;

    /// Makes the object if nothing stands at `path`; never overwrites.
    ///
    /// # Errors
    /// See [`StorageErrorClass`]: after `Unavailable` the outcome is unknown.
    async fn create(&self, path: &str, content: Bytes) -> Result<Created, StorageError>;

    /// Writes the object whole, replacing what may be there. For state files, whose names are never used twice.
    ///
    /// # Errors
    /// When it could not be written.
    async fn write(&self, path: &str, chunks: Vec<Bytes>) -> Result<(), StorageError>;

    /// The whole object; `None` when there is none.
    ///
    /// # Errors
    /// When it could not be read.
    async fn read(&self, path: &str) -> Result<Option<Bytes>, StorageError>;

    /// Every object below the folder `folder` at any depth, sorted by path. The listing is not a snapshot:
    /// objects that come or go while it runs may or may not be in it.
    ///
    /// # Errors
    /// When it could not be listed.
    async fn list(&self, folder: &str) -> Result<Vec<Listed>, StorageError>;

    /// The names of the folders directly in `folder`, sorted. One that is empty by now may still be named.
    ///
    /// # Errors
    /// When they could not be listed.
    async fn folders(&self, folder: &str) -> Result<Vec<String>, StorageError>;

    /// Deletes the object. That there is none is no error.
    ///
    /// # Errors
    /// When it could not be deleted.
    async fn delete(&self, path: &str) -> Result<(), StorageError>;
}

/// A folder that the paths of state files in a manifest are relative to.
#[derive(Clone, Debug)]
pub struct FilesAt {
    /// The storage.
    pub storage: Arc<dyn CheckpointStorage>,
    /// The folder in it; empty for its root.
    pub folder: String,
}

impl FilesAt {
    /// The root of a storage.
    #[must_use]
    pub fn root(storage: Arc<dyn CheckpointStorage>) -> Self {
        Self { storage, folder: String::new() }
    }

    /// Where a file stands in the storage.
    #[must_use]
    pub fn path(&self, file: &str) -> String {
        if self.folder.is_empty() { file.to_owned() } else { format!("{}/{file}", self.folder.trim_end_matches('/')) }
    }

    /// A file as a person would write it, for messages.
    #[must_use]
    pub fn describe(&self, file: &str) -> String {
        format!("{}/{}", self.storage.describe().trim_end_matches('/'), self.path(file))
    }
}
