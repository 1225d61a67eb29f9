//! Runs a plan: tasks, the channels between them, checkpoints, restarts.
//!
//! Reading order: `supervisor` (start, run, restart) → `parties` (what a plan contributes to commits) → `check` (whether operators take a state) → `build` and `open` (from the
//! plan to tasks) → `task` (the head and its loop) → `chain` (the nodes of a task) → `event_time`
//! (watermarks and idleness) → `exchange` and `channel` (from task to task) →
//! `alignment` → `coordinator` (what happens to a run), `checkpointing` (barriers, acknowledgements, commits), `discovery` (new splits) → `upload` and `compaction` (state files) → `saving` (savepoints) → `restart` →
//! `status` (what people see).

mod alignment;
mod build;
mod chain;
mod channel;
mod check;
mod checkpointing;
mod compaction;
mod coordinator;
mod discovery;
mod event_time;
mod exchange;
mod open;
mod parties;
mod restart;
mod saving;
mod status;
mod supervisor;
mod task;
mod upload;

pub use status::{
    CheckpointCounts, CheckpointInfo, CheckpointKind, CheckpointState, CheckpointStatistics, ExceptionInfo, JobState, JobStatus,
    LatestCheckpoints, NodeStatus, RestoredInfo,
};
pub use supervisor::{Claim, JobEnd, StartChoice};

pub(crate) use coordinator::{JobCommand, StopAsked};
pub(crate) use open::{OpenOperator, OperatorTask};
pub(crate) use status::{StatusWriter, node_statuses};
pub(crate) use supervisor::Supervisor;
