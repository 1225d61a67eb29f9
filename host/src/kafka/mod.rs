//! What everything that talks to Kafka shares: options, secrets, the log, errors in words, and questions to a cluster.
//!
//! - [`options`]: how a job file names a cluster and the client's properties, checked without a broker ([`properties`], [`secret`]);
//! - [`context`]: the client's log lines and errors go to the log of the process, without secrets;
//! - [`error`]: what went wrong, in a sentence, and whether trying again can help;
//! - [`cluster`]: topics, offsets and configurations, asked for off the async threads;
//! - [`producer`]: a producer whose events a thread serves, and what it could not deliver;
//! - [`token`]: OAUTHBEARER tokens from a file;
//! - [`wire`]: two questions about transactions that librdkafka does not have;
//! - [`ffi`]: the batch calls of librdkafka, the only unsafe code.

pub(crate) mod cluster;
pub(crate) mod context;
pub(crate) mod error;
#[allow(unsafe_code, reason = "librdkafka's batch calls and event queues have no safe binding")]
pub(crate) mod ffi;
pub(crate) mod options;
mod partition;
pub(crate) mod producer;
mod properties;
mod secret;
pub(crate) mod service;
mod token;
pub(crate) mod wire;

pub(crate) use cluster::Cluster;
pub(crate) use context::Context;
pub(crate) use options::{ClientOptions, Role};
pub use options::{Properties, Servers};
pub(crate) use partition::TopicPartition;

/// A consumer that logs to the log of the process.
pub(crate) type Consumer = rdkafka::consumer::BaseConsumer<Context>;
