//! Waterwheel: a stream host. It reads records from replayable sources, runs people's own logic as WebAssembly components and
//! delivers the results to sinks with the guarantee that was asked for.
//!
//! The modules in reading order, which is the order in which a record meets them:
//!
//! - [`record`]: the columnar batch that everything shares, and key groups;
//! - [`source`]: where records come from, and the trait to bring your own;
//! - [`operator`]: what turns records into records;
//! - [`plugin`]: the WebAssembly components that operators usually are;
//! - [`state`]: what operators remember, in files of a checkpoint;
//! - [`sink`]: where they go, and the traits to bring your own;
//! - [`checkpoint`]: what makes output exact through crashes, upgrades and second instances;
//! - [`pipeline`]: the job specification, its checks and the plan;
//! - [`host`]: what a service embeds: it knows connectors and plugins, and runs jobs;
//! - [`cli`]: the command line;
//! - [`telemetry`]: metrics and the log;
//! - [`config`]: durations, sizes and faults of a configuration;
//! - [`error`]: the error that reaches the supervisor of a job.

mod api;
pub mod checkpoint;
pub mod cli;
pub mod config;
pub mod error;
pub mod host;
#[cfg(feature = "kafka")]
mod kafka;
pub mod operator;
pub mod pipeline;
pub mod plugin;
pub mod record;
pub mod sink;
pub mod source;
pub mod state;
pub mod telemetry;

/// What the traits are written with: `#[async_trait]` on an implementation, and the schemas of options.
pub use async_trait::async_trait;
pub use schemars;

pub use error::Error;
pub use host::Host;
