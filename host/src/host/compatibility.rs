//! Tries whether a plugin takes the state in a savepoint or checkpoint, state by state, without running a job.

use super::Host;
use crate::Error;
use crate::checkpoint::protocol::OperatorState;
use crate::checkpoint::savepoint::Found;
use crate::operator::{ErrorPolicy, Isolation, LateRecords};
use crate::plugin::{Capabilities, Limits, LoadedPlugin, OperatorContext, PluginReference, World};
use crate::record::{KeyGroups, SplitTable};
use crate::state::{StateReader, StateWriter};
use crate::telemetry::Metrics;
use bytes::Bytes;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// What a plugin did with a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateVerdict {
    /// It took it.
    Taken,
    /// It took it and brought it from older versions to its own, which is this one.
    Migrated(u32),
    /// It refused it: its sentence.
    Refused(String),
}

/// A state that was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriedState {
    /// The operator.
    pub operator: String,
    /// The state.
    pub state: String,
    /// The versions that its entries were written with.
    pub versions: BTreeSet<u32>,
    /// How many entries it has.
    pub entries: u64,
    /// What the plugin did with it.
    pub verdict: StateVerdict,
}

/// The entries of one state in one subtask.
#[derive(Default)]
struct Part {
    file: StateWriter,
    versions: BTreeSet<u32>,
}

impl Host {
    /// Gives the state in a savepoint or checkpoint to fresh instances of a plugin, subtask by subtask and state by state, and drops them.
    ///
    /// Without a uid it is the state of the operator that has some, or of those whose plugin had the same file name. `config` takes the place of
    /// the configuration that the operator had.
    ///
    /// # Errors
    /// The plugin cannot be loaded or opened, it is not clear which operator is meant, or a file is damaged. A refusal is no error.
    pub async fn try_state(
        &self,
        plugin: &PluginReference,
        against: &Found,
        operator: Option<&str>,
        config: Option<&Value>,
    ) -> Result<Vec<TriedState>, Error> {
        let uids = operators(plugin, against, operator)?;
        let loaded = self.plugins().load(plugin, Path::new("")).await?;
        if loaded.world() != World::KeyedPlugin {
            return Err(Error::user(format!("the plugin {plugin} keeps no state: it is a map plugin")));
        }
        let mut tried = BTreeMap::new();
        for uid in uids {
            let Some(state) = against.manifest.snapshot.operators.get(&uid) else { continue };
            try_operator(&loaded, against, &uid, state, config, &mut tried).await?;
        }
        Ok(tried.into_values().collect())
    }
}

/// The operators whose state is meant.
fn operators(plugin: &PluginReference, against: &Found, wanted: Option<&str>) -> Result<Vec<String>, Error> {
    let snapshot = &against.manifest.snapshot;
    let with_state = snapshot.operators.iter().filter(|(_, state)| state.subtasks.values().any(|subtask| !subtask.chain.is_empty()));
    let uids: Vec<String> = with_state.map(|(uid, _)| uid.clone()).collect();
    let there = if uids.is_empty() { "none".to_owned() } else { uids.join(", ") };
    if let Some(wanted) = wanted {
        let found: Vec<String> = uids.into_iter().filter(|uid| uid == wanted).collect();
        return if found.is_empty() {
            Err(Error::user(format!("{} has no state of an operator {wanted}; of these there is some: {there}", against.path)))
        } else {
            Ok(found)
        };
    }
    if uids.len() <= 1 {
        return Ok(uids);
    }
    let file_name = |text: &str| Path::new(text).file_name().map(std::ffi::OsStr::to_os_string);
    let name = file_name(&plugin.to_string());
    let same = |uid: &String| snapshot.plan.parts.get(uid).is_some_and(|part| file_name(&part.type_name) == name);
    let named: Vec<String> = uids.into_iter().filter(same).collect();
    if named.is_empty() {
        return Err(Error::user(format!("{} has state of several operators: say which with --operator: {there}", against.path)));
    }
    Ok(named)
}

async fn try_operator(
    loaded: &LoadedPlugin,
    against: &Found,
    uid: &str,
    operator: &OperatorState,
    config: Option<&Value>,
    tried: &mut BTreeMap<(String, String), TriedState>,
) -> Result<(), Error> {
    let groups = against.max_parallelism();
    let parallelism = u16::try_from(operator.subtasks.len()).unwrap_or(groups);
    for (subtask, chain) in (0..).zip(against.chains(operator).await?) {
        for (name, Part { file, versions }) in parts(chain, groups).await? {
            let entries = file.entries();
            let context = context(against, uid, subtask, parallelism, config);
            let refused = import(loaded, context, file.finish(), groups).await?;
            let described = loaded.description().states.iter().find(|state| state.name == name).map(|state| state.version);
            let verdict = match (refused, described) {
                (Some(sentence), _) => StateVerdict::Refused(sentence),
                (None, Some(own)) if versions.iter().any(|version| *version < own) => StateVerdict::Migrated(own),
                (None, _) => StateVerdict::Taken,
            };
            merge(tried, TriedState { operator: uid.to_owned(), state: name, versions, entries, verdict });
        }
    }
    Ok(())
}

/// Adds what another subtask came to: the first refusal counts.
fn merge(tried: &mut BTreeMap<(String, String), TriedState>, part: TriedState) {
    let key = (part.operator.clone(), part.state.clone());
    let Some(whole) = tried.get_mut(&key) else {
        tried.insert(key, part);
        return;
    };
    whole.versions.extend(part.versions);
    whole.entries += part.entries;
    if !matches!(whole.verdict, StateVerdict::Refused(_)) && part.verdict != StateVerdict::Taken {
        whole.verdict = part.verdict;
    }
}

/// The entries of a subtask, by state.
async fn parts(chain: Vec<(String, Bytes)>, groups: u16) -> Result<BTreeMap<String, Part>, Error> {
    let mut parts: BTreeMap<String, Part> = BTreeMap::new();
    let mut reader = StateReader::new(vec![chain], 0..groups, groups);
    let damaged = |(file, error)| Error::external(format!("the state file {file} is {error}")).with_retry(false);
    while let Some(entries) = reader.next_entries().await.map_err(damaged)? {
        let part = parts.entry(entries.state.clone()).or_default();
        part.versions.insert(entries.version);
        part.file.write(&entries);
    }
    Ok(parts)
}

/// Imports entries into a fresh operator; what it says if it refuses.
async fn import(loaded: &LoadedPlugin, context: OperatorContext, entries: Bytes, groups: u16) -> Result<Option<String>, Error> {
    let uid = context.uid.clone();
    let mut operator = loaded.operator(context).await?;
    let mut reader = StateReader::new(vec![vec![(format!("state of operator {uid}"), entries)]], 0..groups, groups);
    Ok(operator.restore(&mut reader).await.err().map(|error| error.chain()))
}

fn context(against: &Found, uid: &str, subtask: u32, parallelism: u16, config: Option<&Value>) -> OperatorContext {
    let part = against.manifest.snapshot.plan.parts.get(uid);
    let recorded = || part.and_then(|part| part.config.get("config")).cloned();
    OperatorContext {
        job: against.manifest.job.to_string(),
        uid: uid.to_owned(),
        subtask,
        parallelism: u32::from(parallelism),
        attempt: 0,
        restored: true,
        config: config.cloned().or_else(recorded).unwrap_or_default(),
        capabilities: Capabilities::default(),
        limits: Limits::default(),
        policy: ErrorPolicy::Fail,
        late_records: LateRecords::default(),
        key_groups: KeyGroups::new(against.max_parallelism(), parallelism),
        keyed_inputs: Vec::new(),
        split_table: SplitTable::default(),
        metrics: Arc::default(),
        task_metrics: Metrics::new().job("plugin-check").task(uid, 0),
        isolation: Isolation::default(),
    }
}
