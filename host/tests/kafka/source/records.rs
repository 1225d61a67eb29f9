//! What is in a record comes out as it went in.

use super::*;
use crate::broker::PATIENCE as BROKER_PATIENCE;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer};

#[tokio::test]
async fn nulls_are_not_empty() {
    let topic = broker().topic("nulls", 1);
    let producer = broker().producer(&[]);
    let record = || BaseRecord::<[u8], [u8]>::to(&topic).partition(0);
    producer.send(record()).unwrap();
    producer.send(record().key(b"".as_slice()).payload(b"".as_slice())).unwrap();
    producer.send(record().key(b"k".as_slice())).unwrap();
    producer.send(record().payload(b"v".as_slice()).timestamp(1234)).unwrap();
    producer.flush(BROKER_PATIENCE).unwrap();
    let mut reading = Reading::start(&bounded(&topic)).await;
    reading.finish().await;
    let parts: Vec<_> = reading.records.iter().map(|record| (record.key.as_deref(), record.value.as_deref())).collect();
    let (empty, key, value) = (b"".as_slice(), b"k".as_slice(), b"v".as_slice());
    assert_eq!(parts, [(None, None), (Some(empty), Some(empty)), (Some(key), None), (None, Some(value))]);
    assert_eq!(reading.records[3].timestamp, 1234);
    assert_eq!(reading.records.iter().map(|record| record.offset).collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[tokio::test]
async fn headers_keep_their_order_their_repeats_and_their_bytes() {
    let topic = broker().topic("headers", 1);
    let producer = broker().producer(&[]);
    let headers = OwnedHeaders::new()
        .insert(Header { key: "trace", value: Some(&[0_u8, 255, 128, 10][..]) })
        .insert(Header { key: "again", value: Some("1") })
        .insert(Header { key: "again", value: Some("") })
        .insert(Header { key: "none", value: None::<&str> });
    producer.send(BaseRecord::<(), str>::to(&topic).partition(0).payload("without")).unwrap();
    producer.send(BaseRecord::<(), str>::to(&topic).partition(0).payload("with").headers(headers)).unwrap();
    producer.send(BaseRecord::<(), str>::to(&topic).partition(0).payload("without again")).unwrap();
    producer.flush(BROKER_PATIENCE).unwrap();
    let expected = [
        ("trace".to_owned(), Some(vec![0, 255, 128, 10])),
        ("again".to_owned(), Some(b"1".to_vec())),
        ("again".to_owned(), Some(Vec::new())),
        ("none".to_owned(), None),
    ];
    // Also where batches are so small that records are copied from one into another.
    for limits in [LIMITS, BatchLimits { records: 2, ..LIMITS }] {
        let source = bounded(&topic);
        let mut reading = Reading::open_with(&source, source.discover(&BTreeSet::new()).await.unwrap(), limits).await;
        reading.finish().await;
        let headers: Vec<_> = reading.records.iter().map(|record| record.headers.clone()).collect();
        assert_eq!(headers, [vec![], expected.to_vec(), vec![]]);
    }
}

#[tokio::test]
async fn large_records_are_batches_of_their_own() {
    let topic = broker().topic_with("large", 1, &[("max.message.bytes", "4000000")]);
    let producer = broker().producer(&[("message.max.bytes", "4000000")]);
    let sizes = [10, 1_000_000, 1_048_000, 20, 3_000_000, 0, 30];
    for (index, size) in sizes.iter().enumerate() {
        let value = vec![u8::try_from(index).unwrap(); *size];
        producer.send(BaseRecord::<(), [u8]>::to(&topic).partition(0).payload(&value)).unwrap();
        producer.flush(BROKER_PATIENCE).unwrap();
    }
    let mut reading = Reading::start(&bounded(&topic)).await;
    reading.finish().await;
    for (index, (record, size)) in reading.records.iter().zip(sizes).enumerate() {
        let value = record.value.as_deref().unwrap();
        assert!(value.len() == size && value.iter().all(|byte| usize::from(*byte) == index), "record {index}");
    }
    assert_eq!(reading.records.len(), sizes.len());
}

#[tokio::test]
async fn every_codec_is_read() {
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let topic = broker().topic(codec, 1);
        let producer = broker().producer(&[("compression.type", codec), ("linger.ms", "50")]);
        let values: Vec<String> = (0..2_000).map(|number| format!("{{\"sequence\":{number},\"text\":\"{}\"}}", "abc".repeat(20))).collect();
        crate::broker::send(&producer, &topic, 0, &values);
        producer.flush(BROKER_PATIENCE).unwrap();
        assert_eq!(read(&bounded(&topic)).await, values, "{codec}");
    }
}

#[tokio::test]
async fn limits_of_batches_hold() {
    let topic = broker().topic("limits", 2);
    for partition in 0..2 {
        broker().write(&topic, partition, (0..500).map(|number| format!("{number:0>100}")));
    }
    let source = bounded(&topic);
    let limits = BatchLimits { records: 64, bytes: 1_000, linger: Duration::from_millis(5) };
    let mut reading = Reading::open_with(&source, source.discover(&BTreeSet::new()).await.unwrap(), limits).await;
    let (mut batches, mut before) = (0, 0);
    while reading.status == ReadStatus::Open {
        reading.try_next().await.unwrap();
        let came = reading.records.len() - before;
        assert!(came <= 10, "{came} records of 100 bytes in 1000 bytes");
        (batches, before) = (batches + 1, reading.records.len());
    }
    assert_eq!(reading.records.len(), 1_000);
    assert!(batches >= 100);
}
