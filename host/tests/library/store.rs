//! A sink of its own, by two-phase commit: a store in memory whose prepared work outlives a restart of the job. It can stall in its first
//! phase. With less than exactly-once it shows records as soon as they are flushed.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use waterwheel::Error;
use waterwheel::config::{Fault, parse_options};
use waterwheel::record::Batch;
use waterwheel::sink::{CheckpointBarrier, Guarantee, Sink, SinkType, SinkWriter, TwoPhaseSink, WriterContext};

/// The store. Cheap to clone; all clones are one store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store(Arc<Mutex<Contents>>);

#[derive(Debug, Default)]
struct Contents {
    pending: BTreeMap<String, Pending>,
    /// The names of what was committed, in order.
    committed: Vec<String>,
    visible: Vec<Record>,
    /// How long the next first phases of subtask 0 take.
    stalls: Vec<Duration>,
    /// What was prepared by or beside a phase that stalled: the number of the checkpoint, and the name.
    prepared: Vec<(u64, String)>,
}

#[derive(Debug)]
struct Pending {
    job: String,
    generation: u64,
    records: Vec<Record>,
}

/// A record as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) sink: String,
    pub(crate) subtask: usize,
    pub(crate) key: String,
    pub(crate) value: String,
}

impl Store {
    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap()
    }

    /// Lets the next first phases of subtask 0 take so long.
    pub(crate) fn stall(&self, times: usize, stall: Duration) {
        self.contents().stalls = vec![stall; times];
    }

    /// What a reader sees.
    pub(crate) fn visible(&self) -> Vec<Record> {
        self.contents().visible.clone()
    }

    /// The values that a reader sees.
    pub(crate) fn visible_values(&self) -> Vec<String> {
        self.contents().visible.iter().map(|record| record.value.clone()).collect()
    }

    /// What was prepared for a checkpoint, and whether it is committed.
    pub(crate) fn prepared_for(&self, checkpoint: u64) -> Vec<(String, bool)> {
        let contents = self.contents();
        let of = contents.prepared.iter().filter(|(of, _)| *of == checkpoint);
        of.map(|(_, name)| (name.clone(), contents.committed.contains(name))).collect()
    }

    /// How much is prepared and neither committed nor rolled back.
    pub(crate) fn pending(&self) -> usize {
        self.contents().pending.len()
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoOptions {}

impl SinkType for Store {
    fn name(&self) -> &str {
        "store"
    }

    fn options_schema(&self) -> schemars::Schema {
        schemars::schema_for!(NoOptions)
    }

    fn guarantees(&self) -> &[Guarantee] {
        &[Guarantee::None, Guarantee::AtLeastOnce, Guarantee::ExactlyOnce]
    }

    fn promise(&self) -> &str {
        "store can be all of them: it shows what is committed"
    }

    fn create(&self, uid: &str, options: &Value, guarantee: Guarantee) -> Result<Arc<dyn Sink>, Vec<Fault>> {
        let NoOptions {} = parse_options(options)?;
        Ok(Arc::new(StoreSink { store: self.clone(), uid: uid.to_owned(), transactional: guarantee == Guarantee::ExactlyOnce }))
    }
}

#[derive(Debug)]
struct StoreSink {
    store: Store,
    uid: String,
    transactional: bool,
}

#[async_trait]
impl Sink for StoreSink {
    async fn open(&self, context: WriterContext) -> Result<Box<dyn SinkWriter>, Error> {
        Ok(Box::new(Writer { store: self.store.clone(), context, records: Vec::new(), parts: 0 }))
    }

    fn as_two_phase(&self) -> Option<&dyn TwoPhaseSink> {
        self.transactional.then_some(self)
    }
}

fn name_of(prepared: &Value) -> &str {
    prepared.as_str().unwrap()
}

#[async_trait]
impl TwoPhaseSink for StoreSink {
    async fn commit(&self, prepared: &[Value]) -> Result<(), Error> {
        let mut contents = self.store.contents();
        for name in prepared.iter().map(name_of) {
            if let Some(pending) = contents.pending.remove(name) {
                contents.visible.extend(pending.records);
                contents.committed.push(name.to_owned());
            } else if !contents.committed.iter().any(|committed| committed == name) {
                return Err(Error::external(format!("{name} is neither prepared nor committed")).with_retry(false));
            }
        }
        Ok(())
    }

    async fn abort(&self, prepared: &[Value]) -> Result<(), Error> {
        let mut contents = self.store.contents();
        prepared.iter().map(name_of).for_each(|name| drop(contents.pending.remove(name)));
        Ok(())
    }

    async fn clean_up(&self, job: &str, below: u64, keep: &[Value]) -> Result<(), Error> {
        let own = format!("{}/", self.uid);
        let stays = |name: &String, pending: &mut Pending| {
            !name.starts_with(&own) || pending.job != job || pending.generation >= below || keep.iter().any(|kept| name_of(kept) == name)
        };
        self.store.contents().pending.retain(stays);
        Ok(())
    }
}

struct Writer {
    store: Store,
    context: WriterContext,
    records: Vec<Record>,
    parts: u32,
}

#[async_trait]
impl SinkWriter for Writer {
    async fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap_or_default().to_vec()).unwrap();
        let record = |row: waterwheel::record::Row<'_>| Record {
            sink: self.context.uid.clone(),
            subtask: self.context.subtask,
            key: text(row.key),
            value: text(row.value),
        };
        self.records.extend(batch.rows().map(record));
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Error> {
        self.store.contents().visible.append(&mut self.records);
        Ok(())
    }

    async fn prepare(&mut self, barrier: &CheckpointBarrier) -> Result<Vec<Value>, Error> {
        let WriterContext { job, uid, subtask, generation, .. } = &self.context;
        self.parts += 1;
        let name = format!("{uid}/{job}/{generation}-{subtask}-{}", self.parts);
        let stall = {
            let mut contents = self.store.contents();
            let records = std::mem::take(&mut self.records);
            contents.pending.insert(name.clone(), Pending { job: job.clone(), generation: *generation, records });
            contents.prepared.push((barrier.checkpoint, name.clone()));
            if *subtask == 0 { contents.stalls.pop() } else { None }
        };
        if let Some(stall) = stall {
            tokio::time::sleep(stall).await;
        }
        Ok(vec![json!(name)])
    }
}
