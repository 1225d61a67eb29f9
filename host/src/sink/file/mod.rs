//! Files in a folder. Exactly-once: what a checkpoint holds becomes visible when it is completed, and never before.
//!
//! The life of a file: hidden as `.{name}.in-progress` while it is written; at the barrier complete, synced and renamed to `.{name}.pending`,
//! and its entry in the folder synced; at the commit renamed to `{name}`, in one step and never over another file, and the folder synced again.
//! After a crash at any point one of three things is there: a file in progress or a pending one that no manifest names, which
//! [`TwoPhaseSink::clean_up`] deletes; a pending one that a manifest names, which is committed; a visible one, which is found by its length
//! and checksum. A commit that finds neither pending nor visible file is an error with the file's name.
//!
//! A file never spans checkpoints: each subtask leaves one file a partition for each checkpoint that has records, more where they roll by size
//! or time or where more partitions are written than may be open at once. How soon records are visible, and how large files become, is thus
//! decided by the interval of checkpoints.
//!
//! At-least-once does the same without the pending state: files become visible at the barrier, or when they roll; after a crash the records since
//! the last checkpoint are written again, to other files.

mod disk;
mod folder;
mod name;
mod options;
mod part;
mod partition;
mod prepared;
mod writer;

pub use options::{Compression, FileOptions};
pub use partition::PartitionBy;

use super::{Guarantee, Sink, SinkType, SinkWriter, TwoPhaseSink, WriterContext};
use crate::Error;
use crate::config::Fault;
use async_trait::async_trait;
use options::{Settings, check_name_length};
use prepared::{Leftovers, Prepared};
use serde_json::Value;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use tokio::task::spawn_blocking;
use writer::FileWriter;

/// The sink type `file`.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileType;

impl SinkType for FileType {
    fn name(&self) -> &str {
        "file"
    }

    fn options_schema(&self) -> schemars::Schema {
        schemars::schema_for!(FileOptions)
    }

    fn guarantees(&self) -> &[Guarantee] {
        &[Guarantee::AtLeastOnce, Guarantee::ExactlyOnce]
    }

    fn promise(&self) -> &str {
        "file can be at-least-once (files become visible at each barrier) or exactly-once (files are written hidden, synced at the barrier, and \
         renamed once the checkpoint is durable)"
    }

    fn create(&self, uid: &str, options: &Value, guarantee: Guarantee) -> Result<Arc<dyn Sink>, Vec<Fault>> {
        let settings = Settings::parse(uid, options)?;
        Ok(Arc::new(FileSink { uid: uid.to_owned(), settings, guarantee, began: Mutex::default() }))
    }
}

/// Files in a folder.
#[derive(Debug)]
struct FileSink {
    uid: String,
    settings: Settings,
    guarantee: Guarantee,
    /// When the last start of the job began, by the clock of the folder's file system.
    began: Mutex<Option<SystemTime>>,
}

impl FileSink {
    fn began(&self) -> Option<SystemTime> {
        *self.began.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs on a thread that may block.
async fn blocking<T: Send + 'static>(run: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    spawn_blocking(run).await.map_err(|error| Error::internal("work on files did not end").caused_by(error))?
}

#[async_trait]
impl Sink for FileSink {
    async fn open(&self, context: WriterContext) -> Result<Box<dyn SinkWriter>, Error> {
        let uid = &self.uid;
        if context.uid != *uid {
            // Its files would be nobody's at the next clean-up.
            return Err(Error::internal(format!("a writer was opened for {} of a sink that was made for {uid}", context.uid)));
        }
        check_name_length(&context.job, uid, &self.settings.extension).map_err(Error::user)?;
        let root = self.settings.root.clone();
        // Pending files of an exactly-once run stay: a manifest may name them.
        let leftovers = (self.guarantee != Guarantee::ExactlyOnce && context.subtask == 0).then(|| Leftovers {
            uid: context.uid.clone(),
            job: context.job.clone(),
            below: context.generation,
            keep: HashSet::new(),
            in_progress_only: true,
            began: self.began(),
        });
        blocking(move || {
            disk::create_folders(&root)?;
            leftovers.map_or(Ok(()), |leftovers| leftovers.delete(&root))
        })
        .await?;
        Ok(Box::new(FileWriter::new(self.settings.clone(), self.guarantee, context)))
    }

    /// Before the run takes its generation: whatever is in progress and older belongs to no later run.
    async fn verify(&self) -> Result<(), Error> {
        let root = self.settings.root.clone();
        let began = spawn_blocking(move || disk::now_in(&root)).await;
        let began = began.map_err(|error| Error::internal("looking at the folder did not end").caused_by(error))?;
        *self.began.lock().unwrap_or_else(PoisonError::into_inner) = began;
        Ok(())
    }

    fn as_two_phase(&self) -> Option<&dyn TwoPhaseSink> {
        (self.guarantee == Guarantee::ExactlyOnce).then_some(self as _)
    }
}

#[async_trait]
impl TwoPhaseSink for FileSink {
    async fn commit(&self, prepared: &[Value]) -> Result<(), Error> {
        let prepared = Prepared::from_values(prepared)?;
        blocking(move || prepared::commit(&prepared)).await
    }

    async fn abort(&self, prepared: &[Value]) -> Result<(), Error> {
        let prepared = Prepared::from_values(prepared)?;
        blocking(move || prepared::abort(&prepared)).await
    }

    async fn clean_up(&self, job: &str, below: u64, keep: &[Value]) -> Result<(), Error> {
        let keep = Prepared::from_values(keep)?.into_iter().map(|file| file.pending).collect();
        let leftovers = Leftovers { uid: self.uid.clone(), job: job.to_owned(), below, keep, in_progress_only: false, began: self.began() };
        let root = self.settings.root.clone();
        blocking(move || leftovers.delete(&root)).await
    }

    async fn visible_output(&self, job: &str) -> Result<Option<String>, Error> {
        let (root, uid, job) = (self.settings.root.clone(), self.uid.clone(), job.to_owned());
        let found = blocking(move || prepared::find_visible(&root, &uid, &job)).await?;
        Ok(found.map(|path| path.display().to_string()))
    }
}

#[cfg(test)]
mod tests;
