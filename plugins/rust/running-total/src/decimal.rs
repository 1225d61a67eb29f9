//! Decimal numbers that are added exactly: an integer and a number of decimal places, never a binary fraction.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// More decimal places than this are refused: sums need the digits in front as well.
const MOST_PLACES: i32 = 30;
/// The longest text: 39 digits, a sign, a point.
const LONGEST: usize = 41;
/// So many digits fit into 64 bits.
const SMALL_DIGITS: usize = 19;

/// `units` divided by ten to the power of `places`. About 38 digits in all; what does not fit is an error, never rounded.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Decimal {
    units: i128,
    places: u32,
}

impl Decimal {
    /// The sum, or nothing when it has more digits than fit.
    #[must_use]
    pub(crate) fn checked_add(self, other: Self) -> Option<Self> {
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

/// A text is not a number that can be added exactly.
#[derive(Debug)]
pub(crate) struct NotADecimal(String);

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
    fn what_does_not_fit_is_refused() {
        for text in ["", "-", "x", "1.2.3", "--1", "1e", "1e999999999999", "1e39", "1e-31", "+1", "\"1\"", "0x1", "1 "] {
            text.parse::<Decimal>().unwrap_err();
        }
        let large: Decimal = "1e38".parse().unwrap();
        assert!(large.checked_add(large).is_none());
        assert!(large.checked_add("0.01".parse().unwrap()).is_none());
    }
}
