//! The entries of one step of an export.

use super::codec::{Shown, encode_into, encode_stamp_into};
use crate::bindings::{Column, Entries};
use crate::output::{empty_column, end, push_entry};
use serde::Serialize;

/// The most that a chunk reserves ahead, in bytes; one that grows larger grows by itself.
const RESERVED_BYTES: usize = 1 << 20;

/// Where an export stands within a state: the next slot, or the next of the list of changes.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    pub(crate) position: usize,
}

/// Entries of one state, up to about so many bytes.
#[derive(Debug)]
pub(crate) struct Chunk {
    keys: Column,
    subkeys: Column,
    values: Column,
    removed: Vec<u8>,
    max_bytes: usize,
}

fn reserved(bytes: usize) -> Column {
    Column { ends: Vec::with_capacity(bytes / 16), bytes: Vec::with_capacity(bytes) }
}

impl Chunk {
    pub(crate) fn new(max_bytes: usize) -> Self {
        let share = max_bytes.min(RESERVED_BYTES) / 2;
        Self { keys: reserved(share), subkeys: empty_column(), values: reserved(share), removed: Vec::new(), max_bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.ends.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.keys.bytes.len() + self.subkeys.bytes.len() + self.values.bytes.len() >= self.max_bytes
    }

    /// Adds an entry that is there, with the time that its life began at if it has one.
    pub(crate) fn put<T: Serialize>(
        &mut self,
        state: &str,
        key: &[u8],
        subkey: Option<&[u8]>,
        value: &T,
        stamp: Option<i64>,
    ) -> Result<(), String> {
        if let Some(stamp) = stamp {
            encode_stamp_into(&mut self.values.bytes, stamp);
        }
        encode_into(&mut self.values.bytes, value)
            .map_err(|reason| format!("state `{state}`, key {}: the value cannot be encoded: {reason}", Shown(key)))?;
        self.values.ends.push(end(self.values.bytes.len()));
        self.add(key, subkey, 0);
        Ok(())
    }

    /// Adds an entry that is gone; an empty subkey stands for the whole key.
    pub(crate) fn remove(&mut self, key: &[u8], subkey: Option<&[u8]>) {
        push_entry(&mut self.values, &[]);
        self.add(key, subkey, 1);
    }

    fn add(&mut self, key: &[u8], subkey: Option<&[u8]>, removed: u8) {
        let before = self.keys.ends.len();
        push_entry(&mut self.keys, key);
        if let Some(subkey) = subkey {
            push_entry(&mut self.subkeys, subkey);
        }
        if removed != 0 || !self.removed.is_empty() {
            self.removed.resize(before, 0);
            self.removed.push(removed);
        }
    }

    pub(crate) fn into_entries(self, state: &str, version: u32) -> Entries {
        Entries { state: state.to_owned(), version, keys: self.keys, subkeys: self.subkeys, values: self.values, removed: self.removed }
    }
}
