//! The file source from outside, with real files in temporary folders.

#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value, reason = "tests")]

mod follow;
mod many;
mod plain;

use super::*;
use crate::record::{Batch, SplitTable};
use crate::source::{BatchLimits, ReadStatus};
use serde_json::json;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use tempfile::TempDir;

const LIMITS: BatchLimits = BatchLimits { records: 100, bytes: 64 << 10, linger: Duration::from_millis(2) };

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a test waits for what must not come.
const QUIET: Duration = Duration::from_millis(150);

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap();
    }

    fn append(&self, name: &str, content: &str) {
        let mut file = OpenOptions::new().append(true).create(true).open(self.path(name)).unwrap();
        file.write_all(content.as_bytes()).unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).unwrap();
    }

    /// The source of a pattern in this folder, with further options.
    fn source(&self, pattern: &str, mut options: Value) -> Arc<dyn Source> {
        options["path"] = Value::from(self.path(pattern).to_str().unwrap());
        FileType.create("in", &options).unwrap()
    }
}

/// A reader and what it brought.
struct Reading {
    source: Arc<dyn Source>,
    reader: Box<dyn SourceReader>,
    limits: BatchLimits,
    table: SplitTable,
    /// Split (the name only), position, key, value.
    records: Vec<(String, u64, Option<String>, String)>,
    status: ReadStatus,
}

impl Reading {
    async fn open(source: &Arc<dyn Source>, splits: Vec<Split>) -> Self {
        Self::open_with(source, splits, LIMITS).await
    }

    async fn open_with(source: &Arc<dyn Source>, splits: Vec<Split>, limits: BatchLimits) -> Self {
        let table = SplitTable::default();
        let context = ReaderContext { uid: "in".into(), subtask: 0, parallelism: 1, limits, split_table: table.clone() };
        let mut reader = source.open(context).await.unwrap();
        reader.add_splits(splits).await.unwrap();
        Self { source: Arc::clone(source), reader, limits, table, records: Vec::new(), status: ReadStatus::Open }
    }

    /// Opens the source from its beginning.
    async fn start(source: &Arc<dyn Source>) -> Self {
        Self::open(source, source.discover(&BTreeSet::new()).await.unwrap()).await
    }

    async fn try_next(&mut self) -> Result<(), Error> {
        let mut batch = Batch::default();
        self.status = self.reader.next_batch(&mut batch).await?;
        assert!(batch.len() <= self.limits.records);
        for row in batch.rows() {
            let place = self.table.place(row.origin).unwrap();
            let name = place.split.split('@').next().unwrap().to_owned();
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            self.records.push((name, place.position, row.key.map(text), text(row.value.unwrap())));
        }
        Ok(())
    }

    /// Reads to the end.
    async fn finish(&mut self) -> &mut Self {
        tokio::time::timeout(PATIENCE, async {
            while self.status == ReadStatus::Open {
                self.try_next().await.unwrap();
            }
        })
        .await
        .unwrap();
        self
    }

    /// Reads until there are so many records, and a while longer to see that there are no more.
    async fn until(&mut self, records: usize) -> &mut Self {
        let waiting = tokio::time::timeout(PATIENCE, async {
            while self.records.len() < records {
                self.try_next().await.unwrap();
            }
        });
        waiting.await.unwrap_or_else(|_| panic!("only {} of {records} came", self.records.len()));
        self.pause().await;
        assert_eq!(self.records.len(), records, "{:?}", self.records);
        self
    }

    /// Goes on reading for a while.
    async fn pause(&mut self) {
        let _ = tokio::time::timeout(QUIET, async {
            loop {
                self.try_next().await.unwrap();
            }
        })
        .await;
    }

    /// Looks for new files, as the host does.
    async fn discover(&mut self) -> usize {
        let known = self.reader.positions().into_iter().map(|split| split.id).collect();
        let splits = self.source.discover(&known).await.unwrap();
        let found = splits.len();
        self.reader.add_splits(splits).await.unwrap();
        found
    }

    /// Reads until it fails.
    async fn failure(&mut self) -> Error {
        let failing = tokio::time::timeout(PATIENCE, async {
            loop {
                if let Err(error) = self.try_next().await {
                    return error;
                }
                assert_eq!(self.status, ReadStatus::Open, "no failure, but the end: {:?}", self.records);
            }
        });
        failing.await.unwrap()
    }

    fn values(&self) -> Vec<&str> {
        self.records.iter().map(|record| record.3.as_str()).collect()
    }
}

async fn read(source: &Arc<dyn Source>) -> Vec<String> {
    let mut reading = Reading::start(source).await;
    reading.finish().await.values().into_iter().map(str::to_owned).collect()
}
