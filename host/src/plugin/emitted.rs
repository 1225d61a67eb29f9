//! Takes over what a plugin emitted: checks all of it, then makes batches of it. A plugin's columns are a stranger's input.

use super::bindings::types::{BatchResult, ColumnResult, Emitted, HeaderEdit, TimersResult};
use crate::operator::Outputs;
use crate::record::{Batch, Column, Header, Headers, Origin};
use crate::state::timers::TimerColumns;
use std::sync::Arc;

const KEY_IS_NULL: u8 = 1;
const VALUE_IS_NULL: u8 = 2;

const SET: u8 = 0;
const APPEND: u8 = 1;
const REMOVE: u8 = 2;

/// An input row that the plugin could not process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) row: usize,
    pub(crate) reason: String,
}

/// What an emitted record may say that it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rows {
    /// Rows of the input: records, or timers that fired.
    Input,
    /// Nothing: the end of the input.
    None,
}

/// What was emitted, when all of it was found right.
struct Checked {
    count: usize,
    /// None: as in the input.
    timestamps: Option<Vec<i64>>,
    /// None: as in the input.
    keys: Option<Column>,
    values: Column,
    nulls: Vec<u8>,
    /// None: record `i` comes from row `i`.
    origins: Option<Vec<u32>>,
    routes: Vec<u8>,
    edits: Vec<HeaderEdit>,
}

/// Checks what was emitted and emits it. On an error nothing was emitted, and `input` is as it was. On success the columns of `input` may have
/// moved on; they have not when there are failures.
pub(super) fn accept(
    emitted: Emitted,
    input: &mut Arc<Batch>,
    rows: Rows,
    side_outputs: usize,
    outputs: &mut Outputs,
) -> Result<Vec<Failure>, String> {
    let failures = check_failures(&emitted, input)?;
    let mut checked = check(emitted, input, rows, side_outputs)?;
    if checked.count == 0 {
        return Ok(failures);
    }
    let routes = std::mem::take(&mut checked.routes);
    let whole = match Arc::get_mut(input) {
        Some(own) if failures.is_empty() && checked.is_one_to_one(own.len(), rows) => checked.over(std::mem::take(own))?,
        _ => checked.gather(input, rows)?,
    };
    emit(whole, &routes, outputs);
    Ok(failures)
}

fn check(emitted: Emitted, input: &Batch, rows: Rows, side_outputs: usize) -> Result<Checked, String> {
    let Emitted { records, origins, routes, headers, .. } = emitted;
    let BatchResult { count, timestamps, keys, values, nulls } = records;
    let count = count as usize;
    let of_count = |name: &str, length: usize| match length == count {
        true => Ok(()),
        false => Err(format!("{name} has {length} entries for {count} records")),
    };
    let values = column("values", values)?;
    of_count("values", values.len())?;
    if !nulls.is_empty() {
        of_count("nulls", nulls.len())?;
    }
    let keys = match keys.ends.is_empty() && keys.bytes.is_empty() {
        true => None,
        false => Some(column("keys", keys)?),
    };
    match &keys {
        Some(keys) => of_count("keys", keys.len())?,
        None if nulls.iter().any(|bits| bits & KEY_IS_NULL != 0) => return Err("nulls marks keys, but keys is empty".into()),
        None => {}
    }
    check_nulls(&nulls, keys.as_ref(), &values)?;
    let timestamps = (!timestamps.is_empty()).then_some(timestamps);
    timestamps.iter().try_for_each(|times| of_count("timestamps", times.len()))?;
    let origins = (!origins.is_empty()).then_some(origins);
    check_origins(origins.as_deref(), count, input.len(), rows)?;
    if rows == Rows::None && count > 0 && (keys.is_none() || timestamps.is_none()) {
        return Err("keys and timestamps must be complete in what `finish` emits, for it comes from no row".into());
    }
    if !routes.is_empty() {
        of_count("routes", routes.len())?;
    }
    if let Some(record) = routes.iter().position(|route| usize::from(*route) > side_outputs) {
        let route = routes[record];
        return Err(format!("record {record} goes to route {route}, but `describe` names {side_outputs} side outputs"));
    }
    check_edits(&headers, count)?;
    Ok(Checked { count, timestamps, keys, values, nulls, origins, routes, edits: headers })
}

fn column(name: &str, column: ColumnResult) -> Result<Column, String> {
    Column::from_parts(column.ends, column.bytes).map_err(|sentence| format!("{name}: {sentence}"))
}

fn check_nulls(nulls: &[u8], keys: Option<&Column>, values: &Column) -> Result<(), String> {
    for (record, bits) in nulls.iter().enumerate() {
        if bits & !(KEY_IS_NULL | VALUE_IS_NULL) != 0 {
            return Err(format!("nulls has unknown bits at record {record}: {bits:#010b}"));
        }
        if bits & VALUE_IS_NULL != 0 && !values.get(record).is_empty() {
            return Err(format!("the value of record {record} is null and has bytes"));
        }
        if bits & KEY_IS_NULL != 0 && keys.is_some_and(|keys| !keys.get(record).is_empty()) {
            return Err(format!("the key of record {record} is null and has bytes"));
        }
    }
    Ok(())
}

fn check_origins(origins: Option<&[u32]>, count: usize, input: usize, rows: Rows) -> Result<(), String> {
    match (origins, rows) {
        (Some(_), Rows::None) => Err("origins must be empty in what `finish` emits, for it comes from no row".into()),
        (None, Rows::None) => Ok(()),
        (Some(origins), Rows::Input) => {
            if origins.len() != count {
                return Err(format!("origins has {} entries for {count} records", origins.len()));
            }
            match origins.iter().position(|row| *row as usize >= input) {
                Some(record) => Err(format!("record {record} comes from row {}, but the input has {input} rows", origins[record])),
                None => Ok(()),
            }
        }
        (None, Rows::Input) if count > input => {
            Err(format!("origins is empty, so record {input} comes from row {input}, but the input has {input} rows"))
        }
        (None, Rows::Input) => Ok(()),
    }
}

fn check_edits(edits: &[HeaderEdit], count: usize) -> Result<(), String> {
    for edit in edits {
        if edit.row as usize >= count {
            return Err(format!("a header of record {} is edited, but there are {count} records", edit.row));
        }
        if edit.operation > REMOVE {
            return Err(format!("a header edit of record {} has operation {}; there are 0, 1 and 2", edit.row, edit.operation));
        }
    }
    Ok(())
}

/// Failures name rows of the input, each once, and nothing comes from a row that failed.
fn check_failures(emitted: &Emitted, input: &Batch) -> Result<Vec<Failure>, String> {
    if emitted.failures.is_empty() {
        return Ok(Vec::new());
    }
    let mut failed = vec![false; input.len()];
    for failure in &emitted.failures {
        match failed.get_mut(failure.row as usize) {
            None => return Err(format!("row {} is reported as failed, but the input has {} rows", failure.row, input.len())),
            Some(true) => return Err(format!("row {} is reported as failed twice", failure.row)),
            Some(seen) => *seen = true,
        }
    }
    let from_failed = |row: usize| failed.get(row).copied().unwrap_or(false);
    let first = match emitted.origins.as_slice() {
        [] => (0..emitted.records.count as usize).find(|row| from_failed(*row)).map(|row| (row, row)),
        origins => origins.iter().position(|row| from_failed(*row as usize)).map(|record| (record, origins[record] as usize)),
    };
    if let Some((record, row)) = first {
        return Err(format!("record {record} comes from row {row}, which is reported as failed"));
    }
    let owned = emitted.failures.iter();
    Ok(owned.map(|failure| Failure { row: failure.row as usize, reason: failure.reason.clone() }).collect())
}

impl Checked {
    /// Whether the batch is the input with other values, keys or timestamps: then what is left out moves over as it is.
    fn is_one_to_one(&self, input: usize, rows: Rows) -> bool {
        rows == Rows::Input && self.origins.is_none() && self.count == input && self.edits.is_empty()
    }

    fn over(mut self, input: Batch) -> Result<Batch, String> {
        let columns = input.into_columns();
        let nulls = self.nulls_over(columns.nulls);
        let timestamps = self.timestamps.unwrap_or(columns.timestamps);
        let keys = self.keys.unwrap_or(columns.keys);
        let mut batch = Batch::from_columns(timestamps, keys, self.values, nulls, columns.origins).map_err(|fault| fault.to_string())?;
        *batch.headers_mut() = columns.headers;
        Ok(batch)
    }

    fn gather(mut self, input: &Batch, rows: Rows) -> Result<Batch, String> {
        let rows_of = self.origins.take();
        let row = |record: usize| rows_of.as_ref().map_or(record, |rows| rows[record] as usize);
        let headers = self.headers(input, rows, row);
        let nulls = match input.nulls() {
            [] => self.nulls_over(Vec::new()),
            nulls => self.nulls_over((0..self.count).map(|record| nulls[row(record)]).collect()),
        };
        let origins = match rows {
            Rows::Input => (0..self.count).map(|record| input.origins()[row(record)]).collect(),
            Rows::None => vec![Origin::NONE; self.count],
        };
        let gathered_keys = match self.keys {
            Some(_) => None,
            None => Some((0..self.count).map(|record| input.keys().get(row(record))).collect()),
        };
        let gathered_timestamps = match self.timestamps {
            Some(_) => None,
            None => Some((0..self.count).map(|record| input.timestamps()[row(record)]).collect()),
        };
        let keys = self.keys.or(gathered_keys).unwrap_or_default();
        let timestamps = self.timestamps.or(gathered_timestamps).unwrap_or_default();
        let mut batch = Batch::from_columns(timestamps, keys, self.values, nulls, origins).map_err(|fault| fault.to_string())?;
        *batch.headers_mut() = headers;
        Ok(batch)
    }

    /// The nulls of the emitted records; where keys are as in the input, so are their nulls. `input` has the nulls of the rows that they come from.
    fn nulls_over(&mut self, mut input: Vec<u8>) -> Vec<u8> {
        let own = std::mem::take(&mut self.nulls);
        if self.keys.is_some() || input.iter().all(|bits| bits & KEY_IS_NULL == 0) {
            return own;
        }
        input.iter_mut().for_each(|bits| *bits &= KEY_IS_NULL);
        input.iter_mut().zip(own).for_each(|(bits, own)| *bits |= own);
        input
    }

    fn headers(&self, input: &Batch, rows: Rows, row: impl Fn(usize) -> usize) -> Headers {
        let mut headers = Headers::default();
        let carried = rows == Rows::Input && !input.headers().is_empty();
        if !carried && self.edits.is_empty() {
            return headers;
        }
        let mut edits: Vec<&HeaderEdit> = self.edits.iter().collect();
        edits.sort_by_key(|edit| edit.row);
        let mut edits = edits.as_slice();
        for record in 0..self.count {
            let own = edits.partition_point(|edit| edit.row as usize <= record);
            let (of_record, later) = edits.split_at(own);
            edits = later;
            if of_record.is_empty() {
                if carried {
                    headers.copy_row(record, input.headers(), row(record));
                }
                continue;
            }
            let before: Vec<Header<'_>> = if carried { input.headers().row(row(record)).collect() } else { Vec::new() };
            edited(before, of_record).into_iter().for_each(|header| headers.push(record, header));
        }
        headers
    }
}

/// The headers of a record after its edits, in order.
fn edited<'a>(mut headers: Vec<Header<'a>>, edits: &[&'a HeaderEdit]) -> Vec<Header<'a>> {
    for edit in edits {
        let new = Header { name: &edit.name, value: edit.value.as_deref() };
        match edit.operation {
            APPEND => headers.push(new),
            SET => {
                let at = headers.iter().position(|header| header.name == new.name);
                headers.retain(|header| header.name != new.name);
                headers.insert(at.unwrap_or(headers.len()), new);
            }
            _ => headers.retain(|header| header.name != new.name),
        }
    }
    headers
}

/// Emits the records of each route as a batch of their own, in order.
fn emit(whole: Batch, routes: &[u8], outputs: &mut Outputs) {
    let first = routes.first().copied().unwrap_or(0);
    if routes.iter().all(|route| *route == first) {
        outputs.emit(first, whole);
        return;
    }
    let last = routes.iter().copied().max().unwrap_or(0);
    let mut parts = vec![Batch::default(); usize::from(last) + 1];
    for (record, route) in routes.iter().enumerate() {
        parts[usize::from(*route)].push_from(&whole, record);
    }
    for (route, part) in (0..=last).zip(parts) {
        outputs.emit(route, part);
    }
}

/// Takes over timers that a plugin sets and deletes.
pub(super) fn accept_timers(timers: TimersResult) -> Result<TimerColumns, String> {
    let TimersResult { keys, times, tags, clocks, operations } = timers;
    let keys = column("timers.keys", keys)?;
    let count = keys.len();
    let lengths = [("times", times.len()), ("tags", tags.len()), ("clocks", clocks.len())];
    if let Some((name, length)) = lengths.into_iter().find(|(_, length)| *length != count) {
        return Err(format!("timers.{name} has {length} entries for {count} keys"));
    }
    if !operations.is_empty() && operations.len() != count {
        return Err(format!("timers.operations has {} entries for {count} keys", operations.len()));
    }
    for (name, bytes) in [("clocks", &clocks), ("operations", &operations)] {
        if let Some(at) = bytes.iter().position(|byte| *byte > 1) {
            return Err(format!("timers.{name} holds {} at timer {at}; there are 0 and 1", bytes[at]));
        }
    }
    Ok(TimerColumns { keys, times, tags, clocks, operations })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
#[path = "emitted_tests.rs"]
mod tests;
