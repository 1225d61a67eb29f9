//! Reads the timestamps of records out of their values.

use crate::pipeline::spec::TimeUnit;
use crate::record::JsonPointer;

/// The milliseconds of the years -9999 to 9999: what lies outside is a mistake, most often of the unit.
const EARLIEST: i64 = -377_705_023_201_000;
const LATEST: i64 = 253_402_300_799_999;

/// Where timestamps stand, and in what unit.
#[derive(Debug)]
pub(super) struct Stamp {
    pointer: JsonPointer,
    unit: TimeUnit,
    text: Vec<u8>,
}

impl Stamp {
    pub(super) fn new(pointer: JsonPointer, unit: TimeUnit) -> Self {
        Self { pointer, unit, text: Vec::new() }
    }

    /// The timestamp of a record, milliseconds since the Unix epoch.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub(super) fn read(&mut self, value: Option<&[u8]>) -> Result<i64, String> {
        let value = value.ok_or("its value is null")?;
        self.text.clear();
        self.pointer.append_scalar(value, &mut self.text).map_err(|fault| fault.to_string())?;
        // JSON is UTF-8, so is each scalar of it.
        let text = std::str::from_utf8(&self.text).map_err(|error| error.to_string())?;
        let millis = match self.unit {
            TimeUnit::Rfc3339 => match text.parse::<jiff::Timestamp>() {
                Ok(time) => Some(time.as_millisecond()),
                Err(error) => return Err(format!("{text:?} at {} is no time such as 2024-05-01T12:00:00Z: {error}", self.pointer)),
            },
            unit => number(text, unit).ok_or_else(|| format!("{text:?} at {} is no number", self.pointer))?,
        };
        millis
            .filter(|millis| (EARLIEST..=LATEST).contains(millis))
            .ok_or_else(|| format!("{text} at {} is, as {}, outside of the years -9999 to 9999", self.pointer, self.unit.words()))
    }
}

/// A number in milliseconds: whole ones rounded down, others to the nearest. None: no number. The inner none: too large.
fn number(text: &str, unit: TimeUnit) -> Option<Option<i64>> {
    if let Ok(whole) = text.parse::<i64>() {
        return Some(match unit {
            TimeUnit::Seconds => whole.checked_mul(1000),
            TimeUnit::Microseconds => Some(whole.div_euclid(1000)),
            TimeUnit::Milliseconds | TimeUnit::Rfc3339 => Some(whole),
        });
    }
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite())?;
    let millis = match unit {
        TimeUnit::Seconds => number * 1000.0,
        TimeUnit::Microseconds => number / 1000.0,
        TimeUnit::Milliseconds | TimeUnit::Rfc3339 => number,
    };
    #[allow(clippy::cast_possible_truncation, reason = "a larger one becomes the largest, which is refused")]
    Some(Some(millis.round() as i64))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn read(unit: TimeUnit, value: &str) -> Result<i64, String> {
        Stamp::new(JsonPointer::parse("/at").unwrap(), unit).read(Some(value.as_bytes()))
    }

    #[test]
    fn timestamps_are_read_in_every_unit() {
        assert_eq!(read(TimeUnit::Milliseconds, r#"{"at": 1714564800123}"#), Ok(1_714_564_800_123));
        assert_eq!(read(TimeUnit::Milliseconds, r#"{"at": "-5"}"#), Ok(-5));
        assert_eq!(read(TimeUnit::Seconds, r#"{"at": 1714564800.123}"#), Ok(1_714_564_800_123));
        assert_eq!(read(TimeUnit::Microseconds, r#"{"at": -1}"#), Ok(-1));
        assert_eq!(read(TimeUnit::Microseconds, r#"{"at": 1714564800123999}"#), Ok(1_714_564_800_123));
        assert_eq!(read(TimeUnit::Rfc3339, r#"{"at": "2024-05-01T14:00:00.123+02:00"}"#), Ok(1_714_564_800_123));
    }

    #[test]
    fn what_is_no_timestamp_is_told_in_words() {
        let said = |unit, value: &str| read(unit, value).unwrap_err();
        assert_eq!(said(TimeUnit::Milliseconds, r#"{"by": 1}"#), "there is nothing at /at");
        assert_eq!(said(TimeUnit::Milliseconds, r#"{"at": "noon"}"#), "\"noon\" at /at is no number");
        assert_eq!(said(TimeUnit::Seconds, r#"{"at": true}"#), "\"true\" at /at is no number");
        assert_eq!(
            said(TimeUnit::Milliseconds, r#"{"at": 1714564800123456}"#),
            "1714564800123456 at /at is, as milliseconds, outside of the years -9999 to 9999"
        );
        for too_large in ["9223372036854775807", "1e300", "-1e300"] {
            assert!(said(TimeUnit::Seconds, &format!(r#"{{"at": {too_large}}}"#)).contains("outside of the years"));
        }
        assert!(said(TimeUnit::Rfc3339, r#"{"at": 17}"#).starts_with("\"17\" at /at is no time such as"));
        assert_eq!(Stamp::new(JsonPointer::parse("/at").unwrap(), TimeUnit::Seconds).read(None), Err("its value is null".into()));
    }
}
