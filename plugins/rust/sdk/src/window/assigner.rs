//! Which windows an event time belongs to.

use std::time::Duration;

use super::milliseconds;
use crate::failure::{Failure, fail};

/// A span of event time, in milliseconds since the Unix epoch; the end is not part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Window {
    /// The first millisecond.
    pub start: i64,
    /// The first millisecond behind it.
    pub end: i64,
}

impl Window {
    /// The last millisecond: the window is complete when the watermark has come to it, and what it emits has it as event time.
    #[must_use]
    pub fn max_timestamp(self) -> i64 {
        self.end.saturating_sub(1)
    }

    /// Whether two windows have a millisecond in common or follow one another at once.
    pub(super) fn touches(self, other: Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    pub(super) fn cover(self, other: Self) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// Puts records into windows by their event time.
///
/// ```
/// use std::time::Duration;
/// use waterwheel_plugin::WindowAssigner;
///
/// let every_minute = WindowAssigner::tumbling(Duration::from_secs(60))?;
/// let last_hour_every_minute = WindowAssigner::sliding(Duration::from_secs(3600), Duration::from_secs(60))?;
/// let visits = WindowAssigner::session(Duration::from_secs(1800))?;
/// let days_of_utc_plus_2 = WindowAssigner::tumbling(Duration::from_secs(86_400))?.offset(-2 * 3_600_000);
/// # let _ = (every_minute, last_hour_every_minute, visits, days_of_utc_plus_2);
/// # Ok::<(), waterwheel_plugin::Failure>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowAssigner {
    kind: Kind,
    offset: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Aligned { size: i64, slide: i64 },
    Session { gap: i64 },
}

impl WindowAssigner {
    /// Windows of one size that follow one another.
    ///
    /// # Errors
    /// The size is below a millisecond.
    pub fn tumbling(size: Duration) -> Result<Self, Failure> {
        match milliseconds(size) {
            0 => Err(fail("the size of a window must be a millisecond or more")),
            size => Ok(Self { kind: Kind::Aligned { size, slide: size }, offset: 0 }),
        }
    }

    /// Windows of one size, one of which begins every `slide`: a record is in several.
    ///
    /// # Errors
    /// The slide is below a millisecond, or more than the size: records would be in no window.
    pub fn sliding(size: Duration, slide: Duration) -> Result<Self, Failure> {
        match (milliseconds(size), milliseconds(slide)) {
            (_, 0) => Err(fail("the slide of a window must be a millisecond or more")),
            (size, slide) if slide > size => {
                Err(fail(format!("the slide of a window ({slide} ms) must not be more than its size ({size} ms)")))
            }
            (size, slide) => Ok(Self { kind: Kind::Aligned { size, slide }, offset: 0 }),
        }
    }

    /// Windows of records that are at most `gap` apart; they begin with the first one and end `gap` after the last one.
    ///
    /// # Errors
    /// The gap is below a millisecond.
    pub fn session(gap: Duration) -> Result<Self, Failure> {
        match milliseconds(gap) {
            0 => Err(fail("the gap of a session must be a millisecond or more")),
            gap => Ok(Self { kind: Kind::Session { gap }, offset: 0 }),
        }
    }

    /// Tumbling and sliding windows begin at the multiples of their slide, and so many milliseconds later.
    #[must_use]
    pub fn offset(self, milliseconds: i64) -> Self {
        Self { offset: milliseconds, ..self }
    }

    /// The gap, if these are sessions.
    pub(super) fn gap(self) -> Option<i64> {
        match self.kind {
            Kind::Session { gap } => Some(gap),
            Kind::Aligned { .. } => None,
        }
    }

    /// The windows of a timestamp, the earliest first; of a session that of the record alone.
    pub(super) fn windows(self, timestamp: i64) -> impl Iterator<Item = Window> {
        let timestamp = i128::from(timestamp);
        let (last, slide, size, count) = match self.kind {
            Kind::Aligned { size, slide } => {
                let (size, slide) = (i128::from(size), i128::from(slide));
                let last = timestamp - (timestamp - i128::from(self.offset)).rem_euclid(slide);
                (last, slide, size, (last - (timestamp - size) + slide - 1) / slide)
            }
            Kind::Session { gap } => (timestamp, 1, i128::from(gap), 1),
        };
        (0..count).rev().map(move |number| {
            let start = last - number * slide;
            Window { start: clamp(start), end: clamp(start + size) }
        })
    }
}

fn clamp(time: i128) -> i64 {
    i64::try_from(time).unwrap_or(if time < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::{Window, WindowAssigner};
    use std::time::Duration;

    fn windows(assigner: WindowAssigner, timestamp: i64) -> Vec<(i64, i64)> {
        assigner.windows(timestamp).map(|Window { start, end }| (start, end)).collect()
    }

    #[test]
    fn windows_are_aligned_also_before_1970() {
        let ms = Duration::from_millis;
        let tumbling = WindowAssigner::tumbling(ms(10)).unwrap();
        for (timestamp, window) in [(0, (0, 10)), (9, (0, 10)), (10, (10, 20)), (-1, (-10, 0)), (-10, (-10, 0)), (-11, (-20, -10))] {
            assert_eq!(windows(tumbling, timestamp), [window]);
        }
        assert_eq!(windows(tumbling.offset(3), 2), [(-7, 3)]);
        assert_eq!(windows(tumbling.offset(-7), 2), [(-7, 3)]);
        let sliding = WindowAssigner::sliding(ms(10), ms(4)).unwrap();
        assert_eq!(windows(sliding, 0), [(-8, 2), (-4, 6), (0, 10)]);
        assert_eq!(windows(sliding, 3), [(-4, 6), (0, 10)]);
        assert_eq!(windows(sliding, -1), [(-8, 2), (-4, 6)]);
        assert_eq!(windows(WindowAssigner::session(ms(5)).unwrap(), -3), [(-3, 2)]);
        assert_eq!(windows(tumbling, i64::MAX), [(i64::MAX - 7, i64::MAX)]);
        assert_eq!(windows(tumbling, i64::MIN).len(), 1);
        WindowAssigner::sliding(ms(4), ms(5)).unwrap_err();
    }
}
