//! A plan as a Mermaid flowchart: a box a task, the nodes in it, and what flows between.

use super::exchange_words;
use crate::pipeline::plan::{Node, NodeKind, Plan};

pub(super) fn draw(plan: &Plan) -> String {
    let mut out = String::from("flowchart LR\n");
    for chain in &plan.chains {
        out.push_str(&format!("  subgraph t{}[\"task {} ×{}\"]\n", chain.index, chain.index, chain.parallelism));
        for &node in &chain.nodes {
            out.push_str(&format!("    {}\n", shape(&plan.nodes[node])));
        }
        out.push_str("  end\n");
    }
    for edge in &plan.edges {
        let mut label = if plan.is_chained(edge) { String::new() } else { exchange_words(&edge.exchange) };
        if edge.route != 0 {
            let output = plan.output_name(edge);
            label = if label.is_empty() { output } else { format!("{output}, {label}") };
        }
        let arrow = if label.is_empty() { "-->".to_owned() } else { format!("-->|\"{}\"|", escape(&label)) };
        out.push_str(&format!("  n{} {arrow} n{}\n", edge.from, edge.to));
    }
    out
}

/// A node in the shape of its kind.
fn shape(node: &Node) -> String {
    let label = match &node.kind {
        NodeKind::Sink(sink) => format!("{}<br/>{}, {}", node.uid, escape(node.type_name()), sink.guarantee),
        _ => format!("{}<br/>{}", node.uid, escape(node.type_name())),
    };
    match node.kind {
        NodeKind::Source(_) => format!("n{}([\"{label}\"])", node.index),
        NodeKind::Operator(_) => format!("n{}[\"{label}\"]", node.index),
        NodeKind::Sink(_) => format!("n{}[(\"{label}\")]", node.index),
    }
}

/// What would end a quoted label, or be taken for markup.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;")
}
