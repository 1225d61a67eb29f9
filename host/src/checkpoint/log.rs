//! The log of one incarnation in a storage: entries, generations, and what a put that was lost means.
//!
//! ```text
//! {directory}/_storage                          the directory's identity, made once
//! {directory}/{job}/generations/{number}        one object a run, never deleted
//! {directory}/{job}/chk-{slot}/_metadata        the entries, put create-if-absent
//! {directory}/{job}/shared/{generation}/…       state files
//! {directory}/{job}/restored/{attempt}          in a fork: what it restores
//! ```
//! Every put is followed by a read of the generation before anything else happens; [`JobLog::put`] does both, and
//! its [`CommitPermit`] is the proof.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::participants::Environment;
use super::protocol::slot::{Claim, SlotHolder, Standing, generation_to_take, holder, standing};
use super::protocol::{Attempt, Damage, Generation, JobId, LogEntry, LogView, Manifest, ManifestKind, Slot, StorageId, envelope};
use super::storage::{CheckpointStorage, Created, StorageError, StorageErrorClass};

/// Tries that a put or a claim gets before its outcome is reported as unknown.
const TRIES: u32 = 4;
/// The pause before the second try; doubled for each one after it.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
/// The object that identifies a checkpoint directory.
const STORAGE_ID_PATH: &str = "_storage";

/// Why the log could not be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The storage failed. After a put the outcome is unknown.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Something in the log cannot be read.
    #[error("{path} is damaged: {damage}")]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong with it.
        damage: Damage,
    },
    /// What the running job has in the log is gone.
    #[error(
        "{path}, which this run of job {job} has written to {storage}, is gone: its checkpoints were deleted, moved or replaced while it ran; put the folder back as it was, or begin again with --fresh"
    )]
    Removed {
        /// The incarnation.
        job: JobId,
        /// What was looked for.
        path: String,
        /// The storage.
        storage: String,
    },
    /// A manifest could not be written as JSON.
    #[error("a manifest could not be written as JSON: {0}")]
    Encode(#[from] serde_json::Error),
}

impl LogError {
    /// Whether the same call may succeed later.
    #[must_use]
    pub fn retry_helps(&self) -> bool {
        matches!(self, Self::Storage(error) if error.class == StorageErrorClass::Unavailable)
    }
}

/// A run as its generation object tells of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Identifies the process.
    pub token: Attempt,
    /// Host and process.
    pub owner: String,
    /// When it began to work on the job, in milliseconds since 1970 (UTC).
    pub taken_at_millis: u64,
}

impl RunRecord {
    /// The record of a process that begins to work on a job. The same one is used for all generations that it takes,
    /// so that a claim whose answer was lost is recognised later.
    #[must_use]
    pub fn new(environment: &dyn Environment) -> Self {
        Self { token: environment.attempt(), owner: environment.owner(), taken_at_millis: environment.now_millis() }
    }
}

/// A run that is newer than ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewerRun {
    /// Its generation: the newest one that exists.
    pub generation: Generation,
    /// Who it is, if that could be read.
    pub owner: Option<String>,
}

/// What became of a claim on a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The run has it.
    Taken(Generation),
    /// Another run has it: superseded.
    Superseded(NewerRun),
}

/// Proof that a manifest is in the log and that its run was still the newest one after that. Only with it may a
/// run commit, roll forward or clean up.
#[derive(Debug)]
pub struct CommitPermit {
    attempt: Attempt,
    slot: Slot,
}

impl CommitPermit {
    /// The manifest that is durable.
    #[must_use]
    pub fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// Where it stands.
    #[must_use]
    pub fn slot(&self) -> Slot {
        self.slot
    }
}

/// What became of a put.
#[derive(Debug)]
#[must_use]
pub enum PutOutcome {
    /// It is in the log, and no newer run exists.
    Durable(CommitPermit),
    /// A newer run exists: stop for good, before committing or cleaning up, whether the put got through or not.
    Superseded(NewerRun),
    /// The slot holds an earlier attempt of this run that arrived late: it counts; take the next slot.
    HeldByEarlierAttempt(Arc<Manifest>),
    /// The slot holds an entry of another run, and ours is the newest: decide again.
    HeldByAnotherRun(Arc<Manifest>),
    /// The log was closed by a fork: stop for good.
    Forked(JobId),
}

/// The log of one incarnation.
#[derive(Clone, Debug)]
pub struct JobLog {
    storage: Arc<dyn CheckpointStorage>,
    environment: Arc<dyn Environment>,
    storage_id: StorageId,
    job: JobId,
    /// The process that took a generation in this log to write to it.
    holder: Option<Attempt>,
}

impl JobLog {
    /// The log of `job` in `storage`, whose identity is read, or made when the directory is new.
    ///
    /// # Errors
    /// When the storage fails, or its identity is damaged.
    pub async fn open(storage: Arc<dyn CheckpointStorage>, environment: Arc<dyn Environment>, job: JobId) -> Result<Self, LogError> {
        let storage_id = storage_id(&*storage, &*environment).await?;
        Ok(Self { storage, environment, storage_id, job, holder: None })
    }

    /// The log of another incarnation in the same directory.
    #[must_use]
    pub fn of(&self, job: JobId) -> Self {
        Self { job, holder: None, ..self.clone() }
    }

    /// The same log for the process that took a generation in it: it puts nothing once that generation is gone.
    #[must_use]
    pub(super) fn held_by(&self, record: &RunRecord) -> Self {
        Self { holder: Some(record.token), ..self.clone() }
    }

    /// The incarnation.
    #[must_use]
    pub fn job(&self) -> &JobId {
        &self.job
    }

    /// The directory's identity.
    #[must_use]
    pub fn storage_id(&self) -> StorageId {
        self.storage_id
    }

    /// The storage below.
    #[must_use]
    pub fn storage(&self) -> &Arc<dyn CheckpointStorage> {
        &self.storage
    }

    /// Clock, randomness and identity.
    #[must_use]
    pub fn environment(&self) -> &Arc<dyn Environment> {
        &self.environment
    }

    /// Where the entry of `slot` stands.
    #[must_use]
    pub fn entry_path(&self, slot: Slot) -> String {
        format!("{}/chk-{slot}/_metadata", self.job)
    }

    /// The whole log. Damaged entries are in it by name; entries that are deleted meanwhile may be missing.
    ///
    /// # Errors
    /// When the storage fails.
    pub async fn read(&self) -> Result<LogView, LogError> {
        let mut entries = BTreeMap::new();
        for folder in self.storage.folders(self.job.as_str()).await? {
            let number = folder.strip_prefix("chk-").and_then(|digits| digits.parse::<u64>().ok().filter(|n| n.to_string() == digits));
            let Some(slot) = number.map(Slot) else {
                continue;
            };
            if let Some(entry) = self.read_slot(slot).await? {
                entries.insert(slot, entry);
            }
        }
        Ok(LogView::new(self.job.clone(), entries))
    }

    /// What stands in one slot.
    ///
    /// # Errors
    /// When the storage fails.
    pub async fn read_slot(&self, slot: Slot) -> Result<Option<LogEntry>, LogError> {
        let path = self.entry_path(slot);
        let Some(bytes) = self.storage.read(&path).await? else {
            return Ok(None);
        };
        let content = envelope::decode(&bytes).and_then(|manifest| {
            if matches!(manifest.kind, ManifestKind::Savepoint { .. }) {
                Err(Damage::Misplaced { says: "a folder of its own, as a savepoint".to_owned() })
            } else if manifest.slot == slot && manifest.job == self.job {
                Ok(Arc::new(manifest))
            } else {
                Err(Damage::Misplaced { says: format!("slot {} of {}", manifest.slot, manifest.job) })
            }
        });
        Ok(Some(LogEntry { path, content }))
    }

    /// Takes a generation for a new process: the number after the newest.
    ///
    /// # Errors
    /// When the storage fails.
    pub async fn take_generation(&self, record: &RunRecord) -> Result<Generation, LogError> {
        loop {
            let newest = self.newest_generation().await?;
            let wanted = generation_to_take(Claim::Next, newest);
            // Somebody else may take it first; numbers only grow, so this ends as soon as nobody does.
            if self.claim(wanted, record).await?.is_none() {
                return Ok(wanted);
            }
        }
    }

    /// Takes exactly `own + 1` for a recovery inside the process that has `own`. If that is taken, the run was
    /// superseded and stops for good: so two live instances never fence each other for ever.
    ///
    /// # Errors
    /// When the storage fails.
    pub async fn take_generation_exactly_after(&self, own: Generation, record: &RunRecord) -> Result<Claimed, LogError> {
        let wanted = generation_to_take(Claim::ExactlyAfter(own), None);
        match self.claim(wanted, record).await? {
            None => Ok(Claimed::Taken(wanted)),
            Some(_) => Ok(Claimed::Superseded(self.describe_newest(wanted).await?)),
        }
    }

    /// The newest generation that was taken.
    ///
    /// # Errors
    /// When the storage fails.
    pub async fn newest_generation(&self) -> Result<Option<Generation>, LogError> {
        let folder = format!("{}/generations", self.job);
        let listed = self.storage.list(&folder).await?;
        let numbers = listed.iter().filter_map(|object| object.path.rsplit('/').next()?.parse().ok().map(Generation));
        Ok(numbers.max())
    }

    /// Reads whether a run newer than `own` exists. Generations are dense and never deleted, so it is enough to look
    /// at the next one.
    ///
    /// # Errors
    /// When the storage fails.
    pub async fn newer_run(&self, own: Generation) -> Result<Option<NewerRun>, LogError> {
        match self.storage.read(&self.generation_path(own.next())).await? {
            None => Ok(None),
            Some(_) => Ok(Some(self.describe_newest(own.next()).await?)),
        }
    }

    /// Puts `manifest` into its slot and then reads the generation.
    ///
    /// An ambiguous answer is resolved by reading the slot back: ours – done; absent – put again; another's – see
    /// [`PutOutcome`]. Dropping the future leaves the outcome unknown, like a crash.
    ///
    /// # Errors
    /// When the storage fails: whether the manifest is in the log, or will be, is then unknown.
    pub async fn put(&self, manifest: &Manifest) -> Result<PutOutcome, LogError> {
        self.check_held(manifest.generation).await?;
        let path = self.entry_path(manifest.slot);
        let content = Bytes::from(envelope::encode(manifest)?);
        match self.create(&path, &content).await? {
            Resolved::Ours => {}
            Resolved::Theirs(found) => match self.found_in_slot(manifest, &path, &found)? {
                (SlotHolder::Ours, _) => {}
                (SlotHolder::Forked { by }, _) => return Ok(PutOutcome::Forked(by)),
                (SlotHolder::EarlierAttemptOfThisRun, found) => {
                    return self.unless_superseded(manifest, PutOutcome::HeldByEarlierAttempt(found)).await;
                }
                (SlotHolder::AnotherRun { .. }, found) => {
                    return self.unless_superseded(manifest, PutOutcome::HeldByAnotherRun(found)).await;
                }
            },
        }
        let permit = CommitPermit { attempt: manifest.attempt, slot: manifest.slot };
        self.unless_superseded(manifest, PutOutcome::Durable(permit)).await
    }

    /// Generations are never deleted: without the one that this process took, what is there now is another log, or none.
    pub(super) async fn check_held(&self, own: Generation) -> Result<(), LogError> {
        let Some(holder) = self.holder else { return Ok(()) };
        let path = self.generation_path(own);
        let found = self.storage.read(&path).await?;
        let is_ours = found.is_some_and(|bytes| serde_json::from_slice::<RunRecord>(&bytes).is_ok_and(|record| record.token == holder));
        if is_ours { Ok(()) } else { Err(self.removed(path)) }
    }

    /// What this process has put is not there any more.
    pub(super) fn removed(&self, path: String) -> LogError {
        LogError::Removed { job: self.job.clone(), path, storage: self.storage.describe() }
    }

    fn found_in_slot(&self, ours: &Manifest, path: &str, found: &Bytes) -> Result<(SlotHolder, Arc<Manifest>), LogError> {
        let found = envelope::decode(found).map_err(|damage| LogError::Damaged { path: path.to_owned(), damage })?;
        Ok((holder(ours, &found), Arc::new(found)))
    }

    async fn unless_superseded(&self, manifest: &Manifest, outcome: PutOutcome) -> Result<PutOutcome, LogError> {
        match self.newer_run(manifest.generation).await? {
            Some(newer) if standing(manifest.generation, newer.generation) != Standing::Newest => Ok(PutOutcome::Superseded(newer)),
            _ => Ok(outcome),
        }
    }

    /// Puts a `forked` entry of this incarnation's run into the log of another one. Its generation is the fork's, so
    /// no generation of the closed log is compared.
    ///
    /// # Errors
    /// When the storage fails, or what holds the slot is damaged.
    pub(super) async fn put_forked(&self, forked: &Manifest) -> Result<SlotHolder, LogError> {
        let path = self.entry_path(forked.slot);
        let content = Bytes::from(envelope::encode(forked)?);
        match self.create(&path, &content).await? {
            Resolved::Ours => Ok(SlotHolder::Ours),
            Resolved::Theirs(found) => Ok(self.found_in_slot(forked, &path, &found)?.0),
        }
    }

    /// Puts `content` if nothing stands at `path`, and gives what stands there in the end.
    pub(super) async fn create_or_read(&self, path: &str, content: &Bytes) -> Result<Bytes, LogError> {
        match self.create(path, content).await? {
            Resolved::Ours => Ok(content.clone()),
            Resolved::Theirs(found) => Ok(found),
        }
    }

    /// Create-if-absent until it is known what stands there.
    async fn create(&self, path: &str, content: &Bytes) -> Result<Resolved, LogError> {
        create_resolved(&*self.storage, &*self.environment, path, content).await
    }

    /// Takes one generation: `None` when the run has it, else whose it is.
    async fn claim(&self, generation: Generation, record: &RunRecord) -> Result<Option<Bytes>, LogError> {
        let content = Bytes::from(serde_json::to_vec(record)?);
        match self.create(&self.generation_path(generation), &content).await? {
            Resolved::Ours => Ok(None),
            Resolved::Theirs(found) => Ok(Some(found)),
        }
    }

    /// The newest run from `known` on, which exists.
    async fn describe_newest(&self, known: Generation) -> Result<NewerRun, LogError> {
        let generation = self.newest_generation().await?.map_or(known, |newest| newest.max(known));
        let record = self.storage.read(&self.generation_path(generation)).await?;
        let owner = record.and_then(|bytes| serde_json::from_slice::<RunRecord>(&bytes).ok()).map(|record| record.owner);
        Ok(NewerRun { generation, owner })
    }

    fn generation_path(&self, generation: Generation) -> String {
        format!("{}/generations/{generation}", self.job)
    }
}

/// What stands at a path after a create-if-absent.
pub(super) enum Resolved {
    /// What we wrote.
    Ours,
    /// Something else.
    Theirs(Bytes),
}

/// Puts `content` if nothing stands at `path`, until it is known what stands there.
pub(super) async fn create_resolved(
    storage: &dyn CheckpointStorage,
    environment: &dyn Environment,
    path: &str,
    content: &Bytes,
) -> Result<Resolved, LogError> {
    let mut pause = FIRST_BACKOFF;
    let mut tried = 0;
    loop {
        tried += 1;
        let failed = match storage.create(path, content.clone()).await {
            Ok(Created::Now) => return Ok(Resolved::Ours),
            Ok(Created::AlreadyThere) => None,
            Err(error) if error.class == StorageErrorClass::Refused => return Err(error.into()),
            Err(error) => Some(error),
        };
        // Ambiguous either way: "already there" may be an earlier try of our own.
        let unresolved = match storage.read(path).await {
            Ok(Some(found)) if found == *content => return Ok(Resolved::Ours),
            Ok(Some(found)) => return Ok(Resolved::Theirs(found)),
            Ok(None) => failed,
            Err(error) => Some(error),
        };
        if tried >= TRIES {
            let gone = || StorageError {
                operation: "creating",
                path: path.to_owned(),
                storage: storage.describe(),
                class: StorageErrorClass::Unavailable,
                source: "it is said to exist, and cannot be read".into(),
            };
            return Err(unresolved.unwrap_or_else(gone).into());
        }
        environment.sleep(pause).await;
        pause = pause.saturating_mul(2);
    }
}

/// Reads the identity of a directory, or makes one.
async fn storage_id(storage: &dyn CheckpointStorage, environment: &dyn Environment) -> Result<StorageId, LogError> {
    let ours = environment.attempt().0;
    let content = match storage.read(STORAGE_ID_PATH).await? {
        Some(content) => content,
        None => {
            let content = Bytes::from(format!("{ours}\n"));
            match create_resolved(storage, environment, STORAGE_ID_PATH, &content).await? {
                Resolved::Ours => content,
                Resolved::Theirs(content) => content,
            }
        }
    };
    let text = std::str::from_utf8(&content).ok().and_then(|text| text.strip_suffix('\n'));
    let id = text.and_then(|text| Uuid::parse_str(text).ok()).map(StorageId);
    id.ok_or_else(|| LogError::Damaged {
        path: STORAGE_ID_PATH.to_owned(),
        damage: Damage::Content("it should hold one identifier and a line end".to_owned()),
    })
}
