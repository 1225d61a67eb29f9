//! Counts the records of each key in windows of event time that follow one another, by hand: a map of windows and an event-time timer at the last
//! millisecond of each. When the watermark has passed it the count is emitted as JSON, `{"key":…,"start":…,"count":…}`, and forgotten.
//!
//! The SDK's `Windows` do this, and more, by themselves; the plugin `window-aggregate` does it without code.
//!
//! A record that comes after its window was emitted begins it anew, and is emitted at once: `late-records: drop` leaves it out.

use serde::Deserialize;
use waterwheel_plugin::{Clock, Declare, Environment, Failure, KeyedOutput, KeyedPlugin, MapState, Record, Timer, export_keyed, fail};

/// How it is opened.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// How long a window is, in milliseconds. Windows begin at multiples of it.
    size_ms: i64,
}

/// The plugin.
#[derive(Debug)]
pub struct TumblingCount {
    size: i64,
    /// By the start of the window.
    counts: MapState<i64, u64>,
}

impl KeyedPlugin for TumblingCount {
    type Config = Config;
    type States = MapState<i64, u64>;

    fn declare(states: &mut Declare) -> Self::States {
        states.map("counts")
    }

    fn open(config: Config, counts: Self::States, _environment: &Environment) -> Result<Self, Failure> {
        if config.size_ms < 1 {
            return Err(fail("size-ms must be 1 or more"));
        }
        Ok(Self { size: config.size_ms, counts })
    }

    fn process(&mut self, record: &Record<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        let start = record.timestamp() - record.timestamp().rem_euclid(self.size);
        self.counts.update(&start, |count| *count += 1);
        out.set_timer(Clock::Event, start + self.size - 1);
        Ok(())
    }

    fn on_timer(&mut self, timer: &Timer<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        let start = timer.time() - self.size + 1;
        let count = self.counts.get(&start).map_or(0, |count| *count);
        self.counts.remove(&start);
        let key = String::from_utf8_lossy(timer.key());
        out.emit(&serde_json::json!({"key": key, "start": start, "count": count}).to_string());
        Ok(())
    }
}

export_keyed!(TumblingCount);

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::TumblingCount;
    use waterwheel_plugin::testing::{Input, KeyedHarness};

    #[test]
    fn a_window_is_emitted_when_the_watermark_has_passed_it() {
        let mut plugin = KeyedHarness::<TumblingCount>::open(r#"{"size-ms": 10}"#).unwrap();
        let records = [3, 19, -1, 9].map(|timestamp| Input::value("x").key("a").timestamp(timestamp));
        plugin.process(0, &records).unwrap();
        let mut values = |watermark| {
            plugin.advance_watermark(watermark).unwrap();
            plugin.take_output().iter().map(|record| record.text().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(values(8), [r#"{"key":"a","start":-10,"count":1}"#]);
        assert_eq!(values(9), [r#"{"key":"a","start":0,"count":2}"#]);
        assert_eq!(values(1000), [r#"{"key":"a","start":10,"count":1}"#]);
    }

    #[test]
    fn a_window_without_length_is_refused() {
        assert!(KeyedHarness::<TumblingCount>::open(r#"{"size-ms": 0}"#).is_err());
    }
}
