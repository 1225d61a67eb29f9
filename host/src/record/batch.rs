//! The batch: records in columns, from the source to the sink.

use super::{Column, Headers, Origin};

const KEY_IS_NULL: u8 = 1;
const VALUE_IS_NULL: u8 = 2;

/// One record to append to a batch, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// The key; null is not empty.
    pub key: Option<&'a [u8]>,
    /// The value; null (a tombstone) is not empty.
    pub value: Option<&'a [u8]>,
    /// Event time, milliseconds since the Unix epoch.
    pub timestamp: i64,
    /// Where it was read.
    pub origin: Origin,
}

/// Records in columns: timestamps, keys, values, nulls, and beside them headers and origins, which stay on the host.
///
/// Appending a record copies its bytes once; nothing is allocated for it once the columns have grown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    timestamps: Vec<i64>,
    keys: Column,
    values: Column,
    /// One byte a record, empty while no key and no value is null.
    nulls: Vec<u8>,
    origins: Vec<Origin>,
    headers: Headers,
}

/// The columns of a batch, taken apart: what an operator moves on without copying it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// Event times, milliseconds since the Unix epoch.
    pub timestamps: Vec<i64>,
    /// The keys; a null one is an empty entry.
    pub keys: Column,
    /// The values; a null one is an empty entry.
    pub values: Column,
    /// One byte a record (bit 0: the key is null, bit 1: the value is null); empty when nothing is null.
    pub nulls: Vec<u8>,
    /// Where each record was read.
    pub origins: Vec<Origin>,
    /// The headers.
    pub headers: Headers,
}

/// Why columns do not make a batch: a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BatchFault(String);

impl Batch {
    /// An empty batch with room for `records` records of `bytes` bytes of values together.
    pub fn with_capacity(records: usize, bytes: usize) -> Self {
        Self {
            timestamps: Vec::with_capacity(records),
            keys: Column::with_capacity(records, 0),
            values: Column::with_capacity(records, bytes),
            origins: Vec::with_capacity(records),
            ..Self::default()
        }
    }

    /// Makes a batch of whole columns. `nulls` has one byte a record (bit 0: the key is null, bit 1: the value is null) or is empty.
    ///
    /// # Errors
    /// Columns of different lengths, or a byte in `nulls` with other bits.
    pub fn from_columns(
        timestamps: Vec<i64>,
        keys: Column,
        values: Column,
        nulls: Vec<u8>,
        origins: Vec<Origin>,
    ) -> Result<Self, BatchFault> {
        let count = timestamps.len();
        let lengths = [("keys", keys.len()), ("values", values.len()), ("origins", origins.len())];
        if let Some((name, length)) = lengths.into_iter().find(|(_, length)| *length != count) {
            return Err(BatchFault(format!("{name} has {length} entries for {count} records")));
        }
        if !nulls.is_empty() && nulls.len() != count {
            return Err(BatchFault(format!("nulls has {} entries for {count} records", nulls.len())));
        }
        // All at once, which is many at a time; which one it is matters only when there is one.
        let is_unknown = |bits: u8| bits & !(KEY_IS_NULL | VALUE_IS_NULL) != 0;
        if is_unknown(nulls.iter().fold(0, |all, bits| all | bits))
            && let Some(row) = nulls.iter().position(|bits| is_unknown(*bits))
        {
            return Err(BatchFault(format!("nulls has unknown bits at record {row}: {:#010b}", nulls[row])));
        }
        Ok(Self { timestamps, keys, values, nulls, origins, headers: Headers::default() })
    }

    /// Takes the batch apart.
    pub fn into_columns(self) -> Columns {
        let Self { timestamps, keys, values, nulls, origins, headers } = self;
        Columns { timestamps, keys, values, nulls, origins, headers }
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.timestamps.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.timestamps.is_empty()
    }

    /// Bytes of keys, values and headers.
    pub fn byte_len(&self) -> usize {
        self.keys.bytes().len() + self.values.bytes().len() + self.headers.byte_len()
    }

    /// Appends a record without headers.
    pub fn push(&mut self, row: Row<'_>) {
        self.push_with(row.key, row.timestamp, row.origin, |bytes| {
            bytes.extend_from_slice(row.value.unwrap_or_default());
        });
        if row.value.is_none() {
            self.mark_null(VALUE_IS_NULL);
        }
    }

    /// Appends a record whose value, which is not null, `write` appends to the buffer it is given: a value is made in place.
    pub fn push_with(&mut self, key: Option<&[u8]>, timestamp: i64, origin: Origin, write: impl FnOnce(&mut Vec<u8>)) {
        self.timestamps.push(timestamp);
        self.origins.push(origin);
        self.keys.push(key.unwrap_or_default());
        self.values.push_with(write);
        if !self.nulls.is_empty() {
            self.nulls.push(0);
        }
        if key.is_none() {
            self.mark_null(KEY_IS_NULL);
        }
    }

    /// Marks the key or the value of the last record as null.
    fn mark_null(&mut self, bit: u8) {
        self.nulls.resize(self.len(), 0);
        if let Some(last) = self.nulls.last_mut() {
            *last |= bit;
        }
    }

    /// Appends record `index` of another batch with its headers.
    pub fn push_from(&mut self, other: &Batch, index: usize) {
        self.headers.copy_row(self.len(), &other.headers, index);
        self.push(other.row(index));
    }

    /// Appends record `index` of another batch with its headers, under another key.
    pub fn push_keyed(&mut self, other: &Batch, index: usize, key: Option<&[u8]>) {
        self.headers.copy_row(self.len(), &other.headers, index);
        self.push(Row { key, ..other.row(index) });
    }

    /// Appends all records of another batch with their headers.
    pub fn append(&mut self, other: &Batch) {
        (0..other.len()).for_each(|index| self.push_from(other, index));
    }

    /// The records of a range, copied.
    #[must_use]
    pub fn slice(&self, rows: std::ops::Range<usize>) -> Self {
        let mut part = Self::default();
        rows.for_each(|index| part.push_from(self, index));
        part
    }

    /// The batch without some of its rows, which are in order.
    #[must_use]
    pub fn without(self, rows: &[usize]) -> Self {
        if rows.is_empty() {
            return self;
        }
        let mut kept = Self::default();
        (0..self.len()).filter(|row| rows.binary_search(row).is_err()).for_each(|row| kept.push_from(&self, row));
        kept
    }

    /// Gives record `index` another event time.
    ///
    /// # Panics
    /// Where there is no such record, as a slice does.
    pub fn set_timestamp(&mut self, index: usize, timestamp: i64) {
        self.timestamps[index] = timestamp;
    }

    /// Record `index`.
    pub fn row(&self, index: usize) -> Row<'_> {
        Row { key: self.key(index), value: self.value(index), timestamp: self.timestamps[index], origin: self.origins[index] }
    }

    /// All records in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = Row<'_>> {
        (0..self.len()).map(|index| self.row(index))
    }

    /// The key of record `index`, none when it is null.
    pub fn key(&self, index: usize) -> Option<&[u8]> {
        (!self.is_null(index, KEY_IS_NULL)).then(|| self.keys.get(index))
    }

    /// The value of record `index`, none when it is null.
    pub fn value(&self, index: usize) -> Option<&[u8]> {
        (!self.is_null(index, VALUE_IS_NULL)).then(|| self.values.get(index))
    }

    fn is_null(&self, index: usize, bit: u8) -> bool {
        self.nulls.get(index).is_some_and(|bits| bits & bit != 0)
    }

    /// Forgets all records and keeps the memory.
    pub fn clear(&mut self) {
        self.timestamps.clear();
        self.keys.clear();
        self.values.clear();
        self.nulls.clear();
        self.origins.clear();
        self.headers.clear();
    }

    /// Event times, milliseconds since the Unix epoch, one a record.
    pub fn timestamps(&self) -> &[i64] {
        &self.timestamps
    }

    /// The keys; a null one is an empty entry.
    pub fn keys(&self) -> &Column {
        &self.keys
    }

    /// The values; a null one is an empty entry.
    pub fn values(&self) -> &Column {
        &self.values
    }

    /// One byte a record (bit 0: the key is null, bit 1: the value is null); empty when nothing is null.
    pub fn nulls(&self) -> &[u8] {
        &self.nulls
    }

    /// Where each record was read.
    pub fn origins(&self) -> &[Origin] {
        &self.origins
    }

    /// The headers.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The headers, to append to.
    pub fn headers_mut(&mut self) -> &mut Headers {
        &mut self.headers
    }

    /// Replaces the keys, and which of them are null.
    ///
    /// # Errors
    /// Another number of keys than of records.
    pub fn replace_keys(&mut self, keys: Column, null: impl Fn(usize) -> bool) -> Result<(), BatchFault> {
        if keys.len() != self.len() {
            return Err(BatchFault(format!("{} keys for {} records", keys.len(), self.len())));
        }
        self.keys = keys;
        let bits = |index: usize, old: u8| old & VALUE_IS_NULL | if null(index) { KEY_IS_NULL } else { 0 };
        let nulls: Vec<u8> = (0..self.len()).map(|index| bits(index, self.nulls.get(index).copied().unwrap_or(0))).collect();
        self.nulls = if nulls.iter().all(|bits| *bits == 0) { Vec::new() } else { nulls };
        Ok(())
    }
}
