//! The broker killed or standing still while jobs are at some step: they wait, try again, and nothing is lost or repeated.

use crate::broker::Broker;
use crate::harness::{SUMMARY, Summary, is_soak};
use crate::job::{Job, MIXED, NARROW, Shape, WIDE, wait_until_stopped};
use crate::process::Process;
use crate::zombies::SLEEP_POINTS;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// How long the broker stands still: longer than a client waits for an answer.
const STANDSTILL: Duration = Duration::from_secs(15);

/// How long a broker has for what it was asked for before it is killed.
const SETTLING: Duration = Duration::from_secs(1);

/// Kills the broker while these processes are at work, but not while it tells partitions of a commit: a lone broker never tells them after its restart,
/// because they have no leader for a moment then, and takes the transaction for complete (seen with Kafka 4.3.1; it is no fault of its clients).
fn kill(broker: &Broker, processes: &[&Process]) {
    processes.iter().for_each(|process| process.signal("STOP"));
    thread::sleep(SETTLING);
    broker.command("kill");
    processes.iter().for_each(|process| process.signal("CONT"));
}

/// In the long form at each step, otherwise at any moment. All jobs meet the same fault at once, each at a step of its own.
pub(crate) fn a_broker_that_is_killed_or_stands_still_costs_nothing() {
    let broker = Broker::start(&[]);
    let points: Vec<Option<&str>> = if is_soak() { SLEEP_POINTS.iter().copied().map(Some).chain([None]).collect() } else { vec![None] };
    for point in points {
        fault(&broker, point, &|broker, processes| {
            kill(broker, processes);
            broker.command("restart");
        });
        fault(&broker, point, &|broker, _| {
            broker.command("pause");
            thread::sleep(STANDSTILL);
            broker.command("resume");
        });
    }
}

fn fault(broker: &Broker, point: Option<&str>, happen: &dyn Fn(&Broker, &[&Process])) {
    let jobs: Vec<Job<'_>> =
        [NARROW, WIDE, MIXED].map(|shape| Job::on(broker, broker.bootstrap(), Shape { records: 8_000, ..shape })).into_iter().collect();
    let mut processes: Vec<_> = jobs
        .iter()
        .map(|job| match point {
            Some(point) => {
                let process = job.start_with(&[], &format!("{point}=3*off->1*return(stop)->off"));
                wait_until_stopped(&process);
                process
            }
            None => job.run_until(100),
        })
        .collect();
    happen(broker, &processes.iter().collect::<Vec<_>>());
    Summary::count(&SUMMARY.broker_faults);
    for (job, process) in jobs.iter().zip(processes.drain(..)) {
        process.signal("CONT");
        job.conclude(process);
        job.check();
    }
}

/// Away for longer than a client waits: the job says so and tries again, and goes on when the broker is back.
pub(crate) fn a_job_is_restarting_while_the_broker_is_away() {
    let away = if is_soak() { Duration::from_secs(180) } else { Duration::ZERO };
    let broker = Broker::start(&[]);
    let job = Job::on(&broker, broker.bootstrap(), NARROW);
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut process = job.start_with(&["--status-address", &address], "");
    job.wait_for_more(&mut process, 100);
    kill(&broker, &[&process]);
    process.wait_until("it said that it is restarting", |_| answer(&address, "/v1/jobs").contains("RESTARTING"));
    thread::sleep(away);
    broker.command("restart");
    Summary::count(&SUMMARY.broker_faults);
    job.conclude(process);
    job.check();
}

/// What a person's browser would see.
fn answer(address: &str, path: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    write!(connection, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}
