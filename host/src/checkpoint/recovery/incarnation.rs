//! Finds the newest incarnation of a job's name by following `forked` entries.

use std::sync::Arc;

use super::super::log::JobLog;
use super::super::protocol::fork::Parent;
use super::super::protocol::{LogView, ManifestKind, Refusal};
use super::{StartError, StartRequest};

/// The newest incarnation.
pub(super) struct Found {
    pub(super) log: JobLog,
    pub(super) view: LogView,
    /// The incarnation before, whose log led here.
    pub(super) parent: Option<Parent>,
}

/// Reads the first incarnation's log; while one is closed by another incarnation of the same name, reads that.
pub(super) async fn newest(request: &StartRequest<'_>) -> Result<Found, StartError> {
    let first = request.name.first_incarnation();
    let mut log = JobLog::open(Arc::clone(&request.storage), Arc::clone(&request.environment), first).await?;
    let mut parent = None;
    loop {
        let view = log.read().await?;
        let closed = view.newest_manifest().and_then(|newest| match &newest.kind {
            ManifestKind::Forked { by, intent } => Some((by.clone(), intent.clone(), newest.slot)),
            _ => None,
        });
        match closed {
            None => return Ok(Found { log, view, parent }),
            // Numbers of incarnations grow, so this ends. One that moved here from another directory skips some.
            Some((by, intent, _)) if by.name() == request.name && by.incarnation() > log.job().incarnation() => {
                parent = Some(Parent { view, intent });
                log = log.of(by);
            }
            Some((by, _, slot)) => return Err(Refusal::ForkedBy { job: log.job().clone(), by, slot }.into()),
        }
    }
}
