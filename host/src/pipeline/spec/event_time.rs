//! The event time of a source's records, and its watermarks.

use crate::config::Span;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::time::Duration;

/// Event time of a source's records. Watermarks are those of Flink's `forBoundedOutOfOrderness`, made for each split.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct EventTimeSpec {
    /// Where a record's timestamp is. By default `record`: its own.
    pub timestamp: TimestampSpec,
    /// How watermarks follow from timestamps.
    pub watermark: WatermarkSpec,
    /// What becomes of a record whose timestamp cannot be read. By default `fail`.
    pub on_error: OnTimestampError,
}

/// Where a record's timestamp is: `record`, or `{json-pointer: /at, unit: ms}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum TimestampSpec {
    /// The timestamp that the source gave it.
    Record(RecordTimestamp),
    /// A place in its value.
    Value(ValueTimestamp),
}

impl Default for TimestampSpec {
    fn default() -> Self {
        Self::Record(RecordTimestamp::Record)
    }
}

/// The timestamp that the source gave a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordTimestamp {
    /// That of a Kafka record, the time of a generated one, the moment of reading a line.
    Record,
}

/// One word and no list of words, so that a fault of the other way to write a timestamp is told apart.
impl JsonSchema for RecordTimestamp {
    fn schema_name() -> Cow<'static, str> {
        "RecordTimestamp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "That of a Kafka record, the time of a generated one, the moment of reading a line.",
            "const": "record",
        })
    }
}

/// A timestamp in a record's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "{json-pointer: …}")]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ValueTimestamp {
    /// A place in the record's value, which is JSON: a number, or a text.
    pub json_pointer: String,
    /// What is written there. By default `ms`.
    #[serde(default)]
    pub unit: TimeUnit,
}

/// How a timestamp is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TimeUnit {
    /// Seconds since the Unix epoch.
    #[serde(rename = "s")]
    Seconds,
    /// Milliseconds since the Unix epoch.
    #[default]
    #[serde(rename = "ms")]
    Milliseconds,
    /// Microseconds since the Unix epoch.
    #[serde(rename = "us")]
    Microseconds,
    /// A text such as `2024-05-01T12:00:00Z`.
    Rfc3339,
}

impl TimeUnit {
    /// The unit in words.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Milliseconds => "milliseconds",
            Self::Microseconds => "microseconds",
            Self::Rfc3339 => "a time",
        }
    }
}

/// How watermarks follow from timestamps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct WatermarkSpec {
    /// How much later than a greater one a timestamp may come without being late. By default 0.
    pub out_of_orderness: Span,
    /// How long a split may bring no record before event time goes on without it. By default it is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<Span>,
    /// How often watermarks are sent at most. By default 200 ms.
    pub interval: Span,
}

impl Default for WatermarkSpec {
    fn default() -> Self {
        Self { out_of_orderness: Span::from_millis(0), idle_timeout: None, interval: Span::from_millis(200) }
    }
}

/// What becomes of a record whose timestamp cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnTimestampError {
    /// The job fails, naming the record's source, split and position.
    #[default]
    Fail,
    /// The record is left out, logged and counted.
    Skip,
}

impl EventTimeSpec {
    /// Timestamps from a place in the record's value. By default the record's own.
    #[must_use]
    pub fn json_pointer(mut self, pointer: impl Into<String>, unit: TimeUnit) -> Self {
        self.timestamp = TimestampSpec::Value(ValueTimestamp { json_pointer: pointer.into(), unit });
        self
    }

    /// How much later than a greater one a timestamp may come. By default 0.
    #[must_use]
    pub fn out_of_orderness(mut self, bound: Duration) -> Self {
        self.watermark.out_of_orderness = Span(bound);
        self
    }

    /// How long a split may bring no record before event time goes on without it. By default it is waited for.
    #[must_use]
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.watermark.idle_timeout = Some(Span(timeout));
        self
    }

    /// How often watermarks are sent at most. By default every 200 ms.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.watermark.interval = Span(interval);
        self
    }

    /// Leaves out records whose timestamp cannot be read. By default the job fails.
    #[must_use]
    pub fn skip_errors(mut self) -> Self {
        self.on_error = OnTimestampError::Skip;
        self
    }
}
