//! Plugins: WebAssembly components, how they are found, checked, compiled, run and kept within bounds. The only place that knows wasmtime.
//!
//! The modules in the order of a plugin's life: `registry` finds its bytes, `inspect` checks them against the worlds of the contract, `engine`
//! compiles them or finds them compiled in the `cache`, `loaded` links them and makes operators, `instance` is a running one: it calls, and
//! `emitted` checks what comes back. `wasi`, `limits` and `host` are what surrounds an instance.

mod bindings;
mod cache;
mod call_error;
mod capabilities;
mod describe;
mod digest;
mod emitted;
mod engine;
mod host;
mod inspect;
mod instance;
mod limits;
mod loaded;
mod log;
mod metrics;
mod registry;
mod shape;
mod wasi;

pub use call_error::CallError;
pub use capabilities::{Capabilities, Folder};
pub use describe::{Description, StateDescription};
pub use digest::Digest;
pub use engine::{CompileCounts, CompileOutcome, EngineOptions};
pub use inspect::{Unfit, World, inspect};
pub use limits::Limits;
pub use loaded::{LoadedPlugin, OperatorContext, PluginHost};
pub use metrics::{PluginCounts, PluginMetrics};
pub use registry::{Artifact, FolderRegistry, PluginReference, PluginRegistry};

pub(crate) use emitted::Failure;
pub(crate) use instance::{Instance, InstanceFactory, Scope};
