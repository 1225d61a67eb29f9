//! Finds a small amount that is followed by a large one of the same key within a minute, by hand: a value state that remembers the small one,
//! and an event-time timer that forgets it. Emits `{"key":"anna","small":0.5,"large":700}` with the large one's event time.
//!
//! The records of a key have to come in the order of time. Configuration: `small-below` (1) and `large-above` (500).

use std::io::Write;

use serde::Deserialize;
use waterwheel_plugin::decimal::Decimal;
use waterwheel_plugin::json::Pointer;
use waterwheel_plugin::{
    Clock, Declare, Emit, Environment, Failure, KeyedOutput, KeyedPlugin, KeyedState, Record, Timer, export_keyed, fail,
};

const MINUTE: i64 = 60_000;

/// The plugin.
#[derive(Debug)]
pub struct FraudPattern {
    amount: Pointer,
    config: Config,
    /// The last small amount and its time, for a minute.
    small: KeyedState<(Decimal, i64)>,
}

/// What the job specification may say.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Config {
    small_below: u32,
    large_above: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { small_below: 1, large_above: 500 }
    }
}

impl KeyedPlugin for FraudPattern {
    type Config = Config;
    type States = KeyedState<(Decimal, i64)>;

    fn declare(states: &mut Declare) -> Self::States {
        states.value("small")
    }

    fn open(config: Config, small: Self::States, _environment: &Environment) -> Result<Self, Failure> {
        Ok(Self { amount: "/amount".parse()?, config, small })
    }

    fn process(&mut self, record: &Record<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        let value = record.value().ok_or_else(|| fail("a tombstone has no amount"))?;
        let amount: Decimal = self.amount.find(value)?.ok_or_else(|| fail("there is no amount at /amount"))?.parse()?;
        if let Some((small, at)) = self.small.get().map(|small| *small) {
            out.delete_timer(Clock::Event, at + MINUTE);
            if amount > Decimal::from(self.config.large_above) && record.timestamp() <= at + MINUTE {
                let key = std::str::from_utf8(record.key().unwrap_or_default())?;
                out.emit_with(Emit::default(), |value| {
                    value.push(r#"{"key":"#);
                    serde_json::to_writer(&mut *value, key)?;
                    write!(value, r#","small":{small},"large":{amount}}}"#)
                })?;
            }
            self.small.remove();
        }
        if amount < Decimal::from(self.config.small_below) {
            self.small.set((amount, record.timestamp()));
            out.set_timer(Clock::Event, record.timestamp() + MINUTE);
        }
        Ok(())
    }

    fn on_timer(&mut self, _timer: &Timer<'_>, _out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        self.small.remove();
        Ok(())
    }
}

export_keyed!(FraudPattern);

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use waterwheel_plugin::testing::{Input, KeyedHarness, Scope};

    use super::FraudPattern;

    fn found(amounts: &[(i64, &str)]) -> usize {
        let mut plugin = KeyedHarness::<FraudPattern>::open("null").unwrap();
        for (at, amount) in amounts {
            let value = format!(r#"{{"amount": {amount}}}"#);
            plugin.process(0, &[Input::value(value).key("anna").timestamp(*at)]).unwrap();
            let snapshot = plugin.snapshot(Scope::All).unwrap();
            let found = plugin.take_output();
            plugin = KeyedHarness::restore("null", &snapshot).unwrap();
            plugin.advance_watermark(*at).unwrap();
            if let Some(found) = found.first() {
                assert!(found.text().starts_with(r#"{"key":"anna","small":0."#), "{}", found.text());
                return 1;
            }
        }
        plugin.finish().unwrap();
        assert_eq!((plugin.timers().len(), plugin.snapshot(Scope::All).unwrap().entries().len()), (0, 0));
        0
    }

    #[test]
    fn a_large_amount_right_after_a_small_one_within_a_minute_is_found() {
        assert_eq!(found(&[(0, "0.50"), (60_000, "500.01")]), 1);
        assert_eq!(found(&[(0, "0.9"), (1, "0.1"), (60_001, "501")]), 1);
        assert_eq!(found(&[(0, "0.50"), (60_001, "501")]), 0, "more than a minute later");
        assert_eq!(found(&[(0, "0.50"), (1, "20"), (2, "501")]), 0, "another one in between");
        assert_eq!(found(&[(0, "1"), (1, "501")]), 0, "not small");
        assert_eq!(found(&[(0, "0.5"), (1, "500")]), 0, "not large");
    }
}
