//! Records for the input topics.

use super::broker::{Broker, PATIENCE, send};
use super::full_speed::RECORDS;
use super::{PARTITIONS, RECORD_BYTES};
use rdkafka::producer::Producer as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// Records that are fed in a second.
const RATE: u64 = 5000;
const TICK: Duration = Duration::from_millis(2);

/// Writes [`RECORDS`] records that compress about as well as JSON does.
pub(super) fn fill(broker: &Broker, topic: &str) {
    let producer = broker.producer(&[("linger.ms", "20"), ("compression.type", "lz4")]);
    let mut noise = 1_u64;
    let values = (0..RECORDS).map(|sequence| {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        value(&format!("{{\"sequence\":{sequence:010},\"user\":\"{:04}\",\"id\":\"{noise:016x}\",\"text\":\"", noise % 10_000))
    });
    let mut values = values.peekable();
    while values.peek().is_some() {
        for partition in 0..PARTITIONS {
            send(&producer, topic, partition, values.by_ref().take(1000));
        }
    }
    producer.flush(PATIENCE).unwrap();
}

/// Writes [`RATE`] records a second, which begin with the nanoseconds since `began`, until it is over. How many began at `from` or later.
pub(super) fn at_rate(broker: &Broker, topic: &str, began: Instant, from: Duration, is_over: impl Fn() -> bool) -> usize {
    let producer = broker.producer(&[]);
    let (mut sent, mut counted) = (0, 0);
    while !is_over() {
        let due = u64::try_from(began.elapsed().as_millis()).unwrap() * RATE / 1000;
        while sent < due {
            let now = began.elapsed();
            let partition = i32::try_from(sent % PARTITIONS.unsigned_abs() as u64).unwrap();
            send(&producer, topic, partition, [value(&format!("{:020}", now.as_nanos()))]);
            sent += 1;
            counted += usize::from(now >= from);
        }
        std::thread::sleep(TICK);
    }
    producer.flush(PATIENCE).unwrap();
    counted
}

/// When the record of this value was fed, since the beginning.
pub(super) fn fed_at(value: &[u8]) -> Duration {
    Duration::from_nanos(std::str::from_utf8(&value[..20]).unwrap().parse().unwrap())
}

/// A value of the right size that begins so.
fn value(head: &str) -> [u8; RECORD_BYTES] {
    let mut value = [b'.'; RECORD_BYTES];
    value.as_mut_slice().write_all(head.as_bytes()).unwrap();
    value
}
