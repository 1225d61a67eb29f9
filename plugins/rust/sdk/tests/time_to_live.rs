//! Time to live: what is expired is never returned and leaves nothing behind, timers stay few.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use serde::Deserialize;
use waterwheel_plugin::testing::{Input, KeyedHarness, Scope, Snapshot};
use waterwheel_plugin::{
    Clock, Declare, Environment, Failure, KeyedOutput, KeyedPlugin, KeyedState, MapState, Record, TimeToLive, export_keyed, fail,
};

/// Does what a record asks for, to a value and a map that live for 100 ms, and emits what they then are.
struct Lives {
    value: KeyedState<u64>,
    map: MapState<u8, u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Config {
    without: bool,
    event_time: bool,
    on_read: bool,
}

impl KeyedPlugin for Lives {
    type Config = Config;
    type States = Self;

    fn declare(states: &mut Declare) -> Self {
        Self { value: states.value("value"), map: states.map("map") }
    }

    fn open(config: Config, states: Self, _: &Environment) -> Result<Self, Failure> {
        let mut ttl = TimeToLive::new(Duration::from_millis(100));
        if config.event_time {
            ttl = ttl.event_time();
        }
        if config.on_read {
            ttl = ttl.refresh_on_read();
        }
        match config.without {
            true => Ok(states),
            false => Ok(Self { value: states.value.time_to_live(ttl), map: states.map.time_to_live(ttl) }),
        }
    }

    fn process(&mut self, record: &Record<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        for write in std::str::from_utf8(record.value().unwrap_or_default())?.split_whitespace() {
            match write.split_once('.').map(|(verb, subkey)| (verb, subkey.parse::<u8>())).unwrap_or((write, Ok(0))) {
                ("set", _) => self.value.set(1),
                ("add", _) => self.value.update(|value| *value += 1),
                ("remove", _) => self.value.remove(),
                ("bump", subkey) => self.map.update(&subkey?, |value| *value += 1),
                ("delete", subkey) => drop(self.map.remove(&subkey?)),
                ("fail", _) => return Err(fail("asked to")),
                _ => {}
            }
        }
        let value = self.value.get().map(|value| *value);
        out.emit(&format!("{value:?} {:?} {}", self.map.to_vec(), self.map.len()));
        Ok(())
    }
}

export_keyed!(Lives);

fn feed(plugin: &mut KeyedHarness<Lives>, key: &str, writes: &str) -> String {
    plugin.feed(key, writes).unwrap();
    plugin.take_output().pop().map_or_else(String::new, |record| record.text().to_owned())
}

#[test]
fn what_is_expired_is_not_there_and_a_write_begins_anew() {
    let mut plugin = KeyedHarness::<Lives>::open("null").unwrap();
    assert_eq!(feed(&mut plugin, "a", "add bump.1"), "Some(1) [(1, 1)] 1");
    plugin.advance_processing_time(60).unwrap();
    assert_eq!(feed(&mut plugin, "a", "add bump.2"), "Some(2) [(1, 1), (2, 1)] 2");
    plugin.advance_processing_time(120).unwrap();
    assert_eq!(feed(&mut plugin, "a", ""), "Some(2) [(2, 1)] 1", "reading is not writing");
    plugin.advance_processing_time(160).unwrap();
    assert_eq!(feed(&mut plugin, "a", ""), "None [] 0");
    assert_eq!(feed(&mut plugin, "a", "add bump.1"), "Some(1) [(1, 1)] 1");
}

#[test]
fn a_million_expired_keys_leave_nothing() {
    let mut plugin = KeyedHarness::<Lives>::open("null").unwrap();
    let mut stored = 0;
    for batch in 0..1000 {
        // A map's entries, too, for one in ten.
        let writes = if batch % 10 == 0 { "bump.3" } else { "add" };
        let inputs: Vec<Input> = (0..1000).map(|key| Input::value(writes).key(format!("{batch} {key}"))).collect();
        plugin.process(0, &inputs).unwrap();
        plugin.take_output();
        if batch % 2 == 0 {
            stored += plugin.snapshot_in_chunks(Scope::Changed, 1 << 20).unwrap().entries().len();
        }
        plugin.advance_processing_time(batch).unwrap();
        if batch % 100 == 0 {
            assert!(plugin.timers().len() <= 101_000);
        }
    }
    plugin.advance_processing_time(1_100).unwrap();
    assert_eq!(plugin.timers().len(), 0);
    assert_eq!(plugin.snapshot(Scope::All).unwrap().entries().len(), 0);
    assert!(plugin.snapshot_in_chunks(Scope::Changed, 1 << 20).unwrap().entries().iter().all(|entry| entry.value.is_none()));
    assert!(stored > 900_000, "{stored}");
}

#[test]
fn a_key_that_is_written_again_and_again_has_one_timer_a_state() {
    for (config, writes) in [("null", "add bump.1 bump.2"), ("null", "set remove bump.1 delete.1"), (r#"{"on_read": true}"#, "")] {
        let mut plugin = KeyedHarness::<Lives>::open(config).unwrap();
        feed(&mut plugin, "a", "add bump.1");
        for time in 1..5_000 {
            plugin.advance_processing_time(time).unwrap();
            feed(&mut plugin, "a", writes);
            assert!(plugin.timers().len() <= 2, "{:?}", plugin.timers());
            if time % 7 == 0 {
                plugin.snapshot(Scope::Changed).unwrap();
            }
        }
        let set: usize = if writes.contains("remove") { 0 } else { 2 };
        assert_eq!(plugin.timers().len(), set);
        plugin.advance_processing_time(5_300).unwrap();
        assert_eq!((plugin.timers().len(), plugin.snapshot(Scope::All).unwrap().entries().len()), (0, 0));
    }
}

#[test]
fn reading_lengthens_a_life_where_it_is_to() {
    let mut plugin = KeyedHarness::<Lives>::open(r#"{"on_read": true}"#).unwrap();
    feed(&mut plugin, "a", "add bump.1");
    let mut stored = plugin.snapshot(Scope::Changed).unwrap();
    plugin.advance_processing_time(90).unwrap();
    assert_eq!(feed(&mut plugin, "a", ""), "Some(1) [(1, 1)] 1");
    stored.append(plugin.snapshot(Scope::Changed).unwrap());
    for plugin in [&mut plugin, &mut KeyedHarness::restore(r#"{"on_read": true}"#, &stored).unwrap()] {
        plugin.advance_processing_time(150).unwrap();
        assert_eq!(plugin.snapshot(Scope::All).unwrap().entries().len(), 2);
        plugin.advance_processing_time(400).unwrap();
        assert_eq!(plugin.snapshot(Scope::All).unwrap().entries().len(), 0);
    }
}

#[test]
fn event_time_counts_from_the_records() {
    let mut plugin = KeyedHarness::<Lives>::open(r#"{"event_time": true}"#).unwrap();
    plugin.process(0, &[Input::value("add bump.1").key("a").timestamp(-1_000)]).unwrap();
    plugin.advance_processing_time(1_000_000).unwrap();
    plugin.advance_watermark(-901).unwrap();
    assert_eq!(feed(&mut plugin, "a", ""), "Some(1) [(1, 1)] 1");
    plugin.advance_watermark(-900).unwrap();
    assert_eq!(feed(&mut plugin, "a", ""), "None [] 0");
    assert!(plugin.timers().is_empty());
}

#[test]
fn what_is_left_of_a_life_survives_a_restore() {
    let mut plugin = KeyedHarness::<Lives>::open("null").unwrap();
    feed(&mut plugin, "a", "add bump.1");
    plugin.advance_processing_time(70).unwrap();
    feed(&mut plugin, "b", "add bump.1");
    feed(&mut plugin, "a", "bump.2");
    let snapshot = plugin.snapshot(Scope::All).unwrap();
    assert_eq!(snapshot.value::<u64>("value", "a"), Some(1));
    let mut restored = KeyedHarness::<Lives>::restore("null", &snapshot).unwrap();
    restored.advance_processing_time(100).unwrap();
    assert_eq!(feed(&mut restored, "a", ""), "None [(2, 1)] 1");
    assert_eq!(feed(&mut restored, "b", "bump.1"), "Some(1) [(1, 2)] 1");
    assert!(restored.timers().len() <= 4, "{:?}", restored.timers());
    restored.advance_processing_time(300).unwrap();
    assert_eq!((restored.timers().len(), restored.snapshot(Scope::All).unwrap().entries().len()), (0, 0));
}

#[test]
fn a_state_may_get_a_time_to_live_later_and_lose_it_again() {
    let old = Snapshot::default().with_value("value", 1, "a", &7_u64).with_map_entry("map", 1, "a", &1_u8, &7_u64);
    let mut plugin = KeyedHarness::<Lives>::restore("null", &old).unwrap();
    plugin.advance_processing_time(1_000_000).unwrap();
    assert_eq!(feed(&mut plugin, "b", ""), "None [] 0");
    assert_eq!(plugin.timers().len(), 2, "the lives began with the first call");
    let new = plugin.snapshot(Scope::Changed).unwrap();
    assert_eq!(new.entries().len(), 2, "and are in the next checkpoint");
    let mut without = KeyedHarness::<Lives>::restore(r#"{"without": true}"#, &new).unwrap();
    without.advance_processing_time(2_000_000).unwrap();
    assert_eq!(feed(&mut without, "a", ""), "Some(7) [(1, 7)] 1");
    plugin.advance_processing_time(1_000_100).unwrap();
    assert_eq!((plugin.timers().len(), plugin.snapshot(Scope::All).unwrap().entries().len()), (0, 0));
}

#[derive(Debug, Clone)]
enum Step {
    Record(&'static str, Vec<(&'static str, u8)>),
    Advance(i64),
    Changed,
    Restore,
}

fn steps() -> impl Strategy<Value = Step> {
    let key = prop::sample::select(vec!["a", "b"]);
    let verb = prop::sample::select(vec!["set", "add", "remove", "bump", "bump", "delete", "fail"]);
    prop_oneof![
        8 => (key, prop::collection::vec((verb, 0..3_u8), 0..4)).prop_map(|(key, writes)| Step::Record(key, writes)),
        4 => (0..80_i64).prop_map(Step::Advance),
        1 => Just(Step::Changed),
        1 => Just(Step::Restore),
    ]
}

type Life = BTreeMap<Option<u8>, (u64, i64)>;

/// What a record makes of a key's state, the plain way. None: it fails.
fn apply(before: &Life, writes: &[(&str, u8)], now: i64, on_read: bool) -> Option<(Life, String)> {
    let mut life: Life = before.clone().into_iter().filter(|(_, (_, written))| written + 100 > now).collect();
    for (verb, subkey) in writes {
        match *verb {
            "set" => drop(life.insert(None, (1, now))),
            "add" => *life.entry(None).or_insert((0, now)) = (life.get(&None).map_or(0, |life| life.0) + 1, now),
            "remove" => drop(life.remove(&None)),
            "bump" => *life.entry(Some(*subkey)).or_insert((0, now)) = (life.get(&Some(*subkey)).map_or(0, |life| life.0) + 1, now),
            "delete" => drop(life.remove(&Some(*subkey))),
            _ => return None,
        }
    }
    if on_read {
        life.values_mut().for_each(|life| life.1 = now);
    }
    let map: Vec<_> = life.iter().filter_map(|(subkey, (value, _))| subkey.map(|subkey| (subkey, *value))).collect();
    let text = format!("{:?} {map:?} {}", life.get(&None).map(|life| life.0), map.len());
    Some((life, text))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lives_are_what_a_plain_model_says(steps in prop::collection::vec(steps(), 1..80), on_read: bool) {
        let config = format!(r#"{{"on_read": {on_read}}}"#);
        let mut plugin = KeyedHarness::<Lives>::open(&config).unwrap();
        let mut stored = Snapshot::default();
        let (mut now, mut model) = (0, BTreeMap::<&str, Life>::new());
        for step in &steps {
            match step {
                Step::Record(key, writes) => {
                    let text: Vec<String> = writes.iter().map(|(verb, subkey)| format!("{verb}.{subkey}")).collect();
                    let found = feed(&mut plugin, key, &text.join(" "));
                    let life = model.entry(key).or_default();
                    match apply(life, writes, now, on_read) {
                        Some((new, expected)) => {
                            prop_assert_eq!(found, expected);
                            *life = new;
                        }
                        None => prop_assert_eq!(found, ""),
                    }
                }
                Step::Advance(by) => {
                    now += by;
                    plugin.advance_processing_time(now).unwrap();
                }
                Step::Changed => stored.append(plugin.snapshot(Scope::Changed).unwrap()),
                Step::Restore => {
                    stored.append(plugin.snapshot(Scope::Changed).unwrap());
                    plugin = KeyedHarness::restore(&config, &stored).unwrap();
                }
            }
            prop_assert!(plugin.timers().iter().all(|(clock, ..)| *clock == Clock::Processing));
            prop_assert!(plugin.timers().len() <= 8, "{:?}", plugin.timers());
        }
        plugin.advance_processing_time(now + 300).unwrap();
        prop_assert_eq!(plugin.timers().len(), 0);
        prop_assert_eq!(plugin.snapshot(Scope::All).unwrap().entries().len(), 0);
    }
}
