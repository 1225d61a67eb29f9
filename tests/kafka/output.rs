//! Readers of output topics, as those who use the output would read it.

use crate::process::PATIENCE;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use std::cell::RefCell;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// The values of a topic, for each partition in its order.
pub(crate) type Partitions = Vec<Vec<String>>;

/// What a reader sees of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isolation {
    Committed,
    Uncommitted,
}

impl Isolation {
    fn level(self) -> &'static str {
        match self {
            Self::Committed => "read_committed",
            Self::Uncommitted => "read_uncommitted",
        }
    }
}

fn consumer(servers: &str, topic: &str, partitions: usize, isolation: Isolation) -> BaseConsumer {
    consumer_from(servers, topic, &vec![0; partitions], isolation)
}

/// A reader of all partitions, each from an offset on.
fn consumer_from(servers: &str, topic: &str, offsets: &[i64], isolation: Isolation) -> BaseConsumer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", servers).set("isolation.level", isolation.level()).set("enable.auto.commit", "false");
    // Assigned partitions need no group, but the client asks for a name.
    config.set("group.id", "checks").set("enable.partition.eof", "true").set("fetch.queue.backoff.ms", "2").set("fetch.wait.max.ms", "20");
    let consumer: BaseConsumer = config.create().unwrap();
    let mut all = TopicPartitionList::new();
    for (partition, offset) in offsets.iter().enumerate() {
        all.add_partition_offset(topic, i32::try_from(partition).unwrap(), Offset::Offset(*offset)).unwrap();
    }
    consumer.assign(&all).unwrap();
    consumer
}

/// Everything that a new reader finds in a topic, up to where it would have to wait.
pub(crate) fn read(servers: &str, topic: &str, partitions: usize, isolation: Isolation) -> Partitions {
    let consumer = consumer(servers, topic, partitions, isolation);
    let mut values = vec![Vec::new(); partitions];
    let mut ended = HashSet::new();
    let began = Instant::now();
    while ended.len() < partitions {
        assert!(began.elapsed() < PATIENCE, "the end of {topic} was not reached");
        match consumer.poll(Duration::from_millis(100)) {
            None => {}
            Some(Ok(message)) => values[usize::try_from(message.partition()).unwrap()].push(text(&message)),
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                ended.insert(partition);
            }
            // The client tries again by itself; patience is bounded above.
            Some(Err(_)) => {}
        }
    }
    values
}

/// How long a commit may take to become visible.
const SETTLING: Duration = Duration::from_secs(10);

/// Nothing of a topic waits for the end of a transaction. Brokers answer to a commit a little before it is visible.
#[track_caller]
pub(crate) fn assert_nothing_open(servers: &str, topic: &str, partitions: usize) {
    let end = |isolation, partition| {
        let began = Instant::now();
        loop {
            let found = consumer(servers, topic, partitions, isolation).fetch_watermarks(topic, partition, Duration::from_secs(30));
            match found {
                Ok((_, end)) => return end,
                Err(error) => assert!(began.elapsed() < PATIENCE, "the end of {topic}, partition {partition}: {error}"),
            }
        }
    };
    for partition in 0..i32::try_from(partitions).unwrap() {
        let began = Instant::now();
        while end(Isolation::Committed, partition) != end(Isolation::Uncommitted, partition) {
            assert!(began.elapsed() < SETTLING, "a transaction is open in partition {partition} of {topic}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn text(message: &impl Message) -> String {
    String::from_utf8(message.payload().unwrap_or_default().to_vec()).unwrap()
}

/// A `read_committed` reader that is there all the time, and counts.
pub(crate) struct Follower {
    servers: String,
    topic: String,
    reading: RefCell<Reading>,
}

struct Reading {
    consumer: Option<BaseConsumer>,
    /// Where it goes on in each partition.
    next: Vec<i64>,
    seen: usize,
    /// When something came last, or the consumer was made.
    heard: Instant,
}

/// After how long without a record another client reads on: one may lose sight of all brokers for good.
const QUIET: Duration = Duration::from_secs(15);

impl Follower {
    pub(crate) fn new(servers: &str, topic: &str, partitions: usize) -> Self {
        let reading = Reading { consumer: None, next: vec![0; partitions], seen: 0, heard: Instant::now() };
        Self { servers: servers.to_owned(), topic: topic.to_owned(), reading: RefCell::new(reading) }
    }

    /// How many records it has seen so far.
    pub(crate) fn seen(&self) -> usize {
        let Reading { consumer, next, seen, heard } = &mut *self.reading.borrow_mut();
        let reader = consumer.get_or_insert_with(|| {
            *heard = Instant::now();
            consumer_from(&self.servers, &self.topic, next, Isolation::Committed)
        });
        let mut wait = Duration::from_millis(5);
        while let Some(polled) = reader.poll(wait) {
            if let Ok(message) = polled {
                next[usize::try_from(message.partition()).unwrap()] = message.offset() + 1;
                (*seen, *heard) = (*seen + 1, Instant::now());
            }
            wait = Duration::ZERO;
        }
        if heard.elapsed() >= QUIET {
            *consumer = None;
        }
        *seen
    }
}
