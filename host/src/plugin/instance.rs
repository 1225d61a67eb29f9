//! One running instance of a plugin: the calls of its world, each within its deadline, and checked in what they return.

use super::bindings::types::{BatchParam, ColumnParam, Context, TimersParam};
use super::bindings::{keyed_processor, lifecycle, mapper, snapshot};
use super::call_error::CallError;
use super::emitted::{self, Failure, Rows};
use super::engine::TickClock;
use super::host::PluginState;
use super::limits::{self, Deadline, DeadlineMissed, Limiter, Limits, guarded};
use super::log::PluginLog;
use super::metrics::PluginMetrics;
use super::wasi::{BatchClock, Grants};
use crate::Error;
use crate::operator::{Outputs, Times};
use crate::record::{Batch, Column, SplitTable};
use crate::state::Entries;
use crate::state::timers::TimerColumns;
use std::sync::Arc;
use std::time::Instant;
use wasmtime::component::{InstancePre, ResourceTable};
use wasmtime::{Engine, Store, WasmBacktrace};

pub(crate) use super::bindings::snapshot::Scope;

/// A linked component, from which instances are made.
pub(super) struct Template {
    pub(super) engine: Engine,
    pub(super) clock: TickClock,
    pub(super) linked: InstancePre<PluginState>,
    pub(super) lifecycle: lifecycle::GuestIndices,
    pub(super) logic: LogicIndices,
}

impl std::fmt::Debug for Template {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Template").finish_non_exhaustive()
    }
}

pub(super) enum LogicIndices {
    Map(mapper::GuestIndices),
    Keyed(keyed_processor::GuestIndices, snapshot::GuestIndices),
}

/// What every instance of one subtask is made with.
pub(super) struct Surroundings {
    pub(super) grants: Grants,
    pub(super) limits: Limits,
    pub(super) log: PluginLog,
    pub(super) metrics: Arc<PluginMetrics>,
    pub(super) split_table: SplitTable,
    pub(super) side_outputs: usize,
    /// The operator's JSON, for `open`.
    pub(super) config: String,
    /// The JSON document of `open`.
    pub(super) environment: String,
}

/// Makes the instances of one subtask.
pub(crate) struct InstanceFactory {
    pub(super) template: Arc<Template>,
    pub(super) around: Surroundings,
}

impl InstanceFactory {
    /// Makes an instance and opens it with the operator's config.
    ///
    /// # Errors
    /// The plugin refuses its config, with its sentence, or cannot be started.
    pub(crate) async fn open(&self) -> Result<Instance, Error> {
        let uid = self.around.log.uid();
        Instance::open(&self.template, &self.around).await.map_err(|error| match error {
            CallError::Host(error) => error.within(format!("operator {uid}")),
            CallError::Returned(sentence) => Error::user(format!("operator {uid}: the plugin refuses its config: {sentence}")),
            other => Error::user(format!("operator {uid}: the plugin cannot be started: {other}")).with_retry(other.may_pass_at_start()),
        })
    }
}

/// A running instance. After an error of a call it is dead, and can only be dropped.
pub(crate) struct Instance {
    store: Store<PluginState>,
    lifecycle: lifecycle::Guest,
    logic: Logic,
    side_outputs: usize,
}

enum Logic {
    Map(mapper::Guest),
    Keyed(keyed_processor::Guest, snapshot::Guest),
}

/// Makes a call within its deadline.
macro_rules! call {
    ($instance:ident, $guest:expr => $call:ident($($argument:expr),*)) => {{
        let started = begin(&mut $instance.store);
        let watch = $instance.store.data().deadline.watch();
        let answer = guarded($guest.$call(&mut $instance.store, $($argument),*), watch).await;
        end(&mut $instance.store, started, answer)
    }};
}

impl Instance {
    async fn open(template: &Template, around: &Surroundings) -> Result<Self, CallError> {
        let mut instance = Self::new(template, around).await?;
        let guest = &instance.lifecycle;
        call!(instance, guest => call_open(&around.config, &around.environment))?.map_err(CallError::Returned)?;
        Ok(instance)
    }

    /// Makes an instance that was not opened: it can say what it is.
    pub(super) async fn new(template: &Template, around: &Surroundings) -> Result<Self, CallError> {
        let clock = BatchClock::default();
        let state = PluginState {
            wasi: around.grants.context(&clock, &around.log).map_err(CallError::Host)?,
            table: ResourceTable::new(),
            limiter: Limiter::new(&around.limits),
            deadline: Deadline::new(template.clock.clone(), around.limits.call_timeout.0),
            clock,
            log: around.log.clone(),
            metrics: Arc::clone(&around.metrics),
            split_table: around.split_table.clone(),
            batch: None,
            panic: None,
        };
        let mut store = Store::new(&template.engine, state);
        store.limiter(|state| &mut state.limiter);
        store.epoch_deadline_callback(limits::at_tick(|state: &mut PluginState| &mut state.deadline));
        let started = begin(&mut store);
        let watch = store.data().deadline.watch();
        let answer = guarded(template.linked.instantiate_async(&mut store), watch).await;
        let linked = end(&mut store, started, answer)?;
        let host = |error: wasmtime::Error| CallError::Host(Error::user("the component does not fit its world").caused_by(error));
        let lifecycle = template.lifecycle.load(&mut store, &linked).map_err(host)?;
        let logic = match &template.logic {
            LogicIndices::Map(mapper) => Logic::Map(mapper.load(&mut store, &linked).map_err(host)?),
            LogicIndices::Keyed(processor, snapshot) => {
                Logic::Keyed(processor.load(&mut store, &linked).map_err(host)?, snapshot.load(&mut store, &linked).map_err(host)?)
            }
        };
        Ok(Self { store, lifecycle, logic, side_outputs: around.side_outputs })
    }

    /// Bytes of memory that it has.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.store.data().limiter.used() as u64
    }

    /// The JSON document in which the plugin says what it is.
    pub(super) async fn describe(&mut self) -> Result<String, CallError> {
        let guest = &self.lifecycle;
        call!(self, guest => call_describe())
    }

    /// Processes a batch of a stateless plugin and emits what comes of it. On success `batch` may have moved on, unless there are failures;
    /// on an error nothing was emitted and `batch` is as it was.
    pub(crate) async fn map(&mut self, batch: &mut Arc<Batch>, times: Times, outputs: &mut Outputs) -> Result<Vec<Failure>, CallError> {
        let Logic::Map(guest) = &self.logic else { return Err(other_world()) };
        self.store.data_mut().enter(Arc::clone(batch), times);
        let answer = call!(self, guest => call_process(batch_param(batch), context(times)));
        self.store.data_mut().batch = None;
        let emitted = answer?.map_err(CallError::Returned)?;
        emitted::accept(emitted, batch, Rows::Input, self.side_outputs, outputs).map_err(CallError::WrongColumns)
    }

    /// The last records of a stateless plugin.
    pub(crate) async fn finish_map(&mut self, times: Times, outputs: &mut Outputs) -> Result<(), CallError> {
        let Logic::Map(guest) = &self.logic else { return Err(other_world()) };
        self.store.data_mut().clock.set(times.processing_time);
        let emitted = call!(self, guest => call_finish(context(times)))?.map_err(CallError::Returned)?;
        let mut none = Arc::new(Batch::default());
        emitted::accept(emitted, &mut none, Rows::None, self.side_outputs, outputs).map(drop).map_err(CallError::WrongColumns)
    }

    /// Processes a batch of an input of a keyed plugin. As with [`Instance::map`]; timers that the plugin sets and deletes are appended to `timers`.
    pub(crate) async fn process(
        &mut self,
        input: u32,
        batch: &mut Arc<Batch>,
        times: Times,
        outputs: &mut Outputs,
    ) -> Result<(Vec<Failure>, TimerColumns), CallError> {
        let Logic::Keyed(guest, _) = &self.logic else { return Err(other_world()) };
        self.store.data_mut().enter(Arc::clone(batch), times);
        let answer = call!(self, guest => call_process(input, batch_param(batch), context(times)));
        self.store.data_mut().batch = None;
        let answer = answer?.map_err(CallError::Returned)?;
        let timers = emitted::accept_timers(answer.timers).map_err(CallError::WrongColumns)?;
        let failures = emitted::accept(answer.emitted, batch, Rows::Input, self.side_outputs, outputs);
        failures.map(|failures| (failures, timers)).map_err(CallError::WrongColumns)
    }

    /// Fires timers. `rows` are the same timers as a batch: what emitted records come from.
    pub(crate) async fn on_timers(
        &mut self,
        fired: &TimerColumns,
        rows: &mut Arc<Batch>,
        times: Times,
        outputs: &mut Outputs,
    ) -> Result<(Vec<Failure>, TimerColumns), CallError> {
        let Logic::Keyed(guest, _) = &self.logic else { return Err(other_world()) };
        self.store.data_mut().clock.set(times.processing_time);
        let answer = call!(self, guest => call_on_timers(timers_param(fired), context(times)))?.map_err(CallError::Returned)?;
        let timers = emitted::accept_timers(answer.timers).map_err(CallError::WrongColumns)?;
        let failures = emitted::accept(answer.emitted, rows, Rows::Input, self.side_outputs, outputs);
        failures.map(|failures| (failures, timers)).map_err(CallError::WrongColumns)
    }

    /// The last records of a keyed plugin; timers that it sets now are dropped, as the contract says.
    pub(crate) async fn finish_keyed(&mut self, times: Times, outputs: &mut Outputs) -> Result<(), CallError> {
        let Logic::Keyed(guest, _) = &self.logic else { return Err(other_world()) };
        self.store.data_mut().clock.set(times.processing_time);
        let answer = call!(self, guest => call_finish(context(times)))?.map_err(CallError::Returned)?;
        emitted::accept_timers(answer.timers).map_err(CallError::WrongColumns)?;
        let mut none = Arc::new(Batch::default());
        emitted::accept(answer.emitted, &mut none, Rows::None, self.side_outputs, outputs).map(drop).map_err(CallError::WrongColumns)
    }

    /// Begins an export; [`Instance::next_chunk`] until it has no more.
    pub(crate) async fn begin_export(&mut self, scope: Scope) -> Result<(), CallError> {
        let Logic::Keyed(_, guest) = &self.logic else { return Err(other_world()) };
        call!(self, guest => call_begin_export(scope))?.map_err(CallError::Returned)
    }

    /// The next entries of the export, checked; none at its end.
    pub(crate) async fn next_chunk(&mut self, max_bytes: u32) -> Result<Option<Entries>, CallError> {
        let Logic::Keyed(_, guest) = &self.logic else { return Err(other_world()) };
        let chunk = call!(self, guest => call_next_chunk(max_bytes))?.map_err(CallError::Returned)?;
        chunk.map(accept_entries).transpose().map_err(CallError::WrongColumns)
    }

    /// Puts entries back in.
    ///
    /// # Errors
    /// [`CallError::Returned`] has the plugin's sentence when it refuses them.
    pub(crate) async fn import_state(&mut self, entries: &Entries) -> Result<(), CallError> {
        let Logic::Keyed(_, guest) = &self.logic else { return Err(other_world()) };
        let param = snapshot::EntriesParam {
            state: &entries.state,
            version: entries.version,
            keys: column_param(&entries.keys),
            subkeys: column_param(&entries.subkeys),
            values: column_param(&entries.values),
            removed: &entries.removed,
        };
        call!(self, guest => call_import_state(param))?.map_err(CallError::Returned)
    }

    /// The last call.
    pub(crate) async fn close(&mut self) -> Result<(), CallError> {
        let guest = &self.lifecycle;
        call!(self, guest => call_close())
    }
}

impl PluginState {
    fn enter(&mut self, batch: Arc<Batch>, times: Times) {
        self.metrics.processed(batch.len());
        self.clock.set(times.processing_time);
        self.batch = Some(batch);
    }
}

fn begin(store: &mut Store<PluginState>) -> Instant {
    store.set_epoch_deadline(1);
    let state = store.data_mut();
    state.deadline.start();
    state.limiter.denied = None;
    state.panic = None;
    Instant::now()
}

fn end<T>(store: &mut Store<PluginState>, started: Instant, answer: wasmtime::Result<T>) -> Result<T, CallError> {
    let state = store.data_mut();
    state.metrics.called(started.elapsed());
    state.metrics.set_memory(state.limiter.used());
    answer.map_err(|error| {
        state.metrics.trapped();
        call_error(state, &error)
    })
}

fn call_error(state: &mut PluginState, error: &wasmtime::Error) -> CallError {
    if error.is::<DeadlineMissed>() || state.deadline.missed {
        return CallError::Deadline { limit: state.deadline.limit() };
    }
    if let Some(asked) = state.limiter.denied {
        return CallError::Memory { limit: state.limiter.limit(), asked };
    }
    let frames = error.downcast_ref::<WasmBacktrace>().map_or(&[][..], WasmBacktrace::frames);
    let place = frames.first().and_then(|frame| frame.func_name()).map(str::to_owned);
    CallError::Trap { message: error.root_cause().to_string(), panic: state.panic.take(), place }
}

fn other_world() -> CallError {
    CallError::Host(Error::internal("a call of the other world than the plugin's"))
}

fn context(times: Times) -> Context {
    Context { watermark: times.watermark, processing_time: times.processing_time }
}

fn column_param(column: &Column) -> ColumnParam<'_> {
    ColumnParam { ends: column.ends(), bytes: column.bytes() }
}

fn batch_param(batch: &Batch) -> BatchParam<'_> {
    BatchParam {
        count: u32::try_from(batch.len()).unwrap_or(u32::MAX),
        timestamps: batch.timestamps(),
        keys: column_param(batch.keys()),
        values: column_param(batch.values()),
        nulls: batch.nulls(),
    }
}

fn timers_param(timers: &TimerColumns) -> TimersParam<'_> {
    TimersParam {
        keys: column_param(&timers.keys),
        times: &timers.times,
        tags: &timers.tags,
        clocks: &timers.clocks,
        operations: &timers.operations,
    }
}

fn accept_entries(entries: snapshot::EntriesResult) -> Result<Entries, String> {
    let snapshot::EntriesResult { state, version, keys, subkeys, values, removed } = entries;
    let column = |name: &str, column: super::bindings::types::ColumnResult| {
        Column::from_parts(column.ends, column.bytes).map_err(|sentence| format!("state {state:?}, {name}: {sentence}"))
    };
    let (keys, subkeys, values) = (column("keys", keys)?, column("subkeys", subkeys)?, column("values", values)?);
    if state.starts_with("waterwheel.") {
        return Err(format!("state {state:?}: names that start with `waterwheel.` are the host's own"));
    }
    let entries = Entries { state, version, keys, subkeys, values, removed };
    entries.check().map_err(|fault| fault.to_string())?;
    if entries.is_empty() {
        return Err(format!("state {:?}: a chunk without entries", entries.state));
    }
    Ok(entries)
}
