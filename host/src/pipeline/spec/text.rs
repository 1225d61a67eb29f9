//! The text of a job file, YAML or JSON, as a tree of values.

use crate::config::Fault;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// Reads a text: JSON when it begins with a brace and a quoted key, YAML otherwise.
///
/// # Errors
/// The first fault, with line and column.
pub(in crate::pipeline) fn parse(text: &str) -> Result<Value, Fault> {
    let tree = if is_json(text) { parse_json(text) } else { parse_yaml(text) };
    match tree {
        Ok(Tree(Value::Null)) => Err(Fault::new("", "the document is empty; a job has a name, sources and sinks")),
        Ok(Tree(value @ Value::Object(_))) => Ok(value),
        Ok(_) => Err(Fault::new("", "the document is no object with keys; a job has a name, sources and sinks")),
        Err(message) => Err(Fault::new("", message)),
    }
}

/// YAML may begin with a brace as well, and takes most of JSON, but not with the same escapes and the same faults.
fn is_json(text: &str) -> bool {
    text.trim_start().strip_prefix('{').is_some_and(|rest| rest.trim_start().starts_with(['"', '}']))
}

fn parse_json(text: &str) -> Result<Tree, String> {
    serde_json::from_str(text).map_err(|error| {
        let message = error.to_string();
        let place = format!(" at line {} column {}", error.line(), error.column());
        format!("not JSON, line {}, column {}: {}", error.line(), error.column(), message.strip_suffix(&place).unwrap_or(&message))
    })
}

fn parse_yaml(text: &str) -> Result<Tree, String> {
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let message = error.without_snippet().to_string();
        match error.location() {
            Some(place) => {
                let (line, column) = (place.line(), place.column());
                let message = message.replace(&format!(" at line {line}, column {column}"), "");
                format!("not YAML, line {line}, column {column}: {message}")
            }
            None => format!("not YAML: {message}"),
        }
    })
}

/// A value whose objects have no key twice: the later one would silently win.
struct Tree(Value);

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Tree, E> {
        Ok(Tree(Value::Null))
    }

    fn visit_none<E: Error>(self) -> Result<Tree, E> {
        Ok(Tree(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Tree, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom(format!("{value} is no number that JSON has")))?;
        Ok(Tree(Value::Number(number)))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree(value.into()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Tree, E> {
        Ok(Tree(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(Tree(element)) = elements.next_element()? {
            list.push(element);
        }
        Ok(Tree(Value::Array(list)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Tree, A::Error> {
        let mut object = Map::new();
        while let Some((key, Tree(value))) = members.next_entry::<String, Tree>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("the key {key:?} stands here twice")));
            }
            object.insert(key, value);
        }
        Ok(Tree(Value::Object(object)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn yaml_and_json_are_the_same_tree() {
        let yaml = "name: orders\nsources:\n  - {uid: a, type: file, count: 3, on: true, rate: 0.5, none: }\n";
        let json = r#"{"name": "orders", "sources": [{"uid": "a", "type": "file", "count": 3, "on": true, "rate": 0.5, "none": null}]}"#;
        assert_eq!(parse(yaml).unwrap(), parse(json).unwrap());
        assert_eq!(parse("{name: orders}").unwrap(), parse("name: orders").unwrap());
    }

    #[test]
    fn words_that_older_yaml_took_for_booleans_stay_words() {
        assert_eq!(parse("a: no\nb: on\nc: 'true'").unwrap(), serde_json::json!({"a": "no", "b": "on", "c": "true"}));
    }

    #[test]
    fn faults_of_the_syntax_have_line_and_column() {
        let fault = |text: &str| parse(text).unwrap_err().message;
        assert!(fault("{\n  \"name\": }").starts_with("not JSON, line 2, column 11: expected value"), "{}", fault("{\n  \"name\": }"));
        assert!(fault("name: a\n b: [").starts_with("not YAML, line 2, column "), "{}", fault("name: a\n b: ["));
        assert!(fault("name: a\nname: b").contains("line 2, column 1"), "{}", fault("name: a\nname: b"));
        assert!(fault(r#"{"name": "a", "name": "b"}"#).contains("the key \"name\" stands here twice"));
        assert!(fault("").contains("empty"));
        assert!(fault("- a").contains("no object"));
    }
}
