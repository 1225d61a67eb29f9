//! Readers of output topics, as those who use the output would read it.

use crate::process::PATIENCE;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use std::cell::{Cell, RefCell};
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
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", servers).set("isolation.level", isolation.level()).set("enable.auto.commit", "false");
    // Assigned partitions need no group, but the client asks for a name.
    config.set("group.id", "checks").set("enable.partition.eof", "true").set("fetch.queue.backoff.ms", "2").set("fetch.wait.max.ms", "20");
    let consumer: BaseConsumer = config.create().unwrap();
    let mut all = TopicPartitionList::new();
    for partition in 0..partitions {
        all.add_partition_offset(topic, i32::try_from(partition).unwrap(), Offset::Beginning).unwrap();
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

/// Nothing of a topic waits for the end of a transaction.
#[track_caller]
pub(crate) fn assert_nothing_open(servers: &str, topic: &str, partitions: usize) {
    let end = |isolation, partition| {
        consumer(servers, topic, partitions, isolation).fetch_watermarks(topic, partition, Duration::from_secs(30)).unwrap().1
    };
    for partition in 0..i32::try_from(partitions).unwrap() {
        let (stable, end) = (end(Isolation::Committed, partition), end(Isolation::Uncommitted, partition));
        assert_eq!(stable, end, "a transaction is open in partition {partition} of {topic}");
    }
}

fn text(message: &impl Message) -> String {
    String::from_utf8(message.payload().unwrap_or_default().to_vec()).unwrap()
}

/// A `read_committed` reader that is there all the time, and counts.
pub(crate) struct Follower {
    consumer: RefCell<Option<BaseConsumer>>,
    servers: String,
    topic: String,
    partitions: usize,
    seen: Cell<usize>,
}

impl Follower {
    pub(crate) fn new(servers: &str, topic: &str, partitions: usize) -> Self {
        Self { consumer: RefCell::default(), servers: servers.to_owned(), topic: topic.to_owned(), partitions, seen: Cell::new(0) }
    }

    /// How many records it has seen so far.
    pub(crate) fn seen(&self) -> usize {
        let mut consumer = self.consumer.borrow_mut();
        let consumer = consumer.get_or_insert_with(|| consumer_of(self));
        let mut wait = Duration::from_millis(5);
        while let Some(polled) = consumer.poll(wait) {
            self.seen.set(self.seen.get() + usize::from(polled.is_ok()));
            wait = Duration::ZERO;
        }
        self.seen.get()
    }
}

fn consumer_of(follower: &Follower) -> BaseConsumer {
    consumer(&follower.servers, &follower.topic, follower.partitions, Isolation::Committed)
}
