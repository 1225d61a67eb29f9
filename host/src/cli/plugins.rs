//! What commands that only look at a job know of its plugins.

use crate::config::{Fault, Faults};
use crate::pipeline::job::Draft;
use crate::pipeline::plan::{AssumedPlugins, LoadedPlugins};
use crate::pipeline::{Connectors, Plan};
use crate::plugin::{EngineOptions, PluginHost};
use std::path::PathBuf;

/// A job file, and whether its plugins are loaded.
#[derive(Debug, clap::Args)]
pub(super) struct JobArguments {
    /// The job file, YAML or JSON.
    pub(super) file: PathBuf,
    /// Do not load the plugins: what the job uses of them is taken as what they have.
    #[arg(long)]
    no_plugins: bool,
}

impl JobArguments {
    /// Checks the job and makes its plan.
    ///
    /// # Errors
    /// Every fault.
    pub(super) fn plan(&self, connectors: &Connectors) -> Result<Plan, Faults> {
        let draft = Draft::read(&self.file, connectors);
        let Some((spec, base)) = draft.spec() else { return draft.into_plan(&AssumedPlugins::default()) };
        if self.no_plugins || spec.operators.is_empty() {
            let assumed = AssumedPlugins::of(spec);
            return draft.into_plan(&assumed);
        }
        let cannot = |what: &str, error: String| Faults(vec![Fault::new("", format!("{what}: {error}"))]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| cannot("the plugins cannot be loaded", error.to_string()))?;
        let host = PluginHost::new(EngineOptions::default()).map_err(|error| cannot("the plugins cannot be loaded", error.chain()))?;
        let plugins = runtime.block_on(LoadedPlugins::of_spec(spec, base, &host));
        draft.into_plan(&plugins)
    }
}
