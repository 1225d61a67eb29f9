//! The supervisor of a job: starts it where it stands, runs it, and restarts it after a failure, until it ends.

use super::build;
use super::coordinator::{Coordinator, JobCommand, Progress, RunEnd, SourceTask, StopAsked, TaskHandle};
use super::open::{OpenOperator, RunContext, TaskPlan};
use super::parties::{PlanParties, resolve};
use super::restart::{Restarts, Verdict};
use super::status::{JobState, StatusWriter};
use super::task::Task;
use super::upload::{Event, StateFolder, Uploader};
use crate::Error;
use crate::checkpoint::commit::{Parties, Run, RunError};
use crate::checkpoint::participants::{Environment, LastResourceError, StartHooks, System};
use crate::checkpoint::protocol::fork::StartFrom;
use crate::checkpoint::protocol::{Attempt, JobName, JobSnapshot, Manifest};
use crate::checkpoint::recovery::{FilesAt, Recovered, StartError, StartOptions, StartRequest, Started, Starter};
use crate::checkpoint::storage::CheckpointStorage;
use crate::error::chain_of;
use crate::pipeline::plan::{NodeKind, Plan};
use crate::record::SplitTable;
use crate::sink::{RunIdentity, TransactionContext, Transactions};
use crate::telemetry::JobMetrics;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Reports and commands that wait at most; each task has few under way.
const QUEUE: usize = 64;

/// Where a job starts, and what a person allows.
#[derive(Clone, Debug, Default)]
pub struct StartChoice {
    /// From which checkpoint.
    pub from: StartFrom,
    /// Where the state files of that checkpoint are, if not in the job's own storage.
    pub files: Option<FilesAt>,
    /// What is allowed that could repeat or lose output.
    pub options: StartOptions,
    /// Whether state that no operator claims may be left behind.
    pub ignore_unclaimed_state: bool,
    /// The savepoint that belongs to the job and is deleted once the job has completed a checkpoint of its own.
    pub claim: Option<Claim>,
}

/// A savepoint that a job may delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its folder.
    pub path: String,
    /// The checkpoint that it was made of.
    pub attempt: Attempt,
    /// Where the job stood then.
    pub checkpoint: Attempt,
}

/// How a job ended.
#[derive(Debug)]
pub enum JobEnd {
    /// All inputs have ended, and all output is visible.
    Finished,
    /// The job had finished before: nothing was left to do.
    AlreadyFinished {
        /// The incarnation.
        job: String,
        /// Its last checkpoint.
        checkpoint: u64,
    },
    /// Stopped with a last checkpoint, as asked; it can go on from there.
    Stopped,
    /// Cancelled, as asked.
    Cancelled,
    /// Another instance of the job took over.
    Superseded(String),
    /// It failed for good.
    Failed(Error),
}

/// The supervisor of one job.
pub(crate) struct Supervisor {
    pub(crate) plan: Arc<Plan>,
    pub(crate) operators: Arc<dyn OpenOperator>,
    /// Where checkpoints are kept; none without checkpointing.
    pub(crate) storage: Option<Arc<dyn CheckpointStorage>>,
    pub(crate) choice: StartChoice,
    pub(crate) metrics: Arc<JobMetrics>,
    pub(crate) dropped: Arc<AtomicU64>,
    pub(crate) status: Arc<StatusWriter>,
    /// Whether this process has had a run of the job.
    pub(crate) has_begun: AtomicBool,
    pub(crate) stop_asked: StopAsked,
}

/// Where a run begins.
struct Beginning {
    run: Option<Run>,
    restored: Option<Arc<Manifest>>,
    snapshot: JobSnapshot,
}

impl Supervisor {
    /// Runs the job until it ends; `control` is what is asked of it meanwhile.
    pub(crate) async fn run(self, mut control: mpsc::Receiver<JobCommand>) -> JobEnd {
        let end = self.supervise(&mut control).await;
        self.status.state(match &end {
            JobEnd::Finished | JobEnd::AlreadyFinished { .. } => JobState::Finished,
            JobEnd::Stopped => JobState::Suspended,
            JobEnd::Cancelled => JobState::Canceled,
            JobEnd::Superseded(_) | JobEnd::Failed(_) => JobState::Failed,
        });
        if let JobEnd::Superseded(message) = &end {
            self.status.failure(message, false);
        }
        if let JobEnd::Failed(error) = &end {
            self.status.failure(&error.chain(), false);
        }
        end
    }

    async fn supervise(&self, control: &mut mpsc::Receiver<JobCommand>) -> JobEnd {
        let mut restarts = Restarts::new(self.plan.settings.restart);
        let (mut restarted, mut isolation_steps) = (0, 0);
        let mut starter = Starter::new(&System);
        // A broker that does not answer is waited for; whoever stops the job does not wait with it.
        let transactions = tokio::select! {
            biased;
            opened = self.open_transactions() => match opened {
                Ok(transactions) => transactions,
                Err(error) => return JobEnd::Failed(error),
            },
            end = ended_by_command(control, &self.stop_asked, "the job is starting") => return end,
        };
        let parties = PlanParties::new(
            Arc::clone(&self.plan),
            Arc::clone(&self.status),
            self.choice.ignore_unclaimed_state,
            transactions,
            Arc::clone(&self.operators),
        );
        loop {
            let attempt = self.start_and_run(&parties, &mut starter, restarted, control).await;
            if let Some(transactions) = parties.transactions() {
                transactions.end().await;
            }
            let failure = match attempt {
                Ok(end) => return end,
                Err(failure) => failure,
            };
            if !failure.retry_helps() {
                return JobEnd::Failed(failure);
            }
            let steps = self.operators.isolation_steps();
            if steps > isolation_steps {
                isolation_steps = steps;
                restarted += 1;
                tracing::warn!(error = %failure.chain(), restarted, "the job is restarted to find the record that an operator cannot process");
                self.status.failure(&failure.chain(), true);
                continue;
            }
            let delay = match restarts.failed(Instant::now(), rand::random_range(-1.0..=1.0)) {
                Verdict::RestartAfter(delay) => delay,
                Verdict::Fail(rule) => {
                    tracing::error!(rule, "the job is not restarted");
                    return JobEnd::Failed(failure);
                }
            };
            restarted += 1;
            tracing::warn!(error = %failure.chain(), ?delay, restarted, "the job has failed and is restarted");
            self.status.failure(&failure.chain(), true);
            if let Some(end) = pause(delay, control, &self.stop_asked).await {
                return end;
            }
        }
    }

    /// Opens what the exactly-once sinks that hold the decision in their transactions write through, if there are such.
    async fn open_transactions(&self) -> Result<Option<Arc<dyn Transactions>>, Error> {
        let Some(checkpointing) = &self.plan.settings.checkpointing else { return Ok(None) };
        let Some((node, sink)) = self.plan.transactional_sinks().next() else { return Ok(None) };
        let context =
            TransactionContext { job: self.plan.name.clone(), checkpointing: checkpointing.clone(), metrics: Arc::clone(&self.metrics) };
        let opened = sink.open(context).await;
        opened.map(Some).map_err(|error| error.within(format!("sink {}", node.uid)))
    }

    /// Starts the job where it stands and runs it once. An error is a failure after which it may be restarted.
    async fn start_and_run(
        &self,
        parties: &PlanParties,
        starter: &mut Starter,
        restarted: u64,
        control: &mut mpsc::Receiver<JobCommand>,
    ) -> Result<JobEnd, Error> {
        match self.begin_unless_ended(parties, starter, control).await? {
            Ok(beginning) => self.run_once(beginning, parties, restarted, control).await,
            Err(end) => Ok(end),
        }
    }

    /// Finds out where the job stands, as [`begin`](Self::begin) does. That may take as long as a commit is tried again, so a job that is
    /// stopped or cancelled meanwhile ends where it stands: to break off here is like a crash, which the next start repairs.
    async fn begin_unless_ended(
        &self,
        parties: &PlanParties,
        starter: &mut Starter,
        control: &mut mpsc::Receiver<JobCommand>,
    ) -> Result<Result<Beginning, JobEnd>, Error> {
        tokio::select! {
            biased;
            begun = self.begin(parties, starter) => begun,
            end = ended_by_command(control, &self.stop_asked, "the job is starting") => Ok(Err(end)),
        }
    }

    /// Finds out where the job stands. The inner error is an end, the outer one a failure that may be tried again.
    async fn begin(&self, parties: &PlanParties, starter: &mut Starter) -> Result<Result<Beginning, JobEnd>, Error> {
        for (node, sink) in self.plan.sinks() {
            sink.sink.verify().await.map_err(|error| error.within(format!("sink {}", node.uid)))?;
        }
        let Some(storage) = &self.storage else {
            return Ok(Ok(self.begin_without_checkpoints(parties).await?));
        };
        let name = JobName::new(self.plan.name.clone()).map_err(|error| Error::user(error.to_string()))?;
        let request = StartRequest {
            storage: Arc::clone(storage),
            environment: Arc::new(System),
            name,
            from: self.choice.from.clone(),
            files: self.choice.files.clone(),
            // A stop is finished through the failures of this process. Whoever starts another one wants the job to run.
            options: StartOptions { withdraw_stop: !self.has_begun.load(Ordering::Relaxed), ..self.choice.options },
            guarantee: parties.guarantee(),
            hooks: parties,
            participants: parties,
            last_resource: parties.last_resource(),
        };
        match starter.start(&request).await {
            Ok(Started::Running(recovered)) => {
                self.has_begun.store(true, Ordering::Relaxed);
                Ok(Ok(self.recovered(*recovered)))
            }
            Ok(Started::Finished { job, slot }) => {
                self.save_finished(storage, &job, slot).await?;
                Ok(Err(JobEnd::AlreadyFinished { job: job.to_string(), checkpoint: slot.0 }))
            }
            Err(error) if error.is_superseded() => Ok(Err(JobEnd::Superseded(error.to_string()))),
            Err(error) => Err(start_failure(&error)),
        }
    }

    fn recovered(&self, recovered: Recovered) -> Beginning {
        let Recovered { run, restored, decided, passed_over, .. } = recovered;
        for damaged in passed_over {
            tracing::warn!(damaged, "a damaged manifest was passed over");
        }
        let job = run.job().to_string();
        self.status.run(Some(job.clone()), run.generation().0);
        if let Some(slot) = decided {
            self.status.restored(slot.0, format!("{job}/chk-{slot}"));
            tracing::info!(job, checkpoint = slot.0, generation = run.generation().0, "the job goes on from a checkpoint");
        } else {
            tracing::info!(job, generation = run.generation().0, "the job begins");
        }
        Beginning { snapshot: run.line().last().clone(), run: Some(run), restored: Some(restored) }
    }

    /// Without checkpoints nothing is remembered: every run begins at the beginning.
    async fn begin_without_checkpoints(&self, parties: &PlanParties) -> Result<Beginning, Error> {
        let snapshot = JobSnapshot { sources: parties.resolve_start().await?, ..JobSnapshot::default() };
        Ok(Beginning { run: None, restored: None, snapshot })
    }

    /// Runs the job once. An error is a failure after which the job may be restarted.
    async fn run_once(
        &self,
        mut beginning: Beginning,
        parties: &PlanParties,
        restarted: u64,
        control: &mut mpsc::Receiver<JobCommand>,
    ) -> Result<JobEnd, Error> {
        tokio::select! {
            biased;
            begun = self.prepare_run(&mut beginning, parties) => begun?,
            end = ended_by_command(control, &self.stop_asked, "the job is starting") => return Ok(end),
        }
        let split_table = SplitTable::default();
        let tasks = build::tasks(&self.plan, &beginning.snapshot, &self.metrics, &split_table, &self.dropped)?;
        let context = self.context(&beginning, restarted, split_table, parties);
        let recorded = beginning.restored.as_ref().and_then(|restored| restored.snapshot.pending_stop.clone());
        let stop = recorded.or_else(|| self.stop_asked.get().cloned());
        let claimed = self.claimed(beginning.restored.as_deref());
        let mut coordinator = self.coordinator(&mut beginning, parties, tasks, &context, control);
        coordinator.progress.claimed = claimed;
        if let Some(request) = stop {
            tracing::info!("a stop was asked for before the job ended: it is finished now");
            coordinator.progress.stop(request);
        }
        match coordinator.run().await {
            RunEnd::Finished => Ok(JobEnd::Finished),
            RunEnd::Stopped => Ok(JobEnd::Stopped),
            RunEnd::Cancelled => Ok(JobEnd::Cancelled),
            RunEnd::Failed(error) => Err(error),
            RunEnd::Over(error) => match error {
                RunError::Superseded(_) | RunError::ForkedBy { .. } => Ok(JobEnd::Superseded(error.to_string())),
                RunError::LastResource(LastResourceError::Refused(sentence)) => Err(Error::user(sentence)),
                RunError::CommitFailed { .. } | RunError::UnknownSink { .. } => Err(Error::external(chain_of(&error)).with_retry(false)),
                RunError::Log(error) => Err(Error::external(chain_of(&error)).with_retry(error.retry_helps())),
                RunError::Recover(_) | RunError::NotDurable(_) | RunError::LastResource(_) => Err(Error::external(chain_of(&error))),
            },
        }
    }

    /// What a run asks of the outside before its tasks begin.
    async fn prepare_run(&self, beginning: &mut Beginning, parties: &PlanParties) -> Result<(), Error> {
        self.resolve_new_sources(beginning).await?;
        if let (Some(transactions), Some(run)) = (parties.transactions(), &beginning.run) {
            let writers = self.plan.sinks().filter(|(_, sink)| sink.writes_transactions());
            let writers = writers.map(|(node, _)| usize::from(node.parallelism)).sum();
            let identity = RunIdentity { job: run.job().clone(), storage: run.log().storage_id(), generation: run.generation() };
            transactions.begin(identity, writers).await?;
        }
        Ok(())
    }

    /// A source that the restored checkpoint does not know begins now.
    async fn resolve_new_sources(&self, beginning: &mut Beginning) -> Result<(), Error> {
        for (node, source) in self.plan.sources() {
            if !beginning.snapshot.sources.contains_key(&*node.uid) {
                let state = resolve(&node.uid, &*source.source).await?;
                beginning.snapshot.sources.insert(node.uid.to_string(), state);
            }
        }
        Ok(())
    }

    fn context(&self, beginning: &Beginning, restarts: u64, split_table: SplitTable, parties: &PlanParties) -> RunContext {
        RunContext {
            transactions: parties.transactions().cloned(),
            job: beginning.run.as_ref().map_or_else(|| self.plan.name.clone(), |run| run.job().to_string()),
            // Without checkpoints there are no generations: names of files are kept apart by the time of the start.
            generation: beginning.run.as_ref().map_or_else(|| System.now_millis(), |run| run.generation().0),
            restarts,
            max_parallelism: self.plan.max_parallelism,
            limits: self.plan.settings.batch,
            split_table,
            storage: self.storage.clone(),
            operators: Arc::clone(&self.operators),
        }
    }

    fn coordinator<'a>(
        &'a self,
        beginning: &mut Beginning,
        parties: &'a PlanParties,
        tasks: Vec<TaskPlan>,
        context: &RunContext,
        control: &'a mut mpsc::Receiver<JobCommand>,
    ) -> Coordinator<'a> {
        let state_folder = beginning.run.as_ref().map(|run| StateFolder {
            storage: Arc::clone(run.log().storage()),
            path: format!("{}/shared/{}", run.job(), run.generation()),
            max_parallelism: self.plan.max_parallelism,
        });
        let (event_sender, events) = mpsc::channel(QUEUE * tasks.len().max(1));
        let mut running = JoinSet::new();
        let progress = Progress::new(tasks.len());
        let handles = tasks.into_iter().enumerate();
        let handles = handles.map(|(id, task)| spawn(id, task, context, state_folder.as_ref(), &event_sender, &mut running)).collect();
        let known = |(uid, state): (&String, &crate::checkpoint::protocol::SourceState)| {
            (Arc::from(uid.as_str()), state.splits.keys().cloned().collect())
        };
        let known_splits: BTreeMap<Arc<str>, _> = beginning.snapshot.sources.iter().map(known).collect();
        Coordinator {
            settings: self.plan.settings.checkpointing.clone(),
            run: beginning.run.take(),
            parties: Parties { participants: parties, last_resource: parties.last_resource() },
            transactions: parties.transactions().map(|transactions| &**transactions),
            tasks: handles,
            running,
            events,
            event_sender,
            control,
            status: &self.status,
            stop_asked: &self.stop_asked,
            state_folder,
            known_splits,
            progress,
        }
    }
}

/// Waits before a restart; a job that is stopped or cancelled meanwhile ends where it stands.
async fn pause(delay: Duration, control: &mut mpsc::Receiver<JobCommand>, stop_asked: &StopAsked) -> Option<JobEnd> {
    tokio::time::timeout(delay, ended_by_command(control, stop_asked, "the job waits for its restart")).await.ok()
}

/// Waits until a job that does not run is stopped or cancelled; never ends when nobody can ask any more. A stop that is to drain the job or to
/// leave a savepoint has to wait until the job runs.
async fn ended_by_command(control: &mut mpsc::Receiver<JobCommand>, stop_asked: &StopAsked, state: &str) -> JobEnd {
    loop {
        match control.recv().await {
            Some(JobCommand::Cancel) => return JobEnd::Cancelled,
            Some(JobCommand::Stop(request)) if request.drain || request.savepoint.is_some() => {
                stop_asked.get_or_init(|| request);
            }
            Some(JobCommand::Stop(_)) => return JobEnd::Stopped,
            Some(JobCommand::Checkpoint(answer)) => {
                let _gone = answer.send(Err(state.to_owned()));
            }
            Some(JobCommand::Savepoint(_, answer)) => {
                let _gone = answer.send(Err(state.to_owned()));
            }
            None => std::future::pending().await,
        }
    }
}

/// Spawns a task and its uploader.
fn spawn(
    id: usize,
    plan: TaskPlan,
    context: &RunContext,
    folder: Option<&StateFolder>,
    events: &mpsc::Sender<Event>,
    running: &mut JoinSet<Result<(), Error>>,
) -> TaskHandle {
    let (command_sender, commands) = mpsc::channel(QUEUE);
    let (reports, report_receiver) = mpsc::channel(QUEUE);
    let head = &plan.nodes[0].node;
    let source = match &head.kind {
        NodeKind::Source(source) => Some(SourceTask { uid: Arc::clone(&head.uid), source: Arc::clone(&source.source) }),
        _ => None,
    };
    let subtask = u32::from(plan.subtask);
    let uploader = Uploader { task: id, subtask, folder: folder.cloned(), reports: report_receiver, events: events.clone() };
    tokio::spawn(uploader.run());
    let (context, events) = (context.clone(), events.clone());
    running.spawn(async move {
        let (chain, head) = plan.open(&context).await?;
        if events.send(Event::Ready).await.is_err() {
            return Ok(());
        }
        Task { subtask, chain, commands, reports }.run(head).await
    });
    TaskHandle { commands: command_sender, source }
}

fn start_failure(error: &StartError) -> Error {
    Error::external(chain_of(error)).with_retry(error.retry_helps())
}
