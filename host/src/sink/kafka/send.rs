//! From a batch to a producer: chooses topic and partition of each record, and leaves out what cannot be written, if that was asked for.

use super::options::{OnError, Settings, TopicFrom};
use super::topics::{Looked, TopicInfo, Topics};
use crate::Error;
use crate::kafka::error;
use crate::kafka::ffi::Outgoing;
use crate::kafka::producer::{Producer, Topic, Undelivered, opaque};
use crate::record::{Batch, Header, Origin, SplitTable};
use crate::sink::WriterContext;
use crate::telemetry::TaskMetrics;
use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::producer::Producer as _;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a full queue is waited for before it is tried again: it empties by thousands of records a millisecond.
const FULL_PAUSE: Duration = Duration::from_millis(1);
/// How long the client may take to ask for a topic's partitions.
const REFRESH_TIME: Duration = Duration::from_secs(10);
/// Pause before it asks again.
const REFRESH_PAUSE: Duration = Duration::from_millis(100);
/// How often it asks for one batch.
const MOST_REFRESHES: u32 = 100;
/// What a batch of one record has around it on the wire, at most: the header of the batch, and lengths within the record.
const BATCH_OVERHEAD: usize = 61 + 5 * 6;
/// The lengths of one header's name and value, at most.
const HEADER_OVERHEAD: usize = 10;

/// Where the records of one subtask go.
pub(super) struct Sender {
    settings: Arc<Settings>,
    topics: Arc<Topics>,
    batch_size: usize,
    uid: String,
    split_table: SplitTable,
    metrics: Arc<TaskMetrics>,
    /// Topics that records went to, and their positions by name.
    targets: Vec<TopicInfo>,
    by_name: HashMap<Vec<u8>, usize>,
    /// The topic of the record at hand.
    name: Vec<u8>,
    /// The time of day when the batch at hand came, milliseconds since the Unix epoch.
    now: i64,
}

/// A producer, and the sender's topics as it knows them.
pub(super) struct Bound {
    pub(super) producer: Arc<Producer>,
    topics: Vec<Option<Topic>>,
}

impl Bound {
    pub(super) fn new(producer: Arc<Producer>) -> Self {
        Self { producer, topics: Vec::new() }
    }
}

/// Why a part of a batch is not in the producer's queue yet.
enum Stopped {
    /// All of it is.
    End,
    /// The queue is full.
    Full,
    /// It is to be asked for the topic in `name`, with more partitions than this.
    Unknown { partition: i32 },
    /// The client does not know a partition yet that is there.
    Stale,
    /// The record cannot be written, and no other try would change that.
    Rejected(String),
    /// The client takes nothing any more.
    Failed(Code),
}

/// Why a batch could not be sent.
#[derive(Debug)]
pub(super) enum SendError {
    /// An error of its own.
    Error(Error),
    /// The client takes nothing any more, and said so to this record.
    Client(Undelivered),
}

impl From<Error> for SendError {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl Sender {
    /// For one subtask, whose producer makes batches of at most so many bytes. A fixed topic is looked for at once.
    ///
    /// # Errors
    /// It is not there or takes only smaller batches, or nobody answers.
    pub(super) async fn open(
        settings: &Arc<Settings>,
        topics: &Arc<Topics>,
        batch_size: usize,
        context: &WriterContext,
    ) -> Result<Self, Error> {
        let mut sender = Self {
            settings: Arc::clone(settings),
            topics: Arc::clone(topics),
            batch_size,
            uid: context.uid.clone(),
            split_table: context.split_table.clone(),
            metrics: Arc::clone(&context.metrics),
            targets: Vec::new(),
            by_name: HashMap::new(),
            name: Vec::new(),
            now: 0,
        };
        if let Some(info) = sender.topics.fixed().await? {
            sender.check_batches(&info)?;
            sender.targets.push(info);
        }
        Ok(sender)
    }

    /// A broker refuses a batch that is too large, with all that is in it, however small.
    fn check_batches(&self, info: &TopicInfo) -> Result<(), Error> {
        if self.batch_size <= info.limit {
            return Ok(());
        }
        Err(Error::user(format!(
            "topic {} takes batches of {} bytes at most ({}), and they may have {} (batch.size): set properties: {{batch.size: {}}}",
            info.name, info.limit, info.limited_by, self.batch_size, info.limit
        )))
    }

    /// Puts all records of a batch into a producer's queue, and waits while that is full. `is_alive` is asked while it waits.
    ///
    /// # Errors
    /// A record that cannot be written, by the error policy; the client takes nothing any more; or `is_alive` says so.
    pub(super) async fn send(
        &mut self,
        bound: &mut Bound,
        batch: &Batch,
        is_alive: impl Fn() -> Result<(), Error>,
    ) -> Result<(), SendError> {
        self.now = now_millis();
        let (mut row, mut refreshes) = (0, 0);
        loop {
            match self.push(bound, batch, &mut row) {
                Stopped::End => return Ok(()),
                Stopped::Full => {
                    is_alive()?;
                    tokio::time::sleep(FULL_PAUSE).await;
                }
                Stopped::Unknown { partition } => {
                    if let Some(reason) = self.learn(partition).await? {
                        self.reject(batch, row, &reason)?;
                        row += 1;
                    }
                }
                Stopped::Stale => {
                    is_alive()?;
                    refreshes += 1;
                    self.refresh(bound, refreshes).await?;
                }
                Stopped::Rejected(reason) => {
                    self.reject(batch, row, &reason)?;
                    row += 1;
                }
                Stopped::Failed(code) => {
                    let topic = self.target().map(|target| self.targets[target].name.clone()).unwrap_or_default();
                    let origin = Some(batch.origins()[row]).filter(Origin::is_some);
                    return Err(SendError::Client(Undelivered { code, topic, partition: None, origin }));
                }
            }
        }
    }

    /// Puts records from `row` on into the queue, and stops at the first that is not there.
    fn push(&mut self, bound: &mut Bound, batch: &Batch, row: &mut usize) -> Stopped {
        while *row < batch.len() {
            if let Err(stopped) = self.push_one(bound, batch, *row) {
                return stopped;
            }
            *row += 1;
        }
        Stopped::End
    }

    fn push_one(&mut self, bound: &mut Bound, batch: &Batch, row: usize) -> Result<(), Stopped> {
        let record = batch.row(row);
        let partition = match &self.settings.partition_header {
            None => None,
            Some(header) => partition_of(batch, row, header).map_err(Stopped::Rejected)?,
        };
        self.find_name(batch, row).map_err(Stopped::Rejected)?;
        let unknown = Stopped::Unknown { partition: partition.unwrap_or(0) };
        let Some(target) = self.target() else { return Err(unknown) };
        let info = &self.targets[target];
        if partition.is_some_and(|partition| partition >= info.partitions) {
            return Err(unknown);
        }
        if let Some(reason) = self.unfit(info, batch, row) {
            return Err(Stopped::Rejected(reason));
        }
        let headers = batch.headers().row(row);
        let topic = bound.topic(target, &info.name).map_err(Stopped::Failed)?;
        let outgoing =
            Outgoing { key: record.key, value: record.value, partition, timestamp: record.timestamp.max(0), opaque: opaque(record.origin) };
        topic.produce(&outgoing, headers.map(|Header { name, value }| (name, value))).map_err(|code| match code {
            Code::QueueFull => Stopped::Full,
            Code::MessageSizeTooLarge => {
                Stopped::Rejected(format!("it is larger than the client's message.max.bytes allows for topic {}", info.name))
            }
            Code::UnknownPartition => Stopped::Stale,
            code => Stopped::Failed(code),
        })
    }

    /// Why the topic would not take a record. A broker refuses the whole batch that it is in, so that it is found out before.
    fn unfit(&self, info: &TopicInfo, batch: &Batch, row: usize) -> Option<String> {
        let record = batch.row(row);
        let size = record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
        let size = size + BATCH_OVERHEAD + batch.headers().row(row).map(size_of_header).sum::<usize>();
        let name = &info.name;
        if size > info.limit {
            return Some(format!(
                "it has {size} bytes as Kafka counts them, and topic {name} takes {} at most ({})",
                info.limit, info.limited_by
            ));
        }
        if info.is_compacted && record.key.is_none() {
            return Some(format!("it has no key, and topic {name} is compacted (cleanup.policy), by keys"));
        }
        let ahead = record.timestamp.saturating_sub(self.now);
        if record.timestamp > 0 && (ahead > info.ahead || ahead.saturating_neg() > info.behind) {
            return Some(format!(
                "its timestamp {} is further from now than topic {name} takes (message.timestamp.before.max.ms and .after.max.ms)",
                record.timestamp
            ));
        }
        None
    }

    /// Finds the name of the record's topic, where records have one.
    fn find_name(&mut self, batch: &Batch, row: usize) -> Result<(), String> {
        self.name.clear();
        match &self.settings.topic {
            TopicFrom::Name(_) => Ok(()),
            TopicFrom::Header(header) => {
                let value = last_header(batch, row, header).ok_or_else(|| format!("it has no header {header:?}, which names its topic"))?;
                self.name.extend_from_slice(value);
                Ok(())
            }
            TopicFrom::JsonPointer(pointer) => {
                let found = pointer.append_scalar(batch.value(row).unwrap_or_default(), &mut self.name);
                found.map_err(|fault| format!("its topic is not known: {fault}"))
            }
        }
    }

    /// The position of the topic whose name was found last.
    fn target(&self) -> Option<usize> {
        match &self.settings.topic {
            TopicFrom::Name(_) => Some(0),
            TopicFrom::Header(_) | TopicFrom::JsonPointer(_) => self.by_name.get(&self.name).copied(),
        }
    }

    /// Asks for the topic whose name was found last; a sentence when it, or the partition, is not there.
    async fn learn(&mut self, partition: i32) -> Result<Option<String>, Error> {
        let name = match &self.settings.topic {
            TopicFrom::Name(name) => name.clone(),
            _ => match std::str::from_utf8(&self.name) {
                Ok(name) => name.to_owned(),
                Err(_) => return Ok(Some(format!("{:?} is no name of a topic: it is not UTF-8", String::from_utf8_lossy(&self.name)))),
            },
        };
        let info = match self.topics.look(&name, partition).await? {
            Looked::There(info) => info,
            Looked::Missing(reason) => return Ok(Some(reason)),
        };
        if partition >= info.partitions {
            return Ok(Some(format!("topic {name} has no partition {partition}, only {}", info.partitions)));
        }
        self.check_batches(&info)?;
        match self.targets.iter().position(|known| known.name == name) {
            Some(target) => self.targets[target] = info,
            None => {
                self.by_name.insert(self.name.clone(), self.targets.len());
                self.targets.push(info);
            }
        }
        Ok(None)
    }

    /// Has the client ask for the partitions of the topic at hand.
    async fn refresh(&self, bound: &Bound, tries: u32) -> Result<(), Error> {
        let name = self.target().map(|target| self.targets[target].name.clone()).unwrap_or_default();
        if tries > MOST_REFRESHES {
            return Err(Error::external(format!("the Kafka client does not find all partitions of topic {name}")));
        }
        if tries > 1 {
            tokio::time::sleep(REFRESH_PAUSE).await;
        }
        let producer = Arc::clone(&bound.producer);
        let asked = tokio::task::spawn_blocking(move || {
            let asked = producer.client().client().fetch_metadata(Some(&name), REFRESH_TIME);
            asked.map(|_| ()).map_err(|failed| error::of(producer.context(), format!("topic {name}"), &failed))
        });
        asked.await.map_err(|failed| Error::internal("asking for a topic broke off").caused_by(failed))?
    }

    /// A record that cannot be written, by the error policy.
    fn reject(&self, batch: &Batch, row: usize, reason: &str) -> Result<(), Error> {
        let place = match self.split_table.place(batch.origins()[row]) {
            Some(place) => format!("the record at {place}"),
            None => "a record that no source read".to_owned(),
        };
        let sentence = format!("{place}, cannot be written: {reason}");
        match self.settings.on_error {
            OnError::Fail => Err(Error::user(sentence)),
            OnError::Skip => {
                let unwritten = self.metrics.unwritten();
                // Not each one: a stream of bad records must not become a stream of messages.
                if unwritten.is_power_of_two() {
                    tracing::warn!(uid = self.uid, unwritten, "left out, as on-error says: {sentence}");
                }
                Ok(())
            }
        }
    }
}

impl Bound {
    fn topic(&mut self, target: usize, name: &str) -> Result<&Topic, Code> {
        if self.topics.len() <= target {
            self.topics.resize_with(target + 1, || None);
        }
        let slot = &mut self.topics[target];
        match slot {
            Some(topic) => Ok(topic),
            None => Ok(slot.insert(self.producer.topic(name)?)),
        }
    }
}

fn size_of_header(header: Header<'_>) -> usize {
    HEADER_OVERHEAD + header.name.len() + header.value.map_or(0, <[u8]>::len)
}

/// The value of the last header of a name, as Kafka's own look-up has it; none where it is missing or null.
fn last_header<'b>(batch: &'b Batch, row: usize, name: &str) -> Option<&'b [u8]> {
    batch.headers().row(row).filter(|header| header.name == name).last()?.value
}

fn partition_of(batch: &Batch, row: usize, header: &str) -> Result<Option<i32>, String> {
    let Some(value) = last_header(batch, row, header) else { return Ok(None) };
    let number = std::str::from_utf8(value).ok().and_then(|text| text.trim().parse().ok()).filter(|number| *number >= 0);
    number.map(Some).ok_or_else(|| format!("its header {header:?}, which names its partition, holds {:?}", String::from_utf8_lossy(value)))
}

fn now_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
