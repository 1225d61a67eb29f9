//! Guarantees without transactions.

use super::*;
use async_trait::async_trait;
use waterwheel::sink::conformance::{Fixture, Place, check_sink};

struct Topics;

struct Topic(String);

#[async_trait]
impl Fixture for Topics {
    async fn place(&self) -> Box<dyn Place> {
        Box::new(Topic(broker().topic("conformance", 1)))
    }
}

#[async_trait]
impl Place for Topic {
    async fn sink(&self) -> Arc<dyn Sink> {
        sink(&json!({"topic": self.0}), Guarantee::AtLeastOnce)
    }

    async fn visible(&self) -> Vec<Vec<u8>> {
        broker().committed(&self.0).into_iter().map(|record| record.value.unwrap()).collect()
    }
}

#[tokio::test]
async fn an_at_least_once_sink_does_what_it_must() {
    check_sink(&Topics).await.unwrap();
}

#[tokio::test]
async fn a_sink_without_a_guarantee_delivers_when_all_is_well() {
    let topic = broker().topic("none", 3);
    let sink = sink(&json!({"topic": topic}), Guarantee::None);
    sink.verify().await.unwrap();
    let mut writer = Shared::default().writer(&*sink).await.unwrap();
    let values: Vec<String> = (0..5000).map(|number| number.to_string()).collect();
    for part in values.chunks(512) {
        writer.write(&texts(part)).await.unwrap();
    }
    writer.close().await.unwrap();
    let mut visible = broker().committed_texts(&topic);
    visible.sort_by_key(|text| text.parse::<u32>().unwrap());
    assert_eq!(visible, values);
}

/// More than the client's queue holds at a time.
#[tokio::test]
async fn a_full_queue_is_waited_for() {
    let topic = broker().topic("full", 1);
    let properties = json!({"queue.buffering.max.messages": 100});
    let sink = sink(&json!({"topic": topic, "properties": properties}), Guarantee::AtLeastOnce);
    let mut writer = Shared::default().writer(&*sink).await.unwrap();
    let values: Vec<String> = (0..2000).map(|number| number.to_string()).collect();
    writer.write(&texts(&values)).await.unwrap();
    writer.flush().await.unwrap();
    assert_eq!(broker().committed_texts(&topic), values);
}
