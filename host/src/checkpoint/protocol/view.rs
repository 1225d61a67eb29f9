//! A job's log as it was read: entries by slot, the damaged ones among them by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::envelope::Damage;
use super::ids::{Attempt, JobId, Slot};
use super::manifest::{Manifest, ManifestKind};

/// One slot that holds something.
#[derive(Clone, Debug, PartialEq)]
pub struct LogEntry {
    /// Where it stands in the storage.
    pub path: String,
    /// What it says, or what is wrong with it.
    pub content: Result<Arc<Manifest>, Damage>,
}

/// The log of one incarnation.
#[derive(Clone, Debug, PartialEq)]
pub struct LogView {
    /// The incarnation.
    pub job: JobId,
    entries: BTreeMap<Slot, LogEntry>,
}

impl LogView {
    /// The log of `job` with these entries.
    #[must_use]
    pub fn new(job: JobId, entries: BTreeMap<Slot, LogEntry>) -> Self {
        Self { job, entries }
    }

    /// Takes an entry for damaged, as by what its manifest names.
    pub fn mark_damaged(&mut self, slot: Slot, damage: Damage) {
        if let Some(entry) = self.entries.get_mut(&slot) {
            entry.content = Err(damage);
        }
    }

    /// Whether nothing was ever put.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All entries, the oldest first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = (Slot, &LogEntry)> {
        self.entries.iter().map(|(slot, entry)| (*slot, entry))
    }

    /// The entry in `slot`.
    #[must_use]
    pub fn get(&self, slot: Slot) -> Option<&LogEntry> {
        self.entries.get(&slot)
    }

    /// The intact entries, the oldest first.
    pub fn manifests(&self) -> impl DoubleEndedIterator<Item = &Arc<Manifest>> {
        self.entries.values().filter_map(|entry| entry.content.as_ref().ok())
    }

    /// The damaged entries, the oldest first.
    pub fn damaged(&self) -> impl DoubleEndedIterator<Item = (Slot, &str, &Damage)> {
        self.entries().filter_map(|(slot, entry)| entry.content.as_ref().err().map(|damage| (slot, entry.path.as_str(), damage)))
    }

    /// The entry in the greatest slot.
    #[must_use]
    pub fn newest(&self) -> Option<(Slot, &LogEntry)> {
        self.entries().next_back()
    }

    /// The newest entry, if it is intact.
    #[must_use]
    pub fn newest_manifest(&self) -> Option<&Arc<Manifest>> {
        self.newest().and_then(|(_, entry)| entry.content.as_ref().ok())
    }

    /// The slot that a new entry takes.
    #[must_use]
    pub fn next_slot(&self) -> Slot {
        self.newest().map_or(Slot::FIRST, |(slot, _)| slot.next())
    }

    /// The manifest with this attempt, wherever it stands.
    #[must_use]
    pub fn by_attempt(&self, attempt: Attempt) -> Option<&Arc<Manifest>> {
        self.manifests().find(|manifest| manifest.attempt == attempt)
    }

    /// Who closed the log: a `forked` entry counts only while it is the newest one.
    #[must_use]
    pub fn closed_by(&self) -> Option<&JobId> {
        self.newest_manifest().and_then(|manifest| manifest.forked_by())
    }

    /// Whether nothing but manifest 0 and copies of it is there.
    #[must_use]
    pub fn only_start(&self) -> bool {
        self.entries.values().all(|entry| entry.content.as_ref().is_ok_and(|manifest| manifest.is_start()))
    }

    /// The slots that lead to `from`, the newest first: each entry's predecessor by the same run, and from a copy
    /// to what it copies. Ends where the log was cut by retention. What is not on this line was rejected, or is
    /// what a superseded run put into a slot that retention had freed.
    #[must_use]
    pub fn line(&self, from: Slot) -> Vec<Slot> {
        let manifest = |slot: Slot| self.get(slot).and_then(|entry| entry.content.as_ref().ok());
        let mut line = Vec::new();
        let mut current = manifest(from);
        while let Some(entry) = current {
            line.push(entry.slot);
            current = match entry.kind {
                ManifestKind::Start | ManifestKind::Savepoint { .. } => None,
                ManifestKind::Copy { of, of_slot, .. } => manifest(of_slot).filter(|copied| copied.attempt == of && of_slot < entry.slot),
                // `forked` is put by another run, right after the entry that it replaces.
                ManifestKind::Forked { .. } => entry.slot.previous().and_then(manifest),
                ManifestKind::Checkpoint | ManifestKind::StopRecorded | ManifestKind::Final | ManifestKind::Discarded => {
                    entry.slot.previous().and_then(manifest).filter(|before| before.generation == entry.generation)
                }
            };
        }
        line
    }

    /// The newest entry that stands for `manifest`: a copy of it, or a stop recorded on top of it; else itself. It
    /// says which plan revision and which request to stop were recorded last.
    #[must_use]
    pub fn newest_record_of<'a>(&'a self, manifest: &'a Arc<Manifest>) -> &'a Arc<Manifest> {
        let stands_for = |entry: &&Arc<Manifest>| match entry.kind {
            ManifestKind::Copy { of, .. } => of == manifest.attempt,
            ManifestKind::StopRecorded => entry.snapshot.checkpoint == manifest.snapshot.checkpoint,
            _ => false,
        };
        self.manifests().rev().find(stands_for).unwrap_or(manifest)
    }
}
