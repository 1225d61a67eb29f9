//! What a job file can say about a generator, and what of it is wrong.

use super::template::{Template, padding_faults};
use crate::config::{Fault, Size, Span, parse_options};
use crate::source::rate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The most splits that a generator can have; more would only cost.
const MAX_SPLITS: u32 = 65_536;

/// The smallest ready-made record: `{"payload":""}` and a little more.
const MIN_FIXED_SIZE: u64 = 16;

/// The largest record that a generator makes, in bytes.
const MAX_SIZE: u64 = 16 << 20;

/// The most decimals of an amount.
const MAX_DECIMALS: u8 = 9;

/// The largest amount with its decimal point left out: what a double holds exactly.
const MAX_UNITS: f64 = 9_007_199_254_740_992.0;

/// Options of the `generator` source.
///
/// The record of a sequence number depends on the options and that number alone, so the same records come again after a crash, and
/// however many splits and subtasks there are. Sequence numbers start at 0.
///
/// Placeholders, in `template` and `key`: `{sequence}`, `{user}` (a random number below `users`), `{amount}` (random, see `amount`),
/// `{time}` (milliseconds since the Unix epoch, see `time`), `{date-time}` (the same in ISO 8601), and in `template` once `{padding}`
/// (fills the record to `size`). `{{` and `}}` stand for braces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct GeneratorOptions {
    /// Records per second over all subtasks. By default as fast as possible.
    pub rate: Option<f64>,
    /// How many records there are in all. By default the generator never ends.
    pub count: Option<u64>,
    /// Seed of the random numbers. By default 0.
    pub seed: u64,
    /// Into how many splits the records are dealt, 256 in a row to each: as many subtasks can share the work. By default 1.
    pub splits: u32,
    /// Where values come from: `template`, or `fixed`: one ready-made record of `size` bytes, for benchmarks. By default `template`.
    pub payload: Payload,
    /// The value, any JSON. A string that is only a placeholder becomes a number (`"{amount}"` → `12.50`; a string for `{date-time}` and
    /// `{padding}`); in a longer string the placeholder is filled in. By default
    /// `{"sequence": "{sequence}", "user": "user-{user}", "amount": "{amount}", "time": "{time}"}`.
    pub template: Option<Value>,
    /// How large a value is: `fixed` ones are (by default 100 bytes), those of a template are padded to it where `{padding}` stands.
    pub size: Option<Size>,
    /// The key of a record, a text with placeholders such as `user-{user}`. By default the key is null.
    pub key: Option<String>,
    /// How many users there are. By default 1000.
    pub users: u64,
    /// The range of amounts.
    pub amount: Amount,
    /// The event time of records: also that of `{time}`.
    pub time: EventTime,
}

/// Where the values of generated records come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Payload {
    /// From the template.
    #[default]
    Template,
    /// All values are the same ready-made bytes.
    Fixed,
}

/// The range of random amounts, which are evenly distributed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Amount {
    /// The smallest. By default 1.
    pub min: f64,
    /// The largest. By default 1000.
    pub max: f64,
    /// Decimals, 9 at most. By default 2.
    pub decimals: u8,
}

/// The event time of generated records: record `n` has `start` + `n` × `step`. It never depends on the clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct EventTime {
    /// The time of the first record, ISO 8601. By default `2024-01-01T00:00:00Z`.
    #[schemars(with = "String")]
    pub start: jiff::Timestamp,
    /// From one record to the next. By default 1 ms.
    pub step: Span,
}

impl Default for GeneratorOptions {
    fn default() -> Self {
        Self {
            rate: None,
            count: None,
            seed: 0,
            splits: 1,
            payload: Payload::Template,
            template: None,
            size: None,
            key: None,
            users: 1000,
            amount: Amount::default(),
            time: EventTime::default(),
        }
    }
}

impl Default for Amount {
    fn default() -> Self {
        Self { min: 1.0, max: 1000.0, decimals: 2 }
    }
}

impl Default for EventTime {
    fn default() -> Self {
        /// 2024-01-01T00:00:00Z in seconds.
        const START: i64 = 1_704_067_200;
        Self { start: jiff::Timestamp::constant(START, 0), step: Span::from_millis(1) }
    }
}

impl GeneratorOptions {
    /// Reads options and checks them.
    ///
    /// # Errors
    /// Every fault at once.
    pub(super) fn parse(options: &Value) -> Result<Self, Vec<Fault>> {
        let parsed: Self = parse_options(options)?;
        let mut faults = Vec::new();
        let mut check = |path: &str, fault: Option<String>| faults.extend(fault.map(|message| Fault::new(path, message)));
        check("/rate", rate::fault_of(parsed.rate));
        let splits = parsed.splits;
        check("/splits", (!(1..=MAX_SPLITS).contains(&splits)).then(|| format!("{splits} is not between 1 and {MAX_SPLITS}")));
        check("/users", (parsed.users == 0).then(|| "0 users cannot be drawn from: write 1 or more".to_owned()));
        check("/size", parsed.size_fault());
        check("/amount", parsed.amount.fault());
        let step = parsed.time.step;
        check("/time/step", u64::try_from(step.0.as_nanos()).is_err().then(|| format!("{step} is longer than 500 years")));
        let unused = parsed.payload == Payload::Fixed && parsed.template.is_some();
        check("/template", unused.then(|| "a fixed payload uses no template: leave one of the two out".to_owned()));
        if parsed.payload == Payload::Template {
            match Template::json(&parsed.template()) {
                Ok(template) => faults.extend(padding_faults(&template, parsed.size.is_some())),
                Err(found) => faults.extend(found.into_iter().map(|fault| fault.under("/template"))),
            }
        }
        if let Some(key) = &parsed.key
            && let Err(message) = Template::text(key)
        {
            faults.push(Fault::new("/key", message));
        }
        if faults.is_empty() { Ok(parsed) } else { Err(faults) }
    }

    /// The template, or the default one.
    pub(super) fn template(&self) -> Value {
        self.template
            .clone()
            .unwrap_or_else(|| json!({"sequence": "{sequence}", "user": "user-{user}", "amount": "{amount}", "time": "{time}"}))
    }

    fn size_fault(&self) -> Option<String> {
        let size = self.size?;
        if size.0 > MAX_SIZE {
            return Some(format!("{size} is larger than {}", Size(MAX_SIZE)));
        }
        (self.payload == Payload::Fixed && size.0 < MIN_FIXED_SIZE)
            .then(|| format!("{size} is too small for a ready-made record: write {MIN_FIXED_SIZE} bytes or more"))
    }
}

impl Amount {
    /// The smallest and the largest amount in units of the last decimal.
    pub(super) fn units(&self) -> (i64, i64) {
        let units = |amount: f64| (amount * 10_f64.powi(i32::from(self.decimals))).round();
        #[allow(clippy::cast_possible_truncation, reason = "checked to be at most 2^53")]
        let whole = |amount: f64| units(amount) as i64;
        (whole(self.min), whole(self.max))
    }

    fn fault(&self) -> Option<String> {
        let Self { min, max, decimals } = *self;
        if decimals > MAX_DECIMALS {
            return Some(format!("{decimals} decimals are more than {MAX_DECIMALS}"));
        }
        let largest = MAX_UNITS / 10_f64.powi(i32::from(decimals));
        if !(min.abs() <= largest && max.abs() <= largest) {
            return Some(format!("with {decimals} decimals the range must lie between -{largest} and {largest}"));
        }
        (min > max).then(|| format!("the smallest amount, {min}, is above the largest, {max}"))
    }
}
