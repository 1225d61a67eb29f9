//! The key in process, which all states of a plugin look at.

use std::cell::{Cell, RefCell};
use std::hash::BuildHasher;

use foldhash::fast::FixedState;

/// A fixed seed: a component has no randomness of its own, and the memory limit bounds what a flood of colliding keys can do.
const HASHER: FixedState = FixedState::with_seed(0x5761_7465_7277_6865);

/// The 32 bits of a key's hash that the tables keep.
#[allow(clippy::cast_possible_truncation, reason = "the lower half is as good as any")]
pub(crate) fn hash(key: &[u8]) -> u32 {
    HASHER.hash_one(key) as u32
}

/// The key in process, and the number of the step (a record or a timer) that it is processed in.
#[derive(Debug, Default)]
pub(crate) struct Current {
    /// Rises with each step; 0 before the first. What carries an older number is of a step that is over.
    step: Cell<u64>,
    active: Cell<bool>,
    hash: Cell<u32>,
    key: RefCell<Vec<u8>>,
}

impl Current {
    /// Begins a step.
    #[inline]
    pub(crate) fn begin(&self, key: &[u8]) {
        self.step.set(self.step.get() + 1);
        self.active.set(true);
        self.hash.set(hash(key));
        let mut own = self.key.borrow_mut();
        own.clear();
        own.extend_from_slice(key);
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
        call(self.hash.get(), &self.key.borrow())
    }
}
