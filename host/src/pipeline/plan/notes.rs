//! What a person should know about a job, in sentences.

use super::{Exchange, Node, NodeKind, Plan};
use crate::config::Span;
use crate::plugin::World;

/// The sentences that hold for a plan.
pub(super) fn of(plan: &Plan) -> Vec<String> {
    let mut notes = Vec::new();
    let transactional: Vec<&str> = plan.sinks().filter(|(_, sink)| sink.is_transactional()).map(|(node, _)| &*node.uid).collect();
    if transactional.len() > 1 {
        notes.push(format!(
            "The sinks {} become visible one after the other when a checkpoint completes, not at one instant.",
            list(&transactional)
        ));
    }
    if let (Some(checkpointing), Some((node, sink))) = (&plan.settings.checkpointing, plan.transactional_sinks().next())
        && sink.longest_checkpoint(checkpointing.interval).is_ok_and(|longest| longest <= checkpointing.timeout)
    {
        notes.push(format!(
            "A checkpoint may take {} at most, because the transactions of {} would time out in a longer one.",
            Span(checkpointing.timeout),
            node.uid
        ));
    }
    if plan.settings.checkpointing.is_none() {
        notes.push("Checkpointing is off: after a crash the job begins again from the start of its sources.".to_owned());
    }
    if plan.settings.ephemeral {
        notes.push("The job is ephemeral: its checkpoints, and its guarantees, end with the process.".to_owned());
    }
    if let Some(between) = loses_order(plan) {
        notes.push(between);
    }
    notes.extend(holds_time_back(plan));
    if plan.operators().any(|(_, operator)| operator.info.digest.is_none()) {
        notes.push("The plugins were not loaded: their kind, inputs and side outputs are taken from how the job uses them.".to_owned());
    }
    notes
}

/// Records that are dealt in turn and meet again by key have lost the order that they had.
fn loses_order(plan: &Plan) -> Option<String> {
    let edge = plan
        .edges
        .iter()
        .find(|edge| edge.exchange == Exchange::Rebalance && plan.nodes[edge.to].parallelism > 1 && meets_keyed(plan, edge.to))?;
    Some(format!(
        "Records go from {} to {} in turn, without regard to their order: those of one key may overtake each other there. The same \
         parallelism on both sides, or a `key-by`, keeps the order.",
        plan.nodes[edge.from].uid, plan.nodes[edge.to].uid
    ))
}

/// A source without event time that meets one with: the least watermark counts, and it has none.
fn holds_time_back(plan: &Plan) -> Option<String> {
    let timed = |has: bool| move |node: &&Node| matches!(&node.kind, NodeKind::Source(source) if source.event_time.is_some() == has);
    let reached = |from: &Node| reached_from(plan, from.index);
    let with: Vec<_> = plan.nodes.iter().filter(timed(true)).map(reached).collect();
    for without in plan.nodes.iter().filter(timed(false)) {
        let reached = reached(without);
        let meets = |node: &&Node| reached[node.index] && with.iter().any(|with| with[node.index]);
        if let Some(operator) = plan.nodes.iter().filter(|node| matches!(node.kind, NodeKind::Operator(_))).find(meets) {
            return Some(format!(
                "The source {} has no event-time: in {} event time stands still until the source has ended.",
                without.uid, operator.uid
            ));
        }
    }
    None
}

/// Whether a keyed operator lies behind a node.
fn meets_keyed(plan: &Plan, from: usize) -> bool {
    let reached = reached_from(plan, from);
    let is_keyed = |node: &Node| matches!(&node.kind, NodeKind::Operator(operator) if operator.info.world == World::KeyedPlugin);
    plan.nodes.iter().any(|node| node.index != from && reached[node.index] && is_keyed(node))
}

/// By node, whether its records can come from `from`, which is one of them.
fn reached_from(plan: &Plan, from: usize) -> Vec<bool> {
    let mut reached = vec![false; plan.nodes.len()];
    reached[from] = true;
    // Nodes stand behind what they receive from, so one pass reaches all.
    for node in &plan.nodes[from + 1..] {
        reached[node.index] = plan.inputs(node.index).any(|edge| reached[edge.from]);
    }
    reached
}

/// `a`, `a and b`, `a, b and c`.
fn list(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}
