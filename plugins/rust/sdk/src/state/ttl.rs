//! Time to live: how long what a state holds is there after it was written.
//!
//! What is expired is never returned. A timer of the host's takes it away: a key has one timer at a time, which is not moved at every
//! write but set anew when it fires and the value has been written since.

use std::time::Duration;

use super::arena::Arena;
use super::current::{Current, OwnTimer};
use crate::timer::{Clock, RESERVED_TAGS};

/// How long what a state holds lives. A [`Duration`] becomes one of processing time that begins anew at each write.
///
/// ```
/// use std::time::Duration;
/// use waterwheel_plugin::TimeToLive;
///
/// let by_event_time = TimeToLive::new(Duration::from_secs(3600)).event_time();
/// let while_it_is_used = TimeToLive::new(Duration::from_secs(3600)).refresh_on_read();
/// # let _ = (by_event_time, while_it_is_used);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeToLive {
    milliseconds: i64,
    clock: Clock,
    on_read: bool,
}

impl From<Duration> for TimeToLive {
    fn from(duration: Duration) -> Self {
        Self::new(duration)
    }
}

impl TimeToLive {
    /// By processing time, from the last write. Less than a millisecond is one.
    #[must_use]
    pub fn new(duration: Duration) -> Self {
        Self { milliseconds: i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).max(1), clock: Clock::Processing, on_read: false }
    }

    /// By event time: expired when the watermark has come so far beyond the event time of the record that wrote last.
    #[must_use]
    pub fn event_time(self) -> Self {
        Self { clock: Clock::Event, ..self }
    }

    /// From the last write or read.
    #[must_use]
    pub fn refresh_on_read(self) -> Self {
        Self { on_read: true, ..self }
    }

    pub(super) fn clock(self) -> Clock {
        self.clock
    }

    pub(super) fn is_refreshed_on_read(self) -> bool {
        self.on_read
    }

    pub(super) fn end_of(self, written: i64) -> i64 {
        written.saturating_add(self.milliseconds)
    }

    pub(super) fn is_over(self, written: i64, current: &Current) -> bool {
        self.end_of(written) <= current.now(self.clock)
    }

    /// When a map's entries are next looked through, the first of which ends then: not for each entry that ends by itself.
    pub(super) fn next_look(self, first_end: i64, current: &Current) -> i64 {
        first_end.max(current.now(self.clock).saturating_add(self.milliseconds / 8))
    }

    pub(super) fn timer(self, time: i64, tag: u32) -> OwnTimer {
        OwnTimer { clock: self.clock, time, tag, is_deleted: false }
    }
}

/// No timer is set.
pub(super) const UNARMED: i64 = i64::MIN;
/// One is set, and when it fires is not known: the state was restored, and so was the timer. Earlier than any that fires.
pub(super) const UNKNOWN: i64 = i64::MIN + 1;
/// The life of a value without a stamp has not begun.
pub(super) const UNWRITTEN: i64 = i64::MAX;

/// Times by the numbers of slots. Empty in a state without time to live.
#[derive(Debug)]
pub(super) struct Times {
    times: Arena<i64>,
    default: i64,
}

impl Times {
    pub(super) fn new(default: i64) -> Self {
        Self { times: Arena::default(), default }
    }

    pub(super) fn get(&self, slot: u32) -> i64 {
        self.times.get(slot as usize).copied().unwrap_or(self.default)
    }

    /// Sets a time; returns the one before.
    pub(super) fn set(&mut self, slot: u32, time: i64) -> i64 {
        while self.times.len() <= slot as usize {
            self.times.push(self.default);
        }
        std::mem::replace(&mut self.times[slot], time)
    }

    /// Forgets that of a slot.
    #[inline]
    pub(super) fn reset(&mut self, slot: u32) {
        if let Some(time) = self.times.get_mut(slot as usize) {
            *time = self.default;
        }
    }
}

/// Half of the reserved tags are for time to live, the other half for windows and joins.
const TAGS: u32 = 0x8000;

fn tag(first: u32, name: &str) -> u32 {
    first + name.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)) % TAGS
}

/// The tag of the timers of a state's time to live: the name's, so that it stays the same when a plugin gets other states.
pub(crate) fn lifetime_tag(name: &str) -> u32 {
    tag(RESERVED_TAGS, name)
}

/// The tag of the timers of a state with windows.
pub(crate) fn window_tag(name: &str) -> u32 {
    tag(RESERVED_TAGS + TAGS, name)
}

pub(crate) fn is_lifetime(tag: u32) -> bool {
    (RESERVED_TAGS..RESERVED_TAGS + TAGS).contains(&tag)
}
