//! The plan of a job: a checked graph of nodes and edges, and the chains of nodes that run in one task.
//!
//! [`Plan::build`] makes it from a checked [`Job`](super::Job) and what a [`PluginCatalog`] says about the plugins.

mod build;
mod catalog;
mod chains;
mod draw;
mod loaded;
mod notes;
mod settings;

#[cfg(test)]
mod tests;

pub(super) use build::faults_of_plugins;
pub use catalog::{AssumedPlugins, PluginCatalog, PluginInfo};
pub use draw::Format;
pub use loaded::LoadedPlugins;
pub use settings::{CheckpointSettings, RestartStrategy, Settings};

use super::spec::{EventTimeSpec, KeyBy, OnMissingKey};
use crate::operator::{ErrorPolicy, LateRecords};
use crate::plugin::{Capabilities, Limits, PluginReference};
use crate::sink::{Guarantee, Sink, TransactionalSink};
use crate::source::Source;
use serde_json::Value;
use std::sync::Arc;

/// The graph of a job, ready to run. Indices of nodes, edges and chains are positions in these lists.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The name of the job.
    pub name: String,
    /// The number of key groups.
    pub max_parallelism: u16,
    /// Sources, operators and sinks: a node stands behind all that it reads from; sinks stand in the order of the specification, which
    /// is the order of their commits.
    pub nodes: Vec<Node>,
    /// What flows from node to node, by receiving node and then in the order of its inputs.
    pub edges: Vec<Edge>,
    /// What runs in one task.
    pub chains: Vec<Chain>,
    /// Checkpoints, restarts and batches.
    pub settings: Settings,
    /// What a person should know about this job, in sentences.
    pub notes: Vec<String>,
}

/// A source, an operator or a sink.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its position in [`Plan::nodes`].
    pub index: usize,
    /// Its name in the job, which state is stored under.
    pub uid: Arc<str>,
    /// How many subtasks it has; at least 1 and at most the maximum parallelism.
    pub parallelism: u16,
    /// The chain that it runs in.
    pub chain: usize,
    /// What it is.
    pub kind: NodeKind,
    /// Its element of the specification as it was written, references to environment variables and files not replaced: what a manifest
    /// may keep.
    pub written: Value,
}

impl Node {
    /// The type of a source or sink, the reference of a plugin: for messages.
    pub fn type_name(&self) -> &str {
        match &self.kind {
            NodeKind::Source(source) => &source.type_name,
            NodeKind::Operator(operator) => &operator.plugin_name,
            NodeKind::Sink(sink) => &sink.type_name,
        }
    }
}

/// What a node is.
#[derive(Clone, Debug)]
pub enum NodeKind {
    /// Reads records.
    Source(SourceNode),
    /// Turns records into records.
    Operator(Box<OperatorNode>),
    /// Writes records.
    Sink(SinkNode),
}

/// A source of a plan.
#[derive(Clone, Debug)]
pub struct SourceNode {
    /// The name of its type.
    pub type_name: String,
    /// The source.
    pub source: Arc<dyn Source>,
    /// Its event time; none if it makes no watermarks.
    pub event_time: Option<EventTimeSpec>,
}

/// An operator of a plan.
#[derive(Clone, Debug)]
pub struct OperatorNode {
    /// The plugin as the job names it.
    pub plugin_name: String,
    /// The same, read. Paths are relative to the folder of the job file.
    pub plugin: PluginReference,
    /// What the plugin is.
    pub info: PluginInfo,
    /// What it is opened with.
    pub config: Value,
    /// What becomes of a record that it cannot process. For [`ErrorPolicy::DeadLetter`] there is an edge of the
    /// [route of dead letters](crate::operator::DEAD_LETTER_ROUTE).
    pub error_policy: ErrorPolicy,
    /// What becomes of late records. Only a keyed plugin has another policy than [`LateRecords::Process`].
    pub late_records: LateRecords,
    /// What it may reach.
    pub capabilities: Capabilities,
    /// How much it may use.
    pub limits: Limits,
}

/// A sink of a plan.
#[derive(Clone, Debug)]
pub struct SinkNode {
    /// The name of its type.
    pub type_name: String,
    /// The sink, made for this guarantee.
    pub sink: Arc<dyn Sink>,
    /// What it promises in this job.
    pub guarantee: Guarantee,
    /// What its type can promise, in a sentence.
    pub promise: String,
}

impl SinkNode {
    /// Whether its output becomes visible by commits of completed checkpoints.
    pub fn is_transactional(&self) -> bool {
        self.guarantee == Guarantee::ExactlyOnce && (self.sink.as_two_phase().is_some() || self.sink.as_transactional().is_some())
    }

    /// Whether it writes inside of transactions that hold the decision.
    pub fn writes_transactions(&self) -> bool {
        self.guarantee == Guarantee::ExactlyOnce && self.sink.as_transactional().is_some()
    }
}

/// Records that flow from an output of a node to an input of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Its position in [`Plan::edges`].
    pub index: usize,
    /// The node that emits.
    pub from: usize,
    /// The output: 0 the main one, then the side outputs in the plugin's order, [`DEAD_LETTER_ROUTE`](crate::operator::DEAD_LETTER_ROUTE)
    /// dead letters, [`LATE_ROUTE`](crate::operator::LATE_ROUTE) late records.
    pub route: u8,
    /// The node that receives.
    pub to: usize,
    /// The input of the receiving node; edges of one input are a union.
    pub input: usize,
    /// How records are dealt to the receiving subtasks.
    pub exchange: Exchange,
}

/// How records are dealt to the subtasks that receive them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// From each subtask to the one of the same number; both nodes have the same parallelism. Inside of a chain it is a call, otherwise
    /// one channel a subtask.
    Forward,
    /// Batches in turn to every subtask. The order of records is kept only between two subtasks.
    Rebalance,
    /// By key group.
    KeyGroup {
        /// Where the key is. It takes the place of the record's own key.
        key_by: KeyBy,
        /// What happens to a record without one.
        on_missing_key: OnMissingKey,
    },
    /// Every record to every subtask.
    Broadcast,
}

/// Nodes that run in one task a subtask: the first receives from channels or reads a source; each other one has exactly one edge to it,
/// a [`Exchange::Forward`] from a node of the same chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its position in [`Plan::chains`].
    pub index: usize,
    /// The nodes, a node behind the one that it receives from.
    pub nodes: Vec<usize>,
    /// How many subtasks it has: the parallelism of each of its nodes.
    pub parallelism: u16,
}

impl Chain {
    /// The first node.
    pub fn head(&self) -> usize {
        self.nodes[0]
    }
}

impl Plan {
    /// The edges that a node emits to.
    pub fn outputs(&self, node: usize) -> impl Iterator<Item = &Edge> {
        self.edges.iter().filter(move |edge| edge.from == node)
    }

    /// The edges that a node receives from.
    pub fn inputs(&self, node: usize) -> impl Iterator<Item = &Edge> {
        self.edges.iter().filter(move |edge| edge.to == node)
    }

    /// Whether an edge lies inside of a chain, where it needs no channel.
    pub fn is_chained(&self, edge: &Edge) -> bool {
        self.nodes[edge.from].chain == self.nodes[edge.to].chain
    }

    /// The node of a uid.
    pub fn node(&self, uid: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| &*node.uid == uid)
    }

    /// The sinks in the order of their commits.
    pub fn sinks(&self) -> impl Iterator<Item = (&Node, &SinkNode)> {
        self.nodes.iter().filter_map(|node| match &node.kind {
            NodeKind::Sink(sink) => Some((node, sink)),
            _ => None,
        })
    }

    /// The sinks whose transactions hold the decision, by their other face.
    pub fn transactional_sinks(&self) -> impl Iterator<Item = (&Node, &dyn TransactionalSink)> {
        let writing = self.sinks().filter(|(_, sink)| sink.writes_transactions());
        writing.filter_map(|(node, sink)| Some((node, sink.sink.as_transactional()?)))
    }

    /// The sources in the order of the specification.
    pub fn sources(&self) -> impl Iterator<Item = (&Node, &SourceNode)> {
        self.nodes.iter().filter_map(|node| match &node.kind {
            NodeKind::Source(source) => Some((node, source)),
            _ => None,
        })
    }

    /// The operators, each behind those that it reads from.
    pub fn operators(&self) -> impl Iterator<Item = (&Node, &OperatorNode)> {
        self.nodes.iter().filter_map(|node| match &node.kind {
            NodeKind::Operator(operator) => Some((node, &**operator)),
            _ => None,
        })
    }
}
