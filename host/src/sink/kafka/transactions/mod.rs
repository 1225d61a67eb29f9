//! The transactions of a job: what its exactly-once Kafka sinks write through, all of them and all their subtasks together.
//!
//! Two producers with stable ids take turns: what lies between two barriers is one transaction of one of them. When every writer has met
//! barrier N, all is delivered and the marker N is sent into the same transaction; then everybody goes on with the other producer, while
//! checkpoint N is stored and this transaction is committed. The marker and the output become visible together, so the newest committed
//! marker *is* the decision: what did not commit is replayed.
//!
//! - [`epochs`]: who waits for whom, without I/O;
//! - [`owner`]: the thread that makes the calls of one producer;
//! - [`marker`]: the topic of markers;
//! - [`loss`]: what the client's errors mean;
//! - [`settle`]: waits until readers see what was committed.

mod epochs;
mod loss;
pub(in crate::sink::kafka) mod marker;
mod owner;
mod settle;
mod watch;

pub(super) use loss::is_refused;

use super::options::{Settings, TRANSACTION_TIMEOUT, least_timeout, marker_topic, prefix_fault, transactional_ids};
use crate::Error;
use crate::checkpoint::failpoints::crash_point;
use crate::checkpoint::participants::{LastResource, LastResourceError};
use crate::checkpoint::protocol::{Attempt, Marker, MarkerState, Slot};
use crate::kafka::producer::{Failure, Producer, Undelivered};
use crate::record::SplitTable;
use crate::sink::{CheckpointBarrier, GiveUp, RunIdentity, TransactionContext, Transactions};
use async_trait::async_trait;
use epochs::{Arrival, Epochs, Loss, Outcome};
use futures::future::{join_all, try_join_all};
use marker::Markers;
use owner::Owner;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// What is kept of a transaction's time for its commit: storing a checkpoint is tried until then.
const COMMIT_RESERVE: Duration = Duration::from_secs(5);

/// The transactions of a job. Cheap to clone; all clones are the same transactions.
#[derive(Clone, Debug)]
pub(super) struct KafkaTransactions(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: Settings,
    interval: Duration,
    /// How long a transaction may be open.
    timeout: Duration,
    prefix: String,
    markers: Markers,
    /// The smallest limit of the topics that are known beforehand.
    smallest_limit: AtomicUsize,
    state: Mutex<State>,
    /// Whoever waits for something of the state looks again.
    changed: tokio::sync::watch::Sender<()>,
    committed: AtomicU64,
    aborted: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Counts how often producers were made: what those of before report does not matter any more.
    taken: u64,
    owners: Option<[Arc<Owner>; 2]>,
    /// The producer of the next transaction, outside of a run.
    next: usize,
    run: Option<Run>,
}

#[derive(Debug)]
struct Run {
    identity: RunIdentity,
    epochs: Epochs,
    split_table: Option<SplitTable>,
    _watch: watch::AgeWatch,
}

impl KafkaTransactions {
    /// Transactions of a job; nothing is connected yet.
    ///
    /// # Errors
    /// A prefix that cannot be used, or options that the client refuses.
    pub(super) fn new(settings: &Settings, context: &TransactionContext) -> Result<Self, Error> {
        let prefix = settings.prefix.clone().unwrap_or_else(|| context.job.clone());
        if let Some(message) = prefix_fault(&prefix) {
            return Err(Error::user(format!("the job's name as transactional-id-prefix: {message}")));
        }
        let interval = context.checkpointing.interval;
        let inner = Arc::new(Inner {
            interval,
            timeout: settings.transaction_timeout(interval),
            markers: Markers::new(&settings.asking(), &prefix)?,
            settings: settings.clone(),
            prefix,
            smallest_limit: AtomicUsize::new(usize::MAX),
            state: Mutex::default(),
            changed: tokio::sync::watch::Sender::new(()),
            committed: AtomicU64::new(0),
            aborted: AtomicU64::new(0),
        });
        watch::report(&inner, &context.metrics);
        Ok(Self(inner))
    }

    /// Looks whether the brokers allow what the job needs.
    ///
    /// # Errors
    /// A transaction timeout above the brokers' maximum, with both numbers; a topic of markers that loses them; nobody answers.
    pub(super) async fn verify(&self) -> Result<(), Error> {
        const MAXIMUM: &str = "transaction.max.timeout.ms";
        let inner = &self.0;
        let (config, checked) = tokio::join!(inner.markers.cluster().broker_config(), inner.markers.check());
        let maximum = match config {
            Ok(config) => config.get(MAXIMUM).and_then(|maximum| maximum.parse().ok()).map(Duration::from_millis),
            Err(error) if error.retry_helps() => return Err(error),
            // The brokers say it themselves when the transactional ids are taken over.
            Err(error) => {
                tracing::debug!(error = %error.chain(), "the brokers' longest transaction timeout cannot be read");
                None
            }
        };
        if let Some(maximum) = maximum
            && maximum < inner.timeout
        {
            return Err(Error::user(format!(
                "{TRANSACTION_TIMEOUT} is {} ms, and the brokers allow {} ms at most ({MAXIMUM}): set it to between {} ms, which a checkpoint \
                 every {} ms needs, and that, or raise {MAXIMUM}",
                inner.timeout.as_millis(),
                maximum.as_millis(),
                least_timeout(inner.interval).as_millis(),
                inner.interval.as_millis()
            )));
        }
        checked
    }

    /// A topic takes batches of so many bytes: producers that are made from now on make none that are larger.
    pub(super) fn limit_batches(&self, limit: usize) {
        self.0.smallest_limit.fetch_min(limit, Ordering::Relaxed);
    }

    /// How large batches are at most.
    pub(super) fn batch_size(&self) -> usize {
        self.0.settings.batch_size(self.0.smallest_limit.load(Ordering::Relaxed))
    }

    /// The producer that records go to now.
    ///
    /// # Errors
    /// The transactions are lost: the job recovers.
    pub(super) fn producer(&self) -> Result<(usize, Arc<Producer>), Error> {
        let state = self.0.state();
        let run = state.run.as_ref().ok_or_else(|| Error::internal("a record is written outside of a run"))?;
        let current = run.epochs.current().map_err(error_of)?;
        let owner = state.owner(current).map_err(|error| Error::external(error.to_string()))?;
        Ok((current, Arc::clone(owner.producer())))
    }

    /// The error of a record that the client did not take.
    pub(super) fn lost(&self, record: &Undelivered, producer: &Producer) -> Error {
        let loss = loss::of_producer(producer).unwrap_or_else(|| self.0.loss_of(record));
        error_of(self.0.lose(loss))
    }

    /// The table that turns origins into words: a record that is not delivered is named.
    pub(super) fn name_records_by(&self, split_table: &SplitTable) {
        if let Some(run) = &mut self.0.state().run {
            run.split_table.get_or_insert_with(|| split_table.clone());
        }
    }

    /// A writer has met the barrier of a checkpoint: waits until every writer has, and its epoch has ended, or until it was given up.
    ///
    /// # Errors
    /// The transactions are lost: the job recovers.
    pub(super) async fn meet(&self, barrier: &CheckpointBarrier) -> Result<(), Error> {
        let inner = &self.0;
        let mut changed = inner.changed.subscribe();
        let arrival = inner.in_run(|run| run.epochs.arrive(barrier.attempt, Instant::now())).map_err(error_of)?;
        inner.notify();
        match arrival {
            Arrival::GivenUp => return Ok(()),
            Arrival::Wait => {}
            Arrival::Last => {
                if let Err(error) = inner.end_epoch(barrier).await {
                    return Err(error_of(inner.lose(loss_of_error(error))));
                }
            }
        }
        loop {
            changed.mark_unchanged();
            match inner.in_run(|run| run.epochs.outcome(barrier.attempt)).map_err(error_of)? {
                Outcome::Ended | Outcome::GivenUp => return Ok(()),
                Outcome::Pending => {}
            }
            if changed.changed().await.is_err() {
                return Err(Error::internal("the transactions are gone"));
            }
        }
    }
}

impl State {
    fn owner(&self, producer: usize) -> Result<&Arc<Owner>, LastResourceError> {
        let owners = self.owners.as_ref().ok_or_else(|| LastResourceError::Lost("the transactional ids are not taken over".to_owned()))?;
        Ok(&owners[producer])
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        self.changed.send_replace(());
    }

    fn in_run<T>(&self, act: impl FnOnce(&mut Run) -> Result<T, Loss>) -> Result<T, Loss> {
        match &mut self.state().run {
            Some(run) => act(run),
            None => Err(Loss::Lost("the run has ended".to_owned())),
        }
    }

    fn owner(&self, producer: usize) -> Result<Arc<Owner>, LastResourceError> {
        self.state().owner(producer).map(Arc::clone)
    }

    /// All writers have met a barrier: ends the epoch. Whoever waits is told.
    async fn end_epoch(self: &Arc<Self>, barrier: &CheckpointBarrier) -> Result<(), LastResourceError> {
        let attempt = barrier.attempt;
        let (current, marker) = self.in_run(|run| Ok((run.epochs.current()?, run.marker(barrier))))?;
        if !barrier.last {
            self.open(1 - current).await?;
        }
        let value = marker::encode(&marker)?;
        let (draining, ending) = (Arc::clone(self), Arc::clone(self));
        let goes_on = move || draining.in_run(|run| Ok(run.epochs.may_end(attempt))).unwrap_or(false);
        let may_end = move || ending.in_run(|run| run.epochs.end(attempt));
        if self.owner(current)?.end(&self.prefix, value, goes_on, may_end).await? {
            self.in_run(|run| {
                run.epochs.switch(attempt, Instant::now());
                Ok(())
            })?;
            crash_point("sink-kafka::after-switch");
        }
        self.notify();
        Ok(())
    }

    /// Opens a transaction on a producer, which is taken over anew if its last commit may have been sent twice.
    async fn open(self: &Arc<Self>, producer: usize) -> Result<Arc<Owner>, LastResourceError> {
        let mut owner = self.owner(producer)?;
        if owner.is_unclean() {
            tracing::info!(
                id = owner.id(),
                "the last commit was slow: its transactional id is taken over anew, so that no late request ends the next transaction"
            );
            let taken = self.state().taken;
            let fresh = Arc::new(self.make_owner(owner.id(), taken)?);
            fresh.initialise().await?;
            let mut state = self.state();
            if state.taken != taken {
                return Err(LastResourceError::Lost("the transactional ids were taken over meanwhile".to_owned()));
            }
            if let Some(owners) = &mut state.owners {
                owners[producer] = Arc::clone(&fresh);
            }
            owner = fresh;
        }
        owner.begin().await?;
        Ok(owner)
    }

    fn make_owner(self: &Arc<Self>, id: &str, taken: u64) -> Result<Owner, LastResourceError> {
        let limit = self.smallest_limit.load(Ordering::Relaxed);
        let options = self.settings.transactional_producer(id, self.timeout, limit);
        let inner = Arc::downgrade(self);
        let listener = move |failure: &Failure| {
            if let Some(inner) = Weak::upgrade(&inner) {
                inner.failed(taken, failure);
            }
        };
        Owner::new(id, &options, &marker_topic(&self.prefix), self.settings.answered_once(), listener).map_err(marker::from_error)
    }

    /// A producer tells that something failed, from the thread of its events.
    fn failed(&self, taken: u64, failure: &Failure) {
        let owners = {
            let state = self.state();
            match &state.owners {
                Some(owners) if state.taken == taken && state.run.is_some() => owners.clone(),
                _ => return,
            }
        };
        let fatal = owners.iter().find_map(|owner| loss::of_producer(owner.producer()));
        let loss = match (fatal, failure) {
            (Some(loss), _) => loss,
            (None, Failure::Record(record)) => self.loss_of(record),
            (None, Failure::Client) => return,
        };
        self.lose(loss);
    }

    /// The transactions are lost; the first reason counts.
    fn lose(&self, loss: Loss) -> Loss {
        let loss = match &mut self.state().run {
            Some(run) => run.epochs.lose(loss),
            None => loss,
        };
        self.notify();
        loss
    }

    fn loss_of(&self, record: &Undelivered) -> Loss {
        let place = {
            let state = self.state();
            let table = state.run.as_ref().and_then(|run| run.split_table.as_ref());
            record.origin.and_then(|origin| table?.place(origin))
        };
        loss::of_record(record, super::undelivered_sentence(record, place.as_ref()))
    }

    /// Until when a checkpoint may be stored before its transaction times out, from its beginning.
    fn lifetime(&self) -> Duration {
        self.timeout.saturating_sub(COMMIT_RESERVE)
    }

    /// Forgets the producers and the run: their threads end by themselves. What it gives are the producers with an open transaction that
    /// nobody tried to commit, unless others have taken them over.
    fn forget(&self) -> Vec<Arc<Owner>> {
        let (owners, run) = {
            let mut state = self.state();
            (state.owners.take(), state.run.take())
        };
        self.notify();
        let owners = owners.into_iter().flatten().inspect(|owner| owner.abandon());
        let is_ours = run.is_some_and(|run| !matches!(run.epochs.loss(), Some(Loss::Fenced(_))));
        owners.filter(|owner| is_ours && owner.is_open()).collect()
    }
}

impl Run {
    fn marker(&self, barrier: &CheckpointBarrier) -> Marker {
        let RunIdentity { job, storage, generation } = &self.identity;
        Marker {
            job: job.clone(),
            storage: *storage,
            generation: *generation,
            checkpoint: Slot(barrier.checkpoint),
            attempt: barrier.attempt,
            state: if barrier.last { MarkerState::Released } else { MarkerState::Running },
        }
    }
}

/// What a loss means to a task: the job is restarted, and recovers, unless a right or a setting is missing.
fn error_of(loss: Loss) -> Error {
    match loss {
        Loss::Fenced(reason) => Error::external(format!("the transaction was fenced, or timed out: {reason}")),
        Loss::Lost(reason) => Error::external(format!("the transaction is lost, and what was in it is read again: {reason}")),
        Loss::Refused(reason) => Error::user(reason),
    }
}

fn loss_of_error(error: LastResourceError) -> Loss {
    match error {
        LastResourceError::Fenced(reason) => Loss::Fenced(reason),
        LastResourceError::Refused(reason) => Loss::Refused(reason),
        LastResourceError::Lost(reason) | LastResourceError::Unknown(reason) => Loss::Lost(reason),
    }
}

#[async_trait]
impl LastResource for KafkaTransactions {
    fn ids(&self) -> Vec<String> {
        transactional_ids(&self.0.prefix).into()
    }

    async fn read_marker(&self) -> Result<Option<Marker>, LastResourceError> {
        let found = self.0.markers.read().await?;
        crash_point("sink-kafka::after-marker-read");
        Ok(found.map(|found| found.marker))
    }

    async fn fence(&self, also: &[String]) -> Result<(), LastResourceError> {
        let inner = &self.0;
        drop(inner.forget());
        inner.markers.ensure().await.map_err(marker::from_error)?;
        let taken = {
            let mut state = inner.state();
            state.taken += 1;
            state.next = 0;
            state.taken
        };
        let own = self.ids();
        let others = also.iter().filter(|id| !own.contains(id));
        let owners = own.iter().chain(others).map(|id| inner.make_owner(id, taken).map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
        let initialise = |owner: Arc<Owner>| async move {
            owner.initialise().await?;
            crash_point("sink-kafka::after-fencing-one");
            Ok::<_, LastResourceError>(owner)
        };
        let mut owners = try_join_all(owners.into_iter().map(initialise)).await?.into_iter();
        inner.markers.settle().await?;
        let (Some(first), Some(second)) = (owners.next(), owners.next()) else {
            return Err(LastResourceError::Lost("there are fewer than two transactional ids".to_owned()));
        };
        let mut state = inner.state();
        if state.taken != taken {
            return Err(LastResourceError::Lost("the transactional ids were taken over meanwhile".to_owned()));
        }
        state.owners = Some([first, second]);
        Ok(())
    }

    async fn commit_genesis(&self, marker: &Marker) -> Result<(), LastResourceError> {
        let inner = &self.0;
        let next = inner.state().next;
        let owner = inner.open(next).await?;
        let value = marker::encode(marker)?;
        if !owner.end(&inner.prefix, value, || true, || Ok(true)).await? {
            return Err(LastResourceError::Lost("the first marker was not delivered".to_owned()));
        }
        owner.commit(|| ()).await?;
        inner.state().next = 1 - next;
        Ok(())
    }

    async fn commit(&self, checkpoint: Attempt) -> Result<(), LastResourceError> {
        let inner = &self.0;
        let Some(producer) = inner.in_run(|run| run.epochs.to_commit(checkpoint))? else { return Ok(()) };
        let weak = Arc::downgrade(inner);
        let committed = move || {
            let Some(inner) = Weak::upgrade(&weak) else { return };
            inner.committed.fetch_add(1, Ordering::Relaxed);
            if let Some(run) = &mut inner.state().run {
                run.epochs.committed(checkpoint);
            }
        };
        let result = inner.owner(producer)?.commit(committed).await;
        match result {
            Ok(()) => Ok(()),
            Err(error @ LastResourceError::Unknown(_)) => Err(error),
            Err(error) => Err(inner.lose(loss_of_error(error)).into()),
        }
    }

    async fn settled(&self) {
        settle::settled(&self.0).await;
    }
}

#[async_trait]
impl Transactions for KafkaTransactions {
    async fn begin(&self, run: RunIdentity, writers: usize) -> Result<(), Error> {
        let inner = &self.0;
        let next = inner.state().next;
        inner.open(next).await.map_err(|error| error_of(loss_of_error(error)))?;
        inner.markers.rest();
        let epochs = Epochs::new(writers, next, Instant::now());
        let watch = watch::AgeWatch::start(inner);
        inner.state().run = Some(Run { identity: run, epochs, split_table: None, _watch: watch });
        Ok(())
    }

    fn give_up(&self, checkpoint: Attempt) -> GiveUp {
        let inner = &self.0;
        let lifetime = inner.lifetime();
        let answer = inner.in_run(|run| Ok(run.epochs.give_up(checkpoint, lifetime))).unwrap_or(GiveUp::GivenUp);
        inner.notify();
        answer
    }

    async fn lost(&self) -> LastResourceError {
        let inner = &self.0;
        let mut changed = inner.changed.subscribe();
        loop {
            changed.mark_unchanged();
            let loss = inner.state().run.as_ref().and_then(|run| run.epochs.loss().cloned());
            match loss {
                Some(loss) => return loss.into(),
                None if changed.changed().await.is_err() => std::future::pending().await,
                None => {}
            }
        }
    }

    async fn end(&self) {
        let open = self.0.forget();
        let aborted = join_all(open.iter().map(|owner| owner.abort())).await.into_iter().filter(|aborted| *aborted).count();
        self.0.aborted.fetch_add(aborted as u64, Ordering::Relaxed);
    }
}
