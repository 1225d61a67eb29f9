//! Who takes part in a commit: the sinks whose prepared work survives by itself, the one last resource, and
//! what the protocol needs from its surroundings.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use crate::Error;

use super::protocol::{Attempt, Generation, JobId, Manifest, Marker, PlanRevision, PreparedWork, SourceState};
use super::storage::FilesAt;

/// What earlier runs may have left prepared or unfinished, and what of it must stay.
#[derive(Clone, Debug)]
pub struct Leftovers<'a> {
    /// Only what this incarnation left. Names of pending files, uploads and transactions carry it.
    pub job: &'a JobId,
    /// Only what runs before this one left; `None`: whatever the run, because that job's log is closed.
    pub before: Option<Generation>,
    /// Prepared work that must stay untouched.
    pub keep: &'a [PreparedWork],
}

/// The two-phase sinks of a job.
#[async_trait]
pub trait Participants: Send + Sync {
    /// Uids of the sinks in the order of the plan, which is the order in which they commit.
    fn order(&self) -> Vec<String>;

    /// Makes the prepared work of one sink visible, in the given order.
    ///
    /// Idempotent *and checked*: work that is already visible is verified; work that is neither pending nor
    /// visible is an error that names it, never "already done". Not cancel-safe by demand: when the call is
    /// dropped midway, a later call finishes it.
    ///
    /// # Errors
    /// When a part could not be made visible; one that [`Error::retry_helps`] is tried again for as long as it takes.
    async fn commit(&self, sink: &str, work: &[PreparedWork]) -> Result<(), Error>;

    /// Called before a failed commit is tried again, so that the job's state can show it. By default nothing.
    fn commit_retried(&self, _sink: &str, _error: &Error, _tries: u32) {}

    /// Where output of an incarnation is visible, if there is some and a sink knows it for its own: asked before the first start of a job. By
    /// default nothing is known.
    ///
    /// # Errors
    /// When it could not be looked for.
    async fn visible_output(&self, _job: &JobId) -> Result<Option<String>, Error> {
        Ok(None)
    }

    /// Rolls back what dead runs left behind in all sinks. Idempotent; what is not there is no error.
    ///
    /// # Errors
    /// When something that has to go could not be removed.
    async fn clean_up(&self, leftovers: &Leftovers<'_>) -> Result<(), Error>;
}

/// How the last resource failed.
#[derive(Debug, thiserror::Error)]
pub enum LastResourceError {
    /// Another producer took over, or the transaction timed out; the two look alike. Read generation and marker.
    #[error("the transaction was fenced: {0}")]
    Fenced(String),
    /// The transaction is lost; what was in it is replayed.
    #[error("the transaction failed: {0}")]
    Lost(String),
    /// The call may be made again, and nothing else may be done before it has an answer.
    #[error("no answer yet: {0}")]
    Unknown(String),
    /// A setting or a permission.
    #[error("{0}")]
    Refused(String),
}

/// The one resource of a job whose own transaction holds the decision: it commits first, and what it did not
/// commit is replayed. Its transaction carries a [`Marker`].
#[async_trait]
pub trait LastResource: Send + Sync {
    /// The ids of its producers, by which a later run fences them.
    fn ids(&self) -> Vec<String>;

    /// The newest committed marker, read to the last stable position; `None` only if there is surely none.
    /// Fences nobody.
    ///
    /// # Errors
    /// A read that fails is an error, never "no marker".
    async fn read_marker(&self) -> Result<Option<Marker>, LastResourceError>;

    /// Ends every earlier producer of this job and aborts what they left open, under its own ids and `also`.
    ///
    /// # Errors
    /// When one could not be fenced.
    async fn fence(&self, also: &[String]) -> Result<(), LastResourceError>;

    /// Commits `marker` alone, before the first record of a new job or a fork.
    ///
    /// # Errors
    /// See [`LastResourceError`].
    async fn commit_genesis(&self, marker: &Marker) -> Result<(), LastResourceError>;

    /// Commits the transaction whose marker names `checkpoint`. May be called again until it has an answer.
    ///
    /// # Errors
    /// See [`LastResourceError`].
    async fn commit(&self, checkpoint: Attempt) -> Result<(), LastResourceError>;

    /// Returns when readers see what was committed, as far as that can be found out: a job that says that it has ended has shown its output. By
    /// default at once.
    async fn settled(&self) {}
}

/// What the pipeline contributes to a recovery.
#[async_trait]
pub trait StartHooks: Send + Sync {
    /// Resolves where each source begins and where it ends (`latest`, timestamps, group offsets, globs), by
    /// source uid. Called once in the life of a job, before manifest 0; never again after a crash.
    ///
    /// # Errors
    /// A sentence.
    async fn resolve_start(&self) -> Result<BTreeMap<String, SourceState>, Error>;

    /// The plan to run from `restored` (`None`: from nothing) on. Usually the restored revision itself; a
    /// changed job file gives a new one. Recorded in this run's first entry.
    ///
    /// # Errors
    /// A sentence that says why the state cannot be used with this plan.
    fn plan(&self, restored: Option<&Manifest>) -> Result<PlanRevision, Error>;

    /// Whether the plan can go on from `restored`, whose state files are at `files`: asked before anything is written, fenced or closed, so
    /// that a start that is refused leaves everything as it was. Nothing is kept of the try. By default nothing is tried.
    ///
    /// # Errors
    /// A sentence that says why the state cannot be used with this plan.
    async fn check_restore(&self, _restored: &Manifest, _files: &FilesAt) -> Result<(), Error> {
        Ok(())
    }
}

/// Clock, randomness and identity, injected so that tests can drive them.
#[async_trait]
pub trait Environment: fmt::Debug + Send + Sync {
    /// Milliseconds since 1970 (UTC).
    fn now_millis(&self) -> u64;

    /// A new random attempt.
    fn attempt(&self) -> Attempt;

    /// Who this process is, for the message that another run prints: host and process id.
    fn owner(&self) -> String;

    /// Waits between tries.
    async fn sleep(&self, duration: Duration);
}

/// The surroundings of a real process.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

#[async_trait]
impl Environment for System {
    fn now_millis(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn attempt(&self) -> Attempt {
        Attempt::random()
    }

    fn owner(&self) -> String {
        let host = std::env::var("HOSTNAME").ok().or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
        let host = host.map_or_else(|| "this host".to_owned(), |name| name.trim().to_owned());
        format!("process {} on {host}", std::process::id())
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}
