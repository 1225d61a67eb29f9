//! What a plugin is given: records and fired timers, as borrowed views into the columns of a batch.

use std::fmt;

use crate::bindings::{Batch, Column};
use crate::host::{self, Header, Place};

/// The bit of a record's byte in `nulls` that says that its key is null.
pub(crate) const NULL_KEY: u8 = 1;
/// The bit that says that its value is null.
pub(crate) const NULL_VALUE: u8 = 2;

/// The entry `row` of a column.
///
/// The host has checked a column's ends before it handed it over.
#[inline]
pub(crate) fn entry(column: &Column, row: usize) -> &[u8] {
    let start = if row == 0 { 0 } else { column.ends[row - 1] as usize };
    &column.bytes[start..column.ends[row] as usize]
}

/// The columns of an input batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Columns<'a> {
    pub(crate) count: u32,
    pub(crate) timestamps: &'a [i64],
    pub(crate) keys: &'a Column,
    pub(crate) values: &'a Column,
    pub(crate) nulls: &'a [u8],
}

impl<'a> Columns<'a> {
    #[inline]
    pub(crate) fn of(batch: &'a Batch) -> Self {
        let Batch { count, timestamps, keys, values, nulls } = batch;
        Self { count: *count, timestamps, keys, values, nulls }
    }
}

/// The input rows of a call: what a left-out column of the output refers to. There are none in `finish`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rows<'a> {
    Batch(Columns<'a>),
    Fired { keys: &'a Column, times: &'a [i64] },
    None,
}

impl<'a> Rows<'a> {
    #[inline]
    pub(crate) fn key(self, row: u32) -> Option<&'a [u8]> {
        match self {
            Self::Batch(columns) => {
                let null = columns.nulls.get(row as usize).is_some_and(|bits| bits & NULL_KEY != 0);
                (!null).then(|| entry(columns.keys, row as usize))
            }
            Self::Fired { keys, .. } => Some(entry(keys, row as usize)),
            Self::None => None,
        }
    }

    #[inline]
    pub(crate) fn timestamp(self, row: u32, otherwise: i64) -> i64 {
        match self {
            Self::Batch(columns) => columns.timestamps[row as usize],
            Self::Fired { times, .. } => times[row as usize],
            Self::None => otherwise,
        }
    }
}

/// One input record. Key and value are slices of the batch: nothing is copied, and what is not asked for is not looked at.
///
/// A null key or value is `None`, and an empty one is `Some(b"")`; a record with a null value is a tombstone.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    columns: &'a Columns<'a>,
    row: u32,
    input: u32,
}

impl fmt::Debug for Record<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, value, timestamp) = (self.key(), self.value(), self.timestamp());
        let mut shown = formatter.debug_struct("Record");
        shown
            .field("key", &key)
            .field("value", &value)
            .field("timestamp", &timestamp)
            .field("row", &self.row)
            .field("input", &self.input)
            .finish()
    }
}

impl<'a> Record<'a> {
    #[inline]
    pub(crate) fn of(columns: &'a Columns<'a>, row: u32, input: u32) -> Self {
        Self { columns, row, input }
    }

    #[inline]
    pub(crate) fn row(&self) -> u32 {
        self.row
    }

    #[inline]
    fn is_null(&self, bit: u8) -> bool {
        self.columns.nulls.get(self.row as usize).is_some_and(|bits| bits & bit != 0)
    }

    #[inline]
    pub(crate) fn is_tombstone(&self) -> bool {
        self.is_null(NULL_VALUE)
    }

    /// The key. In a keyed plugin it is what the job's `key-by` computed, and never `None`.
    #[must_use]
    #[inline]
    pub fn key(&self) -> Option<&'a [u8]> {
        (!self.is_null(NULL_KEY)).then(|| entry(self.columns.keys, self.row as usize))
    }

    /// The value; `None` for a tombstone.
    #[must_use]
    #[inline]
    pub fn value(&self) -> Option<&'a [u8]> {
        (!self.is_null(NULL_VALUE)).then(|| entry(self.columns.values, self.row as usize))
    }

    /// Event time in milliseconds since the Unix epoch.
    #[must_use]
    #[inline]
    pub fn timestamp(&self) -> i64 {
        self.columns.timestamps[self.row as usize]
    }

    /// The index of the operator's input that the record came from, in the order of the plugin's `INPUTS`; 0 where there is one input.
    #[must_use]
    #[inline]
    pub fn input(&self) -> u32 {
        self.input
    }

    /// All headers in order, repeated names included. Headers stay on the host: each call fetches and copies them.
    #[must_use]
    pub fn headers(&self) -> Vec<Header> {
        host::headers(self.row)
    }

    /// The value of the last header of this name, as Kafka's clients have it. `None`: there is none; `Some(None)`: its value is null.
    /// Fetches all headers.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<Option<Vec<u8>>> {
        self.headers().into_iter().rev().find(|(each, _)| each == name).map(|(_, value)| value)
    }

    /// Where the record was read, if it was read and the host still knows.
    #[must_use]
    pub fn origin(&self) -> Option<Place> {
        host::origin(self.row)
    }
}
