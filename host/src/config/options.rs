//! Options of a component from their JSON: typed, and with every fault at once.

use super::structure::fault_of;
use super::{Fault, check};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Reads options. Their type should deny unknown fields, so that a misspelt one is a fault. `null` is no options.
///
/// # Errors
/// Every fault at once: what is missing, unknown, of the wrong type or badly written, each with its path in `options`.
pub fn parse_options<T: DeserializeOwned + JsonSchema>(options: &Value) -> Result<T, Vec<Fault>> {
    let none = Value::Object(Map::new());
    let options = if options.is_null() { &none } else { options };
    let faults = check(schemars::schema_for!(T).as_value(), options);
    if !faults.is_empty() {
        return Err(faults);
    }
    // What the schema cannot tell.
    serde_path_to_error::deserialize(options).map_err(|error| vec![fault_of(&error, options)])
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
        /// The folder. It is made if it is not there.
        path: String,
        /// The second one.
        other: String,
        size: Option<Size>,
        span: Option<Span>,
        list: Option<Vec<u8>>,
        /// A number.
        count: Option<u64>,
        format: Option<Format>,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    enum Format {
        /// Lines of JSON.
        JsonLines,
        /// Lines.
        RawLines,
    }

    #[test]
    fn every_fault_is_found_at_once_with_what_would_be_right() {
        let options = json!({"size": "much", "list": [1, 300, "x"], "sise": 1, "span": [], "format": "jsonlines"});
        let mut faults: Vec<String> = parse_options::<Options>(&options).unwrap_err().iter().map(ToString::to_string).collect();
        faults.sort();
        assert_eq!(
            faults,
            [
                "/format: \"jsonlines\" is wrong here: expected \"json-lines\" or \"raw-lines\"",
                "/list/1: 300 is wrong here: it must be at most 255",
                "/list/2: \"x\" is wrong here: expected a whole number",
                "/other: is missing (The second one)",
                "/path: is missing (The folder)",
                "/sise: unknown key \"sise\"; did you mean \"size\"?",
                "/size: \"much\" is wrong here: expected a size such as \"64 KiB\" or \"128 MB\"",
                "/span: [] is wrong here: expected a duration such as \"500 ms\" or \"10 min\"",
            ]
        );
    }

    #[test]
    fn numbers_beyond_their_range_and_with_a_decimal_point_are_told_with_what_would_be_right() {
        let fault = |key: &str, value: Value| {
            let mut options = json!({"path": "a", "other": "b"});
            options[key] = value;
            parse_options::<Options>(&options).unwrap_err().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let whole = "write it as a whole number, without a decimal point";
        assert_eq!(fault("count", json!(5.0)), [format!("/count: 5.0 is wrong here: {whole}")]);
        assert_eq!(fault("count", json!(1e29)), ["/count: 1e+29 is wrong here: it must be at most 18446744073709551615"]);
        assert_eq!(fault("count", json!(5.5)), ["/count: 5.5 is wrong here: expected a whole number"]);
        assert_eq!(fault("count", json!(-1)), ["/count: -1 is wrong here: it must be at least 0"]);
        assert_eq!(fault("list", json!([1, 2.0])), [format!("/list/1: 2.0 is wrong here: {whole}")]);
    }

    #[test]
    fn what_the_schema_cannot_tell_is_a_fault_as_well() {
        let fault = parse_options::<Options>(&json!({"path": "a", "other": "b", "span": "999999999999999999 years"})).unwrap_err();
        assert_eq!(fault[0].path, "/span");
    }

    #[test]
    fn what_is_no_object_is_one_fault() {
        let faults = parse_options::<Options>(&json!("text")).unwrap_err();
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert_eq!(faults[0].path, "");
    }

    #[test]
    fn right_options_are_read() {
        let options: Options =
            parse_options(&json!({"path": "a", "other": "b", "size": "1 KiB", "span": "1h 30m", "format": "raw-lines"})).unwrap();
        assert_eq!(options.size, Some(Size(1024)));
        assert_eq!(parse_options::<Vec<u8>>(&Value::Null).unwrap_err().len(), 1);
    }
}
