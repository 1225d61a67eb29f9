//! The job specification: what a person writes, as types. Every key's name and default is that of Apache Flink where Flink has it.

mod builder;
mod dotted;
mod event_time;
mod execution;
mod input;
mod nodes;
mod restart;
mod schema;
mod substitute;
mod text;

pub use crate::operator::{ErrorPolicy, LateRecords};
pub use crate::plugin::{Capabilities, Folder, Limits};
pub use builder::JobBuilder;
pub use event_time::{EventTimeSpec, OnTimestampError, RecordTimestamp, TimeUnit, TimestampSpec, ValueTimestamp, WatermarkSpec};
pub use execution::{BatchSpec, CheckpointMode, Checkpointing, ClaimMode, Execution, Retention, StateRecovery, Unaligned};
pub use input::{InputSpec, KeyBy, OnMissingKey};
pub use nodes::{OperatorSpec, SinkSpec, SourceSpec};
pub use restart::{ExponentialDelay, FailureRate, FixedDelay, RestartSpec, RestartType};
pub use schema::job_schema;

pub(super) use dotted::expand_dotted_keys;
pub(super) use schema::{shared_keys, structure_schema};
pub(super) use substitute::{Replaced, substitute};
pub(super) use text::parse;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The largest maximum parallelism, that of Flink.
pub const MAX_MAX_PARALLELISM: u16 = 1 << 15;

/// A job: where records come from, what happens to them, where they go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(title = "Waterwheel job")]
pub struct JobSpec {
    /// What the job is called: letters, digits, `-` and `_`, beginning with a letter or a digit. Its checkpoints are found by it.
    pub name: String,
    /// The number of key groups, and so the most subtasks that an operator can ever have. It cannot be changed once the job has
    /// state. By default 128.
    #[serde(default = "default_max_parallelism")]
    #[schemars(range(min = 1, max = 32768))]
    pub max_parallelism: u16,
    /// How many subtasks each source, operator and sink has that does not say so itself. By default 1.
    #[serde(default = "default_parallelism")]
    #[schemars(range(min = 1, max = 32768))]
    pub parallelism: u16,
    /// Allows checkpoints in memory together with an exactly-once sink: the guarantee then ends with the process. By default false.
    #[serde(default)]
    pub ephemeral: bool,
    /// Where records come from.
    #[serde(default)]
    pub sources: Vec<SourceSpec>,
    /// What happens to them.
    #[serde(default)]
    pub operators: Vec<OperatorSpec>,
    /// Where they go.
    #[serde(default)]
    pub sinks: Vec<SinkSpec>,
    /// Checkpoints, restarts and batches. Dotted keys, as in Flink's configuration, are the same as nested ones.
    #[serde(default)]
    pub execution: Execution,
}

fn default_max_parallelism() -> u16 {
    128
}

fn default_parallelism() -> u16 {
    1
}

impl JobSpec {
    /// A job of a name with nothing in it and every setting at its default.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            max_parallelism: default_max_parallelism(),
            parallelism: default_parallelism(),
            ephemeral: false,
            sources: Vec::new(),
            operators: Vec::new(),
            sinks: Vec::new(),
            execution: Execution::default(),
        }
    }
}
