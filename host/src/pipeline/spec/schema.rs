//! The JSON schema of job specifications, for editors and other tools, with the options of every source and sink type.

use super::{JobSpec, SinkSpec, SourceSpec};
use crate::pipeline::Connectors;
use schemars::{Schema, schema_for};
use serde_json::{Map, Value, json};

/// The schema of job specifications: the structure and the options of these connectors.
pub fn job_schema(connectors: &Connectors) -> Value {
    let mut schema = structure_schema();
    let sources = connectors.sources().map(|kind| (kind.name(), kind.options_schema()));
    add_types(&mut schema, "SourceSpec", "source", &shared_keys("sources"), sources);
    let sinks = connectors.sinks().map(|kind| (kind.name(), kind.options_schema()));
    add_types(&mut schema, "SinkSpec", "sink", &shared_keys("sinks"), sinks);
    schema
}

/// The schema without the options of sources and sinks.
pub(in crate::pipeline) fn structure_schema() -> Value {
    schema_for!(JobSpec).to_value()
}

/// The keys that all elements of a section have.
pub(in crate::pipeline) fn shared_keys(section: &str) -> Vec<String> {
    let schema = if section == "sinks" { schema_for!(SinkSpec) } else { schema_for!(SourceSpec) };
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flat_map(Map::keys).cloned().collect()
}

/// Adds to a definition what each type takes: `if` the type is this one, `then` these options and no others.
fn add_types<'a>(schema: &mut Value, definition: &str, what: &str, shared: &[String], types: impl Iterator<Item = (&'a str, Schema)>) {
    let mut names = Vec::new();
    let mut branches = Vec::new();
    for (name, options) in types {
        let mut options = options.to_value();
        move_definitions(schema, &mut options, &format!("{what}-{name}-"));
        if let Some(root) = options.as_object_mut() {
            root.remove("$schema");
            root.remove("title");
            let properties = root.entry("properties").or_insert_with(|| json!({}));
            if let Some(properties) = properties.as_object_mut() {
                for key in shared {
                    properties.entry(key.as_str()).or_insert(Value::Bool(true));
                }
            }
        }
        names.push(name);
        branches.push(json!({"if": {"properties": {"type": {"const": name}}}, "then": options}));
    }
    if let Some(definition) = schema.pointer_mut(&format!("/$defs/{definition}"))
        && !names.is_empty()
    {
        definition["properties"]["type"]["enum"] = json!(names);
        definition["allOf"] = Value::Array(branches);
    }
}

/// Moves the definitions of a type's options into those of the whole, under names of their own unless they are the same.
fn move_definitions(schema: &mut Value, options: &mut Value, prefix: &str) {
    let Some(Value::Object(definitions)) = options.as_object_mut().and_then(|root| root.remove("$defs")) else { return };
    let Some(all) = schema.get_mut("$defs").and_then(Value::as_object_mut) else { return };
    let renamed: Vec<(String, String)> = definitions
        .iter()
        .filter(|(name, definition)| all.get(*name).is_some_and(|known| known != *definition))
        .map(|(name, _)| (format!("#/$defs/{name}"), format!("#/$defs/{prefix}{name}")))
        .collect();
    rename(options, &renamed);
    for (name, mut definition) in definitions {
        rename(&mut definition, &renamed);
        let is_renamed = renamed.iter().any(|(from, _)| from.strip_prefix("#/$defs/") == Some(&name));
        all.insert(if is_renamed { format!("{prefix}{name}") } else { name }, definition);
    }
}

/// Makes references to renamed definitions lead to their new names.
fn rename(schema: &mut Value, renamed: &[(String, String)]) {
    match schema {
        Value::Object(members) => {
            for (key, member) in members {
                match member {
                    Value::String(reference) if key == "$ref" => {
                        if let Some((_, to)) = renamed.iter().find(|(from, _)| from == reference) {
                            reference.clone_from(to);
                        }
                    }
                    other => rename(other, renamed),
                }
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(|element| rename(element, renamed)),
        _ => {}
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::config::check;

    fn faults(document: &Value) -> Vec<String> {
        check(&job_schema(&Connectors::builtin()), document).iter().map(|fault| fault.path.clone()).collect()
    }

    #[test]
    fn the_schema_takes_the_options_of_each_type_and_no_others() {
        let document = |source: Value| json!({"name": "a", "sources": [source], "sinks": [{"uid": "o", "type": "file", "path": "out"}]});
        assert_eq!(faults(&document(json!({"uid": "a", "type": "generator", "rate": 5.0, "parallelism": 2}))), [""; 0]);
        assert_eq!(faults(&document(json!({"uid": "a", "type": "generator", "path": "in"}))), ["/sources/0/path"]);
        assert_eq!(faults(&document(json!({"uid": "a", "type": "genrator"}))), ["/sources/0/type"]);
        assert_eq!(faults(&json!({"name": "a", "sinks": [{"uid": "o", "type": "file"}]})), ["/sinks/0/path"]);
    }

    #[test]
    fn definitions_of_one_name_and_different_meaning_stay_apart() {
        let mut schema = json!({"$defs": {"Format": {"type": "string"}, "Same": {"type": "null"}}});
        let mut options = json!({
            "properties": {"format": {"$ref": "#/$defs/Format"}, "same": {"$ref": "#/$defs/Same"}},
            "$defs": {"Format": {"type": "integer"}, "Same": {"type": "null"}},
        });
        move_definitions(&mut schema, &mut options, "sink-file-");
        assert_eq!(options["properties"]["format"]["$ref"], "#/$defs/sink-file-Format");
        assert_eq!(options["properties"]["same"]["$ref"], "#/$defs/Same");
        assert_eq!(schema["$defs"]["sink-file-Format"]["type"], "integer");
        assert_eq!(schema["$defs"]["Format"]["type"], "string");
    }
}
