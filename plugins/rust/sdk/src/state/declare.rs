//! How a plugin says which states it has.

use std::fmt;
use std::rc::Rc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::codec::{Migrate, Reader};
use super::current::Current;
use super::map_store::MapStore;
use super::registry::Registry;
use super::value_store::ValueStore;
use super::{KeyedState, MapState, Store};

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
        let store = Rc::new(MapStore::new::<K>(Rc::clone(&self.current), reader));
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
        self.stores.push(store);
    }

    /// Name, version and kind of each state.
    pub(crate) fn states(&self) -> impl Iterator<Item = (&str, u32, &'static str)> {
        self.stores.iter().map(|store| (store.name(), store.version(), store.kind()))
    }

    pub(crate) fn into_registry(self) -> Result<Registry, String> {
        match self.fault {
            Some(fault) => Err(fault),
            None => Ok(Registry::new(self.current, self.stores)),
        }
    }
}
