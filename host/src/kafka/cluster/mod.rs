//! Questions to a cluster: its topics, offsets and configurations. Each is asked off the async threads, has a deadline, and is asked again
//! while a leader or a coordinator is being elected.

use super::error::{self, is_passing, is_unreachable};
use super::service::Service;
use super::{ClientOptions, Consumer, Context, TopicPartition};
use crate::Error;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

mod admin;

pub(crate) use admin::{Created, NewTopic};

/// How long a question may take in all: what does not answer by then counts as unreachable, and the restart strategy goes on.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// The first attempt's share of it; each later one has twice as long. Between two, a refused login is noticed.
const FIRST_ATTEMPT: Duration = Duration::from_secs(1);

/// Pause before something that is being elected is asked for again.
const PAUSE: Duration = Duration::from_millis(100);

/// A cluster to be asked. Cheap to clone; all clones are one. Nothing is connected before the first question.
#[derive(Clone, Debug)]
pub(crate) struct Cluster(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: ClientOptions,
    /// The client of the next question. One that got no answer is replaced: it may have lost sight of all brokers for good, as librdkafka 2.12 does
    /// when one that has just started says that there are none.
    client: Mutex<Option<Arc<Client>>>,
}

/// A client that only asks.
struct Client {
    options: ClientOptions,
    consumer: Arc<Consumer>,
    _service: Service,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("options", &self.options).finish_non_exhaustive()
    }
}

/// A topic and how many partitions it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Topic {
    /// Its name.
    pub(crate) name: String,
    /// The number of its partitions.
    pub(crate) partitions: i32,
    /// The copies of its first partition.
    pub(crate) replicas: usize,
}

/// The offsets that a partition has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// The first record that is there.
    pub(crate) start: i64,
    /// The next record to come; under `read_committed` the first record of the oldest open transaction.
    pub(crate) end: i64,
}

impl Cluster {
    /// Makes the client. `isolation.level` decides what counts as the end of a partition.
    ///
    /// # Errors
    /// Properties that do not go together, or no thread.
    pub(crate) fn new(options: &ClientOptions) -> Result<Self, Error> {
        let mut options = options.clone();
        // Without a group the client joins and commits nothing.
        options.take("group.id");
        options.set_default("socket.timeout.ms", DEADLINE.as_millis().to_string());
        let client = Mutex::new(Some(Arc::new(Client::new(&options)?)));
        Ok(Self(Arc::new(Inner { options, client })))
    }

    /// The addresses that were given.
    pub(crate) fn servers(&self) -> &str {
        self.0.options.servers()
    }

    /// The topics of these names.
    ///
    /// # Errors
    /// One that does not exist or may not be described, by its name; nobody answers.
    pub(crate) async fn topics(&self, names: Vec<String>) -> Result<Vec<Topic>, Error> {
        self.ask(move |client| names.iter().map(|name| client.topic(name)).collect()).await
    }

    /// A topic, or none where it does not exist.
    ///
    /// # Errors
    /// It may not be described, or nobody answers.
    pub(crate) async fn find_topic(&self, name: &str) -> Result<Option<Topic>, Error> {
        let name = name.to_owned();
        self.ask(move |client| {
            let found = client.metadata(&name, &[RDKafkaErrorCode::UnknownTopicOrPartition, RDKafkaErrorCode::UnknownTopic])?;
            Ok(found.into_iter().next())
        })
        .await
    }

    /// All topics that the client may see, without those that the brokers keep for themselves (`__…`).
    ///
    /// # Errors
    /// Nobody answers.
    pub(crate) async fn all_topics(&self) -> Result<Vec<Topic>, Error> {
        self.ask(|client| {
            let metadata = client.retry("listing the topics", |timeout| client.consumer.fetch_metadata(None, timeout))?;
            let own = metadata.topics().iter().filter(|topic| topic.error().is_none() && !topic.name().starts_with("__"));
            let mut topics: Vec<Topic> = own.map(described).collect();
            topics.sort_by(|left, right| left.name.cmp(&right.name));
            Ok(topics)
        })
        .await
    }

    /// The brokers, as `host:port`.
    ///
    /// # Errors
    /// Nobody answers.
    pub(crate) async fn brokers(&self) -> Result<Vec<String>, Error> {
        self.ask(|client| {
            let metadata = client.retry("listing the brokers", |timeout| client.consumer.fetch_metadata(None, timeout))?;
            Ok(metadata.brokers().iter().map(|broker| format!("{}:{}", broker.host(), broker.port())).collect())
        })
        .await
    }

    /// The ranges of offsets that partitions have.
    ///
    /// # Errors
    /// A partition that is not there or may not be read, or nobody answers.
    pub(crate) async fn ranges(&self, partitions: Vec<TopicPartition>) -> Result<BTreeMap<TopicPartition, Range>, Error> {
        self.ask(move |client| {
            let offsets = |doing, at| client.offsets(doing, &partitions, at);
            let (starts, ends) = std::thread::scope(|scope| {
                let starts = scope.spawn(|| offsets("reading the first offsets", Offset::Beginning));
                let ends = offsets("reading the end offsets", Offset::End);
                (starts.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), ends)
            });
            let (starts, ends) = (starts?, ends?);
            let range = |(partition, start): (TopicPartition, Option<i64>)| {
                let end = ends.get(&partition).copied().flatten();
                let unknown = || Error::external(format!("the offsets of partition {partition} are not known yet"));
                let range = Range { start: start.ok_or_else(unknown)?, end: end.ok_or_else(unknown)? };
                Ok((partition, range))
            };
            starts.into_iter().map(range).collect()
        })
        .await
    }

    /// For each partition the offset of the first record whose timestamp is not before `milliseconds`; none where there is no such record yet.
    ///
    /// # Errors
    /// A partition that is not there or may not be read, or nobody answers.
    pub(crate) async fn offsets_at(
        &self,
        partitions: Vec<TopicPartition>,
        milliseconds: i64,
    ) -> Result<BTreeMap<TopicPartition, Option<i64>>, Error> {
        // Offsets below 0 are words to librdkafka, and there are no such timestamps.
        self.ask(move |client| client.offsets("finding offsets by time", &partitions, Offset::Offset(milliseconds.max(0)))).await
    }

    /// For each partition the offset that a group has committed; none where it has none.
    ///
    /// # Errors
    /// The group may not be read, or nobody answers.
    pub(crate) async fn committed(
        &self,
        group: &str,
        partitions: Vec<TopicPartition>,
    ) -> Result<BTreeMap<TopicPartition, Option<i64>>, Error> {
        let group = group.to_owned();
        self.ask(move |client| client.committed_now(&group, &partitions)).await
    }

    /// Runs a question on a thread that may wait.
    async fn ask<T: Send + 'static>(&self, question: impl FnOnce(&Client) -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
        let cluster = self.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let client = cluster.client()?;
            let answer = question(&client);
            if answer.as_ref().is_err_and(Error::retry_helps) {
                cluster.replace(&client);
            }
            answer
        });
        asked.await.map_err(|error| Error::internal("a question to Kafka broke off").caused_by(error))?
    }

    fn client(&self) -> Result<Arc<Client>, Error> {
        let mut client = self.0.client.lock().unwrap_or_else(PoisonError::into_inner);
        match &*client {
            Some(client) => Ok(Arc::clone(client)),
            None => Ok(Arc::clone(client.insert(Arc::new(Client::new(&self.0.options)?)))),
        }
    }

    /// The next question goes to another client than this one.
    fn replace(&self, client: &Arc<Client>) {
        self.0.client.lock().unwrap_or_else(PoisonError::into_inner).take_if(|current| Arc::ptr_eq(current, client));
    }
}

impl Client {
    fn new(options: &ClientOptions) -> Result<Self, Error> {
        let consumer: KafkaResult<Consumer> = options.config().create_with_context(options.context());
        let consumer = Arc::new(consumer.map_err(|error| error::of(&options.context(), "making a Kafka client", &error))?);
        let service = Service::start(options.uid(), Arc::clone(&consumer))
            .map_err(|error| Error::external("the system gives no thread for a Kafka client").caused_by(error))?;
        Ok(Self { options: options.clone(), consumer, _service: service })
    }

    /// What the brokers said.
    fn context(&self) -> &Context {
        self.consumer.context()
    }

    fn committed_now(&self, group: &str, partitions: &[TopicPartition]) -> Result<BTreeMap<TopicPartition, Option<i64>>, Error> {
        if partitions.is_empty() {
            return Ok(BTreeMap::new());
        }
        let doing = format!("reading the committed offsets of group {group}");
        let mut options = self.options.clone();
        options.set("group.id", group).set("enable.auto.commit", "false");
        let consumer: KafkaResult<Consumer> = options.config().create_with_context(options.context());
        let consumer = Arc::new(consumer.map_err(|error| error::of(self.context(), &doing, &error))?);
        let _service = Service::start(options.uid(), Arc::clone(&consumer))
            .map_err(|error| Error::external("the system gives no thread for a Kafka client").caused_by(error))?;
        let wanted = list(partitions, Offset::Invalid)?;
        let found = retry(consumer.context(), &doing, |timeout| consumer.committed_offsets(wanted.clone(), timeout))?;
        let mut offsets = BTreeMap::new();
        for element in found.elements() {
            let partition = TopicPartition::new(element.topic(), element.partition());
            element.error().map_err(|error| error::of(self.context(), format!("{doing}, partition {partition}"), &error))?;
            offsets.insert(partition, absolute(element.offset()));
        }
        Ok(offsets)
    }

    fn topic(&self, name: &str) -> Result<Topic, Error> {
        let found = self.metadata(name, &[])?.into_iter().next();
        found.ok_or_else(|| error::of_code(self.context(), format!("topic {name}"), RDKafkaErrorCode::UnknownTopicOrPartition, None))
    }

    /// The topic of a name, or none where the answer is one of `absent`.
    fn metadata(&self, name: &str, absent: &[RDKafkaErrorCode]) -> Result<Option<Topic>, Error> {
        let doing = format!("topic {name}");
        let metadata = self.retry(&doing, |timeout| {
            let metadata = self.consumer.fetch_metadata(Some(name), timeout)?;
            match metadata.topics().first().and_then(|topic| topic.error()) {
                Some(code) if !absent.contains(&code.into()) => Err(KafkaError::MetadataFetch(code.into())),
                _ => Ok(metadata),
            }
        })?;
        Ok(metadata.topics().iter().filter(|topic| topic.error().is_none()).map(described).next())
    }

    /// The offsets that stand for a word or a time, for all partitions with one request a broker.
    fn offsets(&self, doing: &str, partitions: &[TopicPartition], at: Offset) -> Result<BTreeMap<TopicPartition, Option<i64>>, Error> {
        if partitions.is_empty() {
            return Ok(BTreeMap::new());
        }
        let wanted = list(partitions, at)?;
        let found = retry_also(self.context(), doing, is_settling, |timeout| {
            let found = self.consumer.offsets_for_times(wanted.clone(), timeout)?;
            let again = |code| is_passing(code) || is_settling(code);
            match found.elements().iter().find_map(|element| element.error().err()) {
                Some(error) if error.rdkafka_error_code().is_some_and(again) => Err(error),
                _ => Ok(found),
            }
        })?;
        let mut offsets = BTreeMap::new();
        for element in found.elements() {
            let partition = TopicPartition::new(element.topic(), element.partition());
            element.error().map_err(|error| error::of(self.context(), format!("{doing} of partition {partition}"), &error))?;
            offsets.insert(partition, absolute(element.offset()));
        }
        Ok(offsets)
    }

    fn retry<T>(&self, doing: &str, call: impl FnMut(Duration) -> KafkaResult<T>) -> Result<T, Error> {
        retry(self.context(), doing, call)
    }
}

/// Whether a partition of a topic that is known may be about to appear: its broker was started, or the topic made, a moment ago.
fn is_settling(code: RDKafkaErrorCode) -> bool {
    code == RDKafkaErrorCode::UnknownTopicOrPartition
}

/// Asks until there is an answer, the deadline is over, or something was refused.
pub(crate) fn retry<T>(context: &Context, doing: &str, call: impl FnMut(Duration) -> KafkaResult<T>) -> Result<T, Error> {
    retry_also(context, doing, |_| false, call)
}

/// Like [`retry`], also where the answer is one of these codes; they pass, if not by the deadline.
fn retry_also<T>(
    context: &Context,
    doing: &str,
    also: fn(RDKafkaErrorCode) -> bool,
    mut call: impl FnMut(Duration) -> KafkaResult<T>,
) -> Result<T, Error> {
    let deadline = Instant::now() + DEADLINE;
    let mut attempt = FIRST_ATTEMPT;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let error = match call(attempt.min(left)) {
            Ok(answer) => {
                context.reached();
                return Ok(answer);
            }
            Err(error) => error,
        };
        let code = match &error {
            KafkaError::AdminOp(code) => Some(*code),
            other => other.rdkafka_error_code(),
        };
        let again = code.is_some_and(|code| is_passing(code) || is_unreachable(code) || also(code));
        if !again || context.refusal().is_some() || Instant::now() + PAUSE >= deadline {
            let failed = error::of(context, doing, &error);
            let is_settling = code.is_some_and(also);
            return Err(if is_settling { Error::external(format!("{doing}: not yet")).caused_by(failed) } else { failed });
        }
        attempt *= 2;
        std::thread::sleep(PAUSE);
    }
}

fn described(topic: &rdkafka::metadata::MetadataTopic) -> Topic {
    let partitions = topic.partitions();
    Topic {
        name: topic.name().to_owned(),
        partitions: i32::try_from(partitions.len()).unwrap_or(i32::MAX),
        replicas: partitions.first().map_or(0, |partition| partition.replicas().len()),
    }
}

fn list(partitions: &[TopicPartition], offset: Offset) -> Result<TopicPartitionList, Error> {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for partition in partitions {
        list.add_partition_offset(&partition.topic, partition.partition, offset)
            .map_err(|error| Error::internal(format!("partition {partition} cannot be asked for")).caused_by(error))?;
    }
    Ok(list)
}

/// A real offset; none for a word that stands for no offset.
fn absolute(offset: Offset) -> Option<i64> {
    match offset {
        Offset::Offset(offset) => Some(offset),
        _ => None,
    }
}
