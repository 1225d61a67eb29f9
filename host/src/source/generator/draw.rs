//! What is particular to a record: drawn from the seed and the sequence number alone.

use super::options::GeneratorOptions;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// 32-bit words of the random stream that belong to each record: two numbers of 64 bits.
const WORDS_PER_RECORD: u128 = 4;

const NANOSECONDS_PER_MILLISECOND: u64 = 1_000_000;

/// What placeholders stand for in one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Drawn {
    pub(super) sequence: u64,
    pub(super) user: u64,
    /// In units of the last decimal.
    pub(super) amount: i64,
    pub(super) decimals: u8,
    /// Milliseconds since the Unix epoch.
    pub(super) time: i64,
}

/// Draws what is particular to each record. Any record can be drawn at any time, at the same cost; the next one costs least.
#[derive(Debug)]
pub(super) struct Draw {
    random: Option<ChaCha8Rng>,
    /// The record whose numbers come next out of `random`.
    next: u64,
    users: u64,
    smallest: i64,
    /// How many different amounts there are.
    amounts: u64,
    decimals: u8,
    start: i64,
    step_nanos: u64,
}

impl Draw {
    /// Draws by these options; without random numbers where nothing asks for them.
    pub(super) fn new(options: &GeneratorOptions, is_random: bool) -> Self {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&options.seed.to_le_bytes());
        let (smallest, largest) = options.amount.units();
        Self {
            random: is_random.then(|| ChaCha8Rng::from_seed(seed)),
            next: 0,
            users: options.users,
            smallest,
            amounts: smallest.abs_diff(largest) + 1,
            decimals: options.amount.decimals,
            start: options.time.start.as_millisecond(),
            step_nanos: u64::try_from(options.time.step.0.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// What is particular to a record.
    pub(super) fn record(&mut self, sequence: u64) -> Drawn {
        let (user, amount) = self.numbers(sequence);
        Drawn {
            sequence,
            user: below(self.users, user),
            amount: self.smallest.saturating_add_unsigned(below(self.amounts, amount)),
            decimals: self.decimals,
            time: self.time(sequence),
        }
    }

    /// The event time of a record, in milliseconds.
    pub(super) fn time(&self, sequence: u64) -> i64 {
        let passed = match sequence.checked_mul(self.step_nanos) {
            Some(nanos) => nanos / NANOSECONDS_PER_MILLISECOND,
            None => {
                let nanos = u128::from(sequence) * u128::from(self.step_nanos);
                u64::try_from(nanos / u128::from(NANOSECONDS_PER_MILLISECOND)).unwrap_or(u64::MAX)
            }
        };
        self.start.saturating_add_unsigned(passed)
    }

    fn numbers(&mut self, sequence: u64) -> (u64, u64) {
        let Some(random) = &mut self.random else { return (0, 0) };
        if sequence != self.next {
            random.set_word_pos(u128::from(sequence) * WORDS_PER_RECORD);
        }
        self.next = sequence.wrapping_add(1);
        (random.next_u64(), random.next_u64())
    }
}

/// A number below `bound` out of 64 random bits; the bias of at most `bound` / 2^64 does not matter here.
fn below(bound: u64, random: u64) -> u64 {
    let product = u128::from(bound) * u128::from(random);
    u64::try_from(product >> 64).expect("invariant: the upper half has 64 bits")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use serde_json::json;

    fn draw(options: serde_json::Value) -> Draw {
        Draw::new(&serde_json::from_value(options).unwrap(), true)
    }

    #[test]
    fn any_record_can_be_drawn_at_any_time() {
        let options = json!({"seed": 5, "users": 10, "amount": {"min": -1, "max": 1, "decimals": 1}});
        let mut in_order = draw(options.clone());
        let all: Vec<_> = (0..2_000).map(|sequence| in_order.record(sequence)).collect();
        let mut at_random = draw(options);
        for sequence in (0..2_000).map(|i| (i * 773) % 2_000) {
            assert_eq!(at_random.record(sequence), all[usize::try_from(sequence).unwrap()]);
        }
        assert!(all.iter().all(|drawn| drawn.user < 10 && (-10..=10).contains(&drawn.amount)));
        let amounts: std::collections::BTreeSet<_> = all.iter().map(|drawn| drawn.amount).collect();
        let users: std::collections::BTreeSet<_> = all.iter().map(|drawn| drawn.user).collect();
        assert_eq!((amounts.len(), users.len()), (21, 10), "every amount and user comes up");
    }

    #[test]
    fn the_seed_decides() {
        let users = |seed: u64| (0..20).map(|s| draw(json!({"seed": seed})).record(s).user).collect::<Vec<_>>();
        assert_eq!(users(1), users(1));
        assert_ne!(users(1), users(2));
    }

    #[test]
    fn times_go_on_by_the_step() {
        let draw = draw(json!({"time": {"start": "2020-01-01T00:00:00Z", "step": "2500us"}}));
        assert_eq!(draw.time(0), 1_577_836_800_000);
        assert_eq!(draw.time(1_000) - draw.time(0), 2_500);
        let far = draw.time(1 << 60) - draw.time(0);
        assert_eq!(i128::from(far), (1_i128 << 60) * 5 / 2, "also where nanoseconds need more than 64 bits");
    }
}
