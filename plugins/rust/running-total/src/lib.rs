//! Counts and sums by key, and emits the new totals for each record: `{"key":"anna","count":2,"sum":12.5}`.
//!
//! Configuration: `amount`, a JSON pointer to the number to sum up, `/amount` unless it is given. Sums are exact, also of decimal numbers, up
//! to 38 digits; a record whose amount is missing or no such number fails.

mod decimal;

use std::io::Write;

use decimal::Decimal;
use serde::{Deserialize, Serialize};
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
