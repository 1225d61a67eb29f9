//! What a node reads, and how records are dealt to its subtasks.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// One input of an operator or a sink. Written short, it is only `from`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct InputSpec {
    /// The uid of a source or an operator, or `uid.name` for a side output of an operator.
    pub from: String,
    /// Deals the records by key, so that all records of a key meet the same subtask, and makes it their key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_by: Option<KeyBy>,
    /// What happens to a record without a key.
    #[serde(skip_serializing_if = "is_default")]
    pub on_missing_key: OnMissingKey,
    /// Gives every record to every subtask.
    #[serde(skip_serializing_if = "is_default")]
    pub broadcast: bool,
    /// The number of the operator's input that these records arrive at; several with one number are a union.
    #[serde(rename = "as", skip_serializing_if = "is_default")]
    pub number: u8,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl InputSpec {
    /// The uid that the input reads from, and the side output if it names one.
    pub fn origin(&self) -> (&str, Option<&str>) {
        match self.from.split_once('.') {
            Some((uid, output)) => (uid, Some(output)),
            None => (&self.from, None),
        }
    }

    /// The same input, dealt by key.
    #[must_use]
    pub fn keyed_by(mut self, key: KeyBy) -> Self {
        self.key_by = Some(key);
        self
    }

    /// The same input, at the operator's input of this number.
    #[must_use]
    pub fn numbered(mut self, number: u8) -> Self {
        self.number = number;
        self
    }
}

impl From<&str> for InputSpec {
    fn from(from: &str) -> Self {
        from.to_owned().into()
    }
}

impl From<String> for InputSpec {
    fn from(from: String) -> Self {
        Self { from, key_by: None, on_missing_key: OnMissingKey::Fail, broadcast: false, number: 0 }
    }
}

impl JsonSchema for InputSpec {
    fn schema_name() -> Cow<'static, str> {
        "InputSpec".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Written::json_schema(generator);
        schema.insert("description".to_owned(), "One input of an operator or a sink. Written short, it is only `from`.".into());
        schema
    }
}

/// By hand, so that an error has the path of what is wrong in an input, and says what would be right there.
impl<'de> Deserialize<'de> for InputSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(InputVisitor)
    }
}

struct InputVisitor;

impl<'de> Visitor<'de> for InputVisitor {
    type Value = InputSpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a uid, or an object with `from`")
    }

    fn visit_str<E: de::Error>(self, from: &str) -> Result<InputSpec, E> {
        Ok(from.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<InputSpec, A::Error> {
        let Input { from, key_by, on_missing_key, broadcast, number } = Input::deserialize(MapAccessDeserializer::new(members))?;
        Ok(InputSpec { from, key_by, on_missing_key, broadcast, number })
    }
}

/// The two ways to write an input.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "only its schema is wanted")]
enum Written {
    /// The uid of a source or an operator, or `uid.name` for a side output of an operator.
    Short(String),
    /// An input with options.
    Long(Input),
}

/// An input with options.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Input {
    /// The uid of a source or an operator, or `uid.name` for a side output of an operator.
    from: String,
    /// Deals the records by key, so that all records of a key meet the same subtask, and makes it their key. By default they are not dealt.
    #[serde(default)]
    key_by: Option<KeyBy>,
    /// What happens to a record without a key. By default `fail`.
    #[serde(default)]
    on_missing_key: OnMissingKey,
    /// Gives every record to every subtask. By default false.
    #[serde(default)]
    broadcast: bool,
    /// The number of the operator's input that these records arrive at; several with one number are a union. By default 0.
    #[serde(default, rename = "as")]
    number: u8,
}

/// What records are dealt by, which becomes their key from there on: `key`, `json-pointer: /user` or `header: name`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KeyBy {
    /// The record's own key.
    Key,
    /// A place in the record's value, which is JSON: the text of a string, a number or a boolean as JSON writes it. What is not there,
    /// null, an object or a list is no key.
    JsonPointer(String),
    /// The last header of a name.
    Header(String),
}

/// What happens to a record that has no key where it is dealt by key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnMissingKey {
    /// It is an error of the record: the reading operator's error policy decides.
    #[default]
    Fail,
    /// It is dropped and counted.
    Drop,
}
