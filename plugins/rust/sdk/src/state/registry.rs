//! All states of a plugin: steps, exports and imports.

use std::cell::Ref;
use std::fmt;
use std::rc::Rc;

use super::Store;
use super::chunk::{Chunk, Cursor};
use super::codec::Shown;
use super::current::Current;
use crate::bindings::{Column, Context, Entries, Scope};
use crate::output::Buffers;
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
    /// What broadcast states look at, if there are any.
    broadcast: Option<Rc<Current>>,
    /// Whether steps may set timers by states: there is a time to live.
    has_lives: bool,
    export: Option<Export>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.stores.iter().map(|store| store.name()).collect();
        formatter.debug_struct("Registry").field("stores", &names).field("export", &self.export).finish_non_exhaustive()
    }
}

impl Registry {
    pub(crate) fn new(current: Rc<Current>, stores: Vec<Rc<dyn Store>>, broadcast: Option<Rc<Current>>) -> Self {
        Self { current, stores, broadcast, has_lives: false, export: None }
    }

    /// The plugin is open: which states have a time to live stays as it is.
    pub(crate) fn opened(&mut self) {
        self.has_lives = self.stores.iter().any(|store| store.lifetime().is_some());
    }

    /// Begins a call.
    pub(crate) fn begin_call(&self, context: &Context, buffers: &mut Buffers) {
        self.current.take_clocks(context);
        if self.has_lives {
            for store in &self.stores {
                store.begin_lives(&mut |key, timer| buffers.push_timer(key, timer.clock.number(), timer.time, timer.tag, 0));
            }
        }
    }

    /// Keeps the keys of a call.
    pub(crate) fn take_keys(&self, keys: Column) -> Ref<'_, Column> {
        self.current.take_keys(keys)
    }

    /// Begins to process the record or the timer of this row, which has this key.
    #[inline]
    pub(crate) fn begin(&self, row: u32, key: &[u8], timestamp: i64) {
        self.current.begin(row, key);
        if self.has_lives {
            self.current.take_timestamp(timestamp);
        }
        if let Some(broadcast) = &self.broadcast {
            broadcast.next_step(false);
        }
    }

    /// Begins to process a record of a broadcast input.
    pub(crate) fn begin_broadcast(&self) {
        self.current.begin_broadcast();
        if let Some(broadcast) = &self.broadcast {
            broadcast.next_step(true);
        }
    }

    /// After a step that did not fail: what states do by themselves.
    #[inline]
    pub(crate) fn settle(&self, key: Option<&[u8]>, buffers: &mut Buffers) {
        if let Some(key) = key.filter(|_| self.has_lives) {
            self.stores.iter().for_each(|store| store.settle());
            self.current.drain_timers(|timer| {
                buffers.push_timer(key, timer.clock.number(), timer.time, timer.tag, u8::from(timer.is_deleted));
            });
        }
    }

    /// Whether the timer in process was taken by the windows or the join that it belongs to.
    pub(crate) fn take_claim(&self) -> bool {
        self.current.take_claim()
    }

    /// A timer of the key in process has fired that belongs to the time to live of the state with this tag. Where no state has it any more,
    /// nothing is to be done.
    pub(crate) fn expire(&self, tag: u32, time: i64) {
        self.stores.iter().filter(|store| store.lifetime() == Some(tag)).for_each(|store| store.expire(time));
    }

    /// Takes back what the present step wrote.
    pub(crate) fn roll_back(&self) {
        for store in &self.stores {
            store.roll_back();
        }
        self.current.drain_timers(drop);
    }

    /// After the last step of a call.
    pub(crate) fn end(&self) {
        self.current.end();
        if let Some(broadcast) = &self.broadcast {
            broadcast.next_step(false);
        }
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
