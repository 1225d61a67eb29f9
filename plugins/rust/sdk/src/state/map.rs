//! Several values a key, told apart by subkeys.

use std::borrow::Borrow;
use std::cell::Ref;
use std::fmt;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::rc::Rc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::codec::decode;
use super::map_store::MapStore;

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

    /// The value of a subkey, if there is one.
    #[must_use]
    pub fn get<Q>(&self, subkey: &Q) -> Option<Ref<'_, V>>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let cells = self.store.cells.borrow();
        let cell = self.store.with_subkey(subkey, |subkey| cells.locate(&self.store.current, subkey))?;
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
    }

    /// Changes the value of a subkey in place; where there was none, `V::default()` is changed.
    pub fn update<Q, R>(&mut self, subkey: &Q, change: impl FnOnce(&mut V) -> R) -> R
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
        V: Default,
    {
        let mut cells = self.store.cells.borrow_mut();
        let cell = self.store.with_subkey(subkey, |subkey| cells.open(&self.store.current, subkey));
        let previous = cells.cells[cell].value.clone();
        if previous.is_none() {
            cells.replace(cell, Some(V::default()));
        }
        cells.note(&self.store.current, cell, previous);
        change(cells.cells[cell].value.get_or_insert_with(V::default))
    }

    /// Removes the value of a subkey. Returns whether there was one.
    pub fn remove<Q>(&mut self, subkey: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let mut cells = self.store.cells.borrow_mut();
        let cell = self.store.with_subkey(subkey, |subkey| cells.locate(&self.store.current, subkey));
        cell.is_some_and(|cell| cells.remove(&self.store.current, cell))
    }

    /// Removes all entries of the key.
    pub fn clear(&mut self) {
        let mut cells = self.store.cells.borrow_mut();
        if let Some(group) = cells.group(&self.store.current) {
            let all: Vec<u32> = cells.groups[group].cells.values().copied().collect();
            for cell in all {
                cells.remove(&self.store.current, cell);
            }
        }
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        let cells = self.store.cells.borrow();
        cells.group(&self.store.current).map_or(0, |group| cells.groups[group].live as usize)
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
            if let Some(value) = &cells.cells[*cell].value {
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
