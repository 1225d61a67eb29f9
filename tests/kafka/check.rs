//! The check program: computes from the orders alone what must be in the output, and compares.

use crate::harness::SUMMARY;
use crate::orders::Orders;
use crate::output::Partitions;
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::atomic::Ordering;

#[derive(Debug, Deserialize)]
struct Total {
    key: String,
    count: usize,
    sum: u64,
}

#[derive(Debug, Deserialize)]
struct Cleaned {
    order: u64,
    user: String,
    amount: u64,
    currency: String,
}

/// What a comparison came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) records: u64,
    pub(crate) missing: u64,
    pub(crate) duplicates: u64,
    /// Behind one of the same key that belongs after it.
    pub(crate) out_of_order: u64,
    /// Not what the orders come to.
    pub(crate) wrong: u64,
    /// The first of each kind.
    pub(crate) examples: Vec<String>,
}

/// The totals of each user: (count, sum), in the order in which a reader sees them. All of a key must be in one partition.
type Shown = HashMap<String, Vec<(usize, u64)>>;

/// All totals, each once: nothing more may be there.
#[track_caller]
pub(crate) fn totals_exact(output: &Partitions, orders: &Orders) {
    let verdict = totals(output, orders);
    SUMMARY.records.fetch_add(verdict.records, Ordering::Relaxed);
    SUMMARY.missing.fetch_add(verdict.missing, Ordering::Relaxed);
    SUMMARY.duplicates.fetch_add(verdict.duplicates, Ordering::Relaxed);
    SUMMARY.wrong.fetch_add(verdict.out_of_order + verdict.wrong, Ordering::Relaxed);
    assert_eq!(verdict, Verdict { records: verdict.records, ..Verdict::default() }, "the totals are not exact");
}

/// Compares the totals with what the orders come to.
pub(crate) fn totals(output: &Partitions, orders: &Orders) -> Verdict {
    let mut verdict = Verdict::default();
    let mut shown = shown(output, &mut verdict);
    for (user, orders) in orders.by_user().iter().enumerate() {
        let key = format!("user-{user}");
        let mut seen = vec![0_u64; orders.len()];
        let sums: Vec<u64> = orders
            .iter()
            .scan(0, |sum, order| {
                *sum += order.amount;
                Some(*sum)
            })
            .collect();
        let mut last = 0;
        for (count, sum) in shown.remove(&key).unwrap_or_default() {
            if !(1..=sums.len()).contains(&count) || sums[count - 1] != sum {
                verdict.note("wrong", || format!("{key}: total {count} is {sum}"));
                verdict.wrong += 1;
                continue;
            }
            seen[count - 1] += 1;
            if seen[count - 1] > 1 {
                verdict.note("twice", || format!("{key}: total {count} again after total {last}"));
                verdict.duplicates += 1;
            } else if count < last {
                verdict.note("order", || format!("{key}: total {count} after total {last}"));
                verdict.out_of_order += 1;
            }
            last = count;
        }
        let missing = seen.iter().filter(|seen| **seen == 0).count() as u64;
        if missing > 0 {
            let first = seen.iter().position(|seen| *seen == 0).unwrap_or_default() + 1;
            verdict.note("missing", || format!("{key}: {missing} of {} totals, the first is {first}", seen.len()));
            verdict.missing += missing;
        }
    }
    for (key, totals) in shown {
        verdict.note("wrong", || format!("nobody ordered as {key}"));
        verdict.wrong += totals.len() as u64;
    }
    verdict
}

impl Verdict {
    fn note(&mut self, kind: &str, example: impl FnOnce() -> String) {
        if !self.examples.iter().any(|known| known.starts_with(kind)) {
            self.examples.push(format!("{kind}: {}", example()));
        }
    }
}

fn shown(output: &Partitions, verdict: &mut Verdict) -> Shown {
    let mut shown = Shown::new();
    let mut homes = HashMap::new();
    for (partition, values) in output.iter().enumerate() {
        for value in values {
            verdict.records += 1;
            let total: Total = serde_json::from_str(value).unwrap_or_else(|error| panic!("no total: {value}: {error}"));
            let home = *homes.entry(total.key.clone()).or_insert(partition);
            assert_eq!(home, partition, "{} is in two partitions", total.key);
            shown.entry(total.key).or_default().push((total.count, total.sum));
        }
    }
    shown
}

/// All cleaned orders, each once, those of a user in their order.
#[track_caller]
pub(crate) fn cleaned_exact(output: &Partitions, orders: &Orders) {
    let mut expected: HashMap<String, Vec<u64>> = HashMap::new();
    for (user, orders) in orders.by_user().iter().enumerate() {
        if !orders.is_empty() {
            expected.insert(format!("user-{user}"), orders.iter().map(|order| order.number).collect());
        }
    }
    let mut found: HashMap<String, Vec<u64>> = HashMap::new();
    for value in output.iter().flatten() {
        let Cleaned { order, user, amount, currency } =
            serde_json::from_str(value).unwrap_or_else(|error| panic!("no order: {value}: {error}"));
        assert_eq!((amount, currency.as_str()), (1000 + order, "EUR"), "{value}");
        found.entry(user).or_default().push(order);
        SUMMARY.records.fetch_add(1, Ordering::Relaxed);
    }
    for (user, expected) in &expected {
        let found = found.remove(user).unwrap_or_default();
        assert!(found == *expected, "{user} has {} orders, and {} are in the output: {expected:?}, {found:?}", expected.len(), found.len());
    }
    assert!(found.is_empty(), "nobody ordered as {:?}", found.keys());
}
