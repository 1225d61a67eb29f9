//! Combines the watermarks of splits or channels to one. Pure.

use super::NO_WATERMARK;

/// What is told of event time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pipeline::run) enum EventTime {
    /// No record with an earlier or equal timestamp is expected; whoever says so is active.
    Watermark(i64),
    /// Nothing is expected for now: nobody has to wait.
    Idle,
}

/// Whether a split or a channel holds event time back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// It does.
    Active,
    /// Not until its next record or watermark.
    Idle,
    /// Never again.
    Ended,
}

/// Event time of several parts together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Combined {
    /// The least of the active ones. If none is active the greatest of all, as if they had fallen idle in the order of their watermarks, so
    /// that nothing depends on the order in which they did; Flink's `StatusWatermarkValve` has the same rule.
    pub(super) watermark: i64,
    /// Whether none is active.
    pub(super) idle: bool,
}

/// Combines watermarks, each with the activity of its split or channel.
pub(super) fn combine(parts: impl IntoIterator<Item = (i64, Activity)>) -> Combined {
    let (mut least, mut greatest) = (None, NO_WATERMARK);
    for (watermark, activity) in parts {
        greatest = greatest.max(watermark);
        if activity == Activity::Active {
            least = Some(least.map_or(watermark, |least: i64| least.min(watermark)));
        }
    }
    Combined { watermark: least.unwrap_or(greatest), idle: least.is_none() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_the_active_ones_counts_and_the_greatest_of_all_when_none_is() {
        use Activity::{Active, Ended, Idle};
        let combined = |watermark, idle| Combined { watermark, idle };
        assert_eq!(combine([(5, Active), (3, Active), (1, Idle), (0, Ended)]), combined(3, false));
        assert_eq!(combine([(5, Idle), (3, Idle), (9, Ended)]), combined(9, true));
        assert_eq!(combine([]), combined(NO_WATERMARK, true));
    }
}
