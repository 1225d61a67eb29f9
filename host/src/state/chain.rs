//! A base and its deltas, read as one: the newest entry of a key counts, and what is gone is not there.

use super::file::{Chunks, StateFileError, StateWriter};
use super::hidden::{Hidden, Row, shown};
use super::{Entries, EntryRef};
use crate::record::key_group;
use bytes::Bytes;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;

/// Entries, or the name of a damaged file and where in it.
pub(super) type Read = Result<Entries, (String, StateFileError)>;

/// Folds a base and its deltas, oldest first, into one base.
///
/// # Errors
/// The name of a damaged file, and where in it.
pub fn merge(files: Vec<(String, Bytes)>) -> Result<Bytes, (String, StateFileError)> {
    let mut writer = StateWriter::default();
    for entries in Visible::new(vec![files], 0..1, 1) {
        writer.write(&entries?);
    }
    Ok(writer.finish())
}

/// The entries of chains that no newer file hides, and none that is gone: the newest file first. An error is the last item.
#[derive(Debug)]
pub(super) struct Visible {
    /// Chains that are still to be read, each oldest file first.
    chains: VecDeque<Vec<(String, Bytes)>>,
    groups: Range<u16>,
    max_parallelism: u16,
    current: Option<File>,
    /// By state: what the files of the chain that were read hide.
    hidden: HashMap<String, Hidden>,
    /// States that all chains have alike: they are read of the first one, whatever the key groups.
    broadcast: HashSet<String>,
    /// Whether a file of an earlier chain was read, and whether one of this chain.
    is_later_chain: bool,
    has_read: bool,
}

/// The file that is read.
#[derive(Debug)]
struct File {
    name: String,
    chunks: Chunks,
    is_oldest: bool,
    /// What hides older entries, but only after the whole file: a removal of a key and new entries of that key may stand in one file.
    hiding: Vec<(Entries, Vec<Row>)>,
}

impl Visible {
    pub(super) fn new(chains: Vec<Vec<(String, Bytes)>>, groups: Range<u16>, max_parallelism: u16) -> Self {
        Self {
            chains: chains.into(),
            groups,
            max_parallelism,
            current: None,
            hidden: HashMap::new(),
            broadcast: HashSet::new(),
            is_later_chain: false,
            has_read: false,
        }
    }

    /// The same, with the names of the states that are the same in all chains.
    pub(super) fn with_broadcast(self, states: impl IntoIterator<Item = String>) -> Self {
        Self { broadcast: states.into_iter().collect(), ..self }
    }

    /// Begins with the next file. None: there is no other one.
    fn next_file(&mut self) -> Option<File> {
        loop {
            let chain = self.chains.front_mut()?;
            if let Some((name, file)) = chain.pop() {
                self.has_read = true;
                return Some(File { name, chunks: Chunks::of(file), is_oldest: chain.is_empty(), hiding: Vec::new() });
            }
            self.chains.pop_front();
            self.is_later_chain |= self.has_read;
            self.hidden.clear();
        }
    }

    /// What is left of the entries of a file.
    fn left(&mut self, file: &mut File, entries: Entries) -> Entries {
        let is_broadcast = self.broadcast.contains(&entries.state);
        if is_broadcast && self.is_later_chain {
            return Entries::of(entries.state, entries.version);
        }
        let whole = is_broadcast || (self.groups.start == 0 && self.groups.end == self.max_parallelism);
        let in_groups = |entry: &EntryRef<'_>| whole || self.groups.contains(&key_group(entry.key, self.max_parallelism));
        let hidden = self.hidden.entry(entries.state.clone()).or_default();
        if file.is_oldest && whole && hidden.is_empty() && entries.removed.is_empty() {
            return entries;
        }
        let rows = hidden.rows_left(&entries, in_groups);
        let left = shown(&entries, &rows);
        if !file.is_oldest {
            file.hiding.push((entries, rows));
        }
        left
    }
}

impl Iterator for Visible {
    type Item = Read;

    fn next(&mut self) -> Option<Read> {
        loop {
            let mut file = self.current.take().or_else(|| self.next_file())?;
            match file.chunks.next() {
                Some(Ok(entries)) => {
                    let left = self.left(&mut file, entries);
                    self.current = Some(file);
                    if !left.is_empty() {
                        return Some(Ok(left));
                    }
                }
                Some(Err(error)) => {
                    self.chains.clear();
                    return Some(Err((file.name, error)));
                }
                None => {
                    for (entries, rows) in file.hiding {
                        self.hidden.entry(entries.state.clone()).or_default().hide(entries, &rows);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// (key, subkey, value): without a subkey the key as a whole is removed, without a value the entry.
    type Change = (u8, u8, Option<u8>);
    type State = BTreeMap<(Vec<u8>, Vec<u8>), Vec<u8>>;

    fn file(changes: &[Change], has_subkeys: bool) -> Bytes {
        let mut writer = StateWriter::default();
        // Removals of whole keys come first, and each entry is there once: as an export has them.
        let is_removal = |change: &&Change| has_subkeys && change.1 == 0;
        let entries = changes.iter().filter(|change| !is_removal(change));
        let entries: BTreeMap<_, _> = entries.map(|(key, sub, value)| ((*key, if has_subkeys { *sub } else { 0 }), *value)).collect();
        let removals = changes.iter().filter(is_removal).map(|(key, _, _)| ((*key, 0), None));
        for ((key, sub), value) in removals.chain(entries) {
            // Small chunks, so that there are many.
            let mut chunk = Entries::of("state", 1);
            let sub = if sub == 0 { vec![] } else { vec![sub] };
            chunk.push(EntryRef { key: &[key], subkey: has_subkeys.then_some(&*sub), value: value.as_ref().map(std::slice::from_ref) });
            writer.write(&chunk);
        }
        writer.finish()
    }

    /// What the files come to when their entries are applied in order.
    fn applied(files: &[Bytes]) -> State {
        let mut state = State::new();
        for entries in files.iter().cloned().flat_map(Chunks::of) {
            for entry in entries.unwrap().iter() {
                let (key, sub) = (entry.key.to_vec(), entry.subkey.unwrap_or_default().to_vec());
                match entry.value {
                    Some(value) => drop(state.insert((key, sub), value.to_vec())),
                    None if entry.removes_key() => state.retain(|(each, _), _| *each != key),
                    None => drop(state.remove(&(key, sub))),
                }
            }
        }
        state
    }

    /// What is read, each entry once.
    fn read(files: &[Bytes], groups: Range<u16>) -> State {
        let mut state = State::new();
        for entries in Visible::new(vec![named(files)], groups, 128) {
            for entry in entries.unwrap().iter() {
                let name = (entry.key.to_vec(), entry.subkey.unwrap_or_default().to_vec());
                assert!(state.insert(name, entry.value.unwrap().to_vec()).is_none());
            }
        }
        state
    }

    #[test]
    fn broadcast_states_are_read_of_one_chain_whatever_the_groups() {
        let files = [file(&[(0, 1, Some(1)), (0, 2, Some(2))], true), file(&[(0, 1, None), (0, 3, Some(3))], true)];
        let chains = || vec![Vec::new(), named(&files), named(&files)];
        for (groups, is_folded) in [(0..40, false), (40..128, false), (0..128, false), (0..40, true)] {
            let mut chains = chains();
            if is_folded {
                chains[1] = vec![("base".into(), merge(named(&files)).unwrap())];
            }
            let visible = Visible::new(chains, groups, 128).with_broadcast(["state".to_owned()]);
            let mut found: Vec<_> = visible
                .flat_map(|entries| entries.unwrap().iter().map(|entry| entry.subkey.unwrap().to_vec()).collect::<Vec<_>>())
                .collect();
            found.sort();
            assert_eq!(found, [[2], [3]]);
        }
    }

    fn named(files: &[Bytes]) -> Vec<(String, Bytes)> {
        files.iter().enumerate().map(|(index, file)| (index.to_string(), file.clone())).collect()
    }

    proptest! {
        #[test]
        fn a_chain_folded_or_not_is_read_as_what_its_files_come_to(
            files in prop::collection::vec(prop::collection::vec((0..6_u8, 0..4_u8, prop::option::of(any::<u8>())), 0..12), 1..6),
            has_subkeys: bool,
            folded in 0..6_usize,
        ) {
            let files: Vec<Bytes> = files.iter().map(|changes| file(changes, has_subkeys)).collect();
            let expected = applied(&files);
            prop_assert_eq!(&read(&files, 0..128), &expected);
            let (older, newer) = files.split_at(folded.min(files.len()));
            let base = merge(named(older)).unwrap();
            let chain: Vec<Bytes> = std::iter::once(base).chain(newer.iter().cloned()).collect();
            prop_assert_eq!(&read(&chain, 0..128), &expected);
            let (mut part, other) = (read(&chain, 0..50), read(&chain, 50..128));
            prop_assert!(other.keys().all(|key| !part.contains_key(key)));
            part.extend(other);
            prop_assert_eq!(part, expected);
        }
    }
}
