//! Passes on the first record of each key, or of each value at a place of JSON records of a key, and drops those that come again within a time to
//! live: `{"field": "/order/id", "time-to-live-ms": 3600000}`.
//!
//! Without `field` the key alone counts. A value is compared as it is written. The time is that of the day, or event time with `"clock": "event"`, from the
//! first record on: those that are dropped do not lengthen it. The counter `duplicates` tells how many were dropped.

use std::time::Duration;

use serde::Deserialize;
use waterwheel_plugin::json::Pointer;
use waterwheel_plugin::{
    Declare, Environment, Failure, KeyedOutput, KeyedPlugin, KeyedState, MapState, Record, TimeToLive, export_keyed, fail,
};

/// The plugin.
#[derive(Debug)]
pub struct Dedup {
    field: Option<Pointer>,
    seen: States,
}

/// What was seen: keys, or values of keys.
#[derive(Debug)]
pub struct States {
    keys: KeyedState<bool>,
    values: MapState<String, bool>,
}

/// What the job specification says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// Where in the value the place is that tells records apart.
    field: Option<Pointer>,
    /// How long a record is remembered, in milliseconds.
    time_to_live_ms: u64,
    #[serde(default)]
    clock: ClockName,
}

/// What the time to live is measured by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ClockName {
    #[default]
    Processing,
    Event,
}

impl KeyedPlugin for Dedup {
    type Config = Config;
    type States = States;

    fn declare(states: &mut Declare) -> States {
        States { keys: states.value("keys"), values: states.map("values") }
    }

    fn open(config: Config, states: States, _environment: &Environment) -> Result<Self, Failure> {
        if config.time_to_live_ms == 0 {
            return Err(fail("config.time-to-live-ms: must be 1 or more"));
        }
        let ttl = TimeToLive::new(Duration::from_millis(config.time_to_live_ms));
        let ttl = if config.clock == ClockName::Event { ttl.event_time() } else { ttl };
        let seen = States { keys: states.keys.time_to_live(ttl), values: states.values.time_to_live(ttl) };
        Ok(Self { field: config.field, seen })
    }

    fn process(&mut self, record: &Record<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        let is_new = match &self.field {
            None => {
                let is_new = !self.seen.keys.is_set();
                if is_new {
                    self.seen.keys.set(true);
                }
                is_new
            }
            Some(field) => {
                let value = record.value().ok_or_else(|| fail(format!("a tombstone has nothing at {field}")))?;
                let value = field.find(value)?.ok_or_else(|| fail(format!("there is nothing at {field}")))?;
                let is_new = !self.seen.values.contains(value);
                if is_new {
                    self.seen.values.insert(value, true);
                }
                is_new
            }
        };
        if is_new {
            out.emit(record);
        } else {
            out.count("duplicates", 1);
        }
        Ok(())
    }
}

export_keyed!(Dedup);

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use waterwheel_plugin::testing::{Input, KeyedHarness, Scope};

    use super::Dedup;

    fn feed(plugin: &mut KeyedHarness<Dedup>, key: &str, at: i64, value: &str) -> usize {
        plugin.process(0, &[Input::value(value).key(key).timestamp(at)]).unwrap();
        plugin.take_output().len()
    }

    #[test]
    fn a_key_comes_again_only_after_its_time() {
        let config = r#"{"time-to-live-ms": 100}"#;
        let mut plugin = KeyedHarness::<Dedup>::open(config).unwrap();
        assert_eq!([feed(&mut plugin, "a", 0, "x"), feed(&mut plugin, "a", 0, "y"), feed(&mut plugin, "b", 0, "x")], [1, 0, 1]);
        plugin.advance_processing_time(99).unwrap();
        let mut plugin = KeyedHarness::<Dedup>::restore(config, &plugin.snapshot(Scope::All).unwrap()).unwrap();
        assert_eq!(feed(&mut plugin, "a", 0, "x"), 0);
        assert_eq!(plugin.counter("duplicates"), 1);
        plugin.advance_processing_time(100).unwrap();
        assert_eq!(plugin.snapshot(Scope::All).unwrap().entries(), []);
        assert_eq!(feed(&mut plugin, "a", 0, "x"), 1);
    }

    #[test]
    fn values_at_a_place_are_told_apart_within_a_key() {
        let mut plugin = KeyedHarness::<Dedup>::open(r#"{"field": "/id", "time-to-live-ms": 100, "clock": "event"}"#).unwrap();
        let (one, two) = (r#"{"id": 1, "x": 1}"#, r#"{"id": "1"}"#);
        assert_eq!([feed(&mut plugin, "a", 0, one), feed(&mut plugin, "a", 1, two), feed(&mut plugin, "b", 0, one)], [1, 1, 1]);
        assert_eq!([feed(&mut plugin, "a", 50, one), feed(&mut plugin, "a", 50, two)], [0, 0]);
        plugin.advance_watermark(100).unwrap();
        assert_eq!([feed(&mut plugin, "a", 101, one), feed(&mut plugin, "a", 101, two)], [1, 0]);
        plugin.finish().unwrap();
        assert_eq!((plugin.timers().len(), plugin.snapshot(Scope::All).unwrap().entries().len()), (0, 0));
        feed(&mut plugin, "a", 0, "{}");
        assert_eq!(plugin.take_failures()[0].reason, "there is nothing at /id");
    }

    #[test]
    fn a_wrong_configuration_is_one_clear_sentence() {
        let error = |config| KeyedHarness::<Dedup>::open(config).unwrap_err();
        assert_eq!(error(r#"{"time-to-live-ms": 0}"#), "config.time-to-live-ms: must be 1 or more");
        assert!(error("null").starts_with("config: missing field `time-to-live-ms`"));
        assert!(error(r#"{"time-to-live-ms": 1, "key": "/a"}"#).starts_with("config.key: unknown field `key`, expected one of `field`"));
        assert!(error(r#"{"time-to-live-ms": 1, "field": "id"}"#).starts_with("config.field: `id` is not a JSON pointer"));
    }
}
