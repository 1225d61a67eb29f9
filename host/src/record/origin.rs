//! Where a record was read, so that an error can name it: source, split and position.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, RwLock};

/// Where a record was read: a split of the job's [`SplitTable`] and the position in it (an offset, a byte, a sequence number).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// The number of the split in the job's table.
    pub split: u32,
    /// The position in the split.
    pub position: u64,
}

impl Origin {
    /// The origin of a record that was not read anywhere: one that a timer or the end of the input emitted.
    pub const NONE: Self = Self { split: u32::MAX, position: 0 };

    /// Whether the record was read from a source.
    pub fn is_some(&self) -> bool {
        *self != Self::NONE
    }
}

/// An origin in words.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Place {
    /// The uid of the source.
    pub source: String,
    /// The split: a topic's partition, a file.
    pub split: String,
    /// The position in the split.
    pub position: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "source {}, split {}, position {}", self.source, self.split, self.position)
    }
}

/// The splits of a job by number: batches carry numbers, errors get names. Cheap to clone; all clones are one table.
#[derive(Clone, Debug, Default)]
pub struct SplitTable(Arc<RwLock<Table>>);

#[derive(Debug, Default)]
struct Table {
    names: Vec<(String, String)>,
    numbers: HashMap<(String, String), u32>,
}

impl SplitTable {
    /// The number of a source's split; it gets one when it has none.
    pub fn number(&self, source: &str, split: &str) -> u32 {
        let mut table = self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let name = (source.to_owned(), split.to_owned());
        if let Some(number) = table.numbers.get(&name) {
            return *number;
        }
        let number = u32::try_from(table.names.len()).expect("invariant: a job has fewer than 2^32 splits");
        table.names.push(name.clone());
        table.numbers.insert(name, number);
        number
    }

    /// The origin in words; none for [`Origin::NONE`].
    pub fn place(&self, origin: Origin) -> Option<Place> {
        let table = self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (source, split) = table.names.get(origin.split as usize)?;
        Some(Place { source: source.clone(), split: split.clone(), position: origin.position })
    }
}
