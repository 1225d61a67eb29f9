//! Kafka → passthrough → Kafka, with a broker of its own on the same machine: CPU against a loop of the client library's own calls, memory,
//! recovery, and what each guarantee costs.

pub(crate) mod bare;
#[allow(dead_code, clippy::needless_pass_by_value, reason = "the broker of the tests; not all of it is wanted here")]
#[path = "../../../tests/kafka/broker.rs"]
mod broker;
mod feed;
mod full_speed;
mod latency;
mod restart;

use crate::report::Report;
use broker::Broker;
use full_speed::{RECORDS, Run};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

const PARTITIONS: i32 = 3;
const ROUNDS: usize = 2;
const RECORD_BYTES: usize = 100;
const GUARANTEES: [&str; 3] = ["none", "at-least-once", "exactly-once"];
const INTERVALS: [&str; 3] = ["100 ms", "1 s", "10 s"];

pub(crate) fn measure(report: &mut Report) {
    let broker = Broker::start(&[]);
    let input = broker.topic("input", PARTITIONS);
    feed::fill(&broker, &input);
    cpu(report, &broker, &input);
    restart::measure(report, &broker);
    guarantees(report, &broker, &input);
}

/// CPU and memory, exactly-once.
fn cpu(report: &mut Report, broker: &Broker, input: &str) {
    let (mut bare, mut host, mut short) = (Run::WORST, Run::WORST, Run::WORST);
    // In turn, so that a machine that gets slower or faster does so for all.
    for _ in 0..ROUNDS {
        bare = bare.better(full_speed::bare(broker, input));
        host = host.better(full_speed::host(broker, input, "exactly-once", "1 s", RECORDS));
        short = short.better(full_speed::host(broker, input, "exactly-once", "100 ms", RECORDS));
    }
    report.add("kafka → kafka, bare loop, a transaction every second", bare.cpu, "s CPU/1M records", None);
    report.add("kafka → passthrough → kafka, exactly-once every second", host.cpu, "s CPU/1M records", None);
    report.add("the same, against the bare loop", host.cpu / bare.cpu, "times", Some(1.5));
    report.add("the same, checkpoint every 100 ms against 1 s", short.cpu / host.cpu, "times", Some(1.2));
    report.add("the same, most memory", host.peak_megabytes, "MB", Some(130.0));
}

/// What each guarantee costs: as fast as it goes, and how long a record takes at a moderate rate.
fn guarantees(report: &mut Report, broker: &Broker, input: &str) {
    for interval in INTERVALS {
        for guarantee in GUARANTEES {
            let what = format!("kafka → passthrough → kafka, {guarantee}, {interval}");
            let run = full_speed::host(broker, input, guarantee, interval, RECORDS / 2);
            let latency = latency::measure(broker, guarantee, interval);
            report.add(format!("{what}: throughput"), run.per_second / 1000.0, "1000 records/s", None);
            report.add(format!("{what}: latency p50"), latency.p50, "ms on the clock", None);
            report.add(format!("{what}: latency p99"), latency.p99, "ms on the clock", None);
            if guarantee == "exactly-once" && interval == INTERVALS[0] {
                let checkpoint = latency::percentile(latency.checkpoints, 50);
                report.add(format!("{what}: checkpoint p50"), checkpoint, "ms on the clock", Some(10.0));
            }
        }
    }
}

/// A job in a folder of its own; its file and its name.
fn job(folder: &Path, broker: &Broker, topics: [&str; 2], guarantee: &str, interval: &str) -> (PathBuf, String) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("bench-kafka-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let (servers, plugin, [input, output]) = (broker.bootstrap(), crate::plugin("passthrough"), topics);
    let (plugin, checkpoints) = (plugin.display(), folder.display());
    let text = format!(
        "name: {name}
sources: [{{uid: records, type: kafka, bootstrap-servers: '{servers}', topics: {input}}}]
operators: [{{uid: pass, plugin: {plugin}, inputs: [records]}}]
sinks: [{{uid: out, type: kafka, bootstrap-servers: '{servers}', topic: {output}, inputs: [pass], delivery-guarantee: {guarantee}}}]
execution: {{checkpointing: {{interval: {interval}, dir: {checkpoints}/checkpoints}}}}
"
    );
    let file = folder.join("job.yaml");
    std::fs::write(&file, text).unwrap();
    (file, name)
}
