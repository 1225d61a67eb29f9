//! All states of a plugin: steps, exports and imports.

use std::cell::Ref;
use std::fmt;
use std::rc::Rc;

use super::Store;
use super::chunk::{Chunk, Cursor};
use super::codec::Shown;
use super::current::Current;
use crate::bindings::{Column, Entries, Scope};
use crate::record::entry;

/// An export that has begun.
#[derive(Debug)]
struct Export {
    scope: Scope,
    /// The state that it has come to.
    store: usize,
    cursor: Cursor,
}

pub(crate) struct Registry {
    current: Rc<Current>,
    stores: Vec<Rc<dyn Store>>,
    export: Option<Export>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.stores.iter().map(|store| store.name()).collect();
        formatter.debug_struct("Registry").field("stores", &names).field("export", &self.export).finish_non_exhaustive()
    }
}

impl Registry {
    pub(crate) fn new(current: Rc<Current>, stores: Vec<Rc<dyn Store>>) -> Self {
        Self { current, stores, export: None }
    }

    /// Keeps the keys of a call.
    pub(crate) fn take_keys(&self, keys: Column) -> Ref<'_, Column> {
        self.current.take_keys(keys)
    }

    /// Begins to process the record or the timer of this row, which has this key.
    #[inline]
    pub(crate) fn begin(&self, row: u32, key: &[u8]) {
        self.current.begin(row, key);
    }

    /// Takes back what the present step wrote.
    pub(crate) fn roll_back(&self) {
        for store in &self.stores {
            store.roll_back();
        }
    }

    /// After the last step of a call.
    pub(crate) fn end(&self) {
        self.current.end();
    }

    pub(crate) fn begin_export(&mut self, scope: Scope) -> Result<(), String> {
        if self.export.is_some() {
            return Err("an export has begun and not ended: call next-chunk until it returns none".to_owned());
        }
        self.export = Some(Export { scope, store: 0, cursor: Cursor::default() });
        Ok(())
    }

    pub(crate) fn next_chunk(&mut self, max_bytes: u32) -> Result<Option<Entries>, String> {
        let Some(export) = &mut self.export else {
            return Err("no export has begun: call begin-export first".to_owned());
        };
        while let Some(store) = self.stores.get(export.store) {
            let mut chunk = Chunk::new((max_bytes as usize).max(1));
            if store.export(export.scope, &mut export.cursor, &mut chunk)? {
                export.store += 1;
                export.cursor = Cursor::default();
            }
            if !chunk.is_empty() {
                return Ok(Some(chunk.into_entries(store.name(), store.version())));
            }
        }
        self.export = None;
        Ok(None)
    }

    pub(crate) fn import(&self, entries: &Entries) -> Result<(), String> {
        match self.stores.iter().find(|store| store.name() == entries.state) {
            Some(store) => store.import(entries),
            None => {
                let names: Vec<_> = self.stores.iter().map(|store| store.name()).collect();
                Err(format!("the plugin has no state `{}`; it declares {names:?}", entries.state))
            }
        }
    }

    pub(crate) fn evict(&self, keys: &Column) -> Result<(), String> {
        let rows = 0..keys.ends.len();
        for key in rows.clone().map(|row| entry(keys, row)) {
            if let Some(store) = self.stores.iter().find(|store| store.has_changes(key)) {
                return Err(format!(
                    "state `{}`, key {}: it has changes that were not exported, so it cannot be evicted",
                    store.name(),
                    Shown(key)
                ));
            }
        }
        for key in rows.map(|row| entry(keys, row)) {
            for store in &self.stores {
                store.evict(key);
            }
        }
        Ok(())
    }
}
