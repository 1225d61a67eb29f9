//! Counts and sums by key, and emits the new totals for each record: `{"key":"anna","count":2,"sum":12.5}`.
//!
//! Configuration: `amount`, a JSON pointer to the number to sum up, `/amount` unless it is given. Sums are exact, also of decimal numbers, up
//! to 38 digits; a record whose amount is missing or no such number fails.

use std::io::Write;

use serde::{Deserialize, Serialize};
use waterwheel_plugin::decimal::Decimal;
use waterwheel_plugin::json::Pointer;
use waterwheel_plugin::{Declare, Emit, Environment, Failure, KeyedOutput, KeyedPlugin, KeyedState, Record, export_keyed, fail};

/// The plugin.
#[derive(Debug)]
pub struct RunningTotal {
    amount: Pointer,
    totals: KeyedState<Total>,
}

/// What the job specification may say.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where in the value the amount is.
    #[serde(default = "default_amount")]
    amount: Pointer,
}

fn default_amount() -> Pointer {
    "/amount".parse().expect("invariant: it is a pointer")
}

/// The totals of a key.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Total {
    count: u64,
    sum: Decimal,
}

impl KeyedPlugin for RunningTotal {
    type Config = Config;
    type States = KeyedState<Total>;

    fn declare(states: &mut Declare) -> Self::States {
        states.value("totals")
    }

    fn open(config: Config, totals: Self::States, _environment: &Environment) -> Result<Self, Failure> {
        Ok(Self { amount: config.amount, totals })
    }

    fn process(&mut self, record: &Record<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        let value = record.value().ok_or_else(|| fail("a tombstone has no amount"))?;
        let amount = self.amount.find(value)?.ok_or_else(|| fail(format!("there is no amount at {}", self.amount)))?;
        let amount: Decimal = amount.parse()?;
        let key = std::str::from_utf8(record.key().unwrap_or_default())?;

        let total = self.totals.update(|total| {
            total.count += 1;
            total.sum = total.sum.checked_add(amount)?;
            Some(*total)
        });
        let Total { count, sum } = total.ok_or_else(|| fail("the sum has more than 38 digits"))?;

        out.emit_with(Emit::default(), |value| {
            value.push(r#"{"key":"#);
            serde_json::to_writer(&mut *value, key)?;
            write!(value, r#","count":{count},"sum":{sum}}}"#)
        })?;
        Ok(())
    }
}

export_keyed!(RunningTotal);

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use waterwheel_plugin::testing::{KeyedHarness, Scope};

    use super::RunningTotal;

    fn texts(plugin: &mut KeyedHarness<RunningTotal>) -> Vec<String> {
        plugin.take_output().iter().map(|record| record.text().to_owned()).collect()
    }

    #[test]
    fn counts_and_sums_by_key() {
        let mut plugin = KeyedHarness::<RunningTotal>::open("null").unwrap();
        for (key, value) in [("a", r#"{"amount": 0.1}"#), ("b", r#"{"amount": 7}"#), ("a", r#"{"amount": 0.2}"#)] {
            plugin.feed(key, value).unwrap();
        }
        assert_eq!(
            texts(&mut plugin),
            [r#"{"key":"a","count":1,"sum":0.1}"#, r#"{"key":"b","count":1,"sum":7}"#, r#"{"key":"a","count":2,"sum":0.3}"#]
        );
    }

    #[test]
    fn a_record_without_a_fitting_amount_fails_and_is_not_counted() {
        let mut plugin = KeyedHarness::<RunningTotal>::open(r#"{"amount": "/order/total"}"#).unwrap();
        for value in [
            r#"{"order": {}}"#,
            r#"{"order": {"total": "7"}}"#,
            "not JSON",
            r#"{"order": {"total": 1e38}}"#,
            r#"{"order": {"total": 1e38}}"#,
        ] {
            plugin.feed("a", value).unwrap();
        }
        assert_eq!(texts(&mut plugin), [r#"{"key":"a","count":1,"sum":100000000000000000000000000000000000000}"#]);
        let reasons: Vec<_> = plugin.take_failures().into_iter().map(|failure| failure.reason).collect();
        assert_eq!(reasons[0], "there is no amount at /order/total");
        assert_eq!(reasons[1], "\"7\" is not a number with at most 38 digits, 30 of them decimal places");
        assert_eq!(reasons[2], "expected ident at line 1 column 2");
        assert_eq!(reasons[3], "the sum has more than 38 digits");
    }

    #[test]
    fn a_restored_instance_goes_on() {
        let mut plugin = KeyedHarness::<RunningTotal>::open("{}").unwrap();
        plugin.feed("\"quoted\"", r#"{"amount": 1.5}"#).unwrap();
        let snapshot = plugin.snapshot(Scope::All).unwrap();
        let mut restored = KeyedHarness::<RunningTotal>::restore("{}", &snapshot).unwrap();
        restored.feed("\"quoted\"", r#"{"amount": 1}"#).unwrap();
        assert_eq!(texts(&mut restored), [r#"{"key":"\"quoted\"","count":2,"sum":2.5}"#]);
    }

    #[test]
    fn a_wrong_configuration_is_refused_with_its_path() {
        let error = KeyedHarness::<RunningTotal>::open(r#"{"amount": "total"}"#).unwrap_err();
        assert!(error.starts_with("config.amount: `total` is not a JSON pointer"), "{error}");
    }
}
