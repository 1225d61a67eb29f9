//! What may be deleted: only by age, only after this run's own first commit, never the newest entry of a log
//! and never a `forked` one.

use std::collections::BTreeMap;

use super::ids::{Generation, JobId, Slot};
use super::manifest::ManifestKind;
use super::view::{LogEntry, LogView};

/// What to delete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetentionPlan {
    /// Entries of the log, the oldest first.
    pub slots: Vec<Slot>,
    /// State files, by path from the checkpoint directory.
    pub files: Vec<String>,
}

/// Decides which entries of the log go, after this run committed the checkpoint in `completed`.
///
/// The newest `retained` checkpoints on the line that leads to it stay, and every slot from the oldest of them on:
/// so the log stays dense from there, and whatever a superseded run puts into a freed slot below is off the line.
/// What was rejected goes by age like everything else.
#[must_use]
pub fn entries_to_delete(log: &LogView, completed: Slot, retained: usize) -> Vec<Slot> {
    let Some((newest, _)) = log.newest() else {
        return Vec::new();
    };
    let kind = |slot: Slot| log.get(slot).and_then(|entry| entry.content.as_ref().ok()).map(|manifest| &manifest.kind);
    let line = log.line(completed);
    let checkpoints = line.iter().filter(|slot| matches!(kind(**slot), Some(ManifestKind::Checkpoint | ManifestKind::Final)));
    let Some(oldest_kept) = checkpoints.take(retained.max(1)).last().copied() else {
        return Vec::new();
    };
    let goes = |slot: &Slot| *slot < oldest_kept && *slot != newest && !matches!(kind(*slot), Some(ManifestKind::Forked { .. }));
    log.entries().map(|(slot, _)| slot).filter(goes).collect()
}

/// Decides which entries of the log go when its newest one says that the job is discarded: all older ones but
/// `forked` ones.
#[must_use]
pub fn entries_to_discard(log: &LogView) -> Vec<Slot> {
    let discarded = log.newest_manifest().filter(|newest| newest.kind == ManifestKind::Discarded).map(|newest| newest.slot);
    let forked = |entry: &LogEntry| entry.content.as_ref().is_ok_and(|manifest| manifest.forked_by().is_some());
    let older = log.entries().filter(|(slot, entry)| Some(*slot) < discarded && !forked(entry));
    older.map(|(slot, _)| slot).collect()
}

/// The folder, below a job's own, that holds its state files.
pub const SHARED: &str = "shared";

/// The folder of the state files that one run uploads: names of different runs never meet, and what a dead run
/// left is told by its generation.
#[must_use]
pub fn state_folder(job: &JobId, generation: Generation) -> String {
    format!("{job}/{SHARED}/{generation}")
}

/// The generation in the path of a state file of `job`.
fn generation_of(job: &JobId, path: &str) -> Option<Generation> {
    let rest = path.strip_prefix(job.as_str())?.strip_prefix('/')?.strip_prefix(SHARED)?.strip_prefix('/')?;
    rest.split_once('/')?.0.parse().ok().map(Generation)
}

/// Decides which state files go once `deleted` are no longer in the log.
///
/// `listed` are the files in the job's folder. A file stays while an entry that stays names it. Of the rest, what
/// a deleted entry named goes, and what runs before `own` left; what this run uploaded and no manifest names yet
/// belongs to a checkpoint under way.
#[must_use]
pub fn files_to_delete(log: &LogView, deleted: &[Slot], own: Generation, listed: &[String]) -> Vec<String> {
    // A damaged entry may name any file; its files are kept until it is gone.
    let blind = log.damaged().any(|(slot, _, _)| !deleted.contains(&slot));
    let mut named: BTreeMap<&str, bool> = BTreeMap::new();
    for manifest in log.manifests() {
        let stays = !deleted.contains(&manifest.slot);
        for file in manifest.snapshot.files() {
            *named.entry(&file.path).or_default() |= stays;
        }
    }
    let goes = |path: &&String| match named.get(path.as_str()) {
        Some(needed) => !needed,
        None => !blind && generation_of(&log.job, path).is_some_and(|generation| generation < own),
    };
    listed.iter().filter(goes).cloned().collect()
}
