//! As fast as it goes: a process that copies the input topic, by the records that have arrived in its output topic.

use super::broker::Broker;
use super::{PARTITIONS, bare, job};
use crate::process::{Host, cpu_nanoseconds, peak_bytes};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use std::time::{Duration, Instant};

/// Records in the input topic.
pub(super) const RECORDS: u64 = 2_000_000;

const POLL: Duration = Duration::from_millis(5);
const TIMEOUT: Duration = Duration::from_secs(120);
const ANSWER: Duration = Duration::from_secs(10);

/// What a run came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Seconds of CPU for a million records, the start left out.
    pub(super) cpu: f64,
    /// Records a second, from the first to the last.
    pub(super) per_second: f64,
    /// The most memory.
    pub(super) peak_megabytes: f64,
}

impl Run {
    pub(super) const WORST: Self = Self { cpu: f64::MAX, per_second: 0.0, peak_megabytes: 0.0 };

    /// The better of CPU and speed, and the worse of memory.
    pub(super) fn better(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.min(other.cpu),
            per_second: self.per_second.max(other.per_second),
            peak_megabytes: self.peak_megabytes.max(other.peak_megabytes),
        }
    }
}

/// The bare loop.
pub(super) fn bare(broker: &Broker, input: &str) -> Run {
    let output = broker.topic("bare", PARTITIONS);
    let child = bare::Child::start(broker, input, &output);
    measure(broker, child.id(), &output, RECORDS)
}

/// The host with such a job, over so many of the records.
pub(super) fn host(broker: &Broker, input: &str, guarantee: &str, interval: &str, records: u64) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let output = broker.topic("full-speed", PARTITIONS);
    let (file, name) = job(folder.path(), broker, [input, &output], guarantee, interval);
    let host = Host::start(&file, &name);
    measure(broker, host.id(), &output, records)
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn measure(broker: &Broker, process: u32, output: &str, records: u64) -> Run {
    // Unlike a reader of what is committed, it is told the very end.
    let client: BaseConsumer = broker.client().set("isolation.level", "read_uncommitted").create().unwrap();
    let point = |least| (wait_arrived(&client, output, least), cpu_nanoseconds(&process.to_string()), Instant::now());
    let (first, cpu_first, began) = point(1);
    let (last, cpu_last, ended) = point(records);
    let peak_megabytes = peak_bytes(process) as f64 / 1e6;
    let copied = (last - first) as f64;
    Run { cpu: (cpu_last - cpu_first) as f64 / 1000.0 / copied, per_second: copied / (ended - began).as_secs_f64(), peak_megabytes }
}

/// Waits until so many records have arrived, and a few commit markers, which count as well. How many have.
fn wait_arrived(client: &BaseConsumer, topic: &str, least: u64) -> u64 {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        // A new topic has no leader for a moment: nothing has arrived then.
        let end = |partition| client.fetch_watermarks(topic, partition, ANSWER).map_or(0, |(_, end)| end.unsigned_abs());
        let arrived = (0..PARTITIONS).map(end).sum();
        if arrived >= least {
            return arrived;
        }
        assert!(Instant::now() < deadline, "{arrived} records in {topic} instead of {least}");
        std::thread::sleep(POLL);
    }
}
