//! Which folder a record goes to: by its time, by a scalar in its value, or all into one.

use super::options::is_plain_folder;
use crate::config::Fault;
use crate::record::{Batch, JsonPointer};
use jiff::Timestamp;
use jiff::fmt::strtime::BrokenDownTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use xxhash_rust::xxh3::xxh3_64;

/// Folder names are cut here, in bytes, and go on with a hash of the whole: well below the limit of file systems.
const LONGEST_FOLDER_BYTES: usize = 200;

/// Which folder a record goes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PartitionBy {
    /// A pattern of strftime for the record's timestamp in UTC, `/` between folders: `%Y-%m-%d/%H`.
    Time(String),
    /// A JSON pointer to a string, number or boolean in the value, `/customer/country`; one folder is named after it, with `%2F` for `/`
    /// and the like for whatever else a name should not hold.
    Pointer(String),
}

/// Finds the folder of each record, relative to the sink's path; nothing is allocated for a record once the buffers have grown.
#[derive(Clone, Debug, Default)]
pub(super) struct Partitioner {
    by: By,
    default: String,
    current: String,
    scratch: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
enum By {
    #[default]
    Nothing,
    Time {
        pattern: String,
        /// Times that are the same in this unit have the same folder; milliseconds.
        unit: i64,
        /// The current folder's time in that unit.
        window: Option<i64>,
    },
    Pointer {
        pointer: JsonPointer,
        /// The current folder's scalar.
        scalar: Option<Vec<u8>>,
    },
}

impl Partitioner {
    pub(super) fn new(by: Option<&PartitionBy>, default: &str) -> Result<Self, Fault> {
        let by = match by {
            None => By::Nothing,
            Some(PartitionBy::Time(pattern)) => {
                let unit = unit_of(pattern).map_err(|message| Fault::new("/partition-by/time", message))?;
                By::Time { pattern: pattern.clone(), unit, window: None }
            }
            Some(PartitionBy::Pointer(pointer)) => {
                let pointer = JsonPointer::parse(pointer).map_err(|message| Fault::new("/partition-by/pointer", message))?;
                By::Pointer { pointer, scalar: None }
            }
        };
        Ok(Self { by, default: default.to_owned(), ..Self::default() })
    }

    /// Goes to the folder of record `index`; whether it is another one than that of the record before.
    pub(super) fn go_to(&mut self, batch: &Batch, index: usize) -> bool {
        match &mut self.by {
            By::Nothing => false,
            By::Time { pattern, unit, window } => {
                let timestamp = batch.timestamps()[index];
                let new = timestamp.div_euclid(*unit);
                if *window == Some(new) {
                    return false;
                }
                *window = Some(new);
                self.current.clear();
                if append_time(pattern, timestamp, &mut self.current).is_err() {
                    self.current.clear();
                    self.current.push_str(&self.default);
                }
                true
            }
            By::Pointer { pointer, scalar } => {
                self.scratch.clear();
                let value = batch.value(index).unwrap_or_default();
                // Whatever is wrong there, the record keeps its value and goes to the default partition, as the option says.
                let _no_scalar = pointer.append_scalar(value, &mut self.scratch);
                if scalar.as_ref() == Some(&self.scratch) {
                    return false;
                }
                std::mem::swap(scalar.get_or_insert_default(), &mut self.scratch);
                self.current.clear();
                append_folder(scalar.as_deref().unwrap_or_default(), &self.default, &mut self.current);
                true
            }
        }
    }

    /// The folder of the last record, relative to the sink's path; empty for that path itself.
    pub(super) fn current(&self) -> &str {
        &self.current
    }
}

fn append_time(pattern: &str, timestamp: i64, out: &mut String) -> Result<(), jiff::Error> {
    BrokenDownTime::from(Timestamp::from_millisecond(timestamp)?).format(pattern, out)
}

/// The largest unit of time within which a pattern always says the same, in milliseconds.
fn unit_of(pattern: &str) -> Result<i64, String> {
    // A day with two digits everywhere, which each unit divides.
    const DAY: i64 = 1_760_572_800_000;
    let at = |timestamp: i64| {
        let mut folder = String::new();
        append_time(pattern, timestamp, &mut folder)
            .map_err(|error| format!("{pattern:?} is no pattern of strftime, such as \"%Y-%m-%d/%H\": {error}"))?;
        Ok::<_, String>(folder)
    };
    let first = at(DAY)?;
    if !first.split('/').all(is_plain_folder) {
        return Err(format!("{pattern:?} gives {first:?}: folders have names that do not start with a dot, one `/` between them"));
    }
    for unit in [86_400_000, 3_600_000, 60_000, 1000] {
        // All smaller fields are at their lowest and at their highest there.
        if first == at(DAY + unit - 1)? {
            return Ok(unit);
        }
    }
    Ok(1)
}

/// Appends the name of a folder for a scalar: never empty, hidden, a way out of the path, or the same as another scalar's.
fn append_folder(scalar: &[u8], default: &str, out: &mut String) {
    if scalar.is_empty() {
        return out.push_str(default);
    }
    let start = out.len();
    let text = String::from_utf8_lossy(scalar);
    for (index, c) in text.char_indices() {
        let plain = c.is_alphanumeric() || matches!(c, '_' | '-' | '=' | '+' | ',' | ' ') || (c == '.' && index > 0);
        if plain {
            out.push(c);
        } else {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                write!(out, "%{byte:02X}").expect("invariant: writing to memory does not fail");
            }
        }
    }
    if out.len() - start > LONGEST_FOLDER_BYTES {
        let cut = (start..=start + LONGEST_FOLDER_BYTES).rev().find(|at| out.is_char_boundary(*at)).unwrap_or(start);
        out.truncate(cut);
        write!(out, "~{:016x}", xxh3_64(scalar)).expect("invariant: writing to memory does not fail");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::record::{Origin, Row};

    fn folders(by: &PartitionBy, rows: &[(i64, Option<&str>)]) -> Vec<String> {
        let mut partitioner = Partitioner::new(Some(by), "none").unwrap();
        let mut batch = Batch::default();
        for (timestamp, value) in rows {
            batch.push(Row { key: None, value: value.map(str::as_bytes), timestamp: *timestamp, origin: Origin::NONE });
        }
        let mut last = String::new();
        (0..rows.len())
            .map(|index| {
                let changed = partitioner.go_to(&batch, index);
                assert_eq!(changed, last != partitioner.current(), "{index}");
                last = partitioner.current().to_owned();
                last.clone()
            })
            .collect()
    }

    #[test]
    fn time_is_in_utc_and_before_1970_too() {
        let by = PartitionBy::Time("dt=%Y-%m-%d/%H".into());
        let found = folders(&by, &[(0, None), (3_599_999, None), (3_600_000, None), (-1, None), (i64::MIN, None)]);
        assert_eq!(found, ["dt=1970-01-01/00", "dt=1970-01-01/00", "dt=1970-01-01/01", "dt=1969-12-31/23", "none"]);
    }

    #[test]
    fn a_pattern_is_worked_out_only_when_its_unit_has_passed() {
        let cases = [("%Y", 86_400_000), ("%F/%p", 3_600_000), ("%H", 3_600_000), ("%F-%H%M", 60_000), ("%s", 1000), ("%F %f", 1)];
        for (pattern, unit) in cases {
            assert_eq!(unit_of(pattern), Ok(unit), "{pattern}");
        }
        for wrong in ["", "%", "%!", "/%Y", "%Y/", "%Y//%m", "../%Y", "%Y/.%m"] {
            assert!(unit_of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn scalars_become_safe_names() {
        let by = PartitionBy::Pointer("/c".into());
        let long = format!(r#"{{"c":"{}"}}"#, "é".repeat(300));
        let values = [
            r#"{"c":"DE"}"#,
            r#"{"c":"DE"}"#,
            r#"{"c":"../../etc"}"#,
            r#"{"c":".."}"#,
            r#"{"c":"a%2F@\u0000"}"#,
            r#"{"c":"München 1.5"}"#,
            r#"{"c":7}"#,
            r#"{"c":true}"#,
            r#"{"c":""}"#,
            r#"{"c":null}"#,
            r#"{"c":[1]}"#,
            "{}",
            "no json",
            &long,
        ];
        let mut rows: Vec<_> = values.iter().map(|value| (0, Some(*value))).collect();
        rows.push((0, None));
        let found = folders(&by, &rows);
        let expected =
            ["DE", "DE", "%2E.%2F..%2Fetc", "%2E.", "a%252F%40%00", "München 1.5", "7", "true", "none", "none", "none", "none", "none"];
        assert_eq!(found[..13], expected);
        assert!(found[13].len() < 230 && found[13].contains('~'), "{}", found[13]);
        assert_eq!(found[14], "none");
        assert!(found.iter().all(|folder| is_plain_folder(folder)));
    }
}
