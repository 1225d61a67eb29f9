//! Makes the tasks of a run from the plan: a gate for each task behind others, a channel for each pair of subtasks, the restored positions
//! and state for each subtask.

use super::alignment::{Alignment, Mode};
use super::channel::{Gate, Sender};
use super::event_time::greatest_of;
use super::exchange::{ExchangeOptions, ExchangeWriter, MissingKey};
use super::open::{HeadPlan, NodePlan, OutputPlan, TargetPlan, TaskPlan};
use super::task::GateHead;
use crate::Error;
use crate::checkpoint::protocol::JobSnapshot;
use crate::pipeline::plan::{Edge, Exchange, NodeKind, Plan};
use crate::pipeline::spec::{CheckpointMode, ErrorPolicy};
use crate::record::SplitTable;
use crate::source::Split;
use crate::telemetry::{JobMetrics, TaskMetrics};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The gates of all tasks behind others, and the sending ends of their channels until the writers take them.
struct Channels<'a> {
    plan: &'a Plan,
    split_table: &'a SplitTable,
    /// Counts the records without a key that are dropped.
    dropped: &'a Arc<AtomicU64>,
    /// By chain and subtask: the gate, and the input of the head that each channel belongs to.
    gates: BTreeMap<(usize, u16), (Gate, Vec<usize>)>,
    /// By edge and sending subtask: a sender a receiving subtask.
    senders: BTreeMap<(usize, u16), Vec<Sender>>,
}

impl<'a> Channels<'a> {
    fn open(plan: &'a Plan, split_table: &'a SplitTable, dropped: &'a Arc<AtomicU64>) -> Self {
        let mut channels = Self { plan, split_table, dropped, gates: BTreeMap::new(), senders: BTreeMap::new() };
        for edge in plan.edges.iter().filter(|edge| !plan.is_chained(edge)) {
            for from in 0..plan.nodes[edge.from].parallelism {
                let receivers = match edge.exchange {
                    Exchange::Forward => from..from + 1,
                    _ => 0..plan.nodes[edge.to].parallelism,
                };
                let senders = receivers.map(|to| channels.connect(plan.nodes[edge.to].chain, to, edge.input)).collect();
                channels.senders.insert((edge.index, from), senders);
            }
        }
        channels
    }

    fn connect(&mut self, chain: usize, subtask: u16, input: usize) -> Sender {
        let (gate, inputs) = self.gates.entry((chain, subtask)).or_default();
        inputs.push(input);
        gate.open()
    }

    /// What a node of a chain emits to an edge: a call inside of the chain, or the channels of the edge.
    fn output(&mut self, edge: &Edge, subtask: u16, chain: &[usize], metrics: &Arc<TaskMetrics>) -> Result<OutputPlan, Error> {
        if self.plan.is_chained(edge) {
            let index = chain.iter().position(|node| *node == edge.to);
            let index = index.ok_or_else(|| Error::internal(format!("edge {} leaves its chain", edge.index)))?;
            return Ok(OutputPlan { route: edge.route, target: TargetPlan::Node { index, input: edge.input } });
        }
        let to = &self.plan.nodes[edge.to];
        let missing = match &to.kind {
            NodeKind::Operator(operator) => match operator.error_policy {
                ErrorPolicy::Fail => MissingKey::Fail,
                ErrorPolicy::Skip => MissingKey::Drop,
                ErrorPolicy::DeadLetter => MissingKey::Pass,
            },
            NodeKind::Source(_) | NodeKind::Sink(_) => MissingKey::Fail,
        };
        let senders = self.senders.remove(&(edge.index, subtask));
        let senders = senders.ok_or_else(|| Error::internal(format!("edge {} has no channels", edge.index)))?;
        let options = ExchangeOptions {
            to: Arc::clone(&to.uid),
            exchange: &edge.exchange,
            missing,
            max_parallelism: self.plan.max_parallelism,
            limits: self.plan.settings.batch,
            split_table: self.split_table.clone(),
            dropped: Arc::clone(self.dropped),
            metrics: Arc::clone(metrics),
        };
        Ok(OutputPlan { route: edge.route, target: TargetPlan::Exchange(ExchangeWriter::new(options, senders)?) })
    }
}

/// The tasks of a run, chain by chain and subtask by subtask.
pub(super) fn tasks(
    plan: &Plan,
    snapshot: &JobSnapshot,
    metrics: &JobMetrics,
    split_table: &SplitTable,
    dropped: &Arc<AtomicU64>,
) -> Result<Vec<TaskPlan>, Error> {
    let mut channels = Channels::open(plan, split_table, dropped);
    let mut tasks = Vec::new();
    for chain in &plan.chains {
        for subtask in 0..chain.parallelism {
            let mut nodes = Vec::with_capacity(chain.nodes.len());
            for index in &chain.nodes {
                let node = &plan.nodes[*index];
                let metrics = metrics.task(&node.uid, usize::from(subtask));
                let mut outputs = Vec::new();
                for edge in plan.outputs(*index) {
                    outputs.push(channels.output(edge, subtask, &chain.nodes, &metrics)?);
                }
                nodes.push(NodePlan {
                    node: node.clone(),
                    outputs,
                    metrics,
                    restored: snapshot.operators.get(&*node.uid).cloned(),
                    keyed_inputs: keyed_inputs(plan, *index),
                });
            }
            let head = head(plan, chain.index, subtask, snapshot, &mut channels)?;
            tasks.push(TaskPlan { subtask, nodes, head });
        }
    }
    Ok(tasks)
}

fn head(plan: &Plan, chain: usize, subtask: u16, snapshot: &JobSnapshot, channels: &mut Channels<'_>) -> Result<HeadPlan, Error> {
    let node = &plan.nodes[plan.chains[chain].head()];
    if let NodeKind::Source(_) = node.kind {
        return Ok(HeadPlan::Source {
            splits: splits_of(snapshot, &node.uid, subtask, node.parallelism),
            greatest: snapshot.sources.get(&*node.uid).map(|source| greatest_of(&source.extra)).unwrap_or_default(),
        });
    }
    let Some((gate, inputs)) = channels.gates.remove(&(chain, subtask)) else {
        return Err(Error::internal(format!("nothing is sent to {}, subtask {subtask}", node.uid)));
    };
    let mode = match plan.settings.checkpointing.as_ref().map(|settings| settings.mode) {
        Some(CheckpointMode::AtLeastOnce) => Mode::AtLeastOnce,
        _ => Mode::ExactlyOnce,
    };
    let alignment = Alignment::new(mode, gate.len());
    Ok(HeadPlan::Gate(GateHead { gate, inputs, alignment }))
}

/// The splits of one subtask: all splits in the order of their ids, dealt in turn.
fn splits_of(snapshot: &JobSnapshot, uid: &str, subtask: u16, parallelism: u16) -> Vec<Split> {
    let Some(source) = snapshot.sources.get(uid) else { return Vec::new() };
    let dealt = source.splits.iter().skip(usize::from(subtask)).step_by(usize::from(parallelism));
    let split = |(id, state): (&String, &crate::checkpoint::protocol::SplitState)| Split {
        id: id.clone(),
        position: state.position.clone(),
        stop: state.stop.clone(),
        finished: state.finished,
    };
    dealt.map(split).collect()
}

/// Which inputs of a node are dealt by key.
pub(super) fn keyed_inputs(plan: &Plan, node: usize) -> Vec<bool> {
    let mut keyed = Vec::new();
    for edge in plan.inputs(node) {
        if keyed.len() <= edge.input {
            keyed.resize(edge.input + 1, false);
        }
        keyed[edge.input] |= matches!(edge.exchange, Exchange::KeyGroup { .. });
    }
    keyed
}
