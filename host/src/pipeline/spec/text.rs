//! The text of a job file, YAML or JSON, as a tree of values.

use crate::config::Fault;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_path_to_error::{Segment, Track};
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
        Err(fault) => Err(fault),
    }
}

/// YAML may begin with a brace as well, and takes most of JSON, but not with the same escapes and the same faults.
fn is_json(text: &str) -> bool {
    text.trim_start().strip_prefix('{').is_some_and(|rest| rest.trim_start().starts_with(['"', '}']))
}

fn parse_json(text: &str) -> Result<Tree, Fault> {
    let mut json = serde_json::Deserializer::from_str(text);
    let mut track = Track::new();
    let read = Tree::deserialize(serde_path_to_error::Deserializer::new(&mut json, &mut track));
    let error = match read.and_then(|tree| json.end().map(|()| tree)) {
        Ok(tree) => return Ok(tree),
        Err(error) => error,
    };
    let message = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let message = match message.strip_suffix(&place).unwrap_or(&message) {
        "number out of range" => "this number is too large",
        "recursion limit exceeded" => "lists and objects are nested too deep",
        other => other,
    };
    Err(Fault::new(path_of(track), format!("not JSON, line {}, column {}: {message}", error.line(), error.column())))
}

fn parse_yaml(text: &str) -> Result<Tree, Fault> {
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    let mut path = String::new();
    let read = serde_saphyr::with_deserializer_from_str_with_options(text, options, |yaml| {
        let mut track = Track::new();
        let tree = Tree::deserialize(serde_path_to_error::Deserializer::new(yaml, &mut track));
        path = path_of(track);
        tree
    });
    read.map_err(|error| {
        let error = error.without_snippet();
        let message = yaml_words(error);
        match error.location() {
            Some(place) => {
                let (line, column) = (place.line(), place.column());
                let message = message.replace(&format!(" at line {line}, column {column}"), "");
                Fault::new(path.as_str(), format!("not YAML, line {line}, column {column}: {message}"))
            }
            None => Fault::new(path.as_str(), format!("not YAML: {message}")),
        }
    })
}

/// The place where reading broke off.
fn path_of(track: Track) -> String {
    let step = |step: &Segment| match step {
        Segment::Seq { index } => format!("/{index}"),
        Segment::Map { key } | Segment::Enum { variant: key } => format!("/{}", key.replace('~', "~0").replace('/', "~1")),
        Segment::Unknown => String::new(),
    };
    track.path().iter().map(step).collect()
}

/// What the library says that reads YAML, in words that tell what would be right. Its own words stay where they are of YAML and not of the library.
fn yaml_words(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error as Yaml;
    match error {
        Yaml::MultipleDocuments { .. } => "there are several documents, divided by `---`: a job is one".to_owned(),
        Yaml::UnknownAnchor { .. } => "an alias (`*name`) without its anchor (`&name`) before it".to_owned(),
        Yaml::NonFiniteFloat { value, .. } => {
            format!("{value} is no number that a job can use: write a finite one, or put a text into quotes")
        }
        Yaml::InvalidScalar { .. } | Yaml::InvalidBinaryBase64 { .. } | Yaml::BinaryNotUtf8 { .. } => {
            "the value does not fit the tag before it (`!!…`): leave the tag out, and put a text into quotes".to_owned()
        }
        Yaml::TaggedScalarCannotDeserializeIntoString { .. } => "a key with a tag before it (`!!…`): leave the tag out".to_owned(),
        Yaml::NullIntoString { .. } => "an empty key: give it a name, or put it into quotes".to_owned(),
        Yaml::Unexpected { expected, .. } if expected.contains("string scalar") => {
            "a key is a text, and neither a list nor an object".to_owned()
        }
        Yaml::DuplicateMappingKey { key: Some(key), .. } => format!("the key {key:?} stands here twice"),
        Yaml::DuplicateMappingKey { key: None, .. } => "a key stands here twice".to_owned(),
        Yaml::MergeValueNotMapOrSeqOfMaps { .. } => "`<<` takes an object with keys, or a list of such".to_owned(),
        Yaml::AliasError { error, .. } => yaml_words(error),
        Yaml::Budget { .. } | Yaml::AliasReplayLimitExceeded { .. } | Yaml::AliasExpansionLimitExceeded { .. } => {
            "the document is too large, or its aliases make it so".to_owned()
        }
        other => other.to_string(),
    }
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

    /// A number that is too large for every type: as a float it is told with its path where it is used.
    fn visit_i128<E: Error>(self, value: i128) -> Result<Tree, E> {
        #[allow(clippy::cast_precision_loss, reason = "it is out of range in any case")]
        self.visit_f64(value as f64)
    }

    fn visit_u128<E: Error>(self, value: u128) -> Result<Tree, E> {
        #[allow(clippy::cast_precision_loss, reason = "it is out of range in any case")]
        self.visit_f64(value as f64)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Tree, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom(format!("{value} is no number that a job can use")))?;
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
        let told = |text: &str| parse(text).unwrap_err().to_string();
        for (text, path, says) in [
            ("name: a\nx: [1, *b]", "/x", "an alias"),
            ("sources:\n- count: .inf", "/sources/0/count", "no number that a job can use"),
            ("sources:\n- count: !!int many", "/sources/0/count", "does not fit the tag"),
            ("name: a\n---\nname: b", "/", "several documents"),
            ("name: a\n? [a]\n: b", "/", "a key is a text"),
            ("name: a\nx: {null: b}", "/x", "an empty key"),
            ("name: a\nx: {b: 1, b: 2}", "/x", "stands here twice"),
            ("name: a\n<<: 1", "/", "takes an object"),
            (r#"{"name": "a", "sources": [{"count": 1e999}]}"#, "/sources/0/count", "too large"),
        ] {
            let told = told(text);
            assert!(told.starts_with(&format!("{path}: not ")) && told.contains(says), "{text}: {told}");
        }
        assert!(fault("").contains("empty"));
        assert!(fault("- a").contains("no object"));
    }
}
