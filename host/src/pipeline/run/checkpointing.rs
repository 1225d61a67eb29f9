//! The coordinator's checkpoints: triggered, acknowledged by every task, committed, or given up.

use super::channel::Barrier;
use super::compaction;
use super::coordinator::{Asked, Coordinator, JobCommand, RETRY_PAUSE, RunEnd};
use super::event_time::keep_greatest;
use super::status::{CheckpointKind, CheckpointStart, Timings};
use super::task::{Command, SourceSnapshot, TaskId};
use super::upload::Acknowledgement;
use crate::Error;
use crate::checkpoint::commit::{Completed, Parties, Run, RunError};
use crate::checkpoint::participants::LastResource;
use crate::checkpoint::protocol::{Attempt, CheckpointDraft, SourceState, SplitState};
use crate::sink::{GiveUp, Transactions};
use crate::source::Split;
use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Why a checkpoint is taken, and what follows it.
#[derive(Debug)]
pub(super) enum Purpose {
    Interval,
    Asked(Vec<Asked>),
    EndOfInput,
    Stop,
}

/// A checkpoint on its way.
#[derive(Debug)]
pub(super) struct InProgress {
    pub(super) barrier: Barrier,
    pub(super) purpose: Purpose,
    pub(super) draft: CheckpointDraft,
    pub(super) missing: HashSet<TaskId>,
    pub(super) alignment: Duration,
    pub(super) synchronous: Duration,
    pub(super) asynchronous: Duration,
    pub(super) start_delay: Duration,
    /// It took too long, but cannot be given up any more: surely until then it can be committed.
    pub(super) until: Option<Instant>,
}

impl Coordinator<'_> {
    pub(super) async fn trigger_if_due(&mut self) {
        if self.progress.current.is_some() || self.progress.not_ready > 0 {
            return;
        }
        if self.progress.drains() && !std::mem::replace(&mut self.progress.drained, true) {
            self.progress.discovering = false;
            self.tell_sources(&Command::Drain).await;
        }
        let purpose = if self.progress.unfinished.is_empty() {
            Purpose::EndOfInput
        } else if self.progress.stopping.as_ref().is_some_and(|request| !request.drain) {
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
        let attempt = Attempt::random();
        let barrier = Barrier { sequence: self.progress.sequence, checkpoint, attempt, last, triggered: Instant::now() };
        let draft = CheckpointDraft {
            attempt,
            transactional_ids: self.parties.last_resource.map(LastResource::ids).unwrap_or_default(),
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
            until: None,
        });
        self.tell_sources(&Command::Trigger(barrier)).await;
    }

    pub(super) async fn acknowledged(&mut self, task: TaskId, acknowledgement: Acknowledgement) -> Result<Option<RunEnd>, RunEnd> {
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
            return Err(RunEnd::Failed(Error::internal(format!(
                "a task acknowledged checkpoint attempt {sequence}, which is not under way"
            ))));
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
                    Err(RunError::NotDurable(error)) if error.retry_helps() && can_still_be_committed(self.transactions, &mut current)? => {
                        self.status.warn(&format!("the checkpoint could not be stored and is tried again: {error}"));
                        tokio::time::sleep(RETRY_PAUSE).await;
                    }
                    outcome => break outcome,
                }
            };
            match outcome {
                Ok(completed) => {
                    self.completed(&mut current, &completed).await?;
                    if current.barrier.last {
                        self.save_at_end(completed.slot).await?;
                    }
                }
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

    /// After the last checkpoint: a run that this one superseded while it was at work may have left files behind after this one's start.
    async fn clean_up(&self) {
        if let Some(run) = &self.run
            && let Err(error) = run.clean_up(self.parties.participants).await
        {
            tracing::warn!(error = %error.chain(), "what a superseded run left behind could not be removed; the next start tries again");
        }
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
            for asked in answers.drain(..) {
                match asked {
                    Asked::Checkpoint(answer) => {
                        let _gone = answer.send(Ok(completed.slot.0));
                    }
                    Asked::Savepoint(asked) => self.begin_saving(completed.slot, asked),
                }
            }
        }
        self.progress.given_up.clear();
        for task in &self.tasks {
            // A task that has failed is noticed where tasks are joined.
            let _gone = task.commands.send(Command::Completed(current.barrier.sequence)).await;
        }
        let retained = self.settings.as_ref().map_or(1, |settings| settings.num_retained as usize);
        // A savepoint that is being made reads files that may be old by now.
        if let Some(run) = self.run.as_ref().filter(|_| self.progress.saving.is_empty())
            && let Err(error) = run.retain(retained).await
        {
            tracing::warn!(%error, "old checkpoints could not be deleted; the next checkpoint tries again");
        }
        self.delete_claimed().await;
        if current.barrier.last {
            self.clean_up().await;
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
            for asked in answers {
                asked.fail(reason);
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

    pub(super) fn expire_if_due(&mut self) -> Result<(), RunEnd> {
        let Some(timeout) = self.settings.as_ref().map(|settings| settings.timeout) else { return Ok(()) };
        let expired = |current: &mut InProgress| !current.barrier.last && current.barrier.triggered.elapsed() >= timeout;
        let Some(mut current) = self.progress.current.take_if(expired) else { return Ok(()) };
        if can_still_be_committed(self.transactions, &mut current)? {
            self.progress.current = Some(current);
            return Ok(());
        }
        let missing = current.missing.len();
        let reason = format!("not acknowledged by {missing} of {} tasks within {timeout:?}", self.tasks.len());
        self.give_up(current, &reason)
    }

    async fn tell_sources(&self, command: &Command) {
        for task in self.tasks.iter().filter(|task| task.source.is_some()) {
            // A task that has failed is noticed where tasks are joined.
            let _gone = task.commands.send(command.clone()).await;
        }
    }
}

/// Whether a checkpoint that is in trouble cannot be given up because its transaction has ended; then it is tried for as long as the
/// transaction lives. False: it may be given up, and its transaction goes on.
fn can_still_be_committed(transactions: Option<&dyn Transactions>, current: &mut InProgress) -> Result<bool, RunEnd> {
    let Some(transactions) = transactions else { return Ok(false) };
    match transactions.give_up(current.draft.attempt) {
        GiveUp::GivenUp => Ok(false),
        GiveUp::TooLate(until) if until > Instant::now() => {
            current.until = Some(until);
            Ok(true)
        }
        GiveUp::TooLate(_) => Err(RunEnd::Failed(Error::external(format!(
            "checkpoint {} could not be stored before its transaction times out: what it holds is read again",
            current.barrier.checkpoint
        )))),
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

fn kind_of(purpose: &Purpose) -> CheckpointKind {
    match purpose {
        Purpose::Interval | Purpose::Asked(_) => CheckpointKind::Checkpoint,
        Purpose::EndOfInput => CheckpointKind::Final,
        Purpose::Stop => CheckpointKind::Stop,
    }
}

/// Adds a task's part to a checkpoint.
fn add(draft: &mut CheckpointDraft, acknowledgement: Acknowledgement) {
    if let Some(SourceSnapshot { uid, splits, greatest }) = acknowledgement.source {
        let source: &mut SourceState = draft.sources.entry(uid.to_string()).or_default();
        for Split { id, position, stop, finished } in splits {
            source.splits.insert(id, SplitState { position, stop, finished });
        }
        keep_greatest(&mut source.extra, greatest);
    }
    for (uid, subtask) in acknowledgement.operators {
        let operator = draft.operators.entry(uid.to_string()).or_default();
        operator.subtasks.insert(acknowledgement.subtask, subtask);
    }
    draft.prepared.extend(acknowledgement.prepared);
    draft.uploaded_bytes += acknowledgement.uploaded_bytes;
}
