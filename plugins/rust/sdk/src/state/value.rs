//! One value a key.

use std::cell::Ref;
use std::fmt;
use std::rc::Rc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ttl::TimeToLive;
use super::value_store::ValueStore;

/// The state of one key: a value of type `T`, or nothing.
///
/// Which key is meant follows from the record or timer in process; there is no way to another key's value. A `T` is cloned
/// once for each record that updates it, so that a failing record can be undone: keep it small, and use a
/// [`MapState`](super::MapState) for collections.
///
/// Get one from [`Declare::value`](super::Declare::value).
pub struct KeyedState<T> {
    store: Rc<ValueStore<T>>,
}

impl<T> fmt::Debug for KeyedState<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("KeyedState").field(&self.store.reader.name).finish()
    }
}

impl<T: Serialize + DeserializeOwned + Clone + 'static> KeyedState<T> {
    pub(crate) fn new(store: Rc<ValueStore<T>>) -> Self {
        Self { store }
    }

    /// The same state, in which a value lives so long: what is expired is as if it were not there, and is taken away by a timer. To be called
    /// in `declare`, or in `open` with what the configuration says. The time of the last write is in snapshots. A state may get a time to live
    /// later: what is restored without one begins to live then.
    #[must_use]
    pub fn time_to_live(self, ttl: impl Into<TimeToLive>) -> Self {
        self.store.ttl.set(Some(ttl.into()));
        self
    }

    /// The value, if there is one.
    ///
    /// # Panics
    /// Like all methods here: when no record or timer is in process, in `open` or `finish` say.
    #[inline]
    #[must_use]
    pub fn get(&self) -> Option<Ref<'_, T>> {
        let slots = self.store.slots.borrow();
        let slot = slots.locate(&self.store.current)?;
        if let Some(ttl) = self.store.ttl.get()
            && self.store.is_over(&slots, slot, ttl, true)
        {
            return None;
        }
        Ref::filter_map(slots, |slots| slots.slots[slot].value.as_ref()).ok()
    }

    /// Whether there is a value.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.get().is_some()
    }

    /// Sets the value.
    #[inline]
    pub fn set(&mut self, value: T) {
        let mut slots = self.store.slots.borrow_mut();
        let slot = slots.open(&self.store.current);
        let previous = slots.slots[slot].value.replace(value);
        slots.note(&self.store.current, slot, previous);
        if let Some(ttl) = self.store.ttl.get() {
            self.store.begin_life(&mut slots, slot, ttl);
        }
    }

    /// Changes the value in place; where there was none, `T::default()` is changed.
    #[inline]
    pub fn update<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R
    where
        T: Default,
    {
        let mut slots = self.store.slots.borrow_mut();
        let slot = slots.open(&self.store.current);
        let previous = slots.slots[slot].value.clone();
        slots.note(&self.store.current, slot, previous);
        if let Some(ttl) = self.store.ttl.get() {
            if self.store.is_over(&slots, slot, ttl, false) {
                slots.slots[slot].value = None;
            }
            self.store.begin_life(&mut slots, slot, ttl);
        }
        change(slots.slots[slot].value.get_or_insert_with(T::default))
    }

    /// Removes the value; the key then takes no memory and is in no snapshot.
    pub fn remove(&mut self) {
        let mut slots = self.store.slots.borrow_mut();
        if let Some(slot) = slots.locate(&self.store.current)
            && let previous @ Some(_) = slots.slots[slot].value.take()
        {
            slots.note(&self.store.current, slot, previous);
            if let Some(ttl) = self.store.ttl.get() {
                self.store.end_life(&mut slots, slot, ttl);
            }
            slots.bury(slot);
        }
    }
}
