//! What a plugin says about a record that it emits.

use std::{fmt, io};

use crate::record::Record;

/// The key of an emitted record.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Key<'a> {
    #[default]
    AsInput,
    Null,
    Given(&'a [u8]),
}

/// The value of an emitted record.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Value<'a> {
    #[default]
    Null,
    Given(&'a [u8]),
    /// That of an input row, a null one included: such values are copied many at a time.
    OfRow {
        row: u32,
        null: bool,
    },
}

/// A record to emit. Whatever is not said is as in the input: the key and the event time of the record in process (of a timer: its key and
/// its time), and its headers. Saying nothing is also what costs least.
///
/// ```
/// use waterwheel_plugin::Emit;
///
/// let plain = Emit::value(b"17");
/// let other = Emit::value(b"17").key(b"user-4").timestamp(1_700_000_000_000).to("late");
/// let tombstone = Emit::tombstone().key(b"user-4");
/// # let _ = (plain, other, tombstone);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Emit<'a> {
    pub(crate) value: Value<'a>,
    pub(crate) key: Key<'a>,
    pub(crate) timestamp: Option<i64>,
    pub(crate) side_output: Option<&'a str>,
}

impl<'a> Emit<'a> {
    /// The input row that this is, if all is as in that row and its value is not null.
    #[inline]
    pub(crate) fn plain_row(&self) -> Option<u32> {
        match self {
            Self { value: Value::OfRow { row, null: false }, key: Key::AsInput, timestamp: None, side_output: None } => Some(*row),
            _ => None,
        }
    }

    /// A record with this value.
    #[must_use]
    #[inline]
    pub fn value(value: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { value: Value::Given(value.as_ref()), ..Self::default() }
    }

    /// A record with a null value.
    #[must_use]
    #[inline]
    pub fn tombstone() -> Self {
        Self::default()
    }

    /// With this key.
    #[must_use]
    #[inline]
    pub fn key(self, key: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { key: Key::Given(key.as_ref()), ..self }
    }

    /// With a null key.
    #[must_use]
    #[inline]
    pub fn null_key(self) -> Self {
        Self { key: Key::Null, ..self }
    }

    /// With this event time, in milliseconds since the Unix epoch.
    #[must_use]
    #[inline]
    pub fn timestamp(self, timestamp: i64) -> Self {
        Self { timestamp: Some(timestamp), ..self }
    }

    /// To the side output of this name, one of the plugin's `SIDE_OUTPUTS`. Any other name fails the batch.
    #[must_use]
    #[inline]
    pub fn to(self, side_output: &'a str) -> Self {
        Self { side_output: Some(side_output), ..self }
    }
}

impl<'a> From<&Record<'a>> for Emit<'a> {
    /// The record as it is.
    #[inline]
    fn from(record: &Record<'a>) -> Self {
        Self { value: Value::OfRow { row: record.row(), null: record.is_tombstone() }, ..Self::default() }
    }
}

impl<'a> From<&'a [u8]> for Emit<'a> {
    #[inline]
    fn from(value: &'a [u8]) -> Self {
        Self::value(value)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Emit<'a> {
    #[inline]
    fn from(value: &'a [u8; N]) -> Self {
        Self::value(value)
    }
}

impl<'a> From<&'a Vec<u8>> for Emit<'a> {
    #[inline]
    fn from(value: &'a Vec<u8>) -> Self {
        Self::value(value)
    }
}

impl<'a> From<&'a str> for Emit<'a> {
    #[inline]
    fn from(value: &'a str) -> Self {
        Self::value(value)
    }
}

impl<'a> From<&'a String> for Emit<'a> {
    #[inline]
    fn from(value: &'a String) -> Self {
        Self::value(value)
    }
}

/// Takes the value of one record, piece by piece, straight into the batch that goes out.
#[derive(Debug)]
pub struct ValueWriter<'a> {
    pub(crate) bytes: &'a mut Vec<u8>,
}

impl ValueWriter<'_> {
    /// Appends bytes.
    pub fn push(&mut self, bytes: impl AsRef<[u8]>) {
        self.bytes.extend_from_slice(bytes.as_ref());
    }
}

impl io::Write for ValueWriter<'_> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Write for ValueWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
