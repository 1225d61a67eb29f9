//! Filters records that are JSON objects, renames, removes and adds fields. A record that is no JSON object fails.
//!
//! ```json
//! {
//!   "keep": [{"field": "/amount", "greater-than": 0}, {"field": "/status", "not-equals": "test"}],
//!   "rename": {"usr": "user"},
//!   "remove": ["padding"],
//!   "add": {"currency": "EUR", "version": 2}
//! }
//! ```
//!
//! The order is that of the example: conditions (`exists`, `equals`, `not-equals`, `greater-than`, `at-least`, `less-than`, `at-most`, on any
//! place of the record) see the record as it came; the rest works on the fields of the object itself. What is not named stays as it is
//! written, to the last digit.

mod config;
mod fields;

use config::Config;
use fields::{Fields, Name};
use waterwheel_plugin::{Emit, Environment, Failure, MapPlugin, Output, Record, ValueWriter, export_map, fail};

/// The plugin.
#[derive(Debug)]
pub struct JsonMap {
    config: Config,
    /// The fields to add as JSON text, `"name":value`, separated by commas.
    added: Vec<u8>,
}

impl MapPlugin for JsonMap {
    type Config = Config;

    fn open(config: Config, _environment: &Environment) -> Result<Self, Failure> {
        if let Some(index) = config.keep.iter().position(config::Condition::is_empty) {
            return Err(fail(format!(
                "config.keep[{index}]: the condition says nothing; it needs exists, equals, not-equals, greater-than, at-least, less-than or at-most"
            )));
        }
        let object = serde_json::to_string(&config.add)?;
        let added = object.trim_start_matches('{').strip_suffix('}').unwrap_or_default().as_bytes().to_vec();
        Ok(Self { config, added })
    }

    fn process(&mut self, record: &Record<'_>, out: &mut Output<'_>) -> Result<(), Failure> {
        let value = record.value().ok_or_else(|| fail("a tombstone is not a JSON object"))?;
        for condition in &self.config.keep {
            if !condition.holds(value)? {
                return Ok(());
            }
        }
        let fields: Fields<'_> = serde_json::from_slice(value)?;
        out.emit_with(Emit::default(), |value| self.write(&fields, value))?;
        Ok(())
    }
}

impl JsonMap {
    fn write(&self, fields: &Fields<'_>, out: &mut ValueWriter<'_>) -> Result<(), serde_json::Error> {
        let mut separator = "{";
        for (Name(name), value) in &fields.0 {
            if let Some(name) = self.name_of(name, fields) {
                out.push(separator);
                serde_json::to_writer(&mut *out, name)?;
                out.push(":");
                out.push(value.get());
                separator = ",";
            }
        }
        if !self.added.is_empty() || separator == "{" {
            out.push(separator);
            out.push(&self.added);
        }
        out.push("}");
        Ok(())
    }

    /// The name that a field goes out with; none when it does not.
    fn name_of<'n>(&'n self, name: &'n str, fields: &Fields<'_>) -> Option<&'n str> {
        let Config { rename, remove, add, .. } = &self.config;
        if remove.iter().any(|each| each == name) {
            return None;
        }
        let new = match rename.get(name) {
            Some(new) => new,
            None => {
                let taken = |old: &str| fields.0.iter().any(|(Name(each), _)| each == old) && !remove.iter().any(|each| each == old);
                if rename.iter().any(|(old, new)| new == name && taken(old)) {
                    return None;
                }
                name
            }
        };
        (!add.contains_key(new)).then_some(new)
    }
}

export_map!(JsonMap);

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use waterwheel_plugin::testing::{Input, MapHarness};

    use super::JsonMap;

    fn map(config: &str, values: &[&str]) -> Vec<String> {
        let mut plugin = MapHarness::<JsonMap>::open(config).unwrap();
        let inputs: Vec<Input> = values.iter().map(|value| Input::from(*value)).collect();
        plugin.process(&inputs).unwrap();
        assert_eq!(plugin.take_failures(), []);
        plugin.take_output().iter().map(|record| record.text().to_owned()).collect()
    }

    #[test]
    fn fields_are_renamed_removed_and_added() {
        let config = r#"{"rename": {"usr": "user"}, "remove": ["pad"], "add": {"currency": "EUR", "tags": [1, null]}}"#;
        let cases = [
            (r#"{"usr": "anna", "pad": "xxx", "amount": 0.10}"#, r#"{"user":"anna","amount":0.10,"currency":"EUR","tags":[1,null]}"#),
            (r#"{"currency": "USD", "user": 1}"#, r#"{"user":1,"currency":"EUR","tags":[1,null]}"#),
            (r#"{"user": "gives way", "usr": "anna"}"#, r#"{"user":"anna","currency":"EUR","tags":[1,null]}"#),
            ("{}", r#"{"currency":"EUR","tags":[1,null]}"#),
        ];
        for (value, expected) in cases {
            assert_eq!(map(config, &[value]), [expected], "{value}");
        }
    }

    #[test]
    fn what_is_not_named_stays_as_it_is_written() {
        let value = r#"{"n":12345678901234567890.1000,"o":{ "b":1, "a":[ ] },"q\"":"\u00e4"}"#;
        assert_eq!(map("null", &[value, "{}"]), [value, "{}"]);
        assert_eq!(map(r#"{"remove": ["a"]}"#, &[r#"{"a": 1}"#]), ["{}"]);
    }

    #[test]
    fn conditions_filter() {
        let values = [r#"{"a": 5}"#, r#"{"a": 10.0}"#, r#"{"a": 15}"#, r#"{"a": "15"}"#, r#"{"a": null}"#, "{}"];
        let kept = |condition: &str| map(&format!(r#"{{"keep": [{{"field": "/a", {condition}}}]}}"#), &values).join(" ").replace("\":", "");
        assert_eq!(kept(r#""equals": 10"#), r#"{"a10.0}"#);
        assert_eq!(kept(r#""equals": null"#), r#"{"anull}"#);
        assert_eq!(kept(r#""not-equals": "15""#), r#"{"a5} {"a10.0} {"a15} {"anull} {}"#);
        assert_eq!(kept(r#""greater-than": 5, "less-than": 15"#), r#"{"a10.0}"#);
        assert_eq!(kept(r#""at-least": 5, "at-most": 10"#), r#"{"a5} {"a10.0}"#);
        assert_eq!(kept(r#""exists": false"#), "{}");
    }

    #[test]
    fn what_is_no_object_fails() {
        let mut plugin = MapHarness::<JsonMap>::open("{}").unwrap();
        plugin.process(&["[1]".into(), "{".into(), "".into(), Input::tombstone(), "{\"a\":1}".into()]).unwrap();
        assert_eq!(plugin.take_output().len(), 1);
        let reasons: Vec<_> = plugin.take_failures().into_iter().map(|failure| failure.reason).collect();
        assert_eq!(reasons[0], "invalid type: sequence, expected a JSON object at line 1 column 0");
        assert_eq!(reasons[1], "EOF while parsing an object at line 1 column 1");
        assert_eq!(reasons[3], "a tombstone is not a JSON object");
    }

    #[test]
    fn a_wrong_configuration_is_refused_with_its_path() {
        let error = |config| MapHarness::<JsonMap>::open(config).unwrap_err();
        assert!(error(r#"{"keep": [{"field": "/a"}]}"#).starts_with("config.keep[0]: the condition says nothing"));
        assert!(
            error(r#"{"keep": [{"field": "/a", "grater-than": 1}]}"#)
                .starts_with("config.keep[0].grater-than: unknown field `grater-than`")
        );
        assert!(error(r#"{"rename": {"a": 1}}"#).starts_with("config.rename.a: invalid type"));
    }
}
