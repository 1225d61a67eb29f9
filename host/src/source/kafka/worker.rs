//! The thread that reads the partitions of one subtask, ahead of the records that are asked for, straight into batches.

use super::lag::Progress;
use super::offsets;
use super::settings::Settings;
use super::splits::Reading;
use crate::Error;
use crate::kafka::ffi::{ConsumerQueue, Message, known_end};
use crate::kafka::service::Service;
use crate::kafka::{Consumer, TopicPartition, error};
use crate::record::{Batch, Header, Origin, Row};
use crate::source::BatchLimits;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::{Offset, TopicPartitionList};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How long the thread waits for a message before it looks for commands and troubles.
const POLL: Duration = Duration::from_millis(50);

/// Batches that are filled ahead: enough that neither side waits for the other. When they are full nothing is asked of the client any more,
/// whose own queue has a limit: that is the back-pressure.
const BATCHES_AHEAD: usize = 4;

/// How often the ends of partitions are looked up among what the last fetches told.
const END_INTERVAL: Duration = Duration::from_millis(200);

/// After how long without any message it is looked whether a topic is still there.
const QUIET: Duration = Duration::from_secs(10);

/// How long no broker at all may be reachable before reading fails and the restart strategy goes on.
const UNREACHABLE: Duration = Duration::from_secs(10);

/// How long one look takes whether a broker can be reached again.
const PROBE: Duration = Duration::from_secs(1);

/// A filled batch, and where its splits stand behind it.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) batch: Batch,
    pub(super) moved: Vec<Moved>,
}

/// A split that has moved on, by its index in the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) split: usize,
    pub(super) next: i64,
    pub(super) finished: bool,
}

/// What the thread tells its reader, in the order of reading.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "almost all are chunks: a box would be an allocation for each")]
pub(super) enum Event {
    /// Records, or only news of positions.
    Chunk(Chunk),
    /// Reading failed, and the thread has ended.
    Failed(Error),
}

/// A split for the thread to read, with its index in the reader.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) index: usize,
    pub(super) split: Reading,
}

/// The reader's end of the thread. The thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct Worker {
    commands: Sender<Vec<Task>>,
    spare: Sender<Chunk>,
    pub(super) events: mpsc::Receiver<Event>,
}

impl Worker {
    /// Starts the thread of a subtask.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn start(settings: Arc<Settings>, consumer: Arc<Consumer>, subtask: usize, limits: BatchLimits) -> Result<Self, Error> {
        let no_thread = |error: std::io::Error| Error::external("the system gives no thread to read Kafka with").caused_by(error);
        let (commands, command_queue) = channel();
        let (spare, spare_queue) = channel();
        let (event_queue, events) = mpsc::channel(BATCHES_AHEAD);
        let name = format!("{}-{subtask}", settings.uid);
        let service = Service::start(&name, Arc::clone(&consumer)).map_err(no_thread)?;
        let queue =
            ConsumerQueue::of(&consumer, limits.records).ok_or_else(|| Error::internal("the Kafka client has no queue of messages"))?;
        let thread = Thread {
            settings,
            limits,
            queue,
            taken: 0,
            consumer,
            _service: service,
            splits: Vec::new(),
            indices: Vec::new(),
            places: Places::default(),
            active: 0,
            ends_at: Instant::now(),
            quiet_until: Instant::now() + QUIET,
            checked: 0,
            group_refused: false,
            commands: command_queue,
            spare: spare_queue,
            events: event_queue,
        };
        // Nobody joins it: it ends by itself soon after its reader was dropped, and closes the client, which waits.
        thread::Builder::new().name(format!("kafka-{name}-read")).spawn(move || thread.run()).map_err(no_thread)?;
        Ok(Self { commands, spare, events })
    }

    /// Hands over splits to read. When the thread has ended it has said why.
    pub(super) fn add(&self, tasks: Vec<Task>) {
        let _ended = self.commands.send(tasks);
    }

    /// Gives a chunk back, to be filled again.
    pub(super) fn recycle(&self, mut chunk: Chunk) {
        chunk.batch.clear();
        chunk.moved.clear();
        let _ended = self.spare.send(chunk);
    }
}

struct Thread {
    settings: Arc<Settings>,
    limits: BatchLimits,
    /// With what was read last, and how much of that is in batches.
    queue: ConsumerQueue,
    taken: usize,
    consumer: Arc<Consumer>,
    _service: Service,
    splits: Vec<Reading>,
    /// The index in the reader of each split.
    indices: Vec<usize>,
    places: Places,
    /// How many splits are assigned to the client.
    active: usize,
    ends_at: Instant,
    /// When nothing will have come for so long that topics are looked after, and how many were.
    quiet_until: Instant,
    checked: usize,
    /// Whether it was said that the group may not be used.
    group_refused: bool,
    commands: Receiver<Vec<Task>>,
    spare: Receiver<Chunk>,
    events: mpsc::Sender<Event>,
}

/// Why the thread ends.
enum End {
    /// The reader was dropped.
    Gone,
    Failed(Error),
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Finds the split of a message by topic and partition.
#[derive(Default)]
struct Places {
    by_topic: HashMap<Arc<str>, HashMap<i32, usize>>,
    /// The last one found, among messages that are alive at one time: records of a partition come in runs.
    last: Option<(usize, i32, Option<usize>)>,
}

impl Places {
    fn add(&mut self, partition: &TopicPartition, split: usize) {
        self.by_topic.entry(Arc::clone(&partition.topic)).or_default().insert(partition.partition, split);
    }

    fn find(&mut self, message: Message<'_>) -> Option<usize> {
        let (topic, partition) = (message.topic_handle(), message.partition());
        if let Some((last_topic, last_partition, split)) = self.last
            && (last_topic, last_partition) == (topic, partition)
        {
            return split;
        }
        let found = message.topic().and_then(|topic| self.by_topic.get(topic)?.get(&partition).copied());
        self.last = Some((topic, partition, found));
        found
    }
}

impl Thread {
    fn run(mut self) {
        if let End::Failed(error) = self.read_all() {
            // The reader may be gone meanwhile.
            let _gone = self.events.blocking_send(Event::Failed(error));
        }
    }

    fn read_all(&mut self) -> End {
        loop {
            if let Err(end) = self.step() {
                return end;
            }
        }
    }

    fn step(&mut self) -> Result<(), End> {
        self.take_commands()?;
        if self.taken >= self.queue.len() {
            self.places.last = None;
            self.taken = 0;
            self.queue.read(POLL);
            if self.queue.len() == 0 {
                self.idle()?;
            } else {
                self.quiet_until = Instant::now() + QUIET;
            }
        }
        let mut chunk = self.spare.try_recv().unwrap_or_default();
        self.fill(&mut chunk)?;
        self.report(&mut chunk)?;
        self.look_up_ends();
        if chunk.batch.is_empty() && chunk.moved.is_empty() {
            return Ok(());
        }
        self.events.blocking_send(Event::Chunk(chunk)).map_err(|_| End::Gone)
    }

    /// Takes over new splits; waits for some while there is nothing to read.
    fn take_commands(&mut self) -> Result<(), End> {
        loop {
            let tasks = if self.active == 0 {
                self.commands.recv().map_err(|_| End::Gone)?
            } else {
                match self.commands.try_recv() {
                    Ok(tasks) => tasks,
                    Err(TryRecvError::Empty) => return Ok(()),
                    Err(TryRecvError::Disconnected) => return Err(End::Gone),
                }
            };
            let first = self.splits.len();
            for Task { index, split } in tasks {
                self.places.add(&split.partition, self.splits.len());
                self.splits.push(split);
                self.indices.push(index);
            }
            self.assign(first)?;
        }
    }

    /// Has the client read the splits from an index on.
    fn assign(&mut self, first: usize) -> Result<(), Error> {
        let new = &self.splits[first..];
        if new.is_empty() {
            return Ok(());
        }
        let list = list(new.iter().map(|split| (&split.partition, Offset::Offset(split.next))))?;
        self.active += new.len();
        self.consumer.incremental_assign(&list).map_err(|error| self.error("taking partitions to read", &error))
    }

    /// Moves messages into the batch until it is full or they are used up.
    fn fill(&mut self, chunk: &mut Chunk) -> Result<(), Error> {
        while let Some(message) = self.queue.get(self.taken) {
            let place = self.places.find(message);
            match (message.error(), place) {
                (None, None) => {}
                (None, Some(place)) => {
                    let split = &mut self.splits[place];
                    let offset = message.offset();
                    if split.stop.is_some_and(|stop| offset >= stop) {
                        split.advance(offset);
                    } else if !split.finished && offset >= split.next {
                        let bytes = message.key().map_or(0, <[u8]>::len) + message.value().map_or(0, <[u8]>::len);
                        if !self.limits.has_room(&chunk.batch, bytes) {
                            return Ok(());
                        }
                        append(&mut chunk.batch, message, split.number).map_err(|code| {
                            let TopicPartition { topic, partition } = &split.partition;
                            let doing = format!("reading the headers of topic {topic}, partition {partition}, offset {offset}");
                            error::of_code(self.consumer.context(), doing, code, None)
                        })?;
                        split.advance(offset + 1);
                    }
                }
                // The end, as of now: all that was before it has come, and gaps before it (control records, aborted and compacted ones) are gaps for
                // good. The client's `position` is no substitute: after this event it is one offset too far.
                (Some(Code::PartitionEOF), Some(place)) => self.splits[place].advance(message.offset()),
                (Some(Code::PartitionEOF), None) => {}
                (Some(code), place) => {
                    let text = message.error_text();
                    self.failed(code, place, &text)?;
                }
            }
            self.taken += 1;
        }
        Ok(())
    }

    /// An error that came in the place of a message.
    fn failed(&mut self, code: Code, place: Option<usize>, text: &str) -> Result<(), Error> {
        let Some(place) = place else { return self.failed_in_general(code, text) };
        let split = &self.splits[place];
        match code {
            _ if split.finished => Ok(()),
            Code::AutoOffsetReset | Code::OffsetOutOfRange | Code::LogTruncation => {
                let target = offsets::lost(&self.consumer, &self.settings.uid, split, self.settings.on_lost)?;
                self.go_on_at(place, target)
            }
            Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition => Err(gone(split)),
            code => {
                let doing =
                    format!("reading topic {}, partition {} at position {}", split.partition.topic, split.partition.partition, split.next);
                Err(error::of_code(self.consumer.context(), doing, code, Some(text)))
            }
        }
    }

    /// An error that belongs to no partition.
    fn failed_in_general(&mut self, code: Code, text: &str) -> Result<(), Error> {
        if code == Code::GroupAuthorizationFailed {
            // Groups only show how far the job is. Without one of the user's it is of no interest that there could be none.
            if let Some(group) = self.settings.group.as_ref().filter(|_| !std::mem::replace(&mut self.group_refused, true)) {
                tracing::warn!(
                    source = self.settings.uid,
                    "the user of this client may not use group {group}: its offsets are not committed"
                );
            }
            return Ok(());
        }
        // What cannot be reached is dealt with when nothing comes any more.
        if error::is_unreachable(code) || error::is_passing(code) {
            return Ok(());
        }
        Err(error::of_code(self.consumer.context(), format!("reading {}", self.settings.topics), code, Some(text)))
    }

    /// Lets the client read a split from another offset on.
    fn go_on_at(&mut self, place: usize, target: i64) -> Result<(), Error> {
        let split = &mut self.splits[place];
        split.next = target;
        split.advance(target);
        let list = list([(&split.partition, Offset::Offset(target))])?;
        let moved = self.consumer.incremental_unassign(&list).and_then(|()| self.consumer.incremental_assign(&list));
        moved.map_err(|error| self.error("going on at another offset", &error))
    }

    /// Notes in the chunk which splits have moved, and takes finished ones from the client.
    fn report(&mut self, chunk: &mut Chunk) -> Result<(), Error> {
        let mut done = Vec::new();
        for (split, index) in self.splits.iter_mut().zip(&self.indices) {
            if split.next != split.told || split.finished != split.told_finished {
                chunk.moved.push(Moved { split: *index, next: split.next, finished: split.finished });
                if split.finished && !split.told_finished {
                    done.push(split.partition.clone());
                }
                (split.told, split.told_finished) = (split.next, split.finished);
            }
        }
        if done.is_empty() {
            return Ok(());
        }
        self.active -= done.len();
        let list = list(done.iter().map(|partition| (partition, Offset::Invalid)))?;
        self.consumer.incremental_unassign(&list).map_err(|error| self.error("giving finished partitions back", &error))
    }

    /// Nothing came for a while: can the brokers still be reached, and are the topics still there?
    fn idle(&mut self) -> Result<(), Error> {
        let context = self.consumer.context();
        if let Some(refusal) = context.refusal() {
            return Err(error::of_trouble(context, format!("reading {}", self.settings.topics), &refusal));
        }
        if let Some(since) = context.all_down_since() {
            self.probe(since)?;
        }
        if Instant::now() >= self.quiet_until { self.check_topic() } else { Ok(()) }
    }

    /// No broker could be reached. If one can be by now, all is well: the client goes on by itself.
    fn probe(&self, since: Instant) -> Result<(), Error> {
        let topic = self.splits.iter().find(|split| !split.finished).map(|split| &*split.partition.topic);
        match self.consumer.fetch_metadata(topic, PROBE) {
            Ok(_) => self.consumer.context().reached(),
            Err(error) if since.elapsed() >= UNREACHABLE => return Err(self.error(&format!("reading {}", self.settings.topics), &error)),
            Err(_) => {}
        }
        Ok(())
    }

    /// Whether the next topic in turn is still there: the client waits for one that was deleted for ever, and says nothing.
    fn check_topic(&mut self) -> Result<(), Error> {
        self.quiet_until = Instant::now() + QUIET;
        let open: Vec<&Reading> = self.splits.iter().filter(|split| !split.finished).collect();
        self.checked += 1;
        let Some(split) = open.get(self.checked % open.len().max(1)) else { return Ok(()) };
        let topic = &*split.partition.topic;
        let Ok(metadata) = self.consumer.fetch_metadata(Some(topic), PROBE) else {
            // The client does not always say that it has lost all brokers.
            self.consumer.context().unreached();
            return Ok(());
        };
        match metadata.topics().first().and_then(|topic| topic.error()).map(Code::from) {
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic) => Err(gone(split)),
            Some(code @ Code::TopicAuthorizationFailed) => {
                Err(error::of_code(self.consumer.context(), format!("reading topic {topic}"), code, None))
            }
            _ => Ok(()),
        }
    }

    /// Takes over the ends of partitions, for those who watch the lag.
    fn look_up_ends(&mut self) {
        let now = Instant::now();
        if now < self.ends_at {
            return;
        }
        self.ends_at = now + END_INTERVAL;
        for split in self.splits.iter().filter(|split| !split.finished) {
            if let Some(end) = known_end(&self.consumer, &split.topic, split.partition.partition) {
                Progress::set_end(&split.progress, end);
            }
        }
    }

    fn error(&self, doing: &str, error: &KafkaError) -> Error {
        error::of(self.consumer.context(), doing, error)
    }
}

fn gone(split: &Reading) -> Error {
    let TopicPartition { topic, partition } = &split.partition;
    let message = format!("topic {topic}, partition {partition}, position {}: the topic was deleted", split.next);
    Error::user(format!("{message}: take it out of the job, or start the job afresh when there is a new one"))
}

fn append(batch: &mut Batch, message: Message<'_>, split: u32) -> Result<(), Code> {
    let row = batch.len();
    message.headers(|name, value| batch.headers_mut().push(row, Header { name, value }))?;
    // Offsets of records are not below 0.
    let origin = Origin { split, position: message.offset().unsigned_abs() };
    batch.push(Row { key: message.key(), value: message.value(), timestamp: message.timestamp(), origin });
    Ok(())
}

fn list<'a>(partitions: impl IntoIterator<Item = (&'a TopicPartition, Offset)>) -> Result<TopicPartitionList, Error> {
    let mut list = TopicPartitionList::new();
    for (partition, offset) in partitions {
        list.add_partition_offset(&partition.topic, partition.partition, offset)
            .map_err(|error| Error::internal(format!("partition {partition} cannot be read")).caused_by(error))?;
    }
    Ok(list)
}
