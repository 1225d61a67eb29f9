//! The plugins of a job, loaded.

use super::{PluginCatalog, PluginInfo};
use crate::Error;
use crate::checkpoint::protocol::DeclaredState;
use crate::pipeline::{Job, JobSpec};
use crate::plugin::{LoadedPlugin, PluginHost, PluginReference, StateDescription, World};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;

/// The plugins of a job, loaded; or why one could not be.
#[derive(Debug, Default)]
pub struct LoadedPlugins {
    plugins: HashMap<PluginReference, Result<LoadedPlugin, Error>>,
}

impl LoadedPlugins {
    /// Loads every plugin of a job. One that cannot be loaded is an error only when it is asked for, so that a plan can name all of them.
    pub async fn of(job: &Job, host: &PluginHost) -> Self {
        Self::of_spec(job.spec(), job.base(), host).await
    }

    /// Loads every plugin of a specification, which may be wrong otherwise; relative paths start at `base`.
    pub async fn of_spec(spec: &JobSpec, base: &Path, host: &PluginHost) -> Self {
        let mut plugins = HashMap::new();
        for operator in &spec.operators {
            // What is no reference is a fault that the plan finds.
            let Ok(reference) = operator.plugin.parse::<PluginReference>() else { continue };
            if let Entry::Vacant(place) = plugins.entry(reference) {
                let loaded = host.load(place.key(), base).await;
                place.insert(loaded);
            }
        }
        Self { plugins }
    }

    /// A plugin that was loaded.
    ///
    /// # Errors
    /// It could not be loaded, or is none of the job's.
    pub fn get(&self, plugin: &PluginReference) -> Result<&LoadedPlugin, Error> {
        match self.plugins.get(plugin) {
            Some(Ok(loaded)) => Ok(loaded),
            Some(Err(error)) => Err(Error::user(error.chain()).with_retry(error.retry_helps())),
            None => Err(Error::internal(format!("no operator of the job names the plugin {plugin}"))),
        }
    }
}

/// The states that a plugin keeps. A keyed one that names none may keep some all the same: to name them is not an obligation.
fn states(loaded: &LoadedPlugin) -> Option<Vec<DeclaredState>> {
    let declared = &loaded.description().states;
    let state = |state: &StateDescription| DeclaredState { name: state.name.clone(), version: state.version, kind: state.kind.clone() };
    match loaded.world() {
        World::MapPlugin => Some(Vec::new()),
        World::KeyedPlugin if declared.is_empty() => None,
        World::KeyedPlugin => Some(declared.iter().map(state).collect()),
    }
}

impl PluginCatalog for LoadedPlugins {
    fn describe(&self, plugin: &PluginReference) -> Result<PluginInfo, Error> {
        let loaded = self.get(plugin)?;
        let description = loaded.description();
        Ok(PluginInfo {
            digest: Some(loaded.digest().to_string()),
            world: loaded.world(),
            inputs: description.inputs.clone(),
            side_outputs: description.side_outputs.clone(),
            capabilities: description.capabilities.clone(),
            states: states(loaded),
            least_memory_bytes: Some(loaded.least_memory_bytes()),
            broadcast_inputs: description.broadcast_inputs.clone(),
            broadcast_states: description.broadcast_states().map(str::to_owned).collect(),
        })
    }
}
