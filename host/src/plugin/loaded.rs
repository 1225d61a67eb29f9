//! From a reference to an operator: find the component, check it, compile it, link it, ask it what it is, and run it.

use super::bindings::{host, keyed_processor, lifecycle, mapper, snapshot};
use super::call_error::CallError;
use super::engine::{CompileCounts, CompileOutcome, EngineOptions, PluginEngine};
use super::host::PluginState;
use super::instance::{Instance, InstanceFactory, LogicIndices, Surroundings, Template};
use super::limits::Limits;
use super::log::PluginLog;
use super::registry::{self, Artifact, PluginReference, PluginRegistry};
use super::wasi::Grants;
use super::{Capabilities, Description, Digest, PluginMetrics, World, inspect};
use crate::Error;
use crate::operator::{ErrorPolicy, FailureHandler, Isolation, KeyedOperator, LateRecords, MapOperator, Operator};
use crate::record::{KeyGroups, SplitTable};
use crate::telemetry::TaskMetrics;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use tokio::sync::Mutex;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, HasSelf, Linker, ResourceType};

/// Loads plugins and keeps them: one for each process.
#[derive(Debug)]
pub struct PluginHost {
    engine: PluginEngine,
    registry: Option<Arc<dyn PluginRegistry>>,
    loaded: Mutex<HashMap<Digest, Weak<Loaded>>>,
}

/// A component that was checked, compiled and linked. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LoadedPlugin(Arc<Loaded>);

#[derive(Debug)]
struct Loaded {
    digest: Digest,
    world: World,
    description: Description,
    least_memory_bytes: u64,
    outcome: CompileOutcome,
    template: Arc<Template>,
}

/// What an operator is made with, besides its plugin.
#[derive(Clone, Debug)]
pub struct OperatorContext {
    /// The name of the job.
    pub job: String,
    /// The uid of the operator.
    pub uid: String,
    /// The number of the subtask, from 0.
    pub subtask: u32,
    /// The number of subtasks.
    pub parallelism: u32,
    /// How often the job was started before, in this process.
    pub attempt: u32,
    /// Whether [`Operator::restore`] is going to be called with the state of a checkpoint.
    pub restored: bool,
    /// The operator's `config`; null if it has none.
    pub config: serde_json::Value,
    /// What the job grants.
    pub capabilities: Capabilities,
    /// What an instance may use.
    pub limits: Limits,
    /// What becomes of records that cannot be processed.
    pub policy: ErrorPolicy,
    /// What becomes of late records, where the plugin is keyed.
    pub late_records: LateRecords,
    /// How keys are dealt to subtasks.
    pub key_groups: KeyGroups,
    /// Which inputs are dealt by key: there a record without a key is left to the policy.
    pub keyed_inputs: Vec<bool>,
    /// The names of splits.
    pub split_table: SplitTable,
    /// Counters of this subtask's plugin.
    pub metrics: Arc<PluginMetrics>,
    /// Counters of this subtask.
    pub task_metrics: Arc<TaskMetrics>,
    /// What earlier attempts learned about records that fail: one value for all subtasks and attempts of the operator.
    pub isolation: Isolation,
}

impl PluginHost {
    /// A host without a registry: plugins are named by path.
    ///
    /// # Errors
    /// The engine or its clock thread cannot be started.
    pub fn new(options: EngineOptions) -> Result<Self, Error> {
        Ok(Self { engine: PluginEngine::new(options)?, registry: None, loaded: Mutex::default() })
    }

    /// Looks plugins up in this registry.
    #[must_use]
    pub fn with_registry(mut self, registry: Arc<dyn PluginRegistry>) -> Self {
        self.registry = Some(registry);
        self
    }

    /// How often the engine compiled, and how often it did not have to.
    pub fn compile_counts(&self) -> CompileCounts {
        self.engine.counts()
    }

    /// The file with the compiled code of a component, if there is a cache folder; the file may not exist.
    pub fn cache_file(&self, digest: &Digest) -> Option<PathBuf> {
        self.engine.cache_file(digest)
    }

    /// Loads a plugin; relative paths start at `base`. One that is in use already is not loaded again.
    ///
    /// # Errors
    /// There is no such plugin, or it fits no world, or it cannot say what it is.
    pub async fn load(&self, reference: &PluginReference, base: &Path) -> Result<LoadedPlugin, Error> {
        let artifact = registry::resolve(reference, base, self.registry.as_deref()).await?;
        // Held while compiling: the same component is compiled once, however many operators ask for it.
        let mut loaded = self.loaded.lock().await;
        if let Some(plugin) = loaded.get(&artifact.digest).and_then(Weak::upgrade) {
            return Ok(LoadedPlugin(plugin));
        }
        let within = |error: Error| error.within(format!("plugin {reference}"));
        let plugin = Arc::new(load(&self.engine, artifact).await.map_err(within)?);
        loaded.retain(|_, plugin| plugin.strong_count() > 0);
        loaded.insert(plugin.digest, Arc::downgrade(&plugin));
        Ok(LoadedPlugin(plugin))
    }
}

async fn load(engine: &PluginEngine, artifact: Artifact) -> Result<Loaded, Error> {
    let digest = artifact.digest;
    let own = engine.clone();
    let compile = move || {
        let world = inspect(&artifact.bytes).map_err(|unfit| Error::user(unfit.to_string()))?;
        let (component, outcome) = own.component(&artifact.bytes, &digest)?;
        link(&own, &component, world).map(|template| (world, outcome, template))
    };
    let compiled = tokio::task::spawn_blocking(compile).await;
    let (world, outcome, template) = compiled.map_err(|error| Error::internal("compiling stopped").caused_by(error))??;
    let (description, least_memory_bytes) = describe(&template).await?;
    Ok(Loaded { digest, world, description, least_memory_bytes, outcome, template: Arc::new(template) })
}

/// Links the host's functions and all of WASI 0.2. What a component imports of WASI beyond that traps when it is called.
fn link(engine: &PluginEngine, component: &Component, world: World) -> Result<Template, Error> {
    let unlinked = |error: wasmtime::Error| Error::user("the component cannot be linked").caused_by(error);
    let mut linker = Linker::<PluginState>::new(engine.wasmtime());
    wasmtime_wasi::p2::add_to_linker_async(&mut linker).map_err(unlinked)?;
    host::add_to_linker::<_, HasSelf<PluginState>>(&mut linker, |state| state).map_err(unlinked)?;
    trap_unlinked(&mut linker, engine.wasmtime(), component).map_err(unlinked)?;
    let linked = linker.instantiate_pre(component).map_err(unlinked)?;
    let lifecycle = lifecycle::GuestIndices::new(&linked).map_err(unlinked)?;
    let logic = match world {
        World::MapPlugin => LogicIndices::Map(mapper::GuestIndices::new(&linked).map_err(unlinked)?),
        World::KeyedPlugin => LogicIndices::Keyed(
            keyed_processor::GuestIndices::new(&linked).map_err(unlinked)?,
            snapshot::GuestIndices::new(&linked).map_err(unlinked)?,
        ),
    };
    Ok(Template { engine: engine.wasmtime().clone(), clock: engine.clock(), linked, lifecycle, logic })
}

/// Packages of WASI 0.2 that are linked; whatever 0.2 version a component names, the linker finds the functions.
const LINKED_WASI: [&str; 6] = ["wasi:cli/", "wasi:clocks/", "wasi:filesystem/", "wasi:io/", "wasi:random/", "wasi:sockets/"];

/// Makes functions that trap, and say their name, of the interfaces that a component imports and that are not linked (`wasi:http`, say):
/// language runtimes import more than their programs call.
fn trap_unlinked(linker: &mut Linker<PluginState>, engine: &wasmtime::Engine, component: &Component) -> Result<(), wasmtime::Error> {
    for (interface, item) in component.component_type().imports(engine) {
        let linked = interface.starts_with("waterwheel:") || LINKED_WASI.iter().any(|package| interface.starts_with(package));
        let ComponentItem::ComponentInstance(instance) = item.ty else { continue };
        if linked {
            continue;
        }
        let mut stubs = linker.instance(interface)?;
        for (name, item) in instance.exports(engine) {
            match item.ty {
                ComponentItem::ComponentFunc(_) => {
                    let called = format!("{interface}#{name}");
                    stubs.func_new(name, move |_, _, _, _| {
                        Err(wasmtime::Error::msg(format!("the plugin called {called}, which this host does not have")))
                    })?;
                }
                ComponentItem::Resource(_) => stubs.resource(name, ResourceType::host::<()>(), |_, _| Ok(()))?,
                _ => {}
            }
        }
    }
    Ok(())
}

/// Asks a plugin what it is, without any grant; also how many bytes of memory it has before it is called.
async fn describe(template: &Template) -> Result<(Description, u64), Error> {
    const NOBODY: &str = "describe";
    let around = Surroundings {
        grants: Grants::new(Capabilities::default(), NOBODY, 0),
        limits: Limits::default(),
        log: PluginLog::new(NOBODY, 0),
        metrics: Arc::default(),
        split_table: SplitTable::default(),
        side_outputs: 0,
        config: String::new(),
        environment: String::new(),
    };
    let told = async {
        let mut instance = Instance::new(template, &around).await?;
        let least_memory = instance.memory_bytes();
        Ok((instance.describe().await?, least_memory))
    };
    let told = told
        .await
        .map_err(|error: CallError| Error::user(format!("it cannot say what it is: {error}")).with_retry(error.may_pass_at_start()));
    let (text, least_memory) = told?;
    Ok((Description::parse(&text).map_err(Error::user)?, least_memory))
}

impl LoadedPlugin {
    /// The digest of the component.
    pub fn digest(&self) -> Digest {
        self.0.digest
    }

    /// Its world.
    pub fn world(&self) -> World {
        self.0.world
    }

    /// What it says of itself.
    pub fn description(&self) -> &Description {
        &self.0.description
    }

    /// Bytes of memory that an instance has before its first call: with less it cannot be started.
    pub fn least_memory_bytes(&self) -> u64 {
        self.0.least_memory_bytes
    }

    /// Whether it was compiled for this process, or found compiled.
    pub fn outcome(&self) -> CompileOutcome {
        self.0.outcome
    }

    /// Starts one subtask of an operator: makes an instance and opens it with the operator's config.
    ///
    /// # Errors
    /// The plugin refuses its config, with its sentence; a grant cannot be given; the plugin cannot be started.
    pub async fn operator(&self, context: OperatorContext) -> Result<Box<dyn Operator>, Error> {
        let OperatorContext { uid, subtask, split_table, metrics, .. } = &context;
        let around = Surroundings {
            grants: Grants::new(context.capabilities.clone(), uid, *subtask),
            limits: context.limits,
            log: PluginLog::new(uid, *subtask),
            metrics: Arc::clone(metrics),
            split_table: split_table.clone(),
            side_outputs: self.0.description.side_outputs.len(),
            config: context.config.to_string(),
            environment: environment(&context),
        };
        let failures = FailureHandler::new(context.policy, uid, split_table.clone(), Arc::clone(metrics));
        let factory = InstanceFactory { template: Arc::clone(&self.0.template), around };
        Ok(match self.0.world {
            World::MapPlugin => Box::new(MapOperator::open(factory, failures).await?),
            World::KeyedPlugin => Box::new(KeyedOperator::open(factory, failures, context).await?),
        })
    }
}

/// The JSON document that a plugin is opened with.
fn environment(context: &OperatorContext) -> String {
    serde_json::json!({
        "job": context.job,
        "uid": context.uid,
        "subtask": context.subtask,
        "parallelism": context.parallelism,
        "attempt": context.attempt,
        "restored": context.restored,
    })
    .to_string()
}
