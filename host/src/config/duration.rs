//! A duration as people write it: `500 ms`, `10 min`, `1h 30m`.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// What [`Span`] reads, for the schema; of humantime's many spellings the usual ones.
const PATTERN: &str = concat!(
    r"^\s*(\d+|(\d+(\.\d+)?\s*(ns|nsec|nanos|us|usec|ms|msec|millis|s|secs?|seconds?|m|mins?|minutes?|",
    r"h|hrs?|hours?|d|days?|w|wks?|weeks?|M|months?|y|yrs?|years?)\s*)+)\s*$"
);

/// A duration, written with units (`500 ms`, `10 min`); a bare number is milliseconds, as Flink has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl Span {
    /// Whole milliseconds.
    pub const fn from_millis(milliseconds: u64) -> Self {
        Self(Duration::from_millis(milliseconds))
    }

    fn parse(text: &str) -> Result<Self, String> {
        if let Ok(milliseconds) = text.trim().parse() {
            return Ok(Self::from_millis(milliseconds));
        }
        humantime::parse_duration(text)
            .map(Self)
            .map_err(|error| format!("{text:?} is not a duration such as \"500 ms\" or \"10 min\": {error}"))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Milliseconds(u64),
            Text(String),
        }
        match Written::deserialize(deserializer) {
            Ok(Written::Milliseconds(milliseconds)) => Ok(Self::from_millis(milliseconds)),
            Ok(Written::Text(text)) => Self::parse(&text).map_err(de::Error::custom),
            Err(_) => Err(de::Error::custom("expected a duration such as \"500 ms\" or \"10 min\", or a number of milliseconds")),
        }
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "title": "a duration such as \"500 ms\" or \"10 min\"",
            "description": "A duration with units (\"500 ms\", \"10 min\"), or a number of milliseconds.",
            "type": ["string", "integer"],
            "minimum": 0,
            "pattern": PATTERN,
        })
    }
}
