//! The orders: the same numbers in every run, so that the check can compute what must come out without reading what went in.

use std::fs::File;
use std::io::{BufWriter, Result, Write};
use std::path::Path;

/// Users that orders come from.
pub(crate) const USERS: u64 = 10_000;

/// One order.
pub(crate) struct Order {
    pub(crate) user: u64,
    pub(crate) cents: u64,
}

/// Order number `number`, from 0. The multiplier is that of SplitMix64: neighbours differ in all digits.
pub(crate) fn order(number: u64) -> Order {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^= mixed >> 31;
    Order { user: mixed % USERS, cents: 1 + (mixed >> 20) % 100_000 }
}

/// Writes orders, one JSON document a line.
pub(crate) fn write(file: &Path, records: u64) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(file)?);
    for number in 0..records {
        let Order { user, cents } = order(number);
        let (whole, rest) = (cents / 100, cents % 100);
        writeln!(out, r#"{{"order":{number},"usr":"user-{user}","amount":{whole}.{rest:02},"note":"as agreed on the phone"}}"#)?;
    }
    out.into_inner()?.sync_all()
}
