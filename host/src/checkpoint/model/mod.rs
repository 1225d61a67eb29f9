//! A model check of the protocol: the real log, recovery, commit and retention code runs on a simulated storage,
//! file sinks and a broker, under a seeded scheduler.
//!
//! Every call to storage, sink or broker is a point where the seed decides who goes on. Two or three instances of a
//! job start, crash, pause, wake up, recover and fork; answers are lost, puts and commits arrive late, checkpoints are
//! given up. Then the faults stop, and somebody must complete the job. Checked are:
//! - every position is visible at most once, in order, and exactly once at the end, in both sinks and the broker;
//! - what a run restores agrees with what is visible, and its state files are there;
//! - no prepared work of a decided checkpoint is missing;
//! - a replaced job's visible output never changes again;
//! - nobody is stuck alone, and live instances do not fence each other for ever;
//! - the same seed gives the same history.
//!
//! `WATERWHEEL_HISTORIES` sets how many histories run, `WATERWHEEL_SEED` runs one and prints it.

mod broker;
mod process;
mod scheduler;
mod sinks;
mod storage;
mod world;

use scheduler::{History, run_history};

/// Histories in an ordinary test run.
const HISTORIES: u64 = 3_000;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

#[test]
fn no_history_loses_or_repeats_a_record() {
    if let Some(seed) = number("WATERWHEEL_SEED") {
        let history = run_history(seed, true);
        assert_eq!(history.violation, None, "seed {seed}");
        return;
    }
    let histories = number("WATERWHEEL_HISTORIES").unwrap_or(HISTORIES);
    let first = number("WATERWHEEL_FIRST_SEED").unwrap_or(1);
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64).min(4);
    let results: Vec<(u64, History)> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    let seeds = (first..first + histories).filter(|seed| seed % threads == thread);
                    seeds.map(|seed| (seed, run_history(seed, false))).collect::<Vec<_>>()
                })
            })
            .collect();
        handles.into_iter().flat_map(|handle| handle.join().unwrap()).collect()
    });
    let mut failed: Vec<_> = results.iter().filter_map(|(seed, history)| history.violation.as_ref().map(|v| (*seed, v))).collect();
    failed.sort();
    let shown: Vec<String> = failed.iter().take(10).map(|(seed, violation)| format!("seed {seed}: {violation}")).collect();
    assert!(failed.is_empty(), "{} of {histories} histories failed; WATERWHEEL_SEED=… prints one:\n{}", failed.len(), shown.join("\n"));

    // A check that exercises nothing proves nothing.
    let count = |of: fn(&History) -> u64| results.iter().map(|(_, history)| of(history)).sum::<u64>();
    let seen = [
        ("crashes", count(|h| h.counts.crashes)),
        ("recoveries", count(|h| h.counts.recoveries)),
        ("superseded runs", count(|h| h.counts.superseded)),
        ("given up checkpoints", count(|h| h.counts.given_up)),
        ("late arrivals", count(|h| h.counts.late)),
        ("forks", count(|h| h.counts.forks)),
        ("stops", count(|h| h.counts.stops)),
        ("deleted entries", count(|h| h.counts.deleted)),
    ];
    println!("{histories} histories: {seen:?}");
    if histories >= 1_000 {
        for (what, times) in seen {
            assert!(times > histories / 20, "only {times} {what} in {histories} histories");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in 1..=40 {
        let (one, two) = (run_history(seed, false), run_history(seed, false));
        assert_eq!((one.trace, one.steps), (two.trace, two.steps), "seed {seed}");
    }
    assert_ne!(run_history(1, false).trace, run_history(2, false).trace);
}
