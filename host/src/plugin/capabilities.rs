//! What a job grants a plugin beyond its own memory: nothing, unless it says so.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What a plugin may use of the machine. All of WASI 0.2 is there to be called; without a grant a call is denied, or answered with what
/// repeats in a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Capabilities {
    /// The real clocks. By default a plugin's clocks stand at the processing time of its batch.
    pub clock: bool,
    /// Real randomness. By default random numbers come from a generator seeded with the operator's uid and subtask, so that a replay
    /// meets the same ones.
    pub random: bool,
    /// Names of environment variables that are passed on. By default none.
    pub environment: Vec<String>,
    /// Folders that the plugin may open. By default none.
    pub directories: Vec<Directory>,
    /// Addresses that the plugin may connect to, as `address:port`, `address` (all ports), `name:port` (looked up once, when the operator
    /// starts) or `*` (everything). By default none.
    pub network: Vec<String>,
}

/// A folder that a plugin may open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Directory {
    /// The folder; a relative one starts at the working directory.
    pub host: PathBuf,
    /// The name that the plugin sees it under.
    pub guest: String,
    /// Whether it can only be read. By default yes.
    #[serde(default = "yes")]
    pub read_only: bool,
}

fn yes() -> bool {
    true
}
