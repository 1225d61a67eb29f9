//! SIGKILL at random moments. The seed is printed; `WATERWHEEL_SEED` repeats it, as far as moments can be repeated.

use crate::job::{Job, NARROW, Shape, WIDE};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::Duration;

/// Kills of one job before it may finish.
const KILLS_A_JOB: u32 = 4;

pub(crate) fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
}

#[test]
fn random_kills_leave_exact_output() {
    let kills = number("WATERWHEEL_KILLS").unwrap_or(25);
    let seed = number("WATERWHEEL_SEED").unwrap_or_else(rand::random);
    println!("{kills} random kills, WATERWHEEL_SEED={seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let shapes = [WIDE, NARROW, Shape { sources: 2, ..NARROW }, Shape { sources: 1, two_sinks: false, ..WIDE }];
    let mut killed = 0;
    for number in 0.. {
        if killed >= kills {
            break;
        }
        let job = Job::new(shapes[number % shapes.len()]);
        for _ in 0..KILLS_A_JOB.min(u32::try_from(kills - killed).unwrap()) {
            let process = job.start();
            let moment = Duration::from_millis(random.random_range(5..900));
            std::thread::sleep(moment);
            killed += u64::from(process.kill());
        }
        job.hurry();
        let last = job.run(&[]);
        // Killed late enough, it had finished already.
        last.expect(0, &["finished"]);
        job.check();
    }
    println!("{killed} kills landed");
}
