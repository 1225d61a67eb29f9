//! A source of its own for event time: splits of given timestamps, of which a test lets through as many as it likes.

use super::numbers::NoOptions;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use waterwheel::Error;
use waterwheel::config::{Fault, parse_options};
use waterwheel::record::{Batch, Origin, Row};
use waterwheel::source::{ReadStatus, ReaderContext, Source, SourceReader, SourceType, Split};

/// Records that are read at once.
const TOGETHER: usize = 10;
const LOOK: Duration = Duration::from_millis(2);

/// The source: it never ends by itself.
#[derive(Clone, Debug)]
pub(crate) struct Timed(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// By split, key and timestamp of each record.
    splits: Vec<Vec<(String, i64)>>,
    /// By split, how many records may be read.
    allowed: Vec<AtomicUsize>,
    ended: AtomicBool,
    failing: AtomicBool,
}

impl Timed {
    pub(crate) fn new(splits: Vec<Vec<(String, i64)>>) -> Self {
        let allowed = splits.iter().map(|_| AtomicUsize::new(0)).collect();
        Self(Arc::new(Shared { splits, allowed, ended: AtomicBool::new(false), failing: AtomicBool::new(false) }))
    }

    /// Lets so many records of a split through, those before included.
    pub(crate) fn allow(&self, split: usize, records: usize) {
        self.0.allowed[split].store(records, SeqCst);
    }

    /// Lets all records through.
    pub(crate) fn allow_all(&self) {
        (0..self.0.splits.len()).for_each(|split| self.allow(split, self.0.splits[split].len()));
    }

    /// Ends when all records are read.
    pub(crate) fn end(&self) {
        self.allow_all();
        self.0.ended.store(true, SeqCst);
    }

    /// Fails once.
    pub(crate) fn fail(&self) {
        self.0.failing.store(true, SeqCst);
    }

    /// All records.
    pub(crate) fn records(&self) -> impl Iterator<Item = &(String, i64)> {
        self.0.splits.iter().flatten()
    }
}

impl SourceType for Timed {
    fn name(&self) -> &str {
        "timed"
    }

    fn options_schema(&self) -> schemars::Schema {
        schemars::schema_for!(NoOptions)
    }

    fn create(&self, _uid: &str, options: &Value) -> Result<Arc<dyn Source>, Vec<Fault>> {
        let NoOptions {} = parse_options(options)?;
        Ok(Arc::new(self.clone()))
    }
}

#[async_trait]
impl Source for Timed {
    async fn discover(&self, known: &BTreeSet<String>) -> Result<Vec<Split>, Error> {
        let split = |id: usize| Split { id: id.to_string(), position: json!(0), stop: None, finished: false };
        Ok((0..self.0.splits.len()).map(split).filter(|split| !known.contains(&split.id)).collect())
    }

    fn is_bounded(&self) -> bool {
        false
    }

    async fn open(&self, context: ReaderContext) -> Result<Box<dyn SourceReader>, Error> {
        Ok(Box::new(Reader { shared: Arc::clone(&self.0), context, splits: Vec::new() }))
    }
}

struct Reader {
    shared: Arc<Shared>,
    context: ReaderContext,
    /// Each split with the number of its next record.
    splits: Vec<(usize, usize)>,
}

impl Reader {
    /// The split that is furthest behind of those that may be read.
    fn readable(&mut self) -> Option<&mut (usize, usize)> {
        let shared = &self.shared;
        self.splits.iter_mut().filter(|(split, next)| *next < shared.allowed[*split].load(SeqCst)).min_by_key(|(_, next)| *next)
    }
}

#[async_trait]
impl SourceReader for Reader {
    async fn add_splits(&mut self, splits: Vec<Split>) -> Result<(), Error> {
        let place = |split: Split| (split.id.parse().unwrap(), usize::try_from(split.position.as_u64().unwrap()).unwrap());
        self.splits.extend(splits.into_iter().map(place));
        Ok(())
    }

    async fn next_batch(&mut self, batch: &mut Batch) -> Result<ReadStatus, Error> {
        tokio::time::sleep(LOOK).await;
        let shared = Arc::clone(&self.shared);
        if shared.failing.swap(false, SeqCst) {
            return Err(Error::external("time stands still for a moment"));
        }
        let (uid, table) = (self.context.uid.clone(), self.context.split_table.clone());
        let Some((split, next)) = self.readable() else {
            let is_read = |(split, next): &(usize, usize)| *next == shared.splits[*split].len();
            let all_read = self.splits.iter().all(is_read) && shared.ended.load(SeqCst);
            return Ok(if all_read { ReadStatus::Finished } else { ReadStatus::Open });
        };
        let number = table.number(&uid, &split.to_string());
        let end = shared.allowed[*split].load(SeqCst).min(*next + TOGETHER);
        for (position, (key, timestamp)) in shared.splits[*split][*next..end].iter().enumerate() {
            let origin = Origin { split: number, position: (*next + position) as u64 };
            batch.push(Row { key: Some(key.as_bytes()), value: Some(b"x"), timestamp: *timestamp, origin });
        }
        *next = end;
        Ok(ReadStatus::Open)
    }

    fn positions(&self) -> Vec<Split> {
        let ended = self.shared.ended.load(SeqCst);
        let split = |(split, next): &(usize, usize)| Split {
            id: split.to_string(),
            position: json!(next),
            stop: None,
            finished: ended && *next == self.shared.splits[*split].len(),
        };
        self.splits.iter().map(split).collect()
    }
}
