//! Joins of two inputs by windows.

use std::fmt;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{AllRecords, Arrival, Pane, WindowAssigner, WindowState, Windows};
use crate::failure::Failure;
use crate::output::KeyedOutput;
use crate::record::Record;
use crate::timer::Timer;

/// A record of one of two inputs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Side<L, R> {
    /// Of the left one.
    Left(L),
    /// Of the right one.
    Right(R),
}

/// The declared state of a [`WindowJoin`]. Get one from [`Declare::window_join`](crate::Declare::window_join).
pub struct WindowJoinState<L, R>
where
    L: Serialize + DeserializeOwned + Clone + 'static,
    R: Serialize + DeserializeOwned + Clone + 'static,
{
    pub(crate) windows: WindowState<AllRecords<Side<L, R>>>,
    pub(crate) records: AllRecords<Side<L, R>>,
}

impl<L, R> fmt::Debug for WindowJoinState<L, R>
where
    L: Serialize + DeserializeOwned + Clone + 'static,
    R: Serialize + DeserializeOwned + Clone + 'static,
{
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("WindowJoinState").field(&self.windows).finish()
    }
}

impl<L, R> WindowJoinState<L, R>
where
    L: Serialize + DeserializeOwned + Clone + 'static,
    R: Serialize + DeserializeOwned + Clone + 'static,
{
    /// The join, for `open`. Without allowed lateness.
    #[must_use]
    pub fn assign(self, assigner: WindowAssigner) -> WindowJoin<L, R> {
        WindowJoin { windows: self.windows.assign(assigner, self.records) }
    }
}

/// Joins each record of one input with each of the other of the same key and window, when the watermark comes to the window's end (an inner
/// join). All is as for [`Windows`]; a late record has the window's pairs come again, all of them.
pub struct WindowJoin<L, R>
where
    L: Serialize + DeserializeOwned + Clone + 'static,
    R: Serialize + DeserializeOwned + Clone + 'static,
{
    windows: Windows<AllRecords<Side<L, R>>>,
}

impl<L, R> fmt::Debug for WindowJoin<L, R>
where
    L: Serialize + DeserializeOwned + Clone + 'static,
    R: Serialize + DeserializeOwned + Clone + 'static,
{
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("WindowJoin").field(&self.windows).finish()
    }
}

impl<L, R> WindowJoin<L, R>
where
    L: Serialize + DeserializeOwned + Clone + 'static,
    R: Serialize + DeserializeOwned + Clone + 'static,
{
    /// As [`Windows::allowed_lateness`].
    #[must_use]
    pub fn allowed_lateness(self, lateness: Duration) -> Self {
        Self { windows: self.windows.allowed_lateness(lateness) }
    }

    /// Takes a record of the left input.
    ///
    /// # Errors
    /// Those of `emit`, to be passed on.
    pub fn add_left(
        &mut self,
        record: &Record<'_>,
        value: L,
        out: &mut KeyedOutput<'_>,
        mut emit: impl FnMut(Pane<'_, (&L, &R)>, &mut KeyedOutput<'_>) -> Result<(), Failure>,
    ) -> Result<Arrival, Failure> {
        self.windows.add(record, &Side::Left(value), out, |pane, out| emit_pairs(pane, out, &mut emit))
    }

    /// Takes a record of the right input.
    ///
    /// # Errors
    /// Those of `emit`, to be passed on.
    pub fn add_right(
        &mut self,
        record: &Record<'_>,
        value: R,
        out: &mut KeyedOutput<'_>,
        mut emit: impl FnMut(Pane<'_, (&L, &R)>, &mut KeyedOutput<'_>) -> Result<(), Failure>,
    ) -> Result<Arrival, Failure> {
        self.windows.add(record, &Side::Right(value), out, |pane, out| emit_pairs(pane, out, &mut emit))
    }

    /// Takes a timer, if it is one of this join's. Returns whether it was one.
    ///
    /// # Errors
    /// Those of `emit`, to be passed on.
    pub fn on_timer(
        &mut self,
        timer: &Timer<'_>,
        out: &mut KeyedOutput<'_>,
        mut emit: impl FnMut(Pane<'_, (&L, &R)>, &mut KeyedOutput<'_>) -> Result<(), Failure>,
    ) -> Result<bool, Failure> {
        self.windows.on_timer(timer, out, |pane, out| emit_pairs(pane, out, &mut emit))
    }
}

/// Emits each pair of the records of a window.
fn emit_pairs<L, R>(
    Pane { key, window, result }: Pane<'_, Vec<Side<L, R>>>,
    out: &mut KeyedOutput<'_>,
    emit: &mut impl FnMut(Pane<'_, (&L, &R)>, &mut KeyedOutput<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for left in &result {
        let Side::Left(left) = left else { continue };
        for right in &result {
            let Side::Right(right) = right else { continue };
            emit(Pane { key, window, result: (left, right) }, out)?;
        }
    }
    Ok(())
}
