//! Sinks that are exactly-once by one transaction for each checkpoint, in which a marker names the checkpoint: the transaction itself holds
//! the decision, and what it did not commit is replayed. A job has at most one such [`LastResource`], which all these sinks share.

use crate::Error;
use crate::checkpoint::participants::{LastResource, LastResourceError};
use crate::checkpoint::protocol::{Attempt, Generation, JobId, StorageId};
use crate::pipeline::plan::CheckpointSettings;
use crate::telemetry::JobMetrics;
use async_trait::async_trait;
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Whose transactions a sink writes through. Sinks of one job that are exactly-once have to agree in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionDomain {
    /// What holds the transactions, in words: `the Kafka cluster at broker-1:9092`.
    pub resource: String,
    /// What names of transactions begin with; none: the name of the job.
    pub prefix: Option<String>,
    /// Settings that have to be the same for all, by name: what is shared is made with them. Secrets stand there as digests.
    pub settings: BTreeMap<String, String>,
}

/// What transactions are opened with.
#[derive(Clone)]
pub struct TransactionContext {
    /// The name of the job.
    pub job: String,
    /// When checkpoints are taken, and how long they may take.
    pub checkpointing: CheckpointSettings,
    /// Where to report the age of transactions, and how many were committed and aborted.
    pub metrics: Arc<JobMetrics>,
}

impl Debug for TransactionContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionContext").field("job", &self.job).field("checkpointing", &self.checkpointing).finish_non_exhaustive()
    }
}

/// A sink that is exactly-once by writing inside of transactions.
#[async_trait]
pub trait TransactionalSink: Send + Sync {
    /// Whose transactions these are.
    fn domain(&self) -> TransactionDomain;

    /// The longest that a checkpoint may take with such an interval, so that its transaction does not time out first.
    ///
    /// # Errors
    /// A sentence, with all numbers, when transactions time out too soon for the interval.
    fn longest_checkpoint(&self, interval: Duration) -> Result<Duration, String>;

    /// Makes what the writers of all sinks of this domain write through. Reaches nothing outside yet.
    ///
    /// # Errors
    /// Options that the client refuses.
    async fn open(&self, context: TransactionContext) -> Result<Arc<dyn Transactions>, Error>;
}

/// The run that writes; its markers say so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunIdentity {
    /// The incarnation of the job.
    pub job: JobId,
    /// The checkpoint directory.
    pub storage: StorageId,
    /// The run.
    pub generation: Generation,
}

/// What came of giving up a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveUp {
    /// Its transaction goes on as part of the next checkpoint's.
    GivenUp,
    /// Its transaction has ended and can only be committed, surely until this moment.
    TooLate(Instant),
}

/// The transactions of one job: of the process as long as it works on the job, through all its restarts.
///
/// An epoch is what lies between two barriers; all of it is one transaction. Barrier N ends its epoch when it has reached every writer:
/// then the marker goes into the transaction, and the next epoch begins with another producer, while N is stored and committed.
#[async_trait]
pub trait Transactions: LastResource + Any + Debug {
    /// A run begins, after [`LastResource::fence`] and before its first record; `writers` is how many writers bring each barrier.
    ///
    /// # Errors
    /// When the first transaction cannot be begun.
    async fn begin(&self, run: RunIdentity, writers: usize) -> Result<(), Error>;

    /// Gives up a checkpoint, unless its epoch has ended. Writers that wait with its barrier go on in the same transaction.
    fn give_up(&self, checkpoint: Attempt) -> GiveUp;

    /// Waits until the transactions of the run are lost: a record was not delivered, or another producer took over. Only a recovery mends
    /// that, and it need not wait for the next barrier. Never ends while all is well. Cancel-safe.
    async fn lost(&self) -> LastResourceError;

    /// Ends the run: aborts what is open, so that readers need not wait for it to time out. What is being committed stays as it is.
    async fn end(&self);
}
