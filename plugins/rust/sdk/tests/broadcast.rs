//! Broadcast state: written by broadcast inputs, read everywhere, the same after a restore.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use waterwheel_plugin::testing::{Input, KeyedHarness, Scope, Snapshot};
use waterwheel_plugin::{
    BroadcastState, Clock, Declare, Environment, Failure, KeyedOutput, KeyedPlugin, KeyedState, NoConfig, Record, Timer, export_keyed, fail,
};

/// Multiplies numbers by the factor of their name; rules are `NAME FACTOR`, or `NAME` to remove it.
struct Factors {
    factors: BroadcastState<String, i64>,
    seen: KeyedState<u64>,
}

impl KeyedPlugin for Factors {
    type Config = NoConfig;
    type States = Self;
    const INPUTS: &'static [&'static str] = &["numbers", "rules"];
    const BROADCAST_INPUTS: &'static [&'static str] = &["rules"];

    fn declare(states: &mut Declare) -> Self {
        Self { factors: states.broadcast("factors"), seen: states.value("seen") }
    }

    fn open(_: NoConfig, states: Self, _: &Environment) -> Result<Self, Failure> {
        Ok(states)
    }

    fn process(&mut self, record: &Record<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        let text = std::str::from_utf8(record.value().unwrap_or_default())?;
        if record.input() == 1 {
            match text.split_once(' ') {
                Some(("timer", _)) => out.set_timer(Clock::Event, 1),
                Some(("keyed", _)) => self.seen.update(|seen| *seen += 1),
                Some(("fail", name)) => {
                    self.factors.insert(name, 13)?;
                    return Err(fail("asked to"));
                }
                Some((name, factor)) => self.factors.insert(name, factor.parse()?)?,
                None => drop(self.factors.remove(text)?),
            }
            return Ok(());
        }
        if text == "write" {
            self.seen.update(|seen| *seen += 1);
            self.factors.insert("x", 1)?;
        }
        let factor = self.factors.get(text).map_or(1, |factor| *factor);
        out.emit(&format!("{text} {factor} {}", self.factors.len()));
        out.set_timer(Clock::Event, 100);
        Ok(())
    }

    fn on_timer(&mut self, _: &Timer<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        let mut all = String::new();
        self.factors.for_each(|name, factor| all += &format!("{name}={factor} "));
        out.emit(&all);
        Ok(())
    }
}

export_keyed!(Factors);

fn rules(plugin: &mut KeyedHarness<Factors>, rules: &[&str]) -> Result<(), String> {
    let rules: Vec<Input> = rules.iter().map(|rule| Input::value(rule).key("of the rule")).collect();
    plugin.process(1, &rules)
}

fn text(plugin: &mut KeyedHarness<Factors>) -> String {
    plugin.take_output().iter().map(|record| record.text().to_owned()).collect::<Vec<_>>().join("; ")
}

#[test]
fn what_a_broadcast_input_writes_every_key_and_timer_reads() {
    let mut plugin = KeyedHarness::<Factors>::open("null").unwrap();
    rules(&mut plugin, &["a 2", "b 3", "fail c", "a 4"]).unwrap();
    plugin.feed("k", "a").unwrap();
    plugin.feed("", "b").unwrap();
    assert_eq!(text(&mut plugin), "a 4 2; b 3 2");
    rules(&mut plugin, &["b"]).unwrap();
    plugin.advance_watermark(100).unwrap();
    assert_eq!(text(&mut plugin), "a=4 ; a=4 ");
    assert_eq!(plugin.take_failures()[0].reason, "asked to");
}

#[test]
fn a_write_from_a_keyed_record_fails_it_and_leaves_nothing() {
    let mut plugin = KeyedHarness::<Factors>::open("null").unwrap();
    plugin.feed("k", "write").unwrap();
    let reason = plugin.take_failures()[0].reason.clone();
    assert!(reason.starts_with("the broadcast state `factors` can only be written while a record of a broadcast input"), "{reason}");
    assert_eq!(plugin.snapshot(Scope::All).unwrap().entries(), []);
}

#[test]
fn a_timer_from_a_broadcast_record_fails_the_batch() {
    let mut plugin = KeyedHarness::<Factors>::open("null").unwrap();
    let error = rules(&mut plugin, &["timer now"]).unwrap_err();
    assert!(error.starts_with("the plugin sets a timer where there is no key"), "{error}");
}

#[test]
#[should_panic(expected = "keyed state cannot be used while a record of a broadcast input is processed")]
fn keyed_state_has_no_key_in_a_broadcast_record() {
    let _ = rules(&mut KeyedHarness::<Factors>::open("null").unwrap(), &["keyed state"]);
}

#[test]
fn it_is_exported_as_changes_restored_and_never_evicted() {
    let mut plugin = KeyedHarness::<Factors>::open("null").unwrap();
    rules(&mut plugin, &["a 2", "b 3"]).unwrap();
    let mut stored = plugin.snapshot(Scope::Changed).unwrap();
    let entry = stored.entries().remove(0);
    assert_eq!((entry.key.as_slice(), entry.subkey.as_deref()), (&b""[..], Some(&b"\xa1a"[..])));
    rules(&mut plugin, &["b", "c 5"]).unwrap();
    // A host evicts keys, also an empty one.
    plugin.evict(&[""]).unwrap();
    let changes = plugin.snapshot(Scope::Changed).unwrap();
    assert_eq!(changes.entries().len(), 2);
    stored.append(changes);
    let mut restored = KeyedHarness::<Factors>::restore("null", &stored).unwrap();
    restored.feed("k", "c").unwrap();
    assert_eq!(text(&mut restored), "c 5 2");
    assert_eq!(restored.snapshot(Scope::Changed).unwrap().entries(), []);
}

#[test]
fn entries_of_a_key_are_refused() {
    let keyed = Snapshot::default().with_map_entry("factors", 1, "k", "a", &1_i64);
    let error = KeyedHarness::<Factors>::restore("null", &keyed).unwrap_err();
    assert_eq!(error, "state `factors`, key \"k\": broadcast state has no keys, and there is one");
}

#[test]
fn the_description_says_so() {
    let description = KeyedHarness::<Factors>::describe();
    assert!(description.contains(r#"{"name":"factors","version":1,"kind":"broadcast"}"#), "{description}");
    assert!(description.contains(r#""broadcast_inputs":["rules"]"#), "{description}");
}
