//! Operators: what turns records into records. Plugins are the usual ones, behind an adapter; a host's own can implement the trait as well.

mod condemned;
mod isolation;
mod keyed;
mod late;
mod map;
mod policy;

pub use isolation::{Condemned, Isolation};
pub use keyed::KeyedOperator;
pub use late::{LATE_OUTPUT, LATE_ROUTE, LateRecords};
pub use map::MapOperator;
pub use policy::{ErrorPolicy, FailureHandler, OPERATOR_HEADER, POSITION_HEADER, REASON_HEADER, SOURCE_HEADER, SPLIT_HEADER};

use crate::Error;
use crate::record::Batch;
use crate::state::{StateReader, StateWriter};
use async_trait::async_trait;

/// The times that an operator may know of: the same for a whole batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// No record with an earlier event time is expected any more; milliseconds since the Unix epoch.
    pub watermark: i64,
    /// The time of day, milliseconds since the Unix epoch.
    pub processing_time: i64,
}

/// Where records that an operator could not process go by the job's error policy.
pub const DEAD_LETTER_ROUTE: u8 = u8::MAX;

/// What an operator emitted for one call: batches, each for an output. Route 0 is the main output, others are the side outputs
/// in the order in which the operator declares them, [`DEAD_LETTER_ROUTE`] takes dead letters, [`LATE_ROUTE`] late records.
#[derive(Debug, Default)]
pub struct Outputs {
    batches: Vec<(u8, Batch)>,
}

impl Outputs {
    /// Emits a batch; an empty one is dropped.
    pub fn emit(&mut self, route: u8, batch: Batch) {
        if !batch.is_empty() {
            self.batches.push((route, batch));
        }
    }

    /// Takes out what was emitted, in order, and leaves room for the next call.
    pub fn drain(&mut self) -> impl Iterator<Item = (u8, Batch)> + '_ {
        self.batches.drain(..)
    }

    /// Whether nothing was emitted.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }
}

/// One subtask of an operator.
///
/// 1. It has no effect but its outputs and its state.
/// 2. A snapshot describes exactly the batches processed so far.
/// 3. After an error the operator is dropped, and the job restores another one. Its errors name its uid.
#[async_trait]
pub trait Operator: Send {
    /// Processes a batch of an input.
    async fn process(&mut self, input: usize, batch: Batch, times: Times, outputs: &mut Outputs) -> Result<(), Error>;

    /// The processing time at which [`Operator::advance`] is to be called, if timers wait; the smallest number: at once, for a timer is due by
    /// the watermark.
    fn next_timer(&self) -> Option<i64> {
        None
    }

    /// Time has gone on: fires timers that are due by the watermark or the processing time, a bounded number of them. Whoever calls sends on
    /// what was emitted, and calls again while [`Operator::next_timer`] is due, before it passes the watermark on or gives another batch.
    async fn advance(&mut self, _times: Times, _outputs: &mut Outputs) -> Result<(), Error> {
        Ok(())
    }

    /// All inputs have ended and all event-time timers have fired: the last records.
    async fn finish(&mut self, _times: Times, _outputs: &mut Outputs) -> Result<(), Error> {
        Ok(())
    }

    /// Writes what changed since the last snapshot (all, at the first one). The changes are handed over: whoever called keeps them until a
    /// completed checkpoint holds them.
    async fn snapshot(&mut self, _state: &mut StateWriter) -> Result<(), Error> {
        Ok(())
    }

    /// Writes all state, and leaves what counts as changed as it is: for savepoints.
    async fn snapshot_all(&mut self, _state: &mut StateWriter) -> Result<(), Error> {
        Ok(())
    }

    /// Takes the state of a checkpoint, before anything else is called: the entries of this subtask's key groups.
    async fn restore(&mut self, _state: &mut StateReader) -> Result<(), Error> {
        Ok(())
    }

    /// The operator is not needed any more.
    async fn close(&mut self) -> Result<(), Error> {
        Ok(())
    }
}
