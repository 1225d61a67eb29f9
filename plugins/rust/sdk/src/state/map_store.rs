//! The store behind [`MapState`](super::MapState): all entries of all keys.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Store;
use super::arena::Arena;
use super::chunk::{Chunk, Cursor};
use super::codec::{Reader, Shown, decode, encode_into};
use super::current::{Current, Key, OwnTimer, hash};
use super::index::KeyIndex;
use super::ttl::{TimeToLive, Times, UNARMED, UNKNOWN, UNWRITTEN, lifetime_tag};
use crate::bindings::{Entries, Scope};
use crate::output::end;
use crate::record::entry;
use crate::timer::Clock;

/// Not in the list of changes.
const CLEAN: u32 = u32::MAX;

/// The entries of one key.
#[derive(Debug)]
pub(super) struct Group {
    key: Key,
    hash: u32,
    /// Also those that are removed and still to be exported.
    pub(super) cells: BTreeMap<Rc<[u8]>, u32>,
    /// How many of them have a value.
    pub(super) live: u32,
    /// How many of them changed since the last export.
    dirty: u32,
}

/// One entry's place in memory.
#[derive(Debug)]
pub(super) struct Entry<V> {
    group: u32,
    subkey: Rc<[u8]>,
    /// None: removed and that is still to be exported, or the place is free.
    pub(super) value: Option<V>,
    /// The position in the list of changes, or [`CLEAN`].
    dirty: u32,
    /// Whether the host has this entry, from an export or an import: if not, its removal is no news.
    known: bool,
    /// Whether it is in the list of the dead.
    dead: bool,
}

/// How to take back one write.
#[derive(Debug)]
struct Undo<V> {
    cell: u32,
    previous: Option<V>,
    was_dirty: bool,
    /// When it was written, if that was changed.
    written: Option<i64>,
}

#[derive(Debug)]
pub(super) struct Cells<V> {
    index: KeyIndex,
    pub(super) groups: Arena<Group>,
    free_groups: Vec<u32>,
    pub(super) cells: Arena<Entry<V>>,
    free_cells: Vec<u32>,
    /// The entries that changed since the last `changed` export, each once.
    dirty: Vec<u32>,
    /// The writes of the step `undo_step`, in order.
    undo: Vec<Undo<V>>,
    undo_step: u64,
    /// Entries that a step left empty and that the host does not know: to be freed once that step is over.
    dead: Vec<u32>,
    /// The group that a step found, so that it looks once: (step, group).
    found: Cell<(u64, u32)>,
    /// When the entries were written.
    written: Times,
    /// When the timers of the groups' lives fire.
    armed: Times,
    /// What that was before the step.
    undo_armed: Option<(u32, i64)>,
    /// Imported entries whose life is still to begin.
    unwritten: Vec<u32>,
}

/// Who shares the entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Each key has its own.
    Map,
    /// They are the same in all subtasks, and of no key.
    Broadcast,
}

pub(crate) struct MapStore<V> {
    pub(super) current: Rc<Current>,
    pub(super) reader: Reader<V>,
    /// Whether bytes are a subkey, as the plugin's type has them.
    check_subkey: fn(&[u8]) -> Result<(), String>,
    pub(super) cells: RefCell<Cells<V>>,
    subkey: RefCell<Vec<u8>>,
    kind: Kind,
    pub(super) ttl: Cell<Option<TimeToLive>>,
    tag: u32,
    /// The entries that the step read, if that lets them live longer.
    read: RefCell<Vec<u32>>,
}

impl<V> MapStore<V> {
    pub(crate) fn new<K: DeserializeOwned>(current: Rc<Current>, reader: Reader<V>, kind: Kind) -> Self {
        let cells = Cells {
            index: KeyIndex::default(),
            groups: Arena::default(),
            free_groups: Vec::new(),
            cells: Arena::default(),
            free_cells: Vec::new(),
            dirty: Vec::new(),
            undo: Vec::new(),
            undo_step: 0,
            dead: Vec::new(),
            found: Cell::new((0, 0)),
            written: Times::new(UNWRITTEN),
            armed: Times::new(UNARMED),
            undo_armed: None,
            unwritten: Vec::new(),
        };
        let check_subkey = |bytes: &[u8]| decode::<K>(bytes).map(|_| ());
        let tag = lifetime_tag(&reader.name);
        let (cells, ttl) = (RefCell::new(cells), Cell::new(None));
        Self { current, reader, check_subkey, cells, subkey: RefCell::default(), kind, ttl, tag, read: RefCell::default() }
    }

    /// Whether an entry is there and its life is not over. If it is there and reading lengthens its life, it is noted for that.
    pub(super) fn is_live(&self, cells: &Cells<V>, cell: u32, is_read: bool) -> bool {
        let Some(ttl) = self.ttl.get() else { return cells.cells[cell].value.is_some() };
        let is_live = cells.cells[cell].value.is_some() && !ttl.is_over(cells.written.get(cell), &self.current);
        if is_live && is_read && ttl.is_refreshed_on_read() {
            self.read.borrow_mut().push(cell);
        }
        is_live
    }

    /// Whether the life of an entry that is there is over.
    pub(super) fn has_ended(&self, cells: &Cells<V>, cell: u32) -> bool {
        self.ttl.get().is_some_and(|ttl| ttl.is_over(cells.written.get(cell), &self.current))
    }

    /// Begins the life of an entry that was written.
    pub(super) fn begin_life(&self, cells: &mut Cells<V>, cell: u32) {
        let Some(ttl) = self.ttl.get() else { return };
        let now = self.current.written_at(ttl.clock());
        let written = cells.written.set(cell, now);
        if let Some(undo) = cells.undo.last_mut() {
            undo.written = Some(written);
        }
        let group = cells.cells[cell].group;
        if cells.armed.get(group) == UNARMED {
            self.arm(cells, group, ttl, ttl.end_of(now));
        }
    }

    fn arm(&self, cells: &mut Cells<V>, group: u32, ttl: TimeToLive, time: i64) {
        let before = cells.armed.set(group, time);
        cells.undo_armed.get_or_insert((group, before));
        self.current.change_timer(ttl.timer(time, self.tag));
    }

    /// Takes the timer of a key back of which nothing is left.
    pub(super) fn end_life(&self, cells: &mut Cells<V>) {
        let Some((ttl, group)) = self.ttl.get().zip(cells.group(&self.current)) else { return };
        let armed = cells.armed.get(group);
        if cells.groups[group].live == 0 && armed > UNKNOWN {
            cells.armed.set(group, UNARMED);
            cells.undo_armed.get_or_insert((group, armed));
            self.current.change_timer(OwnTimer { is_deleted: true, ..ttl.timer(armed, self.tag) });
        }
    }

    pub(super) fn with_subkey<Q: Serialize + ?Sized, R>(&self, subkey: &Q, call: impl FnOnce(&[u8]) -> R) -> R {
        let mut bytes = self.subkey.borrow_mut();
        bytes.clear();
        encode_into(&mut bytes, subkey).expect("the subkey of a MapState can be serialised");
        call(&bytes)
    }
}

#[cfg(test)]
impl<V> MapStore<V> {
    /// How many places for entries were ever in use at a time.
    pub(crate) fn places(&self) -> usize {
        self.cells.borrow().cells.len()
    }
}

impl<V> Cells<V> {
    fn find_group(&self, hash: u32, key: &[u8]) -> Option<u32> {
        self.index.find(hash, key, |group| &self.groups[group].key)
    }

    /// The group of the key in process.
    pub(super) fn group(&self, current: &Current) -> Option<u32> {
        let (step, group) = self.found.get();
        if step == current.step() {
            return Some(group);
        }
        let group = current.with_key(|hash, key| self.find_group(hash, key))?;
        self.found.set((current.step(), group));
        Some(group)
    }

    /// The place of an entry of the key in process.
    pub(super) fn locate(&self, current: &Current, subkey: &[u8]) -> Option<u32> {
        let group = self.group(current)?;
        self.groups[group].cells.get(subkey).copied()
    }

    /// The place of an entry of the key in process, which is made if there is none.
    pub(super) fn open(&mut self, current: &Current, subkey: &[u8]) -> u32 {
        let group = match self.group(current) {
            Some(group) => group,
            None => {
                let group = current.with_key(|hash, key| self.add_group(hash, key));
                self.found.set((current.step(), group));
                group
            }
        };
        self.open_in(group, subkey)
    }

    fn open_in(&mut self, group: u32, subkey: &[u8]) -> u32 {
        if let Some(cell) = self.groups[group].cells.get(subkey) {
            return *cell;
        }
        let subkey: Rc<[u8]> = subkey.into();
        let new = Entry { group, subkey: Rc::clone(&subkey), value: None, dirty: CLEAN, known: false, dead: false };
        let cell = match self.free_cells.pop() {
            Some(cell) => {
                self.cells[cell] = new;
                self.written.reset(cell);
                cell
            }
            None => {
                self.cells.push(new);
                end(self.cells.len() - 1)
            }
        };
        self.groups[group].cells.insert(subkey, cell);
        cell
    }

    fn add_group(&mut self, hash: u32, key: &[u8]) -> u32 {
        let new = Group { key: key.into(), hash, cells: BTreeMap::new(), live: 0, dirty: 0 };
        let group = match self.free_groups.pop() {
            Some(group) => {
                self.groups[group] = new;
                self.armed.reset(group);
                group
            }
            None => {
                self.groups.push(new);
                end(self.groups.len() - 1)
            }
        };
        self.index.insert(hash, group);
        group
    }

    /// Puts a value in place, or none, and returns what was there.
    pub(super) fn replace(&mut self, cell: u32, value: Option<V>) -> Option<V> {
        let each = &mut self.cells[cell];
        let live = &mut self.groups[each.group].live;
        *live += u32::from(value.is_some());
        let previous = std::mem::replace(&mut each.value, value);
        *live -= u32::from(previous.is_some());
        previous
    }

    /// Counts an entry whose value was changed in place.
    pub(super) fn changed(&mut self, cell: u32, was_there: bool) {
        let each = &self.cells[cell];
        let live = &mut self.groups[each.group].live;
        *live = *live + u32::from(each.value.is_some()) - u32::from(was_there);
        self.bury(cell);
    }

    pub(super) fn remove(&mut self, current: &Current, cell: u32) -> bool {
        let previous = self.replace(cell, None);
        if previous.is_none() {
            return false;
        }
        self.note(current, cell, previous);
        self.bury(cell);
        true
    }

    /// Notes that the step in process changed the entry: what to undo, and that it is to be exported.
    pub(super) fn note(&mut self, current: &Current, cell: u32, previous: Option<V>) {
        if self.undo_step != current.step() {
            self.undo_step = current.step();
            self.undo.clear();
            self.undo_armed = None;
            self.sweep(cell);
        }
        let next = end(self.dirty.len());
        let each = &mut self.cells[cell];
        let was_dirty = each.dirty != CLEAN;
        if !was_dirty {
            each.dirty = next;
            self.groups[each.group].dirty += 1;
            self.dirty.push(cell);
        }
        self.undo.push(Undo { cell, previous, was_dirty, written: None });
    }

    /// Puts an entry on the list of changes that no step changed.
    fn mark(&mut self, cell: u32) {
        let next = end(self.dirty.len());
        let each = &mut self.cells[cell];
        if each.dirty == CLEAN {
            each.dirty = next;
            self.groups[each.group].dirty += 1;
            self.dirty.push(cell);
        }
    }

    /// Frees the entries that earlier steps left dead, except one that is being written.
    fn sweep(&mut self, but: u32) {
        for cell in std::mem::take(&mut self.dead) {
            self.cells[cell].dead = false;
            if cell != but && self.cells[cell].value.is_none() {
                self.unmark(cell);
                self.release(cell);
            }
        }
    }

    /// Takes an entry out of the list of changes.
    fn unmark(&mut self, cell: u32) {
        let each = &mut self.cells[cell];
        let position = std::mem::replace(&mut each.dirty, CLEAN);
        self.groups[each.group].dirty -= 1;
        self.dirty.swap_remove(position as usize);
        if let Some(moved) = self.dirty.get(position as usize) {
            self.cells[*moved].dirty = position;
        }
    }

    /// Frees an entry that is in no list of changes, and its group with the last one.
    fn release(&mut self, cell: u32) {
        let each = &mut self.cells[cell];
        let group = each.group;
        let subkey = std::mem::take(&mut each.subkey);
        if each.value.take().is_some() {
            self.groups[group].live -= 1;
        }
        if std::mem::take(&mut each.dead) {
            self.dead.retain(|dead| *dead != cell);
        }
        self.free_cells.push(cell);
        let cells = &mut self.groups[group].cells;
        cells.remove(&subkey);
        if cells.is_empty() {
            self.index.remove(self.groups[group].hash, group);
            self.groups[group].key = Key::new();
            self.free_groups.push(group);
            self.found.set((0, 0));
        }
    }

    /// Gives an imported entry its life: what is left of it, or a new one if it had none.
    fn restore_life(&mut self, group: u32, cell: u32, stamp: Option<i64>) {
        self.written.set(cell, stamp.unwrap_or(UNWRITTEN));
        match stamp {
            Some(_) if self.armed.get(group) == UNARMED => drop(self.armed.set(group, UNKNOWN)),
            Some(_) => {}
            None => self.unwritten.push(cell),
        }
    }

    /// Frees all entries of a group, whose changes are exported.
    fn release_group(&mut self, group: u32) {
        let all: Vec<u32> = self.groups[group].cells.values().copied().collect();
        for cell in all {
            self.release(cell);
        }
    }

    fn roll_back(&mut self, step: u64) {
        if self.undo_step != step {
            return;
        }
        if let Some((group, armed)) = self.undo_armed.take() {
            self.armed.set(group, armed);
        }
        while let Some(Undo { cell, previous, was_dirty, written }) = self.undo.pop() {
            self.replace(cell, previous);
            if let Some(written) = written {
                self.written.set(cell, written);
            }
            if !was_dirty {
                self.unmark(cell);
                let each = &self.cells[cell];
                if each.value.is_none() && !each.known {
                    self.release(cell);
                }
            } else {
                self.bury(cell);
            }
        }
    }

    /// Puts an entry on the list of the dead if it is empty and the host does not know it.
    fn bury(&mut self, cell: u32) {
        let each = &mut self.cells[cell];
        if each.value.is_none() && !each.known && !each.dead {
            each.dead = true;
            self.dead.push(cell);
        }
    }
}

impl<V: Serialize> Cells<V> {
    /// What an export puts in front of a value.
    fn stamp(&self, cell: u32, has_life: bool) -> Option<i64> {
        if has_life { Some(self.written.get(cell)).filter(|written| *written != UNWRITTEN) } else { None }
    }

    fn export_all(&self, state: &str, has_life: bool, cursor: &mut Cursor, chunk: &mut Chunk) -> Result<bool, String> {
        while let Some(cell) = self.cells.get(cursor.position) {
            if let Some(value) = &cell.value {
                if chunk.is_full() {
                    return Ok(false);
                }
                let stamp = self.stamp(end(cursor.position), has_life);
                chunk.put(state, &self.groups[cell.group].key, Some(&cell.subkey), value, stamp)?;
            }
            cursor.position += 1;
        }
        Ok(true)
    }

    fn export_changed(&mut self, state: &str, has_life: bool, cursor: &mut Cursor, chunk: &mut Chunk) -> Result<bool, String> {
        while let Some(&cell) = self.dirty.get(cursor.position) {
            if chunk.is_full() {
                return Ok(false);
            }
            cursor.position += 1;
            if self.cells[cell].dirty != CLEAN {
                self.export_cell(state, has_life, cell, chunk)?;
            }
        }
        self.dirty.clear();
        Ok(true)
    }

    fn export_cell(&mut self, state: &str, has_life: bool, cell: u32, chunk: &mut Chunk) -> Result<(), String> {
        let stamp = self.stamp(cell, has_life);
        let each = &mut self.cells[cell];
        let group = &mut self.groups[each.group];
        if group.live == 0 {
            // All of the key is gone: one removal for all of it, if the host knows any.
            let gone = each.group;
            if group.cells.values().any(|cell| self.cells[*cell].known) {
                chunk.remove(&group.key, Some(&[]));
            }
            for cell in group.cells.values() {
                self.cells[*cell].dirty = CLEAN;
            }
            group.dirty = 0;
            self.release_group(gone);
            return Ok(());
        }
        each.dirty = CLEAN;
        group.dirty -= 1;
        match &each.value {
            Some(value) => {
                chunk.put(state, &group.key, Some(&each.subkey), value, stamp)?;
                each.known = true;
            }
            None => {
                if each.known {
                    chunk.remove(&group.key, Some(&each.subkey));
                }
                self.release(cell);
            }
        }
        Ok(())
    }
}

impl<V: Serialize + DeserializeOwned + Clone + 'static> Store for MapStore<V> {
    fn name(&self) -> &str {
        &self.reader.name
    }

    fn version(&self) -> u32 {
        self.reader.version
    }

    fn kind(&self) -> &'static str {
        match self.kind {
            Kind::Map => "map",
            Kind::Broadcast => "broadcast",
        }
    }

    fn roll_back(&self) {
        self.cells.borrow_mut().roll_back(self.current.step());
        self.read.borrow_mut().clear();
    }

    fn export(&self, scope: Scope, cursor: &mut Cursor, chunk: &mut Chunk) -> Result<bool, String> {
        let has_life = self.ttl.get().is_some();
        match scope {
            Scope::All => self.cells.borrow().export_all(&self.reader.name, has_life, cursor, chunk),
            Scope::Changed => self.cells.borrow_mut().export_changed(&self.reader.name, has_life, cursor, chunk),
        }
    }

    fn import(&self, entries: &Entries) -> Result<(), String> {
        let name = &self.reader.name;
        self.reader.accept(entries.version)?;
        if entries.subkeys.ends.len() != entries.keys.ends.len() {
            return Err(format!("state `{name}`: the entries have no subkeys, and in this plugin the state is a map"));
        }
        let mut cells = self.cells.borrow_mut();
        for row in 0..entries.keys.ends.len() {
            let key = entry(&entries.keys, row);
            let subkey = entry(&entries.subkeys, row);
            if self.kind == Kind::Broadcast && !key.is_empty() {
                return Err(format!("state `{name}`, key {}: broadcast state has no keys, and there is one", Shown(key)));
            }
            let found = cells.find_group(hash(key), key);
            if found.is_some_and(|group| cells.groups[group].dirty > 0) {
                return Err(format!("state `{name}`, key {}: it has changes that importing would undo", Shown(key)));
            }
            if entries.removed.get(row).is_some_and(|removed| *removed != 0) {
                match found {
                    Some(group) if subkey.is_empty() => cells.release_group(group),
                    Some(group) => {
                        if let Some(&cell) = cells.groups[group].cells.get(subkey) {
                            cells.release(cell);
                        }
                    }
                    None => {}
                }
                continue;
            }
            (self.check_subkey)(subkey)
                .map_err(|reason| format!("state `{name}`, key {}: the subkey {} cannot be read: {reason}", Shown(key), Shown(subkey)))?;
            let (value, stamp) = self.reader.read(entries.version, key, entry(&entries.values, row))?;
            let group = found.unwrap_or_else(|| cells.add_group(hash(key), key));
            let cell = cells.open_in(group, subkey);
            cells.replace(cell, Some(value));
            cells.cells[cell].known = true;
            if self.ttl.get().is_some() {
                cells.restore_life(group, cell, stamp);
            }
        }
        Ok(())
    }

    fn has_changes(&self, key: &[u8]) -> bool {
        if self.kind == Kind::Broadcast {
            return false;
        }
        let cells = self.cells.borrow();
        cells.find_group(hash(key), key).is_some_and(|group| cells.groups[group].dirty > 0)
    }

    fn lifetime(&self) -> Option<u32> {
        self.ttl.get().map(|_| self.tag)
    }

    fn settle(&self) {
        let Some(ttl) = self.ttl.get() else { return };
        let mut read = self.read.borrow_mut();
        if read.is_empty() {
            return;
        }
        let mut cells = self.cells.borrow_mut();
        let now = self.current.written_at(ttl.clock());
        for cell in read.drain(..) {
            if cells.cells[cell].value.is_some() && cells.written.get(cell) < now {
                cells.written.set(cell, now);
                cells.mark(cell);
            }
        }
    }

    fn expire(&self, time: i64) {
        let mut cells = self.cells.borrow_mut();
        let Some((ttl, group)) = self.ttl.get().zip(cells.group(&self.current)) else { return };
        if cells.armed.get(group) > time {
            return;
        }
        let all: Vec<u32> = cells.groups[group].cells.values().copied().collect();
        let (over, left): (Vec<u32>, Vec<u32>) = all.into_iter().partition(|cell| ttl.is_over(cells.written.get(*cell), &self.current));
        let left = left.into_iter().filter(|cell| cells.cells[*cell].value.is_some());
        let first = left.map(|cell| ttl.end_of(cells.written.get(cell))).min();
        cells.armed.set(group, UNARMED);
        for cell in over {
            cells.remove(&self.current, cell);
        }
        if let Some(first) = first {
            self.arm(&mut cells, group, ttl, ttl.next_look(first, &self.current));
        }
    }

    fn begin_lives(&self, arm: &mut dyn FnMut(&[u8], OwnTimer)) {
        let Some(ttl) = self.ttl.get() else { return };
        let mut cells = self.cells.borrow_mut();
        let now = self.current.now(ttl.clock());
        // Without a watermark there is no time to begin at.
        if cells.unwritten.is_empty() || (ttl.clock() == Clock::Event && now == i64::MIN) {
            return;
        }
        for cell in std::mem::take(&mut cells.unwritten) {
            let group = cells.cells[cell].group;
            if cells.cells[cell].value.is_none() || cells.written.get(cell) != UNWRITTEN {
                continue;
            }
            cells.written.set(cell, now);
            cells.mark(cell);
            if cells.armed.get(group) == UNARMED {
                cells.armed.set(group, ttl.end_of(now));
                arm(&cells.groups[group].key, ttl.timer(ttl.end_of(now), self.tag));
            }
        }
    }

    fn evict(&self, key: &[u8]) {
        if self.kind == Kind::Broadcast {
            return;
        }
        let mut cells = self.cells.borrow_mut();
        if let Some(group) = cells.find_group(hash(key), key) {
            cells.release_group(group);
        }
    }
}
