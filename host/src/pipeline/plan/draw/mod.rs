//! Drawings of a plan: for a terminal, for a page (Mermaid) and for programs (JSON).

mod json;
mod mermaid;
mod text;

use super::{Edge, Exchange, NodeKind, OperatorNode, Plan};
use crate::config::Span;
use crate::operator::{DEAD_LETTER_ROUTE, LATE_OUTPUT, LATE_ROUTE};
use crate::pipeline::spec::{EventTimeSpec, KeyBy, OnMissingKey, OnTimestampError, TimestampSpec};
use crate::plugin::World;

/// How a plan is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A tree for each task, for a terminal.
    #[default]
    Text,
    /// A flowchart in Mermaid's language.
    Mermaid,
    /// The plan as JSON.
    Json,
}

impl Plan {
    /// Draws the plan. Configurations and options are left out: they may have secrets in them.
    pub fn draw(&self, format: Format) -> String {
        match format {
            Format::Text => text::draw(self),
            Format::Mermaid => mermaid::draw(self),
            Format::Json => json::draw(self),
        }
    }

    /// The name of the output that an edge comes from, as a job file would have it.
    fn output_name(&self, edge: &Edge) -> String {
        let from = &self.nodes[edge.from];
        match (edge.route, &from.kind) {
            (0, _) => from.uid.to_string(),
            (LATE_ROUTE, _) => format!("{}.{LATE_OUTPUT}", from.uid),
            (DEAD_LETTER_ROUTE, _) => format!("dead letters of {}", from.uid),
            (route, NodeKind::Operator(operator)) => {
                let name = operator.info.side_outputs.get(usize::from(route) - 1).map_or("?", String::as_str);
                format!("{}.{name}", from.uid)
            }
            (route, _) => format!("{}.{route}", from.uid),
        }
    }
}

/// How records are dealt, in a few words.
fn exchange_words(exchange: &Exchange) -> String {
    match exchange {
        Exchange::Forward => "forward".to_owned(),
        Exchange::Rebalance => "in turn".to_owned(),
        Exchange::Broadcast => "to every subtask".to_owned(),
        Exchange::KeyGroup { key_by, on_missing_key } => {
            let key = match key_by {
                KeyBy::Key => "its key".to_owned(),
                KeyBy::JsonPointer(pointer) => pointer.clone(),
                KeyBy::Header(name) => format!("header {name}"),
            };
            match on_missing_key {
                OnMissingKey::Fail => format!("by {key}"),
                OnMissingKey::Drop => format!("by {key}, dropped without"),
            }
        }
    }
}

/// Where timestamps are and how watermarks follow from them, in a few words.
fn event_time_words(event_time: &EventTimeSpec) -> String {
    let mut words = match &event_time.timestamp {
        TimestampSpec::Record(_) => "event time of the record".to_owned(),
        TimestampSpec::Value(place) => format!("event time from {} in {}", place.json_pointer, place.unit.words()),
    };
    let watermark = &event_time.watermark;
    if watermark.out_of_orderness > Span::from_millis(0) {
        words.push_str(&format!(", out of order by {}", watermark.out_of_orderness));
    }
    if let Some(timeout) = watermark.idle_timeout {
        words.push_str(&format!(", idle after {timeout}"));
    }
    if event_time.on_error == OnTimestampError::Skip {
        words.push_str(", skips errors");
    }
    words
}

/// The kind of a plugin, and which one it is if it was loaded.
fn plugin_words(operator: &OperatorNode) -> String {
    let world = match operator.info.world {
        World::MapPlugin => "map",
        World::KeyedPlugin => "keyed",
    };
    match &operator.info.digest {
        Some(digest) => format!("{world}, {}", digest.get(..19).unwrap_or(digest)),
        None => format!("{world}, not loaded"),
    }
}
