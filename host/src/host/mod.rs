//! The host: what another service embeds. It knows the types of sources and sinks and loads plugins; each job that is submitted runs in it.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use waterwheel::{Host, host::SubmitOptions};
//!
//! let host = Host::builder().build()?;
//! let job = host.read_job("job.yaml".as_ref())?;
//! let running = host.submit(&job, SubmitOptions::default()).await?;
//! println!("{:?}", running.wait().await);
//! # Ok(())
//! # }
//! ```

mod compatibility;
mod handle;
mod operators;
mod start;

pub use crate::pipeline::run::{JobEnd, JobState, JobStatus, NodeStatus};
pub use compatibility::{StateVerdict, TriedState};
pub use handle::{JobControl, JobHandle, StopOptions};
pub use start::{SubmitError, SubmitOptions};

use crate::Error;
use crate::config::Faults;
use crate::pipeline::{Connectors, Job, JobSpec};
use crate::plugin::{EngineOptions, PluginHost, PluginRegistry};
use crate::sink::SinkType;
use crate::source::SourceType;
use crate::telemetry::Metrics;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Runs jobs. Cheap to clone; all clones are one host.
///
/// A job in code, with a checkpoint every second, watched until it ends:
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use waterwheel::Host;
/// use waterwheel::host::SubmitOptions;
/// use waterwheel::pipeline::JobBuilder;
/// use waterwheel::pipeline::spec::{SinkSpec, SourceSpec};
/// use waterwheel::sink::Guarantee;
///
/// let host = Host::builder().plugin_cache("compiled").build()?;
/// let spec = JobBuilder::new("copy")
///     .source(SourceSpec::new("in", "file").option("path", "in.jsonl"))
///     .sink(SinkSpec::new("out", "file").input("in").guarantee(Guarantee::ExactlyOnce).option("path", "out"))
///     .checkpoint_every(Duration::from_secs(1), "checkpoints")
///     .build();
/// let handle = host.submit(&host.check_job(&spec, ".")?, SubmitOptions::default()).await?;
/// let mut control = handle.control();
/// while !control.status().state.is_terminal() && control.changed().await {
///     println!("{:?}, {:?}", control.status().state, control.status().checkpoints.counts);
/// }
/// println!("{:?}", handle.wait().await);
/// # Ok(())
/// # }
/// ```
///
/// Its own sources and sinks are made known by [`HostBuilder::source`] and [`HostBuilder::sink`].
#[derive(Clone, Debug)]
pub struct Host {
    connectors: Arc<Connectors>,
    plugins: Arc<PluginHost>,
    metrics: Metrics,
}

/// Makes a [`Host`].
#[derive(Debug)]
pub struct HostBuilder {
    connectors: Connectors,
    engine: EngineOptions,
    registry: Option<Arc<dyn PluginRegistry>>,
}

impl Host {
    /// A builder of a host that knows the types of sources and sinks that come with Waterwheel.
    pub fn builder() -> HostBuilder {
        HostBuilder { connectors: Connectors::builtin(), engine: EngineOptions::default(), registry: None }
    }

    /// The types of sources and sinks that job files can name.
    pub fn connectors(&self) -> &Connectors {
        &self.connectors
    }

    /// The metrics of all jobs.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Loads plugins.
    pub fn plugins(&self) -> &PluginHost {
        &self.plugins
    }

    /// Reads and checks a job file, as [`Job::read`] does.
    ///
    /// # Errors
    /// Every fault at once.
    pub fn read_job(&self, file: &Path) -> Result<Job, Faults> {
        Job::read(file, &self.connectors)
    }

    /// Checks a specification that was built in code; paths of plugins are relative to `base`.
    ///
    /// # Errors
    /// Every fault at once.
    pub fn check_job(&self, spec: &JobSpec, base: impl Into<PathBuf>) -> Result<Job, Faults> {
        Job::from_spec(spec, base, &self.connectors)
    }
}

impl HostBuilder {
    /// Knows these types of sources and sinks and no others. By default those that come with Waterwheel.
    #[must_use]
    pub fn connectors(mut self, connectors: Connectors) -> Self {
        self.connectors = connectors;
        self
    }

    /// Makes a source type known under its name. By default there are those that come with Waterwheel.
    #[must_use]
    pub fn source(mut self, source: Arc<dyn SourceType>) -> Self {
        self.connectors.register_source(source);
        self
    }

    /// Makes a sink type known under its name. By default there are those that come with Waterwheel.
    #[must_use]
    pub fn sink(mut self, sink: Arc<dyn SinkType>) -> Self {
        self.connectors.register_sink(sink);
        self
    }

    /// Keeps compiled plugins in this folder, so that a second start does not compile. By default they are compiled at each start.
    #[must_use]
    pub fn plugin_cache(mut self, folder: impl Into<PathBuf>) -> Self {
        self.engine = self.engine.cache_folder(folder);
        self
    }

    /// Looks plugins up in this registry. By default plugins are files.
    #[must_use]
    pub fn plugin_registry(mut self, registry: Arc<dyn PluginRegistry>) -> Self {
        self.registry = Some(registry);
        self
    }

    /// The host.
    ///
    /// # Errors
    /// The engine of the plugins cannot be started.
    pub fn build(self) -> Result<Host, Error> {
        let mut plugins = PluginHost::new(self.engine)?;
        if let Some(registry) = self.registry {
            plugins = plugins.with_registry(registry);
        }
        Ok(Host { connectors: Arc::new(self.connectors), plugins: Arc::new(plugins), metrics: Metrics::new() })
    }
}
