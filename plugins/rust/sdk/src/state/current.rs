//! The key in process, which all states of a plugin look at.

use std::cell::{Cell, Ref, RefCell};
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use smallvec::SmallVec;

use crate::bindings::{Column, Context};
use crate::output::{empty_column, push_entry};
use crate::record::entry;
use crate::timer::Clock;

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
    /// Why there is no key, if there is none.
    without_key: Cell<&'static str>,
    /// Whether broadcast state may be written.
    is_broadcast: Cell<bool>,
    /// The clocks of the call, by their numbers, and the event time of the step: what a time to live is measured by.
    clocks: Cell<[i64; 2]>,
    timestamp: Cell<i64>,
    /// Timers that states set and deleted in this step.
    timers: RefCell<Vec<OwnTimer>>,
    /// Whether windows or a join took the timer in process as theirs.
    is_claimed: Cell<bool>,
}

/// A timer that a state sets or deletes for the key in process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnTimer {
    pub(crate) clock: Clock,
    pub(crate) time: i64,
    pub(crate) tag: u32,
    pub(crate) is_deleted: bool,
}

const NO_STEP: &str = "keyed state can only be used while a record or a timer is processed: here there is no key";
const BROADCAST: &str = "keyed state cannot be used while a record of a broadcast input is processed: every subtask gets the record, and each key belongs to one";

impl Default for Current {
    fn default() -> Self {
        let keys = RefCell::new(empty_column());
        Self {
            step: Cell::new(0),
            active: Cell::new(false),
            hash: Cell::new(0),
            keys,
            row: Cell::new(0),
            without_key: Cell::new(NO_STEP),
            is_broadcast: Cell::new(false),
            clocks: Cell::new([i64::MIN; 2]),
            timestamp: Cell::new(i64::MIN),
            timers: RefCell::default(),
            is_claimed: Cell::new(false),
        }
    }
}

impl Current {
    /// That of broadcast states: the key is empty, and always there.
    pub(crate) fn without_keys() -> Self {
        let current = Self::default();
        let mut keys = empty_column();
        push_entry(&mut keys, &[]);
        current.take_keys(keys);
        current.begin(0, &[]);
        current
    }

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

    /// Begins a step of a broadcast input: there is no key.
    pub(crate) fn begin_broadcast(&self) {
        self.step.set(self.step.get() + 1);
        self.active.set(false);
        self.without_key.set(BROADCAST);
    }

    /// After the last step of a call: there is no key.
    pub(crate) fn end(&self) {
        self.step.set(self.step.get() + 1);
        self.active.set(false);
        self.without_key.set(NO_STEP);
    }

    /// Begins a step of broadcast states, in which they may be written or not.
    pub(crate) fn next_step(&self, is_broadcast: bool) {
        self.step.set(self.step.get() + 1);
        self.is_broadcast.set(is_broadcast);
    }

    pub(crate) fn is_broadcast(&self) -> bool {
        self.is_broadcast.get()
    }

    /// Takes the clocks of a call.
    pub(crate) fn take_clocks(&self, context: &Context) {
        self.clocks.set([context.watermark, context.processing_time]);
    }

    /// Takes the event time of a step.
    #[inline]
    pub(crate) fn take_timestamp(&self, timestamp: i64) {
        self.timestamp.set(timestamp);
    }

    /// How far a clock is.
    pub(crate) fn now(&self, clock: Clock) -> i64 {
        self.clocks.get()[usize::from(clock.number())]
    }

    /// The time of what the step writes: by event time that of its record or timer, if that is beyond the watermark.
    pub(crate) fn written_at(&self, clock: Clock) -> i64 {
        match clock {
            Clock::Event => self.now(clock).max(self.timestamp.get()),
            Clock::Processing => self.now(clock),
        }
    }

    pub(crate) fn claim_timer(&self) {
        self.is_claimed.set(true);
    }

    /// Whether the timer was claimed; the next one is not yet.
    pub(crate) fn take_claim(&self) -> bool {
        self.is_claimed.take()
    }

    pub(crate) fn change_timer(&self, timer: OwnTimer) {
        self.timers.borrow_mut().push(timer);
    }

    /// Takes out the timers that the step set and deleted.
    pub(crate) fn drain_timers(&self, mut each: impl FnMut(OwnTimer)) {
        self.timers.borrow_mut().drain(..).for_each(&mut each);
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
        assert!(self.active.get(), "{}", self.without_key.get());
        call(self.hash.get(), entry(&self.keys.borrow(), self.row.get() as usize))
    }
}
