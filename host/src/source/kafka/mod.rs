//! The `kafka` source: topics of a Kafka cluster, a split a partition, read by manual assignment; positions are in checkpoints, never in a group.
//!
//! [`KafkaType`] makes the source from its [`KafkaOptions`]; `discovery` finds partitions and decides once where reading starts and ends; each
//! subtask has a `reader` and a thread (`worker`) that fills batches ahead, in the columns that the pipeline uses. `offsets` deals with those
//! that were deleted, `commits` tells a group how far checkpoints are, `lag` how much there is to read.

mod commits;
mod discovery;
mod lag;
mod offsets;
mod options;
mod reader;
mod settings;
mod splits;
mod worker;

pub use crate::kafka::{Properties, Servers};
pub use options::{BoundedMode, IsolationLevel, KafkaOptions, Moment, OnLostOffsets, StartupMode, Topics};

use super::{ReaderContext, Source, SourceReader, SourceType, Split};
use crate::Error;
use crate::config::Fault;
use crate::kafka::{ClientOptions, Cluster};
use async_trait::async_trait;
use reader::KafkaReader;
use serde_json::Value;
use settings::Settings;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The source type `kafka`: see [`KafkaOptions`].
#[derive(Clone, Copy, Debug, Default)]
pub struct KafkaType;

impl SourceType for KafkaType {
    fn name(&self) -> &str {
        "kafka"
    }

    fn options_schema(&self) -> schemars::Schema {
        schemars::schema_for!(KafkaOptions)
    }

    fn create(&self, uid: &str, options: &Value) -> Result<Arc<dyn Source>, Vec<Fault>> {
        Ok(Arc::new(KafkaSource::new(Settings::parse(uid, options)?)))
    }
}

/// The source that reads a topic from its beginning to the end that it has when it starts.
pub(crate) fn whole_topic(client: ClientOptions, topic: &str, level: IsolationLevel) -> Arc<dyn Source> {
    Arc::new(KafkaSource::new(Settings::whole_topic(client, topic, level)))
}

#[derive(Debug)]
struct KafkaSource {
    settings: Arc<Settings>,
    /// The client for discovery, from its first use on.
    cluster: Mutex<Option<Cluster>>,
    /// Whether there was nothing to read at the start: whatever appears later is new.
    found_none: AtomicBool,
}

impl KafkaSource {
    fn new(settings: Settings) -> Self {
        Self { settings: Arc::new(settings), cluster: Mutex::default(), found_none: AtomicBool::new(false) }
    }

    fn cluster(&self) -> Result<Cluster, Error> {
        let mut cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        match &*cluster {
            Some(cluster) => Ok(cluster.clone()),
            None => Ok(cluster.insert(Cluster::new(&self.settings.client)?).clone()),
        }
    }
}

#[async_trait]
impl Source for KafkaSource {
    async fn discover(&self, known: &BTreeSet<String>) -> Result<Vec<Split>, Error> {
        let is_first = known.is_empty() && !self.found_none.load(Ordering::Relaxed);
        if self.is_bounded() && !is_first {
            // Resolved once, when the job started.
            return Ok(Vec::new());
        }
        let found = discovery::discover(&self.settings, &self.cluster()?, known, is_first).await?;
        if self.discovery_interval().is_none() {
            self.cluster.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
        if known.is_empty() && found.is_empty() && !self.found_none.swap(true, Ordering::Relaxed) {
            tracing::warn!(source = self.settings.uid, "no topic fits {} yet: waiting for one", self.settings.topics);
        }
        Ok(found)
    }

    fn discovery_interval(&self) -> Option<Duration> {
        self.settings.discovery_interval
    }

    fn is_bounded(&self) -> bool {
        self.settings.is_bounded()
    }

    async fn open(&self, context: ReaderContext) -> Result<Box<dyn SourceReader>, Error> {
        Ok(Box::new(KafkaReader::open(Arc::clone(&self.settings), context).await?))
    }
}
