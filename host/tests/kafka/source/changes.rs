//! What changes while a topic is read: partitions, topics, positions, groups.

use super::*;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{Offset, TopicPartitionList};

#[tokio::test]
async fn new_partitions_are_read_from_their_beginning() {
    let topic = broker().topic("growing", 1);
    broker().write(&topic, 0, ["old"]);
    let source = source(json!({"topics": topic, "startup-mode": "latest-offset", "partition-discovery-interval": "100 ms"}));
    assert_eq!(source.discovery_interval(), Some(Duration::from_millis(100)));
    let mut reading = Reading::start(&source).await;
    assert_eq!(reading.discover().await, 0);
    broker().grow(&topic, 3);
    broker().write(&topic, 2, ["new"]);
    let found = async {
        let mut found = 0;
        while found < 2 {
            found += reading.discover().await;
        }
        found
    };
    assert_eq!(tokio::time::timeout(PATIENCE, found).await.unwrap(), 2);
    broker().write(&topic, 0, ["later"]);
    assert_eq!(reading.until(2).await.sorted_values(), ["later", "new"]);
}

#[tokio::test]
async fn new_topics_of_a_pattern_are_read_from_their_beginning() {
    let source = source(json!({"topic-pattern": "appearing-.*", "startup-mode": "latest-offset"}));
    let mut reading = Reading::start(&source).await;
    assert!(reading.positions().is_empty());
    let topic = broker().topic("appearing", 1);
    broker().write(&topic, 0, ["first"]);
    while reading.discover().await == 0 {}
    assert_eq!(reading.until(1).await.values(), ["first"]);
}

#[tokio::test]
async fn reading_goes_on_at_a_position() {
    let topic = broker().topic("resume", 2);
    broker().write(&topic, 0, numbers(0..1_000));
    broker().write(&topic, 1, numbers(0..1_000));
    let source = source(json!({"topics": topic}));
    let mut first = Reading::start(&source).await;
    while first.records.len() < 700 {
        first.try_next().await.unwrap();
    }
    let positions = first.reader.positions();
    let mut values: Vec<(String, u64)> = first.records.iter().map(|record| (record.split.clone(), record.offset)).collect();
    drop(first);
    let mut second = Reading::open(&source, positions).await;
    second.until(2_000 - values.len()).await;
    values.extend(second.records.iter().map(|record| (record.split.clone(), record.offset)));
    for partition in 0..2 {
        let name = format!("{topic}-{partition}");
        let offsets: Vec<u64> = values.iter().filter(|(split, _)| *split == name).map(|(_, offset)| *offset).collect();
        assert_eq!(offsets, (0..1_000).collect::<Vec<u64>>());
    }
}

#[tokio::test]
async fn the_lag_of_every_partition_is_known() {
    let topic = broker().topic("lag", 2);
    broker().write(&topic, 0, numbers(0..10));
    let source = source(json!({"topics": topic}));
    let mut reading = Reading::start(&source).await;
    let lag = reading.reader.split_lag().unwrap();
    reading.until(10).await;
    reading.wait_for("nothing is pending", |reading| reading.reader.pending_records() == Some(0)).await;
    let mut splits = lag();
    splits.sort();
    assert_eq!(splits, [(format!("{topic}-0"), 0), (format!("{topic}-1"), 0)]);
    // The thread reads ahead, and what nobody takes over waits.
    broker().write(&topic, 1, numbers(0..100));
    let end = tokio::time::Instant::now() + PATIENCE;
    while reading.reader.pending_records() != Some(100) {
        assert!(tokio::time::Instant::now() < end, "{:?}", reading.reader.pending_records());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(lag()[1], (format!("{topic}-1"), 100));
    reading.until(110).await;
    reading.wait_for("nothing is pending", |reading| reading.reader.pending_records() == Some(0)).await;
}

fn committed(group: &str, topic: &str, partitions: i32) -> Vec<Option<i64>> {
    let consumer: BaseConsumer = broker().client().set("group.id", group).create().unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition_range(topic, 0, partitions - 1);
    let offsets = consumer.committed_offsets(list, PATIENCE).unwrap();
    let offset = |offset: Offset| if let Offset::Offset(offset) = offset { Some(offset) } else { None };
    offsets.elements().iter().map(|element| offset(element.offset())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_hears_of_completed_checkpoints() {
    let topic = broker().topic("commits", 2);
    broker().write(&topic, 0, numbers(0..10));
    let group = format!("watchers-of-{topic}");
    let source = source(json!({"topics": topic, "properties": {"group.id": group}}));
    let mut reading = Reading::start(&source).await;
    reading.until(10).await;
    assert_eq!(committed(&group, &topic, 2), [None, None], "before a checkpoint nothing is told");
    let positions = reading.reader.positions();
    broker().write(&topic, 0, ["more"]);
    reading.until(11).await;
    reading.reader.on_completed(&positions).await.unwrap();
    let end = tokio::time::Instant::now() + PATIENCE;
    while committed(&group, &topic, 2) != [Some(10), Some(0)] {
        assert!(tokio::time::Instant::now() < end, "{:?}", committed(&group, &topic, 2));
    }
    let without = super::source(json!({"topics": topic}));
    let mut reading = Reading::start(&without).await;
    reading.until(11).await;
    reading.reader.on_completed(&reading.reader.positions()).await.unwrap();
    reading.pause().await;
    assert_eq!(committed("waterwheel-in", &topic, 2), [None, None], "without a group nobody is told");
}

#[tokio::test]
async fn a_reader_that_is_not_asked_reads_only_so_far_ahead() {
    let topic = broker().topic("pressure", 1);
    let value = "x".repeat(100_000);
    broker().write(&topic, 0, (0..400).map(|_| value.as_str()));
    let options = json!({"topics": topic, "bounded-mode": "latest-offset", "properties": {"queued.max.messages.kbytes": 2048}});
    let mut reading = Reading::start(&source(options)).await;
    reading.try_next().await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(reading.records.len() < 3, "a batch is 64 KiB");
    reading.finish().await;
    assert_eq!(reading.records.len(), 400);
}
