//! Key groups: the unit in which keyed state is dealt to parallel subtasks.
//!
//! A key belongs to the group `XXH3-64(key, seed 0) mod max-parallelism`; of `p` subtasks, group `g` belongs to subtask
//! `g * p / max-parallelism` (the ranges of Apache Flink's key groups). Checkpoints rely on both, so neither ever changes.

use std::ops::Range;
use xxhash_rust::xxh3::xxh3_64;

/// The key group of a key, below `max_parallelism`.
pub fn key_group(key: &[u8], max_parallelism: u16) -> u16 {
    let group = xxh3_64(key) % u64::from(max_parallelism.max(1));
    u16::try_from(group).expect("invariant: a remainder of a u16 is one")
}

/// How key groups are dealt to the subtasks of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyGroups {
    max_parallelism: u16,
    parallelism: u16,
}

impl KeyGroups {
    /// For `parallelism` subtasks, at most `max_parallelism` and at least one.
    pub fn new(max_parallelism: u16, parallelism: u16) -> Self {
        assert!(parallelism >= 1 && parallelism <= max_parallelism, "parallelism is within 1..=max-parallelism");
        Self { max_parallelism, parallelism }
    }

    /// The subtask that a key belongs to.
    pub fn subtask(&self, key: &[u8]) -> usize {
        let group = u32::from(key_group(key, self.max_parallelism));
        (group * u32::from(self.parallelism) / u32::from(self.max_parallelism)) as usize
    }

    /// The groups of a subtask.
    pub fn range(&self, subtask: usize) -> Range<u16> {
        let first = |subtask: usize| {
            let (max, all) = (usize::from(self.max_parallelism), usize::from(self.parallelism));
            u16::try_from((subtask * max).div_ceil(all)).unwrap_or(self.max_parallelism)
        };
        first(subtask)..first(subtask + 1)
    }

    /// The number of key groups, which is the maximum parallelism.
    pub fn max_parallelism(&self) -> u16 {
        self.max_parallelism
    }
}
