//! What a job grants a plugin beyond its own memory: nothing, unless it says so. All of WASI 0.2 is there to be called; without a grant a call is
//! denied, or answered with what repeats in a replay.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What a plugin may reach outside of itself: nothing unless it is said here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Capabilities {
    /// The real clock; without it a plugin sees the time of its batch. By default false.
    #[serde(default)]
    pub clock: bool,
    /// Real randomness; without it random numbers are seeded. By default false.
    #[serde(default)]
    pub random: bool,
    /// Environment variables that the plugin sees, with their values. By default none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Connections to other machines. By default false.
    #[serde(default)]
    pub network: bool,
    /// Folders of this machine that the plugin sees. By default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folders: Vec<Folder>,
}

/// A folder of this machine that a plugin sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Folder {
    /// The folder on this machine.
    pub path: PathBuf,
    /// Where the plugin sees it.
    #[serde(rename = "as")]
    pub mounted_as: String,
    /// Whether the plugin may write there. By default false.
    #[serde(default)]
    pub write: bool,
}

impl Capabilities {
    /// Whether a capability of this name is granted; none if there is no such capability.
    pub fn grants(&self, name: &str) -> Option<bool> {
        Some(match name {
            "clock" => self.clock,
            "random" => self.random,
            "environment" => !self.environment.is_empty(),
            "network" => self.network,
            "folders" => !self.folders.is_empty(),
            _ => return None,
        })
    }
}
