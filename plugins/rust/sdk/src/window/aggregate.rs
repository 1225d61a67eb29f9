//! What an author says about the contents of a window, and gets of it.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Window;
use crate::failure::Failure;

/// How the records of a window become one result, record by record, so that only an accumulator is kept.
///
/// ```
/// use waterwheel_plugin::{Aggregate, Failure, Window};
///
/// struct Mean;
///
/// impl Aggregate for Mean {
///     type Input = f64;
///     type Accumulator = (f64, u64);
///     type Output = f64;
///
///     fn create(&mut self, _window: Window) -> (f64, u64) {
///         (0.0, 0)
///     }
///
///     fn add(&mut self, (sum, count): &mut (f64, u64), number: &f64) -> Result<(), Failure> {
///         *sum += number;
///         *count += 1;
///         Ok(())
///     }
///
///     fn merge(&mut self, (sum, count): &mut (f64, u64), other: (f64, u64)) -> Result<(), Failure> {
///         *sum += other.0;
///         *count += other.1;
///         Ok(())
///     }
///
///     fn result(&self, (sum, count): &(f64, u64)) -> Result<f64, Failure> {
///         Ok(sum / *count as f64)
///     }
/// }
/// ```
///
/// An accumulator is cloned once for each record, so that a failing record can be undone: keep it small. What is large belongs into a
/// [`MapState`](crate::MapState) that the aggregate holds, by the start of the window that it was created for (no two windows of a key that
/// exist at a time were created with the same start), as [`AllRecords`](crate::AllRecords) does.
pub trait Aggregate: 'static {
    /// What of a record goes into it.
    type Input: ?Sized;
    /// What is kept of a window.
    type Accumulator: Serialize + DeserializeOwned + Clone + 'static;
    /// What comes of it.
    type Output;

    /// The accumulator of a window without records.
    fn create(&mut self, window: Window) -> Self::Accumulator;

    /// Adds a record.
    ///
    /// # Errors
    /// Fails the record.
    fn add(&mut self, accumulator: &mut Self::Accumulator, input: &Self::Input) -> Result<(), Failure>;

    /// Adds what another window had: a record has made one session of two.
    ///
    /// # Errors
    /// Fails the record.
    fn merge(&mut self, accumulator: &mut Self::Accumulator, other: Self::Accumulator) -> Result<(), Failure>;

    /// The result as of now. A window that gets late records is asked several times.
    ///
    /// # Errors
    /// Fails the record or the timer at which the window fires.
    fn result(&self, accumulator: &Self::Accumulator) -> Result<Self::Output, Failure>;

    /// The window is gone: removes what the aggregate holds of it elsewhere.
    fn clear(&mut self, accumulator: Self::Accumulator) {
        let _ = accumulator;
    }
}

/// One firing of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pane<'a, R> {
    /// The key.
    pub key: &'a [u8],
    /// The window.
    pub window: Window,
    /// Its result as of now.
    pub result: R,
}

/// Whether a record came in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a late record was not taken, and is lost if nothing is done with it"]
pub enum Arrival {
    /// It was taken.
    InTime,
    /// It was not: all that it belongs to is over.
    Late,
}

impl Arrival {
    /// Whether it was not taken.
    #[must_use]
    pub fn is_late(self) -> bool {
        self == Self::Late
    }
}
