//! Runs a [`KeyedPlugin`].

use std::fmt;

use serde_json::json;

use super::open;
use crate::bindings::{Batch, Column, Context, Entries, KeyedEmitted, Scope, Timers};
use crate::failure::{Failure, fail_batch};
use crate::output::{Buffers, KeyedOutput, Mark, Output, empty_column, end};
use crate::plugin::KeyedPlugin;
use crate::record::{Columns, Record, Rows};
use crate::state::{Declare, Registry, is_lifetime};
use crate::timer::{Clock, RESERVED_TAGS, Timer};

/// An instance of a keyed plugin, or the place for one.
pub struct KeyedRuntime<P> {
    instance: Option<Instance<P>>,
    buffers: Buffers,
}

struct Instance<P> {
    plugin: P,
    registry: Registry,
}

impl<P> fmt::Debug for KeyedRuntime<P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("KeyedRuntime").field("open", &self.instance.is_some()).finish_non_exhaustive()
    }
}

impl<P> Default for KeyedRuntime<P> {
    fn default() -> Self {
        Self { instance: None, buffers: Buffers::default() }
    }
}

const NOT_OPEN: &str = "the plugin is not open";

impl<P: KeyedPlugin> KeyedRuntime<P> {
    #[must_use]
    #[allow(missing_docs, reason = "as in the contract")]
    pub fn describe() -> String {
        let mut declare = Declare::default();
        P::declare(&mut declare);
        let states: Vec<_> =
            declare.states().map(|(name, version, kind)| json!({ "name": name, "version": version, "kind": kind })).collect();
        open::describe(&states, P::INPUTS, P::BROADCAST_INPUTS, P::SIDE_OUTPUTS, P::CAPABILITIES)
    }

    #[allow(missing_docs, clippy::missing_errors_doc, reason = "as in the contract")]
    pub fn open(&mut self, config: &str, environment: &str) -> Result<(), String> {
        open::check_side_outputs(P::SIDE_OUTPUTS)?;
        open::check_broadcast_inputs(P::INPUTS, P::BROADCAST_INPUTS)?;
        let environment = open::environment(environment)?;
        let mut declare = Declare::default();
        let states = P::declare(&mut declare);
        let mut registry = declare.into_registry()?;
        let plugin = P::open(open::config(config)?, states, &environment).map_err(Failure::into_reason)?;
        registry.opened();
        self.instance = Some(Instance { plugin, registry });
        Ok(())
    }

    #[allow(missing_docs, clippy::missing_errors_doc, reason = "as in the contract")]
    pub fn process(&mut self, input: u32, batch: Batch, context: &Context) -> Result<KeyedEmitted, String> {
        let instance = self.instance.as_mut().ok_or(NOT_OPEN)?;
        let Batch { count, timestamps, keys, values, nulls } = batch;
        instance.registry.begin_call(context, &mut self.buffers);
        let has_key = !is_broadcast::<P>(input);
        let result = {
            let keys = &*instance.registry.take_keys(keys);
            let columns = Columns { count, timestamps: &timestamps, keys, values: &values, nulls: &nulls };
            let output = Output::new(&mut self.buffers, Rows::Batch(columns), context, P::SIDE_OUTPUTS);
            process_rows(&mut instance.plugin, &instance.registry, input, &columns, &mut KeyedOutput { output, has_key })
        };
        self.hand_over(result, Some(values))
    }

    #[allow(missing_docs, clippy::missing_errors_doc, reason = "as in the contract")]
    pub fn on_timers(&mut self, mut fired: Timers, context: &Context) -> Result<KeyedEmitted, String> {
        let instance = self.instance.as_mut().ok_or(NOT_OPEN)?;
        let keys = std::mem::replace(&mut fired.keys, empty_column());
        instance.registry.begin_call(context, &mut self.buffers);
        let result = {
            let keys = &*instance.registry.take_keys(keys);
            let rows = Rows::Fired { keys, times: &fired.times };
            let output = Output::new(&mut self.buffers, rows, context, P::SIDE_OUTPUTS);
            process_timers(&mut instance.plugin, &instance.registry, &fired, keys, &mut KeyedOutput { output, has_key: true })
        };
        self.hand_over(result, None)
    }

    #[allow(missing_docs, clippy::missing_errors_doc, reason = "as in the contract")]
    pub fn finish(&mut self, context: &Context) -> Result<KeyedEmitted, String> {
        let instance = self.instance.as_mut().ok_or(NOT_OPEN)?;
        let mut out = Output::new(&mut self.buffers, Rows::None, context, P::SIDE_OUTPUTS);
        let result = instance.plugin.finish(&mut out);
        self.hand_over(result, None)
    }

    fn hand_over(&mut self, result: Result<(), Failure>, input_values: Option<Column>) -> Result<KeyedEmitted, String> {
        if let Some(instance) = &self.instance {
            instance.registry.end();
        }
        self.buffers.publish_counters();
        let emitted = KeyedEmitted { emitted: self.buffers.take_emitted(input_values), timers: self.buffers.take_timers() };
        let defect = self.buffers.take_defect();
        result.map_err(Failure::into_reason)?;
        defect.map_or(Ok(emitted), Err)
    }

    #[allow(missing_docs, reason = "as in the contract")]
    pub fn close(&mut self) {
        if let Some(mut instance) = self.instance.take() {
            instance.plugin.close();
        }
    }

    #[allow(missing_docs, clippy::missing_errors_doc, reason = "as in the contract")]
    pub fn begin_export(&mut self, scope: Scope) -> Result<(), String> {
        self.instance.as_mut().ok_or(NOT_OPEN)?.registry.begin_export(scope)
    }

    #[allow(missing_docs, clippy::missing_errors_doc, reason = "as in the contract")]
    pub fn next_chunk(&mut self, max_bytes: u32) -> Result<Option<Entries>, String> {
        self.instance.as_mut().ok_or(NOT_OPEN)?.registry.next_chunk(max_bytes)
    }

    #[allow(missing_docs, clippy::missing_errors_doc, reason = "as in the contract")]
    pub fn import_state(&mut self, entries: &Entries) -> Result<(), String> {
        self.instance.as_mut().ok_or(NOT_OPEN)?.registry.import(entries)
    }

    #[allow(missing_docs, clippy::missing_errors_doc, reason = "as in the contract")]
    pub fn evict(&mut self, keys: &Column) -> Result<(), String> {
        self.instance.as_mut().ok_or(NOT_OPEN)?.registry.evict(keys)
    }
}

fn process_rows<P: KeyedPlugin>(
    plugin: &mut P,
    registry: &Registry,
    input: u32,
    columns: &Columns<'_>,
    out: &mut KeyedOutput<'_>,
) -> Result<(), Failure> {
    for row in 0..columns.count {
        let mark = out.buffers.mark();
        let record = Record::of(columns, row, input);
        out.row = row;
        if out.has_key {
            registry.begin(row, record.key().unwrap_or_default(), record.timestamp());
        } else {
            registry.begin_broadcast();
        }
        let result = plugin.process(&record, out);
        settle(result, registry, mark, out)?;
    }
    Ok(())
}

fn process_timers<P: KeyedPlugin>(
    plugin: &mut P,
    registry: &Registry,
    fired: &Timers,
    keys: &Column,
    out: &mut KeyedOutput<'_>,
) -> Result<(), Failure> {
    for row in 0..end(fired.times.len()) {
        let mark = out.buffers.mark();
        let timer = Timer::of(fired, keys, row);
        out.row = row;
        registry.begin(row, timer.key(), if timer.clock() == Clock::Event { timer.time() } else { i64::MIN });
        let result = fire(plugin, registry, &timer, out);
        settle(result, registry, mark, out)?;
    }
    Ok(())
}

/// Fires a timer: the plugin's, or one of a state's.
fn fire<P: KeyedPlugin>(plugin: &mut P, registry: &Registry, timer: &Timer<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
    if is_lifetime(timer.tag()) {
        registry.expire(timer.tag(), timer.time());
        return Ok(());
    }
    plugin.on_timer(timer, out)?;
    if timer.tag() >= RESERVED_TAGS && !registry.take_claim() {
        return Err(fail_batch(
            "a timer of windows or of a join has fired, and the plugin's on_timer did not hand it over: call on_timer of each of them there",
        ));
    }
    Ok(())
}

fn is_broadcast<P: KeyedPlugin>(input: u32) -> bool {
    P::INPUTS.get(input as usize).is_some_and(|name| P::BROADCAST_INPUTS.contains(name))
}

/// Takes back all that a failed step did, and notes why it failed. Breaks off when the batch as a whole fails.
#[inline]
fn settle(result: Result<(), Failure>, registry: &Registry, mark: Mark, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
    match result {
        Ok(()) => {
            let Output { buffers, rows, row, .. } = &mut out.output;
            registry.settle(rows.key(*row).filter(|_| out.has_key), buffers);
            Ok(())
        }
        Err(failure) if failure.is_whole_batch() => Err(failure),
        Err(failure) => {
            registry.roll_back();
            let row = out.row;
            out.buffers.roll_back(mark);
            out.buffers.fail(row, failure.into_reason());
            Ok(())
        }
    }
}
