//! One value a key.

use std::cell::Ref;
use std::fmt;
use std::rc::Rc;

use serde::Serialize;
use serde::de::DeserializeOwned;

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

    /// The value, if there is one.
    ///
    /// # Panics
    /// Like all methods here: when no record or timer is in process, in `open` or `finish` say.
    #[inline]
    #[must_use]
    pub fn get(&self) -> Option<Ref<'_, T>> {
        let slots = self.store.slots.borrow();
        let slot = slots.locate(&self.store.current)?;
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
        change(slots.slots[slot].value.get_or_insert_with(T::default))
    }

    /// Removes the value; the key then takes no memory and is in no snapshot.
    pub fn remove(&mut self) {
        let mut slots = self.store.slots.borrow_mut();
        if let Some(slot) = slots.locate(&self.store.current)
            && let previous @ Some(_) = slots.slots[slot].value.take()
        {
            slots.note(&self.store.current, slot, previous);
            slots.bury(slot);
        }
    }
}
