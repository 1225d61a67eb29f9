//! Folds a base and its deltas into a new base, in the background, so that the time to restore stays bounded.

use super::upload::{Event, StateFolder, read_state_file};
use crate::Error;
use crate::checkpoint::protocol::{JobSnapshot, StateFile, StateFileKind};
use crate::state::merge;
use std::collections::HashSet;
use tokio::sync::mpsc;

/// Files that a subtask's chain may have before it is folded: a restore reads about as many.
const MAX_FILES: usize = 16;
/// Files below which nothing is folded, whatever their sizes.
const MIN_FILES: usize = 4;

/// A chain to fold.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) uid: String,
    pub(super) subtask: u32,
    files: Vec<StateFile>,
}

/// Chains of a completed checkpoint that are to be folded: those with many files, or whose deltas have outgrown the base, so that
/// on average a byte is written again only once or twice.
pub(super) fn due(snapshot: &JobSnapshot, compacting: &HashSet<(String, u32)>) -> Vec<Job> {
    let mut jobs = Vec::new();
    for (uid, operator) in &snapshot.operators {
        for (subtask, state) in &operator.subtasks {
            if is_due(&state.chain) && !compacting.contains(&(uid.clone(), *subtask)) {
                jobs.push(Job { uid: uid.clone(), subtask: *subtask, files: state.chain.clone() });
            }
        }
    }
    jobs
}

fn is_due(chain: &[StateFile]) -> bool {
    let base: u64 = chain.first().map_or(0, |file| file.bytes);
    let deltas: u64 = chain.iter().skip(1).map(|file| file.bytes).sum();
    chain.len() >= MAX_FILES || (chain.len() >= MIN_FILES && deltas > base)
}

/// Folds a chain and reports the new base.
pub(super) async fn run(job: Job, folder: StateFolder, checkpoint: u64, events: mpsc::Sender<Event>) {
    let (uid, subtask) = (job.uid.clone(), job.subtask);
    let event = match fold(&job, &folder, checkpoint).await {
        Ok(base) => Event::Compacted { uid, subtask, folded: job.files, base },
        Err(error) => Event::CompactionFailed { uid, subtask, reason: error.chain(), damaged: !error.retry_helps() },
    };
    // Without a receiver the run has ended, and a later run deletes the file.
    let _gone = events.send(event).await;
}

async fn fold(job: &Job, folder: &StateFolder, checkpoint: u64) -> Result<StateFile, Error> {
    let mut files = Vec::with_capacity(job.files.len());
    for file in &job.files {
        files.push((file.path.clone(), read_state_file(&*folder.storage, file).await?));
    }
    let merged = tokio::task::spawn_blocking(move || merge(files)).await;
    let merged = merged.map_err(|error| Error::internal("folding state files panicked").caused_by(error))?;
    let content = merged.map_err(|(file, error)| Error::external(format!("state file {file} is {error}")))?;
    let base = folder.file(&format!("{}-{}-base-{checkpoint}", job.uid, job.subtask), StateFileKind::Base, &content);
    let written = folder.storage.write(&base.path, vec![content]).await;
    written.map_err(|error| super::upload::storage_error(&error))?;
    Ok(base)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::checkpoint::protocol::{Checksum, KeyGroupRange};

    fn chain(sizes: &[u64]) -> Vec<StateFile> {
        let file = |bytes: &u64| StateFile {
            path: String::new(),
            kind: StateFileKind::Delta,
            bytes: *bytes,
            checksum: Checksum::of(b""),
            key_groups: KeyGroupRange { first: 0, last: 0 },
        };
        sizes.iter().map(file).collect()
    }

    #[test]
    fn a_chain_is_folded_when_deltas_outgrow_the_base_or_files_are_many() {
        assert!(!is_due(&[]));
        assert!(!is_due(&chain(&[100, 60, 60])), "three files are soon read");
        assert!(is_due(&chain(&[100, 40, 40, 40])));
        assert!(!is_due(&chain(&[1000, 40, 40, 40])));
        assert!(is_due(&chain(&[1000; 1].into_iter().chain([1; 15]).collect::<Vec<_>>())));
    }
}
