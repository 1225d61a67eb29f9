//! What differs between the plan that a manifest was made with and the one that is to go on from it.

use super::manifest::{DeclaredState, KeyedInput, PlanPart, PlanRevision};
use serde_json::Value;

/// One difference between two plans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanChange {
    /// The number of key groups differs. State is dealt by key group, so this is refused.
    MaxParallelism {
        /// What the state was made with.
        before: u32,
        /// What is asked for.
        after: u32,
    },
    /// A part is new: it begins without state.
    Added(String),
    /// A part is gone: its state is left behind.
    Removed(String),
    /// A part runs another plugin or another type: it must accept the state.
    Code(String),
    /// A part has another configuration.
    Config(String),
    /// A part has another number of subtasks: its state is dealt anew.
    Parallelism {
        /// The part.
        uid: String,
        /// How many subtasks it had.
        before: u32,
        /// How many it gets.
        after: u32,
    },
}

impl PlanChange {
    /// The sentence that refuses the change, if it is never possible.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        match self {
            Self::MaxParallelism { before, after } => Some(format!(
                "max-parallelism was {before} when the state was made and is {after} now: it cannot be changed; put it back, or start with --fresh"
            )),
            _ => None,
        }
    }
}

/// Every difference, by uid.
#[must_use]
pub fn changes(before: &PlanRevision, after: &PlanRevision) -> Vec<PlanChange> {
    let mut changes = Vec::new();
    if before.max_parallelism != after.max_parallelism {
        changes.push(PlanChange::MaxParallelism { before: before.max_parallelism, after: after.max_parallelism });
    }
    changes.extend(before.parts.keys().filter(|uid| !after.parts.contains_key(*uid)).cloned().map(PlanChange::Removed));
    for (uid, part) in &after.parts {
        let Some(old) = before.parts.get(uid) else {
            changes.push(PlanChange::Added(uid.clone()));
            continue;
        };
        if (&old.digest, &old.type_name) != (&part.digest, &part.type_name) {
            changes.push(PlanChange::Code(uid.clone()));
        }
        if old.config != part.config {
            changes.push(PlanChange::Config(uid.clone()));
        }
        if old.parallelism != part.parallelism {
            changes.push(PlanChange::Parallelism { uid: uid.clone(), before: old.parallelism, after: part.parallelism });
        }
    }
    changes
}

/// What a checkpoint keeps under a uid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Positions of a source's splits.
    Positions,
    /// State of an operator.
    State,
}

/// Why a part of a plan cannot go on from what a checkpoint keeps under its uid: a sentence for each reason. What was not recorded is not
/// compared; an upgrade of a plugin is no reason, as long as it has the states that there are.
#[must_use]
pub fn mixed_up(uid: &str, kept: Kept, before: &PlanPart, after: &PlanPart) -> Vec<String> {
    match kept {
        Kept::Positions => positions_mixed_up(uid, before, after),
        Kept::State => {
            let mut reasons = keys_mixed_up(uid, before, after);
            reasons.extend(states_mixed_up(uid, before, after));
            reasons
        }
    }
}

fn positions_mixed_up(uid: &str, before: &PlanPart, after: &PlanPart) -> Vec<String> {
    const SO: &str = "the positions of the checkpoint would mean other records";
    if before.type_name != after.type_name {
        return vec![format!("the source {uid} was of type {} and is of type {} now: {SO}", before.type_name, after.type_name)];
    }
    let both = before.identity.iter().filter_map(|(name, old)| Some((name, old, after.identity.get(name)?)));
    let changed = both.filter(|(_, old, new)| old != new);
    changed.map(|(name, old, new)| format!("{name} of the source {uid} was {} and is {} now: {SO}", shown(old), shown(new))).collect()
}

fn keys_mixed_up(uid: &str, before: &PlanPart, after: &PlanPart) -> Vec<String> {
    const SO: &str = "the state of the checkpoint would belong to other keys";
    let mut reasons = Vec::new();
    let dealt = |input: &KeyedInput| match &input.key_by {
        Value::Null => "given whole to every subtask".to_owned(),
        key => format!("dealt by {}", shown(key)),
    };
    for old in &before.inputs {
        let now = after.inputs.iter().find(|new| (&new.from, new.number) == (&old.from, old.number));
        if let Some(new) = now.filter(|new| new.key_by != old.key_by) {
            reasons.push(format!("what the operator {uid} reads from {} was {} and is {} now: {SO}", old.from, dealt(old), dealt(new)));
        }
    }
    // Where everything that is read has another name, the keys at least have to be those of something that was read before.
    let is_known = |new: &KeyedInput| before.inputs.iter().any(|old| old.from == new.from || old.key_by == new.key_by);
    if let (Some(old), Some(new)) = (before.inputs.first(), after.inputs.first())
        && !after.inputs.iter().any(is_known)
    {
        reasons.push(format!("what the operator {uid} reads was {} and is {} now: {SO}", dealt(old), dealt(new)));
    }
    reasons
}

fn states_mixed_up(uid: &str, before: &PlanPart, after: &PlanPart) -> Vec<String> {
    let plugin = &after.type_name;
    let Some(has) = &after.states else { return Vec::new() };
    if has.is_empty() {
        return vec![format!("the checkpoint holds state of the operator {uid}, and its plugin {plugin} keeps none")];
    }
    let names = has.iter().map(|state| format!("{:?}", state.name)).collect::<Vec<_>>().join(", ");
    let reason = |old: &DeclaredState| match has.iter().find(|new| new.name == old.name) {
        None => {
            Some(format!("the checkpoint holds the state {:?} of the operator {uid}, and its plugin {plugin} has only {names}", old.name))
        }
        Some(new) if new.kind != old.kind => Some(format!(
            "the state {:?} of the operator {uid} was a {} and is a {} in its plugin {plugin} now",
            old.name, old.kind, new.kind
        )),
        Some(_) => None,
    };
    before.states.iter().flatten().filter_map(reason).collect()
}

/// The longest value that is shown whole, in characters.
const SHOWN_CHARACTERS: usize = 80;

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    #[test]
    fn only_what_positions_depend_on_mixes_them_up() {
        let source = |path: &str, rate: u32| PlanPart {
            type_name: "file".to_owned(),
            config: json!({"path": path, "rate": rate}),
            parallelism: rate,
            identity: [("path".to_owned(), json!(path))].into(),
            ..PlanPart::default()
        };
        assert_eq!(mixed_up("in", Kept::Positions, &source("/a", 1), &source("/a", 2)), [""; 0]);
        let old = PlanPart { identity: BTreeMap::new(), ..source("/a", 1) };
        assert_eq!(mixed_up("in", Kept::Positions, &old, &source("/b", 1)), [""; 0], "what was not kept is not compared");
        let reasons = mixed_up("in", Kept::Positions, &source("/a", 1), &source("/b", 1));
        assert_eq!(
            reasons,
            ["path of the source in was \"/a\" and is \"/b\" now: the positions of the checkpoint would mean other records"]
        );
        let kafka = PlanPart { type_name: "kafka".to_owned(), ..PlanPart::default() };
        assert!(mixed_up("in", Kept::Positions, &old, &kafka)[0].contains("was of type file and is of type kafka now"));
    }

    fn operator(inputs: &[(&str, &str)], states: &[(&str, &str)]) -> PlanPart {
        let input = |(from, key): &(&str, &str)| KeyedInput { from: (*from).to_owned(), number: 0, key_by: json!({"json-pointer": key}) };
        let state = |(name, kind): &(&str, &str)| DeclaredState { name: (*name).to_owned(), version: 1, kind: (*kind).to_owned() };
        PlanPart {
            type_name: "totals.wasm".to_owned(),
            inputs: inputs.iter().map(input).collect(),
            states: Some(states.iter().map(state).collect()),
            ..PlanPart::default()
        }
    }

    #[test]
    fn another_key_mixes_state_up_and_another_input_with_the_same_key_does_not() {
        let state = [("total", "value")];
        let before = operator(&[("a", "/user")], &state);
        let reasons = |inputs: &[(&str, &str)]| mixed_up("op", Kept::State, &before, &operator(inputs, &state));
        assert_eq!(reasons(&[("a", "/user")]), [""; 0]);
        assert_eq!(reasons(&[("b", "/user")]), [""; 0]);
        assert_eq!(reasons(&[("a", "/user"), ("b", "/name")]), [""; 0], "what is new may have the key elsewhere");
        assert_eq!(
            reasons(&[("a", "/name")]),
            [
                "what the operator op reads from a was dealt by {\"json-pointer\":\"/user\"} and is dealt by {\"json-pointer\":\"/name\"} now: \
              the state of the checkpoint would belong to other keys"
            ]
        );
        assert_eq!(reasons(&[("b", "/name")]).len(), 1);
    }

    #[test]
    fn parts_of_manifests_that_kept_less_are_read_and_nothing_of_them_is_refused() {
        let part = json!({"digest": null, "type_name": "totals.wasm", "config": {}, "parallelism": 1});
        let before: PlanPart = serde_json::from_value(part.clone()).unwrap_or_default();
        assert_eq!(before.type_name, "totals.wasm");
        let after = operator(&[("a", "/user")], &[("total", "value")]);
        assert_eq!(mixed_up("op", Kept::State, &before, &after), [""; 0]);
        assert_eq!(serde_json::to_value(&before).ok(), Some(part), "nothing is written that is not there");
    }

    #[test]
    fn a_plugin_must_have_the_states_that_there_are() {
        let input = [("a", "/user")];
        let before = operator(&input, &[("total", "value"), ("seen", "map")]);
        let reasons = |states: &[(&str, &str)]| mixed_up("op", Kept::State, &before, &operator(&input, states));
        assert_eq!(reasons(&[("seen", "map"), ("total", "value"), ("new", "map")]), [""; 0]);
        assert_eq!(
            reasons(&[("sum", "value"), ("seen", "map")]),
            ["the checkpoint holds the state \"total\" of the operator op, and its plugin totals.wasm has only \"sum\", \"seen\""]
        );
        assert_eq!(reasons(&[("seen", "value"), ("total", "value")]).len(), 1);
        assert_eq!(reasons(&[]), ["the checkpoint holds state of the operator op, and its plugin totals.wasm keeps none"]);
        let unknown = PlanPart { states: None, ..operator(&input, &[]) };
        assert_eq!(mixed_up("op", Kept::State, &before, &unknown), [""; 0]);
        assert_eq!(mixed_up("op", Kept::State, &unknown, &before), [""; 0]);
    }

    #[test]
    fn every_difference_is_named_and_only_a_changed_max_parallelism_is_refused() {
        let part = |digest: &str, parallelism| PlanPart { digest: Some(digest.to_owned()), parallelism, ..PlanPart::default() };
        let mut before = PlanRevision { max_parallelism: 128, ..PlanRevision::default() };
        before.parts.insert("gone".to_owned(), part("a", 1));
        before.parts.insert("kept".to_owned(), part("a", 1));
        let mut after = PlanRevision { max_parallelism: 64, ..PlanRevision::default() };
        after.parts.insert("kept".to_owned(), part("b", 2));
        after.parts.insert("new".to_owned(), part("c", 1));
        let found = changes(&before, &after);
        let kept = "kept".to_owned();
        let expected = [
            PlanChange::MaxParallelism { before: 128, after: 64 },
            PlanChange::Removed("gone".to_owned()),
            PlanChange::Code(kept.clone()),
            PlanChange::Parallelism { uid: kept, before: 1, after: 2 },
            PlanChange::Added("new".to_owned()),
        ];
        assert_eq!(found, expected);
        assert_eq!(found.iter().filter_map(PlanChange::refusal).count(), 1);
        assert_eq!(changes(&before, &before), []);
    }
}
