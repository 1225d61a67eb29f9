//! Sources: where records come from. A source is cut into splits (a partition, a file), each read in order and replayable from any position.

#[cfg(any(test, feature = "testing"))]
pub mod conformance;
pub mod file;
pub mod generator;
#[cfg(feature = "kafka")]
pub mod kafka;
mod rate;

pub use file::FileType;
pub use generator::GeneratorType;
#[cfg(feature = "kafka")]
pub use kafka::KafkaType;

use crate::Error;
use crate::config::Fault;
use crate::record::{Batch, SplitTable};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// A split and where reading it goes on: what a checkpoint keeps of a source. Position and stop are the source's own JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Split {
    /// The name of the split within its source; it never changes.
    pub id: String,
    /// Where the next record is read.
    pub position: Value,
    /// Where reading ends; none for a split without an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Value>,
    /// Whether the split has been read to its end.
    #[serde(default)]
    pub finished: bool,
}

/// How large a batch may become, and how long a reader may wait for it to fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Records at most.
    pub records: usize,
    /// Bytes at most; a single larger record is a batch of its own.
    pub bytes: usize,
    /// How long to wait for more once a record is there.
    pub linger: Duration,
}

impl BatchLimits {
    /// Whether a batch has room for a record of so many bytes of key and value; an empty one has, whatever the size.
    pub fn has_room(&self, batch: &Batch, bytes: usize) -> bool {
        batch.is_empty() || (batch.len() < self.records && batch.byte_len() + bytes <= self.bytes)
    }

    /// Whether a batch has no room for another record.
    pub fn reached(&self, batch: &Batch) -> bool {
        batch.len() >= self.records || batch.byte_len() >= self.bytes
    }
}

/// What a reader is opened with.
#[derive(Clone, Debug)]
pub struct ReaderContext {
    /// The uid of the source in the job.
    pub uid: String,
    /// The number of this subtask, from 0.
    pub subtask: usize,
    /// The number of subtasks of this source.
    pub parallelism: usize,
    /// How large batches may become.
    pub limits: BatchLimits,
    /// Where the reader gets the numbers of its splits, for the origins of its records.
    pub split_table: SplitTable,
}

/// What a call of [`SourceReader::next_batch`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStatus {
    /// There may be more; the batch may have stayed empty.
    Open,
    /// All splits of this reader were read to their ends; the batch may hold their last records. Later calls say the same unless splits are added.
    Finished,
}

/// A source of a job: finds the splits and opens readers of them.
///
/// Numbers that never end, in one split whose position is the next number:
///
/// ```
/// use async_trait::async_trait;
/// use serde_json::json;
/// use std::collections::BTreeSet;
/// use waterwheel::Error;
/// use waterwheel::record::{Batch, Origin, Row};
/// use waterwheel::source::{ReadStatus, ReaderContext, Source, SourceReader, Split};
///
/// #[derive(Debug)]
/// struct Numbers;
///
/// #[async_trait]
/// impl Source for Numbers {
///     async fn discover(&self, known: &BTreeSet<String>) -> Result<Vec<Split>, Error> {
///         let all = Split { id: "all".into(), position: json!(0), stop: None, finished: false };
///         Ok(if known.is_empty() { vec![all] } else { Vec::new() })
///     }
///
///     fn is_bounded(&self) -> bool {
///         false
///     }
///
///     async fn open(&self, context: ReaderContext) -> Result<Box<dyn SourceReader>, Error> {
///         Ok(Box::new(Reader { context, next: None }))
///     }
/// }
///
/// struct Reader {
///     context: ReaderContext,
///     /// None for a subtask that the split was not dealt to.
///     next: Option<u64>,
/// }
///
/// #[async_trait]
/// impl SourceReader for Reader {
///     async fn add_splits(&mut self, splits: Vec<Split>) -> Result<(), Error> {
///         for split in splits {
///             self.next = Some(split.position.as_u64().ok_or_else(|| Error::internal("this is no position"))?);
///         }
///         Ok(())
///     }
///
///     async fn next_batch(&mut self, batch: &mut Batch) -> Result<ReadStatus, Error> {
///         // Without a split there is nothing to read: wait, do not spin.
///         let Some(next) = &mut self.next else { return std::future::pending().await };
///         let split = self.context.split_table.number(&self.context.uid, "all");
///         while !self.context.limits.reached(batch) {
///             let origin = Origin { split, position: *next };
///             batch.push(Row { key: None, value: Some(next.to_string().as_bytes()), timestamp: 0, origin });
///             *next += 1;
///         }
///         Ok(ReadStatus::Open)
///     }
///
///     fn positions(&self) -> Vec<Split> {
///         let split = |next| Split { id: "all".into(), position: json!(next), stop: None, finished: false };
///         self.next.map(split).into_iter().collect()
///     }
/// }
/// ```
///
/// A [`SourceType`] makes it known to a host; the suite in `conformance` (feature `testing`) checks it.
#[async_trait]
pub trait Source: Send + Sync + Debug {
    /// Finds splits other than those in `known`, with the position where reading starts, and the end if it is bounded, both resolved:
    /// what a word such as `latest` means is decided here, once, and never again after a crash.
    ///
    /// Called once before the first record (`known` is empty), and every [`Source::discovery_interval`] afterwards.
    async fn discover(&self, known: &BTreeSet<String>) -> Result<Vec<Split>, Error>;

    /// How often to look for new splits. By default never.
    fn discovery_interval(&self) -> Option<Duration> {
        None
    }

    /// What the positions of its splits depend on, by the names of its options: with another value the positions would mean other records, or
    /// none. It is kept in each checkpoint, and a job that restores one under the same uid with another value is refused. What may change
    /// from start to start (a rate, a batch size, what is looked for how often) is not part of it, and no secret either. By default nothing.
    fn identity(&self) -> BTreeMap<String, Value> {
        BTreeMap::new()
    }

    /// Whether the source ends by itself.
    fn is_bounded(&self) -> bool;

    /// Opens the reader of one subtask; its splits follow by [`SourceReader::add_splits`].
    async fn open(&self, context: ReaderContext) -> Result<Box<dyn SourceReader>, Error>;
}

/// How many records wait in each split, by its id, at the moment of the call. It must not wait.
pub type SplitLag = Arc<dyn Fn() -> Vec<(String, u64)> + Send + Sync>;

/// The reader of one subtask.
///
/// 1. Replayable: from a position that [`SourceReader::positions`] reported, the same records follow in the same order.
/// 2. Records of one split come in order.
/// 3. `next_batch` is cancel-safe: whenever its future is dropped, `positions` lies behind exactly the records that were appended to the batch.
#[async_trait]
pub trait SourceReader: Send {
    /// Takes splits to read from their positions.
    async fn add_splits(&mut self, splits: Vec<Split>) -> Result<(), Error>;

    /// Appends the next records to `batch`: waits for the first one, then until the batch is full or the linger time is over.
    /// A reader without splits, or with nothing more to read for now, waits; it never spins.
    async fn next_batch(&mut self, batch: &mut Batch) -> Result<ReadStatus, Error>;

    /// All splits that were ever added, finished ones too, with the position behind the last record appended.
    fn positions(&self) -> Vec<Split>;

    /// How many records are known to wait, if the source knows.
    fn pending_records(&self) -> Option<u64> {
        None
    }

    /// Where those who watch the job read how many records wait in each split, if the source knows. Asked once, when the reader was opened.
    fn split_lag(&self) -> Option<SplitLag> {
        None
    }

    /// A checkpoint that holds these positions was completed. Only informs the outside; an error is logged and changes nothing.
    async fn on_completed(&mut self, _positions: &[Split]) -> Result<(), Error> {
        Ok(())
    }
}

/// A kind of source that job files can name as `type`.
pub trait SourceType: Send + Sync + Debug {
    /// The name in job files.
    fn name(&self) -> &str;

    /// The JSON schema of its options (an object without `uid`, `type` and what all sources share).
    fn options_schema(&self) -> schemars::Schema;

    /// Makes the source from its options.
    ///
    /// # Errors
    /// Every fault at once; the paths start at the options.
    fn create(&self, uid: &str, options: &Value) -> Result<Arc<dyn Source>, Vec<Fault>>;
}
