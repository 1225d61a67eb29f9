//! The metrics of one job, and the handles of its subtasks.

use super::TaskMetrics;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Counts what happens to a job as a whole, and holds the handles of its subtasks.
#[derive(Debug, Default)]
pub struct JobMetrics {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    tasks: BTreeMap<(String, usize), Arc<TaskMetrics>>,
    reading: JobReading,
    transactions: Option<TransactionsSource>,
}

/// Where the numbers of a job's transactions are read when somebody asks for them.
#[derive(Clone)]
struct TransactionsSource(Arc<dyn Fn() -> TransactionsReading + Send + Sync>);

impl fmt::Debug for TransactionsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TransactionsSource")
    }
}

/// The numbers of a job at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobReading {
    /// Checkpoints that were completed.
    pub checkpoints_completed: u64,
    /// Checkpoints that failed or expired.
    pub checkpoints_failed: u64,
    /// Checkpoints that are under way.
    pub checkpoints_in_progress: u64,
    /// The last completed checkpoint.
    pub last_checkpoint: Option<CheckpointReading>,
    /// How often the job was started again after a failure, in this process.
    pub restarts: u64,
    /// The transactions that its sinks write through, if they do.
    pub transactions: Option<TransactionsReading>,
}

/// The numbers of a job's transactions at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionsReading {
    /// How long the oldest open one has been open; none while the job does not run.
    pub oldest_open: Option<Duration>,
    /// How many were committed.
    pub committed: u64,
    /// How many were aborted.
    pub aborted: u64,
    /// How many writers wait with a barrier for the others.
    pub waiting_writers: u64,
    /// How long the first writer waited for the last one, at the last barrier that all brought.
    pub barrier_wait: Option<Duration>,
}

/// The numbers of a completed checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointReading {
    /// From its trigger to its completion.
    pub duration: Duration,
    /// What was written for it, in bytes.
    pub size_bytes: u64,
    /// All that a restore from it reads, in bytes: with what earlier checkpoints wrote.
    pub full_size_bytes: u64,
    /// The longest alignment of a subtask.
    pub alignment: Duration,
    /// The longest way of the barrier to a subtask.
    pub start_delay: Duration,
}

impl JobMetrics {
    /// The handle of a subtask; the same one for the same uid and number.
    pub fn task(&self, uid: &str, subtask: usize) -> Arc<TaskMetrics> {
        Arc::clone(self.state().tasks.entry((uid.to_owned(), subtask)).or_default())
    }

    /// Forgets the handles of all subtasks, for a job that goes on with another plan.
    pub fn forget_tasks(&self) {
        self.state().tasks.clear();
    }

    /// All handles with uid and number, in that order.
    pub fn tasks(&self) -> Vec<(String, usize, Arc<TaskMetrics>)> {
        self.state().tasks.iter().map(|((uid, subtask), task)| (uid.clone(), *subtask, Arc::clone(task))).collect()
    }

    /// A checkpoint was triggered.
    pub fn checkpoint_triggered(&self) {
        self.state().reading.checkpoints_in_progress += 1;
    }

    /// A checkpoint that was triggered is completed.
    pub fn checkpoint_completed(&self, checkpoint: CheckpointReading) {
        let mut state = self.state();
        state.reading.checkpoints_in_progress = state.reading.checkpoints_in_progress.saturating_sub(1);
        state.reading.checkpoints_completed += 1;
        state.reading.last_checkpoint = Some(checkpoint);
    }

    /// A checkpoint that was triggered failed or expired.
    pub fn checkpoint_failed(&self) {
        let mut state = self.state();
        state.reading.checkpoints_in_progress = state.reading.checkpoints_in_progress.saturating_sub(1);
        state.reading.checkpoints_failed += 1;
    }

    /// The job is started again after a failure; checkpoints that were under way are not any more.
    pub fn restarted(&self) {
        let mut state = self.state();
        state.reading.restarts += 1;
        state.reading.checkpoints_in_progress = 0;
    }

    /// Reads the numbers of the job's transactions from here; in place of where they were read before.
    pub fn read_transactions_from(&self, source: impl Fn() -> TransactionsReading + Send + Sync + 'static) {
        self.state().transactions = Some(TransactionsSource(Arc::new(source)));
    }

    /// The numbers at this moment.
    pub fn reading(&self) -> JobReading {
        let (mut reading, source) = {
            let state = self.state();
            (state.reading.clone(), state.transactions.clone())
        };
        reading.transactions = source.map(|TransactionsSource(read)| read());
        reading
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
