//! Why a record, or a whole batch, could not be processed.

use std::fmt::Display;

/// The reason why something failed, as a sentence for people.
///
/// Returned from `process` or `on_timer` it fails that one record or timer: nothing that was written to state, emitted or set as a timer
/// for it remains, and the job's error policy decides (fail, skip, dead-letter). Returned from `open` it refuses the job.
///
/// Every [`std::error::Error`] becomes a failure with `?`; [`fail`] makes one from a sentence.
///
/// ```
/// use waterwheel_plugin::{Failure, fail};
///
/// fn amount(text: &str) -> Result<u64, Failure> {
///     let amount = text.parse()?;
///     if amount > 1_000_000 {
///         return Err(fail(format!("the amount {amount} is over the limit of 1000000")));
///     }
///     Ok(amount)
/// }
/// assert!(amount("17").is_ok());
/// assert_eq!(amount("x").unwrap_err().reason(), "invalid digit found in string");
/// ```
#[derive(Debug)]
pub struct Failure {
    reason: String,
    whole_batch: bool,
}

impl Failure {
    /// The sentence.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Whether the whole batch failed, see [`fail_batch`].
    #[must_use]
    #[inline]
    pub fn is_whole_batch(&self) -> bool {
        self.whole_batch
    }

    pub(crate) fn into_reason(self) -> String {
        self.reason
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        fail(error)
    }
}

/// A [`Failure`] of this record.
#[must_use]
pub fn fail(reason: impl Display) -> Failure {
    Failure { reason: reason.to_string(), whole_batch: false }
}

/// A [`Failure`] of the whole batch: for trouble that is not the record's fault, after which going on makes no sense. The job restarts from
/// its last completed checkpoint.
#[must_use]
pub fn fail_batch(reason: impl Display) -> Failure {
    Failure { reason: reason.to_string(), whole_batch: true }
}
