//! Starts, commits, forks and retention on a real storage, with the faults that a storage has.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Value, json};

use super::commit::{Parties, Run, RunError};
use super::participants::{Environment, LastResource, LastResourceError, Leftovers, Participants, StartHooks};
use super::protocol::fork::StartFrom;
use super::protocol::retain::state_folder;
use super::protocol::*;
use super::recovery::{FilesAt, Origin, Recovered, StartError, StartOptions, StartRequest, Started, Starter, read_manifest};
use super::storage::faults::{Fault, FaultyStorage, Operation, Rule};
use super::storage::{CheckpointStorage, StorageOptions, open};
use crate::Error;

/// Impatient surroundings: no pause between tries.
#[derive(Debug, Default)]
struct Impatient(AtomicU64);

#[async_trait]
impl Environment for Impatient {
    fn now_millis(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    fn attempt(&self) -> Attempt {
        Attempt::random()
    }

    fn owner(&self) -> String {
        "process 7 on testhost".to_owned()
    }

    async fn sleep(&self, _: Duration) {
        tokio::task::yield_now().await;
    }
}

/// A pipeline with one sink, or more.
#[derive(Debug)]
struct Pipeline {
    sinks: Vec<String>,
    guarantee: OutputGuarantee,
    resolved: AtomicU64,
    committed: Mutex<Vec<String>>,
    cleaned: Mutex<Vec<(String, Option<u64>)>>,
    failures: Mutex<VecDeque<Error>>,
}

impl Pipeline {
    fn new() -> Self {
        Self {
            sinks: vec!["out".to_owned()],
            guarantee: OutputGuarantee::ExactlyOnce,
            resolved: AtomicU64::new(0),
            committed: Mutex::default(),
            cleaned: Mutex::default(),
            failures: Mutex::default(),
        }
    }

    fn committed(&self) -> Vec<String> {
        std::mem::take(&mut self.committed.lock().unwrap())
    }
}

#[async_trait]
impl Participants for Pipeline {
    fn order(&self) -> Vec<String> {
        self.sinks.clone()
    }

    async fn commit(&self, sink: &str, work: &[PreparedWork]) -> Result<(), Error> {
        if let Some(failure) = self.failures.lock().unwrap().pop_front() {
            return Err(failure);
        }
        self.committed.lock().unwrap().extend(work.iter().map(|work| format!("{sink}:{}", work.work.as_str().unwrap())));
        Ok(())
    }

    async fn clean_up(&self, leftovers: &Leftovers<'_>) -> Result<(), Error> {
        self.cleaned.lock().unwrap().push((leftovers.job.to_string(), leftovers.before.map(|generation| generation.0)));
        Ok(())
    }
}

#[async_trait]
impl StartHooks for Pipeline {
    async fn resolve_start(&self) -> Result<BTreeMap<String, SourceState>, Error> {
        self.resolved.fetch_add(1, Ordering::Relaxed);
        Ok(sources(0))
    }

    fn plan(&self, _: Option<&Manifest>) -> Result<PlanRevision, Error> {
        Ok(PlanRevision { number: 1, guarantee: self.guarantee, ..PlanRevision::default() })
    }
}

fn sources(position: u64) -> BTreeMap<String, SourceState> {
    let split = SplitState { position: json!(position), stop: None, finished: false };
    BTreeMap::from([("in".to_owned(), SourceState { splits: BTreeMap::from([("0".to_owned(), split)]), extra: Value::Null })])
}

/// A last resource whose commits become visible only when it is fenced, except the first.
#[derive(Debug, Default)]
struct SlowBroker {
    visible: Mutex<Option<Marker>>,
    /// In their order.
    decided: Mutex<Vec<Marker>>,
}

impl SlowBroker {
    /// The marker of a checkpoint, which is about to be put into the log.
    fn prepare(&self, run: &Run, attempt: Attempt) {
        let (job, storage, generation) = (run.job().clone(), run.log().storage_id(), run.generation());
        let marker = Marker { job, storage, generation, checkpoint: run.next_slot(), attempt, state: MarkerState::Running };
        self.decided.lock().unwrap().push(marker);
    }
}

#[async_trait]
impl LastResource for SlowBroker {
    fn ids(&self) -> Vec<String> {
        vec!["prefix-0".to_owned()]
    }

    async fn read_marker(&self) -> Result<Option<Marker>, LastResourceError> {
        Ok(self.visible.lock().unwrap().clone())
    }

    async fn fence(&self, _: &[String]) -> Result<(), LastResourceError> {
        if let Some(marker) = self.decided.lock().unwrap().drain(..).next_back() {
            *self.visible.lock().unwrap() = Some(marker);
        }
        Ok(())
    }

    async fn commit_genesis(&self, marker: &Marker) -> Result<(), LastResourceError> {
        *self.visible.lock().unwrap() = Some(marker.clone());
        Ok(())
    }

    async fn commit(&self, _: Attempt) -> Result<(), LastResourceError> {
        Ok(())
    }
}

struct World {
    storage: Arc<FaultyStorage>,
    environment: Arc<Impatient>,
    pipeline: Pipeline,
    broker: Option<SlowBroker>,
}

impl World {
    async fn new() -> Self {
        Self::at("memory:///").await
    }

    async fn at(url: &str) -> Self {
        let options = StorageOptions { first_backoff: Duration::ZERO, ..StorageOptions::default() };
        let storage = Arc::new(FaultyStorage::new(open(url, options).await.unwrap()));
        Self { storage, environment: Arc::new(Impatient::default()), pipeline: Pipeline::new(), broker: None }
    }

    fn request(&self, name: &str) -> StartRequest<'_> {
        StartRequest {
            storage: self.storage.clone(),
            environment: self.environment.clone(),
            name: JobName::new(name).unwrap(),
            from: StartFrom::Latest,
            files: None,
            options: StartOptions::default(),
            guarantee: self.pipeline.guarantee,
            hooks: &self.pipeline,
            participants: &self.pipeline,
            last_resource: self.last_resource(),
        }
    }

    fn last_resource(&self) -> Option<&dyn LastResource> {
        self.broker.as_ref().map(|broker| broker as &dyn LastResource)
    }

    async fn try_start(&self, request: &StartRequest<'_>) -> Result<Started, StartError> {
        Starter::new(&*self.environment).start(request).await
    }

    async fn running(&self, request: &StartRequest<'_>) -> Recovered {
        running(self.try_start(request).await.unwrap())
    }

    fn parties(&self) -> Parties<'_> {
        Parties { participants: &self.pipeline, last_resource: self.last_resource() }
    }

    /// One checkpoint at `position` with one piece of work and one state file.
    async fn checkpoint(&self, run: &mut Run, position: u64) -> Result<Slot, RunError> {
        let draft = self.draft(run, position).await;
        if let Some(broker) = &self.broker {
            broker.prepare(run, draft.attempt);
        }
        Ok(run.checkpoint(&draft, &self.parties()).await?.slot)
    }

    async fn draft(&self, run: &Run, position: u64) -> CheckpointDraft {
        let content = Bytes::from(format!("state at {position}"));
        let file = StateFile {
            path: format!("{}/{}", state_folder(run.job(), run.generation()), Attempt::random()),
            kind: StateFileKind::Base,
            bytes: content.len() as u64,
            checksum: Checksum::of(&content),
            key_groups: KeyGroupRange { first: 0, last: 127 },
        };
        self.storage.write(&file.path, vec![content]).await.unwrap();
        let subtask = SubtaskDraft { chain: ChainChange::Append(file), extra: Value::Null };
        let operator = OperatorDraft { subtasks: BTreeMap::from([(0, subtask)]), extra: Value::Null };
        CheckpointDraft {
            attempt: Attempt::random(),
            sources: sources(position),
            operators: BTreeMap::from([("count".to_owned(), operator)]),
            transactional_ids: self.last_resource().map(LastResource::ids).unwrap_or_default(),
            prepared: self.pipeline.sinks.iter().map(|sink| SinkWork { sink: sink.clone(), work: json!(format!("w{position}")) }).collect(),
            ..CheckpointDraft::default()
        }
    }
}

fn running(started: Started) -> Recovered {
    match started {
        Started::Running(recovered) => *recovered,
        Started::Finished { job, slot } => panic!("{job} is finished in {slot}"),
    }
}

fn position(manifest: &Manifest) -> u64 {
    manifest.snapshot.sources["in"].splits["0"].position.as_u64().unwrap()
}

#[tokio::test]
async fn positions_are_resolved_once_in_the_life_of_a_job() {
    let world = World::new().await;
    let first = world.running(&world.request("orders")).await;
    assert_eq!((&first.origin, first.restored.slot, &first.restored.kind), (&Origin::New, Slot(0), &ManifestKind::Start));
    let second = world.running(&world.request("orders")).await;
    assert_eq!((&second.origin, second.run.generation()), (&Origin::Resumed, Generation(2)));
    assert_eq!(world.pipeline.resolved.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_restart_rolls_forward_what_the_newest_checkpoint_prepared() {
    let world = World::new().await;
    let mut run = world.running(&world.request("orders")).await.run;
    world.checkpoint(&mut run, 10).await.unwrap();
    // The process dies after the manifest and before the commit.
    world.pipeline.failures.lock().unwrap().push_back(Error::user("killed"));
    let died = world.checkpoint(&mut run, 20).await.unwrap_err();
    assert!(matches!(died, RunError::CommitFailed { .. }), "{died}");
    assert_eq!(world.pipeline.committed(), ["out:w10"]);
    let recovered = world.running(&world.request("orders")).await;
    assert_eq!((position(&recovered.restored), recovered.decided), (20, Some(Slot(2))));
    assert_eq!(world.pipeline.committed(), ["out:w20"]);
    assert_eq!(world.pipeline.cleaned.lock().unwrap().last().unwrap(), &("orders".to_owned(), Some(2)));
    assert_eq!(recovered.run.next_slot(), Slot(4));
}

#[tokio::test]
async fn a_second_instance_stops_the_first_which_names_it() {
    let world = World::new().await;
    let request = world.request("orders");
    let mut starter = Starter::new(&*world.environment);
    let mut first = running(starter.start(&request).await.unwrap()).run;
    let mut second = world.running(&request).await.run;
    let error = world.checkpoint(&mut first, 10).await.unwrap_err();
    assert!(matches!(&error, RunError::Superseded(newer) if newer.generation == Generation(2)), "{error}");
    assert!(error.to_string().contains("process 7 on testhost"), "{error}");
    assert!(world.pipeline.committed().is_empty());
    // It does not come back by itself either, and the second one is not disturbed.
    let error = starter.start(&request).await.unwrap_err();
    assert!(error.is_superseded(), "{error}");
    world.checkpoint(&mut second, 10).await.unwrap();
}

#[tokio::test]
async fn a_recovery_in_the_process_takes_the_next_generation() {
    let world = World::new().await;
    let request = world.request("orders");
    let mut starter = Starter::new(&*world.environment);
    let mut run = running(starter.start(&request).await.unwrap()).run;
    world.checkpoint(&mut run, 10).await.unwrap();
    let again = running(starter.start(&request).await.unwrap());
    assert_eq!((again.run.generation(), position(&again.restored)), (Generation(2), 10));
}

#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_recognised_later() {
    let world = World::new().await;
    let request = world.request("orders");
    let mut starter = Starter::new(&*world.environment);
    starter.start(&request).await.unwrap();
    world.storage.inject(Rule::once(Operation::Create, "generations/2", Fault::LoseAnswer));
    world.storage.inject(Rule { times: 4, ..Rule::once(Operation::Read, "generations/2", Fault::Fail) });
    let error = starter.start(&request).await.unwrap_err();
    assert!(error.retry_helps(), "{error}");
    assert_eq!(running(starter.start(&request).await.unwrap()).run.generation(), Generation(2));
}

#[tokio::test]
async fn a_lost_answer_is_resolved_by_reading_back() {
    let world = World::new().await;
    let mut run = world.running(&world.request("orders")).await.run;
    world.storage.inject(Rule::once(Operation::Create, "chk-1/", Fault::LoseAnswer));
    assert_eq!(world.checkpoint(&mut run, 10).await.unwrap(), Slot(1));
    assert_eq!(world.checkpoint(&mut run, 20).await.unwrap(), Slot(2));
}

#[tokio::test(start_paused = true)]
async fn a_put_that_arrives_late_counts_and_the_next_slot_is_taken() {
    let world = World::new().await;
    let mut run = world.running(&world.request("orders")).await.run;
    world.storage.inject(Rule { times: 4, ..Rule::once(Operation::Create, "chk-1/", Fault::Late(Duration::from_secs(60))) });
    let draft = world.draft(&run, 10).await;
    let given_up = draft.attempt;
    assert!(matches!(run.checkpoint(&draft, &world.parties()).await, Err(RunError::NotDurable(_))));
    run.give_up(&draft);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(world.checkpoint(&mut run, 20).await.unwrap(), Slot(2));
    assert_eq!(world.pipeline.committed(), ["out:w10", "out:w20"]);
    let log = run.log().read().await.unwrap();
    assert_eq!(log.by_attempt(given_up).unwrap().slot, Slot(1));
}

#[tokio::test]
async fn a_full_storage_costs_a_checkpoint_and_no_output() {
    let world = World::new().await;
    let mut run = world.running(&world.request("orders")).await.run;
    world.storage.inject(Rule::always(Operation::Create, "chk-", Fault::Full));
    let draft = world.draft(&run, 10).await;
    let error = run.checkpoint(&draft, &world.parties()).await.unwrap_err();
    assert!(matches!(error, RunError::NotDurable(_)) && error.to_string().contains("chk-1"), "{error}");
    run.give_up(&draft);
    world.storage.heal();
    assert_eq!(world.checkpoint(&mut run, 20).await.unwrap(), Slot(1));
    assert_eq!(world.pipeline.committed(), ["out:w10", "out:w20"]);
}

#[tokio::test]
async fn a_failing_commit_is_tried_until_it_works() {
    let world = World::new().await;
    let mut run = world.running(&world.request("orders")).await.run;
    for _ in 0..7 {
        world.pipeline.failures.lock().unwrap().push_back(Error::external("the folder is read-only"));
    }
    world.checkpoint(&mut run, 10).await.unwrap();
    assert_eq!(world.pipeline.committed(), ["out:w10"]);
}

#[tokio::test]
async fn sinks_commit_in_the_order_of_the_plan() {
    let mut world = World::new().await;
    world.pipeline.sinks = vec!["b".to_owned(), "a".to_owned()];
    let mut run = world.running(&world.request("orders")).await.run;
    world.checkpoint(&mut run, 10).await.unwrap();
    assert_eq!(world.pipeline.committed(), ["b:w10", "a:w10"]);
    // A sink with output that is not known to be visible cannot just vanish from the plan.
    world.pipeline.sinks = vec!["a".to_owned()];
    let error = world.try_start(&world.request("orders")).await.unwrap_err();
    assert!(error.to_string().contains("sink b has prepared output"), "{error}");
}

#[tokio::test]
async fn damage_on_disk_is_refused_by_name_and_passed_over_on_request() {
    for damage in ["truncate", "flip"] {
        let directory = tempfile::tempdir().unwrap();
        let world = World::at(&directory.path().display().to_string()).await;
        let mut run = world.running(&world.request("orders")).await.run;
        world.checkpoint(&mut run, 10).await.unwrap();
        world.checkpoint(&mut run, 20).await.unwrap();
        let path = directory.path().join("orders/chk-2/_metadata");
        let mut bytes = std::fs::read(&path).unwrap();
        match damage {
            "truncate" => bytes.truncate(bytes.len() / 2),
            _ => bytes[200] ^= 4,
        }
        std::fs::write(&path, bytes).unwrap();
        let sentence = world.try_start(&world.request("orders")).await.unwrap_err().to_string();
        assert!(sentence.contains("orders/chk-2/_metadata") && sentence.contains("slot 1 before it is intact"), "{sentence}");
        let mut request = world.request("orders");
        request.options.older_than_damaged = true;
        let recovered = world.running(&request).await;
        assert_eq!((position(&recovered.restored), recovered.passed_over), (10, vec!["orders/chk-2/_metadata".to_owned()]));
    }
}

#[tokio::test]
async fn a_copied_log_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::at(&directory.path().join("one").display().to_string()).await;
    let mut run = world.running(&world.request("orders")).await.run;
    world.checkpoint(&mut run, 10).await.unwrap();
    let other = World::at(&directory.path().join("two").display().to_string()).await;
    other.running(&other.request("unrelated")).await;
    for path in ["orders/chk-0/_metadata", "orders/chk-1/_metadata"] {
        let bytes = world.storage.read(path).await.unwrap().unwrap();
        other.storage.write(path, vec![bytes]).await.unwrap();
    }
    let sentence = other.try_start(&other.request("orders")).await.unwrap_err().to_string();
    assert!(sentence.contains("the log was copied"), "{sentence}");
}

#[tokio::test]
async fn a_finished_job_says_so_and_takes_nothing() {
    let world = World::new().await;
    let mut run = world.running(&world.request("orders")).await.run;
    let draft = CheckpointDraft { end_of_input: true, released: true, ..world.draft(&run, 10).await };
    run.checkpoint(&draft, &world.parties()).await.unwrap();
    for _ in 0..2 {
        let started = world.try_start(&world.request("orders")).await.unwrap();
        assert!(matches!(started, Started::Finished { slot: Slot(2), .. }), "{started:?}");
    }
    assert_eq!(run.log().newest_generation().await.unwrap(), Some(Generation(1)));
}

#[tokio::test]
async fn a_job_that_died_in_its_last_commit_is_finished_by_the_next_start() {
    let world = World::new().await;
    let mut run = world.running(&world.request("orders")).await.run;
    let draft = CheckpointDraft { end_of_input: true, released: true, ..world.draft(&run, 10).await };
    world.pipeline.failures.lock().unwrap().push_back(Error::user("killed"));
    run.checkpoint(&draft, &world.parties()).await.unwrap_err();
    let started = world.try_start(&world.request("orders")).await.unwrap();
    assert!(matches!(started, Started::Finished { .. }));
    assert_eq!(world.pipeline.committed(), ["out:w10"]);
}

#[tokio::test]
async fn a_recorded_stop_survives_crashes_until_it_is_finished() {
    let world = World::new().await;
    let mut run = world.running(&world.request("orders")).await.run;
    world.checkpoint(&mut run, 10).await.unwrap();
    let stop = StopRequest { drain: true, savepoint: None };
    run.record_stop(stop.clone()).await.unwrap();
    for _ in 0..2 {
        let recovered = world.running(&world.request("orders")).await;
        assert_eq!((recovered.restored.snapshot.pending_stop.as_ref(), position(&recovered.restored)), (Some(&stop), 10));
        run = recovered.run;
    }
    let draft = CheckpointDraft { released: true, ..world.draft(&run, 10).await };
    run.checkpoint(&draft, &world.parties()).await.unwrap();
    assert_eq!(world.running(&world.request("orders")).await.restored.snapshot.pending_stop, None);
}

#[tokio::test]
async fn retention_keeps_the_newest_checkpoints_and_the_files_that_they_name() {
    let world = World::new().await;
    let mut run = world.running(&world.request("orders")).await.run;
    for position in [10, 20, 30] {
        world.checkpoint(&mut run, position).await.unwrap();
    }
    // A new run deletes nothing before it has completed a checkpoint of its own.
    let mut run = world.running(&world.request("orders")).await.run;
    assert_eq!(run.retain(1).await.unwrap(), Default::default());
    world.checkpoint(&mut run, 40).await.unwrap();
    world.storage.write("orders/shared/1/left-over", vec![Bytes::from_static(b"x")]).await.unwrap();
    world.storage.write("orders/shared/2/under-way", vec![Bytes::from_static(b"x")]).await.unwrap();

    let deleted = run.retain(2).await.unwrap();
    assert_eq!(deleted.slots, [Slot(0), Slot(1), Slot(2)]);
    assert_eq!(deleted.files.len(), 3, "{:?}", deleted.files);
    let slots: Vec<Slot> = run.log().read().await.unwrap().entries().map(|(slot, _)| slot).collect();
    assert_eq!(slots, [Slot(3), Slot(4), Slot(5)]);
    assert!(world.storage.read("orders/shared/1/left-over").await.unwrap().is_none());
    assert!(world.storage.read("orders/shared/2/under-way").await.unwrap().is_some());
    let recovered = world.running(&world.request("orders")).await;
    for file in recovered.restored.snapshot.files() {
        let content = world.storage.read(&file.path).await.unwrap().unwrap();
        assert_eq!(Checksum::of(&content), file.checksum);
    }
}

#[tokio::test]
async fn an_interrupted_retention_goes_on_later() {
    let world = World::new().await;
    let mut run = world.running(&world.request("orders")).await.run;
    for position in [10, 20, 30] {
        world.checkpoint(&mut run, position).await.unwrap();
    }
    world.storage.inject(Rule { after: 1, times: u32::MAX, ..Rule::once(Operation::Delete, "chk-", Fault::Fail) });
    run.retain(1).await.unwrap_err();
    world.storage.heal();
    assert_eq!(world.running(&world.request("orders")).await.restored.snapshot.sources, sources(30));
    assert_eq!(run.retain(1).await.unwrap().slots, [Slot(1), Slot(2)]);
}

#[tokio::test(start_paused = true)]
async fn a_superseded_run_asleep_in_its_retention_deletes_nothing_that_its_successor_needs() {
    let world = World::new().await;
    let request = world.request("orders");
    let mut first = world.running(&request).await.run;
    world.checkpoint(&mut first, 10).await.unwrap();
    // The state is what the first run uploaded, all the time.
    let unchanged = |position| {
        let operator = OperatorDraft { subtasks: BTreeMap::from([(0, SubtaskDraft::default())]), extra: Value::Null };
        let operators = BTreeMap::from([("count".to_owned(), operator)]);
        CheckpointDraft { attempt: Attempt::random(), sources: sources(position), operators, ..CheckpointDraft::default() }
    };
    let mut second = world.running(&request).await.run;
    second.checkpoint(&unchanged(20), &world.parties()).await.unwrap();
    world.storage.inject(Rule::once(Operation::Read, "_metadata", Fault::Stall(Duration::from_secs(60))));
    let asleep = async {
        second.retain(1).await.unwrap();
    };
    let successor = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut third = world.running(&request).await.run;
        third.checkpoint(&unchanged(30), &world.parties()).await.unwrap();
        third.retain(1).await.unwrap();
    };
    tokio::join!(asleep, successor);
    let restored = world.running(&request).await.restored;
    assert_eq!((position(&restored), restored.snapshot.files().count()), (30, 1));
    for file in restored.snapshot.files() {
        assert!(world.storage.read(&file.path).await.unwrap().is_some(), "{} is gone", file.path);
    }
}

#[tokio::test]
async fn a_start_decides_on_commits_that_were_not_visible_before() {
    let mut world = World::new().await;
    world.broker = Some(SlowBroker::default());
    let mut run = world.running(&world.request("orders")).await.run;
    // The marker of the new job is all that a reader sees, and retention has deleted what it names.
    for position in [10, 20] {
        world.checkpoint(&mut run, position).await.unwrap();
    }
    run.retain(1).await.unwrap();
    let recovered = world.running(&world.request("orders")).await;
    assert_eq!((recovered.decided, position(&recovered.restored)), (Some(Slot(2)), 20));
}

#[tokio::test]
async fn a_marker_that_stays_unknown_is_refused() {
    let mut world = World::new().await;
    world.broker = Some(SlowBroker::default());
    let mut run = world.running(&world.request("orders")).await.run;
    world.checkpoint(&mut run, 10).await.unwrap();
    world.broker.as_ref().unwrap().decided.lock().unwrap().clear();
    run.retain(1).await.unwrap();
    let error = world.try_start(&world.request("orders")).await.unwrap_err();
    assert!(matches!(error, StartError::Refused(Refusal::MarkerNotInLog { .. })), "{error}");
}

#[tokio::test]
async fn a_fresh_start_is_a_fork_that_stops_the_old_instance() {
    let world = World::new().await;
    let mut old = world.running(&world.request("orders")).await.run;
    world.checkpoint(&mut old, 10).await.unwrap();
    let mut request = StartRequest { from: StartFrom::Fresh, ..world.request("orders") };
    let error = world.try_start(&request).await.unwrap_err();
    assert!(matches!(error, StartError::WouldRepeat { checkpoints: 1, .. }), "{error}");
    // Refused before anything was closed: the old job goes on.
    world.checkpoint(&mut old, 20).await.unwrap();

    request.options.allow_duplicate_output = true;
    let fork = world.running(&request).await;
    assert_eq!((fork.run.job().as_str(), position(&fork.restored)), ("orders.2", 0));
    assert!(matches!(fork.origin, Origin::Forked(_)));
    let replaces = fork.restored.snapshot.replaces.as_ref().unwrap();
    assert_eq!((replaces.closed.as_ref().unwrap().slot, replaces.restored.as_ref()), (Slot(2), None));
    assert!(world.pipeline.cleaned.lock().unwrap().contains(&("orders".to_owned(), None)));
    let error = world.checkpoint(&mut old, 30).await.unwrap_err();
    assert!(matches!(&error, RunError::ForkedBy { by, .. } if by.as_str() == "orders.2"), "{error}");
    // The name leads to the newest incarnation.
    let resumed = world.running(&world.request("orders")).await;
    assert_eq!((resumed.run.job().as_str(), resumed.origin), ("orders.2", Origin::Resumed));
}

#[tokio::test]
async fn restoring_an_older_checkpoint_still_commits_what_the_replaced_one_prepared() {
    let world = World::new().await;
    let mut old = world.running(&world.request("orders")).await.run;
    world.checkpoint(&mut old, 10).await.unwrap();
    world.pipeline.failures.lock().unwrap().push_back(Error::user("killed"));
    world.checkpoint(&mut old, 20).await.unwrap_err();
    world.pipeline.committed();
    let mut request = StartRequest { from: StartFrom::Slot(Slot(1)), ..world.request("orders") };
    request.options.allow_duplicate_output = true;
    let fork = world.running(&request).await;
    assert_eq!(position(&fork.restored), 10);
    assert_eq!(world.pipeline.committed(), ["out:w20"]);
    // The state is the fork's own: the old job's folder may go.
    for object in world.storage.list("orders/shared").await.unwrap() {
        world.storage.delete(&object.path).await.unwrap();
    }
    let files: Vec<_> = fork.restored.snapshot.files().collect();
    assert_eq!(files.len(), 1);
    assert_eq!(world.storage.read(&files[0].path).await.unwrap().as_deref(), Some(&b"state at 10"[..]));
}

#[tokio::test]
async fn a_fork_whose_state_is_gone_is_refused_while_the_old_job_runs() {
    let world = World::new().await;
    let mut old = world.running(&world.request("orders")).await.run;
    world.checkpoint(&mut old, 10).await.unwrap();
    world.checkpoint(&mut old, 20).await.unwrap();
    let log = old.log().read().await.unwrap();
    let file = log.get(Slot(1)).unwrap().content.as_ref().unwrap().snapshot.files().next().unwrap().clone();
    world.storage.write(&file.path, vec![Bytes::from_static(b"state at 11")]).await.unwrap();
    let mut request = StartRequest { from: StartFrom::Slot(Slot(1)), ..world.request("orders") };
    request.options.allow_duplicate_output = true;
    let sentence = world.try_start(&request).await.unwrap_err().to_string();
    assert!(sentence.contains(&file.path) && sentence.contains("checksum"), "{sentence}");
    world.checkpoint(&mut old, 30).await.unwrap();
}

#[tokio::test]
async fn a_fork_that_dies_after_closing_is_finished_by_the_next_start() {
    let world = World::new().await;
    let mut old = world.running(&world.request("orders")).await.run;
    world.checkpoint(&mut old, 10).await.unwrap();
    world.checkpoint(&mut old, 20).await.unwrap();
    let mut request = StartRequest { from: StartFrom::Slot(Slot(1)), ..world.request("orders") };
    request.options.allow_duplicate_output = true;
    world.storage.inject(Rule::always(Operation::Create, "orders.2/chk-0", Fault::Fail));
    world.try_start(&request).await.unwrap_err();
    world.storage.heal();
    assert!(matches!(world.checkpoint(&mut old, 30).await.unwrap_err(), RunError::ForkedBy { .. }));
    // What was restored is kept by the fork, even if the old job deletes it meanwhile.
    for object in world.storage.list("orders/chk-1").await.unwrap() {
        world.storage.delete(&object.path).await.unwrap();
    }
    let error = world.try_start(&world.request("orders")).await.unwrap_err();
    assert!(matches!(error, StartError::WouldRepeat { .. }), "{error}");
    request.from = StartFrom::Latest;
    let fork = world.running(&request).await;
    assert_eq!((fork.run.job().as_str(), position(&fork.restored)), ("orders.2", 10));
}

#[tokio::test]
async fn a_job_can_start_from_another_jobs_checkpoint_which_stops_that_job() {
    let world = World::new().await;
    let mut old = world.running(&world.request("orders")).await.run;
    let slot = world.checkpoint(&mut old, 10).await.unwrap();
    let manifest = Arc::new(read_manifest(&*world.storage, &format!("orders/chk-{slot}")).await.unwrap());
    let from = StartFrom::Manifest { manifest, path: "orders/chk-1".to_owned() };
    let request = StartRequest { from, ..world.request("audit") };
    let fork = world.running(&request).await;
    assert_eq!((fork.run.job().as_str(), position(&fork.restored)), ("audit", 10));
    assert!(matches!(world.checkpoint(&mut old, 20).await.unwrap_err(), RunError::ForkedBy { .. }));
    let sentence = world.try_start(&world.request("orders")).await.unwrap_err().to_string();
    assert!(sentence.contains("replaced by audit"), "{sentence}");
    let other = StartRequest { name: JobName::new("other").unwrap(), ..request.clone() };
    let error = world.try_start(&other).await.unwrap_err();
    assert!(matches!(&error, StartError::ReplacedByAnother { by, .. } if by.as_str() == "audit"), "{error}");
    // The same command goes on after a crash.
    let again = world.running(&request).await;
    assert_eq!((again.run.job().as_str(), again.origin), ("audit", Origin::Resumed));
}

#[tokio::test]
async fn a_savepoint_from_another_storage_needs_a_word_because_nothing_stops_the_old_job() {
    let (old, new) = (World::new().await, World::new().await);
    let mut run = old.running(&old.request("orders")).await.run;
    let slot = old.checkpoint(&mut run, 10).await.unwrap();
    let manifest = Arc::new(read_manifest(&*old.storage, &format!("orders/chk-{slot}")).await.unwrap());
    let from = StartFrom::Manifest { manifest, path: "elsewhere".to_owned() };
    let files = Some(FilesAt { storage: old.storage.clone(), folder: String::new() });
    let mut request = StartRequest { from, files, ..new.request("orders") };
    let error = new.try_start(&request).await.unwrap_err();
    assert!(matches!(error, StartError::OldLogUnreachable { .. }), "{error}");
    request.options.take_over_prefix = true;
    let fork = new.running(&request).await;
    assert_eq!((fork.run.job().as_str(), position(&fork.restored)), ("orders.2", 10));
    let again = new.running(&new.request("orders")).await;
    assert_eq!((again.run.job().as_str(), again.origin), ("orders.2", Origin::Resumed));
    let file = fork.restored.snapshot.files().next().unwrap();
    assert_eq!(new.storage.read(&file.path).await.unwrap().as_deref(), Some(&b"state at 10"[..]));
}

#[tokio::test]
async fn a_discarded_job_keeps_one_entry_and_starts_again_only_afresh() {
    let world = World::new().await;
    let mut run = world.running(&world.request("orders")).await.run;
    world.checkpoint(&mut run, 10).await.unwrap();
    world.checkpoint(&mut run, 20).await.unwrap();
    run.discard().await.unwrap();
    let slots: Vec<Slot> = run.log().read().await.unwrap().entries().map(|(slot, _)| slot).collect();
    assert_eq!(slots, [Slot(3)]);
    assert!(world.storage.list("orders/shared").await.unwrap().is_empty());
    let sentence = world.try_start(&world.request("orders")).await.unwrap_err().to_string();
    assert!(sentence.contains("--fresh"), "{sentence}");
    let mut request = StartRequest { from: StartFrom::Fresh, ..world.request("orders") };
    let error = world.try_start(&request).await.unwrap_err();
    assert!(matches!(error, StartError::WouldRepeat { checkpoints: 2, .. }), "{error}");
    request.options.allow_duplicate_output = true;
    assert_eq!(world.running(&request).await.run.job().as_str(), "orders.2");
}
