//! The handle of a job that runs.

use super::operators::PluginOperators;
use crate::Error;
use crate::checkpoint::protocol::StopRequest;
use crate::checkpoint::savepoint::Target;
use crate::pipeline::Plan;
use crate::pipeline::run::{JobCommand, JobEnd, JobStatus, NodeStatus, node_statuses};
use crate::plugin::PluginCounts;
use crate::telemetry::JobMetrics;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

/// A job that runs. Dropping the handle leaves the job running; it ends with the runtime.
#[derive(Debug)]
pub struct JobHandle {
    pub(super) plan: Arc<Plan>,
    pub(super) status: watch::Receiver<JobStatus>,
    pub(super) metrics: Arc<JobMetrics>,
    pub(super) dropped: Arc<AtomicU64>,
    pub(super) operators: Arc<PluginOperators>,
    pub(super) control: mpsc::Sender<JobCommand>,
    pub(super) ended: JoinHandle<JobEnd>,
}

/// Looks at a job and steers it. Cheap to clone, and lives longer than the job.
#[derive(Clone, Debug)]
pub struct JobControl {
    plan: Arc<Plan>,
    status: watch::Receiver<JobStatus>,
    metrics: Arc<JobMetrics>,
    dropped: Arc<AtomicU64>,
    operators: Arc<PluginOperators>,
    control: mpsc::Sender<JobCommand>,
}

/// How a job is stopped. By default with a last checkpoint and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopOptions {
    /// Where to leave a savepoint, if one is wanted: its folder, or with `/` at the end one that it gets a folder of its own in. Empty: the
    /// job's `savepoint-dir`.
    pub savepoint: Option<String>,
    /// Sources stop reading, event time runs to its end and its timers fire; then the last checkpoint is taken, and the job has finished.
    pub drain: bool,
}

impl JobHandle {
    /// A view of the job that can be given away.
    pub fn control(&self) -> JobControl {
        JobControl {
            plan: Arc::clone(&self.plan),
            status: self.status.clone(),
            metrics: Arc::clone(&self.metrics),
            dropped: Arc::clone(&self.dropped),
            operators: Arc::clone(&self.operators),
            control: self.control.clone(),
        }
    }

    /// Waits until the job has ended, in whatever way.
    pub async fn wait(self) -> JobEnd {
        match self.ended.await {
            Ok(end) => end,
            Err(error) => JobEnd::Failed(Error::internal("the supervisor of the job stopped").caused_by(error)),
        }
    }
}

impl JobControl {
    /// The plan that runs.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The job as it stands.
    pub fn status(&self) -> JobStatus {
        self.status.borrow().clone()
    }

    /// Waits until the status differs from the one seen last through this view. False: the job has ended and nothing changes any more.
    pub async fn changed(&mut self) -> bool {
        self.status.changed().await.is_ok()
    }

    /// Records and bytes of every node, in the order of the plan.
    pub fn nodes(&self) -> Vec<NodeStatus> {
        node_statuses(&self.plan, &self.metrics)
    }

    /// Records that were dropped because they had no key (`on-missing-key: drop`, or an operator that skips what it cannot process).
    pub fn records_without_key(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// The counters of every subtask of every plugin: uid, subtask, counts.
    pub fn plugins(&self) -> Vec<(String, usize, PluginCounts)> {
        self.operators.counts()
    }

    /// Takes a checkpoint now, and waits until it is completed; its number.
    ///
    /// # Errors
    /// A sentence: checkpointing is off, the checkpoint failed, or the job has ended.
    pub async fn checkpoint(&self) -> Result<u64, String> {
        const ENDED: &str = "the job has ended";
        let (answer, completed) = oneshot::channel();
        self.control.send(JobCommand::Checkpoint(answer)).await.map_err(|_| ENDED.to_owned())?;
        completed.await.unwrap_or_else(|_| Err(ENDED.to_owned()))
    }

    /// Takes a checkpoint now and makes a savepoint of it while the job goes on; its path. What ends with `/` is a folder that the savepoint gets
    /// a folder of its own in; without a path that is the job's `savepoint-dir`.
    ///
    /// # Errors
    /// A sentence: nobody says where, there is another savepoint, the checkpoint failed, or the job has ended.
    pub async fn savepoint(&self, to: Option<&str>) -> Result<String, String> {
        const ENDED: &str = "the job has ended";
        let target = self.target(to).await?;
        let (answer, made) = oneshot::channel();
        self.control.send(JobCommand::Savepoint(target, answer)).await.map_err(|_| ENDED.to_owned())?;
        made.await.unwrap_or_else(|_| Err("the job failed before the savepoint was made: ask again".to_owned()))
    }

    async fn target(&self, to: Option<&str>) -> Result<Target, String> {
        let checkpointing = self.plan.settings.checkpointing.as_ref();
        let checkpointing = checkpointing.ok_or("checkpointing is off: set execution.checkpointing.interval")?;
        let target = Target::new(to, checkpointing.savepoint_dir.as_deref()).map_err(|error| error.to_string())?;
        target.check().await.map_err(|error| error.to_string())?;
        Ok(target)
    }

    /// Asks the job to take a last checkpoint and end. A job that has ended already stays as it is.
    pub async fn stop(&self) {
        let _ended = self.control.send(JobCommand::Stop(StopRequest { drain: false, savepoint: None })).await;
    }

    /// Asks the job to end, as [`stop`](Self::stop) does, and to leave a savepoint of its last checkpoint or to run event time to its end before.
    /// The first request counts. Failures of the job on the way do not make it forget what was asked; a process that dies does, as for a plain
    /// stop: whoever starts the job again wants it to run. Where the savepoint is tells [`JobStatus::checkpoints`].
    ///
    /// # Errors
    /// A sentence why a savepoint cannot be made there; the job goes on.
    pub async fn stop_with(&self, options: StopOptions) -> Result<(), String> {
        let savepoint = match &options.savepoint {
            None => None,
            Some(to) => Some(self.target(Some(to)).await?.as_str().to_owned()),
        };
        let _ended = self.control.send(JobCommand::Stop(StopRequest { drain: options.drain, savepoint })).await;
        Ok(())
    }

    /// Asks the job to end at once, without a checkpoint. A job that has ended already stays as it is.
    pub async fn cancel(&self) {
        let _ended = self.control.send(JobCommand::Cancel).await;
    }
}
