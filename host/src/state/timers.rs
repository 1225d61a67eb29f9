//! Timers of a keyed operator. The host owns them: it keeps each (key, tag, clock, time) once, fires them in the order of their times, and
//! writes them into the operator's state file as entries of the state [`STATE`].
//!
//! An entry's key is the timer's key, so that it is dealt by key group like all state; its subkey is clock, time and tag, big-endian, the
//! time with its sign bit turned, so that bytes are in the order of time; its value is empty.

use super::{Entries, EntryRef, StateWriter};
use crate::record::Column;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3Builder;

/// The state that timers are stored as.
pub const STATE: &str = "waterwheel.timers";
/// The version of its encoding.
const VERSION: u32 = 1;
/// How large a chunk of entries becomes before the next one is begun, in bytes.
const CHUNK_BYTES: usize = 1 << 20;
const SUBKEY_BYTES: usize = 13;
const SIGN: u64 = 1 << 63;

/// What a timer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Clock {
    /// The watermark.
    Event = 0,
    /// The time of day.
    Processing = 1,
}

/// Timers in columns, one entry a timer, as they cross the boundary to a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimerColumns {
    /// The keys.
    pub keys: Column,
    /// When they fire, milliseconds since the Unix epoch.
    pub times: Vec<i64>,
    /// What the plugin tells its timers apart by.
    pub tags: Vec<u32>,
    /// 0: event time, 1: processing time.
    pub clocks: Vec<u8>,
    /// 0: set, 1: delete. Empty: all set, or fired.
    pub operations: Vec<u8>,
}

impl TimerColumns {
    /// The number of timers.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Appends a timer that fired or is to be set.
    pub fn push(&mut self, key: &[u8], time: i64, tag: u32, clock: Clock) {
        self.keys.push(key);
        self.times.push(time);
        self.tags.push(tag);
        self.clocks.push(clock as u8);
    }
}

/// In the order in which timers fire; the key last, so that a replay fires them in the same order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Timer {
    time: i64,
    tag: u32,
    key: Arc<[u8]>,
}

/// The timers of one subtask.
#[derive(Debug, Default)]
pub struct Timers {
    set: [BTreeSet<Timer>; 2],
    /// Each key once, however many timers it has.
    keys: HashSet<Arc<[u8]>, Xxh3Builder>,
    /// Timers that the last snapshot does not have.
    added: HashSet<(Clock, Timer), Xxh3Builder>,
    /// Timers that the last snapshot has, and that are gone.
    removed: HashSet<(Clock, Timer), Xxh3Builder>,
}

impl Timers {
    /// The number of timers of a clock.
    pub fn len(&self, clock: Clock) -> usize {
        self.set[clock as usize].len()
    }

    /// Whether no timer is set.
    pub fn is_empty(&self) -> bool {
        self.set.iter().all(BTreeSet::is_empty)
    }

    /// The time of the earliest timer of a clock.
    pub fn earliest(&self, clock: Clock) -> Option<i64> {
        self.set[clock as usize].first().map(|timer| timer.time)
    }

    /// Sets and deletes timers, in the order of the columns.
    pub fn apply(&mut self, timers: &TimerColumns) {
        for index in 0..timers.len() {
            let clock = if timers.clocks[index] == 0 { Clock::Event } else { Clock::Processing };
            let (key, time, tag) = (timers.keys.get(index), timers.times[index], timers.tags[index]);
            match timers.operations.get(index) {
                Some(1) => self.delete(key, time, tag, clock),
                _ => self.insert(key, time, tag, clock),
            }
        }
    }

    /// Sets a timer; one that is set already stays.
    pub fn insert(&mut self, key: &[u8], time: i64, tag: u32, clock: Clock) {
        let timer = Timer { time, tag, key: self.shared_key(key) };
        if self.set[clock as usize].insert(timer.clone()) {
            let entry = (clock, timer);
            if !self.removed.remove(&entry) {
                self.added.insert(entry);
            }
        }
    }

    /// Deletes a timer, if it is set.
    pub fn delete(&mut self, key: &[u8], time: i64, tag: u32, clock: Clock) {
        let Some(key) = self.keys.get(key).cloned() else { return };
        let timer = Timer { time, tag, key };
        if self.set[clock as usize].remove(&timer) {
            self.gone(clock, timer);
        }
    }

    /// Takes out timers of a clock that are due at `now`, in their order, `max` at most.
    pub fn pop_due(&mut self, clock: Clock, now: i64, max: usize, fired: &mut TimerColumns) {
        for _ in 0..max {
            if self.earliest(clock).is_none_or(|time| time > now) {
                return;
            }
            let Some(timer) = self.set[clock as usize].pop_first() else { return };
            fired.push(&timer.key, timer.time, timer.tag, clock);
            self.gone(clock, timer);
        }
    }

    /// Writes what changed since the last call, and forgets that it did.
    pub fn snapshot(&mut self, state: &mut StateWriter) {
        let mut chunks = Chunks { state, entries: Entries::of(STATE, VERSION) };
        self.removed.iter().for_each(|(clock, timer)| chunks.push(*clock, timer, true));
        self.added.iter().for_each(|(clock, timer)| chunks.push(*clock, timer, false));
        chunks.finish();
        self.added.clear();
        for (_, timer) in std::mem::take(&mut self.removed) {
            self.forget_key(&timer.key);
        }
    }

    /// Writes all timers; what counts as changed stays so.
    pub fn snapshot_all(&self, state: &mut StateWriter) {
        let mut chunks = Chunks { state, entries: Entries::of(STATE, VERSION) };
        for clock in [Clock::Event, Clock::Processing] {
            self.set[clock as usize].iter().for_each(|timer| chunks.push(clock, timer, false));
        }
        chunks.finish();
    }

    /// Takes timers of a checkpoint; they do not count as changed.
    ///
    /// # Errors
    /// A sentence: the entries are not timers.
    pub fn restore(&mut self, entries: &Entries) -> Result<(), String> {
        if entries.version != VERSION {
            return Err(format!("timers are stored in version {}, and this host knows version {VERSION}", entries.version));
        }
        for entry in entries.iter() {
            let (clock, time, tag) = entry.subkey.and_then(parse_subkey).ok_or("an entry of the timers is damaged")?;
            let timer = Timer { time, tag, key: self.shared_key(entry.key) };
            self.set[clock as usize].insert(timer);
        }
        Ok(())
    }

    fn shared_key(&mut self, key: &[u8]) -> Arc<[u8]> {
        if let Some(shared) = self.keys.get(key) {
            return Arc::clone(shared);
        }
        let shared: Arc<[u8]> = key.into();
        self.keys.insert(Arc::clone(&shared));
        shared
    }

    /// Notes that a timer is not set any more.
    fn gone(&mut self, clock: Clock, timer: Timer) {
        let entry = (clock, timer);
        if self.added.remove(&entry) {
            self.forget_key(&entry.1.key);
        } else {
            self.removed.insert(entry);
        }
    }

    /// Forgets a key when no other timer has it.
    fn forget_key(&mut self, key: &Arc<[u8]>) {
        const HERE_AND_IN_KEYS: usize = 2;
        if Arc::strong_count(key) == HERE_AND_IN_KEYS {
            self.keys.remove(key);
        }
    }
}

struct Chunks<'a> {
    state: &'a mut StateWriter,
    entries: Entries,
}

impl Chunks<'_> {
    fn push(&mut self, clock: Clock, timer: &Timer, removed: bool) {
        let subkey = subkey(clock, timer);
        let value = (!removed).then_some([].as_slice());
        self.entries.push(EntryRef { key: &timer.key, subkey: Some(&subkey), value });
        if self.entries.byte_len() >= CHUNK_BYTES {
            self.state.write(&self.entries);
            self.entries = Entries::of(STATE, VERSION);
        }
    }

    fn finish(self) {
        self.state.write(&self.entries);
    }
}

fn subkey(clock: Clock, timer: &Timer) -> [u8; SUBKEY_BYTES] {
    let mut subkey = [clock as u8; SUBKEY_BYTES];
    subkey[1..9].copy_from_slice(&(timer.time.cast_unsigned() ^ SIGN).to_be_bytes());
    subkey[9..].copy_from_slice(&timer.tag.to_be_bytes());
    subkey
}

fn parse_subkey(subkey: &[u8]) -> Option<(Clock, i64, u32)> {
    let (clock, rest) = subkey.split_first()?;
    let clock = match clock {
        0 => Clock::Event,
        1 => Clock::Processing,
        _ => return None,
    };
    let (time, tag) = rest.split_first_chunk()?;
    let time = (u64::from_be_bytes(*time) ^ SIGN).cast_signed();
    Some((clock, time, u32::from_be_bytes(tag.try_into().ok()?)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::state::chain::{Visible, merge};

    fn fired(timers: &mut Timers, clock: Clock, now: i64, max: usize) -> Vec<(Vec<u8>, i64, u32)> {
        let mut columns = TimerColumns::default();
        timers.pop_due(clock, now, max, &mut columns);
        (0..columns.len()).map(|i| (columns.keys.get(i).to_vec(), columns.times[i], columns.tags[i])).collect()
    }

    fn file(timers: &mut Timers) -> bytes::Bytes {
        let mut writer = StateWriter::default();
        timers.snapshot(&mut writer);
        writer.finish()
    }

    fn restored(files: Vec<bytes::Bytes>) -> Timers {
        let chain = files.into_iter().enumerate().map(|(i, file)| (i.to_string(), file)).collect();
        let mut timers = Timers::default();
        for entries in Visible::new(vec![chain], 0..1, 1) {
            timers.restore(&entries.unwrap()).unwrap();
        }
        timers
    }

    #[test]
    fn fires_each_timer_once_in_the_order_of_time() {
        let mut timers = Timers::default();
        timers.insert(b"b", 20, 0, Clock::Event);
        timers.insert(b"a", -5, 0, Clock::Event);
        timers.insert(b"a", 20, 0, Clock::Event);
        timers.insert(b"a", 20, 0, Clock::Event);
        timers.insert(b"a", 20, 0, Clock::Processing);
        assert_eq!(timers.earliest(Clock::Event), Some(-5));
        assert_eq!(fired(&mut timers, Clock::Event, -6, 10), []);
        assert_eq!(fired(&mut timers, Clock::Event, 20, 2), [(b"a".to_vec(), -5, 0), (b"a".to_vec(), 20, 0)]);
        assert_eq!(fired(&mut timers, Clock::Event, 20, 2), [(b"b".to_vec(), 20, 0)]);
        assert_eq!(timers.len(Clock::Processing), 1);
    }

    #[test]
    fn a_deleted_timer_does_not_fire_and_its_key_is_forgotten() {
        let mut timers = Timers::default();
        timers.insert(b"a", 1, 7, Clock::Processing);
        timers.delete(b"a", 1, 8, Clock::Processing);
        timers.delete(b"nobody", 1, 7, Clock::Processing);
        assert_eq!(timers.len(Clock::Processing), 1);
        timers.delete(b"a", 1, 7, Clock::Processing);
        assert!(timers.is_empty() && timers.keys.is_empty() && timers.added.is_empty() && timers.removed.is_empty());
    }

    #[test]
    fn a_snapshot_holds_what_changed_and_nothing_else() {
        let mut timers = Timers::default();
        timers.insert(b"a", 1, 0, Clock::Event);
        timers.insert(b"b", 2, 0, Clock::Event);
        let base = file(&mut timers);
        assert_eq!(fired(&mut timers, Clock::Event, 1, 9).len(), 1);
        timers.insert(b"c", i64::MIN, u32::MAX, Clock::Processing);
        timers.insert(b"brief", 3, 0, Clock::Event);
        timers.delete(b"brief", 3, 0, Clock::Event);
        timers.delete(b"b", 2, 0, Clock::Event);
        timers.insert(b"b", 2, 0, Clock::Event);
        let mut writer = StateWriter::default();
        timers.snapshot(&mut writer);
        assert_eq!(writer.entries(), 2, "one gone, one new");
        let delta = writer.finish();
        let mut restored = restored(vec![base.clone(), delta.clone()]);
        assert_eq!(restored.set, timers.set);
        let mut nothing = StateWriter::default();
        restored.snapshot(&mut nothing);
        assert!(nothing.is_empty(), "restored timers are not changes");
        let merged = merge(vec![("base".into(), base), ("delta".into(), delta)]).unwrap();
        let mut all = StateWriter::default();
        timers.snapshot_all(&mut all);
        assert_eq!(all.entries(), 2);
        assert_eq!(super::tests::restored(vec![merged]).set, super::tests::restored(vec![all.finish()]).set);
    }

    #[test]
    fn subkeys_are_in_the_order_of_time() {
        let key = |time| subkey(Clock::Event, &Timer { time, tag: 1, key: [].into() });
        let times = [i64::MIN, -1, 0, 1, i64::MAX];
        assert!(times.windows(2).all(|pair| key(pair[0]) < key(pair[1])));
        assert!(times.iter().all(|time| parse_subkey(&key(*time)) == Some((Clock::Event, *time, 1))));
    }

    #[test]
    fn a_strange_entry_is_refused() {
        let mut entries = Entries::of(STATE, VERSION);
        entries.push(EntryRef { key: b"a", subkey: Some(b"short"), value: Some(b"") });
        assert!(Timers::default().restore(&entries).unwrap_err().contains("damaged"));
        assert!(Timers::default().restore(&Entries::of(STATE, 2)).unwrap_err().contains("version 2"));
    }
}
