//! What can be counted about a subtask's plugin. Counters are for watching: they are not in checkpoints, and a replay counts again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How many counters of its own a plugin may have; a plugin that makes a name of each key must not fill the host's memory.
const MAX_COUNTERS: usize = 256;

/// Counters of one subtask of an operator. Shared: the adapter counts, whoever publishes reads.
#[derive(Debug, Default)]
pub struct PluginMetrics {
    calls: AtomicU64,
    call_nanoseconds: AtomicU64,
    records: AtomicU64,
    traps: AtomicU64,
    failures: AtomicU64,
    skipped: AtomicU64,
    dead_letters: AtomicU64,
    dropped_timers: AtomicU64,
    memory_bytes: AtomicU64,
    named: Mutex<BTreeMap<String, u64>>,
}

/// The counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginCounts {
    /// Calls of the plugin.
    pub calls: u64,
    /// The time that they took together, waits for other tasks included.
    pub call_time: Duration,
    /// Records given to the plugin.
    pub records: u64,
    /// Instances lost to a trap, a deadline or the limit of memory.
    pub traps: u64,
    /// Records, and timers, that could not be processed.
    pub failures: u64,
    /// Those of them that were skipped.
    pub skipped: u64,
    /// Those of them that went to the dead letters.
    pub dead_letters: u64,
    /// Processing-time timers that were still set when the input had ended.
    pub dropped_timers: u64,
    /// The memory of the instance that runs, in bytes.
    pub memory_bytes: u64,
    /// The plugin's own counters.
    pub named: BTreeMap<String, u64>,
}

impl PluginMetrics {
    /// The counters now.
    pub fn counts(&self) -> PluginCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PluginCounts {
            calls: of(&self.calls),
            call_time: Duration::from_nanos(of(&self.call_nanoseconds)),
            records: of(&self.records),
            traps: of(&self.traps),
            failures: of(&self.failures),
            skipped: of(&self.skipped),
            dead_letters: of(&self.dead_letters),
            dropped_timers: of(&self.dropped_timers),
            memory_bytes: of(&self.memory_bytes),
            named: self.named.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    pub(super) fn called(&self, time: Duration) {
        add(&self.calls, 1);
        add(&self.call_nanoseconds, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(super) fn processed(&self, records: usize) {
        add(&self.records, records as u64);
    }

    pub(super) fn trapped(&self) {
        add(&self.traps, 1);
    }

    pub(super) fn set_memory(&self, bytes: usize) {
        self.memory_bytes.store(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn count(&self, name: &str, by: u64) {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counter) = named.get_mut(name) {
            *counter = counter.saturating_add(by);
        } else if named.len() < MAX_COUNTERS {
            named.insert(name.to_owned(), by);
        }
    }

    pub(crate) fn failed(&self) {
        add(&self.failures, 1);
    }

    /// The number of those skipped, this one included.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn dead_letter(&self) {
        add(&self.dead_letters, 1);
    }

    pub(crate) fn dropped_timers(&self, timers: usize) {
        add(&self.dropped_timers, timers as u64);
    }
}

fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}
