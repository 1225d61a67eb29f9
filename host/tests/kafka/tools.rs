//! The commands for people: `waterwheel kafka …`.

use super::broker::{broker, send};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::producer::Producer;
use rdkafka::{Offset, TopicPartitionList};
use serde_json::{Value, json};
use std::process::{Command, Output};

fn kafka(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_waterwheel"));
    command.args(["kafka", "--bootstrap-server", broker().bootstrap()]).args(arguments).output().unwrap()
}

fn printed(arguments: &[&str]) -> String {
    let output = kafka(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn parsed(arguments: &[&str]) -> Value {
    serde_json::from_str(&printed(arguments)).unwrap()
}

fn lines(numbers: impl IntoIterator<Item = i64>) -> Vec<String> {
    numbers.into_iter().map(|number| format!("{{\"seq\":{number}}}")).collect()
}

#[test]
fn count_says_what_is_there_once_twice_and_not_at_all() {
    let topic = broker().topic("count", 2);
    broker().write_transaction(&topic, 0, lines(0..50), true);
    broker().write_transaction(&topic, 1, lines(40..45), true);
    broker().write_transaction(&topic, 1, lines(50..100), false);
    broker().write_transaction(&topic, 1, lines(100..110), true);
    let text = printed(&["count", &topic, "--json-pointer", "/seq"]);
    let expected = format!(
        "{topic} (read_committed): 65 lines, 650 bytes, in 2 partitions\n60 distinct numbers at /seq, from 0 to 109\nseen again: 5 (40..44)\nmissing: 50 (50..99)\n"
    );
    assert_eq!(text, expected);
    let all = parsed(&[
        "count",
        &topic,
        "--isolation",
        "read_uncommitted",
        "--json-pointer",
        "/seq",
        "--first",
        "-2",
        "--last",
        "111",
        "--format",
        "json",
    ]);
    assert_eq!(all["lines"], 115);
    assert_eq!(all["missing"], 4);
    assert_eq!(all["absent"], json!([[-2, -1], [110, 111]]));
    assert_eq!(all["seen_again"], json!([[40, 44]]));
    assert_eq!(all["partitions"][format!("{topic}-0")], 50);
    assert_eq!(printed(&["count", &topic]), format!("{topic} (read_committed): 65 lines, 650 bytes, in 2 partitions\n"));
}

#[test]
fn count_tells_of_an_open_transaction() {
    let topic = broker().topic("count-open", 1);
    broker().write(&topic, 0, lines(0..3));
    let producer = broker().begin_transaction(&topic);
    send(&producer, &topic, 0, lines(3..5));
    producer.flush(super::broker::PATIENCE).unwrap();
    let text = printed(&["count", &topic]);
    assert!(text.contains(": 3 lines") && text.contains("2 offsets not counted: an open transaction holds them back"), "{text}");
    producer.abort_transaction(super::broker::PATIENCE).unwrap();
}

#[test]
fn lag_is_what_the_group_has_not_committed() {
    let topic = broker().topic("lag-tool", 2);
    broker().write(&topic, 0, lines(0..10));
    broker().write(&topic, 1, lines(0..4));
    let group = format!("of-{topic}");
    let consumer: BaseConsumer = broker().client().set("group.id", &group).create().unwrap();
    let mut offsets = TopicPartitionList::new();
    offsets.add_partition_offset(&topic, 0, Offset::Offset(7)).unwrap();
    consumer.commit(&offsets, CommitMode::Sync).unwrap();
    let document = parsed(&["lag", &group, "--format", "json"]);
    assert_eq!(
        document,
        json!({
            "group": group, "lag": 3, "partitions": [{"topic": topic, "partition": 0, "committed": 7, "end": 10, "lag": 3}],
        })
    );
    let text = printed(&["lag", &group, "--topic", &topic]);
    assert!(text.ends_with("3 records behind; nothing committed in 1 partition\n"), "{text}");
    let output = kafka(&["lag", "nobody"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("group nobody has committed no offsets"), "{output:?}");
}

#[test]
fn a_wrong_topic_is_one_sentence() {
    let output = kafka(&["count", "no-such-topic"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(message.starts_with("waterwheel: topic no-such-topic: ") && message.lines().count() == 1, "{message}");
}
