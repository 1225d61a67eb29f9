//! Sinks: where records go. A sink declares what it can promise; a job that asks for more is refused.

#[cfg(any(test, feature = "testing"))]
pub mod conformance;
mod discard;
pub mod file;
mod format;
#[cfg(feature = "kafka")]
pub mod kafka;
mod stdout;
mod transactional;

pub use discard::{DiscardOptions, DiscardSink, DiscardType};
pub use file::FileType;
pub use format::Format;
#[cfg(feature = "kafka")]
pub use kafka::KafkaType;
pub use stdout::{StdoutOptions, StdoutType};
pub use transactional::{GiveUp, RunIdentity, TransactionContext, TransactionDomain, TransactionalSink, Transactions};

use crate::Error;
use crate::checkpoint::protocol::Attempt;
use crate::config::Fault;
use crate::record::{Batch, SplitTable};
use crate::telemetry::TaskMetrics;
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::{self, Debug};
use std::sync::Arc;

/// What a sink promises about each record through crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Guarantee {
    /// Nothing: records may be lost or repeated.
    None,
    /// No record is lost; some may be repeated after a crash.
    AtLeastOnce,
    /// Every record's effect is visible once.
    ExactlyOnce,
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::AtLeastOnce => "at-least-once",
            Self::ExactlyOnce => "exactly-once",
        })
    }
}

/// What a writer is opened with.
#[derive(Clone, Debug)]
pub struct WriterContext {
    /// The id of the job, which names of pending work carry.
    pub job: String,
    /// The uid of the sink in the job.
    pub uid: String,
    /// The number of this subtask, from 0.
    pub subtask: usize,
    /// The number of subtasks of this sink.
    pub parallelism: usize,
    /// The generation of the run: names of pending work carry it, so that only what is older is ever cleaned up.
    pub generation: u64,
    /// Turns the origin of a record into words, for errors.
    pub split_table: SplitTable,
    /// Counts what this subtask does.
    pub metrics: Arc<TaskMetrics>,
    /// What the sink's writers write through, if the sink is a [`TransactionalSink`] and exactly-once in this job.
    pub transactions: Option<Arc<dyn Transactions>>,
}

/// A checkpoint as a writer meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointBarrier {
    /// The number that it is to have.
    pub checkpoint: u64,
    /// Identifies this attempt at it: numbers of attempts that were given up are used again.
    pub attempt: Attempt,
    /// Whether the job ends behind it.
    pub last: bool,
}

/// A sink of a job: opens writers.
///
/// One that appends values to a file, at least once:
///
/// ```
/// use async_trait::async_trait;
/// use std::fs::{File, OpenOptions};
/// use std::io::Write;
/// use waterwheel::Error;
/// use waterwheel::record::Batch;
/// use waterwheel::sink::{Sink, SinkWriter, WriterContext};
///
/// #[derive(Debug)]
/// struct Append;
///
/// #[async_trait]
/// impl Sink for Append {
///     async fn open(&self, context: WriterContext) -> Result<Box<dyn SinkWriter>, Error> {
///         let name = format!("{}-{}.txt", context.uid, context.subtask);
///         let file = OpenOptions::new().create(true).append(true).open(&name);
///         Ok(Box::new(Writer(file.map_err(|error| Error::external(format!("{name} cannot be opened")).caused_by(error))?)))
///     }
/// }
///
/// struct Writer(File);
///
/// #[async_trait]
/// impl SinkWriter for Writer {
///     async fn write(&mut self, batch: &Batch) -> Result<(), Error> {
///         let lines: Vec<u8> = batch.rows().flat_map(|row| [row.value.unwrap_or_default(), b"\n"]).flatten().copied().collect();
///         self.0.write_all(&lines).map_err(|error| Error::external("the file cannot be written").caused_by(error))
///     }
///
///     async fn flush(&mut self) -> Result<(), Error> {
///         self.0.sync_data().map_err(|error| Error::external("the file cannot be synced").caused_by(error))
///     }
/// }
/// ```
///
/// A [`SinkType`] makes it known to a host; the suite in `conformance` (feature `testing`) checks it.
#[async_trait]
pub trait Sink: Send + Sync + Debug {
    /// Opens the writer of one subtask.
    async fn open(&self, context: WriterContext) -> Result<Box<dyn SinkWriter>, Error>;

    /// Looks at what the sink needs outside (a topic, a permission, a setting of a server) and changes nothing there but what the job asks
    /// to have made. Called before each start of the job.
    ///
    /// # Errors
    /// What is missing, in a sentence; [`Error::retry_helps`] when it may only be out of reach.
    async fn verify(&self) -> Result<(), Error> {
        Ok(())
    }

    /// What the sink promises as it is configured, by what, and what its readers have to do. By default what its type says.
    fn promise(&self) -> Option<String> {
        None
    }

    /// The other face of a sink that is exactly-once by two-phase commit. By default there is none.
    fn as_two_phase(&self) -> Option<&dyn TwoPhaseSink> {
        None
    }

    /// The other face of a sink that is exactly-once by writing inside of transactions that hold the decision. By default there is none.
    fn as_transactional(&self) -> Option<&dyn TransactionalSink> {
        None
    }
}

/// The writer of one subtask.
#[async_trait]
pub trait SinkWriter: Send {
    /// Takes a batch. It need not be durable before [`SinkWriter::flush`] or [`SinkWriter::prepare`].
    async fn write(&mut self, batch: &Batch) -> Result<(), Error>;

    /// Returns when all that was written is durable. An at-least-once sink is flushed at every barrier before the checkpoint goes on.
    async fn flush(&mut self) -> Result<(), Error>;

    /// The first phase, of an exactly-once writer at the barrier of a checkpoint: all that was written since the barrier before is durable
    /// and invisible, survives the process, and what comes later is separate from it. The answer is what [`TwoPhaseSink::commit`] needs;
    /// it goes into the manifest. Nothing written: an empty list.
    async fn prepare(&mut self, _barrier: &CheckpointBarrier) -> Result<Vec<Value>, Error> {
        Ok(Vec::new())
    }

    /// The input has ended and the last checkpoint is completed, or the job is stopping.
    async fn close(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// A sink that is exactly-once by two-phase commit: its writers prepare, the host commits what the manifest of a checkpoint names.
///
/// 1. Nothing is visible before `commit`.
/// 2. `commit` and `abort` are idempotent, and checked: a commit that finds neither the prepared work nor its result fails and names what is missing.
/// 3. Prepared work survives the process.
///
/// Of a sink whose writers leave each part as `NAME.pending` at [`SinkWriter::prepare`], where NAME holds job, generation and a counter, and answer
/// with the name:
///
/// ```
/// use async_trait::async_trait;
/// use serde_json::Value;
/// use std::path::{Path, PathBuf};
/// use waterwheel::Error;
/// use waterwheel::sink::TwoPhaseSink;
///
/// struct Parts(PathBuf);
///
/// impl Parts {
///     /// Where a part is, prepared and committed.
///     fn paths(&self, prepared: &Value) -> (PathBuf, PathBuf) {
///         let name = prepared.as_str().unwrap_or_default();
///         (self.0.join(format!("{name}.pending")), self.0.join(name))
///     }
/// }
///
/// #[async_trait]
/// impl TwoPhaseSink for Parts {
///     async fn commit(&self, prepared: &[Value]) -> Result<(), Error> {
///         for part in prepared {
///             let (pending, visible) = self.paths(part);
///             match std::fs::rename(&pending, &visible) {
///                 Ok(()) => {}
///                 // Committed before a crash. Neither here nor there is an error, never "done already".
///                 Err(_) if !pending.exists() && visible.exists() => {}
///                 Err(error) => return Err(Error::external(format!("{part} cannot be committed")).caused_by(error)),
///             }
///         }
///         Ok(())
///     }
///
///     async fn abort(&self, prepared: &[Value]) -> Result<(), Error> {
///         prepared.iter().try_for_each(|part| remove(&self.paths(part).0))
///     }
///
///     async fn clean_up(&self, job: &str, below: u64, keep: &[Value]) -> Result<(), Error> {
///         let unreadable = |error: std::io::Error| Error::external("the parts cannot be listed").caused_by(error);
///         for entry in std::fs::read_dir(&self.0).map_err(unreadable)? {
///             let path = entry.map_err(unreadable)?.path();
///             let kept = keep.iter().any(|part| self.paths(part).0 == path);
///             if !kept && is_leftover(&path, job, below) {
///                 remove(&path)?;
///             }
///         }
///         Ok(())
///     }
/// }
///
/// /// What is gone already need not be removed.
/// fn remove(path: &Path) -> Result<(), Error> {
///     match std::fs::remove_file(path) {
///         Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::external("a part cannot be removed").caused_by(error)),
///         _ => Ok(()),
///     }
/// }
///
/// /// Whether a path is that of a part `JOB.GENERATION.COUNTER.pending` of this job, and of a generation below.
/// fn is_leftover(path: &Path, job: &str, below: u64) -> bool {
///     let name = path.file_name().and_then(|name| name.to_str());
///     let rest = name.and_then(|name| name.strip_suffix(".pending")?.strip_prefix(job)?.strip_prefix('.'));
///     let generation = rest.and_then(|rest| rest.split('.').next()?.parse::<u64>().ok());
///     generation.is_some_and(|generation| generation < below)
/// }
/// ```
#[async_trait]
pub trait TwoPhaseSink: Send + Sync {
    /// Makes prepared work visible, in the order given. Called again with the same work after a crash.
    async fn commit(&self, prepared: &[Value]) -> Result<(), Error>;

    /// Undoes prepared work that no manifest holds. For recovery only.
    async fn abort(&self, prepared: &[Value]) -> Result<(), Error>;

    /// Deletes what runs of this job of a generation below `below` left, prepared or not, except what `keep` names.
    async fn clean_up(&self, job: &str, below: u64, keep: &[Value]) -> Result<(), Error>;

    /// Where output of this job is visible, if there is some. Asked before a job begins for the first time: if there is some, the job has run before
    /// and its checkpoints are lost, which is refused. By default nothing is known.
    async fn visible_output(&self, _job: &str) -> Result<Option<String>, Error> {
        Ok(None)
    }
}

/// A kind of sink that job files can name as `type`.
pub trait SinkType: Send + Sync + Debug {
    /// The name in job files.
    fn name(&self) -> &str;

    /// The JSON schema of its options (an object without `uid`, `type` and what all sinks share).
    fn options_schema(&self) -> schemars::Schema;

    /// What it can promise, in rising order.
    fn guarantees(&self) -> &[Guarantee];

    /// What it can promise in a sentence, and by what: the refusal of a stronger guarantee, and the plan, say it.
    fn promise(&self) -> &str;

    /// Makes the sink from its options and the guarantee that was asked for, which is one of [`SinkType::guarantees`].
    ///
    /// # Errors
    /// Every fault at once; the paths start at the options.
    fn create(&self, uid: &str, options: &Value, guarantee: Guarantee) -> Result<Arc<dyn Sink>, Vec<Fault>>;
}
