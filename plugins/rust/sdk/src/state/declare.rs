//! How a plugin says which states it has.

use std::fmt;
use std::rc::Rc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::codec::{Migrate, Reader};
use super::current::Current;
use super::map_store::{Kind, MapStore};
use super::registry::Registry;
use super::ttl::{lifetime_tag, window_tag};
use super::value_store::ValueStore;
use super::{BroadcastState, KeyedState, MapState, Store};
use crate::window::{Aggregate, AllRecords, IntervalJoinState, WindowJoinState, WindowState};

/// Takes the declarations of a plugin's states, in [`KeyedPlugin::declare`](crate::KeyedPlugin::declare), and gives the handles.
///
/// A name is what a state is stored under, and must stay; its version says how its values are to be read. Raise the version when the
/// type changes in a way that serde cannot bridge by itself (a new field with `#[serde(default)]` it can), and give a migration.
/// Restoring refuses values of a newer version, and older ones without a migration.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use waterwheel_plugin::{Declare, KeyedState, MapState, decode};
///
/// #[derive(Clone, Default, Serialize, Deserialize)]
/// struct Total { count: u64, cents: i64 }
///
/// struct States { totals: KeyedState<Total>, by_product: MapState<String, u64> }
///
/// fn declare(states: &mut Declare) -> States {
///     States {
///         // Version 1 was the bare count.
///         totals: states.value_with_migration("totals", 2, |_version, bytes| {
///             decode(bytes).map(|count| Total { count, cents: 0 })
///         }),
///         by_product: states.map("by-product"),
///     }
/// }
/// ```
#[derive(Default)]
pub struct Declare {
    current: Rc<Current>,
    stores: Vec<Rc<dyn Store>>,
    broadcast: Option<Rc<Current>>,
    fault: Option<String>,
}

impl fmt::Debug for Declare {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.stores.iter().map(|store| store.name()).collect();
        formatter.debug_struct("Declare").field("stores", &names).finish_non_exhaustive()
    }
}

impl Declare {
    /// A state with one value a key, of version 1.
    pub fn value<T>(&mut self, name: &str) -> KeyedState<T>
    where
        T: Serialize + DeserializeOwned + Clone + 'static,
    {
        self.add_value(name, 1, None)
    }

    /// A state with one value a key, of this version. `migrate` gets the version and the bytes of an older value, and makes one of the
    /// present version, or says why not: then the restore is refused with its sentence.
    pub fn value_with_migration<T>(
        &mut self,
        name: &str,
        version: u32,
        migrate: impl Fn(u32, &[u8]) -> Result<T, String> + 'static,
    ) -> KeyedState<T>
    where
        T: Serialize + DeserializeOwned + Clone + 'static,
    {
        self.add_value(name, version, Some(Box::new(migrate)))
    }

    /// A state with a map a key, of version 1.
    pub fn map<K, V>(&mut self, name: &str) -> MapState<K, V>
    where
        K: Serialize + DeserializeOwned + 'static,
        V: Serialize + DeserializeOwned + Clone + 'static,
    {
        self.add_map(name, 1, None)
    }

    /// A state with a map a key, of this version. `migrate` is as for [`value_with_migration`](Self::value_with_migration) and migrates the
    /// map's values; its keys cannot change their type.
    pub fn map_with_migration<K, V>(
        &mut self,
        name: &str,
        version: u32,
        migrate: impl Fn(u32, &[u8]) -> Result<V, String> + 'static,
    ) -> MapState<K, V>
    where
        K: Serialize + DeserializeOwned + 'static,
        V: Serialize + DeserializeOwned + Clone + 'static,
    {
        self.add_map(name, version, Some(Box::new(migrate)))
    }

    /// The state of windows, for [`Windows`](crate::Windows).
    pub fn windows<A: Aggregate>(&mut self, name: &str) -> WindowState<A> {
        WindowState::new(self.map(name), name)
    }

    /// The state of the records of windows that keep all of them: the aggregate of such [`windows`](Self::windows), which have another name.
    pub fn all_records<T>(&mut self, name: &str) -> AllRecords<T>
    where
        T: Serialize + DeserializeOwned + Clone + 'static,
    {
        AllRecords::new(self.map(name))
    }

    /// The states of a join by windows, `NAME` and `NAME.records`, for [`WindowJoin`](crate::WindowJoin).
    pub fn window_join<L, R>(&mut self, name: &str) -> WindowJoinState<L, R>
    where
        L: Serialize + DeserializeOwned + Clone + 'static,
        R: Serialize + DeserializeOwned + Clone + 'static,
    {
        WindowJoinState { windows: self.windows(name), records: self.all_records(&format!("{name}.records")) }
    }

    /// The states of a join by time, `NAME.left` and `NAME.right`, for [`IntervalJoin`](crate::IntervalJoin).
    pub fn interval_join<L, R>(&mut self, name: &str) -> IntervalJoinState<L, R>
    where
        L: Serialize + DeserializeOwned + Clone + 'static,
        R: Serialize + DeserializeOwned + Clone + 'static,
    {
        let (left, right) = (self.map(&format!("{name}.left")), self.map(&format!("{name}.right")));
        IntervalJoinState { left, right, name: name.to_owned() }
    }

    /// A state that is the same in all subtasks, of version 1.
    pub fn broadcast<K, V>(&mut self, name: &str) -> BroadcastState<K, V>
    where
        K: Serialize + DeserializeOwned + 'static,
        V: Serialize + DeserializeOwned + Clone + 'static,
    {
        self.add_broadcast(name, 1, None)
    }

    /// A state that is the same in all subtasks, of this version. `migrate` is as for [`map_with_migration`](Self::map_with_migration).
    pub fn broadcast_with_migration<K, V>(
        &mut self,
        name: &str,
        version: u32,
        migrate: impl Fn(u32, &[u8]) -> Result<V, String> + 'static,
    ) -> BroadcastState<K, V>
    where
        K: Serialize + DeserializeOwned + 'static,
        V: Serialize + DeserializeOwned + Clone + 'static,
    {
        self.add_broadcast(name, version, Some(Box::new(migrate)))
    }

    fn add_broadcast<K, V>(&mut self, name: &str, version: u32, migrate: Option<Migrate<V>>) -> BroadcastState<K, V>
    where
        K: Serialize + DeserializeOwned + 'static,
        V: Serialize + DeserializeOwned + Clone + 'static,
    {
        let reader = Reader { name: name.to_owned(), version, migrate };
        let current = Rc::clone(self.broadcast.get_or_insert_with(|| Rc::new(Current::without_keys())));
        let store = Rc::new(MapStore::new::<K>(Rc::clone(&current), reader, Kind::Broadcast));
        self.add(Rc::clone(&store) as Rc<dyn Store>);
        BroadcastState::new(MapState::new(store), name, current)
    }

    fn add_value<T>(&mut self, name: &str, version: u32, migrate: Option<Migrate<T>>) -> KeyedState<T>
    where
        T: Serialize + DeserializeOwned + Clone + 'static,
    {
        let reader = Reader { name: name.to_owned(), version, migrate };
        let store = Rc::new(ValueStore::new(Rc::clone(&self.current), reader));
        self.add(Rc::clone(&store) as Rc<dyn Store>);
        KeyedState::new(store)
    }

    fn add_map<K, V>(&mut self, name: &str, version: u32, migrate: Option<Migrate<V>>) -> MapState<K, V>
    where
        K: Serialize + DeserializeOwned + 'static,
        V: Serialize + DeserializeOwned + Clone + 'static,
    {
        let reader = Reader { name: name.to_owned(), version, migrate };
        let store = Rc::new(MapStore::new::<K>(Rc::clone(&self.current), reader, Kind::Map));
        self.add(Rc::clone(&store) as Rc<dyn Store>);
        MapState::new(store)
    }

    fn add(&mut self, store: Rc<dyn Store>) {
        let name = store.name();
        if name.is_empty() || store.version() == 0 {
            self.fault.get_or_insert_with(|| format!("the state `{name}`: a state needs a name, and a version from 1 up"));
        }
        if self.stores.iter().any(|each| each.name() == name) {
            self.fault.get_or_insert_with(|| format!("the plugin declares the state `{name}` twice; names tell states apart"));
        }
        let tags = |name| [lifetime_tag(name), window_tag(name)];
        if let Some(other) = self.stores.iter().find(|each| each.name() != name && tags(each.name()) == tags(name)) {
            let other = other.name();
            self.fault.get_or_insert_with(|| {
                format!("the plugin declares the states `{other}` and `{name}`, whose timers could not be told apart: give one of them another name")
            });
        }
        self.stores.push(store);
    }

    /// Name, version and kind of each state.
    pub(crate) fn states(&self) -> impl Iterator<Item = (&str, u32, &'static str)> {
        self.stores.iter().map(|store| (store.name(), store.version(), store.kind()))
    }

    pub(crate) fn into_registry(self) -> Result<Registry, String> {
        match self.fault {
            Some(fault) => Err(fault),
            None => Ok(Registry::new(self.current, self.stores, self.broadcast)),
        }
    }
}
