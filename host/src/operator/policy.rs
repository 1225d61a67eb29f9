//! What becomes of a record that cannot be processed: the job's error policy.

use super::{DEAD_LETTER_ROUTE, Outputs};
use crate::Error;
use crate::plugin::{CallError, PluginMetrics};
use crate::record::{Batch, Header, SplitTable};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Why the record could not be processed: a header of a dead letter.
pub const REASON_HEADER: &str = "waterwheel-error-reason";
/// The uid of the operator that could not process it: a header of a dead letter.
pub const OPERATOR_HEADER: &str = "waterwheel-error-operator";
/// The uid of the source that it was read from: a header of a dead letter.
pub const SOURCE_HEADER: &str = "waterwheel-error-source";
/// The split that it was read from: a header of a dead letter.
pub const SPLIT_HEADER: &str = "waterwheel-error-split";
/// Its position in the split: a header of a dead letter.
pub const POSITION_HEADER: &str = "waterwheel-error-position";

/// What becomes of a record that an operator cannot process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorPolicy {
    /// The job fails, naming the record's source, split and position.
    #[default]
    Fail,
    /// The record is left out, logged and counted.
    Skip,
    /// The record goes to the dead-letter sink, with the reason in a header.
    DeadLetter,
}

/// Applies the policy for one subtask.
#[derive(Clone, Debug)]
pub struct FailureHandler {
    policy: ErrorPolicy,
    uid: String,
    split_table: SplitTable,
    metrics: Arc<PluginMetrics>,
}

impl FailureHandler {
    /// For the operator `uid`.
    pub fn new(policy: ErrorPolicy, uid: impl Into<String>, split_table: SplitTable, metrics: Arc<PluginMetrics>) -> Self {
        Self { policy, uid: uid.into(), split_table, metrics }
    }

    /// The uid of the operator.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// Decides on one record, the row of a batch, and counts it.
    ///
    /// # Errors
    /// By the policy `fail`: the operator, the record's place and the reason.
    pub fn handle(&self, batch: &Batch, row: usize, reason: &str, outputs: &mut Outputs) -> Result<(), Error> {
        self.metrics.failed();
        match self.policy {
            ErrorPolicy::Fail => Err(self.error(batch, row, reason)),
            ErrorPolicy::Skip => {
                let skipped = self.metrics.skipped();
                // Not each one: a stream of bad records must not become a stream of messages.
                if skipped.is_power_of_two() {
                    let error = self.error(batch, row, reason);
                    tracing::warn!(skipped, "skipped by the error policy: {error}");
                }
                Ok(())
            }
            ErrorPolicy::DeadLetter => {
                self.metrics.dead_letter();
                outputs.emit(DEAD_LETTER_ROUTE, self.dead_letter(batch, row, reason));
                Ok(())
            }
        }
    }

    /// Whether a record that cannot be processed fails the job.
    pub fn fails_the_job(&self) -> bool {
        self.policy == ErrorPolicy::Fail
    }

    /// The error of a call that has no single record to blame: the job restarts by its restart strategy.
    pub(crate) fn call_error(&self, call: &str, error: CallError) -> Error {
        match error {
            CallError::Host(error) => error.within(format!("operator {}", self.uid)),
            error => Error::user(format!("operator {}: the plugin failed in {call}: {error}", self.uid)).with_retry(true),
        }
    }

    /// Counts timers that will not fire any more.
    pub(crate) fn dropped_timers(&self, timers: usize) {
        self.metrics.dropped_timers(timers);
    }

    /// The error that names a record and why it cannot be processed.
    pub(crate) fn error(&self, batch: &Batch, row: usize, reason: &str) -> Error {
        let place = match self.split_table.place(batch.origins()[row]) {
            Some(place) => format!("the record at {place}"),
            None => "a record that no source read".to_owned(),
        };
        Error::user(format!("operator {}: {place}, cannot be processed: {reason}", self.uid))
    }

    /// The record as it came in, with what is known of its failure in headers.
    fn dead_letter(&self, batch: &Batch, row: usize, reason: &str) -> Batch {
        let mut letter = Batch::default();
        letter.push_from(batch, row);
        let headers = letter.headers_mut();
        let mut add = |name: &str, value: &str| headers.push(0, Header { name, value: Some(value.as_bytes()) });
        add(REASON_HEADER, reason);
        add(OPERATOR_HEADER, &self.uid);
        if let Some(place) = self.split_table.place(batch.origins()[row]) {
            add(SOURCE_HEADER, &place.source);
            add(SPLIT_HEADER, &place.split);
            add(POSITION_HEADER, &place.position.to_string());
        }
        letter
    }
}
