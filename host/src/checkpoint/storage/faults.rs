//! A storage that fails on demand, for tests: it fails, stalls, is full, loses answers, and lets puts arrive late.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::{CheckpointStorage, Created, Listed, StorageError, StorageErrorClass};

/// The calls of a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// [`CheckpointStorage::create`].
    Create,
    /// [`CheckpointStorage::write`].
    Write,
    /// [`CheckpointStorage::read`].
    Read,
    /// [`CheckpointStorage::list`] and [`CheckpointStorage::folders`].
    List,
    /// [`CheckpointStorage::delete`].
    Delete,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing happens, and the answer says that it may work later.
    Fail,
    /// Nothing happens, because there is no permission.
    Deny,
    /// Nothing happens, because there is no space.
    Full,
    /// The call happens after this time.
    Stall(Duration),
    /// The call happens, and its answer is lost.
    LoseAnswer,
    /// The answer is lost at once; a create or a write happens after this time.
    Late(Duration),
    /// A create ignores its condition (a storage that must be refused).
    Overwrite,
}

/// When something goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Which call.
    pub operation: Operation,
    /// Only for paths that contain this.
    pub path_contains: String,
    /// How many matching calls pass before.
    pub after: u32,
    /// How many matching calls go wrong then.
    pub times: u32,
    /// What goes wrong.
    pub fault: Fault,
}

impl Rule {
    /// The next matching call goes wrong.
    #[must_use]
    pub fn once(operation: Operation, path_contains: &str, fault: Fault) -> Self {
        Self { operation, path_contains: path_contains.to_owned(), after: 0, times: 1, fault }
    }

    /// Every matching call goes wrong.
    #[must_use]
    pub fn always(operation: Operation, path_contains: &str, fault: Fault) -> Self {
        Self { times: u32::MAX, ..Self::once(operation, path_contains, fault) }
    }
}

/// A storage around another one.
#[derive(Debug)]
pub struct FaultyStorage {
    inner: Arc<dyn CheckpointStorage>,
    rules: Mutex<Vec<Rule>>,
}

impl FaultyStorage {
    /// Without rules it does what `inner` does.
    #[must_use]
    pub fn new(inner: Arc<dyn CheckpointStorage>) -> Self {
        Self { inner, rules: Mutex::default() }
    }

    /// Adds a rule. The first one that matches a call counts.
    pub fn inject(&self, rule: Rule) {
        self.lock().push(rule);
    }

    /// Removes all rules.
    pub fn heal(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault(&self, operation: Operation, path: &str) -> Option<Fault> {
        let mut rules = self.lock();
        let matches = |rule: &&mut Rule| rule.operation == operation && rule.times > 0 && path.contains(&rule.path_contains);
        let rule = rules.iter_mut().find(matches)?;
        if rule.after > 0 {
            rule.after -= 1;
            return None;
        }
        rule.times = if rule.times == u32::MAX { u32::MAX } else { rule.times - 1 };
        Some(rule.fault)
    }

    fn error(&self, path: &str, class: StorageErrorClass, source: std::io::Error) -> StorageError {
        StorageError { operation: "calling for", path: path.to_owned(), storage: self.describe(), class, source: source.into() }
    }

    fn no_answer(&self, path: &str) -> StorageError {
        self.error(path, StorageErrorClass::Unavailable, std::io::Error::other("an injected fault: no answer"))
    }

    /// What a fault does to any call: `Ok(true)` – make the call and then lose its answer.
    async fn before(&self, fault: Option<Fault>, path: &str) -> Result<bool, StorageError> {
        match fault {
            None | Some(Fault::Overwrite) => Ok(false),
            Some(Fault::LoseAnswer) => Ok(true),
            Some(Fault::Stall(time)) => {
                tokio::time::sleep(time).await;
                Ok(false)
            }
            Some(Fault::Fail | Fault::Late(_)) => Err(self.no_answer(path)),
            Some(Fault::Deny) => {
                Err(self.error(path, StorageErrorClass::Refused, std::io::Error::from(std::io::ErrorKind::PermissionDenied)))
            }
            Some(Fault::Full) => {
                Err(self.error(path, StorageErrorClass::Unavailable, std::io::Error::from(std::io::ErrorKind::StorageFull)))
            }
        }
    }

    fn answer<T>(&self, lost: bool, path: &str, result: Result<T, StorageError>) -> Result<T, StorageError> {
        if lost { result.and(Err(self.no_answer(path))) } else { result }
    }
}

#[async_trait]
impl CheckpointStorage for FaultyStorage {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    async fn create(&self, path: &str, content: Bytes) -> Result<Created, StorageError> {
        let fault = self.fault(Operation::Create, path);
        if let Some(Fault::Late(time)) = fault {
            let (inner, late, content) = (Arc::clone(&self.inner), path.to_owned(), content.clone());
            tokio::spawn(async move {
                tokio::time::sleep(time).await;
                let arrived = inner.create(&late, content).await;
                tracing::debug!(path = late, ?arrived, "a late create arrived");
            });
        }
        let lost = self.before(fault, path).await?;
        if fault == Some(Fault::Overwrite) {
            self.inner.write(path, vec![content]).await?;
            return Ok(Created::Now);
        }
        let created = self.inner.create(path, content).await;
        self.answer(lost, path, created)
    }

    async fn write(&self, path: &str, chunks: Vec<Bytes>) -> Result<(), StorageError> {
        let fault = self.fault(Operation::Write, path);
        if let Some(Fault::Late(time)) = fault {
            let (inner, late, chunks) = (Arc::clone(&self.inner), path.to_owned(), chunks.clone());
            tokio::spawn(async move {
                tokio::time::sleep(time).await;
                let arrived = inner.write(&late, chunks).await;
                tracing::debug!(path = late, ?arrived, "a late write arrived");
            });
        }
        let lost = self.before(fault, path).await?;
        let written = self.inner.write(path, chunks).await;
        self.answer(lost, path, written)
    }

    async fn read(&self, path: &str) -> Result<Option<Bytes>, StorageError> {
        let lost = self.before(self.fault(Operation::Read, path), path).await?;
        let read = self.inner.read(path).await;
        self.answer(lost, path, read)
    }

    async fn list(&self, folder: &str) -> Result<Vec<Listed>, StorageError> {
        let lost = self.before(self.fault(Operation::List, folder), folder).await?;
        let listed = self.inner.list(folder).await;
        self.answer(lost, folder, listed)
    }

    async fn folders(&self, folder: &str) -> Result<Vec<String>, StorageError> {
        let lost = self.before(self.fault(Operation::List, folder), folder).await?;
        let folders = self.inner.folders(folder).await;
        self.answer(lost, folder, folders)
    }

    async fn delete(&self, path: &str) -> Result<(), StorageError> {
        let lost = self.before(self.fault(Operation::Delete, path), path).await?;
        let deleted = self.inner.delete(path).await;
        self.answer(lost, path, deleted)
    }
}
