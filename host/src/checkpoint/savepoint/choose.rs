//! Which entry of a job's log is made into a savepoint. Pure.

use std::sync::Arc;

use super::super::protocol::{Damage, JobId, LogView, Manifest, ManifestKind, Slot};

/// Why there is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoChoice {
    /// The log is empty.
    #[error("job {job} has no checkpoint yet")]
    Nothing {
        /// The job.
        job: JobId,
    },
    /// The log was closed.
    #[error("job {job} was replaced by {by}: make the savepoint of that one, or name a checkpoint with --checkpoint")]
    Replaced {
        /// The job.
        job: JobId,
        /// Who took over.
        by: JobId,
    },
    /// The job was cancelled and its checkpoints deleted.
    #[error("job {job} was cancelled, and its checkpoints were deleted")]
    Discarded {
        /// The job.
        job: JobId,
    },
    /// What counts cannot be read.
    #[error("{path} is damaged: {damage}; an older one is named with --checkpoint")]
    Damaged {
        /// The entry.
        path: String,
        /// What is wrong with it.
        damage: Damage,
    },
    /// A job with transactions has committed nothing yet.
    #[error("no checkpoint of job {job} is surely committed yet: try again after the next one")]
    NotCommitted {
        /// The job.
        job: JobId,
    },
    /// There is no such checkpoint.
    #[error("job {job} has no checkpoint {slot}; there are: {present}")]
    NoSuch {
        /// The job.
        job: JobId,
        /// What was asked for.
        slot: Slot,
        /// What is there.
        present: String,
    },
    /// A checkpoint that does not count.
    #[error("checkpoint {slot} of job {job} was rejected: a later run went on from an older one, and its output was rolled back")]
    Rejected {
        /// The job.
        job: JobId,
        /// What was asked for.
        slot: Slot,
    },
}

/// The newest checkpoint that surely counts.
///
/// Without transactions that is the newest entry: a restart goes on from it, too. With them the newest one that is known to be committed,
/// except after the job's own last checkpoint. When that one is gone the newest was committed: a run deletes what it has committed only after it
/// has committed a newer one, and what it puts after that says so.
///
/// # Errors
/// There is none.
pub fn newest(log: &LogView) -> Result<&Arc<Manifest>, NoChoice> {
    let job = || log.job.clone();
    let Some((_, entry)) = log.newest() else { return Err(NoChoice::Nothing { job: job() }) };
    let newest = entry.content.as_ref().map_err(|damage| NoChoice::Damaged { path: entry.path.clone(), damage: damage.clone() })?;
    match &newest.kind {
        ManifestKind::Forked { by, .. } => return Err(NoChoice::Replaced { job: job(), by: by.clone() }),
        ManifestKind::Discarded => return Err(NoChoice::Discarded { job: job() }),
        _ => {}
    }
    let decided = newest.snapshot.transactional_ids.is_empty() || newest.released || newest.kind == ManifestKind::Final;
    if decided {
        return Ok(newest);
    }
    let committed = newest.committed.ok_or_else(|| NoChoice::NotCommitted { job: job() })?;
    if log.get(committed.slot).is_none() {
        return Ok(newest);
    }
    let there = of_slot(log, committed.slot)?;
    if there.attempt == committed.attempt { Ok(there) } else { Err(NoChoice::NotCommitted { job: job() }) }
}

/// The checkpoint of a number.
///
/// # Errors
/// It is not there, damaged, or does not count.
pub fn of_slot(log: &LogView, slot: Slot) -> Result<&Arc<Manifest>, NoChoice> {
    let job = || log.job.clone();
    let no_such = || {
        let present: Vec<String> = log.entries().map(|(slot, _)| slot.to_string()).collect();
        NoChoice::NoSuch { job: job(), slot, present: if present.is_empty() { "none".to_owned() } else { present.join(", ") } }
    };
    let entry = log.get(slot).ok_or_else(no_such)?;
    let found = entry.content.as_ref().map_err(|damage| NoChoice::Damaged { path: entry.path.clone(), damage: damage.clone() })?;
    if matches!(found.kind, ManifestKind::Forked { .. } | ManifestKind::Discarded) {
        return Err(no_such());
    }
    let newest = log.newest().map_or(slot, |(newest, _)| newest);
    // Behind a damaged entry the line cannot be followed.
    let counts = log.damaged().any(|(damaged, _, _)| damaged > slot) || log.line(newest).contains(&slot);
    if counts { Ok(found) } else { Err(NoChoice::Rejected { job: job(), slot }) }
}
