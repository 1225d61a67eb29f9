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
fn add_types<'a>(
    schema: &mut Value,
    definition: &str,
    what: &str,
    shared: &[String],
    types: impl Iterator<Item = (&'a str, Schema)>,
) {
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
