//! How much there is to read, partition by partition, for those who watch.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

/// Stands for an end that is not known yet.
const UNKNOWN: i64 = -1;

/// Where reading a split stands, and where its end is. The thread writes the end, the reader the position.
#[derive(Debug)]
pub(super) struct Progress {
    id: String,
    position: AtomicI64,
    end: AtomicI64,
    stop: Option<i64>,
}

impl Progress {
    pub(super) fn new(id: String, position: i64, stop: Option<i64>) -> Self {
        Self { id, position: AtomicI64::new(position), end: AtomicI64::new(UNKNOWN), stop }
    }

    pub(super) fn set_position(&self, position: i64) {
        self.position.store(position, Relaxed);
    }

    pub(super) fn set_end(&self, end: i64) {
        self.end.store(end, Relaxed);
    }

    /// Records, counted by offsets, that are there and not read; none while the end is not known.
    fn pending(&self) -> Option<u64> {
        let end = Some(self.end.load(Relaxed)).filter(|end| *end != UNKNOWN)?;
        let end = self.stop.map_or(end, |stop| stop.min(end));
        Some(u64::try_from(end - self.position.load(Relaxed)).unwrap_or(0))
    }
}

/// The progress of all splits of a reader. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub(super) struct Lag(Arc<RwLock<Vec<Arc<Progress>>>>);

impl Lag {
    pub(super) fn add(&self, split: Arc<Progress>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(split);
    }

    /// All splits together; none while no end is known.
    pub(super) fn total(&self) -> Option<u64> {
        let splits = self.0.read().unwrap_or_else(PoisonError::into_inner);
        splits.iter().filter_map(|split| split.pending()).reduce(|sum, split| sum + split)
    }

    /// Each split whose end is known.
    pub(super) fn by_split(&self) -> Vec<(String, u64)> {
        let splits = self.0.read().unwrap_or_else(PoisonError::into_inner);
        splits.iter().filter_map(|split| Some((split.id.clone(), split.pending()?))).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_added_up() {
        let lag = Lag::default();
        assert_eq!(lag.total(), None);
        let splits =
            [(5, None), (0, Some(10)), (3, None)].map(|(position, stop)| Arc::new(Progress::new(format!("a-{position}"), position, stop)));
        splits.iter().for_each(|split| lag.add(Arc::clone(split)));
        assert_eq!(lag.total(), None);
        splits[0].set_end(9);
        splits[1].set_end(50);
        assert_eq!(lag.total(), Some(14));
        assert_eq!(lag.by_split(), [("a-5".to_owned(), 4), ("a-0".to_owned(), 10)]);
        splits[0].set_position(12);
        assert_eq!(lag.total(), Some(10));
    }
}
