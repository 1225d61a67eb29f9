//! What people see of a job: its state, checkpoints with the fields of Flink's monitoring API, restarts and exceptions.

use super::chain::now_millis;
use crate::checkpoint::commit::Completed;
use crate::pipeline::Plan;
use crate::pipeline::plan::{Node, NodeKind};
use crate::telemetry::{CheckpointReading, JobMetrics};
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Checkpoints and exceptions that are remembered, the newest ones.
const HISTORY: usize = 10;

/// The state of a job, in Flink's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum JobState {
    /// Submitted, and not yet running: the start position is looked for, or state is being restored.
    #[default]
    Created,
    /// Records flow.
    Running,
    /// A failure was met, and the job waits for its restart or restores.
    Restarting,
    /// The job failed.
    Failed,
    /// The job was cancelled.
    Canceled,
    /// The job was stopped with a last checkpoint, and can go on.
    Suspended,
    /// All inputs have ended and all output is visible.
    Finished,
}

impl JobState {
    /// Whether the job has ended.
    pub fn is_terminal(self) -> bool {
        !matches!(self, Self::Created | Self::Running | Self::Restarting)
    }
}

/// How a checkpoint stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum CheckpointState {
    /// Barriers are on their way, or it is being committed.
    InProgress,
    /// Its output is visible.
    Completed,
    /// It was given up; what it held went into the next one.
    Failed,
}

/// What a checkpoint is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum CheckpointKind {
    /// By the interval, or because somebody asked.
    Checkpoint,
    /// The last one, at the end of all inputs.
    Final,
    /// The last one, because the job was stopped.
    Stop,
}

/// A checkpoint. Times in milliseconds, moments since the Unix epoch; sizes in bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckpointInfo {
    /// Its number: the slot of the log.
    pub id: u64,
    /// How it stands.
    pub status: CheckpointState,
    /// Whether a savepoint was made of it, which is what it describes then.
    pub is_savepoint: bool,
    /// What it is taken for.
    pub checkpoint_type: CheckpointKind,
    /// When it was triggered.
    pub trigger_timestamp: i64,
    /// When the last subtask had acknowledged it.
    pub latest_ack_timestamp: i64,
    /// From the trigger to its completion.
    pub end_to_end_duration: u64,
    /// All state that a restore reads.
    pub state_size: u64,
    /// What was uploaded for it.
    pub checkpointed_size: u64,
    /// How many subtasks take part.
    pub num_subtasks: usize,
    /// The longest alignment of a subtask.
    pub alignment_duration: u64,
    /// The longest time that a subtask stood still for it.
    pub sync_duration: u64,
    /// The longest upload of a subtask.
    pub async_duration: u64,
    /// Where it is, once it is completed.
    pub external_path: Option<String>,
    /// Whether it has been deleted since.
    pub discarded: bool,
    /// Why it failed.
    pub failure_message: Option<String>,
}

/// How many checkpoints there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckpointCounts {
    /// Restored from.
    pub restored: u64,
    /// Begun.
    pub total: u64,
    /// On their way.
    pub in_progress: u64,
    /// Completed.
    pub completed: u64,
    /// Given up.
    pub failed: u64,
}

/// A restored checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RestoredInfo {
    /// Its number.
    pub id: u64,
    /// When it was restored.
    pub restore_timestamp: i64,
    /// Always false here: savepoints are listed apart.
    pub is_savepoint: bool,
    /// Where it is.
    pub external_path: String,
}

/// The newest checkpoint of each kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LatestCheckpoints {
    /// Completed.
    pub completed: Option<CheckpointInfo>,
    /// Made into a savepoint, whose path it has.
    pub savepoint: Option<CheckpointInfo>,
    /// Failed.
    pub failed: Option<CheckpointInfo>,
    /// Restored.
    pub restored: Option<RestoredInfo>,
}

/// The checkpoints of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CheckpointStatistics {
    /// How many.
    pub counts: CheckpointCounts,
    /// The newest of each kind.
    pub latest: LatestCheckpoints,
    /// The newest ones, the newest first.
    pub history: VecDeque<CheckpointInfo>,
}

/// A failure that the job met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExceptionInfo {
    /// When, milliseconds since the Unix epoch.
    pub timestamp: i64,
    /// What happened.
    pub message: String,
}

/// A job as it stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct JobStatus {
    /// The name of the job.
    pub name: String,
    /// The incarnation: the folder of its checkpoints. None until it is known, and without checkpointing.
    pub id: Option<String>,
    /// The state.
    pub state: JobState,
    /// The number of the run.
    pub generation: u64,
    /// When it was submitted, milliseconds since the Unix epoch.
    pub start_time: i64,
    /// How many times it was restarted.
    pub restarts: u64,
    /// Its checkpoints.
    pub checkpoints: CheckpointStatistics,
    /// Failures, the newest first.
    pub exceptions: VecDeque<ExceptionInfo>,
    /// What is being tried again at the moment, for people; none when all goes well.
    pub trouble: Option<String>,
}

/// Records and bytes of a node since the job was submitted; a replay counts again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeStatus {
    /// The uid.
    pub uid: String,
    /// `source`, `operator` or `sink`.
    pub kind: &'static str,
    /// How many subtasks.
    pub parallelism: u16,
    /// Records that came in.
    pub records_in: u64,
    /// Records that went out.
    pub records_out: u64,
    /// Bytes of keys, values and headers that came in.
    pub bytes_in: u64,
    /// Bytes that went out.
    pub bytes_out: u64,
}

/// Records and bytes of every node of a plan, in its order: the sums of its subtasks.
pub(crate) fn node_statuses(plan: &Plan, metrics: &JobMetrics) -> Vec<NodeStatus> {
    let of = |node: &Node| {
        let mut status = NodeStatus {
            uid: node.uid.to_string(),
            kind: match node.kind {
                NodeKind::Source(_) => "source",
                NodeKind::Operator(_) => "operator",
                NodeKind::Sink(_) => "sink",
            },
            parallelism: node.parallelism,
            records_in: 0,
            records_out: 0,
            bytes_in: 0,
            bytes_out: 0,
        };
        for subtask in 0..node.parallelism {
            let reading = metrics.task(&node.uid, usize::from(subtask)).reading();
            status.records_in += reading.records_in;
            status.records_out += reading.records_out;
            status.bytes_in += reading.bytes_in;
            status.bytes_out += reading.bytes_out;
        }
        status
    };
    plan.nodes.iter().map(of).collect()
}

/// A checkpoint that begins.
#[derive(Debug)]
pub(super) struct CheckpointStart {
    pub(super) id: u64,
    pub(super) kind: CheckpointKind,
    pub(super) subtasks: usize,
}

/// How long the parts of a checkpoint took; of its subtasks, the longest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timings {
    pub(super) end_to_end: Duration,
    pub(super) alignment: Duration,
    pub(super) synchronous: Duration,
    pub(super) asynchronous: Duration,
    pub(super) start_delay: Duration,
}

/// Writes the status of a job, and its metrics where they are about the job as a whole.
#[derive(Debug)]
pub(crate) struct StatusWriter {
    status: watch::Sender<JobStatus>,
    metrics: Arc<JobMetrics>,
}

impl StatusWriter {
    pub(crate) fn new(name: &str, metrics: Arc<JobMetrics>) -> Self {
        let status = JobStatus { name: name.to_owned(), start_time: now_millis(), ..JobStatus::default() };
        Self { status: watch::Sender::new(status), metrics }
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<JobStatus> {
        self.status.subscribe()
    }

    pub(super) fn state(&self, state: JobState) {
        self.status.send_modify(|status| status.state = state);
    }

    pub(super) fn running(&self) {
        self.status.send_modify(|status| {
            status.state = JobState::Running;
            status.trouble = None;
        });
    }

    pub(super) fn run(&self, id: Option<String>, generation: u64) {
        self.status.send_modify(|status| {
            status.id = id;
            status.generation = generation;
        });
    }

    pub(super) fn restored(&self, id: u64, external_path: String) {
        let restored = RestoredInfo { id, restore_timestamp: now_millis(), is_savepoint: false, external_path };
        self.status.send_modify(|status| {
            status.checkpoints.counts.restored += 1;
            status.checkpoints.latest.restored = Some(restored);
        });
    }

    pub(super) fn failure(&self, message: &str, restarts: bool) {
        let exception = ExceptionInfo { timestamp: now_millis(), message: message.to_owned() };
        self.status.send_modify(|status| {
            status.exceptions.push_front(exception);
            status.exceptions.truncate(HISTORY);
            if restarts {
                self.metrics.restarted();
                status.restarts += 1;
                status.state = JobState::Restarting;
            }
            let checkpoints = &mut status.checkpoints;
            checkpoints.counts.in_progress = 0;
            if let Some(newest) = checkpoints.history.front_mut().filter(|newest| newest.status == CheckpointState::InProgress) {
                newest.status = CheckpointState::Failed;
                newest.failure_message = Some("the job failed before it was completed".into());
                checkpoints.counts.failed += 1;
            }
        });
    }

    pub(super) fn warn(&self, trouble: &str) {
        self.status.send_modify(|status| status.trouble = Some(trouble.to_owned()));
    }

    pub(super) fn checkpoint_started(&self, start: &CheckpointStart) {
        let info = CheckpointInfo {
            id: start.id,
            status: CheckpointState::InProgress,
            is_savepoint: false,
            checkpoint_type: start.kind,
            trigger_timestamp: now_millis(),
            latest_ack_timestamp: -1,
            end_to_end_duration: 0,
            state_size: 0,
            checkpointed_size: 0,
            num_subtasks: start.subtasks,
            alignment_duration: 0,
            sync_duration: 0,
            async_duration: 0,
            external_path: None,
            discarded: false,
            failure_message: None,
        };
        self.metrics.checkpoint_triggered();
        self.status.send_modify(|status| {
            status.checkpoints.counts.total += 1;
            status.checkpoints.counts.in_progress += 1;
            status.checkpoints.history.push_front(info);
            status.checkpoints.history.truncate(HISTORY);
        });
    }

    pub(super) fn checkpoint_completed(&self, id: u64, completed: &Completed, uploaded: u64, timings: &Timings) {
        self.metrics.checkpoint_completed(CheckpointReading {
            duration: timings.end_to_end,
            size_bytes: uploaded,
            full_size_bytes: completed.snapshot.full_bytes(),
            alignment: timings.alignment,
            start_delay: timings.start_delay,
        });
        self.status.send_modify(|status| {
            status.trouble = None;
            let checkpoints = &mut status.checkpoints;
            checkpoints.counts.in_progress = checkpoints.counts.in_progress.saturating_sub(1);
            checkpoints.counts.completed += 1;
            let Some(info) = checkpoints.history.iter_mut().find(|info| info.id == id && info.status == CheckpointState::InProgress) else {
                return;
            };
            info.id = completed.slot.0;
            info.status = CheckpointState::Completed;
            info.latest_ack_timestamp = now_millis();
            info.end_to_end_duration = millis(timings.end_to_end);
            info.state_size = completed.snapshot.full_bytes();
            info.checkpointed_size = uploaded;
            info.alignment_duration = millis(timings.alignment);
            info.sync_duration = millis(timings.synchronous);
            info.async_duration = millis(timings.asynchronous);
            info.external_path = status.id.as_ref().map(|job| format!("{job}/chk-{}", completed.slot));
            checkpoints.latest.completed = Some(info.clone());
        });
    }

    /// A savepoint was made of a checkpoint.
    pub(super) fn saved(&self, id: u64, path: &str) {
        self.status.send_modify(|status| {
            let checkpoints = &mut status.checkpoints;
            let of = checkpoints.history.iter().chain(&checkpoints.latest.completed).find(|info| info.id == id).cloned();
            checkpoints.latest.savepoint = of.map(|of| CheckpointInfo { is_savepoint: true, external_path: Some(path.to_owned()), ..of });
        });
    }

    pub(super) fn checkpoint_failed(&self, id: u64, reason: &str, duration: Duration) {
        self.metrics.checkpoint_failed();
        self.status.send_modify(|status| {
            status.trouble = Some(format!("checkpoint {id} failed: {reason}"));
            let checkpoints = &mut status.checkpoints;
            checkpoints.counts.in_progress = checkpoints.counts.in_progress.saturating_sub(1);
            checkpoints.counts.failed += 1;
            if let Some(info) = checkpoints.history.iter_mut().find(|info| info.id == id && info.status == CheckpointState::InProgress) {
                info.status = CheckpointState::Failed;
                info.end_to_end_duration = millis(duration);
                info.failure_message = Some(reason.to_owned());
                checkpoints.latest.failed = Some(info.clone());
            }
        });
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
