//! SIGKILL at random moments. The seed is printed; `WATERWHEEL_SEED` repeats it, as far as moments can be repeated.

use crate::harness::number;
use crate::job::{Job, MIXED, NARROW, Shape, WIDE};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::Duration;

/// Kills of one job before it may finish.
const KILLS_A_JOB: u64 = 5;

pub(crate) fn random_kills_leave_exact_output() {
    let kills = number("WATERWHEEL_KILLS").unwrap_or(25);
    let seed = number("WATERWHEEL_SEED").unwrap_or_else(rand::random);
    println!("{kills} random kills, WATERWHEEL_SEED={seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let shapes = [WIDE, NARROW, MIXED, Shape { partitions: 4, ..NARROW }, Shape { interval_ms: 20, ..WIDE }];
    let mut killed = 0;
    for number in 0.. {
        if killed >= kills {
            break;
        }
        // Enough orders that the kills land while they come.
        let job = Job::new(Shape { records: 12_000, ..shapes[number % shapes.len()] });
        for _ in 0..KILLS_A_JOB.min(kills - killed) {
            let process = job.start();
            std::thread::sleep(Duration::from_millis(random.random_range(5..1_500)));
            killed += u64::from(job.kill(process));
        }
        job.finish();
        job.check();
    }
    println!("{killed} kills landed");
}
