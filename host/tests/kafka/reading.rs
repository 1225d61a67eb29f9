//! What a reader of a topic sees.

use super::broker::{Broker, PATIENCE};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Headers, Message};
use rdkafka::{Offset, TopicPartitionList};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A record as it stands in a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) partition: i32,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) timestamp: i64,
    pub(crate) headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Read {
    /// The value as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.value.clone().unwrap()).unwrap()
    }
}

impl Broker {
    /// All records of a topic that a reader with `read_committed` sees now, each partition's in order.
    pub(crate) fn committed(&self, topic: &str) -> Vec<Read> {
        self.read(topic, "read_committed")
    }

    /// The values among them, in order.
    pub(crate) fn committed_texts(&self, topic: &str) -> Vec<String> {
        self.committed(topic).iter().map(Read::text).collect()
    }

    /// All records of a topic that a reader with this isolation sees now.
    pub(crate) fn read(&self, topic: &str, isolation: &str) -> Vec<Read> {
        let mut config = self.client();
        config.set("group.id", "tests").set("enable.auto.commit", "false").set("enable.partition.eof", "true");
        config.set("isolation.level", isolation).set("fetch.wait.max.ms", "10");
        let consumer: BaseConsumer = config.create().unwrap();
        let metadata = consumer.fetch_metadata(Some(topic), PATIENCE).unwrap();
        let mut open: BTreeSet<i32> = metadata.topics()[0].partitions().iter().map(|partition| partition.id()).collect();
        let mut list = TopicPartitionList::new();
        for partition in &open {
            list.add_partition_offset(topic, *partition, Offset::Beginning).unwrap();
        }
        consumer.assign(&list).unwrap();
        let (mut read, deadline) = (Vec::new(), Instant::now() + PATIENCE);
        while !open.is_empty() {
            assert!(Instant::now() < deadline, "topic {topic} has no end: partitions {open:?}");
            match consumer.poll(Duration::from_millis(100)) {
                None => {}
                Some(Ok(message)) => read.push(Read {
                    partition: message.partition(),
                    key: message.key().map(<[u8]>::to_vec),
                    value: message.payload().map(<[u8]>::to_vec),
                    timestamp: message.timestamp().to_millis().unwrap(),
                    headers: message
                        .headers()
                        .map(|headers| headers.iter().map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec))).collect())
                        .unwrap_or_default(),
                }),
                Some(Err(KafkaError::PartitionEOF(partition))) => drop(open.remove(&partition)),
                Some(Err(error)) => panic!("{error}"),
            }
        }
        read.sort_by_key(|record| record.partition);
        read
    }

    /// Waits until a reader with `read_committed` sees so many records.
    pub(crate) fn wait_committed(&self, topic: &str, records: usize) -> Vec<Read> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let read = self.committed(topic);
            if read.len() >= records {
                return read;
            }
            assert!(Instant::now() < deadline, "{} records instead of {records}", read.len());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
