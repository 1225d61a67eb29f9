//! Keyed plugins: versions and migration, import, eviction, timers, the end of the input, mistakes.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use serde::{Deserialize, Serialize};
use waterwheel_plugin::testing::{Input, KeyedHarness, Scope, Snapshot};
use waterwheel_plugin::{
    Clock, Declare, Emit, Environment, Failure, KeyedOutput, KeyedPlugin, KeyedState, MapState, NoConfig, Output, RESERVED_TAGS, Record,
    Timer, decode, export_keyed, fail,
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Total {
    count: u64,
    #[serde(default)]
    note: String,
}

/// Version 2 of a counter: version 1 had the bare count. A value names what to do besides counting.
struct Counter {
    totals: KeyedState<Total>,
    words: MapState<String, u64>,
}

impl KeyedPlugin for Counter {
    type Config = NoConfig;
    type States = Self;
    const INPUTS: &'static [&'static str] = &["left", "right"];
    const SIDE_OUTPUTS: &'static [&'static str] = &["late"];

    fn declare(states: &mut Declare) -> Self {
        let totals = states.value_with_migration("totals", 2, |version, bytes| match version {
            1 => match decode(bytes)? {
                13 => Err("13 is an unlucky count".to_owned()),
                count => Ok(Total { count, note: String::new() }),
            },
            _ => Err("nobody knows that version".to_owned()),
        });
        Self { totals, words: states.map("words") }
    }

    fn open(_: NoConfig, states: Self, _: &Environment) -> Result<Self, Failure> {
        Ok(states)
    }

    fn process(&mut self, record: &Record<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        let text = String::from_utf8(record.value().unwrap_or_default().to_vec())?;
        self.totals.update(|total| total.count += 1);
        self.words.update(text.as_str(), |count| *count += 1);
        let (verb, argument) = text.split_once(' ').unwrap_or((&text, "0"));
        match verb {
            "at" => out.set_timer(Clock::Processing, argument.parse()?),
            "event" => out.set_tagged_timer(Clock::Event, argument.parse()?, 7),
            "not-at" => out.delete_timer(Clock::Processing, argument.parse()?),
            "at-and-fail" => {
                out.set_timer(Clock::Processing, argument.parse()?);
                return Err(fail("no"));
            }
            "reserved" => out.set_tagged_timer(Clock::Event, 0, RESERVED_TAGS),
            _ => {}
        }
        let count = self.totals.get().map_or(0, |total| total.count);
        out.emit(&format!("{} {count}", record.input()));
        Ok(())
    }

    fn on_timer(&mut self, timer: &Timer<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        out.emit(Emit::value(&format!("{:?} {} {}", timer.clock(), timer.time(), timer.tag())).to("late"));
        match (timer.clock(), timer.time()) {
            (Clock::Processing, 666) => {
                self.totals.remove();
                Err(fail("a bad time"))
            }
            (Clock::Processing, time) if time < 3 => {
                out.set_timer(Clock::Processing, time + 1);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn finish(&mut self, out: &mut Output<'_>) -> Result<(), Failure> {
        out.emit("the end");
        out.emit(Emit::value("with all").key("k").timestamp(5));
        Ok(())
    }
}

export_keyed!(Counter);

fn open() -> KeyedHarness<Counter> {
    KeyedHarness::open("null").unwrap()
}

fn refused(snapshot: &Snapshot) -> String {
    KeyedHarness::<Counter>::restore("null", snapshot).unwrap_err()
}

#[test]
fn older_values_are_migrated() {
    let old = Snapshot::default().with_value("totals", 1, "a", &41_u64);
    let mut plugin = KeyedHarness::<Counter>::restore("null", &old).unwrap();
    plugin.feed("a", "x").unwrap();
    assert_eq!(plugin.take_output()[0].text(), "0 42");
    let new = plugin.snapshot(Scope::All).unwrap();
    assert_eq!(new.value::<Total>("totals", "a"), Some(Total { count: 42, note: String::new() }));
    assert!(new.entries().iter().all(|entry| entry.version == if entry.state == "totals" { 2 } else { 1 }));
}

#[test]
fn a_field_with_a_default_needs_no_version() {
    #[derive(Serialize)]
    struct Shorter {
        count: u64,
    }
    let old = Snapshot::default().with_value("totals", 2, "a", &Shorter { count: 4 });
    let mut plugin = KeyedHarness::<Counter>::restore("null", &old).unwrap();
    plugin.feed("a", "x").unwrap();
    assert_eq!(plugin.take_output()[0].text(), "0 5");
}

#[test]
fn what_cannot_be_read_is_refused_with_a_sentence() {
    let with = |version, value: &str| Snapshot::default().with_value("totals", version, "a key", &value);
    assert_eq!(
        refused(&with(3, "x")),
        "state `totals`: the values are of version 3, and this plugin knows version 2; restore with a plugin at least as new as the one that wrote them"
    );
    let unlucky = Snapshot::default().with_value("totals", 1, "a key", &13_u64);
    assert_eq!(
        refused(&unlucky),
        "state `totals`, key \"a key\": the value cannot be migrated from version 1 to 2: 13 is an unlucky count"
    );
    assert!(refused(&with(2, "x")).starts_with("state `totals`, key \"a key\": the value cannot be read as version 2: "));
    let old_words = Snapshot::default().with_map_entry("words", 0, "a", "w", &1_u64);
    assert_eq!(refused(&old_words), "state `words`: the values are of version 0, this plugin is at version 1 and has no migration from it");
    let wrong_subkey = Snapshot::default().with_map_entry("words", 1, "a", &5_u64, &1_u64);
    assert!(refused(&wrong_subkey).contains("the subkey \"\\x05\" cannot be read"));
    let unknown = Snapshot::default().with_value("others", 1, "a", &1_u64);
    assert_eq!(refused(&unknown), "the plugin has no state `others`; it declares [\"totals\", \"words\"]");
    let kinds =
        (Snapshot::default().with_value("words", 1, "a", &1_u64), Snapshot::default().with_map_entry("totals", 2, "a", "w", &1_u64));
    assert!(refused(&kinds.0).contains("have no subkeys"));
    assert!(refused(&kinds.1).contains("have subkeys"));
}

#[test]
fn base_and_changes_together_restore_what_was() {
    let mut plugin = open();
    for key in ["a", "b", "c"] {
        plugin.feed(key, "x").unwrap();
    }
    let mut chain = plugin.snapshot(Scope::Changed).unwrap();
    plugin.feed("a", "y").unwrap();
    let changed = plugin.snapshot(Scope::Changed).unwrap();
    assert!(changed.entries().iter().all(|entry| entry.key == b"a"));
    chain.append(changed);
    let mut restored = KeyedHarness::<Counter>::restore("null", &chain).unwrap();
    restored.feed("a", "z").unwrap();
    restored.feed("c", "z").unwrap();
    let texts: Vec<_> = restored.take_output().iter().map(|record| record.text().to_owned()).collect();
    assert_eq!(texts, ["0 3", "0 2"]);
}

#[test]
fn an_export_of_all_leaves_the_changes_alone() {
    let mut plugin = open();
    plugin.feed("a", "x").unwrap();
    assert_eq!(plugin.snapshot(Scope::All).unwrap().entries().len(), 2);
    assert_eq!(plugin.snapshot(Scope::Changed).unwrap().entries().len(), 2);
    assert_eq!(plugin.snapshot(Scope::Changed).unwrap().entries().len(), 0);
    assert_eq!(plugin.snapshot(Scope::All).unwrap().entries().len(), 2);
}

#[test]
fn evicted_keys_come_back_with_an_import() {
    let mut plugin = open();
    plugin.feed("a", "x").unwrap();
    plugin.feed("b", "x").unwrap();
    let error = plugin.evict(&["b", "a"]).unwrap_err();
    assert_eq!(error, "state `totals`, key \"b\": it has changes that were not exported, so it cannot be evicted");
    let stored = plugin.snapshot(Scope::Changed).unwrap();
    plugin.evict(&["a", "b", "unknown"]).unwrap();
    assert_eq!(plugin.snapshot(Scope::All).unwrap().entries(), []);
    plugin.import(&stored).unwrap();
    plugin.feed("a", "x").unwrap();
    assert_eq!(plugin.take_output().last().unwrap().text(), "0 2");
    let error = plugin.import(&stored).unwrap_err();
    assert!(error.contains("key \"a\": it has changes that importing would undo"), "{error}");
}

#[test]
fn timers_fire_in_order_and_only_once() {
    let mut plugin = open();
    for (key, value) in
        [("a", "at 20"), ("b", "at 10"), ("b", "at 10"), ("a", "at 30"), ("a", "not-at 30"), ("c", "at-and-fail 15"), ("b", "event 5")]
    {
        plugin.feed(key, value).unwrap();
    }
    assert_eq!(plugin.timers().len(), 3);
    plugin.advance_processing_time(100).unwrap();
    plugin.advance_watermark(4).unwrap();
    plugin.advance_watermark(5).unwrap();
    let fired = plugin.take_side_output("late");
    let fired: Vec<_> = fired.iter().map(|record| (record.key_text(), record.text(), record.timestamp)).collect();
    assert_eq!(fired, [("b", "Processing 10 0", 10), ("a", "Processing 20 0", 20), ("b", "Event 5 7", 5)]);
    assert!(plugin.advance_watermark(4).is_err());
}

#[test]
fn a_timer_in_the_past_fires_at_once_and_may_set_another() {
    let mut plugin = open();
    plugin.advance_processing_time(2).unwrap();
    plugin.feed("a", "at 1").unwrap();
    assert_eq!(plugin.take_side_output("late").len(), 2);
    assert_eq!(plugin.timers(), [(Clock::Processing, 3, b"a".to_vec(), 0)]);
}

#[test]
fn a_timer_that_fails_leaves_nothing() {
    let mut plugin = open();
    plugin.feed("a", "at 666").unwrap();
    plugin.advance_processing_time(1000).unwrap();
    assert_eq!(plugin.take_side_output("late"), []);
    let failures = plugin.take_failures();
    assert_eq!((failures[0].key.as_deref(), failures[0].reason.as_str()), (Some(&b"a"[..]), "a bad time"));
    assert_eq!(plugin.snapshot(Scope::All).unwrap().value::<Total>("totals", "a").map(|total| total.count), Some(1));
}

#[test]
fn timers_are_in_snapshots() {
    let mut plugin = open();
    plugin.feed("a", "at 10").unwrap();
    let snapshot = plugin.snapshot(Scope::All).unwrap();
    let mut restored = KeyedHarness::<Counter>::restore("null", &snapshot).unwrap();
    restored.advance_processing_time(10).unwrap();
    assert_eq!(restored.take_side_output("late").len(), 1);
}

#[test]
fn inputs_are_told_apart_and_the_end_may_emit() {
    let mut plugin = open();
    plugin.process(1, &[Input::value("x").key("a")]).unwrap();
    plugin.advance_processing_time(77).unwrap();
    plugin.finish().unwrap();
    let output = plugin.take_output();
    assert_eq!(output[0].text(), "1 1");
    assert_eq!((output[1].text(), output[1].key.as_deref(), output[1].timestamp), ("the end", None, 77));
    assert_eq!((output[2].text(), output[2].key_text(), output[2].timestamp), ("with all", "k", 5));
}

#[test]
fn a_reserved_tag_fails_the_batch() {
    let error = open().feed("a", "reserved").unwrap_err();
    assert_eq!(error, "the plugin sets a timer with the tag 0xffff0000; tags from 0xffff0000 up are reserved");
}

#[test]
fn a_snapshot_may_be_restored_in_chunks_of_any_size() {
    let mut plugin = open();
    for key in 0..50 {
        plugin.feed(key.to_string(), "some text").unwrap();
    }
    for bytes in [1, 100, 1_000_000] {
        let snapshot = plugin.snapshot_in_chunks(Scope::All, bytes).unwrap();
        let mut restored = KeyedHarness::<Counter>::restore("null", &snapshot).unwrap();
        assert_eq!(restored.snapshot(Scope::All).unwrap().entries().len(), 100);
        assert_eq!(restored.snapshot(Scope::Changed).unwrap().entries().len(), 0, "what was imported is no change");
    }
}

#[test]
fn the_description_names_states_and_outputs() {
    let description = KeyedHarness::<Counter>::describe();
    assert!(
        description.contains(r#""states":[{"name":"totals","version":2,"kind":"value"},{"name":"words","version":1,"kind":"map"}]"#),
        "{description}"
    );
    assert!(description.contains(r#""inputs":["left","right"],"side_outputs":["late"]"#), "{description}");
}

/// Declares a state twice.
struct Twice;

impl KeyedPlugin for Twice {
    type Config = NoConfig;
    type States = (KeyedState<u64>, KeyedState<u64>);

    fn declare(states: &mut Declare) -> Self::States {
        (states.value("same"), states.value("same"))
    }

    fn open(_: NoConfig, _: Self::States, _: &Environment) -> Result<Self, Failure> {
        Ok(Self)
    }

    fn process(&mut self, _: &Record<'_>, _: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        Ok(())
    }
}

#[test]
fn a_state_that_is_declared_twice_is_refused() {
    let error = KeyedHarness::<Twice>::open("null").unwrap_err();
    assert_eq!(error, "the plugin declares the state `same` twice; names tell states apart");
}
