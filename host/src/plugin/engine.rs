//! The engine: compiles components, keeps what it compiled on disk, and lets time pass for the calls that run.

use super::Digest;
use super::cache::{CodeCache, Lookup};
use crate::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use wasmtime::component::Component;
use wasmtime::{Config, Engine, EngineWeak, OptLevel};

/// How components are compiled and run.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    cache_folder: Option<PathBuf>,
    tick: Duration,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self { cache_folder: None, tick: Duration::from_millis(10) }
    }
}

impl EngineOptions {
    /// The folder for compiled components. It must be writable by this user only, for its files are machine code. By default there is
    /// none, and every start compiles.
    #[must_use]
    pub fn cache_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cache_folder = Some(folder.into());
        self
    }

    /// How often a call that runs long lets other tasks have a turn, and how exactly its deadline is kept. By default 10 ms.
    #[must_use]
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick.max(Duration::from_millis(1));
        self
    }
}

/// Where the code of a component came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompileOutcome {
    /// It was compiled now.
    Compiled,
    /// It was compiled before, and found in the cache folder.
    FromCache,
}

/// How often the engine did what, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompileCounts {
    /// Components compiled.
    pub compiled: u64,
    /// Components found in the cache folder.
    pub from_cache: u64,
    /// Cache files that could not be used, and were made anew.
    pub unusable: u64,
}

/// The engine. Cheap to clone; all clones are one. Its clock stops when the last one is gone.
#[derive(Clone, Debug)]
pub(super) struct PluginEngine(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    engine: Engine,
    cache: Option<CodeCache>,
    ticks: Arc<AtomicU64>,
    tick: Duration,
    compiled: AtomicU64,
    from_cache: AtomicU64,
    unusable: AtomicU64,
}

impl PluginEngine {
    pub(super) fn new(options: EngineOptions) -> Result<Self, Error> {
        let mut config = Config::new();
        config.wasm_component_model(true).epoch_interruption(true).cranelift_opt_level(OptLevel::Speed);
        let engine = Engine::new(&config)
            .map_err(|error| Error::internal("the WebAssembly engine cannot be started").caused_by(error).with_retry(false))?;
        let cache = options.cache_folder.map(|folder| CodeCache::new(folder, &engine));
        let ticks = Arc::new(AtomicU64::new(0));
        spawn_clock(engine.weak(), Arc::clone(&ticks), options.tick)?;
        let zero = || AtomicU64::new(0);
        let tick = options.tick;
        Ok(Self(Arc::new(Shared { engine, cache, ticks, tick, compiled: zero(), from_cache: zero(), unusable: zero() })))
    }

    pub(super) fn wasmtime(&self) -> &Engine {
        &self.0.engine
    }

    pub(super) fn clock(&self) -> TickClock {
        TickClock { ticks: Arc::clone(&self.0.ticks), tick: self.0.tick }
    }

    pub(super) fn counts(&self) -> CompileCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CompileCounts { compiled: of(&self.0.compiled), from_cache: of(&self.0.from_cache), unusable: of(&self.0.unusable) }
    }

    /// The compiled component, from the cache folder where it is there. Takes seconds for a large component: not for a tokio worker.
    pub(super) fn component(&self, bytes: &[u8], digest: &Digest) -> Result<(Component, CompileOutcome), Error> {
        let shared = &*self.0;
        if let Some(cache) = &shared.cache {
            match cache.find(&shared.engine, digest) {
                Lookup::Found(component) => {
                    shared.from_cache.fetch_add(1, Ordering::Relaxed);
                    return Ok((component, CompileOutcome::FromCache));
                }
                Lookup::Missing => {}
                Lookup::Unusable(sentence) => {
                    shared.unusable.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!("a compiled component is compiled again: {sentence}");
                }
            }
        }
        let component = Component::new(&shared.engine, bytes)
            .map_err(|error| Error::user(format!("the component {digest} cannot be compiled")).caused_by(error))?;
        shared.compiled.fetch_add(1, Ordering::Relaxed);
        if let Some(cache) = &shared.cache
            && let Err(sentence) = cache.store(digest, &component)
        {
            // The component runs all the same; the next start compiles again.
            tracing::warn!("a compiled component cannot be kept: {sentence}");
        }
        Ok((component, CompileOutcome::Compiled))
    }

    /// The file that holds the compiled code of a component, if there is a cache folder.
    pub(super) fn cache_file(&self, digest: &Digest) -> Option<PathBuf> {
        self.0.cache.as_ref().map(|cache| cache.path(digest))
    }
}

/// Time as the engine counts it. A process that is paused does not tick, so a call is not late for it.
#[derive(Clone, Debug)]
pub(super) struct TickClock {
    ticks: Arc<AtomicU64>,
    tick: Duration,
}

impl TickClock {
    pub(super) fn now(&self) -> u64 {
        self.ticks.load(Ordering::Relaxed)
    }

    /// The number of ticks that a duration lasts, at least one.
    pub(super) fn ticks_of(&self, duration: Duration) -> u64 {
        let ticks = duration.as_nanos().div_ceil(self.tick.as_nanos());
        u64::try_from(ticks).unwrap_or(u64::MAX).max(1)
    }

    pub(super) fn tick(&self) -> Duration {
        self.tick
    }
}

/// Starts the thread that counts ticks until the engine is gone.
fn spawn_clock(engine: EngineWeak, ticks: Arc<AtomicU64>, tick: Duration) -> Result<(), Error> {
    let count = move || {
        while let Some(engine) = engine.upgrade() {
            ticks.fetch_add(1, Ordering::Relaxed);
            engine.increment_epoch();
            drop(engine);
            std::thread::sleep(tick);
        }
    };
    std::thread::Builder::new()
        .name("plugin-clock".into())
        .spawn(count)
        .map(drop)
        .map_err(|error| Error::external("the thread that bounds the time of plugin calls cannot be started").caused_by(error))
}
