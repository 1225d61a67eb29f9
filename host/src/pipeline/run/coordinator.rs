//! The coordinator of one run: sends barriers, gathers acknowledgements, commits checkpoints, and ends the run.

use super::checkpointing::InProgress;
use super::discovery;
use super::saving::{Saved, SavepointAsked};
use super::status::StatusWriter;
use super::task::{Command, TaskId, is_disconnect};
use super::upload::{Event, StateFolder};
use crate::Error;
use crate::checkpoint::commit::{Parties, Run, RunError};
use crate::checkpoint::participants::LastResourceError;
use crate::checkpoint::protocol::{Attempt, StopRequest};
use crate::checkpoint::savepoint::Target;
use crate::pipeline::plan::CheckpointSettings;
use crate::pipeline::spec::Retention;
use crate::sink::Transactions;
use crate::source::Source;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

/// Time between two tries of the last checkpoint's manifest.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// A moment so far ahead that it never comes.
const NEVER: Duration = Duration::from_secs(86_400 * 365);

/// What a person asks of a running job.
#[derive(Debug)]
pub(crate) enum JobCommand {
    /// Take a checkpoint now; the answer is its number, or why it failed.
    Checkpoint(oneshot::Sender<Result<u64, String>>),
    /// Take a checkpoint now and make a savepoint of it; the answer is its path, or why there is none.
    Savepoint(Target, oneshot::Sender<Result<String, String>>),
    /// Take a last checkpoint and end.
    Stop(StopRequest),
    /// End at once, without a checkpoint.
    Cancel,
}

/// The first stop that a person asked for: the failures of this process do not make it forget that.
pub(crate) type StopAsked = OnceLock<StopRequest>;

/// Somebody who waits for a checkpoint.
#[derive(Debug)]
pub(super) enum Asked {
    Checkpoint(oneshot::Sender<Result<u64, String>>),
    Savepoint(SavepointAsked),
}

impl Asked {
    /// The checkpoint failed.
    pub(super) fn fail(self, reason: &str) {
        let _gone = match self {
            Self::Checkpoint(answer) => answer.send(Err(reason.to_owned())).is_err(),
            Self::Savepoint(asked) => asked.answer.send(Err(reason.to_owned())).is_err(),
        };
    }
}

/// How a run ended.
#[derive(Debug)]
pub(super) enum RunEnd {
    /// All inputs have ended, and all output is visible.
    Finished,
    /// Stopped as asked, after a last checkpoint.
    Stopped,
    /// Cancelled as asked.
    Cancelled,
    /// A task failed, or checkpoints failed too often.
    Failed(Error),
    /// The log or a sink says that the run is over.
    Over(RunError),
}

/// The coordinator's view of a task.
#[derive(Debug)]
pub(super) struct TaskHandle {
    pub(super) commands: mpsc::Sender<Command>,
    /// The source that it reads, with the number of the subtask.
    pub(super) source: Option<SourceTask>,
}

/// A task that reads a source.
#[derive(Clone, Debug)]
pub(super) struct SourceTask {
    pub(super) uid: Arc<str>,
    pub(super) source: Arc<dyn Source>,
}

/// The coordinator of one run.
pub(super) struct Coordinator<'a> {
    pub(super) settings: Option<CheckpointSettings>,
    /// The hold on the log; none without checkpointing.
    pub(super) run: Option<Run>,
    pub(super) parties: Parties<'a>,
    /// What sinks write through whose transactions hold the decision; also one of the parties.
    pub(super) transactions: Option<&'a dyn Transactions>,
    pub(super) tasks: Vec<TaskHandle>,
    pub(super) running: JoinSet<Result<(), Error>>,
    pub(super) events: mpsc::Receiver<Event>,
    pub(super) event_sender: mpsc::Sender<Event>,
    pub(super) control: &'a mut mpsc::Receiver<JobCommand>,
    pub(super) status: &'a StatusWriter,
    pub(super) stop_asked: &'a StopAsked,
    pub(super) state_folder: Option<StateFolder>,
    /// Splits that are known, by source: discovery asks for others.
    pub(super) known_splits: BTreeMap<Arc<str>, BTreeSet<String>>,
    pub(super) progress: Progress,
}

/// Where the coordinator stands.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) sequence: u64,
    pub(super) current: Option<InProgress>,
    /// Attempts of checkpoints that were given up, for acknowledgements that come late.
    pub(super) given_up: BTreeMap<u64, Attempt>,
    pub(super) failed_in_row: u32,
    pub(super) not_ready: usize,
    pub(super) unfinished: HashSet<TaskId>,
    pub(super) next_trigger: Instant,
    pub(super) asked: Vec<Asked>,
    pub(super) stopping: Option<StopRequest>,
    /// The sources were told to end, because the job is to be drained.
    pub(super) drained: bool,
    /// Savepoints that are being made.
    pub(super) saving: JoinSet<Saved>,
    /// The path of a savepoint that goes once this run has completed a checkpoint.
    pub(super) claimed: Option<String>,
    /// What was asked while a checkpoint was being committed.
    pub(super) deferred: VecDeque<JobCommand>,
    pub(super) compacting: HashSet<(String, u32)>,
    pub(super) discovering: bool,
    pub(super) next_discovery: Instant,
}

impl Progress {
    pub(super) fn new(tasks: usize) -> Self {
        Self {
            sequence: 0,
            current: None,
            given_up: BTreeMap::new(),
            failed_in_row: 0,
            not_ready: tasks,
            unfinished: (0..tasks).collect(),
            next_trigger: Instant::now(),
            asked: Vec::new(),
            stopping: None,
            drained: false,
            saving: JoinSet::new(),
            claimed: None,
            deferred: VecDeque::new(),
            compacting: HashSet::new(),
            discovering: false,
            next_discovery: Instant::now(),
        }
    }

    /// The job is to end with a last checkpoint as soon as it runs.
    pub(super) fn stop(&mut self, request: StopRequest) {
        self.stopping.get_or_insert(request);
    }

    /// Whether the job is to run its event time to the end before it stops.
    pub(super) fn drains(&self) -> bool {
        self.stopping.as_ref().is_some_and(|request| request.drain)
    }
}

impl Coordinator<'_> {
    /// Runs until the job ends, in whatever way. All tasks have ended when it returns.
    pub(super) async fn run(mut self) -> RunEnd {
        let end = match self.drive().await {
            Ok(end) => end,
            Err(end) => end,
        };
        for asked in self.progress.asked.drain(..) {
            asked.fail("the job ended before the checkpoint");
        }
        if matches!(end, RunEnd::Finished | RunEnd::Stopped) {
            while let Some(saved) = self.progress.saving.join_next().await {
                self.saved(saved);
            }
        }
        if matches!(end, RunEnd::Finished | RunEnd::Stopped)
            && let Err(error) = self.close_tasks().await
        {
            return RunEnd::Failed(error);
        }
        self.running.shutdown().await;
        if matches!(end, RunEnd::Cancelled) {
            self.forget_older_checkpoints().await;
        }
        end
    }

    /// A cancelled job keeps its newest checkpoint, whatever is asked: without it a later start would repeat output that is visible.
    async fn forget_older_checkpoints(&self) {
        let delete = self.settings.as_ref().is_some_and(|settings| settings.retention == Retention::DeleteOnCancellation);
        if delete
            && let Some(run) = &self.run
            && let Err(error) = run.retain(1).await
        {
            tracing::warn!(%error, "older checkpoints of the cancelled job could not be deleted");
        }
    }

    async fn drive(&mut self) -> Result<RunEnd, RunEnd> {
        self.schedule_next(Duration::ZERO);
        loop {
            while let Some(command) = self.progress.deferred.pop_front() {
                if let Some(end) = self.command(command).await? {
                    return Ok(end);
                }
            }
            self.trigger_if_due().await;
            let wake = self.wake_at();
            tokio::select! {
                biased;
                // A task that fails because of it comes later, and says less.
                loss = lost(self.transactions) => return Err(self.transactions_lost(loss).await),
                Some(ended) = self.running.join_next() => return Err(self.task_ended(ended).await),
                Some(command) = self.control.recv() => {
                    if let Some(end) = self.command(command).await? {
                        return Ok(end);
                    }
                }
                Some(event) = self.events.recv() => {
                    if let Some(end) = self.event(event).await? {
                        return Ok(end);
                    }
                }
                found = discovery::discover(&self.tasks, &self.known_splits, self.progress.next_discovery), if self.progress.discovering => {
                    self.discovered(found).await?;
                }
                Some(saved) = self.progress.saving.join_next() => self.saved(saved),
                () = tokio::time::sleep_until(wake.into()) => self.expire_if_due()?,
            }
        }
    }

    async fn event(&mut self, event: Event) -> Result<Option<RunEnd>, RunEnd> {
        match event {
            Event::Ready => {
                self.progress.not_ready -= 1;
                if self.progress.not_ready == 0 {
                    self.status.running();
                    self.schedule_next(Duration::ZERO);
                    self.schedule_discovery();
                }
            }
            Event::Finished(task) => {
                self.progress.unfinished.remove(&task);
            }
            Event::Acknowledged(task, acknowledgement) => return self.acknowledged(task, *acknowledgement).await,
            Event::UploadFailed(reason) => self.status.warn(&reason),
            Event::Compacted { uid, subtask, folded, base } => {
                self.progress.compacting.remove(&(uid.clone(), subtask));
                if let Some(run) = &mut self.run {
                    let compacted = run.line_mut().compact(&uid, subtask, &folded, base);
                    tracing::debug!(operator = uid, subtask, files = folded.len(), ?compacted, "state files were folded");
                }
            }
            Event::CompactionFailed { uid, subtask, reason, damaged: false } => {
                self.progress.compacting.remove(&(uid.clone(), subtask));
                tracing::warn!(
                    operator = uid,
                    subtask,
                    reason,
                    "state files could not be folded; the chain stays as it is until the next try"
                );
            }
            Event::CompactionFailed { uid, subtask, reason, damaged: true } => {
                self.progress.compacting.remove(&(uid.clone(), subtask));
                let sentence =
                    format!("the newest checkpoints cannot be restored, and the next one takes the whole state of {uid}: {reason}");
                tracing::warn!(subtask, "{sentence}");
                self.status.warn(&sentence);
                for task in &self.tasks {
                    // A task that has failed is noticed where tasks are joined.
                    let _gone = task.commands.send(Command::BeginChainAnew(uid.clone(), subtask)).await;
                }
            }
        }
        Ok(None)
    }

    async fn command(&mut self, command: JobCommand) -> Result<Option<RunEnd>, RunEnd> {
        match command {
            JobCommand::Cancel => return Ok(Some(RunEnd::Cancelled)),
            JobCommand::Checkpoint(answer) => self.ask(Asked::Checkpoint(answer)),
            JobCommand::Savepoint(target, answer) => self.ask(Asked::Savepoint(SavepointAsked { target, answer })),
            JobCommand::Stop(_) if self.progress.stopping.is_some() => {}
            JobCommand::Stop(request) => {
                let request = self.stop_asked.get_or_init(|| request).clone();
                self.progress.stop(request.clone());
                if let Some(run) = &mut self.run {
                    record_stop(run, &request).await.map_err(RunEnd::Over)?;
                }
            }
        }
        Ok(None)
    }

    fn ask(&mut self, asked: Asked) {
        if self.settings.is_none() {
            asked.fail("checkpointing is off: set execution.checkpointing.interval");
        } else {
            self.progress.asked.push(asked);
        }
    }

    /// What is in the open transactions can only be read again, here or, if this run was superseded, elsewhere.
    async fn transactions_lost(&self, loss: LastResourceError) -> RunEnd {
        match (loss, &self.run, self.parties.last_resource) {
            (LastResourceError::Fenced(reason), Some(run), Some(last_resource)) => match run.fenced(reason, last_resource).await {
                Ok(error) | Err(error) => RunEnd::Over(error),
            },
            (LastResourceError::Refused(sentence), ..) => RunEnd::Failed(Error::user(sentence)),
            (loss, ..) => RunEnd::Failed(Error::external(format!("{loss}; what was in it is read again"))),
        }
    }

    /// A task has ended although the job has not: the first error that is not another one's echo is the reason.
    async fn task_ended(&mut self, ended: Result<Result<(), Error>, tokio::task::JoinError>) -> RunEnd {
        let mut next = Some(ended);
        let mut echo = None;
        while let Some(ended) = next {
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(error)) if is_disconnect(&error) => echo = Some(error),
                Ok(Err(error)) => return RunEnd::Failed(error),
                Err(error) => return RunEnd::Failed(Error::internal("a task panicked").caused_by(error)),
            }
            // Neighbours of a failed task notice the closed channel, so the task that failed ends soon.
            next = tokio::time::timeout(Duration::from_secs(5), self.running.join_next()).await.ok().flatten();
        }
        RunEnd::Failed(echo.unwrap_or_else(|| Error::internal("a task ended before the job")))
    }

    pub(super) fn schedule_next(&mut self, pause: Duration) {
        let interval = self.settings.as_ref().map_or(NEVER, |settings| settings.interval);
        self.progress.next_trigger = Instant::now() + interval.max(pause);
    }

    pub(super) fn schedule_after(&mut self, triggered: Instant, min_pause: Duration) {
        let interval = self.settings.as_ref().map_or(NEVER, |settings| settings.interval);
        self.progress.next_trigger = (triggered + interval).max(Instant::now() + min_pause);
    }

    fn wake_at(&self) -> Instant {
        let timeout = self.settings.as_ref().map_or(NEVER, |settings| settings.timeout);
        match &self.progress.current {
            Some(current) if !current.barrier.last => current.until.unwrap_or(current.barrier.triggered + timeout),
            Some(_) => Instant::now() + NEVER,
            // While operators restore, nothing can be triggered: the last one that is ready wakes the coordinator.
            None if self.progress.not_ready > 0 => Instant::now() + NEVER,
            None => self.progress.next_trigger,
        }
    }

    async fn close_tasks(&mut self) -> Result<(), Error> {
        for task in &self.tasks {
            let _gone = task.commands.send(Command::Close).await;
        }
        while let Some(ended) = self.running.join_next().await {
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(error)) if is_disconnect(&error) => {}
                Ok(Err(error)) => return Err(error),
                Err(error) => return Err(Error::internal("a task panicked").caused_by(error)),
            }
        }
        Ok(())
    }
}

/// Waits until the transactions of the run, if it has some, are lost.
async fn lost(transactions: Option<&dyn Transactions>) -> LastResourceError {
    match transactions {
        Some(transactions) => transactions.lost().await,
        None => std::future::pending().await,
    }
}

/// Records that a stop was asked for; tried for as long as it takes, since a crash must not forget it.
async fn record_stop(run: &mut Run, request: &StopRequest) -> Result<(), RunError> {
    loop {
        match run.record_stop(request.clone()).await {
            Err(RunError::NotDurable(error)) if error.retry_helps() => tokio::time::sleep(RETRY_PAUSE).await,
            outcome => return outcome,
        }
    }
}
