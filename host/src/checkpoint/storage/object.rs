//! A [`CheckpointStorage`] over any storage of the crate `object_store`, behind time-outs and retries.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt as _;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutPayload};

use super::{CheckpointStorage, Created, Listed, StorageError, StorageErrorClass};

/// How patient a storage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageOptions {
    /// How long one try may take. By default 30 s.
    pub request_timeout: Duration,
    /// How many tries a call gets that can be repeated safely (everything but `create`). By default 4.
    pub tries: u32,
    /// How long to wait before the second try; doubled for each one after it. By default 100 ms.
    pub first_backoff: Duration,
}

impl Default for StorageOptions {
    fn default() -> Self {
        Self { request_timeout: Duration::from_secs(30), tries: 4, first_backoff: Duration::from_millis(100) }
    }
}

/// An object storage below a prefix.
#[derive(Debug)]
pub struct ObjectStorage {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    described: String,
    /// For a local directory: its root, to make entries of directories durable after an ambiguous answer.
    directory: Option<PathBuf>,
    options: StorageOptions,
}

impl ObjectStorage {
    /// Wraps `store`; all paths are below `prefix`. `described` is what messages call it.
    #[must_use]
    pub fn new(store: Arc<dyn ObjectStore>, prefix: Path, described: impl Into<String>, options: StorageOptions) -> Self {
        Self { store, prefix, described: described.into(), directory: None, options }
    }

    /// A storage in a local directory, which `store` has as its root.
    pub(super) fn local(store: Arc<dyn ObjectStore>, directory: PathBuf, described: String, options: StorageOptions) -> Self {
        Self { store, prefix: Path::default(), described, directory: Some(directory), options }
    }

    fn location(&self, operation: &'static str, path: &str) -> Result<Path, StorageError> {
        let relative = Path::parse(path).map_err(|error| self.error(operation, path, StorageErrorClass::Refused, error.into()))?;
        Ok(self.prefix.parts().chain(relative.parts()).collect())
    }

    fn relative(&self, location: &Path) -> String {
        let rest = location.as_ref().strip_prefix(self.prefix.as_ref()).unwrap_or(location.as_ref());
        rest.trim_start_matches('/').to_owned()
    }

    fn error(
        &self,
        operation: &'static str,
        path: &str,
        class: StorageErrorClass,
        source: Box<dyn std::error::Error + Send + Sync>,
    ) -> StorageError {
        StorageError { operation, path: path.to_owned(), storage: self.described.clone(), class, source }
    }

    /// One try, with a time-out.
    async fn once<T: Send>(
        &self,
        operation: &'static str,
        path: &str,
        call: impl Future<Output = object_store::Result<T>> + Send,
    ) -> Result<object_store::Result<T>, StorageError> {
        let limit = self.options.request_timeout;
        tokio::time::timeout(limit, call).await.map_err(|_| {
            let message = format!("no answer within {}", humantime::format_duration(limit));
            self.error(operation, path, StorageErrorClass::Unavailable, message.into())
        })
    }

    /// As many tries as the options say, with growing pauses. Only for calls that may be repeated.
    async fn repeated<T: Send, F>(&self, operation: &'static str, path: &str, call: impl Fn() -> F + Send + Sync) -> Result<T, Failed>
    where
        F: Future<Output = object_store::Result<T>> + Send,
    {
        let mut pause = self.options.first_backoff;
        let mut tried = 1;
        loop {
            let failed = match self.once(operation, path, call()).await {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(object_store::Error::NotFound { .. })) => return Err(Failed::NotFound),
                Ok(Err(error)) => self.error(operation, path, class_of(&error), error.into()),
                Err(timed_out) => timed_out,
            };
            if failed.class == StorageErrorClass::Refused || tried >= self.options.tries {
                return Err(Failed::Error(failed));
            }
            tracing::debug!(storage = %self.described, path, tried, error = %failed, "a storage call is tried again");
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2);
            tried += 1;
        }
    }

    /// In a local directory: removes what a process that was killed while it wrote `path` left beside it. A put that
    /// is under way there fails and is tried again.
    async fn remove_unfinished(&self, path: &str) -> Result<(), StorageError> {
        let Some(root) = &self.directory else {
            return Ok(());
        };
        let file = root.join(path);
        let removed = tokio::task::spawn_blocking(move || remove_staged(&file)).await;
        let result = removed.map_err(std::io::Error::other).and_then(|removed| removed);
        result.map_err(|error| self.error("removing leftovers of", path, StorageErrorClass::Unavailable, error.into()))
    }

    /// Makes the directory entry of `path` durable: what an earlier call linked and did not sync counts only then.
    async fn sync_directory(&self, path: &str) -> Result<(), StorageError> {
        let Some(root) = &self.directory else {
            return Ok(());
        };
        let Some(parent) = root.join(path).parent().map(std::path::Path::to_path_buf) else {
            return Ok(());
        };
        let synced = tokio::task::spawn_blocking(move || match std::fs::File::open(&parent) {
            Ok(directory) => directory.sync_all(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        });
        let result = synced.await.map_err(std::io::Error::other).and_then(|synced| synced);
        result.map_err(|error| self.error("syncing the folder of", path, StorageErrorClass::Unavailable, error.into()))
    }
}

/// Removes files named like `file` with a `#` behind.
fn remove_staged(file: &std::path::Path) -> std::io::Result<()> {
    let (Some(folder), Some(name)) = (file.parent(), file.file_name().and_then(|name| name.to_str())) else {
        return Ok(());
    };
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    let prefix = format!("{name}#");
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)) {
            match std::fs::remove_file(entry.path()) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

enum Failed {
    NotFound,
    Error(StorageError),
}

fn class_of(error: &object_store::Error) -> StorageErrorClass {
    use object_store::Error;
    match error {
        Error::InvalidPath { .. }
        | Error::NotSupported { .. }
        | Error::NotImplemented { .. }
        | Error::PermissionDenied { .. }
        | Error::Unauthenticated { .. }
        | Error::UnknownConfigurationKey { .. } => StorageErrorClass::Refused,
        _ => StorageErrorClass::Unavailable,
    }
}

#[async_trait]
impl CheckpointStorage for ObjectStorage {
    fn describe(&self) -> String {
        self.described.clone()
    }

    async fn create(&self, path: &str, content: Bytes) -> Result<Created, StorageError> {
        let operation = "creating";
        let location = self.location(operation, path)?;
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let call = self.store.put_opts(&location, PutPayload::from_bytes(content), options);
        match self.once(operation, path, call).await? {
            Ok(_) => Ok(Created::Now),
            // Some storages answer a lost race as a failed precondition.
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                self.sync_directory(path).await?;
                Ok(Created::AlreadyThere)
            }
            Err(error) => Err(self.error(operation, path, class_of(&error), error.into())),
        }
    }

    async fn write(&self, path: &str, chunks: Vec<Bytes>) -> Result<(), StorageError> {
        let operation = "writing";
        let location = self.location(operation, path)?;
        let payload: PutPayload = chunks.into_iter().collect();
        let call = || self.store.put_opts(&location, payload.clone(), PutOptions::default());
        match self.repeated(operation, path, call).await {
            Ok(_) => Ok(()),
            Err(Failed::Error(error)) => Err(error),
            Err(Failed::NotFound) => Err(self.error(operation, path, StorageErrorClass::Unavailable, "its folder went away".into())),
        }
    }

    async fn read(&self, path: &str) -> Result<Option<Bytes>, StorageError> {
        let operation = "reading";
        let location = self.location(operation, path)?;
        let call = || async { self.store.get(&location).await?.bytes().await };
        match self.repeated(operation, path, call).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Failed::NotFound) => Ok(None),
            Err(Failed::Error(error)) => Err(error),
        }
    }

    async fn list(&self, folder: &str) -> Result<Vec<Listed>, StorageError> {
        let operation = "listing";
        let location = self.location(operation, folder)?;
        let call = || async { self.store.list(Some(&location)).try_collect::<Vec<_>>().await };
        let found = match self.repeated(operation, folder, call).await {
            Ok(found) => found,
            Err(Failed::NotFound) => Vec::new(),
            Err(Failed::Error(error)) => return Err(error),
        };
        let mut listed: Vec<Listed> =
            found.into_iter().map(|meta| Listed { path: self.relative(&meta.location), bytes: meta.size }).collect();
        listed.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(listed)
    }

    async fn folders(&self, folder: &str) -> Result<Vec<String>, StorageError> {
        let operation = "listing";
        let location = self.location(operation, folder)?;
        let call = || self.store.list_with_delimiter(Some(&location));
        let found = match self.repeated(operation, folder, call).await {
            Ok(found) => found.common_prefixes,
            Err(Failed::NotFound) => Vec::new(),
            Err(Failed::Error(error)) => return Err(error),
        };
        let mut names: Vec<String> = found.iter().filter_map(|path| path.filename().map(str::to_owned)).collect();
        names.sort();
        Ok(names)
    }

    async fn delete(&self, path: &str) -> Result<(), StorageError> {
        let operation = "deleting";
        let location = self.location(operation, path)?;
        self.remove_unfinished(path).await?;
        match self.repeated(operation, path, || self.store.delete(&location)).await {
            Ok(()) | Err(Failed::NotFound) => Ok(()),
            Err(Failed::Error(error)) => Err(error),
        }
    }
}
