//! What a plugin says of itself.

use serde::{Deserialize, Serialize};

/// The document that `describe` returns. It may grow: members that this host does not know are passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Description {
    /// The SDK that the plugin was built with.
    pub sdk: String,
    /// Its version.
    pub sdk_version: String,
    /// The states that it keeps.
    pub states: Vec<StateDescription>,
    /// The names of its inputs, in the order of their numbers. Empty: one input.
    pub inputs: Vec<String>,
    /// The names of its side outputs: route 1 is the first.
    pub side_outputs: Vec<String>,
    /// What the job must grant.
    pub capabilities: Vec<String>,
    /// Those of the inputs that every subtask must get as a whole.
    pub broadcast_inputs: Vec<String>,
}

/// A state of a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StateDescription {
    /// The name that it is stored under.
    pub name: String,
    /// The version of its encoding.
    pub version: u32,
    /// What it is: `value` (one a key), `map` (several a key) or `broadcast` (of no key, the same in all subtasks).
    pub kind: String,
}

/// The kind of a state that is the same in all subtasks.
const BROADCAST: &str = "broadcast";

/// How many side outputs a plugin may have: routes are bytes, 0 is the main output, and the last one is for dead letters.
const MAX_SIDE_OUTPUTS: usize = 254;

impl Description {
    /// Reads the document.
    ///
    /// # Errors
    /// A sentence: it is not JSON, a known member has another type, or there are too many side outputs.
    pub fn parse(text: &str) -> Result<Self, String> {
        let description: Self =
            serde_json::from_str(text).map_err(|error| format!("what `describe` returned cannot be read as its JSON document: {error}"))?;
        if description.side_outputs.len() > MAX_SIDE_OUTPUTS {
            return Err(format!("`describe` names {} side outputs; {MAX_SIDE_OUTPUTS} are possible", description.side_outputs.len()));
        }
        Ok(description)
    }

    /// The names of the states that are the same in all subtasks.
    pub fn broadcast_states(&self) -> impl Iterator<Item = &str> {
        self.states.iter().filter(|state| state.kind == BROADCAST).map(|state| state.name.as_str())
    }

    /// The number of inputs, at least one.
    pub fn input_count(&self) -> usize {
        self.inputs.len().max(1)
    }
}
