//! Uploads the state files of one task's snapshots behind the records' back, and acknowledges each snapshot when all is durable.

use super::chain::NodeSnapshot;
use super::channel::Barrier;
use super::event_time::keep_watermark;
use super::task::{Report, SourceSnapshot, TaskId, TaskSnapshot};
use crate::checkpoint::protocol::{ChainChange, Checksum, KeyGroupRange, SinkWork, StateFile, StateFileKind, SubtaskDraft};
use crate::checkpoint::recovery::OTHER_CHECKPOINTS;
use crate::checkpoint::storage::{CheckpointStorage, StorageError, StorageErrorClass};
use bytes::Bytes;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// The pause before an upload is tried again; doubled up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between two tries of an upload.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A task's part of a checkpoint, durable.
#[derive(Debug)]
pub(super) struct Acknowledgement {
    pub(super) barrier: Barrier,
    pub(super) subtask: u32,
    pub(super) source: Option<SourceSnapshot>,
    pub(super) operators: Vec<(Arc<str>, SubtaskDraft)>,
    pub(super) prepared: Vec<SinkWork>,
    pub(super) uploaded_bytes: u64,
    pub(super) alignment: Duration,
    pub(super) synchronous: Duration,
    pub(super) asynchronous: Duration,
    /// From the coordinator to the task.
    pub(super) start_delay: Duration,
}

/// What the coordinator hears.
#[derive(Debug)]
pub(super) enum Event {
    /// A task has opened its nodes and restored their state.
    Ready,
    /// A task's part of a checkpoint is durable.
    Acknowledged(TaskId, Box<Acknowledgement>),
    /// A task has emitted its last records.
    Finished(TaskId),
    /// An upload failed and is tried again, so that the checkpoint is not silent about why it is late.
    UploadFailed(String),
    /// A base that folds the first files of a subtask's chain is durable.
    Compacted { uid: String, subtask: u32, folded: Vec<StateFile>, base: StateFile },
    /// A compaction failed; the chain stays as it is. If it is damaged it is to begin anew.
    CompactionFailed { uid: String, subtask: u32, reason: String, damaged: bool },
}

/// Where the state files of a task go.
#[derive(Clone, Debug)]
pub(super) struct StateFolder {
    pub(super) storage: Arc<dyn CheckpointStorage>,
    /// From the storage's root, with the generation: `{job}/shared/{generation}`.
    pub(super) path: String,
    pub(super) max_parallelism: u16,
}

impl StateFolder {
    /// Describes a file of this run; `name` must not repeat within the run.
    pub(super) fn file(&self, name: &str, kind: StateFileKind, content: &Bytes) -> StateFile {
        StateFile {
            path: format!("{}/{name}.state", self.path),
            kind,
            bytes: content.len() as u64,
            checksum: Checksum::of(content),
            key_groups: KeyGroupRange { first: 0, last: u32::from(self.max_parallelism) - 1 },
        }
    }
}

/// The uploader of one task.
pub(super) struct Uploader {
    pub(super) task: TaskId,
    pub(super) subtask: u32,
    /// None without checkpoints: then there is nothing to upload to.
    pub(super) folder: Option<StateFolder>,
    pub(super) reports: mpsc::Receiver<Report>,
    pub(super) events: mpsc::Sender<Event>,
}

impl Uploader {
    /// Works through the task's reports in order until the task or the coordinator is gone. What a later checkpoint builds on is always
    /// durable before it: an upload that fails is tried again, also when its checkpoint was given up.
    pub(super) async fn run(mut self) {
        while let Some(report) = self.reports.recv().await {
            let event = match report {
                Report::Finished => Event::Finished(self.task),
                Report::Snapshot(snapshot) => Event::Acknowledged(self.task, Box::new(self.acknowledge(snapshot).await)),
            };
            if self.events.send(event).await.is_err() {
                return;
            }
        }
    }

    async fn acknowledge(&self, snapshot: TaskSnapshot) -> Acknowledgement {
        let began = Instant::now();
        let mut acknowledgement = Acknowledgement {
            barrier: snapshot.barrier,
            subtask: self.subtask,
            source: snapshot.source,
            operators: Vec::new(),
            prepared: Vec::new(),
            uploaded_bytes: 0,
            alignment: snapshot.alignment,
            synchronous: snapshot.synchronous,
            asynchronous: Duration::ZERO,
            start_delay: snapshot.start_delay,
        };
        for node in snapshot.nodes {
            match node {
                NodeSnapshot::Operator { uid, file, whole, watermark } => {
                    let file = match file {
                        Some(content) => self.upload(&uid, snapshot.barrier, whole, content).await,
                        None => None,
                    };
                    acknowledgement.uploaded_bytes += file.as_ref().map_or(0, |file| file.bytes);
                    let chain = match file {
                        file if whole => ChainChange::Replace(file.into_iter().collect()),
                        Some(file) => ChainChange::Append(file),
                        None => ChainChange::Unchanged,
                    };
                    let mut extra = Value::Null;
                    keep_watermark(&mut extra, watermark);
                    acknowledgement.operators.push((uid, SubtaskDraft { chain, extra }));
                }
                NodeSnapshot::Sink { uid, prepared } => {
                    let work = prepared.into_iter().map(|work| SinkWork { sink: uid.to_string(), work });
                    acknowledgement.prepared.extend(work);
                }
            }
        }
        acknowledgement.asynchronous = began.elapsed();
        acknowledgement
    }

    async fn upload(&self, uid: &str, barrier: Barrier, whole: bool, content: Bytes) -> Option<StateFile> {
        let folder = self.folder.as_ref()?;
        let kind = if whole { StateFileKind::Base } else { StateFileKind::Delta };
        let file = folder.file(&format!("{uid}-{}-{}", self.subtask, barrier.sequence), kind, &content);
        let mut pause = FIRST_PAUSE;
        while let Err(error) = folder.storage.write(&file.path, vec![content.clone()]).await {
            tracing::warn!(operator = uid, path = file.path, %error, "a state file could not be stored and is tried again");
            if self.events.send(Event::UploadFailed(error.to_string())).await.is_err() {
                return None;
            }
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
        Some(file)
    }
}

/// Reads a state file and checks that it is as it was written.
///
/// # Errors
/// It cannot be read, is missing or was changed: the message names it.
pub(super) async fn read_state_file(storage: &dyn CheckpointStorage, file: &StateFile) -> Result<Bytes, crate::Error> {
    let place = || format!("state file {} in {}", file.path, storage.describe());
    let found = storage.read(&file.path).await.map_err(|error| storage_error(&error))?;
    let damaged = |what: String| crate::Error::external(format!("{} {what}; {OTHER_CHECKPOINTS}", place())).with_retry(false);
    let content = found.ok_or_else(|| damaged("is missing".into()))?;
    if content.len() as u64 != file.bytes || Checksum::of(&content) != file.checksum {
        return Err(damaged(format!("is damaged ({} of {} bytes, checksum {})", content.len(), file.bytes, Checksum::of(&content))));
    }
    Ok(content)
}

/// A failure of the storage as an error of the job.
pub(super) fn storage_error(error: &StorageError) -> crate::Error {
    crate::Error::external(error.to_string()).with_retry(error.class == StorageErrorClass::Unavailable)
}
