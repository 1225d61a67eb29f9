//! Limits of an instance: its memory, and the time of a call.

use super::engine::TickClock;
use crate::config::{Size, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::pin::pin;
use std::time::Duration;
use wasmtime::{ResourceLimiter, StoreContextMut, UpdateDeadline};

/// How many entries all tables of an instance may have: each costs the host a pointer, and functions, not data, are what fills them.
const MAX_TABLE_ENTRIES: usize = 1_000_000;
/// How many core instances, memories and tables a component may consist of. Real ones have below twenty.
const MAX_PARTS: usize = 100;

/// What an instance may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Limits {
    /// Memory of one instance. By default 256 MiB.
    pub memory: Size,
    /// How long one call may take. By default 10 s.
    pub call_timeout: Span,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory: Size(256 << 20), call_timeout: Span(Duration::from_secs(10)) }
    }
}

/// Counts the memory of one instance, and remembers what it was denied.
#[derive(Debug)]
pub(super) struct Limiter {
    limit: usize,
    used: usize,
    table_entries: usize,
    /// What the instance would have used with what it asked for, when it was denied in the call that runs.
    pub(super) denied: Option<usize>,
}

impl Limiter {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { limit: usize::try_from(limits.memory.0).unwrap_or(usize::MAX), used: 0, table_entries: 0, denied: None }
    }

    pub(super) fn used(&self) -> usize {
        self.used
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }
}

impl ResourceLimiter for Limiter {
    /// A denial is an answer that a plugin can live with; if it traps instead, the error names the limit.
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let wanted = self.used.saturating_add(desired.saturating_sub(current));
        if wanted > self.limit {
            self.denied = Some(wanted);
            return Ok(false);
        }
        self.used = wanted;
        Ok(true)
    }

    fn table_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let wanted = self.table_entries.saturating_add(desired.saturating_sub(current));
        let allowed = wanted <= MAX_TABLE_ENTRIES;
        if allowed {
            self.table_entries = wanted;
        }
        Ok(allowed)
    }

    fn instances(&self) -> usize {
        MAX_PARTS
    }

    fn tables(&self) -> usize {
        MAX_PARTS
    }

    fn memories(&self) -> usize {
        MAX_PARTS
    }
}

/// The deadline of the call that runs, in ticks of the engine's clock.
#[derive(Debug)]
pub(super) struct Deadline {
    clock: TickClock,
    limit: Duration,
    limit_ticks: u64,
    at: u64,
    /// Whether the call that runs was stopped at its deadline.
    pub(super) missed: bool,
}

/// What ends a call at its deadline.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the call took too long")]
pub(super) struct DeadlineMissed;

impl Deadline {
    pub(super) fn new(clock: TickClock, limit: Duration) -> Self {
        let limit_ticks = clock.ticks_of(limit);
        Self { clock, limit, limit_ticks, at: 0, missed: false }
    }

    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// A call begins now.
    pub(super) fn start(&mut self) {
        // One tick more: the one that is under way when the call begins is not a whole one.
        self.at = self.clock.now().saturating_add(self.limit_ticks).saturating_add(1);
        self.missed = false;
    }

    fn is_over(&self) -> bool {
        self.clock.now() > self.at
    }

    /// What a long call does at each tick: it lets other tasks have a turn, until its deadline.
    pub(super) fn tick(&mut self) -> wasmtime::Result<UpdateDeadline> {
        if self.is_over() {
            self.missed = true;
            return Err(DeadlineMissed.into());
        }
        Ok(UpdateDeadline::Yield(1))
    }

    /// A watch beside the call, for a plugin that does not compute but waits in a call of the host (of WASI).
    pub(super) fn watch(&self) -> Watch {
        Watch { clock: self.clock.clone(), at: self.at }
    }
}

/// Tells when a deadline is over.
pub(super) struct Watch {
    clock: TickClock,
    at: u64,
}

impl Watch {
    async fn over(self) {
        loop {
            // A few ticks later than the deadline in the plugin's own code, which has the better place to tell.
            let left = self.at.saturating_add(3).saturating_sub(self.clock.now());
            let Ok(left @ 1..) = u32::try_from(left) else { return };
            tokio::time::sleep(self.clock.tick().saturating_mul(left)).await;
        }
    }
}

/// Runs a call, and gives it up when it still waits after its deadline.
pub(super) async fn guarded<T>(call: impl Future<Output = wasmtime::Result<T>>, watch: Watch) -> wasmtime::Result<T> {
    let mut call = pin!(call);
    tokio::select! {
        // The call comes first: one that is done at once never makes a timer.
        biased;
        answer = &mut call => answer,
        () = watch.over() => Err(DeadlineMissed.into()),
    }
}

/// What the store calls at each tick.
pub(super) fn at_tick<T>(
    deadline: impl Fn(&mut T) -> &mut Deadline + Send + Sync + 'static,
) -> impl FnMut(StoreContextMut<'_, T>) -> wasmtime::Result<UpdateDeadline> + Send + Sync + 'static {
    move |mut store| deadline(store.data_mut()).tick()
}
