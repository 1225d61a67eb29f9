//! Windows and joins over event time, on [`MapState`](crate::MapState)s and timers with reserved tags.

mod aggregate;
mod all_records;
mod assigner;
mod interval_join;
mod join;
mod windows;

pub use aggregate::{Aggregate, Arrival, Pane};
pub use all_records::AllRecords;
pub use assigner::{Window, WindowAssigner};
pub use interval_join::{IntervalJoin, IntervalJoinState, Pair};
pub use join::{WindowJoin, WindowJoinState};
pub use windows::{WindowState, Windows};

use std::time::Duration;

/// Milliseconds, as far as they fit.
fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
