//! Reads a specification that may have faults in its structure. What is wrong is reported, taken out and passed over in silence from
//! then on, so that the checks of its meaning can go on with the rest and a person sees all faults at once.

use super::Checks;
use crate::config::{Fault, check, fault_of};
use crate::pipeline::spec::{JobSpec, structure_schema};
use serde_json::{Value, json};

/// How often what repairs left behind is repaired; each round takes out what the one before could not read.
const ROUNDS: usize = 8;

/// How many values are told whose fault the schema cannot tell.
const MOST_UNTOLD: usize = 64;

/// The specification without what was wrong in its structure; none if nothing can be made of it.
pub(super) fn read(mut document: Value, checks: &mut Checks) -> Option<JobSpec> {
    let schema = structure_schema();
    for round in 0..ROUNDS {
        let faults = check(&schema, &document);
        if faults.is_empty() {
            break;
        }
        for Fault { path, message } in faults {
            if round == 0 {
                checks.fault(path.as_str(), message);
            }
            repair(&mut document, &path, checks);
        }
        if !document.is_object() {
            return None;
        }
    }
    // What the schema cannot tell, one fault after the other.
    for _ in 0..MOST_UNTOLD {
        let error = match serde_path_to_error::deserialize::<_, JobSpec>(&document) {
            Ok(spec) => return Some(spec),
            Err(error) => error,
        };
        let Fault { path, message } = fault_of(&error, &document);
        checks.fault(path.as_str(), message);
        if path.is_empty() {
            return None;
        }
        repair(&mut document, &path, checks);
    }
    None
}

/// Puts something harmless in place of what is wrong or missing, or takes it out.
fn repair(document: &mut Value, path: &str, checks: &mut Checks) {
    let Some((parent, name)) = path.rsplit_once('/') else { return };
    checks.silence(path);
    let name = name.replace("~1", "/").replace("~0", "~");
    let harmless = harmless(path);
    match (document.pointer_mut(parent), harmless) {
        (Some(Value::Object(members)), Some(harmless)) => {
            members.insert(name, harmless);
        }
        (Some(Value::Object(members)), None) if members.contains_key(&name) => {
            members.remove(&name);
        }
        (Some(Value::Array(elements)), Some(harmless)) => {
            if let Some(element) = name.parse().ok().and_then(|index: usize| elements.get_mut(index)) {
                *element = harmless;
            }
        }
        // Something required is missing, or a list has an element that cannot be left out: the whole goes.
        _ => repair(document, parent, checks),
    }
}

/// What can stand in a place that must be filled.
fn harmless(path: &str) -> Option<Value> {
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    match segments.as_slice() {
        ["name"] => Some(json!("job")),
        ["sources" | "operators" | "sinks", _] => Some(json!({})),
        [section @ ("sources" | "operators" | "sinks"), index, "uid"] => Some(json!(format!("?{section}{index}"))),
        ["sources" | "sinks", _, "type"] | ["operators", _, "plugin"] => Some(json!("?")),
        ["operators", _, "inputs"] => Some(json!([])),
        ["operators" | "sinks", _, "inputs", _] | ["operators" | "sinks", _, "inputs", _, "from"] => Some(json!("?")),
        _ => None,
    }
}
