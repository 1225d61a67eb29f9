//! Makes the plan of a checked job: what only the plugins can tell is checked here, and every fault is reported at once.

use super::{Chain, Edge, Exchange, Node, NodeKind, OperatorNode, Plan, PluginCatalog, PluginInfo, SinkNode, SourceNode};
use super::{chains, notes};
use crate::config::{Fault, Faults, Size, unknown};
use crate::operator::{DEAD_LETTER_ROUTE, LATE_OUTPUT, LATE_ROUTE};
use crate::pipeline::Job;
use crate::pipeline::spec::{ErrorPolicy, InputSpec, JobSpec, LateRecords, OperatorSpec};
use crate::plugin::{PluginReference, World};
use std::collections::HashMap;
use std::sync::Arc;

impl Plan {
    /// Makes the plan of a job.
    ///
    /// # Errors
    /// Every fault at once: plugins that are not there, inputs and side outputs that a plugin does not have, inputs of keyed plugins
    /// without `key-by`, capabilities that a plugin needs and the job does not grant.
    pub fn build(job: &Job, catalog: &dyn PluginCatalog) -> Result<Self, Faults> {
        let (plugins, faults) = describe(job.spec(), catalog);
        Faults(faults).or(())?;
        let mut builder = Builder { job, plugins, nodes: Vec::new(), places: HashMap::new(), edges: Vec::new() };
        builder.add_nodes();
        builder.add_edges();
        let Builder { mut nodes, edges, .. } = builder;
        let chains: Vec<Chain> = chains::form(&mut nodes, &edges);
        let spec = job.spec();
        let mut plan = Self {
            name: spec.name.clone(),
            max_parallelism: spec.max_parallelism,
            nodes,
            edges,
            chains,
            settings: job.settings().clone(),
            notes: Vec::new(),
        };
        plan.notes = notes::of(&plan);
        Ok(plan)
    }
}

/// What only the plugins can tell to be wrong with a specification, which may be wrong otherwise.
pub(in crate::pipeline) fn faults_of_plugins(spec: &JobSpec, catalog: &dyn PluginCatalog) -> Vec<Fault> {
    describe(spec, catalog).1
}

type Described = Option<(PluginReference, PluginInfo)>;

/// What the plugins are, by operator, and all that is wrong with how they are used.
fn describe(spec: &JobSpec, catalog: &dyn PluginCatalog) -> (Vec<Described>, Vec<Fault>) {
    let mut faults = Vec::new();
    let plugins = describe_plugins(spec, catalog, &mut faults);
    for (index, operator) in spec.operators.iter().enumerate() {
        if let Some((_, info)) = &plugins[index] {
            check_operator(index, operator, info, &mut faults);
        }
    }
    let operators = spec.operators.iter().enumerate().map(|(index, operator)| (format!("/operators/{index}"), &operator.inputs));
    let sinks = spec.sinks.iter().enumerate().map(|(index, sink)| (format!("/sinks/{index}"), &sink.inputs));
    for (path, inputs) in operators.chain(sinks) {
        for (number, input) in inputs.iter().enumerate() {
            let (from, output) = input.origin();
            if let Err(message) = route(spec, &plugins, from, output) {
                faults.push(Fault::new(format!("{path}/inputs/{number}"), message));
            }
        }
    }
    (plugins, faults)
}

fn describe_plugins(spec: &JobSpec, catalog: &dyn PluginCatalog, faults: &mut Vec<Fault>) -> Vec<Described> {
    let describe = |(index, operator): (usize, &OperatorSpec)| {
        let path = format!("/operators/{index}/plugin");
        let reference = match operator.plugin.parse::<PluginReference>() {
            Ok(reference) => reference,
            Err(message) => {
                faults.push(Fault::new(path, message));
                return None;
            }
        };
        match catalog.describe(&reference) {
            Ok(info) => Some((reference, info)),
            Err(error) => {
                faults.push(Fault::new(path, error.chain()));
                None
            }
        }
    };
    spec.operators.iter().enumerate().map(describe).collect()
}

/// The number of an output; none where the plugin that would tell is not known, which is a fault of its own.
fn route(spec: &JobSpec, plugins: &[Described], from: &str, output: Option<&str>) -> Result<Option<u8>, String> {
    let Some(output) = output else { return Ok(Some(0)) };
    let position = spec.operators.iter().position(|operator| operator.uid == from);
    let Some((operator, (plugin, info))) =
        position.and_then(|position| Some((&spec.operators[position], plugins[position].as_ref().map(|(plugin, info)| (plugin, info))?)))
    else {
        return Ok(None);
    };
    if output == LATE_OUTPUT && operator.late_records == LateRecords::SideOutput {
        return Ok(Some(LATE_ROUTE));
    }
    match info.side_outputs.iter().position(|known| known == output).map(|index| u8::try_from(index + 1)) {
        Some(Ok(route)) if route < LATE_ROUTE => Ok(Some(route)),
        Some(_) => Err(format!("the side output {output:?} of {plugin} is beyond the 253 that can be used")),
        None if output == LATE_OUTPUT => Err(format!(
            "the plugin {plugin} has no side output {LATE_OUTPUT:?}; `late-records: side-output` makes one of its late records"
        )),
        None if info.side_outputs.is_empty() => {
            Err(format!("the plugin {plugin} has no side outputs, so there is no {from}.{output}; its output is {from}"))
        }
        None => Err(unknown("side output", output, info.side_outputs.iter().map(String::as_str))),
    }
}

/// What the plugin of an operator and its inputs and grants must agree in.
fn check_operator(index: usize, operator: &OperatorSpec, info: &PluginInfo, faults: &mut Vec<Fault>) {
    let path = format!("/operators/{index}");
    let count = info.input_count();
    for (number, input) in operator.inputs.iter().enumerate() {
        let path = format!("{path}/inputs/{number}");
        if usize::from(input.number) >= count {
            let has = if count == 1 { "one input, 0".to_owned() } else { format!("the inputs 0 to {}", count - 1) };
            faults
                .push(Fault::new(format!("{path}/as"), format!("the plugin {} has {has}, and no input {}", operator.plugin, input.number)));
        }
        let name = info.inputs.get(usize::from(input.number));
        if let Some(name) = name.filter(|name| info.broadcast_inputs.contains(name) && !input.broadcast) {
            faults.push(Fault::new(
                format!("{path}/broadcast"),
                format!(
                    "must be true: every subtask of the plugin {} has to get its input {} ({name}) as a whole, without key-by",
                    operator.plugin, input.number
                ),
            ));
        } else if info.world == World::KeyedPlugin && input.key_by.is_none() && !input.broadcast {
            faults.push(Fault::new(
                format!("{path}/key-by"),
                format!(
                    "is missing: the plugin {} is keyed, so its inputs are dealt by key (`key-by: key`, `key-by: {{json-pointer: /user}}`, \
                     `key-by: {{header: user}}`) or given whole to every subtask (`broadcast: true`)",
                    operator.plugin
                ),
            ));
        }
    }
    for number in 0..count {
        if !operator.inputs.iter().any(|input| usize::from(input.number) == number) {
            let name = info.inputs.get(number).map(|name| format!(" ({name})")).unwrap_or_default();
            let message =
                format!("nothing arrives at input {number}{name} of the plugin {}: give an input `as: {number}`", operator.plugin);
            faults.push(Fault::new(format!("{path}/inputs"), message));
        }
    }
    check_late_records(&path, operator, info, faults);
    if let Some(least) = info.least_memory_bytes.map(Size).filter(|least| operator.limits.memory < *least) {
        let message = format!(
            "{} is less than the {least} that the plugin {} takes before its first record",
            operator.limits.memory, operator.plugin
        );
        faults.push(Fault::new(format!("{path}/limits/memory"), message));
    }
    for capability in &info.capabilities {
        match operator.capabilities.grants(capability) {
            Some(true) => {}
            Some(false) => faults.push(Fault::new(
                format!("{path}/capabilities/{capability}"),
                format!("the plugin {} needs {capability}, which the job does not grant", operator.plugin),
            )),
            None => faults.push(Fault::new(
                format!("{path}/plugin"),
                format!("the plugin {} needs {capability:?}, which this version of Waterwheel does not know", operator.plugin),
            )),
        }
    }
}

fn check_late_records(path: &str, operator: &OperatorSpec, info: &PluginInfo, faults: &mut Vec<Fault>) {
    if operator.late_records == LateRecords::Process {
        return;
    }
    let path = format!("{path}/late-records");
    if info.world != World::KeyedPlugin {
        let message = format!("the plugin {} is not keyed: records are late only where there is state by key", operator.plugin);
        faults.push(Fault::new(path, message));
    } else if operator.late_records == LateRecords::SideOutput && info.side_outputs.iter().any(|output| output == LATE_OUTPUT) {
        let message = format!("the plugin {} has a side output {LATE_OUTPUT:?} of its own: write process or drop", operator.plugin);
        faults.push(Fault::new(path, message));
    }
}

struct Builder<'a> {
    job: &'a Job,
    plugins: Vec<Described>,
    nodes: Vec<Node>,
    places: HashMap<String, usize>,
    edges: Vec<Edge>,
}

impl Builder<'_> {
    fn add_nodes(&mut self) {
        let job = self.job;
        let spec = job.spec();
        for (index, source) in spec.sources.iter().enumerate() {
            let kind = NodeKind::Source(SourceNode {
                type_name: source.kind.clone(),
                source: Arc::clone(&job.sources()[index]),
                event_time: source.event_time.clone(),
            });
            self.add_node("sources", index, &source.uid, source.parallelism, kind);
        }
        for &index in job.operator_order() {
            let operator = &spec.operators[index];
            // A plugin that could not be described is a fault already; the plan is not made.
            let Some((plugin, info)) = self.plugins[index].clone() else { continue };
            let kind = NodeKind::Operator(Box::new(OperatorNode {
                plugin_name: operator.plugin.clone(),
                plugin,
                info,
                config: operator.config.clone(),
                error_policy: operator.error_policy,
                late_records: operator.late_records,
                capabilities: operator.capabilities.clone(),
                limits: operator.limits,
            }));
            self.add_node("operators", index, &operator.uid, operator.parallelism, kind);
        }
        for (index, sink) in spec.sinks.iter().enumerate() {
            let ready = &job.sinks()[index];
            let kind = NodeKind::Sink(SinkNode {
                type_name: sink.kind.clone(),
                sink: Arc::clone(&ready.sink),
                guarantee: ready.guarantee,
                promise: ready.sink.promise().unwrap_or_else(|| ready.promise.clone()),
            });
            self.add_node("sinks", index, &sink.uid, sink.parallelism, kind);
        }
    }

    fn add_node(&mut self, section: &str, position: usize, uid: &str, parallelism: Option<u16>, kind: NodeKind) {
        let index = self.nodes.len();
        self.places.insert(uid.to_owned(), index);
        let written = self.job.written().get(section).and_then(|elements| elements.get(position)).cloned().unwrap_or_default();
        let parallelism = parallelism.unwrap_or(self.job.spec().parallelism);
        self.nodes.push(Node { index, uid: uid.into(), parallelism, chain: 0, kind, written });
    }

    fn add_edges(&mut self) {
        let job = self.job;
        let spec = job.spec();
        for &index in job.operator_order() {
            let operator = &spec.operators[index];
            self.add_inputs(&operator.uid, &operator.inputs);
        }
        for sink in &spec.sinks {
            self.add_inputs(&sink.uid, &sink.inputs);
            for &operator in job.operator_order() {
                let operator = &spec.operators[operator];
                if operator.error_policy == ErrorPolicy::DeadLetter && operator.dead_letter_sink.as_deref() == Some(&sink.uid) {
                    self.add_edge(&operator.uid, DEAD_LETTER_ROUTE, &sink.uid, 0, None);
                }
            }
        }
    }

    fn add_inputs(&mut self, to: &str, inputs: &[InputSpec]) {
        for input in inputs {
            let (from, output) = input.origin();
            // Faults were reported before.
            let Ok(Some(route)) = route(self.job.spec(), &self.plugins, from, output) else { continue };
            self.add_edge(from, route, to, usize::from(input.number), Some(input));
        }
    }

    fn add_edge(&mut self, from: &str, route: u8, to: &str, input: usize, spec: Option<&InputSpec>) {
        // A node that is missing has a fault of its own.
        let (Some(&from), Some(&to)) = (self.places.get(from), self.places.get(to)) else { return };
        let exchange = match spec {
            Some(InputSpec { broadcast: true, .. }) => Exchange::Broadcast,
            Some(InputSpec { key_by: Some(key_by), on_missing_key, .. }) => {
                Exchange::KeyGroup { key_by: key_by.clone(), on_missing_key: *on_missing_key }
            }
            _ if self.nodes[from].parallelism == self.nodes[to].parallelism => Exchange::Forward,
            _ => Exchange::Rebalance,
        };
        self.edges.push(Edge { index: self.edges.len(), from, route, to, input, exchange });
    }
}
