//! Sources, operators and sinks of a job specification.

use super::InputSpec;
use crate::config::{Size, Span};
use crate::sink::Guarantee;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::PathBuf;

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
    /// What the plugin may reach outside of itself. By default nothing.
    #[serde(default)]
    pub capabilities: Capabilities,
    /// How much the plugin may use.
    #[serde(default)]
    pub limits: LimitsSpec,
}

/// What becomes of a record that an operator cannot process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorPolicy {
    /// The job fails, naming the record's source, split and position.
    #[default]
    Fail,
    /// The record is left out, logged and counted.
    Skip,
    /// The record goes to the dead-letter sink, with the reason in a header.
    DeadLetter,
}

/// What a plugin may reach outside of itself: nothing unless it is said here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Capabilities {
    /// The real clock; without it a plugin sees the time of its batch. By default false.
    #[serde(default)]
    pub clock: bool,
    /// Real randomness; without it random numbers are seeded. By default false.
    #[serde(default)]
    pub random: bool,
    /// Environment variables that the plugin sees, with their values. By default none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Connections to other machines. By default false.
    #[serde(default)]
    pub network: bool,
    /// Folders of this machine that the plugin sees. By default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folders: Vec<Folder>,
}

/// A folder of this machine that a plugin sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Folder {
    /// The folder on this machine.
    pub path: PathBuf,
    /// Where the plugin sees it.
    #[serde(rename = "as")]
    pub mounted_as: String,
    /// Whether the plugin may write there. By default false.
    #[serde(default)]
    pub write: bool,
}

/// How much a plugin may use; what is left out has the host's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LimitsSpec {
    /// Memory of one instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,
    /// How long one call may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_timeout: Option<Span>,
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

impl Capabilities {
    /// Whether a capability of this name is granted; none if there is no such capability.
    pub fn grants(&self, name: &str) -> Option<bool> {
        Some(match name {
            "clock" => self.clock,
            "random" => self.random,
            "environment" => !self.environment.is_empty(),
            "network" => self.network,
            "folders" => !self.folders.is_empty(),
            _ => return None,
        })
    }
}
