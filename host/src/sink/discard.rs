//! The sink that takes everything and keeps nothing: for measuring, and for jobs whose effect is elsewhere.

use super::{Guarantee, Sink, SinkType, SinkWriter, WriterContext};
use crate::Error;
use crate::config::{Fault, parse_options};
use crate::record::Batch;
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The options of the sink `discard`: there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiscardOptions {}

/// The sink type `discard`.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiscardType;

impl SinkType for DiscardType {
    fn name(&self) -> &str {
        "discard"
    }

    fn options_schema(&self) -> schemars::Schema {
        schemars::schema_for!(DiscardOptions)
    }

    fn guarantees(&self) -> &[Guarantee] {
        &[Guarantee::None, Guarantee::AtLeastOnce]
    }

    fn promise(&self) -> &str {
        "discard can be none or at-least-once: it keeps nothing, so that nothing can be visible once"
    }

    fn create(&self, _uid: &str, options: &Value, _guarantee: Guarantee) -> Result<Arc<dyn Sink>, Vec<Fault>> {
        let DiscardOptions {} = parse_options(options)?;
        Ok(Arc::new(DiscardSink::default()))
    }
}

/// Takes everything, counts it, and keeps nothing.
#[derive(Clone, Debug, Default)]
pub struct DiscardSink {
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    records: AtomicU64,
    bytes: AtomicU64,
}

impl DiscardSink {
    /// How many records all writers took, those repeated after a recovery too.
    pub fn records(&self) -> u64 {
        self.counts.records.load(Relaxed)
    }

    /// How many bytes of keys, values and headers they had.
    pub fn bytes(&self) -> u64 {
        self.counts.bytes.load(Relaxed)
    }
}

#[async_trait]
impl Sink for DiscardSink {
    async fn open(&self, _context: WriterContext) -> Result<Box<dyn SinkWriter>, Error> {
        Ok(Box::new(self.clone()))
    }
}

#[async_trait]
impl SinkWriter for DiscardSink {
    async fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        self.counts.records.fetch_add(batch.len() as u64, Relaxed);
        self.counts.bytes.fetch_add(batch.byte_len() as u64, Relaxed);
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::record::{Origin, Row, SplitTable};
    use serde_json::json;

    #[tokio::test]
    async fn all_writers_count_together() {
        let sink = DiscardSink::default();
        let mut batch = Batch::default();
        batch.push(Row { key: Some(b"ab"), value: Some(b"c"), timestamp: 0, origin: Origin::NONE });
        for subtask in 0..2 {
            let (job, uid, split_table) = ("job".to_owned(), "out".to_owned(), SplitTable::default());
            let context = WriterContext {
                job,
                uid,
                subtask,
                parallelism: 2,
                generation: 1,
                split_table,
                metrics: Arc::default(),
                transactions: None,
            };
            let mut writer = sink.open(context).await.unwrap();
            writer.write(&batch).await.unwrap();
            writer.flush().await.unwrap();
        }
        assert_eq!((sink.records(), sink.bytes()), (2, 6));
    }

    #[test]
    fn options_are_refused() {
        let faults = DiscardType.create("out", &json!({"path": 1, "format": 2}), Guarantee::None).unwrap_err();
        let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(faults, ["/path: unknown key \"path\"; there are none here", "/format: unknown key \"format\"; there are none here"]);
        assert!(DiscardType.create("out", &json!({}), Guarantee::AtLeastOnce).is_ok());
    }
}
