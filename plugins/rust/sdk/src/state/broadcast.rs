//! State that is the same in all subtasks.

use std::borrow::Borrow;
use std::cell::Ref;
use std::fmt;
use std::ops::ControlFlow;
use std::rc::Rc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::MapState;
use super::current::Current;
use crate::failure::{Failure, fail};

/// A map that belongs to no key: rules, rates, a small table, which every subtask has as a whole.
///
/// It is written while a record of one of the plugin's [`BROADCAST_INPUTS`](crate::KeyedPlugin::BROADCAST_INPUTS) is processed, which every
/// subtask gets, and read at any record or timer. A write anywhere else fails, since the subtasks would differ then; so must not what is
/// written depend on a subtask, or on the order of two broadcast inputs. It is in snapshots, and goes to every subtask when the parallelism changes.
///
/// Get one from [`Declare::broadcast`](super::Declare::broadcast).
///
/// # Panics
/// Those methods that take a key, when that cannot be serialised.
pub struct BroadcastState<K, V> {
    map: MapState<K, V>,
    name: String,
    current: Rc<Current>,
}

impl<K, V> fmt::Debug for BroadcastState<K, V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("BroadcastState").field(&self.name).finish()
    }
}

impl<K, V> BroadcastState<K, V>
where
    K: Serialize + DeserializeOwned + 'static,
    V: Serialize + DeserializeOwned + Clone + 'static,
{
    pub(crate) fn new(map: MapState<K, V>, name: &str, current: Rc<Current>) -> Self {
        Self { map, name: name.to_owned(), current }
    }

    fn writable(&mut self) -> Result<&mut MapState<K, V>, Failure> {
        match self.current.is_broadcast() {
            true => Ok(&mut self.map),
            false => Err(fail(format!(
                "the broadcast state `{}` can only be written while a record of a broadcast input is processed: anywhere else subtasks would come to differ",
                self.name
            ))),
        }
    }

    /// The value of a key, if there is one.
    #[must_use]
    pub fn get<Q>(&self, key: &Q) -> Option<Ref<'_, V>>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        self.map.get(key)
    }

    /// Whether the key has a value.
    #[must_use]
    pub fn contains<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        self.map.contains(key)
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// When no record of a broadcast input is in process.
    pub fn insert<Q>(&mut self, key: &Q, value: V) -> Result<(), Failure>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        self.writable()?.insert(key, value);
        Ok(())
    }

    /// Changes the value of a key in place; where there was none, `V::default()` is changed.
    ///
    /// # Errors
    /// When no record of a broadcast input is in process.
    pub fn update<Q, R>(&mut self, key: &Q, change: impl FnOnce(&mut V) -> R) -> Result<R, Failure>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
        V: Default,
    {
        Ok(self.writable()?.update(key, change))
    }

    /// Removes the value of a key. Returns whether there was one.
    ///
    /// # Errors
    /// When no record of a broadcast input is in process.
    pub fn remove<Q>(&mut self, key: &Q) -> Result<bool, Failure>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        Ok(self.writable()?.remove(key))
    }

    /// Removes all entries.
    ///
    /// # Errors
    /// When no record of a broadcast input is in process.
    pub fn clear(&mut self) -> Result<(), Failure> {
        self.writable()?.clear();
        Ok(())
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Calls for each entry, in the order of the encoded keys, until `each` breaks off.
    pub fn try_for_each<B>(&self, each: impl FnMut(K, &V) -> ControlFlow<B>) -> ControlFlow<B> {
        self.map.try_for_each(each)
    }

    /// Calls for each entry, in the order of the encoded keys.
    pub fn for_each(&self, each: impl FnMut(K, &V)) {
        self.map.for_each(each);
    }
}
