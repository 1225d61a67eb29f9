//! What becomes of a record's parts on its way into a topic.

use super::*;
use crate::reading::Read;

async fn written(options: &Value, batch: &Batch) {
    let sink = sink(options, Guarantee::AtLeastOnce);
    sink.verify().await.unwrap();
    let mut writer = Shared::default().writer(&*sink).await.unwrap();
    writer.write(batch).await.unwrap();
    writer.flush().await.unwrap();
}

#[tokio::test]
async fn nothing_of_a_record_is_lost() {
    let topic = broker().topic("parts", 1);
    let now = 1_700_000_000_123;
    let mut batch = Batch::default();
    let mut push = |key: Option<&[u8]>, value: Option<&[u8]>| batch.push(Row { key, value, timestamp: now, origin: Origin::NONE });
    push(Some(b"tombstone"), None);
    push(Some(b""), Some(b""));
    push(None, Some(b"\0\xff binary \x01"));
    push(Some(b"headers"), Some(b"v"));
    with_headers(&mut batch, &[("a", Some(b"1")), ("b", None), ("a", Some(b"\0\xfe")), ("c", Some(b"")), ("\u{e4}", Some(b"x"))]);
    batch.push(Row { key: None, value: Some(b"after"), timestamp: now, origin: Origin::NONE });
    written(&json!({"topic": topic}), &batch).await;
    let read = |key: Option<&[u8]>, value: Option<&[u8]>, headers: &[(&str, Option<&[u8]>)]| Read {
        partition: 0,
        key: key.map(<[u8]>::to_vec),
        value: value.map(<[u8]>::to_vec),
        timestamp: now,
        headers: headers.iter().map(|(name, value)| ((*name).to_owned(), value.map(<[u8]>::to_vec))).collect(),
    };
    let headers: [(&str, Option<&[u8]>); 5] =
        [("a", Some(b"1")), ("b", None), ("a", Some(b"\0\xfe")), ("c", Some(b"")), ("\u{e4}", Some(b"x"))];
    let expected = [
        read(Some(b"tombstone"), None, &[]),
        read(Some(b""), Some(b""), &[]),
        read(None, Some(b"\0\xff binary \x01"), &[]),
        read(Some(b"headers"), Some(b"v"), &headers),
        read(None, Some(b"after"), &[]),
    ];
    assert_eq!(broker().committed(&topic), expected);
}

#[tokio::test]
async fn a_record_without_a_time_gets_the_time_of_day() {
    let topic = broker().topic("time", 1);
    written(&json!({"topic": topic}), &texts(&["now"])).await;
    let age = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64;
    let age = age - broker().committed(&topic)[0].timestamp;
    assert!((0..60_000).contains(&age), "{age}");
}

/// What Java's default partitioner gives for seven partitions: murmur2 of the key.
#[tokio::test]
async fn keys_go_to_the_partitions_that_java_gives_them() {
    let topic = broker().topic("murmur", 7);
    let mut batch = Batch::default();
    for key in [
        "21",
        "foobar",
        "a-little-bit-long-string",
        "a-little-bit-longer-string",
        "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
        "abc",
    ] {
        batch.push(Row { key: Some(key.as_bytes()), value: Some(key.as_bytes()), timestamp: 0, origin: Origin::NONE });
    }
    written(&json!({"topic": topic}), &batch).await;
    // The hashes are those of Kafka's own tests.
    let hashes: [(&str, i32); 6] = [
        ("21", -973_932_308),
        ("foobar", -790_332_482),
        ("a-little-bit-long-string", -985_981_536),
        ("a-little-bit-longer-string", -1_486_304_829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
        ("abc", 479_470_107),
    ];
    for record in broker().committed(&topic) {
        let (key, hash) = hashes.iter().find(|(key, _)| *key == record.text()).unwrap();
        assert_eq!(record.partition, (hash & 0x7fff_ffff) % 7, "{key}");
    }
}

#[tokio::test]
async fn a_header_can_name_the_partition() {
    let topic = broker().topic("partition", 4);
    let mut batch = Batch::default();
    for partition in ["3", "0", "2"] {
        batch.push(Row { key: Some(b"same"), value: Some(partition.as_bytes()), timestamp: 0, origin: Origin::NONE });
        with_headers(&mut batch, &[("to", Some(b"1")), ("to", Some(partition.as_bytes()))]);
    }
    written(&json!({"topic": topic, "partition": {"header": "to"}}), &batch).await;
    for record in broker().committed(&topic) {
        assert_eq!(record.partition.to_string(), record.text());
    }
}

#[tokio::test]
async fn records_can_name_their_topics() {
    let (left, right) = (broker().topic("left", 1), broker().topic("right", 1));
    let mut batch = Batch::default();
    for (number, topic) in [&left, &right, &left].into_iter().enumerate() {
        batch.push(Row {
            key: None,
            value: Some(format!(r#"{{"to":"{topic}","n":{number}}}"#).as_bytes()),
            timestamp: 0,
            origin: Origin::NONE,
        });
        with_headers(&mut batch, &[("topic", Some(topic.as_bytes()))]);
    }
    written(&json!({"topic": {"header": "topic"}}), &batch).await;
    written(&json!({"topic": {"json-pointer": "/to"}}), &batch).await;
    let numbers = |topic: &str| -> Vec<u64> {
        let texts = broker().committed_texts(topic).into_iter();
        texts.map(|text| serde_json::from_str::<Value>(&text).unwrap()["n"].as_u64().unwrap()).collect()
    };
    assert_eq!((numbers(&left), numbers(&right)), (vec![0, 2, 0, 2], vec![1, 1]));
}

#[tokio::test]
async fn missing_topics_are_made_where_that_is_asked_for() {
    let made = format!("made-{}", std::process::id());
    let options = json!({"topic": {"header": "topic"}, "create-topics": {"partitions": 5, "replication-factor": 1}});
    let mut batch = texts(&["x"]);
    with_headers(&mut batch, &[("topic", Some(made.as_bytes()))]);
    written(&options, &batch).await;
    assert_eq!(broker().committed_texts(&made), ["x"]);
    let described = broker().tool(&["topics", "--describe", "--topic", &made]);
    assert!(described.contains("PartitionCount: 5"), "{described}");
}
