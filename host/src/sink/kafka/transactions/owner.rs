//! The thread that owns the producer of a transactional id: transaction calls block, and are never made at the same time.

use super::epochs::Loss;
use super::loss;
use crate::Error;
use crate::checkpoint::failpoints::crash_point;
use crate::checkpoint::participants::LastResourceError;
use crate::kafka::ffi::Outgoing;
use crate::kafka::producer::{Failure, Producer, Topic};
use crate::kafka::{ClientOptions, error};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::Producer as _;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How long one call may take before it is called again: it is looked in between whether anybody still waits.
const CALL: Duration = Duration::from_secs(5);
/// How long the first call that takes an id over may take; each later one has twice as long. While the broker still aborts what was open, the
/// client pauses for half a second, unless it is called again.
const FIRST_CALL: Duration = Duration::from_millis(20);
/// How long an id is tried to be taken over before the restart strategy has its say.
const INITIALISATION: Duration = Duration::from_secs(60);
/// How long a commit waits for an answer before it says that there is none yet. It is waited for twice.
const COMMIT: Duration = Duration::from_secs(15);
/// How long an abort may take. Whoever fences the id next aborts as well.
const ABORT: Duration = Duration::from_secs(5);
/// How long records are waited for before it is looked whether that still makes sense.
const DRAIN_STEP: Duration = Duration::from_millis(20);
/// Pause between two calls of which the first was answered at once.
const PAUSE: Duration = Duration::from_millis(100);

type Job = Box<dyn FnOnce(&Producer) + Send>;

/// The producer of one transactional id, and its thread.
pub(super) struct Owner {
    id: String,
    producer: Arc<Producer>,
    jobs: mpsc::Sender<Job>,
    /// The name of the topic of markers.
    markers: String,
    marker_topic: OnceLock<Arc<Topic>>,
    /// A transaction is open that nobody has tried to commit.
    is_open: Arc<AtomicBool>,
    /// A request to commit may have been sent twice, so that one of them may still arrive.
    is_unclean: AtomicBool,
    /// A request that is answered within this time was not sent twice.
    answered_once: Duration,
    /// Nobody waits for what it does any more.
    is_abandoned: Arc<AtomicBool>,
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Owner {
    /// Makes the producer of an id; nothing is connected yet.
    ///
    /// # Errors
    /// Options that the client refuses, or no thread.
    pub(super) fn new(
        id: &str,
        options: &ClientOptions,
        markers: &str,
        answered_once: Duration,
        listener: impl Fn(&Failure) + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let producer = Arc::new(Producer::new(options, listener)?);
        let (jobs, receiver) = mpsc::channel::<Job>();
        let owned = Arc::clone(&producer);
        thread::Builder::new()
            .name(format!("transactions-{id}"))
            .spawn(move || {
                while let Ok(job) = receiver.recv() {
                    job(&owned);
                }
            })
            .map_err(|error| Error::external("the system gives no thread for transactions").caused_by(error))?;
        Ok(Self {
            id: id.to_owned(),
            producer,
            jobs,
            markers: markers.to_owned(),
            marker_topic: OnceLock::new(),
            is_open: Arc::default(),
            is_unclean: AtomicBool::new(false),
            answered_once,
            is_abandoned: Arc::new(AtomicBool::new(false)),
        })
    }

    /// The id.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// The producer, to send records with.
    pub(super) fn producer(&self) -> &Arc<Producer> {
        &self.producer
    }

    /// Runs something on the thread, behind what was asked for before. It runs to its end when nobody waits for it any more.
    async fn run<T: Send + 'static>(&self, job: impl FnOnce(&Producer) -> T + Send + 'static) -> Result<T, LastResourceError> {
        let (answer, answered) = oneshot::channel();
        let gone = |_| LastResourceError::Lost(format!("the thread of {} has ended", self.id));
        let job: Job = Box::new(move |producer| {
            // Nobody may wait any more.
            let _gone = answer.send(job(producer));
        });
        self.jobs.send(job).map_err(|_| gone(()))?;
        answered.await.map_err(|_| gone(()))
    }

    /// Takes the id over: fences whoever had it, and aborts what it left open.
    ///
    /// # Errors
    /// `Refused` for a setting or a right, `Unknown` when there is no answer.
    pub(super) async fn initialise(&self) -> Result<(), LastResourceError> {
        let (id, abandoned) = (self.id.clone(), Arc::clone(&self.is_abandoned));
        self.run(move |producer| {
            let doing = format!("taking over the transactional id {id}");
            let deadline = Instant::now() + INITIALISATION;
            let mut time = FIRST_CALL;
            loop {
                let called = Instant::now();
                let Err(error) = producer.client().init_transactions(time) else { return Ok(()) };
                let pause = time.min(PAUSE);
                time = CALL.min(2 * time);
                let error = initialisation_error(producer, &doing, &error);
                let is_over = Instant::now() >= deadline || abandoned.load(Ordering::Acquire) || producer.context().refusal().is_some();
                match error {
                    LastResourceError::Unknown(_) if !is_over => thread::sleep(pause.saturating_sub(called.elapsed())),
                    error => return Err(error),
                }
            }
        })
        .await?
    }

    /// Opens a transaction, unless one is open that nothing was sent in.
    ///
    /// # Errors
    /// The client refuses.
    pub(super) async fn begin(&self) -> Result<(), LastResourceError> {
        if self.is_open.load(Ordering::Acquire) {
            return Ok(());
        }
        let (id, is_open) = (self.id.clone(), Arc::clone(&self.is_open));
        self.run(move |producer| {
            let begun = producer.client().begin_transaction();
            begun.map_err(|error| loss::of_call(producer, &format!("beginning a transaction of {id}"), &error))?;
            is_open.store(true, Ordering::Release);
            Ok(())
        })
        .await?
    }

    /// Waits until all records are delivered, as long as `goes_on` says so; then, if `may_end` says so, sends the marker and waits until that
    /// is delivered. Whether the marker is in the transaction.
    ///
    /// # Errors
    /// Something was not delivered, or `may_end` says so.
    pub(super) async fn end(
        &self,
        key: &str,
        value: Vec<u8>,
        goes_on: impl Fn() -> bool + Send + 'static,
        may_end: impl FnOnce() -> Result<bool, Loss> + Send + 'static,
    ) -> Result<bool, LastResourceError> {
        let (topic, key, abandoned) = (self.marker_topic()?, key.to_owned(), Arc::clone(&self.is_abandoned));
        let id = self.id.clone();
        self.run(move |producer| {
            let began = Instant::now();
            if !drain(producer, || goes_on() && !abandoned.load(Ordering::Acquire))? {
                return Ok(false);
            }
            crash_point("sink-kafka::after-drain");
            if !may_end()? {
                return Ok(false);
            }
            let drained = began.elapsed();
            send_marker(producer, &topic, &key, &value)?;
            // From here on only a loss or the end of the run breaks off.
            let delivered = drain(producer, || !abandoned.load(Ordering::Acquire))?;
            crash_point("sink-kafka::after-marker");
            tracing::debug!(id, ?drained, marked = ?began.elapsed().saturating_sub(drained), "all of an epoch is delivered");
            Ok(delivered)
        })
        .await?
    }

    /// The topic of markers as the producer knows it: asked for only now, when it is surely there, because the brokers may make topics
    /// that are asked for.
    fn marker_topic(&self) -> Result<Arc<Topic>, LastResourceError> {
        if let Some(topic) = self.marker_topic.get() {
            return Ok(Arc::clone(topic));
        }
        let name = &self.markers;
        let topic = self
            .producer
            .topic(name)
            .map_err(|code| LastResourceError::Refused(format!("{name} cannot be the topic of markers: {code}")))?;
        Ok(Arc::clone(self.marker_topic.get_or_init(|| Arc::new(topic))))
    }

    /// Commits the transaction that has its marker; `committed` runs on the thread when it is.
    ///
    /// # Errors
    /// `Unknown` when there is no answer yet: call it again. `Lost` when there is none the second time.
    pub(super) async fn commit(self: &Arc<Self>, committed: impl FnOnce() + Send + 'static) -> Result<(), LastResourceError> {
        let owner = Arc::clone(self);
        self.run(move |producer| {
            let began = Instant::now();
            // Until a first call is answered at once. A second one does not know what became of the first.
            let is_first = !owner.is_unclean.swap(true, Ordering::AcqRel);
            // Whatever comes of it, it is never aborted.
            owner.is_open.store(false, Ordering::Release);
            crash_point("sink-kafka::before-commit");
            let result = producer.client().commit_transaction(COMMIT);
            let failed = |error| match loss::of_call(producer, &format!("committing the transaction of {}", owner.id), &error) {
                // The client may never find a broker again. A recovery finds out with another one what became of the commit.
                LastResourceError::Unknown(reason) if !is_first => LastResourceError::Lost(reason),
                other => other,
            };
            result.map_err(failed)?;
            crash_point("sink-kafka::after-commit");
            tracing::debug!(id = owner.id, committed = ?began.elapsed(), "a transaction is committed");
            owner.is_unclean.store(!is_first || began.elapsed() >= owner.answered_once, Ordering::Release);
            committed();
            Ok(())
        })
        .await?
    }

    /// Whether a commit of the past may have been sent twice, so that one of the requests may still arrive: the client speaks a protocol in
    /// which it would end the next transaction of this producer. Taking the id over anew shuts it out.
    pub(super) fn is_unclean(&self) -> bool {
        self.is_unclean.load(Ordering::Acquire)
    }

    /// Aborts what is open, for readers not to wait for it to time out; whether it did. If not, whoever takes the id over does.
    pub(super) async fn abort(&self) -> bool {
        let aborted = self.run(move |producer| producer.client().abort_transaction(ABORT)).await;
        let reason = match aborted {
            Ok(Ok(())) => {
                self.is_open.store(false, Ordering::Release);
                return true;
            }
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        tracing::debug!(id = self.id, reason, "an open transaction could not be aborted; the next start does it");
        false
    }

    /// Whether a transaction is open that nobody has tried to commit.
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Nobody waits for anything any more: what blocks, breaks off soon.
    pub(super) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Release);
    }
}

/// Waits until every record was delivered, as long as `goes_on` says so; whether they are.
fn drain(producer: &Producer, goes_on: impl Fn() -> bool) -> Result<bool, LastResourceError> {
    while !producer.flush(DRAIN_STEP) {
        if !goes_on() {
            return Ok(false);
        }
        undelivered(producer)?;
    }
    undelivered(producer)?;
    Ok(true)
}

/// Fails when something was not delivered: a flush that ends well says nothing about that.
fn undelivered(producer: &Producer) -> Result<(), LastResourceError> {
    if let Some(loss) = loss::of_producer(producer) {
        return Err(loss.into());
    }
    match producer.first_failure() {
        Some(record) => {
            Err(loss::of_record(&record, format!("a record for topic {} was not delivered: {}", record.topic, record.code)).into())
        }
        None => Ok(()),
    }
}

/// Puts the marker into the queue; a full one is waited for.
fn send_marker(producer: &Producer, markers: &Topic, key: &str, value: &[u8]) -> Result<(), LastResourceError> {
    let record = Outgoing { key: Some(key.as_bytes()), value: Some(value), partition: Some(0), timestamp: 0, opaque: 0 };
    loop {
        match markers.produce(&record, std::iter::empty()) {
            Ok(()) => return Ok(()),
            Err(RDKafkaErrorCode::QueueFull) => {
                producer.flush(DRAIN_STEP);
                undelivered(producer)?;
            }
            Err(code) => {
                let sentence = format!("the marker of the checkpoint could not be sent: {code}");
                return Err(loss::of_producer(producer).unwrap_or(Loss::Lost(sentence)).into());
            }
        }
    }
}

/// The error of taking an id over.
fn initialisation_error(producer: &Producer, doing: &str, error: &KafkaError) -> LastResourceError {
    let code = match error {
        KafkaError::Transaction(error) => error.code(),
        other => other.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail),
    };
    match loss::of_call(producer, doing, error) {
        LastResourceError::Refused(_) if code == RDKafkaErrorCode::InvalidTransactionTimeout => {
            let timeout = "the broker does not allow transactions as long as this job's (transaction.timeout.ms): set it to at most the broker's \
                           transaction.max.timeout.ms, or raise that";
            LastResourceError::Refused(format!("{doing}: {timeout}"))
        }
        // The login, or a sentence that says what to do about a right.
        LastResourceError::Refused(_) => LastResourceError::Refused(error::of_code(producer.context(), doing, code, None).to_string()),
        LastResourceError::Unknown(_) if producer.context().refusal().is_some() => {
            LastResourceError::Refused(error::of_code(producer.context(), doing, RDKafkaErrorCode::OperationTimedOut, None).to_string())
        }
        LastResourceError::Unknown(_) => {
            LastResourceError::Unknown(error::of_code(producer.context(), doing, RDKafkaErrorCode::OperationTimedOut, None).to_string())
        }
        other => other,
    }
}
