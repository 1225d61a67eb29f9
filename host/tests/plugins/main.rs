//! Plugins, black box: real components behind the `Operator` trait. Build them first: `plugins/build.sh`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod checks;
mod compiled;
mod keyed;
mod keyed_failures;
mod limits;
mod map;
mod registry;
mod sandbox;
mod support;
