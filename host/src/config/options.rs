//! Options of a component from their JSON: typed, and with every fault at once.

use super::Fault;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use serde_path_to_error::{Path, Segment};

/// How many faults are collected before the rest is left for the next attempt.
const MAX_FAULTS: usize = 64;

/// Reads options. Their type should deny unknown fields, so that a misspelt one is a fault.
///
/// # Errors
/// Every fault at once: what is missing, unknown, of the wrong type or badly written, each with its path in `options`.
pub fn parse_options<T: DeserializeOwned + JsonSchema>(options: &Value) -> Result<T, Vec<Fault>> {
    let mut faults = Vec::new();
    let mut rest = match options {
        Value::Null => Value::Object(Map::new()),
        other => other.clone(),
    };
    // What is wrong is noted and taken out, until what remains can be read: so one pass finds every fault.
    while faults.len() < MAX_FAULTS {
        match serde_path_to_error::deserialize::<_, T>(rest.clone()) {
            Ok(parsed) if faults.is_empty() => return Ok(parsed),
            Ok(_) => break,
            Err(error) => {
                let steps = steps_of(error.path());
                let fault = Fault::new(pointer(&steps), error.inner().to_string());
                if !remove(&mut rest, &steps) {
                    // Required fields are checked last, one at a time; the schema names all of them.
                    let missing = if rest.is_object() { missing_fields::<T>(options) } else { Vec::new() };
                    faults.extend(if missing.is_empty() { vec![fault] } else { missing });
                    break;
                }
                faults.push(fault);
            }
        }
    }
    Err(faults)
}

fn steps_of(path: &Path) -> Vec<String> {
    path.iter()
        .filter_map(|segment| match segment {
            Segment::Seq { index } => Some(index.to_string()),
            Segment::Map { key } => Some(key.clone()),
            Segment::Enum { variant } => Some(variant.clone()),
            Segment::Unknown => None,
        })
        .collect()
}

fn pointer(steps: &[String]) -> String {
    steps.iter().map(|step| format!("/{}", step.replace('~', "~0").replace('/', "~1"))).collect()
}

/// Takes out the field that the steps lead to, or the nearest one around it, but never the whole. Of a list nothing is taken out
/// alone, as the paths of what comes after it would be wrong; an object that becomes empty goes as well.
fn remove(document: &mut Value, steps: &[String]) -> bool {
    for length in (1..=steps.len()).rev() {
        let Some(Value::Object(fields)) = document.pointer_mut(&pointer(&steps[..length - 1])) else { continue };
        let removed = fields.shift_remove(&steps[length - 1]).is_some();
        if removed && fields.is_empty() && length > 1 {
            remove(document, &steps[..length - 1]);
        }
        if removed {
            return true;
        }
    }
    false
}

fn missing_fields<T: JsonSchema>(options: &Value) -> Vec<Fault> {
    let schema = schemars::schema_for!(T);
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    required
        .filter(|name| options.get(name).is_none())
        .map(|name| {
            let description = schema.pointer(&format!("/properties/{name}/description")).and_then(Value::as_str);
            Fault::new(format!("/{name}"), format!("is missing: {}", description.unwrap_or("it has no default")))
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::config::{Size, Span};
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, rename_all = "kebab-case")]
    #[allow(dead_code, reason = "only what is reported matters")]
    struct Options {
        /// The folder.
        path: String,
        /// The second one.
        other: String,
        size: Option<Size>,
        span: Option<Span>,
        list: Option<Vec<u8>>,
    }

    #[test]
    fn every_fault_is_found_at_once() {
        let faults = parse_options::<Options>(&json!({"size": "much", "list": [1, 300, "x"], "sise": 1, "span": "soon"})).unwrap_err();
        let paths: Vec<_> = faults.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(paths, ["/size", "/list/1", "/sise", "/span", "/path", "/other"], "{faults:?}");
        assert!(faults[2].message.contains("expected one of"), "{faults:?}");
        assert_eq!(faults[4].message, "is missing: The folder.");
    }

    #[test]
    fn what_is_no_object_is_one_fault() {
        let faults = parse_options::<Options>(&json!("text")).unwrap_err();
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert_eq!(faults[0].path, "");
    }

    #[test]
    fn right_options_are_read() {
        let options: Options = parse_options(&json!({"path": "a", "other": "b", "size": "1 KiB"})).unwrap();
        assert_eq!(options.size, Some(Size(1024)));
    }
}
