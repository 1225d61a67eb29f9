//! The columns of a call's output while they grow. Columns that only repeat the input stay empty until a record differs; then what came
//! before is filled in from the input. Values that are those of input rows in a row are copied in one piece, or not at all when the
//! whole batch is passed on.

use crate::bindings::{Batch, Column, Emitted, Failure, HeaderEdit, Timers};
use crate::emit::{Emit, Key};
use crate::record::{Columns, NULL_KEY, NULL_VALUE, Rows};

/// An end in a column. A component's memory ends at 4 GiB.
#[inline]
pub(crate) fn end(length: usize) -> u32 {
    u32::try_from(length).expect("invariant: a column is smaller than 4 GiB")
}

/// Appends an entry.
#[inline]
pub(crate) fn push_entry(column: &mut Column, bytes: &[u8]) {
    column.bytes.extend_from_slice(bytes);
    column.ends.push(end(column.bytes.len()));
}

/// Cuts a column down to its first `count` entries.
fn truncate(column: &mut Column, count: usize) {
    column.ends.truncate(count);
    column.bytes.truncate(column.ends.last().map_or(0, |end| *end as usize));
}

pub(crate) fn empty_column() -> Column {
    Column { ends: Vec::new(), bytes: Vec::new() }
}

pub(crate) fn empty_timers() -> Timers {
    Timers { keys: empty_column(), times: Vec::new(), tags: Vec::new(), clocks: Vec::new(), operations: Vec::new() }
}

/// How far the output had come before a record: what a failed record is cut back to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    count: u32,
    headers: usize,
    timers: usize,
}

/// The last records emitted, as far as their values are those of successive input rows and still to be copied.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    first_row: u32,
    rows: u32,
}

#[derive(Debug)]
pub(crate) struct Buffers {
    count: u32,
    values: Column,
    run: Run,
    /// Whether all so far are the first input rows as they are: no column below has an entry.
    plain: bool,
    /// Empty: as in the input; so are the columns below, until a record differs.
    keys: Column,
    timestamps: Vec<i64>,
    nulls: Vec<u8>,
    origins: Vec<u32>,
    routes: Vec<u8>,
    headers: Vec<HeaderEdit>,
    failures: Vec<Failure>,
    timers: Timers,
    counters: Vec<(String, u64)>,
    /// A mistake in the plugin's code that cannot be answered where it is made. It fails the batch.
    defect: Option<String>,
    /// Bytes of values in the batch before: what to reserve for the next.
    value_bytes: usize,
}

impl Default for Buffers {
    fn default() -> Self {
        Self {
            count: 0,
            values: empty_column(),
            run: Run::default(),
            plain: true,
            keys: empty_column(),
            timestamps: Vec::new(),
            nulls: Vec::new(),
            origins: Vec::new(),
            routes: Vec::new(),
            headers: Vec::new(),
            failures: Vec::new(),
            timers: empty_timers(),
            counters: Vec::new(),
            defect: None,
            value_bytes: 0,
        }
    }
}

impl Buffers {
    #[inline]
    pub(crate) fn mark(&self) -> Mark {
        Mark { count: self.count, headers: self.headers.len(), timers: self.timers.times.len() }
    }

    /// Drops all that was emitted and set since the mark.
    pub(crate) fn roll_back(&mut self, mark: Mark) {
        let count = mark.count as usize;
        self.run.rows = self.run.rows.saturating_sub(self.count - mark.count);
        self.count = mark.count;
        truncate(&mut self.values, count);
        truncate(&mut self.keys, count);
        self.timestamps.truncate(count);
        self.nulls.truncate(count);
        self.origins.truncate(count);
        self.routes.truncate(count);
        self.headers.truncate(mark.headers);
        truncate(&mut self.timers.keys, mark.timers);
        self.timers.times.truncate(mark.timers);
        self.timers.tags.truncate(mark.timers);
        self.timers.clocks.truncate(mark.timers);
        self.timers.operations.truncate(mark.timers);
    }

    pub(crate) fn fail(&mut self, row: u32, reason: String) {
        self.failures.push(Failure { row, reason });
    }

    /// Notes a mistake of the plugin; the first one is reported.
    pub(crate) fn defect(&mut self, defect: impl FnOnce() -> String) {
        self.defect.get_or_insert_with(defect);
    }

    pub(crate) fn take_defect(&mut self) -> Option<String> {
        self.defect.take()
    }

    pub(crate) fn count_up(&mut self, counter: &str, by: u64) {
        match self.counters.iter_mut().find(|(name, _)| name == counter) {
            Some((_, total)) => *total = total.saturating_add(by),
            None => self.counters.push((counter.to_owned(), by)),
        }
    }

    /// Hands the counts since the last call to the host: one call a counter and batch.
    pub(crate) fn publish_counters(&mut self) {
        for (name, total) in &mut self.counters {
            if *total > 0 {
                crate::host::count(name, std::mem::take(total));
            }
        }
    }

    /// Where the next value is to be written.
    #[inline]
    pub(crate) fn values(&mut self, rows: Rows<'_>) -> &mut Vec<u8> {
        if self.run.rows > 0 {
            self.copy_run(rows);
        }
        if self.values.bytes.capacity() == 0 {
            self.values.bytes.reserve(self.value_bytes);
        }
        &mut self.values.bytes
    }

    /// Takes the value of an input row as the next value.
    #[inline]
    pub(crate) fn push_value_of(&mut self, rows: Rows<'_>, row: u32) {
        if self.run.rows > 0 && self.run.first_row + self.run.rows == row {
            self.run.rows += 1;
        } else {
            self.copy_run(rows);
            self.run = Run { first_row: row, rows: 1 };
        }
    }

    /// Passes on the next input row as it is, if all so far were passed on: the short way through.
    #[inline]
    pub(crate) fn push_plain(&mut self, row: u32) -> bool {
        let next = self.plain && self.run.rows > 0 && self.run.rows == row && self.count == row;
        if next {
            self.run.rows += 1;
            self.count += 1;
        }
        next
    }

    /// Copies the values of the run.
    fn copy_run(&mut self, rows: Rows<'_>) {
        let Run { first_row, rows: count } = std::mem::take(&mut self.run);
        let (Rows::Batch(Columns { values, .. }), 1..) = (rows, count) else {
            return;
        };
        let (first, next) = (first_row as usize, (first_row + count) as usize);
        let start = if first == 0 { 0 } else { values.ends[first - 1] };
        let offset = end(self.values.bytes.len());
        let ends = &values.ends[first..next];
        self.values.bytes.extend_from_slice(&values.bytes[start as usize..values.ends[next - 1] as usize]);
        self.values.ends.extend(ends.iter().map(|end| end - start + offset));
    }

    /// Ends the value that was written.
    #[inline]
    pub(crate) fn end_value(&mut self) {
        self.values.ends.push(end(self.values.bytes.len()));
    }

    /// Drops what was written of a value that came to nothing.
    pub(crate) fn abandon_value(&mut self) {
        let count = self.values.ends.len();
        truncate(&mut self.values, count);
    }

    /// Adds the record whose value is already there. Returns its number.
    #[inline]
    pub(crate) fn push(&mut self, rows: Rows<'_>, row: u32, emit: &Emit<'_>, route: u8, null_value: bool, now: i64) -> u32 {
        let index = self.count;
        let without_rows = matches!(rows, Rows::None);
        self.plain &= emit.plain_row() == Some(index);
        let mut nulls = if null_value { NULL_VALUE } else { 0 };
        if !(matches!(emit.key, Key::AsInput) && self.keys.ends.is_empty()) || without_rows {
            nulls |= self.push_key(rows, row, emit.key);
        }
        if emit.timestamp.is_some() || !self.timestamps.is_empty() || without_rows {
            self.fill_timestamps(rows, now);
            self.timestamps.push(emit.timestamp.unwrap_or_else(|| rows.timestamp(row, now)));
        }
        if nulls != 0 || !self.nulls.is_empty() {
            self.nulls.resize(index as usize, 0);
            self.nulls.push(nulls);
        }
        if !without_rows && (row != index || !self.origins.is_empty()) {
            if self.origins.is_empty() {
                self.origins.extend(0..index);
            }
            self.origins.push(row);
        }
        if route != 0 || !self.routes.is_empty() {
            self.routes.resize(index as usize, 0);
            self.routes.push(route);
        }
        self.count += 1;
        index
    }

    /// Adds a key that is not left out, and returns the null bit.
    fn push_key(&mut self, rows: Rows<'_>, row: u32, key: Key<'_>) -> u8 {
        for index in self.keys.ends.len()..self.count as usize {
            let key = rows.key(self.origin(index));
            if key.is_none() {
                self.nulls.resize(self.count as usize, 0);
                self.nulls[index] |= NULL_KEY;
            }
            push_entry(&mut self.keys, key.unwrap_or_default());
        }
        let key = match key {
            Key::AsInput => rows.key(row),
            Key::Null => None,
            Key::Given(key) => Some(key),
        };
        push_entry(&mut self.keys, key.unwrap_or_default());
        if key.is_none() { NULL_KEY } else { 0 }
    }

    fn fill_timestamps(&mut self, rows: Rows<'_>, now: i64) {
        for index in self.timestamps.len()..self.count as usize {
            self.timestamps.push(rows.timestamp(self.origin(index), now));
        }
    }

    /// The row that an emitted record comes from.
    fn origin(&self, index: usize) -> u32 {
        self.origins.get(index).copied().unwrap_or_else(|| end(index))
    }

    pub(crate) fn edit_header(&mut self, row: u32, name: &str, operation: u8, value: Option<&[u8]>) {
        self.headers.push(HeaderEdit { row, name: name.to_owned(), operation, value: value.map(<[u8]>::to_vec) });
    }

    pub(crate) fn push_timer(&mut self, key: &[u8], clock: u8, time: i64, tag: u32, operation: u8) {
        let before = self.timers.times.len();
        push_entry(&mut self.timers.keys, key);
        self.timers.times.push(time);
        self.timers.tags.push(tag);
        self.timers.clocks.push(clock);
        if operation != 0 || !self.timers.operations.is_empty() {
            self.timers.operations.resize(before, 0);
            self.timers.operations.push(operation);
        }
    }

    /// Moves the records out. `input` is the column of the input's values: if it was passed on as a whole it is taken.
    pub(crate) fn take_emitted(&mut self, input: Option<Column>) -> Emitted {
        if let Some(values) = input {
            let Run { first_row, rows } = self.run;
            if first_row == 0 && rows == self.count && rows as usize == values.ends.len() {
                self.values = values;
                self.run = Run::default();
            } else {
                let empty = empty_column();
                self.copy_run(Rows::Batch(Columns { count: 0, timestamps: &[], keys: &empty, values: &values, nulls: &[] }));
            }
        }
        self.plain = true;
        self.value_bytes = self.values.bytes.len();
        Emitted {
            records: Batch {
                count: std::mem::take(&mut self.count),
                timestamps: std::mem::take(&mut self.timestamps),
                keys: std::mem::replace(&mut self.keys, empty_column()),
                values: std::mem::replace(&mut self.values, empty_column()),
                nulls: std::mem::take(&mut self.nulls),
            },
            origins: std::mem::take(&mut self.origins),
            routes: std::mem::take(&mut self.routes),
            headers: std::mem::take(&mut self.headers),
            failures: std::mem::take(&mut self.failures),
        }
    }

    /// Moves the timers out.
    pub(crate) fn take_timers(&mut self) -> Timers {
        std::mem::replace(&mut self.timers, empty_timers())
    }
}
