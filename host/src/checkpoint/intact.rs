//! Whether state files are as they were written.

use super::protocol::StateFile;
use super::storage::{CheckpointStorage, StorageError};
use std::collections::BTreeMap;

/// Reads state files and says what is wrong with them, each once: most belong to several checkpoints.
#[derive(Debug)]
pub(crate) struct FileProblems<'a> {
    storage: &'a dyn CheckpointStorage,
    known: BTreeMap<String, Option<&'static str>>,
}

impl<'a> FileProblems<'a> {
    pub(crate) fn new(storage: &'a dyn CheckpointStorage) -> Self {
        Self { storage, known: BTreeMap::new() }
    }

    /// What is wrong with a file, if something is.
    ///
    /// # Errors
    /// When it could not be read.
    pub(crate) async fn of(&mut self, file: &StateFile) -> Result<Option<&'static str>, StorageError> {
        if let Some(problem) = self.known.get(&file.path) {
            return Ok(*problem);
        }
        let content = self.storage.read(&file.path).await?;
        let problem = file.problem(content.as_ref());
        self.known.insert(file.path.clone(), problem);
        Ok(problem)
    }
}
