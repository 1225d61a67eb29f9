//! Runs a [`MapPlugin`].

use std::fmt;

use super::open;
use crate::bindings::{Batch, Column, Context, Emitted};
use crate::failure::Failure;
use crate::output::{Buffers, Output};
use crate::plugin::MapPlugin;
use crate::record::{Columns, Record, Rows};

/// An instance of a map plugin, or the place for one.
pub struct MapRuntime<P> {
    plugin: Option<P>,
    buffers: Buffers,
}

impl<P> fmt::Debug for MapRuntime<P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("MapRuntime").field("open", &self.plugin.is_some()).finish_non_exhaustive()
    }
}

impl<P> Default for MapRuntime<P> {
    fn default() -> Self {
        Self { plugin: None, buffers: Buffers::default() }
    }
}

const NOT_OPEN: &str = "the plugin is not open";

impl<P: MapPlugin> MapRuntime<P> {
    #[must_use]
    #[allow(missing_docs, reason = "as in the contract")]
    pub fn describe() -> String {
        open::describe(&[], &["input"], &[], P::SIDE_OUTPUTS, P::CAPABILITIES)
    }

    #[allow(missing_docs, clippy::missing_errors_doc, reason = "as in the contract")]
    pub fn open(&mut self, config: &str, environment: &str) -> Result<(), String> {
        open::check_side_outputs(P::SIDE_OUTPUTS)?;
        let environment = open::environment(environment)?;
        self.plugin = Some(P::open(open::config(config)?, &environment).map_err(Failure::into_reason)?);
        Ok(())
    }

    #[allow(missing_docs, clippy::missing_errors_doc, reason = "as in the contract")]
    pub fn process(&mut self, batch: Batch, context: &Context) -> Result<Emitted, String> {
        let plugin = self.plugin.as_mut().ok_or(NOT_OPEN)?;
        let columns = Columns::of(&batch);
        let mut out = Output::new(&mut self.buffers, Rows::Batch(columns), context, P::SIDE_OUTPUTS);
        let result = process_rows(plugin, &columns, &mut out);
        self.hand_over(result, Some(batch.values))
    }

    #[allow(missing_docs, clippy::missing_errors_doc, reason = "as in the contract")]
    pub fn finish(&mut self, context: &Context) -> Result<Emitted, String> {
        let plugin = self.plugin.as_mut().ok_or(NOT_OPEN)?;
        let mut out = Output::new(&mut self.buffers, Rows::None, context, P::SIDE_OUTPUTS);
        let result = plugin.finish(&mut out);
        self.hand_over(result, None)
    }

    fn hand_over(&mut self, result: Result<(), Failure>, input_values: Option<Column>) -> Result<Emitted, String> {
        self.buffers.publish_counters();
        let emitted = self.buffers.take_emitted(input_values);
        let defect = self.buffers.take_defect();
        result.map_err(Failure::into_reason)?;
        defect.map_or(Ok(emitted), Err)
    }

    #[allow(missing_docs, reason = "as in the contract")]
    pub fn close(&mut self) {
        if let Some(mut plugin) = self.plugin.take() {
            plugin.close();
        }
    }
}

/// Processes each row; what a failed one emitted is dropped. Breaks off when the batch as a whole fails.
fn process_rows<P: MapPlugin>(plugin: &mut P, columns: &Columns<'_>, out: &mut Output<'_>) -> Result<(), Failure> {
    for row in 0..columns.count {
        let mark = out.buffers.mark();
        out.row = row;
        if let Err(failure) = plugin.process(&Record::of(columns, row, 0), out) {
            if failure.is_whole_batch() {
                return Err(failure);
            }
            out.buffers.roll_back(mark);
            out.buffers.fail(row, failure.into_reason());
        }
    }
    Ok(())
}
