//! `waterwheel savepoint diff A B`: what differs in the state of two savepoints or checkpoints.

use super::read::{damaged, reader};
use super::{Format, Outcome};
use crate::Error;
use crate::checkpoint::savepoint::{self, Found};
use crate::state::{shown_key, shown_value};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// How many keys of a kind are shown to people.
const SHOWN: usize = 20;

/// Which two.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The folder of the first savepoint or checkpoint.
    first: String,
    /// The folder of the second one.
    second: String,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Key and subkey.
type Place = (Vec<u8>, Option<Vec<u8>>);
/// The entries of a state, each with a digest of its value and version.
type State = BTreeMap<Place, u128>;

/// What differs in a state.
#[derive(Debug, Default)]
struct Difference {
    added: Vec<Place>,
    removed: Vec<Place>,
    changed: Vec<Place>,
    same: usize,
}

pub(super) async fn run(arguments: &Arguments) -> Outcome {
    let (first, second) = (savepoint::find(&arguments.first).await?, savepoint::find(&arguments.second).await?);
    let operators: BTreeSet<&String> = [&first, &second].iter().flat_map(|found| found.manifest.snapshot.operators.keys()).collect();
    let mut differences = Vec::new();
    for uid in operators {
        let (mut before, mut after) = (states(&first, uid).await?, states(&second, uid).await?);
        let names: BTreeSet<String> = before.keys().chain(after.keys()).cloned().collect();
        for name in names {
            let (before, after) = (before.remove(&name).unwrap_or_default(), after.remove(&name).unwrap_or_default());
            differences.push((uid.clone(), name, difference(before, after)));
        }
    }
    Ok(match arguments.format {
        Format::Json => format!("{:#}\n", Value::from_iter(differences.iter().map(object))),
        Format::Text => differences.iter().map(text).collect(),
    })
}

/// The states of an operator by name.
async fn states(found: &Found, uid: &str) -> Result<BTreeMap<String, State>, Error> {
    let mut states: BTreeMap<String, State> = BTreeMap::new();
    let mut reader = reader(found, uid).await?;
    while let Some(entries) = reader.next_entries().await.map_err(|(file, error)| damaged(&file, &error))? {
        let state = states.entry(entries.state.clone()).or_default();
        for entry in entries.iter() {
            let digest = xxh3_128_with_seed(entry.value.unwrap_or_default(), u64::from(entries.version));
            state.insert((entry.key.to_vec(), entry.subkey.map(<[u8]>::to_vec)), digest);
        }
    }
    Ok(states)
}

fn difference(mut before: State, after: State) -> Difference {
    let mut difference = Difference::default();
    for (place, digest) in after {
        match before.remove(&place) {
            None => difference.added.push(place),
            Some(old) if old == digest => difference.same += 1,
            Some(_) => difference.changed.push(place),
        }
    }
    difference.removed.extend(before.into_keys());
    difference
}

fn object((operator, state, difference): &(String, String, Difference)) -> Value {
    let places = |places: &[Place]| {
        let shown = |(key, subkey): &Place| json!({"key": shown_key(key), "subkey": subkey.as_deref().map(shown_value)});
        places.iter().map(shown).collect::<Vec<_>>()
    };
    json!({
        "operator": operator,
        "state": state,
        "added": places(&difference.added),
        "removed": places(&difference.removed),
        "changed": places(&difference.changed),
        "same": difference.same,
    })
}

fn text((operator, state, difference): &(String, String, Difference)) -> String {
    let Difference { added, removed, changed, same } = difference;
    let (more, less, other) = (added.len(), removed.len(), changed.len());
    let mut text = format!("operator {operator}, state {state}: {more} added, {less} removed, {other} changed, {same} the same\n");
    for (sign, places) in [('+', added), ('-', removed), ('~', changed)] {
        for (key, subkey) in places.iter().take(SHOWN) {
            let subkey = subkey.as_deref().map_or_else(String::new, |subkey| format!(" {}", shown_value(subkey)));
            // Writing to a text cannot fail.
            let _written = writeln!(text, "  {sign} {}{subkey}", shown_key(key));
        }
        if places.len() > SHOWN {
            let _written = writeln!(text, "  {sign} and {} more: --format json shows all", places.len() - SHOWN);
        }
    }
    text
}
