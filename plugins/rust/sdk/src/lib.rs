//! Write Waterwheel plugins in Rust.
//!
//! A plugin is a WebAssembly component that the host runs in the middle of a stream. Its author writes a type with a function a record;
//! this crate does the rest: records as borrowed slices of the host's columns, output into columns, state with snapshots, timers.
//!
//! | to write | implement | export with |
//! |---|---|---|
//! | map, filter, expand, split | [`MapPlugin`] | [`export_map!`] |
//! | logic with state and timers by key | [`KeyedPlugin`] | [`export_keyed!`] |
//!
//! With a [`KeyedPlugin`] come [`Windows`], [`WindowJoin`] and [`IntervalJoin`] over event time, [`BroadcastState`] for rules, and a
//! [`TimeToLive`] for state.
//!
//! # A plugin from nothing
//!
//! `Cargo.toml` says that the crate is a component, and still can be tested natively:
//!
//! ```toml
//! [lib]
//! crate-type = ["cdylib", "rlib"]
//!
//! [dependencies]
//! waterwheel-plugin = "0.1"
//! ```
//!
//! `src/lib.rs`:
//!
//! ```
//! use waterwheel_plugin::{Environment, Failure, MapPlugin, NoConfig, Output, Record, export_map, fail};
//!
//! struct Shout;
//!
//! impl MapPlugin for Shout {
//!     type Config = NoConfig;
//!
//!     fn open(_: NoConfig, _: &Environment) -> Result<Self, Failure> {
//!         Ok(Self)
//!     }
//!
//!     fn process(&mut self, record: &Record<'_>, out: &mut Output<'_>) -> Result<(), Failure> {
//!         let text = std::str::from_utf8(record.value().ok_or_else(|| fail("no value"))?)?;
//!         out.emit(&text.to_uppercase());
//!         Ok(())
//!     }
//! }
//!
//! export_map!(Shout);
//!
//! # fn main() {
//! // A test, run by `cargo test` without a host:
//! let mut plugin = waterwheel_plugin::testing::MapHarness::<Shout>::open("null").unwrap();
//! plugin.process(&["hello".into()]).unwrap();
//! assert_eq!(plugin.take_output()[0].text(), "HELLO");
//! # }
//! ```
//!
//! `cargo build --release --target wasm32-wasip2` makes the component (`rustup target add wasm32-wasip2` once).
//!
//! # What holds
//!
//! - A record that fails leaves nothing behind: its output, state writes and timers are taken back. See [`Failure`].
//! - A panic ends the instance: its message and place go to the host, the job restarts from its last completed checkpoint, and a record that
//!   brings the plugin down again and again is found and treated by the job's error policy.
//! - A plugin may be asked to process a record again after a restart. With state in [`KeyedState`], [`MapState`] and [`BroadcastState`], and nowhere else, it then
//!   finds what it had when it first did; a field of the plugin's own type does not survive.
//! - There is no clock but [`Output::processing_time`] and the watermark, no randomness worth the name, no file, no network, unless the job
//!   grants it.
//!
//! # Modules
//!
//! [`testing`] has the harness for tests, [`json`] finds places in JSON values, [`decimal`] adds numbers exactly, [`log`] writes to the job's log; all else is at the top.

#[doc(hidden)]
pub mod bindings;
pub mod decimal;
mod emit;
mod export;
mod failure;
mod host;
pub mod json;
mod output;
mod plugin;
mod record;
mod runtime;
mod state;
#[cfg(not(target_family = "wasm"))]
pub mod testing;
mod timer;
mod window;

pub use emit::{Emit, ValueWriter};
pub use failure::{Failure, fail, fail_batch};
pub use host::{Header, Level, Place, log};
pub use output::{Emitted, KeyedOutput, Output};
pub use plugin::{Environment, KeyedPlugin, MapPlugin, NoConfig};
pub use record::Record;
pub use state::{BroadcastState, Declare, KeyedState, MapState, TimeToLive, decode, encode};
pub use timer::{Clock, RESERVED_TAGS, Timer};
pub use window::{
    Aggregate, AllRecords, Arrival, IntervalJoin, IntervalJoinState, Pair, Pane, Window, WindowAssigner, WindowJoin, WindowJoinState,
    WindowState, Windows,
};

#[doc(hidden)]
pub mod __private {
    //! For the macros only.
    pub use crate::bindings;
    pub use crate::export::{ExportedKeyed, ExportedMap, KeyedExport, MapExport};
    pub use crate::runtime::{KeyedRuntime, MapRuntime};
}
