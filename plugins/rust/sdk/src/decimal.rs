//! Decimal numbers that are added exactly: an integer and a number of decimal places, never a binary fraction.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// More decimal places than this are refused: sums need the digits in front as well.
const MOST_PLACES: i32 = 30;
/// The decimal places of a quotient.
pub const QUOTIENT_PLACES: u32 = 12;
/// The longest text: 39 digits, a sign, a point.
const LONGEST: usize = 41;
/// So many digits fit into 64 bits.
const SMALL_DIGITS: usize = 19;

/// A decimal number that is added exactly: `units` divided by ten to the power of `places`. About 38 digits in all; what does not fit is an error, never rounded.
#[derive(Debug, Clone, Copy, Default)]
pub struct Decimal {
    units: i128,
    places: u32,
}

impl Decimal {
    /// Divided by a number of things: rounded to [`QUOTIENT_PLACES`] decimal places, halves away from zero. Nothing when it has more digits
    /// than fit, or there are no things.
    #[must_use]
    pub fn checked_div(self, count: u64) -> Option<Self> {
        let (more, fewer) = (QUOTIENT_PLACES.saturating_sub(self.places), self.places.saturating_sub(QUOTIENT_PLACES));
        let divided = self.units.checked_mul(10_i128.checked_pow(more)?)?;
        let divisor = i128::from(count).checked_mul(10_i128.checked_pow(fewer)?)?;
        let (units, rest) = (divided.checked_div(divisor)?, divided.checked_rem(divisor)?);
        let rounds = rest.unsigned_abs() >= divisor.unsigned_abs() - rest.unsigned_abs();
        let units = if rounds { units + divided.signum() } else { units };
        Some(Self { units, places: QUOTIENT_PLACES })
    }

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

    /// The number as short as it goes, `2.5` for 2.50, `3` for 3.00. Written from its end to the end of the buffer: every exported key costs
    /// one, so it does without formatting and allocating.
    fn text(self, buffer: &mut [u8; LONGEST]) -> &str {
        let mut at = LONGEST;
        let mut put = |byte| {
            at -= 1;
            buffer[at] = byte;
        };
        let mut rest = self.units.unsigned_abs();
        let mut has_fraction = false;
        for _ in 0..self.places {
            let digit = take_digit(&mut rest);
            if has_fraction || digit != b'0' {
                put(digit);
                has_fraction = true;
            }
        }
        if has_fraction {
            put(b'.');
        }
        put(take_digit(&mut rest));
        while rest != 0 {
            put(take_digit(&mut rest));
        }
        if self.units < 0 {
            put(b'-');
        }
        std::str::from_utf8(&buffer[at..]).expect("invariant: digits are text")
    }
}

/// Takes the last digit off. A division of 128 bits is a call, one of 64 bits an instruction.
fn take_digit(number: &mut u128) -> u8 {
    let (digit, rest) = match u64::try_from(*number) {
        Ok(small) => ((small % 10) as u8, u128::from(small / 10)),
        Err(_) => ((*number % 10) as u8, *number / 10),
    };
    *number = rest;
    b'0' + digit
}

impl From<u32> for Decimal {
    fn from(number: u32) -> Self {
        Self { units: i128::from(number), places: 0 }
    }
}

/// By value: 2.5 is 2.50.
impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let parts = |decimal: &Self, places: u32| {
            let one = 10_i128.pow(decimal.places);
            // Less than ten to the power of the places, so it fits with as many as there may be.
            (decimal.units / one, decimal.units % one * 10_i128.pow(places - decimal.places))
        };
        let places = self.places.max(other.places);
        parts(self, places).cmp(&parts(other, places))
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Decimal {}

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
    let mut digits = whole.bytes().chain(fraction.bytes()).map(|digit| digit - b'0');
    let mut units = if whole.len() + fraction.len() <= SMALL_DIGITS {
        i128::from(digits.fold(0, |units: u64, digit| units * 10 + u64::from(digit)))
    } else {
        digits.try_fold(0, |units: i128, digit| units.checked_mul(10)?.checked_add(i128::from(digit)))?
    };
    let mut places = i32::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
    if places < 0 && units != 0 {
        units = units.checked_mul(10_i128.checked_pow(places.unsigned_abs())?)?;
    }
    places = places.max(0);
    let units = if negative { -units } else { units };
    (places <= MOST_PLACES).then_some(Decimal { units, places: places.unsigned_abs() })
}

impl fmt::Display for Decimal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.text(&mut [0; LONGEST]))
    }
}

/// As text: MessagePack has no decimal numbers.
impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text(&mut [0; LONGEST]))
    }
}

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Decimal;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a decimal number as text")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Decimal, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
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
        assert_eq!(sum(&["-12345678901234567890123456789012345678", "0.0"]), "-12345678901234567890123456789012345678");
        assert_eq!(sum(&["-0.100000000000000000000000000001", "-20000000"]), "-20000000.100000000000000000000000000001");
    }

    #[test]
    fn quotients_are_rounded_and_numbers_are_in_order() {
        let quotient = |number: &str, count| number.parse::<Decimal>().unwrap().checked_div(count).unwrap().to_string();
        assert_eq!(quotient("10", 4), "2.5");
        assert_eq!(quotient("1", 3), "0.333333333333");
        assert_eq!(quotient("-2", 3), "-0.666666666667");
        assert_eq!(quotient("0.0000000000005", 1), "0.000000000001");
        assert_eq!(quotient("-0.0000000000004", 1), "0");
        assert!(Decimal::default().checked_div(0).is_none());
        let numbers = ["-1e38", "-2.51", "-2.5", "-0.5", "0", "1e-30", "0.25", "1", "1.000000000000000000000000000001", "1e38"];
        let numbers: Vec<Decimal> = numbers.iter().map(|number| number.parse().unwrap()).collect();
        assert!(numbers.is_sorted_by(|left, right| left < right));
        assert_eq!("2.50".parse::<Decimal>().unwrap(), "2.5".parse().unwrap());
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
