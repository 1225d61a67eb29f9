//! Runs a [`KeyedPlugin`].

use serde_json::json;

use super::open;
use crate::bindings::{Batch, Column, Context, Entries, KeyedEmitted, Scope, Timers};
use crate::failure::Failure;
use crate::output::{Buffers, KeyedOutput, Mark, Output};
use crate::plugin::KeyedPlugin;
use crate::record::{Record, Rows};
use crate::state::{Declare, Registry};
use crate::timer::Timer;

/// An instance of a keyed plugin, or the place for one.
#[derive(Debug)]
pub struct KeyedRuntime<P> {
    instance: Option<Instance<P>>,
    buffers: Buffers,
}

#[derive(Debug)]
struct Instance<P> {
    plugin: P,
    registry: Registry,
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
        let states: Vec<_> = declare
            .states()
            .map(|(name, version, kind)| json!({ "name": name, "version": version, "kind": kind }))
            .collect();
        open::describe(&states, P::INPUTS, P::SIDE_OUTPUTS, P::CAPABILITIES)
    }

    #[allow(missing_docs, clippy::missing_errors_doc, reason = "as in the contract")]
    pub fn open(&mut self, config: &str, environment: &str) -> Result<(), String> {
        open::check_side_outputs(P::SIDE_OUTPUTS)?;
        let environment = open::environment(environment)?;
        let mut declare = Declare::default();
        let states = P::declare(&mut declare);
        let registry = declare.into_registry()?;
        let plugin = P::open(open::config(config)?, states, &environment).map_err(Failure::into_reason)?;
        self.instance = Some(Instance { plugin, registry });
        Ok(())
    }

    #[allow(missing_docs, clippy::missing_errors_doc, reason = "as in the contract")]
    pub fn process(&mut self, input: u32, batch: &Batch, context: &Context) -> Result<KeyedEmitted, String> {
        let instance = self.instance.as_mut().ok_or(NOT_OPEN)?;
        self.buffers.reserve(batch.count);
        let output = Output::new(&mut self.buffers, Rows::Batch(batch), context, P::SIDE_OUTPUTS);
        let result = instance.process_rows(input, batch, &mut KeyedOutput { output });
        self.hand_over(result)
    }

    #[allow(missing_docs, clippy::missing_errors_doc, reason = "as in the contract")]
    pub fn on_timers(&mut self, fired: &Timers, context: &Context) -> Result<KeyedEmitted, String> {
        let instance = self.instance.as_mut().ok_or(NOT_OPEN)?;
        let output = Output::new(&mut self.buffers, Rows::Fired(fired), context, P::SIDE_OUTPUTS);
        let result = instance.process_timers(fired, &mut KeyedOutput { output });
        self.hand_over(result)
    }

    #[allow(missing_docs, clippy::missing_errors_doc, reason = "as in the contract")]
    pub fn finish(&mut self, context: &Context) -> Result<KeyedEmitted, String> {
        let instance = self.instance.as_mut().ok_or(NOT_OPEN)?;
        let mut out = Output::new(&mut self.buffers, Rows::None, context, P::SIDE_OUTPUTS);
        let result = instance.plugin.finish(&mut out);
        self.hand_over(result)
    }

    fn hand_over(&mut self, result: Result<(), Failure>) -> Result<KeyedEmitted, String> {
        if let Some(instance) = &self.instance {
            instance.registry.end();
        }
        self.buffers.publish_counters();
        let emitted = KeyedEmitted { emitted: self.buffers.take_emitted(), timers: self.buffers.take_timers() };
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

impl<P: KeyedPlugin> Instance<P> {
    fn process_rows(&mut self, input: u32, batch: &Batch, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        for row in 0..batch.count {
            let mark = out.buffers.mark();
            let record = Record::of(batch, row, input);
            out.row = row;
            self.registry.begin(record.key().unwrap_or_default());
            let result = self.plugin.process(&record, out);
            self.settle(result, mark, out)?;
        }
        Ok(())
    }

    fn process_timers(&mut self, fired: &Timers, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        for row in 0..crate::output::end(fired.times.len()) {
            let mark = out.buffers.mark();
            let timer = Timer::of(fired, row);
            out.row = row;
            self.registry.begin(timer.key());
            let result = self.plugin.on_timer(&timer, out);
            self.settle(result, mark, out)?;
        }
        Ok(())
    }

    /// Takes back all that a failed step did, and notes why it failed. Breaks off when the batch as a whole fails.
    #[inline]
    fn settle(&self, result: Result<(), Failure>, mark: Mark, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        match result {
            Ok(()) => Ok(()),
            Err(failure) if failure.is_whole_batch() => Err(failure),
            Err(failure) => {
                self.registry.roll_back();
                let row = out.row;
                out.buffers.roll_back(mark);
                out.buffers.fail(row, failure.into_reason());
                Ok(())
            }
        }
    }
}
