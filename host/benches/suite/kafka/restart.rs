//! From `kill -9`, restarted at once, to the first record that is processed, and to the first one that a reader with `read_committed` sees.

use super::broker::Broker;
use super::{PARTITIONS, feed, job};
use crate::process::{Host, median_millis, written};
use crate::report::Report;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
const INTERVAL_MILLIS: f64 = 1000.0;
/// What recovery may add to the interval.
const BOUND_MILLIS: f64 = 1200.0;

pub(super) fn measure(report: &mut Report, broker: &Broker) {
    let (input, output) = (broker.topic("restart", PARTITIONS), broker.topic("restarted", PARTITIONS));
    let folder = tempfile::tempdir().unwrap();
    let (file, name) = job(folder.path(), broker, [&input, &output], "exactly-once", "1 s");
    let (is_over, began) = (AtomicBool::new(false), Instant::now());
    let (mut processed, mut visible) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| feed::at_rate(broker, &input, began, Duration::ZERO, || is_over.load(Ordering::Relaxed)));
        let _ends_the_feeder = Raise(&is_over);
        let mut host = Host::start(&file, &name);
        host.wait_checkpoints(|completed| completed >= 2);
        for _ in 0..ROUNDS {
            let killed = Instant::now();
            host.kill();
            host = Host::start(&file, &name);
            host.wait(|job| written(job) >= 1);
            processed.push(killed.elapsed());
            host.wait_checkpoints(|completed| completed >= 1);
            visible.push(killed.elapsed());
        }
    });
    report.add("kafka, kill -9 to the first record processed", median_millis(processed), "ms on the clock", Some(BOUND_MILLIS));
    let bound = INTERVAL_MILLIS + BOUND_MILLIS;
    report.add("kafka, kill -9 to the first record committed, every second", median_millis(visible), "ms on the clock", Some(bound));
}

/// Sets a flag when this is dropped, also by a panic.
struct Raise<'a>(&'a AtomicBool);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
