//! A map plugin, written without the SDK's conveniences, that returns columns which break the contract, to test that a host refuses them.
//! The value of a batch's first record says how:
//!
//! `ends-fall`, `ends-past-bytes`, `ends-short`, `count`, `wrong-timestamps`, `wrong-keys`, `wrong-nulls` (one entry too many, each), `wrong-origins`,
//! `origin-out-of-range`, `wrong-routes`, `route-out-of-range`, `header-row-out-of-range`, `header-operation`, `failure-row-out-of-range`,
//! `failed-and-emitted`, `more-without-origins`. Any other value: the batch is returned as it is.

#![cfg(target_family = "wasm")]

use waterwheel_plugin::__private::bindings;

use bindings::common::exports::waterwheel::plugin::lifecycle;
use bindings::map::exports::waterwheel::plugin::mapper;
use bindings::{Batch, Column, Context, Emitted, Failure, HeaderEdit};

/// The plugin.
#[derive(Debug)]
pub struct FaultyColumns;

impl lifecycle::Guest for FaultyColumns {
    fn describe() -> String {
        r#"{"sdk":"none","sdk_version":"0","states":[],"inputs":["input"],"side_outputs":["late"],"capabilities":[]}"#.to_owned()
    }

    fn open(_config: String, _environment: String) -> Result<(), String> {
        Ok(())
    }

    fn close() {}
}

impl mapper::Guest for FaultyColumns {
    fn process(records: Batch, _context: Context) -> Result<Emitted, String> {
        let end = records.values.ends.first().map_or(0, |end| *end as usize);
        let how = String::from_utf8_lossy(&records.values.bytes[..end]).into_owned();
        let mut emitted = of(records);
        spoil(&mut emitted, &how);
        Ok(emitted)
    }

    fn finish(_context: Context) -> Result<Emitted, String> {
        let nothing = Column { ends: Vec::new(), bytes: Vec::new() };
        Ok(of(Batch { count: 0, timestamps: Vec::new(), keys: nothing.clone(), values: nothing, nulls: Vec::new() }))
    }
}

fn of(records: Batch) -> Emitted {
    Emitted { records, origins: Vec::new(), routes: Vec::new(), headers: Vec::new(), failures: Vec::new() }
}

fn spoil(emitted: &mut Emitted, how: &str) {
    let records = &mut emitted.records;
    let count = records.count;
    let header = |row, operation| HeaderEdit { row, name: "x".to_owned(), operation, value: None };
    match how {
        "ends-fall" => {
            records.values.ends.insert(0, u32::MAX);
            records.values.ends.pop();
        }
        "ends-past-bytes" => records.values.bytes.clear(),
        "ends-short" => records.values.bytes.push(b'x'),
        "count" => records.count += 1,
        "wrong-timestamps" => records.timestamps.push(0),
        "wrong-keys" => records.keys.ends.push(records.keys.ends.last().copied().unwrap_or_default()),
        "wrong-nulls" => records.nulls = vec![0; count as usize + 1],
        "wrong-origins" => emitted.origins = vec![0; count as usize + 1],
        "origin-out-of-range" => emitted.origins = vec![count; count as usize],
        "wrong-routes" => emitted.routes = vec![0; count as usize + 1],
        "route-out-of-range" => emitted.routes = vec![2; count as usize],
        "header-row-out-of-range" => emitted.headers.push(header(count, 0)),
        "header-operation" => emitted.headers.push(header(0, 9)),
        "failure-row-out-of-range" => emitted.failures.push(Failure { row: count, reason: "no such row".to_owned() }),
        "failed-and-emitted" => emitted.failures.push(Failure { row: 0, reason: "failed, and emitted all the same".to_owned() }),
        "more-without-origins" => {
            let end = records.values.ends.last().copied().unwrap_or_default();
            records.count += 1;
            records.values.ends.push(end);
            records.keys = Column { ends: Vec::new(), bytes: Vec::new() };
            records.timestamps.clear();
            records.nulls.clear();
        }
        _ => {}
    }
}

bindings::common::export_common!(FaultyColumns with_types_in bindings::common);
bindings::map::export_map_part!(FaultyColumns with_types_in bindings::map);
