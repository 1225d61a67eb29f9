//! Which entries of older files do not count any more.

use super::{Entries, EntryRef};
use hashbrown::HashTable;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// What newer files say about the entries of one state, and so hides older ones. Millions of entries are looked up and added, so the table
/// points into the columns of the files, and allocates nothing for an entry.
#[derive(Debug, Default)]
pub(super) struct Hidden {
    chunks: Vec<Entries>,
    /// The entries that newer files set or remove.
    table: HashTable<Place>,
    /// Whether one of them removes all of its key.
    removes_keys: bool,
}

/// An entry of a newer file.
#[derive(Clone, Copy, Debug)]
struct Place {
    hash: u64,
    chunk: u32,
    row: u32,
}

/// A row that newer files do not hide, and its hash.
pub(super) type Row = (u32, u64);

/// The entries of these rows that are there.
pub(super) fn shown(entries: &Entries, rows: &[Row]) -> Entries {
    if rows.len() == entries.len() && entries.removed.is_empty() {
        return entries.clone();
    }
    let mut shown = Entries::of(entries.state.clone(), entries.version);
    let left = rows.iter().map(|(row, _)| entries.get(*row as usize));
    left.filter(|entry| entry.value.is_some()).for_each(|entry| shown.push(entry));
    shown
}

impl Hidden {
    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// The rows of an older file that are not hidden.
    pub(super) fn rows_left(&self, entries: &Entries, in_groups: impl Fn(&EntryRef<'_>) -> bool) -> Vec<Row> {
        let mut rows = Vec::with_capacity(entries.len());
        for (row, entry) in (0..).zip(entries.iter()) {
            let hash = hash(entry.key, subkey(&entry));
            if in_groups(&entry) && !self.hides(&entry, hash) {
                rows.push((row, hash));
            }
        }
        rows
    }

    fn hides(&self, entry: &EntryRef<'_>, hash_of_entry: u64) -> bool {
        let subkey = subkey(entry);
        if self.find(hash_of_entry, entry.key, subkey).is_some() {
            return true;
        }
        let may_be_gone = self.removes_keys && !subkey.is_empty();
        may_be_gone && self.find(hash(entry.key, &[]), entry.key, &[]).is_some_and(|newer| newer.removes_key())
    }

    fn find(&self, hash: u64, key: &[u8], of_key: &[u8]) -> Option<EntryRef<'_>> {
        let entry = |place: &Place| self.chunks[place.chunk as usize].get(place.row as usize);
        let is_it = |entry: &EntryRef<'_>| entry.key == key && subkey(entry) == of_key;
        self.table.find(hash, |place| place.hash == hash && is_it(&entry(place))).map(entry)
    }

    /// Hides what is older than these rows.
    pub(super) fn hide(&mut self, entries: Entries, rows: &[Row]) {
        let chunk = u32::try_from(self.chunks.len()).expect("invariant: fewer than 2^32 chunks are in memory");
        self.table.reserve(rows.len(), |place| place.hash);
        for (row, hash) in rows.iter().copied() {
            self.removes_keys |= entries.get(row as usize).removes_key();
            self.table.insert_unique(hash, Place { hash, chunk, row }, |place| place.hash);
        }
        self.chunks.push(entries);
    }
}

/// The subkey; empty where there is none, and where an entry removes all of a key.
fn subkey<'a>(entry: &EntryRef<'a>) -> &'a [u8] {
    entry.subkey.unwrap_or_default()
}

fn hash(key: &[u8], subkey: &[u8]) -> u64 {
    let hash = xxh3_64(key);
    if subkey.is_empty() { hash } else { xxh3_64_with_seed(subkey, hash) }
}
