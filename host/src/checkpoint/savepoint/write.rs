//! Makes a savepoint of entries: state that a batch has computed, for a job that is to begin with it.

use std::collections::{BTreeMap, HashSet};

use super::super::participants::{Environment, System};
use super::super::protocol::{
    Generation, JobName, JobSnapshot, KeyGroupRange, Manifest, ManifestKind, OperatorState, PlanRevision, Slot, StorageId, SubtaskState,
    Timing,
};
use super::make::{Target, put, write_base};
use super::{METADATA, SavepointError};
use crate::state::{Entries, EntryRef, StateLine, StateWriter};

/// How large a chunk of entries becomes, in bytes.
const CHUNK_BYTES: usize = 1 << 20;

/// The state of the operators of a job, gathered line by line.
#[derive(Debug, Default)]
pub struct Gathered {
    operators: BTreeMap<String, Operator>,
    lines: usize,
}

#[derive(Debug, Default)]
struct Operator {
    file: StateWriter,
    /// By state and version.
    chunks: BTreeMap<(String, u32), Entries>,
    /// By state, whether it has subkeys.
    has_subkeys: BTreeMap<String, bool>,
    /// State, key and subkey.
    seen: HashSet<(String, Vec<u8>, Option<Vec<u8>>)>,
}

impl Gathered {
    /// How many entries there are.
    #[must_use]
    pub fn entries(&self) -> u64 {
        let of = |operator: &Operator| operator.seen.len() as u64;
        self.operators.values().map(of).sum()
    }

    /// Adds the next line; an empty one is passed over.
    ///
    /// # Errors
    /// What is wrong with it, with its number.
    pub fn add(&mut self, text: &str) -> Result<(), SavepointError> {
        self.lines += 1;
        if text.trim().is_empty() {
            return Ok(());
        }
        let line = self.lines;
        StateLine::parse(text).and_then(|entry| self.add_entry(entry)).map_err(|problem| SavepointError::Line { line, problem })
    }

    fn add_entry(&mut self, entry: StateLine) -> Result<(), String> {
        let StateLine { operator: uid, state, version, key, subkey, value } = entry;
        let is_name = |name: &str| !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0']);
        if !is_name(&uid) {
            return Err(format!("operator {uid:?} is no uid"));
        }
        if state.is_empty() {
            return Err("the state has no name".to_owned());
        }
        let operator = self.operators.entry(uid).or_default();
        if *operator.has_subkeys.entry(state.clone()).or_insert(subkey.is_some()) != subkey.is_some() {
            return Err(format!("state {state:?} has subkeys in some entries and not in others"));
        }
        if subkey.as_ref().is_some_and(Vec::is_empty) {
            return Err(format!("state {state:?} has an empty subkey, which stands for all of a key"));
        }
        if !operator.seen.insert((state.clone(), key.clone(), subkey.clone())) {
            return Err(format!("state {state:?} has this key a second time"));
        }
        let chunk = operator.chunks.entry((state.clone(), version)).or_insert_with(|| Entries::of(state, version));
        chunk.push(EntryRef { key: &key, subkey: subkey.as_deref(), value: Some(&value) });
        if chunk.byte_len() >= CHUNK_BYTES {
            let name = chunk.state.clone();
            operator.file.write(&std::mem::replace(chunk, Entries::of(name, version)));
        }
        Ok(())
    }
}

/// Writes a savepoint that the job `name` begins with; the path of its folder. It has one file for each operator, whatever the parallelism of the job.
///
/// # Errors
/// See [`SavepointError`].
pub async fn write(gathered: Gathered, name: &str, max_parallelism: u16, target: &Target) -> Result<(String, Manifest), SavepointError> {
    let mut manifest = empty(JobName::new(name)?, max_parallelism);
    let path = target.folder(&manifest);
    target.check().await?;
    let storage = super::super::storage::open(&path, super::super::storage::StorageOptions::default()).await?;
    if storage.read(METADATA).await?.is_some() {
        return Err(SavepointError::Exists { path, job: manifest.job });
    }
    let key_groups = KeyGroupRange { first: 0, last: u32::from(max_parallelism) - 1 };
    for (uid, mut operator) in gathered.operators {
        operator.chunks.values().for_each(|chunk| operator.file.write(chunk));
        let name = format!("{}/{uid}-0.state", manifest.attempt);
        let file = write_base(&storage, name, key_groups, operator.file.finish()).await?;
        manifest.uploaded_bytes += file.bytes;
        let subtask = SubtaskState { chain: vec![file], ..SubtaskState::default() };
        manifest.snapshot.operators.insert(uid, OperatorState { subtasks: BTreeMap::from([(0, subtask)]), ..OperatorState::default() });
    }
    put(&storage, &path, &manifest).await?;
    Ok((path, manifest))
}

/// What a checkpoint before the first record would say: nothing was read, nothing is known of a plan.
fn empty(job_name: JobName, max_parallelism: u16) -> Manifest {
    let (attempt, now) = (System.attempt(), System.now_millis());
    let plan = PlanRevision { number: 1, max_parallelism: u32::from(max_parallelism), ..PlanRevision::default() };
    Manifest {
        kind: ManifestKind::Savepoint { bootstrap: true },
        storage: StorageId(System.attempt().0),
        job: job_name.first_incarnation(),
        job_name,
        generation: Generation::FIRST,
        slot: Slot::FIRST,
        attempt,
        committed: None,
        released: true,
        timing: Timing { triggered_at_millis: now, written_at_millis: now },
        uploaded_bytes: 0,
        snapshot: JobSnapshot { checkpoint: attempt, plan, ..JobSnapshot::default() },
    }
}
