//! Checks a component against the worlds, and says everything that does not fit at once.

use std::fmt;
use std::sync::LazyLock;
use wit_parser::decoding::{self, DecodedWasm};
use wit_parser::{Function, InterfaceId, Resolve, WorldId, WorldItem};

use super::shape;

const CONTRACT: &str = include_str!("../../../wit/plugin.wit");
const PACKAGE: &str = "waterwheel:plugin";
const VERSION: &str = "0.1.0";

/// The world that a component was built for: what it can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum World {
    /// Stateless: maps, filters, expands.
    MapPlugin,
    /// State and timers by key.
    KeyedPlugin,
}

impl World {
    /// The name in the contract.
    pub fn name(self) -> &'static str {
        match self {
            Self::MapPlugin => "map-plugin",
            Self::KeyedPlugin => "keyed-plugin",
        }
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a file is not a plugin for this host: all reasons, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// Each a sentence.
    pub reasons: Vec<String>,
    /// What is likely to help.
    pub hint: Option<String>,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reasons.join("; "))?;
        self.hint.iter().try_for_each(|hint| write!(f, " (hint: {hint})"))
    }
}

impl std::error::Error for Unfit {}

impl Unfit {
    fn one(reason: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { reasons: vec![reason.into()], hint: Some(hint.into()) }
    }
}

/// Checks a component and tells its world.
///
/// # Errors
/// Everything that does not fit.
pub fn inspect(bytes: &[u8]) -> Result<World, Unfit> {
    check_header(bytes)?;
    let decoded = decoding::decode(bytes)
        .map_err(|error| Unfit::one(format!("the component cannot be read: {error:#}"), "build it again; the file may be damaged"))?;
    let DecodedWasm::Component(resolve, world) = decoded else {
        return Err(Unfit::one("the file holds WIT definitions, not a component", "name the component that was built from them"));
    };
    Check { contract: contract()?, component: &resolve, world, reasons: Vec::new() }.run()
}

/// Tells what the first bytes show: nothing at all, something else, a core module.
fn check_header(bytes: &[u8]) -> Result<(), Unfit> {
    const REBUILD: &str = "a plugin is a WebAssembly component: build with a Waterwheel SDK, in Rust for the target wasm32-wasip2";
    if bytes.is_empty() {
        return Err(Unfit::one("the file is empty", REBUILD));
    }
    if !bytes.starts_with(b"\0asm") {
        let text = bytes.trim_ascii_start().starts_with(b"(");
        let what = if text { "the file is WebAssembly text" } else { "the file is not WebAssembly" };
        let hint = if text { "turn it into a binary with `wasm-tools parse`" } else { REBUILD };
        return Err(Unfit::one(what, hint));
    }
    match bytes.get(4..8) {
        Some([_, _, 1, 0]) => Ok(()),
        Some([1, 0, 0, 0]) => Err(Unfit::one(
            "the file is a core module, not a component",
            "build for a target that makes components (in Rust wasm32-wasip2), or turn it into one with `wasm-tools component new`",
        )),
        Some(_) => Err(Unfit::one("the file is of a WebAssembly version that this host does not know", REBUILD)),
        None => Err(Unfit::one("the file is cut short", REBUILD)),
    }
}

/// The contract as this host serves it.
fn contract() -> Result<&'static Resolve, Unfit> {
    static PARSED: LazyLock<Result<Resolve, String>> = LazyLock::new(|| {
        let mut resolve = Resolve::default();
        resolve.push_str("plugin.wit", CONTRACT).map_err(|error| format!("{error:#}"))?;
        Ok(resolve)
    });
    PARSED.as_ref().map_err(|error| Unfit { reasons: vec![format!("this host's own contract cannot be read: {error}")], hint: None })
}

struct Check<'a> {
    contract: &'a Resolve,
    component: &'a Resolve,
    world: WorldId,
    reasons: Vec<String>,
}

impl Check<'_> {
    fn run(mut self) -> Result<World, Unfit> {
        self.imports();
        let world = self.choose_world();
        if let Some(world) = world {
            self.exports(world);
        }
        match world {
            Some(world) if self.reasons.is_empty() => Ok(world),
            _ => Err(Unfit { hint: self.hint(), reasons: self.reasons }),
        }
    }

    /// A component may import the host's interfaces, as they are, and those of WASI 0.2.
    fn imports(&mut self) {
        let component = self.component;
        for (key, item) in &component.worlds[self.world].imports {
            let name = component.name_world_key(key);
            let known = ["host", "types"].iter().any(|interface| name == full_name(interface));
            let WorldItem::Interface { id, .. } = item else {
                self.reasons.push(format!("import {name}: a plugin imports interfaces only"));
                continue;
            };
            if known {
                self.imported_functions(&name, *id);
            } else if !is_wasi_0_2(&name) {
                self.reasons.push(format!("import {name}: this host does not have it"));
            }
        }
    }

    fn imported_functions(&mut self, name: &str, id: InterfaceId) {
        let expected = self.contract_interface(name);
        for (function, found) in &self.component.interfaces[id].functions {
            match expected.and_then(|id| self.contract.interfaces[id].functions.get(function)) {
                Some(expected) => self.compare(&format!("import {name}: {function}"), expected, found),
                None => self.reasons.push(format!("import {name}: this host does not have the function {function}")),
            }
        }
    }

    /// The world is told by what processes records.
    fn choose_world(&mut self) -> Option<World> {
        let [lifecycle, mapper, keyed] =
            ["lifecycle", "mapper", "keyed-processor"].map(|interface| self.exported(&full_name(interface)).is_some());
        match (mapper, keyed) {
            (true, false) => Some(World::MapPlugin),
            (false, true) => Some(World::KeyedPlugin),
            (true, true) => {
                self.reasons.push("it exports both mapper and keyed-processor: a plugin is either a map-plugin or a keyed-plugin".into());
                None
            }
            (false, false) => {
                let (mapper, keyed) = (full_name("mapper"), full_name("keyed-processor"));
                self.reasons.push(format!("it exports neither {mapper} (a map-plugin) nor {keyed} (a keyed-plugin)"));
                if !lifecycle {
                    self.reasons.push(format!("export {} is missing", full_name("lifecycle")));
                }
                None
            }
        }
    }

    fn exports(&mut self, world: World) {
        let contract = self.contract;
        let expected = contract.worlds.iter().find(|(_, candidate)| candidate.name == world.name());
        for key in expected.iter().flat_map(|(_, expected)| expected.exports.keys()) {
            let name = contract.name_world_key(key);
            let found = self.exported(&name);
            let functions = self.contract_interface(&name).map(|id| &contract.interfaces[id].functions);
            let Some(found) = found else {
                self.reasons.push(format!("export {name} is missing"));
                continue;
            };
            for (function, expected) in functions.into_iter().flatten() {
                match self.component.interfaces[found].functions.get(function) {
                    Some(found) => self.compare(&format!("export {name}: {function}"), expected, found),
                    None => self.reasons.push(format!("export {name}: the function {function} is missing")),
                }
            }
        }
    }

    fn compare(&mut self, place: &str, expected: &Function, found: &Function) {
        let differences = shape::differences(self.contract, expected, self.component, found);
        self.reasons.extend(differences.into_iter().map(|difference| format!("{place}: {difference}")));
    }

    fn exported(&self, name: &str) -> Option<InterfaceId> {
        let exports = &self.component.worlds[self.world].exports;
        exports.iter().find_map(|(key, item)| match item {
            WorldItem::Interface { id, .. } if self.component.name_world_key(key) == name => Some(*id),
            _ => None,
        })
    }

    fn contract_interface(&self, name: &str) -> Option<InterfaceId> {
        let of_name = |(id, _): &(InterfaceId, _)| self.contract.id_of(*id).as_deref() == Some(name);
        self.contract.interfaces.iter().find(of_name).map(|(id, _)| id)
    }

    fn hint(&self) -> Option<String> {
        let world = &self.component.worlds[self.world];
        let names = world.imports.keys().chain(world.exports.keys()).map(|key| self.component.name_world_key(key));
        let mut others: Vec<String> =
            names.filter_map(|name| contract_version(&name).map(str::to_owned)).filter(|version| version != VERSION).collect();
        others.sort();
        others.dedup();
        if !others.is_empty() {
            let others = others.join(", ");
            return Some(format!(
                "it was built for {PACKAGE}@{others}, and this host serves {VERSION}: build it with the SDK of this version, or take a host that serves {others}"
            ));
        }
        let foreign = !world.exports.keys().any(|key| self.component.name_world_key(key).starts_with(PACKAGE));
        foreign.then(|| format!("nothing of it belongs to {PACKAGE}: build it with a Waterwheel SDK"))
    }
}

fn full_name(interface: &str) -> String {
    format!("{PACKAGE}/{interface}@{VERSION}")
}

/// The version of the contract that an interface's name tells, if it is one of the contract's.
fn contract_version(name: &str) -> Option<&str> {
    let (interface, version) = name.rsplit_once('@')?;
    interface.strip_prefix(PACKAGE)?.starts_with('/').then_some(version)
}

/// WASI 0.2 is linked whole; what is not known of it traps when it is called.
fn is_wasi_0_2(name: &str) -> bool {
    name.starts_with("wasi:") && name.rsplit_once('@').is_some_and(|(_, version)| version.starts_with("0.2."))
}
