//! Several values a key, told apart by subkeys.

use std::borrow::Borrow;
use std::cell::Ref;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, ControlFlow};
use std::rc::Rc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::codec::{decode, encode_into};
use super::map_store::MapStore;
use super::ttl::TimeToLive;

/// The state of one key: a map from `K` to `V`. Each entry is stored, exported and undone by itself, so a map may be large.
///
/// Looks up by `&K` or a borrowed form of it (`&str` for `String`). The order of entries is that of the encoded subkeys, the same after
/// a restore; numbers from 0 up come in rising order.
///
/// Get one from [`Declare::map`](super::Declare::map).
///
/// # Panics
/// All methods, when no record or timer is in process, and those that take a subkey when that cannot be serialised.
pub struct MapState<K, V> {
    store: Rc<MapStore<V>>,
    subkeys: PhantomData<fn() -> K>,
}

impl<K, V> fmt::Debug for MapState<K, V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("MapState").field(&self.store.reader.name).finish()
    }
}

impl<K, V> MapState<K, V>
where
    K: Serialize + DeserializeOwned + 'static,
    V: Serialize + DeserializeOwned + Clone + 'static,
{
    pub(crate) fn new(store: Rc<MapStore<V>>) -> Self {
        Self { store, subkeys: PhantomData }
    }

    /// The same state, in which each entry lives so long by itself: what is expired is as if it were not there, and is taken away by a timer
    /// of its key, at most an eighth of the time later. All else is as for [`KeyedState::time_to_live`](super::KeyedState::time_to_live).
    #[must_use]
    pub fn time_to_live(self, ttl: impl Into<TimeToLive>) -> Self {
        self.store.ttl.set(Some(ttl.into()));
        self
    }

    /// The value of a subkey, if there is one.
    #[must_use]
    pub fn get<Q>(&self, subkey: &Q) -> Option<Ref<'_, V>>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let cells = self.store.cells.borrow();
        let cell = self.store.with_subkey(subkey, |subkey| cells.locate(&self.store.current, subkey))?;
        if !self.store.is_live(&cells, cell, true) {
            return None;
        }
        Ref::filter_map(cells, |cells| cells.cells[cell].value.as_ref()).ok()
    }

    /// Whether the subkey has a value.
    #[must_use]
    pub fn contains<Q>(&self, subkey: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        self.get(subkey).is_some()
    }

    /// Sets the value of a subkey.
    pub fn insert<Q>(&mut self, subkey: &Q, value: V)
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let mut cells = self.store.cells.borrow_mut();
        let cell = self.store.with_subkey(subkey, |subkey| cells.open(&self.store.current, subkey));
        let previous = cells.replace(cell, Some(value));
        cells.note(&self.store.current, cell, previous);
        self.store.begin_life(&mut cells, cell);
    }

    /// Changes the value of a subkey in place; where there was none, `V::default()` is changed.
    pub fn update<Q, R>(&mut self, subkey: &Q, change: impl FnOnce(&mut V) -> R) -> R
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
        V: Default,
    {
        self.alter(subkey, |value| change(value.get_or_insert_with(V::default)))
    }

    /// Changes the value of a subkey, or that there is none.
    pub(crate) fn alter<Q, R>(&mut self, subkey: &Q, change: impl FnOnce(&mut Option<V>) -> R) -> R
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let mut cells = self.store.cells.borrow_mut();
        let cell = self.store.with_subkey(subkey, |subkey| cells.open(&self.store.current, subkey));
        let previous = match self.store.has_ended(&cells, cell) {
            true => cells.replace(cell, None),
            false => cells.cells[cell].value.clone(),
        };
        let was_there = cells.cells[cell].value.is_some();
        cells.note(&self.store.current, cell, previous);
        self.store.begin_life(&mut cells, cell);
        let result = change(&mut cells.cells[cell].value);
        cells.changed(cell, was_there);
        result
    }

    /// Takes the value of a subkey out.
    pub(crate) fn take<Q>(&mut self, subkey: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let value = self.get(subkey).map(|value| value.clone());
        self.remove(subkey);
        value
    }

    /// Notes that a timer in process is one of the state's.
    pub(crate) fn claim_timer(&self) {
        self.store.current.claim_timer();
    }

    /// Removes the value of a subkey. Returns whether there was one.
    pub fn remove<Q>(&mut self, subkey: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let mut cells = self.store.cells.borrow_mut();
        let cell = self.store.with_subkey(subkey, |subkey| cells.locate(&self.store.current, subkey));
        cell.is_some_and(|cell| {
            let is_live = self.store.is_live(&cells, cell, false);
            cells.remove(&self.store.current, cell);
            self.store.end_life(&mut cells);
            is_live
        })
    }

    /// Removes all entries of the key.
    pub fn clear(&mut self) {
        let mut cells = self.store.cells.borrow_mut();
        if let Some(group) = cells.group(&self.store.current) {
            let all: Vec<u32> = cells.groups[group].cells.values().copied().collect();
            for cell in all {
                cells.remove(&self.store.current, cell);
            }
            self.store.end_life(&mut cells);
        }
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        let cells = self.store.cells.borrow();
        let Some(group) = cells.group(&self.store.current).map(|group| &cells.groups[group]) else { return 0 };
        match self.store.ttl.get() {
            None => group.live as usize,
            Some(_) => group.cells.values().filter(|cell| self.store.is_live(&cells, **cell, false)).count(),
        }
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls for each entry, in order, until `each` breaks off.
    pub fn try_for_each<B>(&self, mut each: impl FnMut(K, &V) -> ControlFlow<B>) -> ControlFlow<B> {
        let cells = self.store.cells.borrow();
        let Some(group) = cells.group(&self.store.current) else {
            return ControlFlow::Continue(());
        };
        for (subkey, cell) in &cells.groups[group].cells {
            if self.store.is_live(&cells, *cell, true)
                && let Some(value) = &cells.cells[*cell].value
            {
                let subkey = decode(subkey).expect("invariant: a subkey is decoded when it is imported");
                each(subkey, value)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Calls for each entry, in order.
    pub fn for_each(&self, mut each: impl FnMut(K, &V)) {
        let _ = self.try_for_each(|subkey, value| {
            each(subkey, value);
            ControlFlow::<()>::Continue(())
        });
    }

    /// All entries, in order, cloned.
    #[must_use]
    pub fn to_vec(&self) -> Vec<(K, V)> {
        let mut all = Vec::with_capacity(self.len());
        self.for_each(|subkey, value| all.push((subkey, value.clone())));
        all
    }
}

impl<P, Q, V> MapState<(P, Q), V>
where
    P: Serialize + DeserializeOwned + 'static,
    Q: Serialize + DeserializeOwned + 'static,
    V: Serialize + DeserializeOwned + Clone + 'static,
{
    /// Calls for each entry whose subkey begins with this, in order, with what is left of the subkey.
    pub fn for_each_of(&self, first: &P, mut each: impl FnMut(Q, &V)) {
        let _ = self.try_for_range(first, first, |_, rest, value| {
            each(rest, value);
            ControlFlow::<()>::Continue(())
        });
    }

    /// Removes all entries whose subkey begins with this.
    pub fn remove_all_of(&mut self, first: &P) {
        self.remove_range(first, first);
    }

    /// Calls for each entry whose subkey begins with a part from `first` to `last`, in order, until `each` breaks off. Their encodings
    /// must be in order, as those of numbers from 0 up are.
    pub(crate) fn try_for_range<B>(&self, first: &P, last: &P, mut each: impl FnMut(P, Q, &V) -> ControlFlow<B>) -> ControlFlow<B> {
        let cells = self.store.cells.borrow();
        let Some(group) = cells.group(&self.store.current) else {
            return ControlFlow::Continue(());
        };
        let (first, last) = (beginning(first), beginning(last));
        for (subkey, cell) in cells.groups[group].cells.range::<[u8], _>((Bound::Included(&first[..]), Bound::Unbounded)) {
            if **subkey > last[..] && !subkey.starts_with(&last) {
                break;
            }
            if self.store.is_live(&cells, *cell, true)
                && let Some(value) = &cells.cells[*cell].value
            {
                let (part, rest) = decode(subkey).expect("invariant: a subkey is decoded when it is imported");
                each(part, rest, value)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Removes the entries whose subkey begins with a part from `first` to `last`.
    pub(crate) fn remove_range(&mut self, first: &P, last: &P) {
        let mut cells = self.store.cells.borrow_mut();
        let Some(group) = cells.group(&self.store.current) else { return };
        let (first, last) = (beginning(first), beginning(last));
        let range = cells.groups[group].cells.range::<[u8], _>((Bound::Included(&first[..]), Bound::Unbounded));
        let found: Vec<u32> =
            range.take_while(|(subkey, _)| ***subkey <= last[..] || subkey.starts_with(&last)).map(|(_, cell)| *cell).collect();
        for cell in found {
            cells.remove(&self.store.current, cell);
        }
        self.store.end_life(&mut cells);
    }
}

/// How a pair is encoded that begins with this.
fn beginning<P: Serialize>(part: &P) -> Vec<u8> {
    const PAIR: u8 = 0x92;
    let mut bytes = vec![PAIR];
    encode_into(&mut bytes, part).expect("the subkey of a MapState can be serialised");
    bytes
}
