//! Aggregates the records of each key, which are JSON, in windows of event time, without code:
//!
//! ```json
//! {
//!   "window": {"type": "tumbling", "size-ms": 60000},
//!   "allowed-lateness-ms": 5000,
//!   "aggregates": [
//!     {"function": "count"},
//!     {"function": "sum", "field": "/amount", "name": "total"},
//!     {"function": "count-distinct", "field": "/product", "name": "products"}
//!   ]
//! }
//! ```
//!
//! emits `{"key":"anna","start":0,"end":60000,"count":2,"total":12.5,"products":1}` when the watermark has come to the window's end, and again for
//! each record that comes within the allowed lateness. Later ones go to the side output `late` as they are.
//!
//! Windows: `tumbling` (`size-ms`, `offset-ms`), `sliding` (`size-ms`, `slide-ms`, `offset-ms`), `session` (`gap-ms`). Functions: `count` (of records, or of
//! values at a field), `count-distinct`, `sum`, `min`, `max`, `avg`, and `first` and `last` by event time. What is missing or null is passed over,
//! and an aggregate of nothing is null. Sums are exact, averages are rounded to 12 decimal places. Numbers that are equal are one value to
//! `count-distinct`; all else is compared as it is written. A record whose value is no number where one is needed fails.

mod aggregates;
mod config;

use std::io::Write;

use aggregates::{Columns, Distinct, Field, Row};
pub use config::Config;
use waterwheel_plugin::json::Pointer;
use waterwheel_plugin::{
    Declare, Emit, Environment, Failure, KeyedOutput, KeyedPlugin, Pane, Record, Timer, WindowState, Windows, export_keyed, fail,
};

/// The plugin.
#[derive(Debug)]
pub struct WindowAggregate {
    windows: Windows<Columns>,
    /// The fields, and whether only numbers will do.
    fields: Vec<(Pointer, bool)>,
    row: Row,
}

/// The declared states.
#[derive(Debug)]
pub struct States {
    windows: WindowState<Columns>,
    distinct: Distinct,
}

impl KeyedPlugin for WindowAggregate {
    type Config = Config;
    type States = States;
    const SIDE_OUTPUTS: &'static [&'static str] = &["late"];

    fn declare(states: &mut Declare) -> States {
        States { windows: states.windows("windows"), distinct: states.map("distinct-values") }
    }

    fn open(config: Config, states: States, _environment: &Environment) -> Result<Self, Failure> {
        config.check()?;
        let (assigner, lateness) = (config.assigner()?, config.allowed_lateness());
        let mut fields: Vec<(Pointer, bool)> = Vec::new();
        let (mut columns, mut names) = (Vec::new(), Vec::new());
        for aggregate in config.aggregates {
            names.push(format!(",{}:", serde_json::to_string(aggregate.name())?));
            let field = aggregate.field.map(|pointer| match fields.iter().position(|(each, _)| *each == pointer) {
                Some(field) => field,
                None => {
                    fields.push((pointer, false));
                    fields.len() - 1
                }
            });
            if let Some(field) = field {
                fields[field].1 |= aggregate.function.is_of_numbers();
            }
            columns.push((aggregate.function, field));
        }
        let columns = Columns { columns, names, distinct: states.distinct, subkey: String::new() };
        let row = Row { timestamp: 0, fields: fields.iter().map(|_| Field::default()).collect() };
        let windows = states.windows.assign(assigner, columns).allowed_lateness(lateness);
        Ok(Self { windows, fields, row })
    }

    fn process(&mut self, record: &Record<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        read(record, &self.fields, &mut self.row)?;
        if self.windows.add(record, &self.row, out, emit)?.is_late() {
            out.emit(Emit::from(record).to("late"));
        }
        Ok(())
    }

    fn on_timer(&mut self, timer: &Timer<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        self.windows.on_timer(timer, out, emit)?;
        Ok(())
    }
}

/// Finds what a record has at the fields.
fn read(record: &Record<'_>, fields: &[(Pointer, bool)], row: &mut Row) -> Result<(), Failure> {
    let value = record.value().ok_or_else(|| fail("a tombstone has no fields"))?;
    row.timestamp = record.timestamp();
    for ((pointer, needs_number), field) in fields.iter().zip(&mut row.fields) {
        let text = pointer.find(value)?.filter(|text| *text != "null").unwrap_or_default();
        field.text.clear();
        field.text.push_str(text);
        let is_number = text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
        field.number = match is_number {
            true if *needs_number => Some(text.parse()?),
            // What is only counted or passed on may be any number.
            true => text.parse().ok(),
            false if *needs_number && !text.is_empty() => return Err(fail(format!("what is at {pointer} is no number: {text}"))),
            false => None,
        };
    }
    Ok(())
}

fn emit(Pane { key, window, result }: Pane<'_, String>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
    let key = std::str::from_utf8(key)?;
    out.emit_with(Emit::default(), |value| {
        value.push(r#"{"key":"#);
        serde_json::to_writer(&mut *value, key)?;
        write!(value, r#","start":{},"end":{}{}}}"#, window.start, window.end, result)
    })?;
    Ok(())
}

export_keyed!(WindowAggregate);

#[cfg(test)]
mod tests;
