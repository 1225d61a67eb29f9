//! Exported state, as a host keeps it.

use std::collections::BTreeSet;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bindings::Entries;
use crate::output::{empty_column, push_entry};
use crate::record::entry;
use crate::state::{decode, encode, split_stamp};

/// A timer as the host keeps it: ordered by clock and time, in which order timers fire.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SetTimer {
    pub(super) clock: u8,
    pub(super) time: i64,
    pub(super) key: Vec<u8>,
    pub(super) tag: u32,
}

/// What a plugin exported, with the timers and clocks that a host keeps beside it.
///
/// Can also be made by hand, to test what a plugin does with state of an older version:
///
/// ```
/// use waterwheel_plugin::testing::Snapshot;
///
/// let old = Snapshot::default().with_value("totals", 1, "anna", &17_u64);
/// assert_eq!(old.value::<u64>("totals", "anna"), Some(17));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    pub(super) chunks: Vec<Entries>,
    pub(super) timers: BTreeSet<SetTimer>,
    pub(super) clocks: Option<(i64, i64)>,
}

/// One entry of a [`Snapshot`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateEntry {
    /// The state's name.
    pub state: String,
    /// The version of the value.
    pub version: u32,
    /// The key.
    pub key: Vec<u8>,
    /// The encoded subkey; `None` where the state has one value a key.
    pub subkey: Option<Vec<u8>>,
    /// The encoded value, in a state with a time to live behind ten bytes with the time of its last write; `None`: the entry is gone.
    pub value: Option<Vec<u8>>,
}

impl Snapshot {
    /// All entries in order; a removal has no value, and one of a whole key has an empty subkey.
    #[must_use]
    pub fn entries(&self) -> Vec<StateEntry> {
        let mut all = Vec::new();
        for chunk in &self.chunks {
            for row in 0..chunk.keys.ends.len() {
                let removed = chunk.removed.get(row).is_some_and(|removed| *removed != 0);
                all.push(StateEntry {
                    state: chunk.state.clone(),
                    version: chunk.version,
                    key: entry(&chunk.keys, row).to_vec(),
                    subkey: (!chunk.subkeys.ends.is_empty()).then(|| entry(&chunk.subkeys, row).to_vec()),
                    value: (!removed).then(|| entry(&chunk.values, row).to_vec()),
                });
            }
        }
        all
    }

    /// The value of a key in a state that has one value a key; the last one, if several are there.
    ///
    /// # Panics
    /// When the value cannot be read as a `T`, which fails the test.
    #[must_use]
    #[track_caller]
    pub fn value<T: DeserializeOwned>(&self, state: &str, key: impl AsRef<[u8]>) -> Option<T> {
        let last = self.entries().into_iter().rev().find(|each| each.state == state && each.key == key.as_ref());
        last?.value.map(|value| decode(split_stamp(&value).1).expect("the value can be read as this type"))
    }

    /// Adds a value to a state that has one value a key.
    ///
    /// # Panics
    /// When the value cannot be encoded, which fails the test.
    #[must_use]
    #[track_caller]
    pub fn with_value<T: Serialize>(self, state: &str, version: u32, key: impl AsRef<[u8]>, value: &T) -> Self {
        self.with(state, version, key.as_ref(), None, &encode(value).expect("the value can be encoded"))
    }

    /// Adds an entry to a state that has a map a key.
    ///
    /// # Panics
    /// When subkey or value cannot be encoded, which fails the test.
    #[must_use]
    #[track_caller]
    pub fn with_map_entry<K, V>(self, state: &str, version: u32, key: impl AsRef<[u8]>, subkey: &K, value: &V) -> Self
    where
        K: Serialize + ?Sized,
        V: Serialize,
    {
        let subkey = encode(subkey).expect("the subkey can be encoded");
        self.with(state, version, key.as_ref(), Some(&subkey), &encode(value).expect("the value can be encoded"))
    }

    fn with(mut self, state: &str, version: u32, key: &[u8], subkey: Option<&[u8]>, value: &[u8]) -> Self {
        let mut chunk = Entries {
            state: state.to_owned(),
            version,
            keys: empty_column(),
            subkeys: empty_column(),
            values: empty_column(),
            removed: Vec::new(),
        };
        push_entry(&mut chunk.keys, key);
        push_entry(&mut chunk.values, value);
        if let Some(subkey) = subkey {
            push_entry(&mut chunk.subkeys, subkey);
        }
        self.chunks.push(chunk);
        self
    }

    /// Adds a later snapshot of changes to this one, as a host adds a delta to a base.
    pub fn append(&mut self, changed: Self) {
        self.chunks.extend(changed.chunks);
        self.timers = changed.timers;
        self.clocks = changed.clocks.or(self.clocks);
    }
}
