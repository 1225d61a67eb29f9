//! A job specification built in code, for a service that embeds the host.

use super::{
    Capabilities, ErrorPolicy, EventTimeSpec, Execution, InputSpec, JobSpec, LateRecords, Limits, OperatorSpec, SinkSpec, SourceSpec,
};
use crate::config::Span;
use crate::sink::Guarantee;
use serde_json::{Map, Value};
use std::time::Duration;

/// Builds a [`JobSpec`] in code: the same as a job file, and checked in the same way when it becomes a [`Job`](crate::pipeline::Job).
///
/// ```
/// use serde_json::json;
/// use std::time::Duration;
/// use waterwheel::pipeline::JobBuilder;
/// use waterwheel::pipeline::spec::{InputSpec, KeyBy, OperatorSpec, SinkSpec, SourceSpec};
/// use waterwheel::sink::Guarantee;
///
/// let spec = JobBuilder::new("orders")
///     .source(SourceSpec::new("orders", "file").option("path", "orders.jsonl"))
///     .operator(
///         OperatorSpec::new("totals", "plugins/running-total.wasm")
///             .input(InputSpec::from("orders").keyed_by(KeyBy::JsonPointer("/user".into())))
///             .config(json!({"sum": "/amount"}))
///             .parallelism(2),
///     )
///     .sink(SinkSpec::new("out", "file").input("totals").guarantee(Guarantee::ExactlyOnce).option("path", "out"))
///     .checkpoint_every(Duration::from_millis(500), "checkpoints")
///     .build();
/// assert_eq!(spec.operators[0].inputs[0].from, "orders");
/// ```
#[derive(Clone, Debug)]
pub struct JobBuilder {
    spec: JobSpec,
}

impl JobBuilder {
    /// A job of a name with nothing in it yet.
    pub fn new(name: impl Into<String>) -> Self {
        Self { spec: JobSpec::new(name) }
    }

    /// Adds a source.
    #[must_use]
    pub fn source(mut self, source: SourceSpec) -> Self {
        self.spec.sources.push(source);
        self
    }

    /// Adds an operator.
    #[must_use]
    pub fn operator(mut self, operator: OperatorSpec) -> Self {
        self.spec.operators.push(operator);
        self
    }

    /// Adds a sink.
    #[must_use]
    pub fn sink(mut self, sink: SinkSpec) -> Self {
        self.spec.sinks.push(sink);
        self
    }

    /// Sets the parallelism of what does not set its own. By default 1.
    #[must_use]
    pub fn parallelism(mut self, parallelism: u16) -> Self {
        self.spec.parallelism = parallelism;
        self
    }

    /// Sets the number of key groups. By default 128.
    #[must_use]
    pub fn max_parallelism(mut self, max_parallelism: u16) -> Self {
        self.spec.max_parallelism = max_parallelism;
        self
    }

    /// Allows checkpoints in memory together with an exactly-once sink. By default not.
    #[must_use]
    pub fn ephemeral(mut self) -> Self {
        self.spec.ephemeral = true;
        self
    }

    /// Switches checkpointing on: every `interval`, kept in `dir`, a folder or a URL. By default it is off.
    #[must_use]
    pub fn checkpoint_every(mut self, interval: Duration, dir: impl Into<String>) -> Self {
        self.spec.execution.checkpointing.interval = Some(Span(interval));
        self.spec.execution.checkpointing.dir = Some(dir.into());
        self
    }

    /// Changes any other setting of the execution.
    #[must_use]
    pub fn execution(mut self, change: impl FnOnce(&mut Execution)) -> Self {
        change(&mut self.spec.execution);
        self
    }

    /// The specification. Nothing has been checked yet.
    pub fn build(self) -> JobSpec {
        self.spec
    }
}

impl SourceSpec {
    /// A source of a type, without options.
    pub fn new(uid: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { uid: uid.into(), kind: kind.into(), parallelism: None, event_time: None, options: Map::new() }
    }

    /// Makes watermarks from the event time of its records. By default it makes none.
    #[must_use]
    pub fn event_time(mut self, event_time: EventTimeSpec) -> Self {
        self.event_time = Some(event_time);
        self
    }

    /// Sets an option of its type.
    #[must_use]
    pub fn option(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.options.insert(name.into(), value.into());
        self
    }

    /// Sets the number of subtasks. By default the job's.
    #[must_use]
    pub fn parallelism(mut self, parallelism: u16) -> Self {
        self.parallelism = Some(parallelism);
        self
    }
}

impl OperatorSpec {
    /// An operator that runs a plugin, without inputs.
    pub fn new(uid: impl Into<String>, plugin: impl Into<String>) -> Self {
        Self {
            uid: uid.into(),
            plugin: plugin.into(),
            inputs: Vec::new(),
            parallelism: None,
            config: Value::Null,
            error_policy: ErrorPolicy::Fail,
            dead_letter_sink: None,
            late_records: LateRecords::Process,
            capabilities: Capabilities::default(),
            limits: Limits::default(),
        }
    }

    /// Adds an input.
    #[must_use]
    pub fn input(mut self, input: impl Into<InputSpec>) -> Self {
        self.inputs.push(input.into());
        self
    }

    /// Sets what the plugin is opened with. By default `null`.
    #[must_use]
    pub fn config(mut self, config: Value) -> Self {
        self.config = config;
        self
    }

    /// Sets the number of subtasks. By default the job's.
    #[must_use]
    pub fn parallelism(mut self, parallelism: u16) -> Self {
        self.parallelism = Some(parallelism);
        self
    }

    /// Leaves out records that the plugin cannot process. By default the job fails.
    #[must_use]
    pub fn skip_errors(mut self) -> Self {
        self.error_policy = ErrorPolicy::Skip;
        self
    }

    /// Sends records that the plugin cannot process to a sink. By default the job fails.
    #[must_use]
    pub fn dead_letters_to(mut self, sink: impl Into<String>) -> Self {
        self.error_policy = ErrorPolicy::DeadLetter;
        self.dead_letter_sink = Some(sink.into());
        self
    }

    /// Sets what becomes of late records, where the plugin is keyed. By default it gets them like all others.
    #[must_use]
    pub fn late_records(mut self, late_records: LateRecords) -> Self {
        self.late_records = late_records;
        self
    }

    /// Sets what the plugin may reach. By default nothing.
    #[must_use]
    pub fn capabilities(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// Sets how much the plugin may use.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }
}

impl SinkSpec {
    /// A sink of a type, without inputs and options.
    pub fn new(uid: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { uid: uid.into(), kind: kind.into(), inputs: Vec::new(), delivery_guarantee: None, parallelism: None, options: Map::new() }
    }

    /// Adds an input.
    #[must_use]
    pub fn input(mut self, input: impl Into<InputSpec>) -> Self {
        self.inputs.push(input.into());
        self
    }

    /// Asks for a guarantee. By default `at-least-once`, or less if the sink cannot give that.
    #[must_use]
    pub fn guarantee(mut self, guarantee: Guarantee) -> Self {
        self.delivery_guarantee = Some(guarantee);
        self
    }

    /// Sets an option of its type.
    #[must_use]
    pub fn option(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.options.insert(name.into(), value.into());
        self
    }

    /// Sets the number of subtasks. By default the job's.
    #[must_use]
    pub fn parallelism(mut self, parallelism: u16) -> Self {
        self.parallelism = Some(parallelism);
        self
    }
}
