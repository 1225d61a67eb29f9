//! How long a record takes from being produced to being read with `read_committed`, at a moderate rate.

use super::broker::Broker;
use super::{PARTITIONS, feed, job};
use crate::process::Host;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::{Message as _, Offset, TopicPartitionList};
use std::time::{Duration, Instant};

/// Records of the first second do not count.
const WARM_UP: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(20);
const TIMEOUT: Duration = Duration::from_secs(60);

/// In milliseconds.
pub(super) struct Latency {
    pub(super) p50: f64,
    pub(super) p99: f64,
    /// From trigger to completion of each of the last checkpoints.
    pub(super) checkpoints: Vec<f64>,
}

pub(super) fn measure(broker: &Broker, guarantee: &str, interval: &str) -> Latency {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (broker.topic("moderate", PARTITIONS), broker.topic("latency", PARTITIONS));
    let (file, name) = job(folder.path(), broker, [&input, &output], guarantee, interval);
    let mut host = Host::start(&file, &name);
    host.wait(|job| job["state"] == "RUNNING");
    // Whole intervals, and more than one where that is not long.
    let window = Duration::from_secs(if interval == "10 s" && guarantee == "exactly-once" { 10 } else { 4 });
    let began = Instant::now();
    let reader = reader(broker, &output);
    let latencies = std::thread::scope(|scope| {
        let feeder = scope.spawn(|| feed::at_rate(broker, &input, began, WARM_UP, || began.elapsed() >= WARM_UP + window));
        let mut latencies = Vec::new();
        while !feeder.is_finished() {
            read(&reader, began, &mut latencies);
        }
        let fed = feeder.join().unwrap();
        while latencies.len() < fed {
            assert!(began.elapsed() < TIMEOUT, "{} records of {fed} were read", latencies.len());
            read(&reader, began, &mut latencies);
        }
        latencies
    });
    let checkpoints = host.checkpoint_millis();
    let [p50, p99] = [50, 99].map(|percent| percentile(latencies.clone(), percent));
    Latency { p50, p99, checkpoints }
}

/// Reads a record, if there is one, and notes how long it took.
fn read(reader: &BaseConsumer, began: Instant, latencies: &mut Vec<f64>) {
    let Some(message) = reader.poll(POLL) else { return };
    let fed_at = feed::fed_at(message.unwrap().payload().unwrap());
    if fed_at >= WARM_UP {
        latencies.push((began.elapsed() - fed_at).as_secs_f64() * 1000.0);
    }
}

fn reader(broker: &Broker, topic: &str) -> BaseConsumer {
    let mut config = broker.client();
    config.set("group.id", "latency").set("enable.auto.commit", "false").set("isolation.level", "read_committed");
    let consumer: BaseConsumer = config.set("fetch.wait.max.ms", "10").create().unwrap();
    let mut list = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        list.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
    }
    consumer.assign(&list).unwrap();
    consumer
}

/// The value that so many percent are not above.
pub(super) fn percentile(mut values: Vec<f64>, percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() * percent / 100).min(values.len() - 1)]
}
