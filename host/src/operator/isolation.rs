//! Finding the record, or the timer, that makes a keyed operator fail again and again.
//!
//! A keyed plugin that traps has lost its state with its instance, so the job restarts and replays. What was learned lives outside the
//! operator, in the [`Isolation`] that the supervisor keeps from attempt to attempt: after the second failure at the same place the items of the
//! failing batch are suspects, and are processed in batches of one until each has passed. One that fails alone is condemned: from then on the
//! error policy decides, before the plugin meets it.

use crate::record::Place;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::map::ALONE_BEFORE_BLAMED;

/// How many failed batches are remembered: what fails at more places than this at a time is not the fault of a record.
const MAX_FAILURES: usize = 8;

/// A record or a timer, known by a hash: of its source, split and position, key and value; or of its key, tag, clock and time.
pub(super) type ItemId = u64;

/// A record or timer that is left to the error policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condemned {
    /// The hash that it is known by.
    pub id: u64,
    /// Where it was read; none for a timer, and for a record that a timer or the end of an input emitted.
    pub place: Option<Place>,
    /// Why it cannot be processed.
    pub reason: String,
    /// Its key, which tells the subtask that meets it.
    pub key: Vec<u8>,
}

/// What a failure of a batch came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing failed here before: an ordinary restart.
    First,
    /// It failed here before: from now on one by one.
    Narrowed,
    /// A single item failed again, but it may pass yet.
    Again,
    /// The single item is to blame.
    Blamed,
}

/// What the attempts of an operator learned about records that fail. Made once an operator, given to all of its subtasks, kept from attempt to
/// attempt; cheap to clone, all clones are one.
#[derive(Clone, Debug, Default)]
pub struct Isolation(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    failures: VecDeque<HashSet<ItemId>>,
    suspects: HashSet<ItemId>,
    alone: HashMap<ItemId, u32>,
    condemned: Vec<Condemned>,
    steps: u64,
}

impl Isolation {
    /// How many failures were steps towards finding a record. A restart after which this number has grown does not count against the
    /// restart strategy.
    pub fn steps(&self) -> u64 {
        self.known().steps
    }

    /// Records and timers that were found to be at fault, and are left to the error policy.
    pub fn condemned(&self) -> Vec<Condemned> {
        self.known().condemned.clone()
    }

    /// Notes that items failed together. `may_pass`: the machine may have been at fault.
    pub(super) fn failed(&self, items: &[ItemId], may_pass: bool) -> Verdict {
        let mut known = self.known();
        let before = known.failures.iter().any(|failure| items.iter().any(|item| failure.contains(item)));
        if !before {
            known.failures.push_back(items.iter().copied().collect());
            if known.failures.len() > MAX_FAILURES {
                known.failures.pop_front();
            }
            return Verdict::First;
        }
        known.steps += 1;
        known.suspects.extend(items);
        let [item] = items else { return Verdict::Narrowed };
        let alone = known.alone.entry(*item).or_default();
        *alone += 1;
        if may_pass && *alone < ALONE_BEFORE_BLAMED { Verdict::Again } else { Verdict::Blamed }
    }

    /// Leaves an item to the error policy.
    pub(super) fn condemn(&self, condemned: Condemned) {
        let mut known = self.known();
        known.suspects.remove(&condemned.id);
        known.alone.remove(&condemned.id);
        if known.condemned.iter().all(|other| other.id != condemned.id) {
            known.condemned.push(condemned);
        }
    }

    /// Whether anything is suspected.
    pub(super) fn has_suspects(&self) -> bool {
        !self.known().suspects.is_empty()
    }

    /// Whether any of the items is suspected.
    pub(super) fn suspects_any(&self, items: &[ItemId]) -> bool {
        let known = self.known();
        items.iter().any(|item| known.suspects.contains(item))
    }

    /// An item was processed alone, and without fault.
    pub(super) fn passed(&self, item: ItemId) {
        self.known().suspects.remove(&item);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_failure_at_about_the_same_place_narrows() {
        let isolation = Isolation::default();
        assert_eq!(isolation.failed(&[1, 2, 3], false), Verdict::First);
        assert_eq!(isolation.failed(&[7, 8], false), Verdict::First, "another place");
        assert_eq!(isolation.steps(), 0);
        assert_eq!(isolation.failed(&[3, 4, 5], false), Verdict::Narrowed);
        assert_eq!(isolation.steps(), 1);
        assert!(isolation.suspects_any(&[9, 4]) && !isolation.suspects_any(&[1, 7]));
        [3, 4, 5].into_iter().for_each(|item| isolation.passed(item));
        assert!(!isolation.has_suspects());
    }

    #[test]
    fn a_trap_alone_is_blamed_at_once_and_a_deadline_the_third_time() {
        let isolation = Isolation::default();
        assert_eq!(isolation.failed(&[1], false), Verdict::First);
        assert_eq!(isolation.failed(&[1], false), Verdict::Blamed);
        let verdicts: Vec<Verdict> = (0..4).map(|_| isolation.failed(&[2], true)).collect();
        assert_eq!(verdicts, [Verdict::First, Verdict::Again, Verdict::Again, Verdict::Blamed]);
    }

    #[test]
    fn what_is_condemned_is_not_suspected_any_more() {
        let isolation = Isolation::default();
        isolation.failed(&[1], false);
        isolation.failed(&[1], false);
        let condemned = Condemned { id: 1, place: None, reason: "no".into(), key: b"k".to_vec() };
        isolation.condemn(condemned.clone());
        isolation.condemn(condemned.clone());
        assert!(!isolation.has_suspects());
        assert_eq!(isolation.clone().condemned(), [condemned]);
    }
}
