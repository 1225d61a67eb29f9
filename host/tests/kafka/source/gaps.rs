//! Offsets without records: control records, aborted transactions, compaction.

use super::*;
use crate::broker::{PATIENCE as BROKER_PATIENCE, send};
use rdkafka::producer::{BaseRecord, Producer};

fn uncommitted(topic: &str) -> Arc<dyn Source> {
    source(json!({"topics": topic, "bounded-mode": "latest-offset", "isolation-level": "read_uncommitted"}))
}

#[tokio::test]
async fn a_bounded_read_ends_behind_control_records() {
    let topic = broker().topic("control", 1);
    broker().write_transaction(&topic, 0, ["a", "b"], true);
    let mut reading = Reading::start(&bounded(&topic)).await;
    assert_eq!(reading.finish().await.values(), ["a", "b"]);
    assert_eq!(reading.positions(), [3], "behind the control record");
    let mut again = Reading::open(&bounded(&topic), reading.reader.positions()).await;
    assert_eq!(again.finish().await.values(), [""; 0]);
}

#[tokio::test]
async fn aborted_records_are_left_out_and_the_read_ends_behind_them() {
    let topic = broker().topic("aborted", 1);
    broker().write_transaction(&topic, 0, ["a"], true);
    broker().write_transaction(&topic, 0, ["lost"], false);
    broker().write_transaction(&topic, 0, ["b"], true);
    broker().write_transaction(&topic, 0, numbers(0..300), false);
    assert_eq!(read(&bounded(&topic)).await, ["a", "b"]);
    let all = read(&uncommitted(&topic)).await;
    assert_eq!((all.len(), all[1].as_str()), (303, "lost"));
    let only = broker().topic("only-aborted", 2);
    broker().write_transaction(&only, 0, numbers(0..50), false);
    let started = std::time::Instant::now();
    let mut reading = Reading::start(&bounded(&only)).await;
    assert_eq!(reading.finish().await.values(), [""; 0]);
    assert_eq!(reading.positions(), [51, 0]);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[tokio::test]
async fn positions_pass_gaps_at_the_end_also_without_a_bound() {
    let topic = broker().topic("tail", 1);
    broker().write_transaction(&topic, 0, ["a"], true);
    broker().write_transaction(&topic, 0, numbers(0..9), false);
    let mut reading = Reading::start(&source(json!({"topics": topic}))).await;
    reading.until(1).await;
    reading.wait_for("the position is behind the gap", |reading| reading.positions() == [12]).await;
    assert_eq!(reading.reader.pending_records(), Some(0));
    broker().write(&topic, 0, ["b"]);
    assert_eq!(reading.until(2).await.records[1].offset, 12);
}

#[tokio::test]
async fn open_transactions_are_waited_for_unless_all_is_read() {
    let topic = broker().topic("open", 1);
    broker().write(&topic, 0, ["before"]);
    let producer = broker().begin_transaction(&topic);
    send(&producer, &topic, 0, ["inside"]);
    producer.flush(BROKER_PATIENCE).unwrap();
    broker().write(&topic, 0, ["behind"]);
    assert_eq!(read(&bounded(&topic)).await, ["before"], "the end is that of what is decided");
    assert_eq!(read(&uncommitted(&topic)).await, ["before", "inside", "behind"]);
    let mut reading = Reading::start(&source(json!({"topics": topic}))).await;
    reading.until(1).await;
    producer.commit_transaction(BROKER_PATIENCE).unwrap();
    assert_eq!(reading.until(3).await.values(), ["before", "inside", "behind"]);
}

#[tokio::test]
async fn a_compacted_topic_is_read_to_its_end() {
    let config =
        [("cleanup.policy", "compact"), ("segment.ms", "100"), ("min.cleanable.dirty.ratio", "0.01"), ("max.compaction.lag.ms", "200")];
    let topic = broker().topic_with("compacted", 1, &config);
    let producer = broker().producer(&[]);
    let write = |key: &str, value: Option<&str>| {
        let mut record = BaseRecord::<str, str>::to(&topic).partition(0).key(key);
        if let Some(value) = value {
            record = record.payload(value);
        }
        producer.send(record).unwrap();
        producer.flush(BROKER_PATIENCE).unwrap();
    };
    for round in 0..20 {
        for key in ["a", "b", "c"] {
            write(key, Some(&format!("{key}{round}")));
        }
        if round % 5 == 4 {
            // A segment is rolled by the first record after its time.
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    }
    write("a", None);
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        let mut reading = Reading::start(&bounded(&topic)).await;
        reading.finish().await;
        assert_eq!(reading.positions(), [61]);
        assert!(reading.records.is_sorted_by_key(|record| record.offset));
        let last = reading.records.last().unwrap();
        assert_eq!((last.key.as_deref(), last.value.as_deref()), (Some(b"a".as_slice()), None), "the tombstone");
        if reading.records.len() < 61 {
            assert_eq!(reading.records[reading.records.len() - 2].text(), "c19");
            break;
        }
        assert!(tokio::time::Instant::now() < end, "the broker did not compact");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}
