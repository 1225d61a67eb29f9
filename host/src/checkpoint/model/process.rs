//! One simulated process: starts the job, processes positions, takes checkpoints, recovers in the process.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Value, json};

use super::super::commit::{Parties, Run, RunError};
use super::super::log::LogError;
use super::super::participants::{Environment, LastResource, LastResourceError, StartHooks};
use super::super::protocol::fork::StartFrom;
use super::super::protocol::retain::state_folder;
use super::super::protocol::{
    ChainChange, CheckpointDraft, Checksum, JobName, KeyGroupRange, Manifest, Marker, MarkerState, OperatorDraft, OutputGuarantee,
    PlanRevision, SourceState, SplitState, StateFile, StateFileKind, StopRequest, SubtaskDraft,
};
use super::super::recovery::{Recovered, StartError, StartOptions, StartRequest, Started, Starter};
use super::super::storage::CheckpointStorage;
use super::broker::SimBroker;
use super::sinks::SimSinks;
use super::storage::SimStorage;
use super::world::{JOB, POSITIONS, Shared, position_of, step};
use crate::Error;

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The job is finished.
    Finished,
    /// It was stopped on request.
    Stopped,
    /// Another one has its place.
    Superseded,
    /// It refused, with this sentence.
    Refused(String),
}

/// What a person asks of a process.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) from: StartFrom,
    pub(super) allow_duplicate_output: bool,
}

struct Hooks;

#[async_trait]
impl StartHooks for Hooks {
    async fn resolve_start(&self) -> Result<BTreeMap<String, SourceState>, Error> {
        step().await;
        Ok(sources(0))
    }

    fn plan(&self, restored: Option<&Manifest>) -> Result<PlanRevision, Error> {
        let plan = PlanRevision { number: 1, guarantee: OutputGuarantee::ExactlyOnce, ..PlanRevision::default() };
        Ok(restored.map_or(plan, |manifest| manifest.snapshot.plan.clone()))
    }
}

fn sources(position: u64) -> BTreeMap<String, SourceState> {
    let split = SplitState { position: json!(position), stop: Some(json!(POSITIONS)), finished: position == POSITIONS };
    BTreeMap::from([("source".to_owned(), SourceState { splits: BTreeMap::from([("0".to_owned(), split)]), extra: Value::Null })])
}

/// Why a running job ended or has to recover.
enum Broken {
    End(End),
    Recover,
}

/// Runs the job until it ends for this process.
pub(super) async fn run(world: Shared, process: usize, wish: Wish) -> End {
    let storage = Arc::new(SimStorage { world: world.clone(), process });
    let sinks = SimSinks { world: world.clone(), process };
    let has_broker = world.lock().broker.is_some();
    let broker = has_broker.then(|| SimBroker::new(world.clone(), process));
    let environment: Arc<dyn Environment> = Arc::<SimStorage>::clone(&storage);
    let request = StartRequest {
        storage: Arc::<SimStorage>::clone(&storage),
        environment,
        name: JobName::new(JOB).unwrap(),
        from: wish.from,
        files: None,
        options: StartOptions { allow_duplicate_output: wish.allow_duplicate_output, ..StartOptions::default() },
        guarantee: OutputGuarantee::ExactlyOnce,
        hooks: &Hooks,
        participants: &sinks,
        last_resource: broker.as_ref().map(|broker| broker as &dyn LastResource),
    };
    let mut starter = Starter::new(&*storage);
    loop {
        let broken = match starter.start(&request).await {
            Ok(Started::Finished { .. }) => Broken::End(End::Finished),
            Ok(Started::Running(recovered)) => {
                let task = Task { world: &world, process, storage: &storage, sinks: &sinks, broker: broker.as_ref() };
                Box::pin(task.run(*recovered)).await
            }
            Err(error) => on_start_error(&world, process, &error).await,
        };
        match broken {
            Broken::End(end) => return end,
            Broken::Recover => {
                let mut world = world.lock();
                world.counts.recoveries += 1;
                world.note(|| format!("P{process} recovers in the process"));
            }
        }
        step().await;
    }
}

async fn on_start_error(world: &Shared, process: usize, error: &StartError) -> Broken {
    world.lock().note(|| format!("P{process} start: {error}"));
    if error.is_superseded() {
        return Broken::End(End::Superseded);
    }
    let fenced = matches!(error, StartError::LastResource(LastResourceError::Fenced(_)));
    if error.retry_helps() || fenced {
        return Broken::Recover;
    }
    if matches!(error, StartError::RollForward(RunError::CommitFailed { .. })) {
        world.lock().violate(format!("P{process}: prepared work of a decided checkpoint is missing: {error}"));
    }
    Broken::End(End::Refused(error.to_string()))
}

struct Task<'a> {
    world: &'a Shared,
    process: usize,
    storage: &'a SimStorage,
    sinks: &'a SimSinks,
    broker: Option<&'a SimBroker>,
}

impl Task<'_> {
    async fn run(&self, recovered: Recovered) -> Broken {
        let mut run = recovered.run;
        let mut position = position_of(&recovered.restored);
        self.check_restored(&run, &recovered.restored, position);
        if let Err(broken) = self.restore_state(&run, &recovered.restored).await {
            return broken;
        }
        if recovered.restored.snapshot.pending_stop.is_some() {
            self.world.lock().note(|| format!("P{} only finishes a stop", self.process));
            return self.last_checkpoint(&mut run, position, position).await;
        }
        let mut begun = position;
        loop {
            let processed = position;
            if let Err(broken) = self.process(&run, &mut position).await {
                return broken;
            }
            let stop = position < POSITIONS && self.world.lock().fault(12, |budget| &mut budget.stop);
            if stop {
                return self.stop(&mut run, begun, position).await;
            }
            if position == POSITIONS {
                return self.last_checkpoint(&mut run, begun, position).await;
            }
            let due = position > processed && self.world.lock().dice.one_in(2);
            if !due {
                continue;
            }
            match self.checkpoint(&mut run, begun, position, false, false).await {
                Ok(()) => begun = position,
                Err(broken) => return broken,
            }
        }
    }

    /// The state that a run restores must agree with what is visible, unless it was superseded meanwhile.
    fn check_restored(&self, run: &Run, restored: &Manifest, position: u64) {
        let mut world = self.world.lock();
        world.note(|| format!("P{} runs as generation {} of {} from position {position}", self.process, run.generation(), run.job()));
        if world.newest_generation(run.job()) != Some(run.generation()) || world.is_closed(run.job()) {
            return;
        }
        if world.stopping.contains(run.job()) && restored.snapshot.pending_stop.is_none() {
            world.violate(format!("P{}: goes on although a stop was recorded", self.process));
        }
        for channel in world.channels() {
            let shown = world.shown_until(channel, run.job());
            if shown != position {
                world.violate(format!("P{}: restores position {position}, but {channel} shows up to {shown}", self.process));
            }
        }
    }

    async fn restore_state(&self, run: &Run, restored: &Manifest) -> Result<(), Broken> {
        let mut state: Vec<u64> = Vec::new();
        for file in restored.snapshot.files() {
            let content = self.storage.read(&file.path).await.map_err(|_| Broken::Recover)?;
            let Some(content) = content.filter(|content| Checksum::of(content) == file.checksum) else {
                let mut world = self.world.lock();
                if world.newest_generation(run.job()) == Some(run.generation()) && !world.is_closed(run.job()) {
                    world.violate(format!("P{}: the state file {} is missing", self.process, file.path));
                }
                return Err(Broken::Recover);
            };
            if file.kind == StateFileKind::Base {
                state.clear();
            }
            state.extend(serde_json::from_slice::<Vec<u64>>(&content).unwrap());
        }
        let expected: Vec<u64> = (0..position_of(restored)).collect();
        if state != expected {
            self.world.lock().violate(format!("P{}: restores the state {state:?} with position {}", self.process, expected.len()));
        }
        Ok(())
    }

    async fn process(&self, run: &Run, position: &mut u64) -> Result<(), Broken> {
        step().await;
        if *position == POSITIONS {
            return Ok(());
        }
        self.world.lock().note(|| format!("P{} processes {position}", self.process));
        if let Some(broker) = self.broker {
            let sent = broker.send(run.job(), *position).await;
            self.sent(run, sent).await?;
        }
        *position += 1;
        Ok(())
    }

    /// A fenced producer: was the run superseded, or has it to recover?
    async fn sent(&self, run: &Run, sent: Result<(), LastResourceError>) -> Result<(), Broken> {
        match (sent, self.broker) {
            (Ok(()), _) => Ok(()),
            (Err(LastResourceError::Fenced(reason)), Some(broker)) => match run.fenced(reason, broker).await {
                Ok(error) | Err(error) => Err(self.on_run_error(run, &error)),
            },
            (Err(_), _) => Err(Broken::Recover),
        }
    }

    fn on_run_error(&self, run: &Run, error: &RunError) -> Broken {
        let mut world = self.world.lock();
        world.note(|| format!("P{} run: {error}", self.process));
        match error {
            RunError::Superseded(_) | RunError::ForkedBy { .. } => Broken::End(End::Superseded),
            RunError::CommitFailed { .. } => {
                if world.newest_generation(run.job()) == Some(run.generation()) && !world.is_closed(run.job()) {
                    world.violate(format!("P{}: prepared work of a durable checkpoint is missing: {error}", self.process));
                }
                Broken::Recover
            }
            _ => Broken::Recover,
        }
    }

    async fn stop(&self, run: &mut Run, begun: u64, position: u64) -> Broken {
        self.world.lock().counts.stops += 1;
        loop {
            match run.record_stop(StopRequest { drain: false, savepoint: None }).await {
                Ok(()) => {
                    self.world.lock().stopping.insert(run.job().clone());
                    break;
                }
                Err(RunError::NotDurable(_)) => step().await,
                Err(error) => return self.on_run_error(run, &error),
            }
        }
        self.last_checkpoint(run, begun, position).await
    }

    /// The last checkpoint of a run: tried until it is completed.
    async fn last_checkpoint(&self, run: &mut Run, begun: u64, position: u64) -> Broken {
        let finished = position == POSITIONS;
        match self.checkpoint(run, begun, position, finished, true).await {
            Ok(()) => Broken::End(if finished { End::Finished } else { End::Stopped }),
            Err(broken) => broken,
        }
    }

    async fn checkpoint(&self, run: &mut Run, begun: u64, position: u64, end_of_input: bool, released: bool) -> Result<(), Broken> {
        let draft = self.draft(run, begun, position, end_of_input, released).await?;
        // Given up before its manifest, and with a broker before the producers are switched.
        if !released && self.world.lock().fault(4, |budget| &mut budget.give_up) {
            self.give_up(run, &draft);
            return Ok(());
        }
        if let Some(broker) = self.broker {
            let state = if released { MarkerState::Released } else { MarkerState::Running };
            let marker = Marker {
                job: run.job().clone(),
                storage: run.log().storage_id(),
                generation: run.generation(),
                checkpoint: run.next_slot(),
                attempt: draft.attempt,
                state,
            };
            let sent = broker.end_epoch(marker).await;
            self.sent(run, sent).await?;
        }
        let parties = Parties { participants: self.sinks, last_resource: self.broker.map(|broker| broker as &dyn LastResource) };
        loop {
            match run.checkpoint(&draft, &parties).await {
                Ok(completed) => {
                    self.world.lock().note(|| format!("P{} completes checkpoint {}", self.process, completed.slot));
                    self.retain(run).await;
                    return Ok(());
                }
                Err(RunError::NotDurable(LogError::Storage(_))) => {
                    let give_up = self.broker.is_none() && !released && self.world.lock().dice.one_in(2);
                    if give_up {
                        self.give_up(run, &draft);
                        return Ok(());
                    }
                    step().await;
                }
                Err(error) => return Err(self.on_run_error(run, &error)),
            }
        }
    }

    fn give_up(&self, run: &mut Run, draft: &CheckpointDraft) {
        let mut world = self.world.lock();
        world.counts.given_up += 1;
        world.note(|| format!("P{} gives checkpoint {} up", self.process, draft.attempt));
        run.give_up(draft);
    }

    async fn retain(&self, run: &Run) {
        let retained = {
            let mut world = self.world.lock();
            if world.dice.one_in(3) {
                return;
            }
            1 + world.dice.below(2) as usize
        };
        if let Err(error) = run.retain(retained).await {
            self.world.lock().note(|| format!("P{} retention: {error}", self.process));
        }
    }

    async fn draft(&self, run: &Run, begun: u64, position: u64, end_of_input: bool, released: bool) -> Result<CheckpointDraft, Broken> {
        let positions: Vec<u64> = (begun..position).collect();
        let prepared = if positions.is_empty() { Vec::new() } else { self.sinks.prepare(run.job(), run.generation(), &positions).await };
        let chain = self.export(run, &positions, position).await?;
        let subtask = SubtaskDraft { chain, extra: Value::Null };
        let operator = OperatorDraft { subtasks: BTreeMap::from([(0, subtask)]), extra: Value::Null };
        Ok(CheckpointDraft {
            attempt: self.storage.attempt(),
            sources: sources(position),
            operators: BTreeMap::from([("operator".to_owned(), operator)]),
            prepared,
            transactional_ids: self.broker.map(LastResource::ids).unwrap_or_default(),
            end_of_input,
            released,
            ..CheckpointDraft::default()
        })
    }

    /// Uploads what changed, now and then everything.
    async fn export(&self, run: &Run, changed: &[u64], position: u64) -> Result<ChainChange, Broken> {
        let (number, whole) = {
            let mut world = self.world.lock();
            (world.fresh(), world.dice.one_in(3))
        };
        if changed.is_empty() && !whole {
            return Ok(ChainChange::Unchanged);
        }
        let entries = if whole { (0..position).collect() } else { changed.to_vec() };
        let content = Bytes::from(serde_json::to_vec(&entries).unwrap());
        let file = StateFile {
            path: format!("{}/{number}", state_folder(run.job(), run.generation())),
            kind: if whole { StateFileKind::Base } else { StateFileKind::Delta },
            bytes: content.len() as u64,
            checksum: Checksum::of(&content),
            key_groups: KeyGroupRange { first: 0, last: 127 },
        };
        while self.storage.write(&file.path, vec![content.clone()]).await.is_err() {}
        Ok(ChainChange::Append(file))
    }
}
