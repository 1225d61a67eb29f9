//! Where reading starts and ends.

use super::*;
use crate::broker::PATIENCE as BROKER_PATIENCE;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::producer::{BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};

/// Ten records at seconds 1 to 10, in partition 0.
fn ten(name: &str) -> String {
    let topic = broker().topic(name, 1);
    let producer = broker().producer(&[]);
    for second in 1..=10 {
        let value = second.to_string();
        producer.send(BaseRecord::<(), str>::to(&topic).partition(0).payload(&value).timestamp(second * 1000)).unwrap();
    }
    producer.flush(BROKER_PATIENCE).unwrap();
    topic
}

#[tokio::test]
async fn earliest_reads_all_of_all_topics() {
    let topics = [broker().topic("earliest", 3), broker().topic("earliest", 1)];
    for partition in 0..3 {
        broker().write(&topics[0], partition, [format!("a{partition}")]);
    }
    broker().write(&topics[1], 0, ["b0", "b1"]);
    let source = source(json!({"topics": topics, "bounded-mode": "latest-offset"}));
    let mut reading = Reading::start(&source).await;
    assert_eq!(reading.finish().await.sorted_values(), ["a0", "a1", "a2", "b0", "b1"]);
    assert_eq!(reading.records.iter().find(|record| record.text() == "b1").unwrap().offset, 1);
}

#[tokio::test]
async fn latest_reads_what_comes_afterwards() {
    let topic = ten("latest");
    let source = source(json!({"topics": topic, "startup-mode": "latest-offset"}));
    let splits = source.discover(&BTreeSet::new()).await.unwrap();
    broker().write(&topic, 0, ["after"]);
    let mut reading = Reading::open(&source, splits).await;
    assert_eq!(reading.until(1).await.values(), ["after"]);
}

#[tokio::test]
async fn a_timestamp_names_the_first_record_that_is_not_older() {
    let topic = ten("timestamp");
    let from = |start: Value| {
        let options = json!({"topics": topic, "startup-mode": "timestamp", "startup-timestamp": start, "bounded-mode": "latest-offset"});
        source(options)
    };
    assert_eq!(read(&from(json!(8000))).await, ["8", "9", "10"]);
    assert_eq!(read(&from(json!("1970-01-01T00:00:08.500Z"))).await, ["9", "10"]);
    assert_eq!(read(&from(json!(11_000))).await, [""; 0], "newer than all: from the end");
    let to = source(json!({"topics": topic, "bounded-mode": "timestamp", "bounded-timestamp": 3000}));
    assert_eq!(read(&to).await, ["1", "2"]);
}

#[tokio::test]
async fn specific_offsets_are_taken_and_partitions_without_one_read_from_their_beginning() {
    let topic = broker().topic("specific", 2);
    broker().write(&topic, 0, numbers(0..5));
    broker().write(&topic, 1, numbers(10..15));
    let options = json!({
        "topics": topic, "startup-mode": "specific-offsets", "startup-specific-offsets": {format!("{topic}-0"): 3},
        "bounded-mode": "specific-offsets", "bounded-specific-offsets": {format!("{topic}-0"): 4, format!("{topic}-1"): 2},
    });
    let mut reading = Reading::start(&source(options)).await;
    assert_eq!(reading.finish().await.sorted_values(), ["10", "11", "3"]);
    assert_eq!(reading.positions(), [4, 2]);
    let wrong = json!({"topics": topic, "startup-mode": "specific-offsets", "startup-specific-offsets": {format!("{topic}-7"): 3}});
    let error = source(wrong).discover(&BTreeSet::new()).await.unwrap_err();
    assert!(error.to_string().contains(&format!("{topic}-7")) && !error.retry_helps(), "{error}");
}

#[tokio::test]
async fn an_end_that_is_not_there_yet_is_waited_for() {
    let topic = broker().topic("later", 1);
    broker().write(&topic, 0, numbers(0..2));
    let options = json!({"topics": topic, "bounded-mode": "specific-offsets", "bounded-specific-offsets": {format!("{topic}-0"): 4}});
    let mut reading = Reading::start(&source(options)).await;
    reading.until(2).await;
    assert_eq!(reading.status, ReadStatus::Open);
    broker().write(&topic, 0, numbers(2..6));
    assert_eq!(reading.finish().await.values(), ["0", "1", "2", "3"]);
}

#[tokio::test]
async fn the_end_is_that_of_the_start() {
    let topic = ten("end");
    let source = bounded(&topic);
    let splits = source.discover(&BTreeSet::new()).await.unwrap();
    broker().write(&topic, 0, numbers(11..20));
    assert_eq!(Reading::open(&source, splits).await.finish().await.values(), numbers(1..11));
    let empty = broker().topic("empty", 3);
    let mut reading = Reading::start(&bounded(&empty)).await;
    assert_eq!(reading.finish().await.values(), [""; 0]);
    assert_eq!(reading.positions(), [0, 0, 0]);
}

#[tokio::test]
async fn group_offsets_are_those_that_the_group_has_committed() {
    let topic = broker().topic("group", 2);
    broker().write(&topic, 0, numbers(0..5));
    broker().write(&topic, 1, numbers(10..15));
    let group = format!("readers-of-{topic}");
    let consumer: BaseConsumer = broker().client().set("group.id", &group).create().unwrap();
    let mut offsets = TopicPartitionList::new();
    offsets.add_partition_offset(&topic, 0, Offset::Offset(4)).unwrap();
    consumer.commit(&offsets, CommitMode::Sync).unwrap();
    let options = |reset: Option<&str>| {
        let mut options =
            json!({"topics": topic, "startup-mode": "group-offsets", "bounded-mode": "latest-offset", "properties": {"group.id": group}});
        if let Some(reset) = reset {
            options["properties"]["auto.offset.reset"] = json!(reset);
        }
        source(options)
    };
    assert_eq!(Reading::start(&options(Some("earliest"))).await.finish().await.sorted_values(), ["10", "11", "12", "13", "14", "4"]);
    assert_eq!(Reading::start(&options(Some("latest"))).await.finish().await.sorted_values(), ["4"]);
    let error = options(None).discover(&BTreeSet::new()).await.unwrap_err();
    let sentence = format!("group {group} has committed no offset of partition {topic}-1");
    assert!(error.to_string().contains(&sentence) && !error.retry_helps(), "{error}");
}

#[tokio::test]
async fn a_pattern_fits_whole_names() {
    let topics = [broker().topic("pattern-a", 1), broker().topic("pattern-b", 1)];
    broker().write(&topics[0], 0, ["a"]);
    broker().write(&topics[1], 0, ["b"]);
    let pattern = |text: &str| source(json!({"topic-pattern": text, "bounded-mode": "latest-offset"}));
    assert_eq!(read(&pattern("pattern-[a].*")).await, ["a"]);
    let mut both = Reading::start(&pattern(&format!("{}|{}", topics[0], topics[1]))).await;
    assert_eq!(both.finish().await.sorted_values(), ["a", "b"]);
    let error = pattern("pattern").discover(&BTreeSet::new()).await.unwrap_err();
    assert!(error.to_string().contains("fits topic-pattern"), "{error}");
}
