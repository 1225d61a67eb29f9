//! A rate limit that all readers of a source share.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How much of a pause may be made up for at once, so that an idle source does not burst.
const BURST: Duration = Duration::from_millis(100);

/// The shortest wait: the resolution of timers.
const TICK: Duration = Duration::from_millis(1);

/// One record in eleven days.
const SLOWEST: f64 = 1e-6;
/// More than any reader reads.
const FASTEST: f64 = 1e12;

/// A token bucket: a record takes a token, and tokens come at the rate.
///
/// All readers of a source in this process share one, so that the rate holds for the source whatever its parallelism.
#[derive(Debug)]
pub(super) struct RateLimiter {
    per_second: f64,
    capacity: f64,
    bucket: Mutex<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl RateLimiter {
    /// A limiter of a rate above 0.
    pub(super) fn new(per_second: f64) -> Self {
        let capacity = (per_second * BURST.as_secs_f64()).max(1.0);
        Self { per_second, capacity, bucket: Mutex::new(Bucket { tokens: 1.0, filled: Instant::now() }) }
    }

    /// Takes as many tokens as there are, `most` at most, or says how long to wait for the next one. Never waits itself, and so
    /// nothing is lost when a future that waits is dropped.
    pub(super) fn take(&self, most: usize) -> Result<usize, Duration> {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let come = now.saturating_duration_since(bucket.filled).as_secs_f64() * self.per_second;
        bucket.filled = now;
        bucket.tokens = (bucket.tokens + come).min(self.capacity);
        if bucket.tokens < 1.0 {
            let wait = Duration::try_from_secs_f64((1.0 - bucket.tokens) / self.per_second).unwrap_or(Duration::MAX);
            return Err(wait.max(TICK));
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "rounds down on purpose; the number is between 1 and the capacity"
        )]
        let taken = (bucket.tokens as usize).min(most);
        #[allow(clippy::cast_precision_loss, reason = "a batch has far fewer than 2^52 records")]
        let spent = taken as f64;
        bucket.tokens -= spent;
        Ok(taken)
    }

    /// Gives back tokens that were taken for records that were not read.
    pub(super) fn give_back(&self, tokens: usize) {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        #[allow(clippy::cast_precision_loss, reason = "a batch has far fewer than 2^52 records")]
        let tokens = tokens as f64;
        bucket.tokens += tokens;
    }
}

/// What is wrong with a rate, if anything.
pub(super) fn fault_of(rate: Option<f64>) -> Option<String> {
    let rate = rate?;
    (!(SLOWEST..=FASTEST).contains(&rate)).then(|| {
        format!("{rate} is not a rate: write records per second, from {SLOWEST} to {FASTEST}, or leave it out to read as fast as possible")
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    async fn count(limiter: &RateLimiter, seconds: u64, most: usize) -> usize {
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut taken = 0;
        while Instant::now() < end {
            match limiter.take(most) {
                Ok(some) => taken += some,
                Err(wait) => tokio::time::sleep(wait).await,
            }
        }
        taken
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_holds() {
        for rate in [3.0, 1_000.0, 2_000_000.0] {
            let taken = count(&RateLimiter::new(rate), 10, 512).await as f64;
            assert!((taken - rate * 10.0).abs() <= rate * 0.02 + 2.0, "{taken} at {rate}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_is_not_made_up_for() {
        let limiter = RateLimiter::new(1_000.0);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(limiter.take(10_000), Ok(100));
        limiter.give_back(40);
        assert_eq!(limiter.take(10_000), Ok(40));
        assert_eq!(limiter.take(10_000), Err(Duration::from_millis(1)));
    }

    #[test]
    fn what_is_no_rate_is_a_fault() {
        assert!(fault_of(Some(0.0)).is_some() && fault_of(Some(f64::NAN)).is_some() && fault_of(Some(-1.0)).is_some());
        assert!(fault_of(Some(1e-19)).is_some() && fault_of(Some(f64::INFINITY)).is_some());
        assert!(fault_of(Some(0.5)).is_none() && fault_of(None).is_none());
    }
}
