//! Reads the state of a checkpoint ahead of the operator that takes it over.

use super::Entries;
use super::chain::{Read, Visible};
use super::file::StateFileError;
use bytes::Bytes;
use std::ops::Range;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};

/// How many chunks are read before they are asked for: one is being taken over while the next is made.
const AHEAD: usize = 2;

/// Reads the files of one or more subtasks' chains, the entries of some key groups only, each entry once and as it was at the checkpoint.
///
/// Finding out what newer files hide takes about as long as a plugin takes to import what is left, so it is done in a thread of its own.
#[derive(Debug)]
pub struct StateReader {
    unread: Option<Visible>,
    ahead: Option<(mpsc::Receiver<Read>, JoinHandle<()>)>,
}

impl StateReader {
    /// A reader of chains, each a base and deltas, oldest first, under names that errors tell. Entries whose key is in `groups` are read.
    pub fn new(chains: Vec<Vec<(String, Bytes)>>, groups: Range<u16>, max_parallelism: u16) -> Self {
        Self { unread: Some(Visible::new(chains, groups, max_parallelism)), ahead: None }
    }

    /// The same, where all chains have these states alike: they are read of one chain, whatever the key groups.
    #[must_use]
    pub fn with_broadcast(self, states: impl IntoIterator<Item = String>) -> Self {
        Self { unread: self.unread.map(|unread| unread.with_broadcast(states)), ..self }
    }

    /// Nothing to read: the start of a new job.
    pub fn empty() -> Self {
        Self { unread: None, ahead: None }
    }

    /// The next entries, none at the end. None of them is gone. Cancel safe.
    ///
    /// # Errors
    /// The name of a damaged file, and where in it. What was read before is then of no use.
    pub async fn next_entries(&mut self) -> Result<Option<Entries>, (String, StateFileError)> {
        if let Some(unread) = self.unread.take() {
            self.ahead = Some(read_ahead(unread));
        }
        let Some((entries, reading)) = &mut self.ahead else { return Ok(None) };
        if let Some(entries) = entries.recv().await {
            return entries.map(Some);
        }
        // The end is one only when the thread came to its own.
        let ended = reading.await;
        self.ahead = None;
        match ended.map_err(JoinError::try_into_panic) {
            Ok(()) => Ok(None),
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            Err(Err(_the_runtime_stops)) => std::future::pending().await,
        }
    }
}

fn read_ahead(unread: Visible) -> (mpsc::Receiver<Read>, JoinHandle<()>) {
    let (sender, receiver) = mpsc::channel(AHEAD);
    let read = move || {
        for entries in unread {
            // Whoever asked may have gone away.
            if sender.blocking_send(entries).is_err() {
                return;
            }
        }
    };
    (receiver, tokio::task::spawn_blocking(read))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::state::{EntryRef, StateWriter};

    /// A file with two chunks of one entry each.
    fn file() -> Bytes {
        let mut writer = StateWriter::default();
        for key in [b"a", b"b"] {
            let mut entries = Entries::of("state", 1);
            entries.push(EntryRef { key, subkey: None, value: Some(b"1") });
            writer.write(&entries);
        }
        writer.finish()
    }

    fn chain(files: &[Bytes]) -> Vec<(String, Bytes)> {
        files.iter().enumerate().map(|(index, file)| (index.to_string(), file.clone())).collect()
    }

    #[tokio::test]
    async fn the_reader_ends_after_all_chains() {
        let mut reader = StateReader::new(vec![chain(&[file()]), chain(&[file()])], 0..128, 128);
        for _ in 0..4 {
            assert_eq!(reader.next_entries().await.unwrap().unwrap().len(), 1);
        }
        assert_eq!(reader.next_entries().await.unwrap(), None);
        assert_eq!(reader.next_entries().await.unwrap(), None);
        assert_eq!(StateReader::empty().next_entries().await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_damaged_file_is_named() {
        let cut = file().slice(..file().len() - 1);
        let mut reader = StateReader::new(vec![chain(&[file(), cut])], 0..128, 128);
        let damaged = loop {
            match reader.next_entries().await {
                Ok(entries) => assert!(entries.is_some()),
                Err((name, _)) => break name,
            }
        };
        assert_eq!(damaged, "1");
    }
}
