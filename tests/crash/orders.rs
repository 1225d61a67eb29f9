//! The orders that go in: the same numbers in every run, so that the check computes what must come out without reading what went in.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

/// Users that orders come from.
const USERS: u64 = 500;

/// One order. Every amount is there once, so that a total tells which order it was counted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) number: u64,
    pub(crate) user: u64,
    pub(crate) amount: u64,
}

/// Order `number`. The multiplier is that of SplitMix64: neighbours differ in all digits.
fn order(number: u64) -> Order {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^= mixed >> 31;
    Order { number, user: mixed % USERS, amount: 1000 + number }
}

/// What goes into one source.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    orders: Vec<Order>,
}

impl Orders {
    /// Deals the first `count` orders to so many sources in turn.
    pub(crate) fn deal(count: u64, sources: usize) -> Vec<Self> {
        let of = |source: usize| (0..count).filter(|number| number % sources as u64 == source as u64).map(order).collect();
        (0..sources).map(|source| Self { orders: of(source) }).collect()
    }

    /// Writes them to files of a folder: all orders of a user to the same file, so that they have an order.
    pub(crate) fn write(&self, folder: &Path, files: u64) {
        fs::create_dir_all(folder).unwrap();
        let open = |file| BufWriter::new(File::create(folder.join(format!("{file}.jsonl"))).unwrap());
        let mut out: Vec<_> = (0..files).map(open).collect();
        for Order { number, user, amount } in &self.orders {
            let out = &mut out[usize::try_from(user % files).unwrap()];
            writeln!(out, r#"{{"order":{number},"usr":"user-{user}","amount":{amount},"note":"as agreed"}}"#).unwrap();
        }
        out.iter_mut().for_each(|out| out.flush().unwrap());
    }

    /// The orders of each user, in their order.
    pub(crate) fn by_user(&self) -> Vec<Vec<Order>> {
        let mut users = vec![Vec::new(); usize::try_from(USERS).unwrap()];
        for order in &self.orders {
            users[usize::try_from(order.user).unwrap()].push(*order);
        }
        users
    }
}
