//! From a key to the number of its slot.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::current::is_equal;

/// Finds slots by key. Holds the hashes, and not the keys: they are in the slots, and `key_of` gives them.
#[derive(Debug, Default)]
pub(crate) struct KeyIndex {
    /// (hash, slot)
    table: HashTable<(u32, u32)>,
}

/// The table takes its bucket from one end of the number and its tag from the other, so both halves carry the hash.
fn wide(hash: u32) -> u64 {
    (u64::from(hash) << 32) | u64::from(hash)
}

impl KeyIndex {
    #[inline]
    pub(crate) fn find<'a>(&self, hash: u32, key: &[u8], key_of: impl Fn(u32) -> &'a [u8]) -> Option<u32> {
        self.table.find(wide(hash), |(each, slot)| *each == hash && is_equal(key_of(*slot), key)).map(|(_, slot)| *slot)
    }

    /// Finds a key or, if it is not there, adds it with this slot, in one search.
    pub(crate) fn find_or_insert<'a>(&mut self, hash: u32, key: &[u8], slot: u32, key_of: impl Fn(u32) -> &'a [u8]) -> Option<u32> {
        let is_it = |(each, slot): &(u32, u32)| *each == hash && is_equal(key_of(*slot), key);
        match self.table.entry(wide(hash), is_it, |(hash, _)| wide(*hash)) {
            Entry::Occupied(found) => Some(found.get().1),
            Entry::Vacant(place) => {
                place.insert((hash, slot));
                None
            }
        }
    }

    /// Adds a slot; its key must not be there.
    pub(crate) fn insert(&mut self, hash: u32, slot: u32) {
        self.table.insert_unique(wide(hash), (hash, slot), |(hash, _)| wide(*hash));
    }

    pub(crate) fn remove(&mut self, hash: u32, slot: u32) {
        if let Ok(found) = self.table.find_entry(wide(hash), |(_, each)| *each == slot) {
            found.remove();
        }
    }

    pub(crate) fn reserve(&mut self, more: usize) {
        self.table.reserve(more, |(hash, _)| wide(*hash));
    }
}
