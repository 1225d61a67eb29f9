//! The store behind [`KeyedState`](super::KeyedState): the values of all keys.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Store;
use super::arena::Arena;
use super::chunk::{Chunk, Cursor};
use super::codec::{Reader, Shown};
use super::current::{Current, Key, OwnTimer, hash};
use super::index::KeyIndex;
use super::ttl::{TimeToLive, Times, UNARMED, UNKNOWN, UNWRITTEN, lifetime_tag};
use crate::bindings::{Entries, Scope};
use crate::output::end;
use crate::record::entry;
use crate::timer::Clock;

/// Not in the list of changes.
const CLEAN: u32 = u32::MAX;
/// No slot.
const NONE: u32 = u32::MAX;

/// A key's place in memory.
#[derive(Debug)]
pub(super) struct Slot<T> {
    key: Key,
    hash: u32,
    /// None: removed and that is still to be exported, or the slot is free.
    pub(super) value: Option<T>,
    /// The position in the list of changes, or [`CLEAN`].
    dirty: u32,
    /// Whether the host has an entry of this key, from an export or an import: if not, its removal is no news.
    known: bool,
}

/// How to take back what a step did. A step has one key, so one slot is all that it can touch.
#[derive(Debug)]
struct Undo<T> {
    step: u64,
    slot: u32,
    previous: Option<T>,
    was_dirty: bool,
    /// When it was written and its timer fires, if the step changed that.
    times: Option<(i64, i64)>,
}

#[derive(Debug)]
pub(super) struct Slots<T> {
    index: KeyIndex,
    pub(super) slots: Arena<Slot<T>>,
    free: Vec<u32>,
    /// The slots that changed since the last `changed` export, each once.
    dirty: Vec<u32>,
    undo: Undo<T>,
    /// A slot that a step left empty and that the host does not know: to be freed once that step is over. [`NONE`] if there is none.
    dead: u32,
    /// The slot that a step found, so that it looks once: (step, slot).
    found: Cell<(u64, u32)>,
    /// When the values were written.
    written: Times,
    /// When the timers of their lives fire.
    armed: Times,
    /// Imported values whose life is still to begin.
    unwritten: Vec<u32>,
}

pub(crate) struct ValueStore<T> {
    pub(super) current: Rc<Current>,
    pub(super) reader: Reader<T>,
    pub(super) slots: RefCell<Slots<T>>,
    pub(super) ttl: Cell<Option<TimeToLive>>,
    tag: u32,
    /// The slot that the step read, if that lets it live longer.
    read: Cell<u32>,
}

impl<T> ValueStore<T> {
    pub(crate) fn new(current: Rc<Current>, reader: Reader<T>) -> Self {
        let slots = Slots {
            index: KeyIndex::default(),
            slots: Arena::default(),
            free: Vec::new(),
            dirty: Vec::new(),
            undo: Undo { step: 0, slot: 0, previous: None, was_dirty: false, times: None },
            dead: NONE,
            found: Cell::new((0, 0)),
            written: Times::new(UNWRITTEN),
            armed: Times::new(UNARMED),
            unwritten: Vec::new(),
        };
        let tag = lifetime_tag(&reader.name);
        Self { current, reader, slots: RefCell::new(slots), ttl: Cell::new(None), tag, read: Cell::new(NONE) }
    }

    /// Whether the life of a value is over. If it is not, and reading lengthens it, the slot is noted for that.
    pub(super) fn is_over(&self, slots: &Slots<T>, slot: u32, ttl: TimeToLive, is_read: bool) -> bool {
        let is_over = ttl.is_over(slots.written.get(slot), &self.current);
        if !is_over && is_read && ttl.is_refreshed_on_read() {
            self.read.set(slot);
        }
        is_over
    }

    /// Begins the life of a value that was written.
    pub(super) fn begin_life(&self, slots: &mut Slots<T>, slot: u32, ttl: TimeToLive) {
        let now = self.current.written_at(ttl.clock());
        slots.keep_times(slot);
        slots.written.set(slot, now);
        if slots.armed.get(slot) == UNARMED {
            slots.armed.set(slot, ttl.end_of(now));
            self.current.change_timer(ttl.timer(ttl.end_of(now), self.tag));
        }
    }

    /// Takes back the timer of a value that was removed.
    pub(super) fn end_life(&self, slots: &mut Slots<T>, slot: u32, ttl: TimeToLive) {
        slots.keep_times(slot);
        let armed = slots.armed.get(slot);
        if armed > UNKNOWN {
            slots.armed.set(slot, UNARMED);
            self.current.change_timer(OwnTimer { is_deleted: true, ..ttl.timer(armed, self.tag) });
        }
    }
}

#[cfg(test)]
impl<T> ValueStore<T> {
    /// How many places for values were ever in use at a time.
    pub(crate) fn places(&self) -> usize {
        self.slots.borrow().slots.len()
    }
}

impl<T> Slots<T> {
    fn find(&self, hash: u32, key: &[u8]) -> Option<u32> {
        self.index.find(hash, key, |slot| &self.slots[slot].key)
    }

    /// The slot of the key in process.
    #[inline]
    pub(super) fn locate(&self, current: &Current) -> Option<u32> {
        let (step, slot) = self.found.get();
        if step == current.step() {
            return Some(slot);
        }
        let slot = current.with_key(|hash, key| self.find(hash, key))?;
        self.found.set((current.step(), slot));
        Some(slot)
    }

    /// The slot of the key in process, which is made if there is none.
    #[inline]
    pub(super) fn open(&mut self, current: &Current) -> u32 {
        if let Some(slot) = self.locate(current) {
            return slot;
        }
        let slot = current.with_key(|hash, key| self.add(hash, key));
        self.found.set((current.step(), slot));
        slot
    }

    fn add(&mut self, hash: u32, key: &[u8]) -> u32 {
        let slot = self.next_slot();
        self.index.insert(hash, slot);
        self.fill(slot, hash, key, None);
        slot
    }

    /// Puts a value in that the host knows. False: the key has changes, and nothing was put in.
    fn put_known(&mut self, hash: u32, key: &[u8], value: T) -> bool {
        let next = self.next_slot();
        let Self { index, slots, .. } = self;
        match index.find_or_insert(hash, key, next, |slot| &slots[slot].key) {
            Some(slot) if slots[slot].dirty != CLEAN => return false,
            Some(slot) => {
                let each = &mut slots[slot];
                (each.value, each.known) = (Some(value), true);
            }
            None => self.fill(next, hash, key, Some(value)),
        }
        true
    }

    /// Gives an imported value its life: what is left of it, or a new one if it had none.
    fn restore_life(&mut self, key: &[u8], stamp: Option<i64>) {
        let Some(slot) = self.find(hash(key), key) else { return };
        match stamp {
            Some(stamp) => {
                self.written.set(slot, stamp);
                self.armed.set(slot, UNKNOWN);
            }
            None => {
                self.written.reset(slot);
                self.armed.reset(slot);
                self.unwritten.push(slot);
            }
        }
    }

    /// Removes a key. False: it has changes, and is still there.
    fn remove_known(&mut self, hash: u32, key: &[u8]) -> bool {
        match self.find(hash, key) {
            Some(slot) if self.slots[slot].dirty != CLEAN => return false,
            Some(slot) => self.release(slot),
            None => {}
        }
        true
    }

    /// The slot that the next new key gets.
    fn next_slot(&self) -> u32 {
        self.free.last().copied().unwrap_or_else(|| end(self.slots.len()))
    }

    /// Gives the next slot to a key.
    fn fill(&mut self, slot: u32, hash: u32, key: &[u8], value: Option<T>) {
        let known = value.is_some();
        self.written.reset(slot);
        self.armed.reset(slot);
        let new = Slot { key: key.into(), hash, value, dirty: CLEAN, known };
        match self.free.pop() {
            Some(_) => self.slots[slot] = new,
            None => self.slots.push(new),
        }
    }

    /// Frees a slot that is in no list of changes.
    fn release(&mut self, slot: u32) {
        let each = &mut self.slots[slot];
        self.index.remove(each.hash, slot);
        each.key = Key::new();
        each.value = None;
        self.free.push(slot);
        if self.dead == slot {
            self.dead = NONE;
        }
    }

    /// Notes that the step in process changed the slot: what to undo, and that it is to be exported.
    #[inline]
    pub(super) fn note(&mut self, current: &Current, slot: u32, previous: Option<T>) {
        if self.dead != NONE {
            self.sweep(slot);
        }
        let next = end(self.dirty.len());
        let each = &mut self.slots[slot];
        let was_dirty = each.dirty != CLEAN;
        if !was_dirty {
            each.dirty = next;
            self.dirty.push(slot);
        }
        if self.undo.step != current.step() {
            self.undo = Undo { step: current.step(), slot, previous, was_dirty, times: None };
        }
    }

    /// Notes the times of a slot before the step changes them.
    fn keep_times(&mut self, slot: u32) {
        let times = (self.written.get(slot), self.armed.get(slot));
        self.undo.times.get_or_insert(times);
    }

    /// Puts a slot on the list of changes that no step changed.
    fn mark(&mut self, slot: u32) {
        let next = end(self.dirty.len());
        let each = &mut self.slots[slot];
        if each.dirty == CLEAN {
            each.dirty = next;
            self.dirty.push(slot);
        }
    }

    fn key_and_value(&self, slot: u32) -> Option<&Key> {
        let each = &self.slots[slot];
        each.value.as_ref().map(|_| &each.key)
    }

    /// Frees the slot that an earlier step left dead, unless it is this one, which may come alive again.
    fn sweep(&mut self, but: u32) {
        let slot = std::mem::replace(&mut self.dead, NONE);
        if slot != but && self.slots[slot].value.is_none() {
            self.unmark(slot);
            self.release(slot);
        }
    }

    /// Takes a slot out of the list of changes.
    fn unmark(&mut self, slot: u32) {
        let position = std::mem::replace(&mut self.slots[slot].dirty, CLEAN);
        self.dirty.swap_remove(position as usize);
        if let Some(moved) = self.dirty.get(position as usize) {
            self.slots[*moved].dirty = position;
        }
    }

    fn roll_back(&mut self, step: u64) {
        if self.undo.step != step {
            return;
        }
        self.undo.step = 0;
        self.found.set((0, 0));
        let slot = self.undo.slot;
        self.slots[slot].value = self.undo.previous.take();
        if let Some((written, armed)) = self.undo.times.take() {
            self.written.set(slot, written);
            self.armed.set(slot, armed);
        }
        if !self.undo.was_dirty {
            self.unmark(slot);
            if self.slots[slot].value.is_none() {
                self.release(slot);
            }
        } else {
            self.bury(slot);
        }
    }

    /// Remembers a slot for freeing if it is empty and the host does not know it.
    pub(super) fn bury(&mut self, slot: u32) {
        let each = &self.slots[slot];
        if each.value.is_none() && !each.known {
            self.dead = slot;
        }
    }
}

impl<T: Serialize> Slots<T> {
    /// What an export puts in front of a value.
    fn stamp(&self, slot: u32, has_life: bool) -> Option<i64> {
        if has_life { Some(self.written.get(slot)).filter(|written| *written != UNWRITTEN) } else { None }
    }

    fn export_all(&self, state: &str, has_life: bool, cursor: &mut Cursor, chunk: &mut Chunk) -> Result<bool, String> {
        while let Some(slot) = self.slots.get(cursor.position) {
            if let Some(value) = &slot.value {
                if chunk.is_full() {
                    return Ok(false);
                }
                chunk.put(state, &slot.key, None, value, self.stamp(end(cursor.position), has_life))?;
            }
            cursor.position += 1;
        }
        Ok(true)
    }

    fn export_changed(&mut self, state: &str, has_life: bool, cursor: &mut Cursor, chunk: &mut Chunk) -> Result<bool, String> {
        while let Some(&slot) = self.dirty.get(cursor.position) {
            if chunk.is_full() {
                return Ok(false);
            }
            let stamp = self.stamp(slot, has_life);
            let each = &mut self.slots[slot];
            each.dirty = CLEAN;
            match &each.value {
                Some(value) => {
                    chunk.put(state, &each.key, None, value, stamp)?;
                    each.known = true;
                }
                None => {
                    if each.known {
                        chunk.remove(&each.key, None);
                    }
                    self.release(slot);
                }
            }
            cursor.position += 1;
        }
        self.dirty.clear();
        Ok(true)
    }
}

impl<T: Serialize + DeserializeOwned + Clone + 'static> Store for ValueStore<T> {
    fn name(&self) -> &str {
        &self.reader.name
    }

    fn version(&self) -> u32 {
        self.reader.version
    }

    fn kind(&self) -> &'static str {
        "value"
    }

    fn roll_back(&self) {
        self.slots.borrow_mut().roll_back(self.current.step());
        self.read.set(NONE);
    }

    fn export(&self, scope: Scope, cursor: &mut Cursor, chunk: &mut Chunk) -> Result<bool, String> {
        let has_life = self.ttl.get().is_some();
        match scope {
            Scope::All => self.slots.borrow().export_all(&self.reader.name, has_life, cursor, chunk),
            Scope::Changed => self.slots.borrow_mut().export_changed(&self.reader.name, has_life, cursor, chunk),
        }
    }

    fn import(&self, entries: &Entries) -> Result<(), String> {
        let name = &self.reader.name;
        self.reader.accept(entries.version)?;
        if !entries.subkeys.ends.is_empty() {
            return Err(format!("state `{name}`: the entries have subkeys, and in this plugin the state has one value a key"));
        }
        let mut slots = self.slots.borrow_mut();
        slots.index.reserve(entries.keys.ends.len());
        for row in 0..entries.keys.ends.len() {
            let key = entry(&entries.keys, row);
            let is_gone = entries.removed.get(row).is_some_and(|removed| *removed != 0);
            let is_clean = if is_gone {
                slots.remove_known(hash(key), key)
            } else {
                let (value, stamp) = self.reader.read(entries.version, key, entry(&entries.values, row))?;
                let put = slots.put_known(hash(key), key, value);
                if put && self.ttl.get().is_some() {
                    slots.restore_life(key, stamp);
                }
                put
            };
            if !is_clean {
                return Err(format!("state `{name}`, key {}: it has changes that importing would undo", Shown(key)));
            }
        }
        Ok(())
    }

    fn has_changes(&self, key: &[u8]) -> bool {
        let slots = self.slots.borrow();
        slots.find(hash(key), key).is_some_and(|slot| slots.slots[slot].dirty != CLEAN)
    }

    fn lifetime(&self) -> Option<u32> {
        self.ttl.get().map(|_| self.tag)
    }

    fn settle(&self) {
        let slot = self.read.replace(NONE);
        if let Some(ttl) = self.ttl.get().filter(|_| slot != NONE) {
            let mut slots = self.slots.borrow_mut();
            let now = self.current.written_at(ttl.clock());
            if slots.key_and_value(slot).is_some() && slots.written.get(slot) < now {
                slots.written.set(slot, now);
                slots.mark(slot);
            }
        }
    }

    fn expire(&self, time: i64) {
        let mut slots = self.slots.borrow_mut();
        let Some((ttl, slot)) = self.ttl.get().zip(slots.locate(&self.current)) else { return };
        if slots.armed.get(slot) > time {
            return;
        }
        if slots.key_and_value(slot).is_none() {
            slots.armed.set(slot, UNARMED);
            return;
        }
        let end = ttl.end_of(slots.written.get(slot));
        if ttl.is_over(slots.written.get(slot), &self.current) {
            let previous = slots.slots[slot].value.take();
            slots.note(&self.current, slot, previous);
            slots.armed.set(slot, UNARMED);
            slots.bury(slot);
        } else {
            slots.armed.set(slot, end);
            self.current.change_timer(ttl.timer(end, self.tag));
        }
    }

    fn begin_lives(&self, arm: &mut dyn FnMut(&[u8], OwnTimer)) {
        let Some(ttl) = self.ttl.get() else { return };
        let mut slots = self.slots.borrow_mut();
        let now = self.current.now(ttl.clock());
        // Without a watermark there is no time to begin at.
        if slots.unwritten.is_empty() || (ttl.clock() == Clock::Event && now == i64::MIN) {
            return;
        }
        for slot in std::mem::take(&mut slots.unwritten) {
            if slots.key_and_value(slot).is_some() && slots.armed.get(slot) == UNARMED {
                slots.written.set(slot, now);
                slots.armed.set(slot, ttl.end_of(now));
                slots.mark(slot);
                arm(&slots.slots[slot].key, ttl.timer(ttl.end_of(now), self.tag));
            }
        }
    }

    fn evict(&self, key: &[u8]) {
        let mut slots = self.slots.borrow_mut();
        if let Some(slot) = slots.find(hash(key), key) {
            slots.release(slot);
        }
    }
}
