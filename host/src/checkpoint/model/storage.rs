//! A simulated storage with the guarantees of the trait, and with everything that they leave open.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::super::participants::Environment;
use super::super::protocol::Attempt;
use super::super::storage::{CheckpointStorage, Created, Listed, StorageError, StorageErrorClass};
use super::world::{Late, Shared, step};

/// One process's way to the storage; also its clock and randomness.
#[derive(Clone, Debug)]
pub(super) struct SimStorage {
    pub(super) world: Shared,
    pub(super) process: usize,
}

impl SimStorage {
    fn unavailable(&self, operation: &'static str, path: &str) -> StorageError {
        StorageError {
            operation,
            path: path.to_owned(),
            storage: "the simulated storage".to_owned(),
            class: StorageErrorClass::Unavailable,
            source: "no answer".into(),
        }
    }

    /// A read or a write that fails and does nothing.
    fn fails(&self, operation: &'static str, path: &str) -> Result<(), StorageError> {
        let mut world = self.world.lock();
        if !world.fault(60, |budget| &mut budget.failed) {
            return Ok(());
        }
        world.note(|| format!("P{} {operation} {path}: fails", self.process));
        Err(self.unavailable(operation, path))
    }
}

#[async_trait]
impl CheckpointStorage for SimStorage {
    fn describe(&self) -> String {
        "the simulated storage".to_owned()
    }

    async fn create(&self, path: &str, content: Bytes) -> Result<Created, StorageError> {
        step().await;
        let result = {
            let mut world = self.world.lock();
            let taken = world.objects.contains_key(path);
            let lost = world.fault(12, |budget| &mut budget.lost);
            if lost && world.dice.one_in(2) {
                world.note(|| format!("P{} creates {path}: no answer, still under way", self.process));
                world.late.push(Late::Create(path.to_owned(), content));
                Err(self.unavailable("creating", path))
            } else {
                if !taken {
                    world.land(path, &content);
                }
                world.note(|| {
                    format!(
                        "P{} creates {path}: {}{}",
                        self.process,
                        if taken { "exists" } else { "done" },
                        if lost { ", answer lost" } else { "" }
                    )
                });
                match (lost, taken) {
                    (true, _) => Err(self.unavailable("creating", path)),
                    (false, true) => Ok(Created::AlreadyThere),
                    (false, false) => Ok(Created::Now),
                }
            }
        };
        step().await;
        result
    }

    async fn write(&self, path: &str, chunks: Vec<Bytes>) -> Result<(), StorageError> {
        step().await;
        self.fails("writing", path)?;
        self.world.lock().land(path, &Bytes::from(chunks.concat()));
        Ok(())
    }

    async fn read(&self, path: &str) -> Result<Option<Bytes>, StorageError> {
        step().await;
        self.fails("reading", path)?;
        let content = self.world.lock().objects.get(path).cloned();
        Ok(content)
    }

    async fn list(&self, folder: &str) -> Result<Vec<Listed>, StorageError> {
        step().await;
        self.fails("listing", folder)?;
        let world = self.world.lock();
        let prefix = format!("{folder}/");
        let inside = world.objects.iter().filter(|(path, _)| path.starts_with(&prefix));
        Ok(inside.map(|(path, content)| Listed { path: path.clone(), bytes: content.len() as u64 }).collect())
    }

    async fn folders(&self, folder: &str) -> Result<Vec<String>, StorageError> {
        step().await;
        self.fails("listing", folder)?;
        let world = self.world.lock();
        let prefix = format!("{folder}/");
        let mut names: Vec<String> =
            world.objects.keys().filter_map(|path| Some(path.strip_prefix(&prefix)?.split_once('/')?.0.to_owned())).collect();
        names.dedup();
        Ok(names)
    }

    async fn delete(&self, path: &str) -> Result<(), StorageError> {
        step().await;
        let mut world = self.world.lock();
        if world.fault(20, |budget| &mut budget.lost) {
            world.note(|| format!("P{} deletes {path}: no answer, still under way", self.process));
            world.late.push(Late::Delete(path.to_owned()));
            return Err(self.unavailable("deleting", path));
        }
        world.note(|| format!("P{} deletes {path}", self.process));
        if world.objects.remove(path).is_some() && path.contains("/chk-") {
            world.counts.deleted += 1;
        }
        Ok(())
    }
}

#[async_trait]
impl Environment for SimStorage {
    fn now_millis(&self) -> u64 {
        self.world.lock().steps
    }

    fn attempt(&self) -> Attempt {
        self.world.lock().attempt()
    }

    fn owner(&self) -> String {
        format!("P{}", self.process)
    }

    async fn sleep(&self, _: Duration) {
        step().await;
    }
}
