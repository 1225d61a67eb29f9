//! Deletes what nobody needs any more, as [`protocol::retain`](super::protocol::retain) decides.

use super::commit::Run;
use super::failpoints::crash_point;
use super::log::{JobLog, LogError};
use super::protocol::retain::{self, RetentionPlan};

impl Run {
    /// Deletes entries older than the newest `retained` completed checkpoints, and the state files that no entry
    /// names any more. Does nothing before this run completed a checkpoint of its own.
    ///
    /// Old entries first: after a crash in the middle the log is still dense from its oldest entry on. A failure
    /// costs space and nothing else; the next call goes on.
    ///
    /// # Errors
    /// When the storage fails.
    pub async fn retain(&self, retained: usize) -> Result<RetentionPlan, LogError> {
        let Some(completed) = self.own_completed else {
            return Ok(RetentionPlan::default());
        };
        let log = self.log.read().await?;
        let slots = retain::entries_to_delete(&log, completed, retained);
        let folder = format!("{}/{}", self.log.job(), retain::SHARED);
        let storage = self.log.storage();
        let listed: Vec<String> = storage.list(&folder).await?.into_iter().map(|object| object.path).collect();
        let mut files = retain::files_to_delete(&log, &slots, self.generation, &listed);
        // The log is read entry by entry, and a newer run may delete some of them meanwhile: what this run restores from is never seen as needless,
        // and every newer run began there.
        files.retain(|path| self.line.last().files().all(|needed| needed.path != *path));

        let plan = RetentionPlan { slots, files };
        delete(&self.log, &plan).await?;
        Ok(plan)
    }

    /// Deletes everything that the job has kept, once its newest entry says that it is discarded.
    pub(super) async fn delete_discarded(&self) -> Result<(), LogError> {
        let log = self.log.read().await?;
        let storage = self.log.storage();
        for slot in retain::entries_to_discard(&log) {
            storage.delete(&self.log.entry_path(slot)).await?;
        }
        for folder in [retain::SHARED, "restored"] {
            for object in storage.list(&format!("{}/{folder}", self.log.job())).await? {
                storage.delete(&object.path).await?;
            }
        }
        Ok(())
    }
}

/// Deletes what a plan says: files only after every entry that names them.
///
/// # Errors
/// When the storage fails: the next call goes on.
pub async fn delete(log: &JobLog, plan: &RetentionPlan) -> Result<(), LogError> {
    crash_point("retention::before-deletes");
    for slot in &plan.slots {
        log.storage().delete(&log.entry_path(*slot)).await?;
        crash_point("retention::between-deletes");
    }
    for file in &plan.files {
        log.storage().delete(file).await?;
    }
    crash_point("retention::after-deletes");
    Ok(())
}
