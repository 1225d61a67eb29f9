//! Entries as lines of JSON, for people and their programs:
//!
//! ```text
//! {"operator":"total","state":"totals","version":1,"key":"anna","subkey":null,"value":{"count":3,"sum":7}}
//! ```
//! Keys are texts, or `{"base64":"…"}` where they are not UTF-8. Subkeys and values are what their MessagePack says, or `{"base64":"…"}` where
//! they are something else or could not be written back as the same bytes. Numbers of single precision come back as double ones, which a
//! plugin reads as well. A state with one value a key has the subkey null.

use super::EntryRef;
use super::data::Data;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize, Serializer};

const BASE64: &str = "base64";

/// An entry of an operator's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateLine {
    /// The uid of the operator.
    pub operator: String,
    /// The state.
    pub state: String,
    /// The version of its encoding.
    pub version: u32,
    /// The key.
    pub key: Vec<u8>,
    /// What stands within the key, in a state that has several entries a key.
    pub subkey: Option<Vec<u8>>,
    /// The value.
    pub value: Vec<u8>,
}

#[derive(Serialize)]
struct Shown<'a> {
    operator: &'a str,
    state: &'a str,
    version: u32,
    key: Cell<'a>,
    subkey: Option<Cell<'a>>,
    value: Cell<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    operator: String,
    state: String,
    #[serde(default = "first_version")]
    version: u32,
    key: Data,
    #[serde(default)]
    subkey: Option<Data>,
    value: Data,
}

fn first_version() -> u32 {
    1
}

enum Cell<'a> {
    Text(&'a str),
    Data(Data),
    Bytes(&'a [u8]),
}

impl Serialize for Cell<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Data(data) => data.serialize(serializer),
            Self::Bytes(bytes) => Data::Map(vec![(BASE64.to_owned(), Data::Text(STANDARD.encode(bytes)))]).serialize(serializer),
        }
    }
}

/// A key as lines show it.
#[must_use]
pub fn shown_key(key: &[u8]) -> serde_json::Value {
    serde_json::to_value(key_cell(key)).unwrap_or_default()
}

/// A subkey or value as lines show it.
#[must_use]
pub fn shown_value(bytes: &[u8]) -> serde_json::Value {
    serde_json::to_value(cell(bytes)).unwrap_or_default()
}

fn key_cell(key: &[u8]) -> Cell<'_> {
    std::str::from_utf8(key).map_or(Cell::Bytes(key), Cell::Text)
}

fn cell(bytes: &[u8]) -> Cell<'_> {
    match Data::of_message_pack(bytes) {
        // Null says that there is no subkey, and a map with this one member that these are bytes.
        Some(data) if data != Data::Nil && bytes_of(&data).is_none() => Cell::Data(data),
        _ => Cell::Bytes(bytes),
    }
}

/// The text of a map whose only member says that it is base64.
fn bytes_of(data: &Data) -> Option<&str> {
    match data {
        Data::Map(members) => match &members[..] {
            [(name, Data::Text(text))] if name == BASE64 => Some(text),
            _ => None,
        },
        _ => None,
    }
}

impl StateLine {
    /// The line of an entry that is there.
    #[must_use]
    pub fn of(operator: &str, state: &str, version: u32, entry: &EntryRef<'_>) -> Self {
        Self {
            operator: operator.to_owned(),
            state: state.to_owned(),
            version,
            key: entry.key.to_vec(),
            subkey: entry.subkey.map(<[u8]>::to_vec),
            value: entry.value.unwrap_or_default().to_vec(),
        }
    }

    /// The line, without its end.
    ///
    /// # Panics
    /// Never: all that is in it can be written as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        let Self { operator, state, version, key, subkey, value } = self;
        let shown =
            Shown { operator, state, version: *version, key: key_cell(key), subkey: subkey.as_deref().map(cell), value: cell(value) };
        serde_json::to_string(&shown).expect("invariant: names are texts, and numbers are finite")
    }

    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(line: &str) -> Result<Self, String> {
        let Written { operator, state, version, key, subkey, value } = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let key = match &key {
            Data::Text(text) => text.clone().into_bytes(),
            other => match bytes_of(other) {
                Some(text) => decode("key", text)?,
                None => return Err("key: a text is expected, or {\"base64\": …}".to_owned()),
            },
        };
        let subkey = subkey.map(|subkey| encoded("subkey", &subkey)).transpose()?;
        Ok(Self { operator, state, version, key, subkey, value: encoded("value", &value)? })
    }
}

fn encoded(name: &str, data: &Data) -> Result<Vec<u8>, String> {
    match bytes_of(data) {
        Some(text) => decode(name, text),
        None => data.to_message_pack().map_err(|error| format!("{name}: {error}")),
    }
}

fn decode(name: &str, text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|error| format!("{name}: it is not base64: {error}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn line(key: &[u8], subkey: Option<Vec<u8>>, value: Vec<u8>) -> StateLine {
        StateLine { operator: "op".to_owned(), state: "s".to_owned(), version: 2, key: key.to_vec(), subkey, value }
    }

    fn packed(value: &impl Serialize) -> Vec<u8> {
        rmp_serde::to_vec_named(value).unwrap()
    }

    #[test]
    fn a_line_shows_what_the_value_says_in_its_order() {
        #[derive(Serialize)]
        struct Total {
            sum: f32,
            count: u64,
            last: Option<i8>,
        }
        let shown = line(b"anna", Some(packed(&-3_i64)), packed(&Total { sum: 0.1, count: 3, last: None })).to_json();
        assert_eq!(
            shown,
            r#"{"operator":"op","state":"s","version":2,"key":"anna","subkey":-3,"value":{"sum":0.1,"count":3,"last":null}}"#
        );
    }

    #[test]
    fn what_json_cannot_hold_is_shown_as_bytes_and_comes_back() {
        let no_text = line(&[0xff, 0], Some(packed(&())), packed(&f64::NAN));
        let shown: serde_json::Value = serde_json::from_str(&no_text.to_json()).unwrap();
        assert_eq!(shown["key"], json!({"base64": "/wA="}));
        assert_eq!(shown["subkey"], json!({"base64": "wA=="}));
        assert!(shown["value"]["base64"].is_string());
        for value in [vec![], vec![1, 2], packed(&std::collections::BTreeMap::from([(1, 2)])), packed(&json!({"base64": "aa"}))] {
            let written = line(b"k", None, value);
            assert!(written.to_json().contains("base64"), "{}", written.to_json());
            assert_eq!(StateLine::parse(&written.to_json()).unwrap(), written);
        }
        assert_eq!(StateLine::parse(&no_text.to_json()).unwrap(), no_text);
    }

    #[test]
    fn a_wrong_line_is_refused_with_its_reason() {
        let refused = |text: &str| StateLine::parse(text).unwrap_err();
        assert!(refused("{}").contains("operator"));
        assert!(refused(r#"{"operator":"o","state":"s","key":1,"value":1}"#).contains("key: a text is expected"));
        assert!(refused(r#"{"operator":"o","state":"s","key":"k","value":1,"vale":1}"#).contains("vale"));
        assert!(refused(r#"{"operator":"o","state":"s","key":"k","value":{"base64":"?"}}"#).contains("not base64"));
        let least = StateLine::parse(r#"{"operator":"o","state":"s","key":"k","value":1}"#).unwrap();
        assert_eq!((least.version, least.subkey), (1, None));
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(key: Vec<u8>, subkey: Option<Vec<u8>>, value: Vec<u8>) {
            let written = line(&key, subkey, value);
            let read = StateLine::parse(&written.to_json()).unwrap();
            // A single-precision number is read back in double precision, which is the only difference.
            prop_assert_eq!(&read.key, &written.key);
            prop_assert_eq!(StateLine::parse(&read.to_json()).unwrap(), read);
        }

        #[test]
        fn values_of_json_come_back(number: i64, fraction: f64, text: String, keys: Vec<String>) {
            let value = json!({"n": number, "f": fraction, "t": text, "l": keys});
            let written = line(b"k", Some(packed(&text)), packed(&value));
            prop_assert_eq!(StateLine::parse(&written.to_json()).unwrap(), written);
        }
    }
}
