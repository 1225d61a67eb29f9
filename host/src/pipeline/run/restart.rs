//! Restart strategies: whether a job that has failed is restarted, and after how long. Pure: moments are handed in.

use crate::pipeline::plan::RestartStrategy;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What to do after a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Restart after this time.
    RestartAfter(Duration),
    /// Fail; the sentence says by which rule.
    Fail(String),
}

/// The failures of a job so far, and what follows from the next one.
#[derive(Debug)]
pub(super) struct Restarts {
    strategy: RestartStrategy,
    /// Failures that still count, the oldest first.
    failures: VecDeque<Instant>,
    backoff: Option<Duration>,
    attempts: u32,
    last_failure: Option<Instant>,
}

impl Restarts {
    pub(super) fn new(strategy: RestartStrategy) -> Self {
        Self { strategy, failures: VecDeque::new(), backoff: None, attempts: 0, last_failure: None }
    }

    /// The job has failed at `now`. `jitter` is a random number in -1.0..=1.0.
    pub(super) fn failed(&mut self, now: Instant, jitter: f64) -> Verdict {
        match self.strategy {
            RestartStrategy::None => Verdict::Fail("restart-strategy is none".into()),
            RestartStrategy::FixedDelay(options) => {
                self.attempts += 1;
                if self.attempts > options.attempts {
                    return Verdict::Fail(format!("restart-strategy fixed-delay allows {} restarts", options.attempts));
                }
                Verdict::RestartAfter(options.delay.0)
            }
            RestartStrategy::FailureRate(options) => {
                self.failures.push_back(now);
                let interval = options.failure_rate_interval.0;
                self.failures.retain(|failure| now.duration_since(*failure) < interval);
                if self.failures.len() > options.max_failures_per_interval as usize {
                    let most = options.max_failures_per_interval;
                    return Verdict::Fail(format!("restart-strategy failure-rate allows {most} failures in {interval:?}"));
                }
                Verdict::RestartAfter(options.delay.0)
            }
            RestartStrategy::ExponentialDelay(options) => {
                let calm = self.last_failure.is_some_and(|last| now.duration_since(last) >= options.reset_backoff_threshold.0);
                if calm {
                    (self.backoff, self.attempts) = (None, 0);
                }
                self.last_failure = Some(now);
                self.attempts += 1;
                if options.attempts_before_reset_backoff.is_some_and(|most| self.attempts > most) {
                    return Verdict::Fail(format!("restart-strategy exponential-delay allows {} restarts", self.attempts - 1));
                }
                let max = options.max_backoff.0;
                let delay = self.backoff.map_or(options.initial_backoff.0, |before| multiply(before, options.backoff_multiplier, max));
                self.backoff = Some(delay.min(max));
                Verdict::RestartAfter(multiply(delay.min(max), 1.0 + options.jitter_factor * jitter, max))
            }
        }
    }
}

/// A duration times a factor, at most `max`.
fn multiply(duration: Duration, factor: f64, max: Duration) -> Duration {
    Duration::try_from_secs_f64(duration.as_secs_f64() * factor).unwrap_or(max).min(max)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::config::Span;
    use crate::pipeline::spec::{ExponentialDelay, FailureRate, FixedDelay};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn fixed_delay_counts_its_attempts() {
        let mut restarts = Restarts::new(RestartStrategy::FixedDelay(FixedDelay { attempts: 2, delay: Span(SECOND) }));
        let now = Instant::now();
        assert_eq!(restarts.failed(now, 0.0), Verdict::RestartAfter(SECOND));
        assert_eq!(restarts.failed(now, 0.0), Verdict::RestartAfter(SECOND));
        assert!(matches!(restarts.failed(now, 0.0), Verdict::Fail(reason) if reason.contains("2 restarts")));
    }

    #[test]
    fn failure_rate_forgets_old_failures() {
        let options = FailureRate { max_failures_per_interval: 1, failure_rate_interval: Span(60 * SECOND), delay: Span(SECOND) };
        let mut restarts = Restarts::new(RestartStrategy::FailureRate(options));
        let now = Instant::now();
        assert_eq!(restarts.failed(now, 0.0), Verdict::RestartAfter(SECOND));
        assert_eq!(restarts.failed(now + 61 * SECOND, 0.0), Verdict::RestartAfter(SECOND));
        assert!(matches!(restarts.failed(now + 62 * SECOND, 0.0), Verdict::Fail(_)));
    }

    #[test]
    fn exponential_delay_grows_to_its_limit_and_starts_again_after_calm() {
        let options = ExponentialDelay { max_backoff: Span(2 * SECOND), ..ExponentialDelay::default() };
        let mut restarts = Restarts::new(RestartStrategy::ExponentialDelay(options));
        let now = Instant::now();
        let delays = [1.0, 1.5, 2.0, 2.0].map(Duration::from_secs_f64);
        assert_eq!(delays.map(|_| restarts.failed(now, 0.0)), delays.map(Verdict::RestartAfter));
        assert_eq!(restarts.failed(now + 3600 * SECOND, 1.0), Verdict::RestartAfter(Duration::from_secs_f64(1.1)));
    }
}
