//! A base and its deltas, read as one: the newest entry of a key counts, and what is gone is not there.

use super::{Entries, EntryRef, StateFileError, StateWriter, read_chunks};
use crate::record::key_group;
use bytes::Bytes;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use xxhash_rust::xxh3::Xxh3Builder;

type Keys = HashSet<Box<[u8]>, Xxh3Builder>;

/// What newer files say about the keys of one state, and so hides older entries.
#[derive(Debug, Default)]
struct Hidden {
    /// Keys of which a newer file removed everything.
    keys: Keys,
    /// Key and subkey of entries that a newer file sets or removes.
    entries: Keys,
}

/// Reads the files of one or more subtasks' chains, the entries of some key groups only, each entry once and as it was at the checkpoint.
#[derive(Debug)]
pub struct StateReader {
    /// Chains that are still to be read, each newest file first, with names for errors.
    chains: VecDeque<Vec<(String, Bytes)>>,
    groups: Range<u16>,
    max_parallelism: u16,
    current: Option<Chain>,
}

#[derive(Debug, Default)]
struct Chain {
    hidden: HashMap<String, Hidden>,
    ready: VecDeque<Entries>,
}

impl StateReader {
    /// A reader of chains, each a base and deltas, oldest first, under names that errors tell. Entries whose key is in `groups` are read.
    pub fn new(chains: Vec<Vec<(String, Bytes)>>, groups: Range<u16>, max_parallelism: u16) -> Self {
        let chains = chains.into_iter().map(|chain| chain.into_iter().rev().collect()).collect();
        Self { chains, groups, max_parallelism, current: None }
    }

    /// Nothing to read: the start of a new job.
    pub fn empty() -> Self {
        Self::new(Vec::new(), 0..0, 1)
    }

    /// The next entries, none at the end. None of them is gone.
    ///
    /// # Errors
    /// The name of a damaged file, and where in it.
    pub fn next_entries(&mut self) -> Result<Option<Entries>, (String, StateFileError)> {
        loop {
            if let Some(entries) = self.current.as_mut().and_then(|chain| chain.ready.pop_front()) {
                return Ok(Some(entries));
            }
            let Some(files) = self.chains.front_mut() else { return Ok(None) };
            if files.is_empty() {
                self.chains.pop_front();
                self.current = None;
                continue;
            }
            let (name, file) = files.remove(0);
            let oldest = files.is_empty();
            let chain = self.current.get_or_insert_default();
            read_file(chain, &file, oldest, &self.groups, self.max_parallelism).map_err(|error| (name, error))?;
        }
    }
}

/// Reads one file of a chain, after all newer ones.
fn read_file(chain: &mut Chain, file: &Bytes, oldest: bool, groups: &Range<u16>, max_parallelism: u16) -> Result<(), StateFileError> {
    let whole = groups.start == 0 && groups.end == max_parallelism;
    let mut chunks = Vec::new();
    for entries in read_chunks(file) {
        let entries = entries?;
        let nothing_hidden = chain.hidden.get(&entries.state).is_none_or(|hidden| hidden.keys.is_empty() && hidden.entries.is_empty());
        if whole && nothing_hidden && entries.removed.is_empty() {
            chain.ready.push_back(entries.clone());
        } else {
            let in_groups = |entry: &EntryRef<'_>| whole || groups.contains(&key_group(entry.key, max_parallelism));
            chain.ready.push_back(visible(&entries, chain.hidden.get(&entries.state), in_groups));
        }
        if !oldest {
            chunks.push(entries);
        }
    }
    // Only after the whole file: a removal of a key and new entries of that key may stand in one file.
    for entries in &chunks {
        let hidden = chain.hidden.entry(entries.state.clone()).or_default();
        entries.iter().for_each(|entry| hidden.hide(&entry));
    }
    chain.ready.retain(|entries| !entries.is_empty());
    Ok(())
}

fn visible(entries: &Entries, hidden: Option<&Hidden>, in_groups: impl Fn(&EntryRef<'_>) -> bool) -> Entries {
    let mut shown = Entries::of(entries.state.clone(), entries.version);
    let mut name = Vec::new();
    for entry in entries.iter() {
        let gone = entry.value.is_none() || hidden.is_some_and(|hidden| hidden.hides(&entry, &mut name));
        if !gone && in_groups(&entry) {
            shown.push(entry);
        }
    }
    shown
}

impl Hidden {
    fn hide(&mut self, entry: &EntryRef<'_>) {
        if entry.removes_key() {
            self.keys.insert(entry.key.into());
        } else {
            let mut name = Vec::new();
            entry_name(entry, &mut name);
            self.entries.insert(name.into());
        }
    }

    fn hides(&self, entry: &EntryRef<'_>, name: &mut Vec<u8>) -> bool {
        if self.keys.contains(entry.key) {
            return true;
        }
        entry_name(entry, name);
        self.entries.contains(name.as_slice())
    }
}

/// Key and subkey as one byte string; the length in front keeps them apart.
fn entry_name(entry: &EntryRef<'_>, name: &mut Vec<u8>) {
    name.clear();
    name.extend_from_slice(&(entry.key.len() as u64).to_le_bytes());
    name.extend_from_slice(entry.key);
    name.extend_from_slice(entry.subkey.unwrap_or_default());
}

/// Folds a base and its deltas, oldest first, into one base.
///
/// # Errors
/// The name of a damaged file, and where in it.
pub fn merge(files: Vec<(String, Bytes)>) -> Result<Bytes, (String, StateFileError)> {
    let mut reader = StateReader::new(vec![files], 0..1, 1);
    let mut writer = StateWriter::default();
    while let Some(entries) = reader.next_entries()? {
        writer.write(&entries);
    }
    Ok(writer.finish())
}
