//! JSON without a tree: the text of one place in a document, found in one pass. Numbers stay as they are written, so nothing is rounded.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A JSON pointer (RFC 6901): `/order/lines/0/amount`; the empty one is the whole document. In a configuration it is a string.
///
/// ```
/// use waterwheel_plugin::json::Pointer;
///
/// let amount: Pointer = "/order/amount".parse()?;
/// let text = amount.find(br#"{"order": {"id": 7, "amount": 0.10}}"#)?;
/// assert_eq!(text, Some("0.10"));
/// assert_eq!(amount.find(br#"{"order": {}}"#)?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pointer {
    text: String,
    tokens: Vec<String>,
}

/// A text is not a JSON pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAPointer(String);

impl fmt::Display for NotAPointer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.0;
        write!(formatter, "`{text}` is not a JSON pointer: one starts with `/`, as in `/{text}`, and has `~` only in `~0` and `~1`")
    }
}

impl std::error::Error for NotAPointer {}

impl TryFrom<String> for Pointer {
    type Error = NotAPointer;

    fn try_from(text: String) -> Result<Self, NotAPointer> {
        if text.is_empty() {
            return Ok(Self { text, tokens: Vec::new() });
        }
        let escapes_fit = text.replace("~0", "").replace("~1", "").find('~').is_none();
        match text.strip_prefix('/') {
            Some(path) if escapes_fit => {
                let tokens = path.split('/').map(|token| token.replace("~1", "/").replace("~0", "~")).collect();
                Ok(Self { text, tokens })
            }
            _ => Err(NotAPointer(text)),
        }
    }
}

impl std::str::FromStr for Pointer {
    type Err = NotAPointer;

    fn from_str(text: &str) -> Result<Self, NotAPointer> {
        Self::try_from(text.to_owned())
    }
}

impl From<Pointer> for String {
    fn from(pointer: Pointer) -> Self {
        pointer.text
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl Pointer {
    /// The JSON text at this place of a document; `None` if there is nothing. Where a name occurs twice, the last one counts.
    ///
    /// # Errors
    /// When the document is not JSON, also behind the place.
    pub fn find<'d>(&self, document: &'d [u8]) -> Result<Option<&'d str>, serde_json::Error> {
        let mut reader = serde_json::Deserializer::from_slice(document);
        let found = At(&self.tokens).deserialize(&mut reader)?;
        reader.end()?;
        Ok(found)
    }
}

/// The name of a member, not copied unless it has escapes.
#[derive(Debug, Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// Finds what is at the end of the remaining tokens.
struct At<'p>(&'p [String]);

impl<'de> DeserializeSeed<'de> for At<'_> {
    type Value = Option<&'de str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        match self.0 {
            [] => <&RawValue>::deserialize(deserializer).map(|raw| Some(raw.get())),
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for At<'_> {
    type Value = Option<&'de str>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (first, rest) = self.0.split_first().ok_or_else(|| A::Error::custom("no token"))?;
        let mut found = None;
        while let Some(Name(name)) = map.next_key()? {
            if name == first.as_str() {
                found = map.next_value_seed(At(rest))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let (first, rest) = self.0.split_first().ok_or_else(|| A::Error::custom("no token"))?;
        let wanted: Option<usize> = first.parse().ok();
        let mut found = None;
        let mut index = 0;
        loop {
            if Some(index) == wanted {
                match sequence.next_element_seed(At(rest))? {
                    Some(element) => found = element,
                    None => return Ok(found),
                }
            } else if sequence.next_element::<IgnoredAny>()?.is_none() {
                return Ok(found);
            }
            index += 1;
        }
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::Pointer;

    fn find(pointer: &str, document: &str) -> Option<String> {
        pointer.parse::<Pointer>().unwrap().find(document.as_bytes()).unwrap().map(str::to_owned)
    }

    #[test]
    fn finds_what_the_standard_says() {
        let document = r#"{"foo": ["bar", "baz"], "": 0, "a/b": 1, "m~n": 8, "e\"f": {"x": [1.50, null]}}"#;
        assert_eq!(find("", document).unwrap(), document);
        assert_eq!(find("/foo", document).unwrap(), r#"["bar", "baz"]"#);
        assert_eq!(find("/foo/1", document).unwrap(), r#""baz""#);
        assert_eq!(find("/", document).unwrap(), "0");
        assert_eq!(find("/a~1b", document).unwrap(), "1");
        assert_eq!(find("/m~0n", document).unwrap(), "8");
        assert_eq!(find("/e\"f/x/0", document).unwrap(), "1.50");
        assert_eq!(find("/e\"f/x/1", document).unwrap(), "null");
    }

    #[test]
    fn what_is_not_there_is_none() {
        for (pointer, document) in [("/a", "{}"), ("/a/b", r#"{"a": 1}"#), ("/2", "[0, 1]"), ("/x", "[0]"), ("/a", "null"), ("/a", "1.5")] {
            assert_eq!(find(pointer, document), None, "{pointer} in {document}");
        }
    }

    #[test]
    fn the_whole_document_has_to_be_json() {
        let pointer: Pointer = "/a".parse().unwrap();
        for document in ["", "{", r#"{"a": 1} x"#, r#"{"a": 1, "b": tru}"#, "\"\u{1}\""] {
            pointer.find(document.as_bytes()).unwrap_err();
        }
    }

    #[test]
    fn what_is_no_pointer_is_refused() {
        for text in ["a", "a/b", "/a~", "/a~2"] {
            let error = text.parse::<Pointer>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{text}` is not a JSON pointer")), "{error}");
        }
    }
}
