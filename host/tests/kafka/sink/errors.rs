//! What cannot be written, and where it cannot be written to: one sentence each, and whether trying again can help.

use super::*;
use std::net::TcpListener;

/// The error of a sink that is looked at before a start.
async fn refused(options: &Value) -> Error {
    sink(options, Guarantee::AtLeastOnce).verify().await.unwrap_err()
}

#[tokio::test]
async fn a_missing_topic_is_named() {
    let error = refused(&json!({"topic": "no-such-topic"})).await;
    assert!(!error.retry_helps());
    assert!(error.to_string().contains("topic no-such-topic does not exist") && error.to_string().contains("create-topics"), "{error}");
    // Nobody has made it by asking.
    assert!(!broker().tool(&["topics", "--list"]).contains("no-such-topic"));
}

#[tokio::test]
async fn a_broker_that_does_not_answer_is_tried_again() {
    // A port that nobody listens at any more.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = refused(&json!({"topic": "t", "bootstrap-servers": format!("127.0.0.1:{port}")})).await;
    assert!(error.retry_helps() && error.to_string().contains(&format!("no broker of 127.0.0.1:{port} answers")), "{error}");
}

fn large(bytes: usize) -> Vec<u8> {
    // Nothing that compresses well.
    (0..bytes).map(|index| (index.wrapping_mul(2_654_435_761) >> 7) as u8).collect()
}

/// A batch with a record in the middle that is too large, which came from an offset.
fn with_large(table: &SplitTable, bytes: usize) -> Batch {
    let mut batch = texts(&["before"]);
    let origin = Origin { split: table.number("in", "orders-3"), position: 42 };
    batch.push(Row { key: Some(b"k"), value: Some(&large(bytes)), timestamp: 0, origin });
    batch.append(&texts(&["after"]));
    batch
}

#[tokio::test]
async fn a_record_that_is_too_large_is_named_with_its_source() {
    let topic = broker().topic_with("small", 1, &[("max.message.bytes", "10000")]);
    let sink = sink(&json!({"topic": topic}), Guarantee::AtLeastOnce);
    let shared = Shared::default();
    let mut writer = shared.writer(&*sink).await.unwrap();
    let error = writer.write(&with_large(&shared.split_table, 10_000)).await.unwrap_err();
    let sentence = error.to_string();
    assert!(!error.retry_helps());
    for words in ["source in, split orders-3, position 42", &topic, "takes 10000 at most", "max.message.bytes"] {
        assert!(sentence.contains(words), "{sentence}");
    }
}

#[tokio::test]
async fn records_that_are_too_large_can_be_left_out() {
    let small = broker().topic_with("skipped", 1, &[("max.message.bytes", "10000")]);
    let normal = broker().topic("skipped-by-the-client", 1);
    for (topic, bytes) in [(&small, 10_000), (&normal, 1_000_000)] {
        for guarantee in [Guarantee::None, Guarantee::AtLeastOnce] {
            let sink = sink(&json!({"topic": topic, "on-error": "skip"}), guarantee);
            let shared = Shared::default();
            let mut writer = shared.writer(&*sink).await.unwrap();
            writer.write(&with_large(&shared.split_table, bytes)).await.unwrap();
            writer.flush().await.unwrap();
            assert_eq!(shared.metrics.reading().unwritten_records, 1);
        }
        assert_eq!(broker().committed_texts(topic), ["before", "after", "before", "after"]);
    }
}

#[tokio::test]
async fn a_record_as_large_as_can_be_is_written() {
    let topic = broker().topic_with("brim", 1, &[("max.message.bytes", "10000")]);
    let properties = json!({"compression.type": "none"});
    let sink = sink(&json!({"topic": topic, "on-error": "skip", "properties": properties}), Guarantee::AtLeastOnce);
    let shared = Shared::default();
    let mut writer = shared.writer(&*sink).await.unwrap();
    // With the rest of what Kafka counts around it.
    writer.write(&with_large(&shared.split_table, 10_000 - 92)).await.unwrap();
    writer.flush().await.unwrap();
    assert_eq!((shared.metrics.reading().unwritten_records, broker().committed(&topic).len()), (0, 3));
}

#[tokio::test]
async fn a_record_of_a_megabyte_is_written_where_that_is_allowed() {
    let topic = broker().topic_with("large", 1, &[("max.message.bytes", "3000000")]);
    let sink = sink(&json!({"topic": topic, "properties": {"message.max.bytes": 2_000_000}}), Guarantee::AtLeastOnce);
    let mut writer = Shared::default().writer(&*sink).await.unwrap();
    writer.write(&with_large(&SplitTable::default(), 1 << 20)).await.unwrap();
    writer.flush().await.unwrap();
    assert_eq!(broker().committed(&topic)[1].value, Some(large(1 << 20)));
}

#[tokio::test]
async fn what_a_record_names_has_to_be_there() {
    let topic = broker().topic("named", 2);
    let mut batch = Batch::default();
    let mut push = |headers: &[(&str, Option<&[u8]>)]| {
        batch.push(Row { key: None, value: Some(b"x"), timestamp: 0, origin: Origin::NONE });
        with_headers(&mut batch, headers);
    };
    let there = Some(topic.as_bytes());
    push(&[("topic", there), ("partition", Some(b"2"))]);
    push(&[("topic", there), ("partition", Some(b"-1"))]);
    push(&[("topic", there), ("partition", Some(b"one"))]);
    push(&[("topic", Some(b"not-there"))]);
    push(&[("topic", Some(b"__consumer_offsets"))]);
    push(&[("topic", Some(b"\xff"))]);
    push(&[("partition", Some(b"1"))]);
    push(&[("topic", there), ("partition", Some(b"1"))]);
    let options = |on_error: &str| json!({"topic": {"header": "topic"}, "partition": {"header": "partition"}, "on-error": on_error});
    let shared = Shared::default();
    let mut writer = shared.writer(&*sink(&options("skip"), Guarantee::AtLeastOnce)).await.unwrap();
    writer.write(&batch).await.unwrap();
    writer.flush().await.unwrap();
    assert_eq!(shared.metrics.reading().unwritten_records, 7);
    assert_eq!(broker().committed(&topic).iter().map(|record| record.partition).collect::<Vec<_>>(), [1]);
    let reasons = [
        &format!("topic {topic} has no partition 2, only 2"),
        "holds \"-1\"",
        "holds \"one\"",
        "topic not-there does not exist",
        "\"__consumer_offsets\" is no name of a topic to write to",
        "not UTF-8",
        "it has no header \"topic\"",
    ];
    for (row, reason) in reasons.into_iter().enumerate() {
        let mut writer = shared.writer(&*sink(&options("fail"), Guarantee::AtLeastOnce)).await.unwrap();
        let error = writer.write(&batch.slice(row..row + 1)).await.unwrap_err();
        assert!(!error.retry_helps() && error.to_string().contains(reason), "{error}");
    }
}

#[tokio::test]
async fn what_a_topic_does_not_take_is_found_before() {
    let compacted = broker().topic_with("compacted", 1, &[("cleanup.policy", "compact")]);
    let punctual = broker().topic_with("punctual", 1, &[("message.timestamp.before.max.ms", "3600000")]);
    let mut batch = texts(&["without a key"]);
    batch.push(Row { key: Some(b"k"), value: Some(b"old"), timestamp: 1_000_000, origin: Origin::NONE });
    batch.push(Row { key: Some(b"k"), value: Some(b"right"), timestamp: 0, origin: Origin::NONE });
    for (topic, expected) in [(compacted, vec!["old", "right"]), (punctual, vec!["without a key", "right"])] {
        let shared = Shared::default();
        let mut writer = shared.writer(&*sink(&json!({"topic": topic, "on-error": "skip"}), Guarantee::AtLeastOnce)).await.unwrap();
        writer.write(&batch).await.unwrap();
        writer.flush().await.unwrap();
        assert_eq!(shared.metrics.reading().unwritten_records, 1);
        assert_eq!(broker().committed_texts(&topic), expected);
    }
}

#[tokio::test]
async fn a_partition_that_was_added_meanwhile_is_found() {
    let topic = broker().topic("growing", 1);
    let sink = sink(&json!({"topic": topic, "partition": {"header": "to"}}), Guarantee::AtLeastOnce);
    let mut writer = Shared::default().writer(&*sink).await.unwrap();
    writer.write(&texts(&["first"])).await.unwrap();
    writer.flush().await.unwrap();
    broker().grow(&topic, 2);
    // What is known of a topic counts for a while.
    tokio::time::sleep(Duration::from_secs(11)).await;
    let mut batch = texts(&["second"]);
    with_headers(&mut batch, &[("to", Some(b"1"))]);
    writer.write(&batch).await.unwrap();
    writer.flush().await.unwrap();
    assert_eq!(broker().committed(&topic)[1].partition, 1);
}
