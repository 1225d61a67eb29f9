//! A size in bytes as people write it: `64 KiB`, `128 MB`.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;

/// Units by name, largest first; those with an `i` are powers of 1024.
const UNITS: [(&str, u64); 8] = [
    ("tib", 1 << 40),
    ("gib", 1 << 30),
    ("mib", 1 << 20),
    ("kib", 1 << 10),
    ("tb", 1_000_000_000_000),
    ("gb", 1_000_000_000),
    ("mb", 1_000_000),
    ("kb", 1_000),
];

/// A number of bytes, written with units (`64 KiB`, `128 MB`); a bare number is bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Size {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a size such as \"64 KiB\" or \"128 MB\"");
        let lower = text.trim().to_ascii_lowercase();
        let (number, unit) = UNITS
            .iter()
            .find_map(|(name, unit)| lower.strip_suffix(name).map(|number| (number, *unit)))
            .unwrap_or_else(|| (lower.strip_suffix('b').unwrap_or(&lower), 1));
        let number: u64 = number.trim().parse().map_err(|_| wrong())?;
        number.checked_mul(unit).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = |unit: u64| self.0 >= unit && self.0.is_multiple_of(unit);
        match [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)].into_iter().find(|(_, unit)| exact(*unit)) {
            Some((name, unit)) => write!(f, "{} {name}", self.0 / unit),
            None => write!(f, "{} B", self.0),
        }
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Bytes(u64),
            Text(String),
        }
        match Written::deserialize(deserializer) {
            Ok(Written::Bytes(bytes)) => Ok(Self(bytes)),
            Ok(Written::Text(text)) => Self::parse(&text).map_err(de::Error::custom),
            Err(_) => Err(de::Error::custom("expected a size such as \"64 KiB\" or \"128 MB\", or a number of bytes")),
        }
    }
}

impl JsonSchema for Size {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "title": "a size such as \"64 KiB\" or \"128 MB\"",
            "description": "A size with units (\"64 KiB\", \"128 MB\"), or a number of bytes.",
            "type": ["string", "integer"],
            "minimum": 0,
            "pattern": r"^\s*\d+\s*([KkMmGgTt][Ii]?)?[Bb]?\s*$",
        })
    }
}
