//! The records and timers that a keyed operator leaves to the error policy. The list is part of its snapshot, so that a replay by another
//! process leaves out the same.

use super::isolation::{Condemned, ItemId};
use crate::record::{Batch, KeyGroups, Origin, SplitTable};
use crate::state::timers::TimerColumns;
use crate::state::{Entries, EntryRef, StateWriter};
use indexmap::IndexMap;
use std::collections::{HashMap, HashSet};
use xxhash_rust::xxh3::{Xxh3, Xxh3Builder, xxh3_64};

/// The state that the list is stored as: a record's or timer's key, its hash as the subkey, JSON as the value.
pub(super) const STATE: &str = "waterwheel.condemned";
const VERSION: u32 = 1;

/// How many are remembered. Each cost two restarts; the oldest lie far behind the sources' positions.
const MAX_CONDEMNED: usize = 1024;

/// Knows records and timers by hashes that mean the same in every process.
#[derive(Debug)]
pub(super) struct Identities {
    split_table: SplitTable,
    splits: HashMap<u32, u64, Xxh3Builder>,
}

impl Identities {
    pub(super) fn new(split_table: SplitTable) -> Self {
        Self { split_table, splits: HashMap::default() }
    }

    pub(super) fn of_record(&mut self, batch: &Batch, row: usize) -> ItemId {
        let Identities { split_table, splits } = self;
        let record = batch.row(row);
        let split = splits.entry(record.origin.split).or_insert_with(|| {
            split_table.place(record.origin).map_or(0, |place| xxh3_64(format!("{}\0{}", place.source, place.split).as_bytes()))
        });
        let mut hash = Xxh3::with_seed(*split);
        hash.update(b"record");
        hash.update(&record.origin.position.to_le_bytes());
        for part in [record.key, record.value] {
            hash.update(&[u8::from(part.is_none())]);
            let bytes = part.unwrap_or_default();
            hash.update(&(bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        }
        hash.digest()
    }

    pub(super) fn of_records(&mut self, batch: &Batch) -> Vec<ItemId> {
        (0..batch.len()).map(|row| self.of_record(batch, row)).collect()
    }
}

pub(super) fn of_timer(timers: &TimerColumns, index: usize) -> ItemId {
    let mut hash = Xxh3::new();
    hash.update(b"timer");
    hash.update(&timers.times[index].to_le_bytes());
    hash.update(&timers.tags[index].to_le_bytes());
    hash.update(&[timers.clocks[index]]);
    hash.update(timers.keys.get(index));
    hash.digest()
}

pub(super) fn of_timers(timers: &TimerColumns) -> Vec<ItemId> {
    (0..timers.len()).map(|index| of_timer(timers, index)).collect()
}

/// The list of one subtask.
#[derive(Debug)]
pub(super) struct CondemnedList {
    split_table: SplitTable,
    entries: IndexMap<ItemId, Condemned>,
    /// Where records of the list were read: the quick look that spares all other records the hash.
    origins: HashSet<Origin, Xxh3Builder>,
    /// Whether the list differs from what the last snapshot has.
    added: Vec<ItemId>,
    removed: Vec<Condemned>,
}

impl CondemnedList {
    pub(super) fn new(split_table: SplitTable) -> Self {
        let (entries, origins) = (IndexMap::new(), HashSet::default());
        Self { split_table, entries, origins, added: Vec::new(), removed: Vec::new() }
    }

    /// Takes what earlier attempts of this process found, as far as it is this subtask's.
    pub(super) fn add_found(&mut self, found: Vec<Condemned>, key_groups: &KeyGroups, subtask: u32) {
        for condemned in found {
            if key_groups.subtask(&condemned.key) == subtask as usize && !self.entries.contains_key(&condemned.id) {
                self.added.push(condemned.id);
                self.insert(condemned);
            }
        }
    }

    fn insert(&mut self, condemned: Condemned) {
        let origin = condemned
            .place
            .as_ref()
            .map_or(Origin::NONE, |place| Origin { split: self.split_table.number(&place.source, &place.split), position: place.position });
        self.origins.insert(origin);
        self.entries.insert(condemned.id, condemned);
        if self.entries.len() > MAX_CONDEMNED
            && let Some((_, oldest)) = self.entries.shift_remove_index(0)
        {
            self.added.retain(|id| *id != oldest.id);
            self.removed.push(oldest);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Why a record is left out, if it is.
    pub(super) fn reason_for_record(&self, batch: &Batch, row: usize, identities: &mut Identities) -> Option<&str> {
        if !self.origins.contains(&batch.origins()[row]) {
            return None;
        }
        self.entries.get(&identities.of_record(batch, row)).map(|condemned| condemned.reason.as_str())
    }

    /// Why a timer is left out, if it is.
    pub(super) fn reason_for_timer(&self, timers: &TimerColumns, index: usize) -> Option<&str> {
        self.entries.get(&of_timer(timers, index)).map(|condemned| condemned.reason.as_str())
    }

    /// Writes what changed since the last snapshot.
    pub(super) fn snapshot(&mut self, state: &mut StateWriter) {
        let mut entries = Entries::of(STATE, VERSION);
        self.removed.drain(..).for_each(|condemned| push(&mut entries, &condemned, true));
        let added = self.added.drain(..).filter_map(|id| self.entries.get(&id));
        added.for_each(|condemned| push(&mut entries, condemned, false));
        state.write(&entries);
    }

    /// Writes the whole list.
    pub(super) fn snapshot_all(&self, state: &mut StateWriter) {
        let mut entries = Entries::of(STATE, VERSION);
        self.entries.values().for_each(|condemned| push(&mut entries, condemned, false));
        state.write(&entries);
    }

    /// Takes the list of a checkpoint.
    pub(super) fn restore(&mut self, entries: &Entries) -> Result<(), String> {
        if entries.version != VERSION {
            return Err(format!("the list of condemned records is of version {}, and this host knows version {VERSION}", entries.version));
        }
        for value in entries.iter().filter_map(|entry| entry.value) {
            let condemned: Condemned =
                serde_json::from_slice(value).map_err(|error| format!("the list of condemned records is damaged: {error}"))?;
            self.added.retain(|id| *id != condemned.id);
            self.insert(condemned);
        }
        Ok(())
    }
}

fn push(entries: &mut Entries, condemned: &Condemned, removed: bool) {
    let value = serde_json::to_vec(condemned).expect("invariant: strings, numbers and bytes are always JSON");
    let subkey = condemned.id.to_be_bytes();
    entries.push(EntryRef { key: &condemned.key, subkey: Some(&subkey), value: (!removed).then_some(value.as_slice()) });
}
