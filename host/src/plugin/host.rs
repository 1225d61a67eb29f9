//! What an instance keeps on the host's side, and the functions of the host that it may call.

use super::bindings::host::{self, Level};
use super::limits::{Deadline, Limiter};
use super::log::{Loudness, PluginLog};
use super::metrics::PluginMetrics;
use super::wasi::BatchClock;
use crate::record::{Batch, SplitTable};
use std::sync::Arc;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

/// How long the last words of a plugin may be, in bytes.
const MAX_PANIC_BYTES: usize = 4 * 1024;

/// The data of an instance's store.
pub(super) struct PluginState {
    pub(super) wasi: WasiCtx,
    pub(super) table: ResourceTable,
    pub(super) limiter: Limiter,
    pub(super) deadline: Deadline,
    pub(super) clock: BatchClock,
    pub(super) log: PluginLog,
    pub(super) metrics: Arc<PluginMetrics>,
    pub(super) split_table: SplitTable,
    /// The batch in process, for questions about its headers and origins.
    pub(super) batch: Option<Arc<Batch>>,
    /// What the plugin said before it trapped.
    pub(super) panic: Option<String>,
}

impl WasiView for PluginState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl PluginState {
    /// The batch in process, if it has such a row.
    fn batch_with(&self, row: u32) -> Option<&Batch> {
        self.batch.as_deref().filter(|batch| (row as usize) < batch.len())
    }
}

impl host::Host for PluginState {
    fn log(&mut self, level: Level, message: String) {
        let loudness = match level {
            Level::Debug => Loudness::Debug,
            Level::Info => Loudness::Info,
            Level::Warn => Loudness::Warn,
            Level::Error => Loudness::Error,
        };
        self.log.line(loudness, &message);
    }

    fn count(&mut self, counter: String, by: u64) {
        self.metrics.count(&counter, by);
    }

    fn headers(&mut self, row: u32) -> Vec<(String, Option<Vec<u8>>)> {
        let Some(batch) = self.batch_with(row) else { return Vec::new() };
        let owned = batch.headers().row(row as usize);
        owned.map(|header| (header.name.to_owned(), header.value.map(<[u8]>::to_vec))).collect()
    }

    fn origin(&mut self, row: u32) -> Option<host::Place> {
        let origin = self.batch_with(row)?.origins()[row as usize];
        let place = self.split_table.place(origin)?;
        Some(host::Place { source: place.source, split: place.split, position: place.position.to_string() })
    }

    fn panicked(&mut self, mut message: String) {
        message.truncate(message.floor_char_boundary(MAX_PANIC_BYTES));
        self.panic = Some(message);
    }
}
