//! Dotted keys, as Flink's configuration has them: `checkpointing.interval: 500 ms` is the same as the nested objects.

use crate::config::Fault;
use serde_json::{Map, Value};

/// Turns dotted keys of the document and of its `execution` into nested objects. What is given in two ways is a fault. Keys of
/// options and of `config` are left alone: there a dot is part of the name.
pub(in crate::pipeline) fn expand_dotted_keys(document: &mut Value, faults: &mut Vec<Fault>) {
    let Value::Object(root) = document else { return };
    let mut expanded = Map::new();
    for (key, value) in std::mem::take(root) {
        put(&mut expanded, "", &key, value, faults);
    }
    if let Some(execution) = expanded.get_mut("execution") {
        expand_inside(execution, "/execution", faults);
    }
    *root = expanded;
}

fn expand_inside(value: &mut Value, path: &str, faults: &mut Vec<Fault>) {
    let Value::Object(members) = value else { return };
    let mut expanded = Map::new();
    for (key, value) in std::mem::take(members) {
        put(&mut expanded, path, &key, value, faults);
    }
    for (key, value) in &mut expanded {
        expand_inside(value, &format!("{path}/{key}"), faults);
    }
    *members = expanded;
}

/// Puts a value where its dotted key leads, together with what is there already.
fn put(members: &mut Map<String, Value>, path: &str, key: &str, value: Value, faults: &mut Vec<Fault>) {
    let (first, value) = match key.split_once('.') {
        Some((first, rest)) => (first, Value::Object(Map::from_iter([(rest.to_owned(), value)]))),
        None => (key, value),
    };
    let path = format!("{path}/{first}");
    match (members.get_mut(first), value) {
        (None, value) => drop(members.insert(first.to_owned(), value)),
        (Some(Value::Object(there)), Value::Object(more)) => {
            for (key, value) in more {
                put(there, &path, &key, value, faults);
            }
        }
        // An empty section and its dotted keys.
        (Some(there @ Value::Null), value) => *there = value,
        (Some(_), Value::Null) => {}
        (Some(_), _) => faults.push(Fault::new(path, "is given twice, by a dotted key and in another way; keep one of them")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use serde_json::json;

    fn expand(mut document: Value) -> (Value, Vec<String>) {
        let mut faults = Vec::new();
        expand_dotted_keys(&mut document, &mut faults);
        (document, faults.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn dotted_keys_and_nested_ones_are_the_same() {
        let nested =
            json!({"name": "a", "execution": {"checkpointing": {"interval": 5, "unaligned": {"enabled": true}}, "batch": {"linger": 1}}});
        let forms = [
            json!({"name": "a", "execution.checkpointing.interval": 5, "execution.checkpointing.unaligned.enabled": true, "execution.batch.linger": 1}),
            json!({"name": "a", "execution": {"checkpointing.interval": 5, "checkpointing": {"unaligned.enabled": true}, "batch.linger": 1}}),
        ];
        for form in forms {
            assert_eq!(expand(form), (nested.clone(), vec![]));
        }
    }

    #[test]
    fn what_is_given_in_two_ways_is_a_fault() {
        let (_, faults) = expand(json!({"execution": {"checkpointing": {"interval": 5}, "checkpointing.interval": 6}}));
        assert_eq!(faults, ["/execution/checkpointing/interval: is given twice, by a dotted key and in another way; keep one of them"]);
    }

    #[test]
    fn a_dot_in_an_option_or_a_config_is_part_of_its_name() {
        let document = json!({"sinks": [{"uid": "k", "properties": {"linger.ms": 5}}], "operators": [{"config": {"a.b": 1}}]});
        assert_eq!(expand(document.clone()), (document, vec![]));
    }
}
