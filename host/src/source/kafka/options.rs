//! What a job file can say about a Kafka source. The words are Flink's.

use crate::config::Span;
use crate::kafka::{Properties, Servers};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Options of the `kafka` source: each record of a topic is a record, with its key, value, headers and timestamp; null keys and values stay
/// null. Every partition is a split (`topic-partition`), its position the offset of the next record.
///
/// Positions are in the checkpoints. With a `group.id` in `properties` they are also committed to that group after each completed checkpoint,
/// for monitoring only; the group is never joined, and what it says is only read where `startup-mode` is `group-offsets`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct KafkaOptions {
    /// `host:port` of one or more brokers, in a list or separated by commas. `bootstrap.servers` in `properties` is the same.
    #[serde(default)]
    pub bootstrap_servers: Option<Servers>,
    /// The topic to read, or a list of them.
    #[serde(default)]
    pub topics: Option<Topics>,
    /// A regular expression that fits the whole names of the topics to read, instead of `topics`. Topics that appear later are read too; those
    /// that brokers keep for themselves (`__…`) are not.
    #[serde(default)]
    pub topic_pattern: Option<String>,
    /// Where reading starts when there is no checkpoint: `earliest-offset`, `latest-offset`, `group-offsets` (those that the group has committed;
    /// `auto.offset.reset` in `properties` says what to do where it has none: `earliest`, `latest`, or by default `none`, to fail),
    /// `timestamp`, `specific-offsets`. By default `earliest-offset`. Partitions that appear later are read from their beginning.
    #[serde(default)]
    pub startup_mode: StartupMode,
    /// With `startup-mode: timestamp`: reading starts at the first record that is not older. ISO 8601, or milliseconds since the Unix epoch.
    #[serde(default)]
    pub startup_timestamp: Option<Moment>,
    /// With `startup-mode: specific-offsets`: the first offset to read of each partition (`orders-0: 42`). Partitions that are not named are
    /// read from their beginning.
    #[serde(default)]
    pub startup_specific_offsets: BTreeMap<String, u64>,
    /// Where reading ends: `unbounded` (never), `latest-offset` (the end as it is when the job starts), `timestamp`, `specific-offsets`. By
    /// default `unbounded`.
    #[serde(default)]
    pub bounded_mode: BoundedMode,
    /// With `bounded-mode: timestamp`: reading ends before the first record that is not older, or at the end as it is when the job starts.
    #[serde(default)]
    pub bounded_timestamp: Option<Moment>,
    /// With `bounded-mode: specific-offsets`: the first offset that is not read any more, of every partition (`orders-0: 1042`). Offsets that are
    /// not there yet are waited for.
    #[serde(default)]
    pub bounded_specific_offsets: BTreeMap<String, u64>,
    /// `read_committed` leaves out the records of transactions that are aborted, and waits for those that are open. By default
    /// `read_committed`.
    #[serde(default)]
    pub isolation_level: Option<IsolationLevel>,
    /// How often to look for new partitions and topics; 0 never. By default 5 min.
    #[serde(default)]
    pub partition_discovery_interval: Option<Span>,
    /// What to do when the records at a position were deleted, or the topic has fewer records than were read: `fail` the job, or go on with the
    /// `earliest` or `latest` record that is there and a warning, although records are lost or repeated. By default `fail`.
    #[serde(default)]
    pub on_lost_offsets: OnLostOffsets,
    /// Properties of the Kafka client (librdkafka), handed to it as they are. Those that the host sets itself are refused.
    #[serde(default)]
    pub properties: Properties,
}

/// The topics to read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Topics {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

/// A moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Moment {
    /// Milliseconds since the Unix epoch.
    Milliseconds(u64),
    /// ISO 8601.
    Text(#[schemars(with = "String")] jiff::Timestamp),
}

impl Moment {
    /// Milliseconds since the Unix epoch, not below 0.
    pub(super) fn milliseconds(self) -> i64 {
        match self {
            Self::Milliseconds(milliseconds) => i64::try_from(milliseconds).unwrap_or(i64::MAX),
            Self::Text(timestamp) => timestamp.as_millisecond().max(0),
        }
    }
}

/// Where reading starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StartupMode {
    /// At the first record that is there.
    #[default]
    EarliestOffset,
    /// At the end as it is when the job starts.
    LatestOffset,
    /// Where the group has committed to be.
    GroupOffsets,
    /// At the first record that is not older than a moment.
    Timestamp,
    /// At given offsets.
    SpecificOffsets,
}

/// Where reading ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BoundedMode {
    /// Never.
    #[default]
    Unbounded,
    /// At the end as it is when the job starts.
    LatestOffset,
    /// Before the first record that is not older than a moment.
    Timestamp,
    /// At given offsets.
    SpecificOffsets,
}

/// Which records of transactions are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum IsolationLevel {
    /// Those of transactions that are committed.
    #[default]
    ReadCommitted,
    /// All.
    ReadUncommitted,
}

impl IsolationLevel {
    /// The word that the client takes.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::ReadCommitted => "read_committed",
            Self::ReadUncommitted => "read_uncommitted",
        }
    }
}

/// What to do when the records at a position are not there any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnLostOffsets {
    /// The job fails.
    #[default]
    Fail,
    /// Go on with the first record that is there.
    Earliest,
    /// Go on with the next record to come.
    Latest,
}
