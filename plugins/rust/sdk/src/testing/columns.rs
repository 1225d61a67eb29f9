//! Records into columns and back, as the host does it.

use super::{Input, OutputRecord};
use crate::bindings::{Batch, Column, Emitted, HeaderEdit};
use crate::host::Header;
use crate::output::{empty_column, end, push_entry};
use crate::record::{NULL_KEY, NULL_VALUE, Rows, entry};

/// The batch of these records.
pub(super) fn batch(inputs: &[Input]) -> Batch {
    let mut batch =
        Batch { count: end(inputs.len()), timestamps: Vec::new(), keys: empty_column(), values: empty_column(), nulls: Vec::new() };
    for input in inputs {
        batch.timestamps.push(input.timestamp);
        push_entry(&mut batch.keys, input.key.as_deref().unwrap_or_default());
        push_entry(&mut batch.values, input.value.as_deref().unwrap_or_default());
        let null_key = if input.key.is_none() { NULL_KEY } else { 0 };
        let null_value = if input.value.is_none() { NULL_VALUE } else { 0 };
        batch.nulls.push(null_key | null_value);
    }
    if batch.nulls.iter().all(|bits| *bits == 0) {
        batch.nulls.clear();
    }
    batch
}

/// The records that were emitted, each with the number of its output; what was left out is taken from the input rows. Columns that break
/// the contract are an error.
pub(super) fn records(emitted: &Emitted, rows: Rows<'_>, headers: &[Vec<Header>]) -> Result<Vec<(u8, OutputRecord)>, String> {
    let batch = &emitted.records;
    let count = batch.count as usize;
    check(count, "values", batch.values.ends.len(), false)?;
    check(count, "keys", batch.keys.ends.len(), true)?;
    check(count, "timestamps", batch.timestamps.len(), true)?;
    check(count, "nulls", batch.nulls.len(), true)?;
    check(count, "origins", emitted.origins.len(), true)?;
    check(count, "routes", emitted.routes.len(), true)?;
    check_ends("values", &batch.values)?;
    check_ends("keys", &batch.keys)?;

    let mut records = Vec::with_capacity(count);
    for index in 0..count {
        let origin = emitted.origins.get(index).copied().unwrap_or_else(|| end(index));
        let bits = batch.nulls.get(index).copied().unwrap_or_default();
        let key = match batch.keys.ends.is_empty() {
            true => rows.key(origin),
            false => (bits & NULL_KEY == 0).then(|| entry(&batch.keys, index)),
        };
        let value = (bits & NULL_VALUE == 0).then(|| entry(&batch.values, index));
        let timestamp = batch.timestamps.get(index).copied().unwrap_or_else(|| rows.timestamp(origin, 0));
        let record = OutputRecord {
            key: key.map(<[u8]>::to_vec),
            value: value.map(<[u8]>::to_vec),
            timestamp,
            headers: headers.get(origin as usize).cloned().unwrap_or_default(),
        };
        records.push((emitted.routes.get(index).copied().unwrap_or_default(), record));
    }
    for edit in &emitted.headers {
        let (_, record) = records.get_mut(edit.row as usize).ok_or("a header change is for a record that was not emitted")?;
        apply(edit, &mut record.headers)?;
    }
    Ok(records)
}

fn check(count: usize, column: &str, entries: usize, may_be_empty: bool) -> Result<(), String> {
    match entries == count || (may_be_empty && entries == 0) {
        true => Ok(()),
        false => Err(format!("{count} records were emitted, and the column of {column} has {entries} entries")),
    }
}

fn check_ends(name: &str, column: &Column) -> Result<(), String> {
    let rising = column.ends.is_sorted();
    match rising && column.ends.last().map_or(0, |end| *end as usize) == column.bytes.len() {
        true => Ok(()),
        false => Err(format!("the ends of the column of {name} do not fit its bytes")),
    }
}

fn apply(edit: &HeaderEdit, headers: &mut Vec<Header>) -> Result<(), String> {
    let header = (edit.name.clone(), edit.value.clone());
    match edit.operation {
        0 => {
            headers.retain(|(name, _)| *name != edit.name);
            headers.push(header);
        }
        1 => headers.push(header),
        2 => headers.retain(|(name, _)| *name != edit.name),
        other => return Err(format!("a header change has the unknown operation {other}")),
    }
    Ok(())
}
