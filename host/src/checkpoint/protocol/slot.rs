//! What an occupied slot means, and when a run has been superseded.

use super::ids::{Generation, JobId};
use super::manifest::Manifest;
use super::marker::Marker;

/// Who holds the slot that a manifest was to be put into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotHolder {
    /// The manifest itself: an earlier try of the same put got through.
    Ours,
    /// A checkpoint of this run that was given up, whose put arrived late: it counts, take the next slot.
    EarlierAttemptOfThisRun,
    /// The log was closed by a fork: stop for good.
    Forked {
        /// Who closed it.
        by: JobId,
    },
    /// An entry of another run: read the generation.
    AnotherRun {
        /// Its generation.
        generation: Generation,
    },
}

/// Tells who holds the slot that `ours` was to be put into.
#[must_use]
pub fn holder(ours: &Manifest, found: &Manifest) -> SlotHolder {
    if found.attempt == ours.attempt {
        return SlotHolder::Ours;
    }
    match found.forked_by() {
        Some(by) => SlotHolder::Forked { by: by.clone() },
        None if found.job == ours.job && found.generation == ours.generation => SlotHolder::EarlierAttemptOfThisRun,
        None => SlotHolder::AnotherRun { generation: found.generation },
    }
}

/// Whether a run may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is the newest one.
    Newest,
    /// A newer run exists: stop for good, before committing, rolling forward or cleaning up.
    Superseded {
        /// The newest one known.
        by: Generation,
    },
}

/// Compares a run's own generation with the newest that was read.
#[must_use]
pub fn standing(own: Generation, newest: Generation) -> Standing {
    if newest > own { Standing::Superseded { by: newest } } else { Standing::Newest }
}

/// The generation that a run may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// A new process: the number after the newest.
    Next,
    /// A recovery inside a process: exactly its own number plus one. If that is taken the run was superseded;
    /// so two live instances never fence each other for ever.
    ExactlyAfter(Generation),
}

/// The generation to take next, given the newest that exists.
#[must_use]
pub fn generation_to_take(claim: Claim, newest: Option<Generation>) -> Generation {
    match claim {
        Claim::Next => newest.map_or(Generation::FIRST, Generation::next),
        Claim::ExactlyAfter(own) => own.next(),
    }
}

/// What a fenced transaction means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AfterFencing {
    /// A newer run of the job has the last resource: stop for good.
    Superseded {
        /// Its generation.
        by: Generation,
    },
    /// Another job has it: stop for good.
    TakenOver {
        /// That job.
        by: JobId,
    },
    /// Nobody else is there (a transaction that timed out looks the same): recover.
    Recover,
}

/// A run and a transaction that timed out look alike to a broker; generation and marker tell them apart.
#[must_use]
pub fn after_fencing(job: &JobId, own: Generation, newest: Generation, marker: Option<&Marker>) -> AfterFencing {
    match marker {
        _ if newest > own => AfterFencing::Superseded { by: newest },
        Some(marker) if marker.job != *job => AfterFencing::TakenOver { by: marker.job.clone() },
        Some(marker) if marker.generation > own => AfterFencing::Superseded { by: marker.generation },
        _ => AfterFencing::Recover,
    }
}
