//! Decimal numbers that are added exactly: an integer and a number of decimal places, never a binary fraction.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// More decimal places than this are refused: sums need the digits in front as well.
const MOST_PLACES: i32 = 30;

/// `units` divided by ten to the power of `places`. About 38 digits in all; what does not fit is an error, never rounded.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Decimal {
    units: i128,
    places: u32,
}

impl Decimal {
    /// The sum, or nothing when it has more digits than fit.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        let places = self.places.max(other.places);
        Some(Self { units: self.with_places(places)?.checked_add(other.with_places(places)?)?, places })
    }

    fn with_places(self, places: u32) -> Option<i128> {
        match places - self.places {
            0 => Some(self.units),
            more => self.units.checked_mul(10_i128.checked_pow(more)?),
        }
    }
}

/// A text is not a number that can be added exactly.
#[derive(Debug)]
pub struct NotADecimal(String);

impl fmt::Display for NotADecimal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} is not a number with at most 38 digits, {MOST_PLACES} of them decimal places", self.0)
    }
}

impl std::error::Error for NotADecimal {}

impl FromStr for Decimal {
    type Err = NotADecimal;

    /// Reads a number as JSON writes it: `-12.50`, `3e4`.
    fn from_str(text: &str) -> Result<Self, NotADecimal> {
        parse(text).ok_or_else(|| NotADecimal(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Decimal> {
    let (number, exponent) = match text.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (negative, number) = number.strip_prefix('-').map_or((false, number), |number| (true, number));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let mut units: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        units = units.checked_mul(10)?.checked_add(i128::from(digit - b'0'))?;
    }
    let mut places = i32::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
    if places < 0 && units != 0 {
        units = units.checked_mul(10_i128.checked_pow(places.unsigned_abs())?)?;
    }
    places = places.max(0);
    let units = if negative { -units } else { units };
    (places <= MOST_PLACES).then_some(Decimal { units, places: places.unsigned_abs() })
}

impl fmt::Display for Decimal {
    /// As short as it goes: `2.5` for 2.50, `3` for 3.00.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = self.places as usize;
        if places == 0 {
            return write!(formatter, "{}", self.units);
        }
        let digits = format!("{:0>width$}", self.units.unsigned_abs(), width = places + 1);
        let (whole, fraction) = digits.split_at(digits.len() - places);
        let fraction = fraction.trim_end_matches('0');
        let sign = if self.units < 0 { "-" } else { "" };
        let point = if fraction.is_empty() { "" } else { "." };
        write!(formatter, "{sign}{whole}{point}{fraction}")
    }
}

impl TryFrom<String> for Decimal {
    type Error = NotADecimal;

    fn try_from(text: String) -> Result<Self, NotADecimal> {
        text.parse()
    }
}

impl From<Decimal> for String {
    fn from(decimal: Decimal) -> Self {
        decimal.to_string()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::Decimal;

    fn sum(numbers: &[&str]) -> String {
        let sum = numbers.iter().map(|number| number.parse::<Decimal>().unwrap());
        sum.fold(Decimal::default(), |sum, number| sum.checked_add(number).unwrap()).to_string()
    }

    #[test]
    fn sums_are_exact() {
        assert_eq!(sum(&["0.1", "0.2"]), "0.3");
        assert_eq!(sum(&["0.1"; 1000]), "100");
        assert_eq!(sum(&["9007199254740993", "0.05", "-0.050"]), "9007199254740993");
        assert_eq!(sum(&["1e3", "2.5E-2", "-1"]), "999.025");
        assert_eq!(sum(&["-0.5", "0.25"]), "-0.25");
        assert_eq!(sum(&["-0", "0e5", "0.000"]), "0");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for text in ["", "-", "x", "1.2.3", "--1", "1e", "1e999999999999", "1e39", "1e-31", "+1", "\"1\"", "0x1", "1 "] {
            text.parse::<Decimal>().unwrap_err();
        }
        let large: Decimal = "1e38".parse().unwrap();
        assert!(large.checked_add(large).is_none());
        assert!(large.checked_add("0.01".parse().unwrap()).is_none());
    }
}
