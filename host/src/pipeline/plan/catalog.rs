//! What a plan needs to know about plugins. They are loaded elsewhere; this is the question and the answer.

use crate::Error;
use crate::pipeline::spec::{JobSpec, OperatorSpec};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// What a job names as a plugin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PluginReference {
    written: String,
    target: Target,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Target {
    Path(PathBuf),
    Digest(String),
    Named { name: String, version: String },
}

impl PluginReference {
    /// Reads a reference: `sha256:` and 64 hexadecimal digits, `name@version`, or a path, which is relative to `base`.
    ///
    /// # Errors
    /// A sentence that says what would be right.
    pub fn parse(written: &str, base: &Path) -> Result<Self, String> {
        let target = if let Some(digits) = written.strip_prefix("sha256:") {
            if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(format!("{written:?} is not a digest: sha256: is followed by 64 hexadecimal digits"));
            }
            Target::Digest(written.to_ascii_lowercase())
        } else if written.contains(['/', '\\']) || written.ends_with(".wasm") {
            Target::Path(base.join(written))
        } else if let Some((name, version)) = written.split_once('@').filter(|(name, version)| !name.is_empty() && !version.is_empty()) {
            Target::Named { name: name.to_owned(), version: version.to_owned() }
        } else {
            return Err(format!(
                "{written:?} names no plugin: give the path of a component (\"./{written}.wasm\"), name@version, or sha256: and a digest"
            ));
        };
        Ok(Self { written: written.to_owned(), target })
    }

    /// The reference as the job has it.
    pub fn as_str(&self) -> &str {
        &self.written
    }

    /// The component's path, if the reference is one.
    pub fn path(&self) -> Option<&Path> {
        match &self.target {
            Target::Path(path) => Some(path),
            _ => None,
        }
    }

    /// The digest, `sha256:…`, if the reference is one.
    pub fn digest(&self) -> Option<&str> {
        match &self.target {
            Target::Digest(digest) => Some(digest),
            _ => None,
        }
    }

    /// Name and version, if the reference is these.
    pub fn name_and_version(&self) -> Option<(&str, &str)> {
        match &self.target {
            Target::Named { name, version } => Some((name, version)),
            _ => None,
        }
    }
}

impl fmt::Display for PluginReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

/// Which world a plugin implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum World {
    /// Stateless; one input.
    Map,
    /// State and timers by key; every input is dealt by key or broadcast.
    Keyed,
}

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
    plugins: BTreeMap<String, PluginInfo>,
}

impl AssumedPlugins {
    /// What this job uses of its plugins.
    pub fn of(spec: &JobSpec) -> Self {
        let mut plugins = BTreeMap::new();
        for operator in &spec.operators {
            let info = plugins.entry(operator.plugin.clone()).or_insert_with(|| PluginInfo {
                digest: None,
                world: World::Map,
                inputs: Vec::new(),
                side_outputs: Vec::new(),
                capabilities: Vec::new(),
            });
            assume(info, operator, spec);
        }
        Self { plugins }
    }
}

fn assume(info: &mut PluginInfo, operator: &OperatorSpec, spec: &JobSpec) {
    let numbered = operator.inputs.iter().map(|input| usize::from(input.number) + 1).max().unwrap_or(1);
    if operator.inputs.iter().any(|input| input.key_by.is_some()) || numbered > 1 {
        info.world = World::Keyed;
    }
    while info.inputs.len() < numbered {
        info.inputs.push(format!("input-{}", info.inputs.len()));
    }
    let readers = spec.operators.iter().flat_map(|reader| &reader.inputs).chain(spec.sinks.iter().flat_map(|reader| &reader.inputs));
    for (uid, output) in readers.map(super::super::spec::InputSpec::origin) {
        if let Some(output) = output.filter(|output| uid == operator.uid && !info.side_outputs.iter().any(|known| known == output)) {
            info.side_outputs.push(output.to_owned());
        }
    }
}

impl PluginCatalog for AssumedPlugins {
    fn describe(&self, plugin: &PluginReference) -> Result<PluginInfo, Error> {
        self.plugins.get(plugin.as_str()).cloned().ok_or_else(|| Error::internal(format!("no operator of the job names the plugin {plugin}")))
    }
}
