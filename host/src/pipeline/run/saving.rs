//! Savepoints of a running job: made of a completed checkpoint behind the records' back, or of the last one.

use super::coordinator::{Coordinator, RETRY_PAUSE, RunEnd};
use super::supervisor::{Claim, Supervisor};
use crate::Error;
use crate::checkpoint::log::JobLog;
use crate::checkpoint::participants::System;
use crate::checkpoint::protocol::{JobId, Manifest, Slot, StopRequest};
use crate::checkpoint::savepoint::{self, SavepointError, Target};
use crate::checkpoint::storage::CheckpointStorage;
use crate::error::chain_of;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How long the savepoint of a stop is tried again while the storage does not answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A savepoint that a person asked for.
#[derive(Debug)]
pub(super) struct SavepointAsked {
    pub(super) target: Target,
    pub(super) answer: oneshot::Sender<Result<String, String>>,
}

/// A savepoint that is there: the checkpoint that it was made of, and its path.
pub(super) type Saved = Option<(Slot, String)>;

/// Makes a savepoint of a completed checkpoint, and tells whoever asked.
async fn save(log: JobLog, slot: Slot, asked: SavepointAsked) -> Saved {
    let made = savepoint::make_of_slot(&log, slot, &asked.target).await.map(|(path, _)| path);
    let saved = made.as_ref().ok().map(|path| (slot, path.clone()));
    if let Err(error) = &made {
        tracing::warn!(%error, checkpoint = slot.0, "a savepoint could not be made");
    }
    let _gone = asked.answer.send(made.map_err(|error| error.to_string()));
    saved
}

impl Coordinator<'_> {
    /// Begins to make a savepoint of a checkpoint that this run has just completed. Retention waits until it is there.
    pub(super) fn begin_saving(&mut self, slot: Slot, asked: SavepointAsked) {
        let Some(run) = &self.run else { return };
        self.progress.saving.spawn(save(run.log().clone(), slot, asked));
    }

    /// A savepoint is there, or could not be made.
    pub(super) fn saved(&self, saved: Result<Saved, tokio::task::JoinError>) {
        match saved {
            Ok(Some((slot, path))) => self.status.saved(slot.0, &path),
            Ok(None) => {}
            Err(error) => tracing::error!(%error, "making a savepoint panicked"),
        }
    }

    /// Makes the savepoint that was asked for with the stop, of the last checkpoint.
    ///
    /// # Errors
    /// It could not be made: the job has stopped all the same.
    pub(super) async fn save_at_end(&mut self, slot: Slot) -> Result<(), RunEnd> {
        let Some(StopRequest { savepoint: Some(to), .. }) = &self.progress.stopping else { return Ok(()) };
        let Some(run) = &self.run else { return Ok(()) };
        match save_last(run.log(), slot, to).await {
            Ok(path) => {
                self.status.saved(slot.0, &path);
                Ok(())
            }
            Err(error) => Err(RunEnd::Failed(error)),
        }
    }

    /// Deletes the savepoint that the job was started from and may claim, once it has a checkpoint of its own.
    pub(super) async fn delete_claimed(&mut self) {
        let Some(path) = self.progress.claimed.take() else { return };
        match savepoint::delete(&path).await {
            Ok(_) => tracing::info!(path, "the savepoint that the job was started from was deleted, as asked (claim)"),
            Err(SavepointError::NotThere { .. }) => {}
            Err(error) => {
                tracing::warn!(%error, path, "the claimed savepoint could not be deleted; the next checkpoint tries again");
                self.progress.claimed = Some(path);
            }
        }
    }
}

impl Supervisor {
    /// The job failed when all but the savepoint of its stop was done.
    pub(super) async fn save_finished(&self, storage: &Arc<dyn CheckpointStorage>, job: &JobId, slot: Slot) -> Result<(), Error> {
        let Some(StopRequest { savepoint: Some(to), .. }) = self.stop_asked.get() else { return Ok(()) };
        let log = JobLog::open(Arc::clone(storage), Arc::new(System), job.clone()).await;
        let log = log.map_err(|error| Error::external(chain_of(&error)))?;
        save_last(&log, slot, to).await.map(|path| self.status.saved(slot.0, &path))
    }

    /// The path of the savepoint that this run may delete: only if it really began with it.
    pub(super) fn claimed(&self, restored: Option<&Manifest>) -> Option<String> {
        let Claim { path, attempt, checkpoint } = self.choice.claim.as_ref()?;
        let snapshot = &restored?.snapshot;
        let began_with = snapshot.replaces.as_ref().and_then(|replaces| replaces.restored.as_ref());
        let is_it = snapshot.checkpoint == *checkpoint || began_with.is_some_and(|restored| restored.attempt == *attempt);
        is_it.then(|| path.clone())
    }
}

/// Makes the savepoint of a job's last checkpoint; its path.
///
/// # Errors
/// A sentence that says what there is and what to do.
async fn save_last(log: &JobLog, slot: Slot, to: &str) -> Result<String, Error> {
    let began = Instant::now();
    let failed = |error: SavepointError| {
        let job = log.job();
        let advice = "make it with `waterwheel savepoint create`";
        let message = format!("job {job} was stopped with checkpoint {slot}, but its savepoint could not be made; {advice}");
        Error::external(message).caused_by(error).with_retry(false)
    };
    let target = Target::new(Some(to), None).map_err(failed)?;
    loop {
        match savepoint::make_of_slot(log, slot, &target).await {
            Ok((path, _)) => return Ok(path),
            Err(error) if error.retry_helps() && began.elapsed() < PATIENCE => {
                tracing::warn!(%error, "the savepoint could not be made and is tried again");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Err(error) => return Err(failed(error)),
        }
    }
}
