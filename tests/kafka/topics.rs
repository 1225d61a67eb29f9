//! What this suite does to topics and groups, beside what the fixture of the broker offers.

use crate::broker::{Broker, PATIENCE};
use crate::process;
use futures::executor::block_on;
use rdkafka::admin::{AdminOptions, AlterConfig, ResourceSpecifier};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{Offset, TopicPartitionList};
use std::time::{Duration, Instant};

/// Waits until something holds; generous, for machines that are busy.
#[track_caller]
pub(crate) fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < process::PATIENCE, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether there is a topic of this name.
pub(crate) fn exists(broker: &Broker, topic: &str) -> bool {
    let metadata = broker.admin().inner().fetch_metadata(None, PATIENCE).unwrap();
    metadata.topics().iter().any(|found| found.name() == topic && !found.partitions().is_empty())
}

/// Makes a topic, and waits until all of its partitions answer.
pub(crate) fn create(broker: &Broker, topic: &str, partitions: usize) {
    let partitions = i32::try_from(partitions).unwrap();
    broker.create_topic(topic, partitions, &[]);
    let consumer: BaseConsumer = broker.client().create().unwrap();
    let answers = |partition| consumer.fetch_watermarks(topic, partition, PATIENCE).is_ok();
    wait_for("the topic was there", || (0..partitions).all(answers));
}

/// Deletes a topic, and waits until it is gone.
pub(crate) fn delete(broker: &Broker, topic: &str) {
    broker.delete_topic(topic);
    wait_for("the topic was gone", || !exists(broker, topic));
}

/// Deletes all records that a partition has now, as happens to a compacted topic when somebody changes its policy.
pub(crate) fn empty(broker: &Broker, topic: &str, partition: i32) {
    set_policy(broker, topic, "delete");
    let patient = AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE));
    let consumer: BaseConsumer = broker.client().set("isolation.level", "read_uncommitted").create().unwrap();
    let (_, end) = consumer.fetch_watermarks(topic, partition, PATIENCE).unwrap();
    let mut before = TopicPartitionList::new();
    before.add_partition_offset(topic, partition, Offset::Offset(end)).unwrap();
    for element in block_on(broker.admin().delete_records(&before, &patient)).unwrap().elements() {
        element.error().unwrap();
    }
    assert_eq!(consumer.fetch_watermarks(topic, partition, PATIENCE).unwrap(), (end, end));
    set_policy(broker, topic, "compact");
}

fn set_policy(broker: &Broker, topic: &str, policy: &str) {
    let options = AdminOptions::new().request_timeout(Some(PATIENCE));
    let policy = AlterConfig::new(ResourceSpecifier::Topic(topic)).set("cleanup.policy", policy);
    for altered in block_on(broker.admin().alter_configs([&policy], &options)).unwrap() {
        altered.unwrap();
    }
}

/// The offset that a group has committed for a partition.
pub(crate) fn group_offset(broker: &Broker, group: &str, topic: &str, partition: i32) -> Option<i64> {
    let consumer: BaseConsumer = broker.client().set("group.id", group).create().unwrap();
    let mut wanted = TopicPartitionList::new();
    wanted.add_partition(topic, partition);
    let began = Instant::now();
    let committed = loop {
        match consumer.committed_offsets(wanted.clone(), PATIENCE) {
            Ok(committed) => break committed,
            // A coordinator that is loading says so, and must be asked again.
            Err(error) => assert!(began.elapsed() < process::PATIENCE, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    match committed.elements()[0].offset() {
        Offset::Offset(offset) => Some(offset),
        _ => None,
    }
}

/// Moves the offset of a group, as somebody with a tool could.
pub(crate) fn move_group_offset(broker: &Broker, group: &str, topic: &str, partition: i32, offset: i64) {
    let consumer: BaseConsumer = broker.client().set("group.id", group).create().unwrap();
    let mut wanted = TopicPartitionList::new();
    wanted.add_partition_offset(topic, partition, Offset::Offset(offset)).unwrap();
    consumer.commit(&wanted, rdkafka::consumer::CommitMode::Sync).unwrap();
}
