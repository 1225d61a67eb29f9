//! Sources, operators and sinks of a job specification.

use super::{EventTimeSpec, InputSpec};
use crate::operator::{ErrorPolicy, LateRecords};
use crate::plugin::{Capabilities, Limits};
use crate::sink::Guarantee;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Where records come from. Beside these keys stand the options of the source's type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct SourceSpec {
    /// Its name in the job, which its positions are stored under: letters, digits, `-` and `_`, beginning with a letter or a digit.
    pub uid: String,
    /// The type of the source.
    #[serde(rename = "type")]
    pub kind: String,
    /// How many subtasks read. By default the job's parallelism.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32768))]
    pub parallelism: Option<u16>,
    /// The event time of its records, and the watermarks that follow from it. By default it makes none, and event time stands still until
    /// its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_time: Option<EventTimeSpec>,
    /// The options of its type.
    #[serde(flatten)]
    #[schemars(skip)]
    pub options: Map<String, Value>,
}

/// What happens to records: a plugin and how it is run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct OperatorSpec {
    /// Its name in the job, which its state is stored under: letters, digits, `-` and `_`, beginning with a letter or a digit.
    pub uid: String,
    /// The plugin: the path of a component (relative to the folder of the job file), `name@version`, or `sha256:` and its digest.
    pub plugin: String,
    /// What it reads. Several inputs are a union, unless `as` tells them apart.
    pub inputs: Vec<InputSpec>,
    /// How many subtasks it has. By default the job's parallelism.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32768))]
    pub parallelism: Option<u16>,
    /// What the plugin is opened with, any JSON.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub config: Value,
    /// What becomes of a record that the plugin cannot process. By default `fail`.
    #[serde(default)]
    pub error_policy: ErrorPolicy,
    /// The uid of the sink that dead letters go to, for `error-policy: dead-letter`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letter_sink: Option<String>,
    /// What becomes of a record whose timestamp the watermark has reached already, where the plugin is keyed. By default `process`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub late_records: LateRecords,
    /// What the plugin may reach outside of itself. By default nothing.
    #[serde(default)]
    pub capabilities: Capabilities,
    /// How much the plugin may use.
    #[serde(default)]
    pub limits: Limits,
}

/// Where records go. Beside these keys stand the options of the sink's type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct SinkSpec {
    /// Its name in the job: letters, digits, `-` and `_`, beginning with a letter or a digit.
    pub uid: String,
    /// The type of the sink.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it reads; several inputs are a union. Only a sink of dead letters can be without.
    #[serde(default)]
    pub inputs: Vec<InputSpec>,
    /// What is asked of the sink. By default `at-least-once`, or less if it cannot give that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_guarantee: Option<Guarantee>,
    /// How many subtasks write. By default the job's parallelism.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32768))]
    pub parallelism: Option<u16>,
    /// The options of its type.
    #[serde(flatten)]
    #[schemars(skip)]
    pub options: Map<String, Value>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
