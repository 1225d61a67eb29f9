//! One scalar out of a JSON document by its JSON pointer (RFC 6901), without building the document.

use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// A JSON pointer, taken apart once and applied to many documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPointer {
    text: String,
    steps: Vec<String>,
}

/// Why a pointer found no scalar: a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointerFault {
    /// The document is not JSON.
    #[error("the value is not JSON: {0}")]
    NotJson(String),
    /// There is nothing at the pointer.
    #[error("there is nothing at {0}")]
    Missing(String),
    /// Null is there.
    #[error("null is at {0}, which is no key")]
    Null(String),
    /// An object is there.
    #[error("an object is at {0}, where a string, a number or a boolean is needed: point at a value inside of it")]
    Object(String),
    /// A list is there.
    #[error("a list is at {0}, where a string, a number or a boolean is needed: point at an element, {0}/0")]
    List(String),
}

/// What stood at the pointer.
enum Found {
    Scalar,
    Nothing,
    Null,
    Object,
    List,
}

impl JsonPointer {
    /// Takes a pointer apart.
    ///
    /// # Errors
    /// A text that is neither empty nor starts with `/`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let steps = match text.strip_prefix('/') {
            Some(rest) => rest.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect(),
            None if text.is_empty() => Vec::new(),
            None => return Err(format!("{text:?} is not a JSON pointer: write /{text}")),
        };
        Ok(Self { text: text.to_owned(), steps })
    }

    /// Appends the scalar at the pointer to `out`: the text of a string, a number or boolean as JSON writes it.
    ///
    /// # Errors
    /// No JSON, nothing there, or no scalar; `out` is then as it was.
    pub fn append_scalar(&self, document: &[u8], out: &mut Vec<u8>) -> Result<(), PointerFault> {
        let before = out.len();
        let mut json = serde_json::Deserializer::from_slice(document);
        let walk = Walk { steps: &self.steps, out };
        let found = walk.deserialize(&mut json).and_then(|found| json.end().map(|()| found));
        match found {
            Ok(Found::Scalar) => return Ok(()),
            Ok(_) | Err(_) => out.truncate(before),
        }
        let place = || if self.text.is_empty() { "the top".to_owned() } else { self.text.clone() };
        Err(match found {
            Ok(Found::Null) => PointerFault::Null(place()),
            Ok(Found::Object) => PointerFault::Object(place()),
            Ok(Found::List) => PointerFault::List(place()),
            Ok(Found::Nothing | Found::Scalar) => PointerFault::Missing(place()),
            Err(error) => PointerFault::NotJson(error.to_string()),
        })
    }
}

impl fmt::Display for JsonPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

struct Walk<'a> {
    steps: &'a [String],
    out: &'a mut Vec<u8>,
}

impl Walk<'_> {
    fn scalar(self, text: &[u8]) -> Found {
        if !self.steps.is_empty() {
            return Found::Nothing;
        }
        self.out.extend_from_slice(text);
        Found::Scalar
    }

    fn displayed(self, scalar: impl fmt::Display) -> Found {
        use std::io::Write;
        if !self.steps.is_empty() {
            return Found::Nothing;
        }
        match write!(self.out, "{scalar}") {
            Ok(()) => Found::Scalar,
            Err(_) => Found::Nothing,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = Found;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Found, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON document")
    }

    fn visit_bool<E>(self, scalar: bool) -> Result<Found, E> {
        Ok(self.displayed(scalar))
    }

    fn visit_i64<E>(self, scalar: i64) -> Result<Found, E> {
        Ok(self.displayed(scalar))
    }

    fn visit_u64<E>(self, scalar: u64) -> Result<Found, E> {
        Ok(self.displayed(scalar))
    }

    fn visit_f64<E>(self, scalar: f64) -> Result<Found, E> {
        Ok(match serde_json::Number::from_f64(scalar) {
            Some(number) => self.displayed(number),
            None => Found::Nothing,
        })
    }

    fn visit_str<E>(self, scalar: &str) -> Result<Found, E> {
        Ok(self.scalar(scalar.as_bytes()))
    }

    fn visit_unit<E>(self) -> Result<Found, E> {
        Ok(if self.steps.is_empty() { Found::Null } else { Found::Nothing })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Found, A::Error> {
        let Some((step, below)) = self.steps.split_first() else {
            while items.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Found::List);
        };
        let wanted: Option<usize> = step.parse().ok();
        let mut found = Found::Nothing;
        for index in 0.. {
            if Some(index) == wanted {
                match items.next_element_seed(Walk { steps: below, out: self.out })? {
                    Some(inner) => found = inner,
                    None => break,
                }
            } else if items.next_element::<IgnoredAny>()?.is_none() {
                break;
            }
        }
        Ok(found)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Found, A::Error> {
        let Some((step, below)) = self.steps.split_first() else {
            while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Found::Object);
        };
        let (before, mut found) = (self.out.len(), Found::Nothing);
        while let Some(is_step) = fields.next_key_seed(Is(step))? {
            if is_step {
                // A name that is repeated counts as JSON libraries count it: the last one.
                self.out.truncate(before);
                found = fields.next_value_seed(Walk { steps: below, out: self.out })?;
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Whether a field's name is this one.
struct Is<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for Is<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Is<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field's name")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn at(pointer: &str, document: &str) -> Result<String, PointerFault> {
        let mut out = b"before".to_vec();
        let result = JsonPointer::parse(pointer).unwrap().append_scalar(document.as_bytes(), &mut out);
        let text = String::from_utf8(out).unwrap();
        result.map(|()| text.strip_prefix("before").unwrap().to_owned()).inspect_err(|_| assert_eq!(text, "before"))
    }

    #[test]
    fn scalars_are_found_at_any_depth() {
        assert_eq!(at("/a/1/b~1c", r#"{"x":[1,{}],"a":[0,{"b/c":"h\u00e9"}]}"#).unwrap(), "hé");
        assert_eq!(at("/n", r#"{"n":-12.50}"#).unwrap(), "-12.5");
        assert_eq!(at("", "true").unwrap(), "true");
        assert_eq!(at("/a", r#"{"a":1,"a":2}"#).unwrap(), "2");
    }

    #[test]
    fn what_is_no_scalar_is_told() {
        assert_eq!(at("/a", r#"{"a":{"b":1}}"#), Err(PointerFault::Object("/a".into())));
        assert_eq!(at("/a", r#"{"a":[1]}"#), Err(PointerFault::List("/a".into())));
        assert_eq!(at("/a/b", r#"{"a":"text"}"#), Err(PointerFault::Missing("/a/b".into())));
        assert_eq!(at("/a", r#"{"a":null}"#), Err(PointerFault::Null("/a".into())));
        assert_eq!(at("/a/b", r#"{"a":null}"#), Err(PointerFault::Missing("/a/b".into())));
        assert!(matches!(at("/a", r#"{"a":1"#), Err(PointerFault::NotJson(_))));
        assert!(matches!(at("/a", r#"{"a":1} x"#), Err(PointerFault::NotJson(_))));
        assert!(JsonPointer::parse("a").is_err());
    }
}
