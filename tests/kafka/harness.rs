//! Runs the tests on a few threads against one broker, and says at the end what was tried: that line is what the standard harness cannot print.

use crate::broker::{self, Broker};
use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};
use std::thread;
use std::time::Instant;

/// Most tests wait for processes more than they compute.
const THREADS: usize = 3;

/// A test and its name.
pub(crate) type Test = (&'static str, fn());

/// Names functions.
#[macro_export]
macro_rules! tests {
    ($($test:path),+ $(,)?) => { [$((stringify!($test), $test as fn())),+] };
}

/// The broker that all tests share that do nothing to it.
pub(crate) static BROKER: LazyLock<&Broker> = LazyLock::new(broker::broker);

/// What was tried, over all tests.
pub(crate) static SUMMARY: Summary = Summary::new();

#[derive(Debug)]
pub(crate) struct Summary {
    /// Processes that ended without a chance to do anything.
    pub(crate) kills: AtomicU64,
    /// Processes that slept and woke beside or after another instance of their job.
    pub(crate) zombies: AtomicU64,
    /// Processes that slept longer than their transactions live.
    pub(crate) timeouts: AtomicU64,
    /// Brokers killed and stopped, answers lost, networks cut.
    pub(crate) broker_faults: AtomicU64,
    /// Records of output compared.
    pub(crate) records: AtomicU64,
    pub(crate) missing: AtomicU64,
    pub(crate) duplicates: AtomicU64,
    /// Out of order within their key, or with a wrong total.
    pub(crate) wrong: AtomicU64,
}

impl Summary {
    const fn new() -> Self {
        const ZERO: AtomicU64 = AtomicU64::new(0);
        Self {
            kills: ZERO,
            zombies: ZERO,
            timeouts: ZERO,
            broker_faults: ZERO,
            records: ZERO,
            missing: ZERO,
            duplicates: ZERO,
            wrong: ZERO,
        }
    }

    /// Counts one.
    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn line(&self) -> String {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        format!(
            "kills {}, zombies {}, timed-out transactions {}, broker faults {}, records checked {}, missing {}, duplicates {}, wrong {}",
            read(&self.kills),
            read(&self.zombies),
            read(&self.timeouts),
            read(&self.broker_faults),
            read(&self.records),
            read(&self.missing),
            read(&self.duplicates),
            read(&self.wrong)
        )
    }
}

/// A number from the environment.
pub(crate) fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
}

/// Whether the long forms of the tests are wanted.
pub(crate) fn is_soak() -> bool {
    number("WATERWHEEL_KILLS").is_some_and(|kills| kills > 100)
}

/// Runs the tests whose names have one of the arguments in them. Returns the exit code of the process.
pub(crate) fn run(tests: &[Test]) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let threads =
        arguments.iter().find_map(|argument| argument.strip_prefix("--test-threads=")).map_or(THREADS, |text| text.parse().unwrap());
    let filters: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let wanted = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()));
    let queue: VecDeque<Test> = tests.iter().filter(|(name, _)| wanted(name)).copied().collect();
    if arguments.iter().any(|argument| argument == "--list") {
        queue.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    println!("running {} tests on {threads} threads", queue.len());
    let count = queue.len();
    let (queue, failed) = (Mutex::new(queue), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap().pop_front();
                    let Some(test) = next else { return };
                    if !passes(test) {
                        failed.lock().unwrap().push(test.0);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    println!("\n{}", SUMMARY.line());
    println!("test result: {}. {} passed; {} failed", if failed.is_empty() { "ok" } else { "FAILED" }, count - failed.len(), failed.len());
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("failures: {}", failed.join(", "));
    ExitCode::FAILURE
}

/// Runs one test on a thread of its name, which a panic's message then shows.
fn passes((name, test): Test) -> bool {
    let began = Instant::now();
    let passed = thread::Builder::new().name(name.to_owned()).spawn(test).unwrap().join().is_ok();
    println!("test {name} ... {} ({:.1} s)", if passed { "ok" } else { "FAILED" }, began.elapsed().as_secs_f64());
    passed
}
