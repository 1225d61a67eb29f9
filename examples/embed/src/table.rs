//! The sink of the service: a table with a row for each key, kept in memory and in a file. It may be given a record again after a crash;
//! that changes nothing in the end, because the newest value of a key wins.

use crate::NoOptions;
use async_trait::async_trait;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::spawn_blocking;
use waterwheel::Error;
use waterwheel::config::{Fault, parse_options};
use waterwheel::record::Batch;
use waterwheel::sink::{Guarantee, Sink, SinkType, SinkWriter, WriterContext};

/// A row for each key. Cheap to clone; all clones are one table.
#[derive(Clone, Debug)]
pub struct Table {
    path: Arc<PathBuf>,
    rows: Arc<Mutex<BTreeMap<String, String>>>,
    /// Held by who writes the file.
    saving: Arc<Mutex<()>>,
}

impl Table {
    /// The table in a file, which need not be there yet.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn load(path: &Path) -> io::Result<Self> {
        let rows = match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        Ok(Self { path: Arc::new(path.to_owned()), rows: Arc::new(Mutex::new(rows)), saving: Arc::default() })
    }

    /// The rows as they stand, in the order of their keys.
    pub fn rows(&self) -> BTreeMap<String, String> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes all rows to the file, in one step.
    fn save(&self) -> io::Result<()> {
        let _alone = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let new = self.path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(&self.rows())?)?;
        file.sync_all()?;
        std::fs::rename(&new, &*self.path)?;
        File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all()
    }
}

#[async_trait]
impl Sink for Table {
    async fn open(&self, _context: WriterContext) -> Result<Box<dyn SinkWriter>, Error> {
        Ok(Box::new(self.clone()))
    }
}

#[async_trait]
impl SinkWriter for Table {
    async fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        for row in batch.rows() {
            match row.value {
                Some(value) => rows.insert(text(row.key), text(Some(value))),
                None => rows.remove(&text(row.key)),
            };
        }
        Ok(())
    }

    /// A checkpoint waits for this: what came before it is in the file when it is completed.
    async fn flush(&mut self) -> Result<(), Error> {
        let table = self.clone();
        let saved =
            spawn_blocking(move || table.save()).await.map_err(|error| Error::internal("the table was not saved").caused_by(error))?;
        saved.map_err(|error| Error::external(format!("{} cannot be written", self.path.display())).caused_by(error))
    }
}

/// What makes the table known to a host, as `type: table`.
impl SinkType for Table {
    fn name(&self) -> &str {
        "table"
    }

    fn options_schema(&self) -> schemars::Schema {
        schemars::schema_for!(NoOptions)
    }

    fn guarantees(&self) -> &[Guarantee] {
        &[Guarantee::AtLeastOnce]
    }

    fn promise(&self) -> &str {
        "table can be at-least-once: a row is replaced by key, so that a record which comes again changes nothing in the end"
    }

    fn create(&self, _uid: &str, options: &Value, _guarantee: Guarantee) -> Result<Arc<dyn Sink>, Vec<Fault>> {
        let NoOptions {} = parse_options(options)?;
        Ok(Arc::new(self.clone()))
    }
}
