//! The topic of markers: one a prefix, one partition, compacted. Its newest committed record says which checkpoint's output is visible.

use crate::Error;
use crate::checkpoint::participants::LastResourceError;
use crate::checkpoint::protocol::Marker;
use crate::kafka::cluster::{Created, DEADLINE, NewTopic, Range};
use crate::kafka::error::{self, is_passing, is_unreachable};
use crate::kafka::{ClientOptions, Cluster, Consumer, TopicPartition};
use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The version of the records.
const VERSION: u64 = 1;
/// What the topic is, for errors.
const PURPOSE: &str = "the topic of the markers by which a run of this job knows what the run before committed";
/// How many offsets before the end are read first: the newest marker is nearly always among them, and compaction is lazy.
const FIRST_WINDOW: i64 = 64;
/// How long a fetch at the end of the partition waits for more before it says that there is none.
const END_WAIT: Duration = Duration::from_millis(10);
/// How long the end of a transaction may take to become visible after its id was taken over.
const SETTLING: Duration = Duration::from_secs(10);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// The topic of the markers of a prefix.
#[derive(Clone)]
pub(crate) struct Markers {
    options: ClientOptions,
    cluster: Cluster,
    /// The same cluster, with the ends of partitions behind what is not committed.
    uncommitted: Cluster,
    /// The reader of a start, which reads twice.
    reader: Arc<Mutex<Option<Consumer>>>,
    topic: String,
    prefix: String,
}

impl std::fmt::Debug for Markers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Markers").field("topic", &self.topic).finish_non_exhaustive()
    }
}

/// What stands in the topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The newest committed marker.
    pub(crate) marker: Marker,
    /// Its offset.
    pub(crate) offset: i64,
    /// When it was sent, milliseconds since the Unix epoch.
    pub(crate) timestamp: Option<i64>,
}

impl Markers {
    /// The topic of a prefix, at the cluster of these options. Nothing is connected yet.
    ///
    /// # Errors
    /// Options that the client refuses.
    pub(crate) fn new(options: &ClientOptions, prefix: &str) -> Result<Self, Error> {
        let mut options = options.clone();
        options.set("isolation.level", "read_uncommitted");
        let uncommitted = Cluster::new(&options)?;
        options.set("isolation.level", "read_committed");
        Ok(Self {
            cluster: Cluster::new(&options)?,
            uncommitted,
            reader: Arc::default(),
            options,
            topic: super::super::options::marker_topic(prefix),
            prefix: prefix.to_owned(),
        })
    }

    /// The name of the topic.
    pub(crate) fn topic(&self) -> &str {
        &self.topic
    }

    /// The cluster, whose ends of partitions are the last stable offsets.
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Makes the topic where it is not there.
    ///
    /// # Errors
    /// It may not be made.
    pub(super) async fn ensure(&self) -> Result<(), Error> {
        if self.cluster.find_topic(&self.topic).await?.is_none() {
            let config = vec![("cleanup.policy".to_owned(), "compact".to_owned())];
            let topic = NewTopic { name: self.topic.clone(), partitions: 1, replicas: None, config };
            let created = self.cluster.create_topic(topic).await.map_err(|error| {
                let advice =
                    "create it by hand (1 partition, cleanup.policy=compact), or give the user of this client the right (ACL) Create on it";
                error.within(format!("{PURPOSE}; {advice}"))
            })?;
            if created == Created::Now {
                self.appear().await?;
            }
        }
        Ok(())
    }

    /// Waits until the topic that was made can be asked for its offsets.
    async fn appear(&self) -> Result<(), Error> {
        let (deadline, partition) = (Instant::now() + DEADLINE, TopicPartition::new(self.topic.as_str(), 0));
        loop {
            match self.cluster.ranges(vec![partition.clone()]).await {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() >= deadline => {
                    return Err(
                        Error::external(format!("topic {} was made, and the brokers do not show it yet", self.topic)).caused_by(error)
                    );
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Checks that the topic, if it is there, keeps the newest marker for ever.
    ///
    /// # Errors
    /// It does not, by its name and settings.
    pub(super) async fn check(&self) -> Result<(), Error> {
        let found = self.cluster.find_topic(&self.topic).await;
        let found = found.map_err(|error| {
            error.within(format!("{PURPOSE}, which needs the rights (ACLs) Create, Describe, DescribeConfigs, Read and Write"))
        })?;
        let Some(topic) = found else { return Ok(()) };
        if topic.partitions != 1 {
            return Err(Error::user(format!(
                "topic {} cannot hold markers: it has {} partitions, and only one has an order; delete it, or set another transactional-id-prefix",
                self.topic, topic.partitions
            )));
        }
        let config = match self.cluster.topic_config(&self.topic).await {
            Ok(config) => config,
            Err(error) if error.retry_helps() => return Err(error),
            Err(error) => {
                tracing::warn!(topic = self.topic, error = %error.chain(), "whether the topic of markers is compacted cannot be told");
                return Ok(());
            }
        };
        match config.get("cleanup.policy").map(String::as_str) {
            None | Some("compact") => Ok(()),
            Some(policy) => Err(Error::user(format!(
                "topic {} cannot hold markers: its cleanup.policy is {policy:?}, by which they get lost in time; set it to \"compact\"",
                self.topic
            ))),
        }
    }

    /// The newest committed marker, read to the last stable offset as of now; none only if there is surely none.
    ///
    /// # Errors
    /// `Refused` for a record that is no marker, `Unknown` when there is no answer.
    pub(crate) async fn read(&self) -> Result<Option<Found>, LastResourceError> {
        let found = self.cluster.find_topic(&self.topic).await.map_err(from_error)?;
        if found.is_none() {
            return Ok(None);
        }
        let Range { start, end } = self.range(&self.cluster).await?;
        let markers = self.clone();
        let read = tokio::task::spawn_blocking(move || markers.read_range(start, end)).await;
        read.map_err(|error| LastResourceError::Unknown(format!("reading the marker broke off: {error}")))?
    }

    /// Waits until no transaction is open in the topic: those of the ids that were taken over have ended.
    ///
    /// # Errors
    /// `Unknown` when one stays open: whose ever it is, what stands behind it cannot be read.
    pub(super) async fn settle(&self) -> Result<(), LastResourceError> {
        let deadline = Instant::now() + SETTLING;
        loop {
            // The end first: a stable offset that has reached it since then says the same.
            let end = self.range(&self.uncommitted).await?.end;
            let stable = self.range(&self.cluster).await?.end;
            if stable >= end {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(LastResourceError::Unknown(format!(
                    "a transaction is open in topic {topic} from offset {stable} on (its end is {end}), and none of the job's transactional ids has it: stop \
                     who else writes there. If nobody does, a broker that was killed has lost the end of a transaction: `kafka-transactions.sh \
                     find-hanging` names what hangs, there and in the topics of the output, and `kafka-transactions.sh abort` ends it; abort all of it, \
                     and the job writes it again",
                    topic = self.topic
                )));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn range(&self, cluster: &Cluster) -> Result<Range, LastResourceError> {
        let partition = TopicPartition::new(self.topic.as_str(), 0);
        let ranges = cluster.ranges(vec![partition.clone()]).await.map_err(from_error)?;
        ranges.get(&partition).copied().ok_or_else(|| LastResourceError::Unknown(format!("the offsets of {partition} are not known yet")))
    }

    /// Reads a little before the end; where there is no marker, ever more.
    fn read_range(&self, start: i64, end: i64) -> Result<Option<Found>, LastResourceError> {
        if start >= end {
            return Ok(None);
        }
        let consumer = match self.resting_reader().take() {
            Some(consumer) => consumer,
            None => self.consumer()?,
        };
        let mut window = FIRST_WINDOW;
        loop {
            let from = start.max(end - window);
            let found = self.read_from(&consumer, from, end)?;
            if found.is_some() || from == start {
                // One that failed is not used again.
                if consumer.unassign().is_ok() {
                    *self.resting_reader() = Some(consumer);
                }
                return Ok(found);
            }
            window *= 8;
        }
    }

    fn resting_reader(&self) -> MutexGuard<'_, Option<Consumer>> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is read for a while.
    pub(super) fn rest(&self) {
        // Closing a client waits.
        let reader = self.resting_reader().take();
        tokio::task::spawn_blocking(move || drop(reader));
    }

    fn consumer(&self) -> Result<Consumer, LastResourceError> {
        let mut options = self.options.clone();
        // A group is named, as the client wants, and never joined or written to.
        options.set_default("group.id", format!("waterwheel-{}", self.prefix));
        options.set("enable.auto.commit", "false").set("enable.partition.eof", "true").set("auto.offset.reset", "error");
        options.set("fetch.wait.max.ms", END_WAIT.as_millis().to_string());
        let consumer: KafkaResult<Consumer> = options.config().create_with_context(options.context());
        consumer.map_err(|error| from_error(error::of(&self.options.context(), "making a Kafka client", &error)))
    }

    /// The last marker of a part that reaches to the last stable offset.
    fn read_from(&self, consumer: &Consumer, from: i64, end: i64) -> Result<Option<Found>, LastResourceError> {
        let doing = || format!("reading the marker in topic {}", self.topic);
        let failed = |error: &KafkaError| from_error(error::of(consumer.context(), doing(), error));
        let mut list = TopicPartitionList::with_capacity(1);
        list.add_partition_offset(&self.topic, 0, Offset::Offset(from)).map_err(|error| failed(&error))?;
        consumer.assign(&list).map_err(|error| failed(&error))?;
        let deadline = Instant::now() + DEADLINE;
        let mut found = None;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let last = consumer.context().last_trouble().map(|trouble| format!(" ({})", trouble.reason)).unwrap_or_default();
                return Err(LastResourceError::Unknown(format!("{}: no end after {DEADLINE:?}{last}", doing())));
            }
            match consumer.poll(left.min(Duration::from_millis(200))) {
                None => {}
                Some(Ok(message)) => {
                    found = Some(self.parse(&message)?);
                    // Nothing that matters follows; the end itself may be a control record, which nobody is shown.
                    if message.offset() + 1 >= end {
                        return Ok(found);
                    }
                }
                Some(Err(KafkaError::PartitionEOF(_))) => return Ok(found),
                Some(Err(error)) => {
                    let passes = error.rdkafka_error_code().is_some_and(|code| is_passing(code) || is_unreachable(code) || of_group(code));
                    if !passes || consumer.context().refusal().is_some() {
                        return Err(failed(&error));
                    }
                }
            }
        }
    }

    fn parse(&self, message: &rdkafka::message::BorrowedMessage<'_>) -> Result<Found, LastResourceError> {
        let offset = message.offset();
        let refuse = |what: String| {
            Err(LastResourceError::Refused(format!(
                "topic {} holds {what} at offset {offset}: it belongs to this host alone; find out who wrote there, and set another \
                 transactional-id-prefix, or delete the topic and say --marker-missing=committed or --marker-missing=aborted",
                self.topic
            )))
        };
        if message.key() != Some(self.prefix.as_bytes()) {
            let key = message.key().map_or("no key".into(), |key| format!("the key {:?}", String::from_utf8_lossy(key)));
            return refuse(format!("a record with {key} instead of {:?}", self.prefix));
        }
        match decode(message.payload().unwrap_or_default()) {
            Ok(marker) => Ok(Found { marker, offset, timestamp: message.timestamp().to_millis() }),
            Err(reason) => refuse(format!("a record that is no marker ({reason})")),
        }
    }
}

/// Whether a code is about the group, which is named and not used.
fn of_group(code: rdkafka::error::RDKafkaErrorCode) -> bool {
    use rdkafka::error::RDKafkaErrorCode as Code;
    matches!(code, Code::GroupAuthorizationFailed | Code::CoordinatorNotAvailable | Code::CoordinatorLoadInProgress)
}

/// What a failed question means: whether trying again can help decides.
#[allow(clippy::needless_pass_by_value, reason = "it stands in map_err")]
pub(super) fn from_error(error: Error) -> LastResourceError {
    let sentence = error.chain();
    if error.retry_helps() { LastResourceError::Unknown(sentence) } else { LastResourceError::Refused(sentence) }
}

/// A marker as a record's value: JSON, with a version.
pub(super) fn encode(marker: &Marker) -> Result<Vec<u8>, LastResourceError> {
    let fields = match serde_json::to_value(marker) {
        Ok(Value::Object(fields)) => fields,
        _ => return Err(LastResourceError::Refused("the marker cannot be written as JSON".to_owned())),
    };
    let mut record = Map::new();
    record.insert("version".to_owned(), VERSION.into());
    record.extend(fields);
    Ok(Value::Object(record).to_string().into_bytes())
}

fn decode(value: &[u8]) -> Result<Marker, String> {
    let mut fields: Map<String, Value> = serde_json::from_slice(value).map_err(|error| error.to_string())?;
    match fields.remove("version") {
        Some(version) if version == VERSION => Marker::deserialize(Value::Object(fields)).map_err(|error| error.to_string()),
        Some(version) => Err(format!("it has version {version}, and this program knows {VERSION}")),
        None => Err("it has no version".to_owned()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::checkpoint::protocol::{Attempt, Generation, JobName, MarkerState, Slot, StorageId};

    #[test]
    fn markers_come_back() {
        let marker = Marker {
            job: JobName::new("orders").unwrap().first_incarnation(),
            storage: StorageId(Attempt::random().0),
            generation: Generation(3),
            checkpoint: Slot(17),
            attempt: Attempt::random(),
            state: MarkerState::Released,
        };
        let value = encode(&marker).unwrap();
        let text = String::from_utf8(value.clone()).unwrap();
        assert!(text.starts_with(r#"{"version":1,"job":"orders","#) && text.contains(r#""state":"released""#), "{text}");
        assert_eq!(decode(&value), Ok(marker));
    }

    #[test]
    fn what_is_no_marker_is_refused_with_the_reason() {
        for (value, reason) in [
            ("", "EOF"),
            ("[]", "invalid type"),
            (r#"{"job":"a"}"#, "no version"),
            (r#"{"version":2}"#, "version 2"),
            (r#"{"version":1}"#, "missing"),
        ] {
            let error = decode(value.as_bytes()).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
