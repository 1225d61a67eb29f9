//! The fixture itself: a test that fails for want of a broker should say so here.

use super::broker::{PATIENCE, broker};
use rdkafka::consumer::{BaseConsumer, Consumer};

#[test]
fn topics_are_made_and_written() {
    let topic = broker().topic("fixture", 2);
    broker().write(&topic, 1, ["a", "b"]);
    broker().write_transaction(&topic, 1, ["c"], true);
    let consumer: BaseConsumer = broker().client().create().unwrap();
    assert_eq!(consumer.fetch_watermarks(&topic, 0, PATIENCE).unwrap(), (0, 0));
    assert_eq!(consumer.fetch_watermarks(&topic, 1, PATIENCE).unwrap(), (0, 4));
}
