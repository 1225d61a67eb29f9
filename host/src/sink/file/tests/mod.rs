//! The file sink from outside: what readers of the folder see, and what is left in it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod commit;
mod faults;
mod suite;
mod writing;

use super::FileType;
use crate::checkpoint::protocol::Attempt;
use crate::record::{Batch, Origin, Row, SplitTable};
use crate::sink::{CheckpointBarrier, Guarantee, Sink, SinkType, SinkWriter, WriterContext};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// A sink with the uid `out` on a folder, with more options.
fn sink(folder: &Path, guarantee: Guarantee, more: Value) -> Arc<dyn Sink> {
    let mut options = json!({"path": folder});
    let Value::Object(more) = more else { panic!("options are an object") };
    options.as_object_mut().unwrap().extend(more);
    FileType.create("out", &options, guarantee).unwrap()
}

fn exactly_once(folder: &Path, more: Value) -> Arc<dyn Sink> {
    sink(folder, Guarantee::ExactlyOnce, more)
}

fn barrier() -> CheckpointBarrier {
    CheckpointBarrier { checkpoint: 1, attempt: Attempt::random(), last: false }
}

fn context(job: &str, generation: u64) -> WriterContext {
    WriterContext {
        job: job.to_owned(),
        uid: "out".to_owned(),
        subtask: 0,
        parallelism: 1,
        generation,
        split_table: SplitTable::default(),
        metrics: Arc::default(),
        transactions: None,
    }
}

async fn writer(sink: &Arc<dyn Sink>, generation: u64) -> Box<dyn SinkWriter> {
    sink.open(context("job", generation)).await.unwrap()
}

fn batch<V: AsRef<[u8]>>(values: impl IntoIterator<Item = V>) -> Batch {
    let mut batch = Batch::default();
    for value in values {
        batch.push(Row { key: None, value: Some(value.as_ref()), timestamp: 0, origin: Origin::NONE });
    }
    batch
}

async fn commit(sink: &Arc<dyn Sink>, prepared: &[Value]) -> Result<(), crate::Error> {
    sink.as_two_phase().unwrap().commit(prepared).await
}

async fn clean_up(sink: &Arc<dyn Sink>, below: u64, keep: &[Value]) {
    sink.as_two_phase().unwrap().clean_up("job", below, keep).await.unwrap();
}

/// Every file below a folder by its relative path; hidden ones too.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    fn walk(root: &Path, folder: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(root, &path, found);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(folder, folder, &mut found);
    found
}

/// The lines of all visible files in the order of their names, unpacked.
fn lines(folder: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, bytes) in files(folder) {
        if name.rsplit('/').next().unwrap().starts_with('.') {
            continue;
        }
        let mut text = String::new();
        if name.ends_with(".gz") {
            flate2::read::GzDecoder::new(&*bytes).read_to_string(&mut text).unwrap();
        } else if name.ends_with(".zst") {
            text = String::from_utf8(zstd::decode_all(&*bytes).unwrap()).unwrap();
        } else {
            text = String::from_utf8(bytes).unwrap();
        }
        assert!(text.ends_with('\n'), "{name} is cut off: {text:?}");
        lines.extend(text.lines().map(str::to_owned));
    }
    lines
}

/// The names of hidden files.
fn hidden(folder: &Path) -> Vec<String> {
    files(folder).into_keys().filter(|name| name.rsplit('/').next().unwrap().starts_with('.')).collect()
}
