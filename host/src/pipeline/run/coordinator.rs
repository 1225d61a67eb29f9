//! The coordinator of one run: sends barriers, gathers acknowledgements, commits checkpoints, and ends the run.

use super::channel::Barrier;
use super::compaction;
use super::status::{CheckpointKind, CheckpointStart, StatusWriter, Timings};
use super::task::{Command, TaskId, is_disconnect};
use super::upload::{Acknowledgement, Event, StateFolder};
use crate::Error;
use crate::checkpoint::commit::{Completed, Parties, Run, RunError};
use crate::checkpoint::protocol::{Attempt, CheckpointDraft, SourceState, SplitState, StopRequest, SubtaskDraft};
use crate::pipeline::plan::CheckpointSettings;
use crate::source::{Source, Split};
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

/// Time between two tries of the last checkpoint's manifest.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// A moment so far ahead that it never comes.
const NEVER: Duration = Duration::from_secs(86_400 * 365);

/// What a person asks of a running job.
#[derive(Debug)]
pub(crate) enum JobCommand {
    /// Take a checkpoint now; the answer is its number, or why it failed.
    Checkpoint(oneshot::Sender<Result<u64, String>>),
    /// Take a last checkpoint and end.
    Stop,
    /// End at once, without a checkpoint.
    Cancel,
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

/// Why a checkpoint is taken, and what follows it.
#[derive(Debug)]
enum Purpose {
    Interval,
    Asked(Vec<oneshot::Sender<Result<u64, String>>>),
    EndOfInput,
    Stop,
}

/// A checkpoint on its way.
#[derive(Debug)]
struct InProgress {
    barrier: Barrier,
    purpose: Purpose,
    draft: CheckpointDraft,
    missing: HashSet<TaskId>,
    alignment: Duration,
    synchronous: Duration,
    asynchronous: Duration,
    start_delay: Duration,
}

/// The coordinator of one run.
pub(super) struct Coordinator<'a> {
    pub(super) settings: Option<CheckpointSettings>,
    /// The hold on the log; none without checkpointing.
    pub(super) run: Option<Run>,
    pub(super) parties: Parties<'a>,
    pub(super) tasks: Vec<TaskHandle>,
    pub(super) running: JoinSet<Result<(), Error>>,
    pub(super) events: mpsc::Receiver<Event>,
    pub(super) event_sender: mpsc::Sender<Event>,
    pub(super) control: &'a mut mpsc::Receiver<JobCommand>,
    pub(super) status: &'a StatusWriter,
    pub(super) state_folder: Option<StateFolder>,
    /// Splits that are known, by source: discovery asks for others.
    pub(super) known_splits: BTreeMap<Arc<str>, BTreeSet<String>>,
    pub(super) progress: Progress,
}

/// Where the coordinator stands.
#[derive(Debug)]
pub(super) struct Progress {
    sequence: u64,
    current: Option<InProgress>,
    /// Attempts of checkpoints that were given up, for acknowledgements that come late.
    given_up: BTreeMap<u64, Attempt>,
    failed_in_row: u32,
    not_ready: usize,
    unfinished: HashSet<TaskId>,
    next_trigger: Instant,
    asked: Vec<oneshot::Sender<Result<u64, String>>>,
    stopping: bool,
    /// What was asked while a checkpoint was being committed.
    deferred: VecDeque<JobCommand>,
    compacting: HashSet<(String, u32)>,
    discovering: bool,
    next_discovery: Instant,
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
            stopping: false,
            deferred: VecDeque::new(),
            compacting: HashSet::new(),
            discovering: false,
            next_discovery: Instant::now(),
        }
    }

    /// The job is to end with a last checkpoint as soon as it runs.
    pub(super) fn stop(&mut self) {
        self.stopping = true;
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
            let _gone = asked.send(Err("the job ended before the checkpoint".into()));
        }
        if matches!(end, RunEnd::Finished | RunEnd::Stopped)
            && let Err(error) = self.close_tasks().await
        {
            return RunEnd::Failed(error);
        }
        self.running.shutdown().await;
        end
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
                found = discover(&self.tasks, &self.known_splits, self.progress.next_discovery), if self.progress.discovering => {
                    self.discovered(found).await?;
                }
                () = tokio::time::sleep_until(wake.into()) => self.expire_if_due()?,
            }
        }
    }

    // ---- what happens ----

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
            Event::CompactionFailed { uid, subtask, reason } => {
                self.progress.compacting.remove(&(uid.clone(), subtask));
                tracing::warn!(operator = uid, subtask, reason, "state files could not be folded; the chain stays as it is until the next try");
            }
        }
        Ok(None)
    }

    async fn command(&mut self, command: JobCommand) -> Result<Option<RunEnd>, RunEnd> {
        match command {
            JobCommand::Cancel => return Ok(Some(RunEnd::Cancelled)),
            JobCommand::Checkpoint(answer) if self.settings.is_none() => {
                let _gone = answer.send(Err("checkpointing is off: set execution.checkpointing.interval".into()));
            }
            JobCommand::Checkpoint(answer) => self.progress.asked.push(answer),
            JobCommand::Stop if self.progress.stopping => {}
            JobCommand::Stop => {
                self.progress.stopping = true;
                if let Some(run) = &mut self.run {
                    record_stop(run).await.map_err(RunEnd::Over)?;
                }
            }
        }
        Ok(None)
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

    // ---- checkpoints ----

    async fn trigger_if_due(&mut self) {
        if self.progress.current.is_some() || self.progress.not_ready > 0 {
            return;
        }
        let purpose = if self.progress.unfinished.is_empty() {
            Purpose::EndOfInput
        } else if self.progress.stopping {
            Purpose::Stop
        } else if !self.progress.asked.is_empty() {
            Purpose::Asked(std::mem::take(&mut self.progress.asked))
        } else if self.settings.is_some() && self.progress.next_trigger <= Instant::now() {
            Purpose::Interval
        } else {
            return;
        };
        self.trigger(purpose).await;
    }

    async fn trigger(&mut self, purpose: Purpose) {
        self.progress.sequence += 1;
        let last = matches!(purpose, Purpose::EndOfInput | Purpose::Stop);
        let checkpoint = self.run.as_ref().map_or(0, |run| run.next_slot().0);
        let barrier = Barrier { sequence: self.progress.sequence, checkpoint, last, triggered: Instant::now() };
        let draft = CheckpointDraft {
            attempt: Attempt::random(),
            triggered_at_millis: u64::try_from(super::chain::now_millis()).unwrap_or(0),
            end_of_input: matches!(purpose, Purpose::EndOfInput),
            released: last,
            ..CheckpointDraft::default()
        };
        if self.run.is_some() {
            self.status.checkpoint_started(&CheckpointStart { id: checkpoint, kind: kind_of(&purpose), subtasks: self.tasks.len() });
        }
        self.progress.current = Some(InProgress {
            barrier,
            purpose,
            draft,
            missing: (0..self.tasks.len()).collect(),
            alignment: Duration::ZERO,
            synchronous: Duration::ZERO,
            asynchronous: Duration::ZERO,
            start_delay: Duration::ZERO,
        });
        self.tell_sources(&Command::Trigger(barrier)).await;
    }

    async fn acknowledged(&mut self, task: TaskId, acknowledgement: Acknowledgement) -> Result<Option<RunEnd>, RunEnd> {
        let sequence = acknowledgement.barrier.sequence;
        if let Some(attempt) = self.progress.given_up.get(&sequence) {
            // Late: what it holds goes into the next manifest.
            let mut late = CheckpointDraft { attempt: *attempt, ..CheckpointDraft::default() };
            add(&mut late, acknowledgement);
            if let Some(run) = &mut self.run {
                run.give_up(&late);
            }
            return Ok(None);
        }
        let Some(current) = self.progress.current.as_mut().filter(|current| current.barrier.sequence == sequence) else {
            return Err(RunEnd::Failed(Error::internal(format!("a task acknowledged checkpoint attempt {sequence}, which is not under way"))));
        };
        current.alignment = current.alignment.max(acknowledgement.alignment);
        current.synchronous = current.synchronous.max(acknowledgement.synchronous);
        current.asynchronous = current.asynchronous.max(acknowledgement.asynchronous);
        current.start_delay = current.start_delay.max(acknowledgement.start_delay);
        add(&mut current.draft, acknowledgement);
        current.missing.remove(&task);
        if !current.missing.is_empty() {
            return Ok(None);
        }
        let Some(current) = self.progress.current.take() else { return Ok(None) };
        self.all_acknowledged(current).await
    }

    async fn all_acknowledged(&mut self, mut current: InProgress) -> Result<Option<RunEnd>, RunEnd> {
        if let Some(run) = &mut self.run {
            let outcome = loop {
                let outcome = commit(run, &current.draft, &self.parties, self.control, &mut self.progress.deferred).await?;
                match outcome {
                    // The last checkpoint is never given up.
                    Err(RunError::NotDurable(error)) if current.barrier.last && error.retry_helps() => {
                        self.status.warn(&format!("the last checkpoint could not be stored and is tried again: {error}"));
                        tokio::time::sleep(RETRY_PAUSE).await;
                    }
                    outcome => break outcome,
                }
            };
            match outcome {
                Ok(completed) => self.completed(&mut current, &completed).await?,
                Err(RunError::NotDurable(error)) => {
                    self.give_up(current, &error.to_string())?;
                    return Ok(None);
                }
                Err(error) => return Err(RunEnd::Over(error)),
            }
        }
        self.progress.failed_in_row = 0;
        Ok(match current.purpose {
            Purpose::EndOfInput => Some(RunEnd::Finished),
            Purpose::Stop => Some(RunEnd::Stopped),
            Purpose::Interval | Purpose::Asked(_) => None,
        })
    }

    async fn completed(&mut self, current: &mut InProgress, completed: &Completed) -> Result<(), RunEnd> {
        let timings = Timings {
            end_to_end: current.barrier.triggered.elapsed(),
            alignment: current.alignment,
            synchronous: current.synchronous,
            asynchronous: current.asynchronous,
            start_delay: current.start_delay,
        };
        self.status.checkpoint_completed(current.barrier.checkpoint, completed, current.draft.uploaded_bytes, &timings);
        if let Purpose::Asked(answers) = &mut current.purpose {
            for answer in answers.drain(..) {
                let _gone = answer.send(Ok(completed.slot.0));
            }
        }
        self.progress.given_up.clear();
        for task in &self.tasks {
            // A task that has failed is noticed where tasks are joined.
            let _gone = task.commands.send(Command::Completed(current.barrier.sequence)).await;
        }
        let retained = self.settings.as_ref().map_or(1, |settings| settings.num_retained as usize);
        if let Some(run) = &self.run
            && let Err(error) = run.retain(retained).await
        {
            tracing::warn!(%error, "old checkpoints could not be deleted; the next checkpoint tries again");
        }
        self.compact(completed);
        let pause = self.settings.as_ref().map_or(Duration::ZERO, |settings| settings.min_pause);
        self.schedule_after(current.barrier.triggered, pause);
        Ok(())
    }

    fn compact(&mut self, completed: &Completed) {
        let Some(folder) = &self.state_folder else { return };
        for job in compaction::due(&completed.snapshot, &self.progress.compacting) {
            self.progress.compacting.insert((job.uid.clone(), job.subtask));
            tokio::spawn(compaction::run(job, folder.clone(), completed.slot.0, self.event_sender.clone()));
        }
    }

    /// Gives a checkpoint up: the job goes on, and what was prepared goes into the next one.
    fn give_up(&mut self, current: InProgress, reason: &str) -> Result<(), RunEnd> {
        let sequence = current.barrier.sequence;
        self.status.checkpoint_failed(current.barrier.checkpoint, reason, current.barrier.triggered.elapsed());
        self.progress.given_up.insert(sequence, current.draft.attempt);
        if let Some(run) = &mut self.run {
            run.give_up(&current.draft);
        }
        for task in self.tasks.iter().filter(|task| task.source.is_some()) {
            // Never waits: a source that does not read its commands would hold up the coordinator.
            if task.commands.try_send(Command::GiveUp(sequence)).is_err() {
                tracing::warn!(sequence, "a source could not be told that a checkpoint was given up");
            }
        }
        if let Purpose::Asked(answers) = current.purpose {
            for answer in answers {
                let _gone = answer.send(Err(reason.to_owned()));
            }
        }
        self.progress.failed_in_row += 1;
        let tolerable = self.settings.as_ref().map_or(0, |settings| settings.tolerable_failed);
        if self.progress.failed_in_row > tolerable {
            let row = self.progress.failed_in_row;
            return Err(RunEnd::Failed(Error::external(format!(
                "checkpoint {} failed: {reason} ({row} in a row, tolerable-failed-checkpoints is {tolerable})",
                current.barrier.checkpoint
            ))));
        }
        self.schedule_after(current.barrier.triggered, self.settings.as_ref().map_or(Duration::ZERO, |settings| settings.min_pause));
        Ok(())
    }

    fn expire_if_due(&mut self) -> Result<(), RunEnd> {
        let Some(timeout) = self.settings.as_ref().map(|settings| settings.timeout) else { return Ok(()) };
        let expired = |current: &mut InProgress| !current.barrier.last && current.barrier.triggered.elapsed() >= timeout;
        match self.progress.current.take_if(expired) {
            Some(current) => {
                let missing = current.missing.len();
                let reason = format!("not acknowledged by {missing} of {} tasks within {timeout:?}", self.tasks.len());
                self.give_up(current, &reason)
            }
            None => Ok(()),
        }
    }

    // ---- time ----

    fn schedule_next(&mut self, pause: Duration) {
        let interval = self.settings.as_ref().map_or(NEVER, |settings| settings.interval);
        self.progress.next_trigger = Instant::now() + interval.max(pause);
    }

    fn schedule_after(&mut self, triggered: Instant, min_pause: Duration) {
        let interval = self.settings.as_ref().map_or(NEVER, |settings| settings.interval);
        self.progress.next_trigger = (triggered + interval).max(Instant::now() + min_pause);
    }

    fn wake_at(&self) -> Instant {
        let timeout = self.settings.as_ref().map_or(NEVER, |settings| settings.timeout);
        match &self.progress.current {
            Some(current) if !current.barrier.last => current.barrier.triggered + timeout,
            Some(_) => Instant::now() + NEVER,
            None => self.progress.next_trigger,
        }
    }

    // ---- sources ----

    async fn tell_sources(&self, command: &Command) {
        for task in self.tasks.iter().filter(|task| task.source.is_some()) {
            // A task that has failed is noticed where tasks are joined.
            let _gone = task.commands.send(command.clone()).await;
        }
    }

    fn schedule_discovery(&mut self) {
        let intervals = self.tasks.iter().filter_map(|task| task.source.as_ref()?.source.discovery_interval());
        if let Some(interval) = intervals.min() {
            self.progress.discovering = true;
            self.progress.next_discovery = Instant::now() + interval;
        }
    }

    async fn discovered(&mut self, found: Vec<(SourceTask, Result<Vec<Split>, Error>)>) -> Result<(), RunEnd> {
        for (source, splits) in found {
            let splits = splits.map_err(|error| RunEnd::Failed(error.within(format!("source {}", source.uid))))?;
            let known = self.known_splits.entry(Arc::clone(&source.uid)).or_default();
            let readers: Vec<_> =
                self.tasks.iter().filter(|task| task.source.as_ref().is_some_and(|other| other.uid == source.uid)).collect();
            for split in splits {
                let reader = readers[known.len() % readers.len()];
                if known.insert(split.id.clone()) {
                    tracing::info!(source = &*source.uid, split = split.id, "a new split was found");
                    let _gone = reader.commands.send(Command::AddSplits(vec![split])).await;
                }
            }
        }
        self.schedule_discovery();
        Ok(())
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

/// Makes a checkpoint durable and visible; a request to cancel is heard meanwhile, since a commit is tried for as long as it takes.
async fn commit(
    run: &mut Run,
    draft: &CheckpointDraft,
    parties: &Parties<'_>,
    control: &mut mpsc::Receiver<JobCommand>,
    deferred: &mut VecDeque<JobCommand>,
) -> Result<Result<Completed, RunError>, RunEnd> {
    let committed = run.checkpoint(draft, parties);
    tokio::pin!(committed);
    loop {
        tokio::select! {
            biased;
            outcome = &mut committed => return Ok(outcome),
            Some(command) = control.recv() => match command {
                JobCommand::Cancel => return Err(RunEnd::Cancelled),
                other => deferred.push_back(other),
            },
        }
    }
}

/// Records that a stop was asked for; tried for as long as it takes, since a crash must not forget it.
async fn record_stop(run: &mut Run) -> Result<(), RunError> {
    loop {
        match run.record_stop(StopRequest { drain: false, savepoint: None }).await {
            Err(RunError::NotDurable(error)) if error.retry_helps() => tokio::time::sleep(RETRY_PAUSE).await,
            outcome => return outcome,
        }
    }
}

/// Looks for new splits of every source that finds some while it runs, at the given moment.
async fn discover(
    tasks: &[TaskHandle],
    known: &BTreeMap<Arc<str>, BTreeSet<String>>,
    at: Instant,
) -> Vec<(SourceTask, Result<Vec<Split>, Error>)> {
    tokio::time::sleep_until(at.into()).await;
    let none = BTreeSet::new();
    let mut found = Vec::new();
    let mut asked = BTreeSet::new();
    for source in tasks.iter().filter_map(|task| task.source.as_ref()) {
        if source.source.discovery_interval().is_some() && asked.insert(Arc::clone(&source.uid)) {
            let splits = source.source.discover(known.get(&source.uid).unwrap_or(&none)).await;
            found.push((source.clone(), splits));
        }
    }
    found
}

fn kind_of(purpose: &Purpose) -> CheckpointKind {
    match purpose {
        Purpose::Interval | Purpose::Asked(_) => CheckpointKind::Checkpoint,
        Purpose::EndOfInput => CheckpointKind::Final,
        Purpose::Stop => CheckpointKind::Stop,
    }
}

/// Adds a task's part to a checkpoint.
fn add(draft: &mut CheckpointDraft, acknowledgement: Acknowledgement) {
    if let Some((uid, splits)) = acknowledgement.source {
        let source: &mut SourceState = draft.sources.entry(uid.to_string()).or_default();
        for Split { id, position, stop, finished } in splits {
            source.splits.insert(id, SplitState { position, stop, finished });
        }
    }
    for (uid, chain) in acknowledgement.operators {
        let operator = draft.operators.entry(uid.to_string()).or_default();
        operator.subtasks.insert(acknowledgement.subtask, SubtaskDraft { chain, ..SubtaskDraft::default() });
    }
    draft.prepared.extend(acknowledgement.prepared);
    draft.uploaded_bytes += acknowledgement.uploaded_bytes;
}
