//! The kinds of sources and sinks that job files can name as `type`.

use crate::sink::{self, SinkType};
use crate::source::{self, SourceType};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The source and sink types that a host knows, by name. The built-in ones are [`Connectors::builtin`]; a host adds its own.
#[derive(Clone, Debug, Default)]
pub struct Connectors {
    sources: BTreeMap<String, Arc<dyn SourceType>>,
    sinks: BTreeMap<String, Arc<dyn SinkType>>,
}

impl Connectors {
    /// No types at all.
    pub fn empty() -> Self {
        Self::default()
    }

    /// The types that come with Waterwheel.
    pub fn builtin() -> Self {
        let mut connectors = Self::empty();
        connectors.register_source(Arc::new(source::GeneratorType)).register_source(Arc::new(source::FileType));
        connectors
            .register_sink(Arc::new(sink::FileType))
            .register_sink(Arc::new(sink::StdoutType))
            .register_sink(Arc::new(sink::DiscardType));
        #[cfg(feature = "kafka")]
        connectors.register_source(Arc::new(source::KafkaType)).register_sink(Arc::new(sink::KafkaType));
        connectors
    }

    /// Makes a source type known under its name, in place of an earlier one of that name.
    pub fn register_source(&mut self, source: Arc<dyn SourceType>) -> &mut Self {
        self.sources.insert(source.name().to_owned(), source);
        self
    }

    /// Makes a sink type known under its name, in place of an earlier one of that name.
    pub fn register_sink(&mut self, sink: Arc<dyn SinkType>) -> &mut Self {
        self.sinks.insert(sink.name().to_owned(), sink);
        self
    }

    /// The source type of a name.
    pub fn source(&self, name: &str) -> Option<&Arc<dyn SourceType>> {
        self.sources.get(name)
    }

    /// The sink type of a name.
    pub fn sink(&self, name: &str) -> Option<&Arc<dyn SinkType>> {
        self.sinks.get(name)
    }

    /// All source types, by name.
    pub fn sources(&self) -> impl Iterator<Item = &Arc<dyn SourceType>> {
        self.sources.values()
    }

    /// All sink types, by name.
    pub fn sinks(&self) -> impl Iterator<Item = &Arc<dyn SinkType>> {
        self.sinks.values()
    }
}
