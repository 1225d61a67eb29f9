//! What a plugin under test did.

use super::columns;
use crate::bindings::Emitted;
use crate::host::{Fake, Header, Level};
use crate::record::Rows;

/// A record that a plugin emitted, with what it left as in the input filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputRecord {
    /// The key; `None` is a null key.
    pub key: Option<Vec<u8>>,
    /// The value; `None` is a null value.
    pub value: Option<Vec<u8>>,
    /// Event time, in milliseconds since the Unix epoch.
    pub timestamp: i64,
    /// The headers, those carried over included.
    pub headers: Vec<Header>,
}

impl OutputRecord {
    /// The value as text.
    ///
    /// # Panics
    /// When it is null or no UTF-8, which fails the test.
    #[must_use]
    #[track_caller]
    pub fn text(&self) -> &str {
        text("value", self.value.as_deref())
    }

    /// The key as text.
    ///
    /// # Panics
    /// When it is null or no UTF-8, which fails the test.
    #[must_use]
    #[track_caller]
    pub fn key_text(&self) -> &str {
        text("key", self.key.as_deref())
    }
}

#[track_caller]
#[allow(clippy::panic, reason = "fails the test that asks")]
fn text<'a>(what: &str, bytes: Option<&'a [u8]>) -> &'a str {
    match bytes.map(std::str::from_utf8) {
        Some(Ok(text)) => text,
        Some(Err(_)) => panic!("the {what} is not UTF-8: {:?}", bytes.unwrap_or_default().escape_ascii().to_string()),
        None => panic!("the {what} is null"),
    }
}

/// A record, or a timer, that a plugin failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedRecord {
    /// Its index in the batch that was fed; of a timer, among those that fired together.
    pub row: u32,
    /// Its key, or the timer's.
    pub key: Option<Vec<u8>>,
    /// The sentence.
    pub reason: String,
}

/// Output, failures, log and counters of a plugin under test. What is taken is not there any more.
#[derive(Debug)]
pub struct Observed {
    pub(super) fake: Fake,
    side_outputs: &'static [&'static str],
    records: Vec<(u8, OutputRecord)>,
    failures: Vec<FailedRecord>,
}

impl Observed {
    pub(super) fn new(side_outputs: &'static [&'static str]) -> Self {
        Self { fake: Fake::default(), side_outputs, records: Vec::new(), failures: Vec::new() }
    }

    /// Notes what a call emitted.
    pub(super) fn note(&mut self, emitted: Emitted, rows: Rows<'_>) -> Result<(), String> {
        self.records.extend(columns::records(&emitted, rows, &self.fake.headers)?);
        self.failures.extend(emitted.failures.into_iter().map(|failure| FailedRecord {
            row: failure.row,
            key: rows.key(failure.row).map(<[u8]>::to_vec),
            reason: failure.reason,
        }));
        Ok(())
    }

    /// The records of the main output.
    pub fn take_output(&mut self) -> Vec<OutputRecord> {
        self.take(0)
    }

    /// The records of a side output.
    ///
    /// # Panics
    /// When the plugin does not declare it, which fails the test.
    #[track_caller]
    pub fn take_side_output(&mut self, name: &str) -> Vec<OutputRecord> {
        let position = self.side_outputs.iter().position(|each| *each == name);
        let route = position.and_then(|position| u8::try_from(position + 1).ok());
        self.take(route.unwrap_or_else(|| {
            let declared = self.side_outputs;
            #[allow(clippy::panic, reason = "fails the test that asks")]
            {
                panic!("the plugin has no side output `{name}`; it declares {declared:?}")
            }
        }))
    }

    fn take(&mut self, route: u8) -> Vec<OutputRecord> {
        let (taken, kept) = std::mem::take(&mut self.records).into_iter().partition(|(each, _)| *each == route);
        self.records = kept;
        let taken: Vec<(u8, OutputRecord)> = taken;
        taken.into_iter().map(|(_, record)| record).collect()
    }

    /// The records and timers that failed.
    pub fn take_failures(&mut self) -> Vec<FailedRecord> {
        std::mem::take(&mut self.failures)
    }

    /// What the plugin logged.
    pub fn take_log(&mut self) -> Vec<(Level, String)> {
        std::mem::take(&mut self.fake.logs)
    }

    /// How far a counter has come; 0 if it was never touched.
    #[must_use]
    pub fn counter(&self, name: &str) -> u64 {
        self.fake.counters.get(name).copied().unwrap_or_default()
    }
}
