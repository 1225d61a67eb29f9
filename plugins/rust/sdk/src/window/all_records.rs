//! Windows that keep all of their records.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Aggregate, Window};
use crate::failure::Failure;
use crate::state::MapState;

/// Keeps all records of a window, in the order in which they came (of sessions that became one: those of the larger one first). Each record is
/// an entry of a map, so that a window may be large. Get one from [`Declare::all_records`](crate::Declare::all_records).
pub struct AllRecords<T> {
    /// By the window's number and the record's.
    records: MapState<(i64, u64), T>,
}

impl<T> fmt::Debug for AllRecords<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("AllRecords").field(&self.records).finish()
    }
}

/// Where the records of a window are.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Contents {
    id: i64,
    count: u64,
}

impl<T: Serialize + DeserializeOwned + Clone + 'static> AllRecords<T> {
    pub(crate) fn new(records: MapState<(i64, u64), T>) -> Self {
        Self { records }
    }

    fn records(&self, contents: Contents) -> Vec<T> {
        let mut records = Vec::new();
        self.records.for_each_of(&contents.id, |_, record| records.push(record.clone()));
        records
    }
}

impl<T: Serialize + DeserializeOwned + Clone + 'static> Aggregate for AllRecords<T> {
    type Input = T;
    type Accumulator = Contents;
    type Output = Vec<T>;

    fn create(&mut self, window: Window) -> Contents {
        Contents { id: window.start, count: 0 }
    }

    fn add(&mut self, contents: &mut Contents, record: &T) -> Result<(), Failure> {
        self.records.insert(&(contents.id, contents.count), record.clone());
        contents.count += 1;
        Ok(())
    }

    /// Moves the fewer records.
    fn merge(&mut self, contents: &mut Contents, other: Contents) -> Result<(), Failure> {
        let (mut large, small) = if contents.count >= other.count { (*contents, other) } else { (other, *contents) };
        for record in self.records(small) {
            self.add(&mut large, &record)?;
        }
        self.clear(small);
        *contents = large;
        Ok(())
    }

    fn result(&self, contents: &Contents) -> Result<Vec<T>, Failure> {
        Ok(self.records(*contents))
    }

    fn clear(&mut self, contents: Contents) {
        self.records.remove_all_of(&contents.id);
    }
}
