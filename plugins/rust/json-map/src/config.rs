//! What the job specification may say.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use waterwheel_plugin::json::Pointer;

/// The configuration; what is left out is not done.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Records that do not meet all of these conditions are dropped.
    pub keep: Vec<Condition>,
    /// From old to new name. A field that has the new name already gives way.
    pub rename: BTreeMap<String, String>,
    /// Fields to leave out, by the name that they come in with.
    pub remove: Vec<String>,
    /// Fields to add behind the others. One of the same name gives way.
    pub add: Map<String, Value>,
}

/// A condition on one place of the record; all that it says must hold.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Condition {
    /// Where, as a JSON pointer.
    field: Pointer,
    exists: Option<bool>,
    #[serde(default, deserialize_with = "given")]
    equals: Option<Value>,
    #[serde(default, deserialize_with = "given")]
    not_equals: Option<Value>,
    greater_than: Option<f64>,
    at_least: Option<f64>,
    less_than: Option<f64>,
    at_most: Option<f64>,
}

/// A value that is given, also when it is null.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl Condition {
    /// Whether it says anything.
    pub fn is_empty(&self) -> bool {
        let bounds = [self.greater_than, self.at_least, self.less_than, self.at_most];
        self.exists.is_none() && self.equals.is_none() && self.not_equals.is_none() && bounds.iter().all(Option::is_none)
    }

    /// Whether a record meets it. Something that is no number is neither greater nor less than one; nothing is equal to what is missing.
    pub fn holds(&self, record: &[u8]) -> Result<bool, serde_json::Error> {
        let found: Option<Value> = self.field.find(record)?.map(serde_json::from_str).transpose()?;
        let number = found.as_ref().and_then(Value::as_f64);
        let bound = |bound: Option<f64>, holds: fn(&f64, &f64) -> bool| {
            bound.is_none_or(|bound| number.is_some_and(|number| holds(&number, &bound)))
        };
        Ok(self.exists.is_none_or(|exists| exists == found.is_some())
            && self.equals.as_ref().is_none_or(|value| is_equal(found.as_ref(), value))
            && self.not_equals.as_ref().is_none_or(|value| !is_equal(found.as_ref(), value))
            && bound(self.greater_than, f64::gt)
            && bound(self.at_least, f64::ge)
            && bound(self.less_than, f64::lt)
            && bound(self.at_most, f64::le))
    }
}

/// Equality as people mean it: 1 is 1.0.
fn is_equal(found: Option<&Value>, value: &Value) -> bool {
    match (found, value) {
        (Some(Value::Number(found)), Value::Number(value)) => found == value || found.as_f64() == value.as_f64(),
        (found, value) => found == Some(value),
    }
}
