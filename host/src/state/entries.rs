//! Entries of one state in columns, as they cross the boundary to a plugin.

use crate::record::Column;

/// Entries of one state, all of one version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// The name of the state. Names that start with `waterwheel.` are the host's own.
    pub state: String,
    /// The version of the state's schema that the values were written with.
    pub version: u32,
    /// The keys.
    pub keys: Column,
    /// What stands within a key (a map's key, a list's position); empty for a state with one value a key.
    pub subkeys: Column,
    /// The values; an empty one for an entry that is gone.
    pub values: Column,
    /// One byte an entry, 1: it is gone (with an empty subkey in a state that has them: all of the key). Empty: none is.
    pub removed: Vec<u8>,
}

/// One of the entries, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRef<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The subkey; none in a state with one value a key.
    pub subkey: Option<&'a [u8]>,
    /// The value; none when the entry is gone.
    pub value: Option<&'a [u8]>,
}

impl EntryRef<'_> {
    /// Whether the entry says that all of its key is gone.
    pub fn removes_key(&self) -> bool {
        self.value.is_none() && self.subkey.is_none_or(<[u8]>::is_empty)
    }
}

/// Why columns do not make entries: a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("state {state:?}: {message}")]
pub struct EntriesFault {
    /// The state.
    pub state: String,
    /// What is wrong.
    pub message: String,
}

impl Entries {
    /// No entries yet, of a state.
    pub fn of(state: impl Into<String>, version: u32) -> Self {
        Self { state: state.into(), version, ..Self::default() }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Bytes of keys, subkeys and values.
    pub fn byte_len(&self) -> usize {
        self.keys.bytes().len() + self.subkeys.bytes().len() + self.values.bytes().len()
    }

    /// Entry `index`.
    pub fn get(&self, index: usize) -> EntryRef<'_> {
        let gone = self.removed.get(index).is_some_and(|removed| *removed == 1);
        EntryRef {
            key: self.keys.get(index),
            subkey: (!self.subkeys.is_empty()).then(|| self.subkeys.get(index)),
            value: (!gone).then(|| self.values.get(index)),
        }
    }

    /// All entries in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = EntryRef<'_>> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Appends an entry. A state either has subkeys in all of its entries or in none.
    pub fn push(&mut self, entry: EntryRef<'_>) {
        self.keys.push(entry.key);
        if let Some(subkey) = entry.subkey {
            self.subkeys.push(subkey);
        }
        self.values.push(entry.value.unwrap_or_default());
        if entry.value.is_none() || !self.removed.is_empty() {
            self.removed.resize(self.keys.len() - 1, 0);
            self.removed.push(u8::from(entry.value.is_none()));
        }
    }

    /// Checks that the columns are of one length and `removed` holds zeros and ones.
    ///
    /// # Errors
    /// What does not fit.
    pub fn check(&self) -> Result<(), EntriesFault> {
        let fault = |message: String| Err(EntriesFault { state: self.state.clone(), message });
        let count = self.keys.len();
        if self.values.len() != count {
            return fault(format!("{} values for {count} keys", self.values.len()));
        }
        if !self.subkeys.is_empty() && self.subkeys.len() != count {
            return fault(format!("{} subkeys for {count} keys", self.subkeys.len()));
        }
        if !self.removed.is_empty() && self.removed.len() != count {
            return fault(format!("removed has {} entries for {count} keys", self.removed.len()));
        }
        match self.removed.iter().find(|removed| **removed > 1) {
            Some(other) => fault(format!("removed holds {other}; an entry is there (0) or gone (1)")),
            None => Ok(()),
        }
    }
}
