//! Which nodes run in one task.

use super::{Chain, Edge, Exchange, Node};

/// Forms the chains and tells each node its own. A node joins the chain of the one that it receives from when that is the only one and
/// no records change subtasks in between; nodes must stand behind what they receive from.
pub(super) fn form(nodes: &mut [Node], edges: &[Edge]) -> Vec<Chain> {
    let mut chains: Vec<Chain> = Vec::new();
    for index in 0..nodes.len() {
        let mut inputs = edges.iter().filter(|edge| edge.to == index);
        let chain = match (inputs.next(), inputs.next()) {
            (Some(Edge { from, exchange: Exchange::Forward, .. }), None) => nodes[*from].chain,
            _ => {
                chains.push(Chain { index: chains.len(), nodes: Vec::new(), parallelism: nodes[index].parallelism });
                chains.len() - 1
            }
        };
        nodes[index].chain = chain;
        chains[chain].nodes.push(index);
    }
    chains
}
