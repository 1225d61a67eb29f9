//! The source of the service: a log of orders, appended to a file and kept in memory. It is replayable because an order never moves: its
//! number is its position.

use crate::NoOptions;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;
use waterwheel::Error;
use waterwheel::config::{Fault, parse_options};
use waterwheel::record::{Batch, Origin, Row};
use waterwheel::source::{ReadStatus, ReaderContext, Source, SourceReader, SourceType, Split};

/// The name of the source's one split.
const SPLIT: &str = "orders";

/// Orders, each a line of JSON. Cheap to clone; all clones are one log.
#[derive(Clone, Debug)]
pub struct OrderLog {
    file: Arc<Mutex<File>>,
    orders: watch::Sender<Vec<String>>,
}

impl OrderLog {
    /// The log in a file, which is made if it is not there.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn load(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let text = std::fs::read_to_string(path)?;
        // A line without an end was being written when the process died: nobody was told that it is in the log.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64)?;
        let orders = text[..whole].lines().map(str::to_owned).collect();
        Ok(Self { file: Arc::new(Mutex::new(file)), orders: watch::Sender::new(orders) })
    }

    /// Appends an order, a line of JSON. It is on the disk when this returns.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn append(&self, order: &str) -> io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let end = file.metadata()?.len();
        let written = file.write_all(format!("{order}\n").as_bytes()).and_then(|()| file.sync_data());
        if let Err(error) = written {
            file.set_len(end)?;
            return Err(error);
        }
        self.orders.send_modify(|orders| orders.push(order.to_owned()));
        Ok(())
    }
}

#[async_trait]
impl Source for OrderLog {
    async fn discover(&self, known: &BTreeSet<String>) -> Result<Vec<Split>, Error> {
        let split = Split { id: SPLIT.into(), position: json!(0), stop: None, finished: false };
        Ok(if known.contains(SPLIT) { Vec::new() } else { vec![split] })
    }

    fn is_bounded(&self) -> bool {
        false
    }

    async fn open(&self, context: ReaderContext) -> Result<Box<dyn SourceReader>, Error> {
        Ok(Box::new(Reader { orders: self.orders.subscribe(), context, next: None }))
    }
}

/// Reads the log from order `next` on; a reader without the split has nothing to read.
struct Reader {
    orders: watch::Receiver<Vec<String>>,
    context: ReaderContext,
    next: Option<usize>,
}

#[async_trait]
impl SourceReader for Reader {
    async fn add_splits(&mut self, splits: Vec<Split>) -> Result<(), Error> {
        for split in splits {
            let position = serde_json::from_value(split.position);
            self.next = Some(position.map_err(|error| Error::internal("this is no position in the log").caused_by(error))?);
        }
        Ok(())
    }

    async fn next_batch(&mut self, batch: &mut Batch) -> Result<ReadStatus, Error> {
        let Some(next) = &mut self.next else { return std::future::pending().await };
        let orders = self.orders.wait_for(|orders| orders.len() > *next).await;
        let orders = orders.map_err(|error| Error::internal("the log is closed").caused_by(error))?;
        // Nothing is waited for from here on, so that the position is right whenever the caller stops waiting.
        let split = self.context.split_table.number(&self.context.uid, SPLIT);
        for order in &orders[*next..] {
            if !self.context.limits.has_room(batch, order.len()) {
                break;
            }
            let origin = Origin { split, position: *next as u64 };
            batch.push(Row { key: None, value: Some(order.as_bytes()), timestamp: 0, origin });
            *next += 1;
        }
        Ok(ReadStatus::Open)
    }

    fn positions(&self) -> Vec<Split> {
        let split = |next| Split { id: SPLIT.into(), position: json!(next), stop: None, finished: false };
        self.next.map(split).into_iter().collect()
    }
}

/// What makes the log known to a host, as `type: order-log`.
impl SourceType for OrderLog {
    fn name(&self) -> &str {
        "order-log"
    }

    fn options_schema(&self) -> schemars::Schema {
        schemars::schema_for!(NoOptions)
    }

    fn create(&self, _uid: &str, options: &Value) -> Result<Arc<dyn Source>, Vec<Fault>> {
        let NoOptions {} = parse_options(options)?;
        Ok(Arc::new(self.clone()))
    }
}
