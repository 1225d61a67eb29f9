//! The key in process, which all states of a plugin look at.

use std::cell::{Cell, Ref, RefCell};
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use smallvec::SmallVec;

use crate::bindings::Column;
use crate::output::empty_column;
use crate::record::entry;

/// A fixed seed: a component has no randomness of its own, and the memory limit bounds what a flood of colliding keys can do.
const HASHER: FixedState = FixedState::with_seed(0x5761_7465_7277_6865);

/// The 32 bits of a key's hash that the tables keep.
#[allow(clippy::cast_possible_truncation, reason = "the lower half is as good as any")]
#[inline]
pub(crate) fn hash(key: &[u8]) -> u32 {
    HASHER.hash_one(key) as u32
}

/// A key in memory. Most keys are short: those are found beside their value, without another allocation.
pub(crate) type Key = SmallVec<[u8; 20]>;

/// Whether two keys are equal. Eight bytes at a time: comparing memory is a call for each byte in a component otherwise.
#[inline]
pub(crate) fn is_equal(left: &[u8], right: &[u8]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    let (left_words, left_rest) = left.as_chunks::<8>();
    let (right_words, right_rest) = right.as_chunks::<8>();
    left_words.iter().zip(right_words).all(|(left, right)| u64::from_ne_bytes(*left) == u64::from_ne_bytes(*right))
        && left_rest.iter().zip(right_rest).all(|(left, right)| left == right)
}

/// The key in process, and the number of the step (a record or a timer) that it is processed in.
#[derive(Debug)]
pub(crate) struct Current {
    /// Rises with each step; 0 before the first. What carries an older number is of a step that is over.
    step: Cell<u64>,
    active: Cell<bool>,
    hash: Cell<u32>,
    /// The keys of the call in process, and the row that is at it.
    keys: RefCell<Column>,
    row: Cell<u32>,
}

impl Default for Current {
    fn default() -> Self {
        let keys = RefCell::new(empty_column());
        Self { step: Cell::new(0), active: Cell::new(false), hash: Cell::new(0), keys, row: Cell::new(0) }
    }
}

impl Current {
    /// Keeps the keys of a call, so that no record's key needs copying.
    pub(crate) fn take_keys(&self, keys: Column) -> Ref<'_, Column> {
        self.keys.replace(keys);
        self.keys.borrow()
    }

    /// Begins a step. The key is that of the row.
    #[inline]
    pub(crate) fn begin(&self, row: u32, key: &[u8]) {
        self.step.set(self.step.get() + 1);
        self.active.set(true);
        self.row.set(row);
        self.hash.set(hash(key));
    }

    /// After the last step of a call: there is no key.
    pub(crate) fn end(&self) {
        self.step.set(self.step.get() + 1);
        self.active.set(false);
    }

    #[inline]
    pub(crate) fn step(&self) -> u64 {
        self.step.get()
    }

    /// Calls with hash and key.
    ///
    /// # Panics
    /// Outside of a step: there is no key, and any answer would be a wrong one.
    #[inline]
    pub(crate) fn with_key<R>(&self, call: impl FnOnce(u32, &[u8]) -> R) -> R {
        assert!(self.active.get(), "keyed state can only be used while a record or a timer is processed: here there is no key");
        call(self.hash.get(), entry(&self.keys.borrow(), self.row.get() as usize))
    }
}
