//! Whole numbers out of records: which are there, which more than once, and which are missing.

use super::plural;
use crate::record::JsonPointer;
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// The most ranges that are shown to people.
const SHOWN_RANGES: usize = 20;

/// Collects numbers. Eight bytes each are kept, so that millions are no matter.
pub(super) struct Numbers<'a> {
    pointer: &'a JsonPointer,
    found: Vec<i64>,
    /// Values without a whole number.
    without: i64,
    buffer: Vec<u8>,
}

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tally {
    distinct: i64,
    /// Occurrences beyond the first ones.
    duplicates: i64,
    missing: i64,
    without: i64,
    bounds: Option<(i64, i64)>,
    repeated: Vec<(i64, i64)>,
    absent: Vec<(i64, i64)>,
}

impl<'a> Numbers<'a> {
    pub(super) fn new(pointer: &'a JsonPointer) -> Self {
        Self { pointer, found: Vec::new(), without: 0, buffer: Vec::new() }
    }

    /// Adds the number of a value.
    pub(super) fn add(&mut self, value: Option<&[u8]>) {
        self.buffer.clear();
        let found = value.is_some_and(|value| self.pointer.append_scalar(value, &mut self.buffer).is_ok());
        match std::str::from_utf8(&self.buffer).ok().filter(|_| found).and_then(|text| text.parse().ok()) {
            Some(number) => self.found.push(number),
            None => self.without += 1,
        }
    }

    /// Sorts out what was found. Numbers are missing between the least and the largest one, or from `first` on and up to `last`.
    pub(super) fn tally(mut self, first: Option<i64>, last: Option<i64>) -> Tally {
        self.found.sort_unstable();
        let mut tally =
            Tally { distinct: 0, duplicates: 0, missing: 0, without: self.without, bounds: None, repeated: Vec::new(), absent: Vec::new() };
        let mut expected = first;
        for same in self.found.chunk_by(|left, right| left == right) {
            let number = same[0];
            tally.distinct += 1;
            if same.len() > 1 {
                tally.duplicates += i64::try_from(same.len() - 1).unwrap_or(i64::MAX);
                extend(&mut tally.repeated, number);
            }
            if let Some(next) = expected.filter(|next| *next < number) {
                // What lies behind the last number that must be there is not missed.
                tally.miss(next, last.map_or(number - 1, |last| last.min(number - 1)));
            }
            expected = Some(expected.unwrap_or(i64::MIN).max(number.saturating_add(1)));
            tally.bounds = Some((tally.bounds.map_or(number, |(least, _)| least), number));
        }
        if let (Some(last), Some(next)) = (last, expected.or(last)) {
            tally.miss(next, last);
        }
        tally
    }
}

/// Adds a number to ranges that rise.
fn extend(ranges: &mut Vec<(i64, i64)>, number: i64) {
    match ranges.last_mut() {
        Some((_, end)) if number.checked_sub(1) == Some(*end) => *end = number,
        _ => ranges.push((number, number)),
    }
}

impl Tally {
    fn miss(&mut self, from: i64, to: i64) {
        if from <= to {
            self.missing = self.missing.saturating_add(to.saturating_sub(from).saturating_add(1));
            self.absent.push((from, to));
        }
    }

    /// Appends lines for people.
    pub(super) fn write(&self, text: &mut String, pointer: &str) {
        let bounds = self.bounds.map(|(least, largest)| format!(", from {least} to {largest}")).unwrap_or_default();
        // Writing to a text cannot fail.
        let _written = writeln!(text, "{} at {pointer}{bounds}", plural(self.distinct, "distinct number", "distinct numbers"));
        let _written = writeln!(text, "seen again: {}", with_ranges(self.duplicates, &self.repeated));
        let _written = writeln!(text, "missing: {}", with_ranges(self.missing, &self.absent));
        if self.without > 0 {
            let _written = writeln!(text, "without a whole number there: {}", plural(self.without, "line", "lines"));
        }
    }

    /// The fields for programs.
    pub(super) fn fields(&self) -> Map<String, Value> {
        let fields = json!({
            "distinct": self.distinct,
            "duplicates": self.duplicates,
            "missing": self.missing,
            "without_number": self.without,
            "least": self.bounds.map(|bounds| bounds.0),
            "largest": self.bounds.map(|bounds| bounds.1),
            "seen_again": self.repeated,
            "absent": self.absent,
        });
        if let Value::Object(fields) = fields { fields } else { Map::new() }
    }
}

fn with_ranges(count: i64, ranges: &[(i64, i64)]) -> String {
    if count == 0 {
        return "none".to_owned();
    }
    let range = |(from, to): &(i64, i64)| if from == to { from.to_string() } else { format!("{from}..{to}") };
    let shown: Vec<String> = ranges.iter().take(SHOWN_RANGES).map(range).collect();
    let more = if ranges.len() > SHOWN_RANGES { format!(", and {} more ranges", ranges.len() - SHOWN_RANGES) } else { String::new() };
    format!("{count} ({}{more})", shown.join(", "))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn tally(values: &[&str], first: Option<i64>, last: Option<i64>) -> Tally {
        let pointer = JsonPointer::parse("/seq").unwrap();
        let mut numbers = Numbers::new(&pointer);
        values.iter().for_each(|value| numbers.add(Some(format!("{{\"seq\":{value}}}").as_bytes())));
        numbers.tally(first, last)
    }

    #[test]
    fn all_there_once_is_nothing_to_tell() {
        let tally = tally(&["3", "1", "2"], None, None);
        let mut text = String::new();
        tally.write(&mut text, "/seq");
        assert_eq!(text, "3 distinct numbers at /seq, from 1 to 3\nseen again: none\nmissing: none\n");
    }

    #[test]
    fn repeats_and_gaps_are_ranges() {
        let tally = tally(&["1", "2", "2", "3", "3", "3", "7", "9", "9", "\"x\"", "1.5"], None, None);
        assert_eq!((tally.distinct, tally.duplicates, tally.missing, tally.without), (5, 4, 4, 2));
        assert_eq!(tally.repeated, [(2, 3), (9, 9)]);
        assert_eq!(tally.absent, [(4, 6), (8, 8)]);
        assert_eq!(with_ranges(4, &tally.absent), "4 (4..6, 8)");
    }

    #[test]
    fn what_must_be_there_is_missed_at_both_ends() {
        assert_eq!(tally(&["2", "4"], Some(0), Some(6)).absent, [(0, 1), (3, 3), (5, 6)]);
        assert_eq!(tally(&["2", "9"], Some(2), Some(5)).absent, [(3, 5)]);
        assert_eq!(tally(&[], Some(0), Some(9)).missing, 10);
        assert_eq!(tally(&[], None, None).missing, 0);
        assert_eq!(tally(&["5"], Some(7), None).absent, []);
        assert_eq!(tally(&["-9223372036854775808", "9223372036854775807"], None, None).missing, i64::MAX);
    }
}
