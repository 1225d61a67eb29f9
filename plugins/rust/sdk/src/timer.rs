//! Timers: they belong to a key, the host keeps and fires them.

use crate::bindings::{Column, Timers};
use crate::record::entry;

/// Tags from here up are not for plugins: the SDKs use them for timers of their own.
pub const RESERVED_TAGS: u32 = 0xffff_0000;

/// What a timer's time is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Clock {
    /// The watermark: the time in the records.
    Event,
    /// The time of day on the host.
    Processing,
}

impl Clock {
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Event => 0,
            Self::Processing => 1,
        }
    }
}

/// A timer that fired.
#[derive(Debug, Clone, Copy)]
pub struct Timer<'a> {
    key: &'a [u8],
    time: i64,
    tag: u32,
    clock: Clock,
}

impl<'a> Timer<'a> {
    /// The timer `row` of those that fired; `keys` is their column of keys.
    pub(crate) fn of(fired: &Timers, keys: &'a Column, row: u32) -> Self {
        let index = row as usize;
        let clock = if fired.clocks[index] == Clock::Event.number() { Clock::Event } else { Clock::Processing };
        Self { key: entry(keys, index), time: fired.times[index], tag: fired.tags[index], clock }
    }

    /// The key that the timer was set for; state is that of this key.
    #[must_use]
    pub fn key(&self) -> &'a [u8] {
        self.key
    }

    /// The time that it was set to, in milliseconds since the Unix epoch. The clock may be further.
    #[must_use]
    pub fn time(&self) -> i64 {
        self.time
    }

    /// The tag that it was set with; 0 unless one was given.
    #[must_use]
    pub fn tag(&self) -> u32 {
        self.tag
    }

    /// The clock that it waited for.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }
}
