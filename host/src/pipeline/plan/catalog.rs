//! What a plan needs to know about plugins. They are loaded elsewhere; this is the question and the answer.

use crate::Error;
use crate::checkpoint::protocol::DeclaredState;
use crate::operator::LATE_OUTPUT;
use crate::pipeline::spec::{InputSpec, JobSpec, LateRecords, OperatorSpec};
use crate::plugin::{PluginReference, World};
use serde::Serialize;
use std::collections::HashMap;

/// What a plugin is, as far as a plan needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PluginInfo {
    /// `sha256:` and the digest of the component. None if the plugin was not loaded: such a plan can be drawn and not run.
    pub digest: Option<String>,
    /// The world that it implements.
    pub world: World,
    /// The names of its inputs by number; empty is one input without a name.
    pub inputs: Vec<String>,
    /// The names of its side outputs; the first is route 1.
    pub side_outputs: Vec<String>,
    /// What it needs from the job: names of capabilities.
    pub capabilities: Vec<String>,
    /// The states that it keeps; none if it does not say.
    pub states: Option<Vec<DeclaredState>>,
    /// Bytes of memory without which it cannot be started, where that is known.
    pub least_memory_bytes: Option<u64>,
    /// Those of its inputs that every subtask must get as a whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub broadcast_inputs: Vec<String>,
    /// Its states that are the same in all subtasks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub broadcast_states: Vec<String>,
}

impl PluginInfo {
    /// How many inputs it has.
    pub fn input_count(&self) -> usize {
        self.inputs.len().max(1)
    }
}

/// Knows the plugins of a job.
pub trait PluginCatalog {
    /// What a plugin is.
    ///
    /// # Errors
    /// It is not there, or fits no world; the message says why, and may have several lines.
    fn describe(&self, plugin: &PluginReference) -> Result<PluginInfo, Error>;
}

/// Stands in for plugins that are not loaded, so that a job can be drawn without them: what a job uses of a plugin is taken as what
/// the plugin has.
#[derive(Clone, Debug, Default)]
pub struct AssumedPlugins {
    plugins: HashMap<PluginReference, PluginInfo>,
}

impl AssumedPlugins {
    /// What this job uses of its plugins.
    pub fn of(spec: &JobSpec) -> Self {
        let mut plugins = HashMap::new();
        for operator in &spec.operators {
            // What is no reference is a fault that the plan finds.
            let Ok(reference) = operator.plugin.parse() else { continue };
            let info = plugins.entry(reference).or_insert_with(|| PluginInfo {
                digest: None,
                world: World::MapPlugin,
                inputs: Vec::new(),
                side_outputs: Vec::new(),
                capabilities: Vec::new(),
                states: None,
                least_memory_bytes: None,
                broadcast_inputs: Vec::new(),
                broadcast_states: Vec::new(),
            });
            assume(info, operator, spec);
        }
        Self { plugins }
    }
}

fn assume(info: &mut PluginInfo, operator: &OperatorSpec, spec: &JobSpec) {
    let numbered = operator.inputs.iter().map(|input| usize::from(input.number) + 1).max().unwrap_or(1);
    if operator.inputs.iter().any(|input| input.key_by.is_some()) || numbered > 1 {
        info.world = World::KeyedPlugin;
    }
    while info.inputs.len() < numbered {
        info.inputs.push(format!("input-{}", info.inputs.len()));
    }
    let readers = spec.operators.iter().flat_map(|reader| &reader.inputs).chain(spec.sinks.iter().flat_map(|reader| &reader.inputs));
    let is_hosts = |output: &str| output == LATE_OUTPUT && operator.late_records == LateRecords::SideOutput;
    for (uid, output) in readers.map(InputSpec::origin) {
        if let Some(output) =
            output.filter(|output| uid == operator.uid && !is_hosts(output) && !info.side_outputs.iter().any(|known| known == output))
        {
            info.side_outputs.push(output.to_owned());
        }
    }
}

impl PluginCatalog for AssumedPlugins {
    fn describe(&self, plugin: &PluginReference) -> Result<PluginInfo, Error> {
        self.plugins.get(plugin).cloned().ok_or_else(|| Error::internal(format!("no operator of the job names the plugin {plugin}")))
    }
}
