//! Processes that stand still for longer than their transactions live: the broker ends the transactions, and what was in them is written again.

use crate::harness::{SUMMARY, Summary};
use crate::job::{Job, MIXED, NARROW, Shape, WIDE, wait_until_stopped};
use crate::zombies::SLEEP_POINTS;
use serde_json::json;
use std::thread;
use std::time::Duration;

/// The shortest that a job may ask for is twice the interval and 10 s.
const TRANSACTION_TIMEOUT_MS: u64 = 10_500;
/// Longer than that, and than the broker's look at what has timed out, every second.
const SLEEP: Duration = Duration::from_millis(TRANSACTION_TIMEOUT_MS + 3_000);

/// At each step, and in the middle of an epoch. All sleep at once.
pub(crate) fn a_process_that_slept_past_its_transactions_timeout_loses_nothing() {
    let shapes = [WIDE, NARROW, MIXED];
    let in_the_middle = [None];
    let points = SLEEP_POINTS.iter().map(|point| Some(*point)).chain(in_the_middle);
    thread::scope(|scope| {
        for (number, point) in points.enumerate() {
            let shape = shapes[number % shapes.len()];
            let sleeper = move || sleep_at(shape, point);
            thread::Builder::new().name(format!("asleep at {}", point.unwrap_or("any moment"))).spawn_scoped(scope, sleeper).unwrap();
        }
    });
}

fn sleep_at(shape: Shape, point: Option<&str>) {
    let job = Job::new(shape);
    job.change(|job| {
        for sink in job["sinks"].as_array_mut().unwrap().iter_mut().filter(|sink| sink["type"] == "kafka") {
            sink["properties"] = json!({"transaction.timeout.ms": TRANSACTION_TIMEOUT_MS});
        }
    });
    let process = match point {
        Some(point) => {
            let process = job.start_with(&[], &format!("{point}=3*off->1*return(stop)->off"));
            wait_until_stopped(&process);
            process
        }
        None => {
            let process = job.run_until(200);
            process.signal("STOP");
            process
        }
    };
    thread::sleep(SLEEP);
    Summary::count(&SUMMARY.timeouts);
    process.signal("CONT");
    job.conclude(process);
    job.check();
}
