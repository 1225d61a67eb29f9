//! State against a model: random records, some of which fail, exports, evictions and restores in between. What the plugin has, and what a
//! host has put together from its exports, is at all times what the model says.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use waterwheel_plugin::testing::{KeyedHarness, Scope, Snapshot, StateEntry};
use waterwheel_plugin::{
    Declare, Environment, Failure, KeyedOutput, KeyedPlugin, KeyedState, MapState, NoConfig, Record, decode, encode, export_keyed, fail,
};

/// One write of a record. A record is a list of them, as text.
#[derive(Debug, Clone, Copy)]
enum Write {
    Set(u64),
    Add(u64),
    Remove,
    Insert(u8, u64),
    Bump(u8),
    Delete(u8),
    Clear,
    Fail,
}

struct Writer {
    value: KeyedState<u64>,
    map: MapState<u8, u64>,
}

impl KeyedPlugin for Writer {
    type Config = NoConfig;
    type States = Self;

    fn declare(states: &mut Declare) -> Self {
        Self { value: states.value("value"), map: states.map("map") }
    }

    fn open(_: NoConfig, states: Self, _: &Environment) -> Result<Self, Failure> {
        Ok(states)
    }

    fn process(&mut self, record: &Record<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        let text = std::str::from_utf8(record.value().unwrap_or_default())?;
        for write in text.split_whitespace() {
            let mut parts = write.split(',');
            let verb = parts.next().unwrap_or_default();
            let mut number = || parts.next().unwrap_or_default().parse::<u64>();
            match verb {
                "set" => self.value.set(number()?),
                "add" => {
                    let more = number()?;
                    self.value.update(|value| *value += more);
                }
                "remove" => self.value.remove(),
                "insert" => self.map.insert(&u8::try_from(number()?)?, number()?),
                "bump" => self.map.update(&u8::try_from(number()?)?, |value| *value += 1),
                "delete" => drop(self.map.remove(&u8::try_from(number()?)?)),
                "clear" => self.map.clear(),
                _ => return Err(fail("asked to")),
            }
        }
        let value = self.value.get().map(|value| *value);
        out.emit(&format!("{value:?} {:?} {}", self.map.to_vec(), self.map.len()));
        Ok(())
    }
}

export_keyed!(Writer);

type Model = BTreeMap<String, (Option<u64>, BTreeMap<u8, u64>)>;

/// Applies a record to the model; returns what the plugin should emit, or nothing when the record fails.
fn apply(model: &mut Model, key: &str, writes: &[Write]) -> Option<String> {
    let mut state = model.get(key).cloned().unwrap_or_default();
    let (value, map) = &mut state;
    for write in writes {
        match *write {
            Write::Set(new) => *value = Some(new),
            Write::Add(more) => *value = Some(value.unwrap_or_default() + more),
            Write::Remove => *value = None,
            Write::Insert(subkey, new) => drop(map.insert(subkey, new)),
            Write::Bump(subkey) => *map.entry(subkey).or_default() += 1,
            Write::Delete(subkey) => drop(map.remove(&subkey)),
            Write::Clear => map.clear(),
            Write::Fail => return None,
        }
    }
    let text = format!("{value:?} {:?} {}", map.iter().collect::<Vec<_>>(), map.len());
    if value.is_none() && map.is_empty() {
        model.remove(key);
    } else {
        model.insert(key.to_owned(), state);
    }
    Some(text)
}

fn text(writes: &[Write]) -> String {
    let texts = writes.iter().map(|write| match write {
        Write::Set(new) => format!("set,{new}"),
        Write::Add(more) => format!("add,{more}"),
        Write::Remove => "remove".to_owned(),
        Write::Insert(subkey, new) => format!("insert,{subkey},{new}"),
        Write::Bump(subkey) => format!("bump,{subkey}"),
        Write::Delete(subkey) => format!("delete,{subkey}"),
        Write::Clear => "clear".to_owned(),
        Write::Fail => "fail".to_owned(),
    });
    texts.collect::<Vec<_>>().join(" ")
}

/// What a host knows: the last value of each (state, key, subkey).
type Stored = BTreeMap<(String, Vec<u8>, Vec<u8>), Vec<u8>>;

fn fold(stored: &mut Stored, entries: &[StateEntry]) {
    for entry in entries {
        let subkey = entry.subkey.clone().unwrap_or_default();
        let place = (entry.state.clone(), entry.key.clone(), subkey.clone());
        match &entry.value {
            Some(value) => drop(stored.insert(place, value.clone())),
            None if entry.state == "map" && subkey.is_empty() => {
                stored.retain(|(state, key, _), _| *state != entry.state || *key != entry.key);
            }
            None => drop(stored.remove(&place)),
        }
    }
}

fn stored_by(model: &Model) -> Stored {
    let mut stored = Stored::new();
    for (key, (value, map)) in model {
        if let Some(value) = value {
            stored.insert(("value".to_owned(), key.clone().into(), Vec::new()), encode(value).unwrap());
        }
        for (subkey, value) in map {
            stored.insert(("map".to_owned(), key.clone().into(), encode(subkey).unwrap()), encode(value).unwrap());
        }
    }
    stored
}

/// The stored entries, of one key or of all, as a snapshot.
fn snapshot_of(stored: &Stored, of: Option<&str>) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for ((state, key, subkey), value) in stored {
        if of.is_none_or(|of| of.as_bytes() == key) {
            let value: u64 = decode(value).unwrap();
            snapshot = match state.as_str() {
                "map" => snapshot.with_map_entry("map", 1, key, &decode::<u8>(subkey).unwrap(), &value),
                _ => snapshot.with_value("value", 1, key, &value),
            };
        }
    }
    snapshot
}

#[derive(Debug, Clone)]
enum Step {
    Record(&'static str, Vec<Write>),
    Changed,
    All,
    /// Evicts the key, and brings it back.
    Evict(&'static str),
    Restore,
}

fn writes() -> impl Strategy<Value = Write> {
    let subkey = 0..4_u8;
    prop_oneof![
        3 => (0..9_u64).prop_map(Write::Set),
        3 => (0..9_u64).prop_map(Write::Add),
        2 => Just(Write::Remove),
        3 => (subkey.clone(), 0..9_u64).prop_map(|(subkey, new)| Write::Insert(subkey, new)),
        3 => subkey.clone().prop_map(Write::Bump),
        3 => subkey.prop_map(Write::Delete),
        1 => Just(Write::Clear),
        2 => Just(Write::Fail),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    let key = prop::sample::select(vec!["", "a", "b", "a key that does not fit into its slot"]);
    prop_oneof![
        12 => (key.clone(), prop::collection::vec(writes(), 0..6)).prop_map(|(key, writes)| Step::Record(key, writes)),
        2 => Just(Step::Changed),
        1 => Just(Step::All),
        1 => key.prop_map(Step::Evict),
        1 => Just(Step::Restore),
    ]
}

/// The plugin, the host's side and the model, side by side.
struct Trio {
    plugin: KeyedHarness<Writer>,
    stored: Stored,
    model: Model,
    /// Keys of records that did not fail, since the last export of changes.
    touched: BTreeSet<Vec<u8>>,
}

impl Trio {
    fn step(&mut self, step: &Step) {
        match step {
            Step::Record(key, writes) => {
                self.plugin.feed(key, text(writes)).unwrap();
                let output = self.plugin.take_output();
                let failed = self.plugin.take_failures().len();
                match apply(&mut self.model, key, writes) {
                    Some(expected) => {
                        assert_eq!((output.len(), failed), (1, 0));
                        assert_eq!(output[0].text().replace('"', ""), expected);
                        self.touched.insert(key.as_bytes().to_vec());
                    }
                    None => assert_eq!((output.len(), failed), (0, 1)),
                }
            }
            Step::Changed => self.export_changed(),
            Step::All => self.check_all(),
            Step::Evict(key) => {
                if self.touched.contains(key.as_bytes()) {
                    // May have changes, and then cannot be evicted.
                    let _ = self.plugin.evict(&[key]).map_err(|error| assert!(error.contains("not exported"), "{error}"));
                } else {
                    self.plugin.evict(&[key]).unwrap();
                }
                self.export_changed();
                self.plugin.evict(&[key]).unwrap();
                self.plugin.import(&snapshot_of(&self.stored, Some(key))).unwrap();
            }
            Step::Restore => {
                self.export_changed();
                self.plugin = KeyedHarness::restore("null", &snapshot_of(&self.stored, None)).unwrap();
            }
        }
    }

    fn export_changed(&mut self) {
        let entries = self.plugin.snapshot_in_chunks(Scope::Changed, 8).unwrap().entries();
        let mut places = BTreeSet::new();
        for entry in &entries {
            assert!(self.touched.contains(&entry.key), "{entry:?} did not change");
            assert!(places.insert((&entry.state, &entry.key, &entry.subkey)), "{entry:?} is there twice");
        }
        fold(&mut self.stored, &entries);
        assert_eq!(self.stored, stored_by(&self.model));
        self.touched.clear();
        assert_eq!(self.plugin.snapshot(Scope::Changed).unwrap().entries(), []);
    }

    fn check_all(&mut self) {
        let entries = self.plugin.snapshot_in_chunks(Scope::All, 8).unwrap().entries();
        assert!(entries.iter().all(|entry| entry.value.is_some()), "an export of all has no removals");
        let mut stored = Stored::new();
        fold(&mut stored, &entries);
        assert_eq!(stored, stored_by(&self.model));
        assert_eq!(stored.len(), entries.len(), "each entry once");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn state_is_what_the_model_says(steps in prop::collection::vec(steps(), 1..60)) {
        let plugin = KeyedHarness::open("null").unwrap();
        let mut trio = Trio { plugin, stored: Stored::new(), model: Model::new(), touched: BTreeSet::new() };
        for step in &steps {
            trio.step(step);
        }
        trio.check_all();
        trio.export_changed();
        trio.check_all();
    }
}
