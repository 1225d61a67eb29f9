//! Opens the nodes of a task, inside of the task: operators restore their state in parallel.

use super::chain::{Chain, ChainNode, Output, Target, Work};
use super::event_time::{NO_WATERMARK, SourceTime, watermark_of};
use super::exchange::ExchangeWriter;
use super::task::{GateHead, Head, SourceHead};
use super::upload::read_state_file;
use crate::Error;
use crate::checkpoint::protocol::{OperatorState, StateFile};
use crate::checkpoint::storage::CheckpointStorage;
use crate::operator::Operator;
use crate::pipeline::plan::{Node, NodeKind, OperatorNode};
use crate::record::{KeyGroups, SplitTable};
use crate::sink::{Transactions, WriterContext};
use crate::source::{BatchLimits, ReaderContext, Split};
use crate::state::StateReader;
use crate::telemetry::TaskMetrics;
use async_trait::async_trait;
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What an operator's subtask is opened with.
#[derive(Clone, Debug)]
pub(crate) struct OperatorTask {
    pub(crate) job: String,
    pub(crate) uid: Arc<str>,
    pub(crate) subtask: u16,
    pub(crate) parallelism: u16,
    pub(crate) max_parallelism: u16,
    /// How many times the job was restarted.
    pub(crate) restarts: u64,
    pub(crate) restored: bool,
    /// Which of its inputs are dealt by key, so that a record without a key is an error.
    pub(crate) keyed_inputs: Vec<bool>,
    pub(crate) split_table: SplitTable,
}

/// Makes the operators of a job.
#[async_trait]
pub(crate) trait OpenOperator: std::fmt::Debug + Send + Sync {
    /// Opens one subtask of an operator, its state not yet restored.
    async fn open(&self, node: &OperatorNode, task: OperatorTask) -> Result<Box<dyn Operator>, Error>;

    /// How many failures so far were steps towards finding a record that a plugin cannot process. A restart after which the number has grown
    /// does not count against the restart strategy.
    fn isolation_steps(&self) -> u64;
}

/// A node that is still to be opened.
pub(super) struct NodePlan {
    pub(super) node: Node,
    pub(super) outputs: Vec<OutputPlan>,
    pub(super) metrics: Arc<TaskMetrics>,
    pub(super) restored: Option<OperatorState>,
    pub(super) keyed_inputs: Vec<bool>,
}

/// An output that is still to be opened.
pub(super) struct OutputPlan {
    pub(super) route: u8,
    pub(super) target: TargetPlan,
}

/// The receiving end of an output that is still to be opened.
pub(super) enum TargetPlan {
    Node { index: usize, input: usize },
    Exchange(ExchangeWriter),
}

/// What all tasks of a run share.
#[derive(Clone)]
pub(super) struct RunContext {
    pub(super) job: String,
    pub(super) generation: u64,
    pub(super) restarts: u64,
    pub(super) max_parallelism: u16,
    pub(super) limits: BatchLimits,
    pub(super) split_table: SplitTable,
    pub(super) storage: Option<Arc<dyn CheckpointStorage>>,
    pub(super) operators: Arc<dyn OpenOperator>,
    /// What sinks write through whose transactions hold the decision.
    pub(super) transactions: Option<Arc<dyn Transactions>>,
}

/// What a task reads, still to be opened.
pub(super) enum HeadPlan {
    /// The splits of a source, and the greatest timestamp of each of the source's that had one.
    Source {
        splits: Vec<Split>,
        greatest: BTreeMap<String, i64>,
    },
    Gate(GateHead),
}

/// A task whose nodes are still to be opened.
pub(super) struct TaskPlan {
    pub(super) subtask: u16,
    pub(super) nodes: Vec<NodePlan>,
    pub(super) head: HeadPlan,
}

impl TaskPlan {
    /// Opens everything and restores the operators' state.
    ///
    /// # Errors
    /// The first node that could not be opened, with its uid.
    pub(super) fn open(self, context: &RunContext) -> BoxFuture<'_, Result<(Chain, Head), Error>> {
        Box::pin(self.open_all(context))
    }

    async fn open_all(self, context: &RunContext) -> Result<(Chain, Head), Error> {
        let head = match self.head {
            HeadPlan::Gate(gate) => Head::Gate(gate),
            HeadPlan::Source { splits, greatest } => {
                Head::Source(open_source(&self.nodes[0], self.subtask, splits, greatest, context).await?)
            }
        };
        let watermark = restored_watermark(&self.nodes, self.subtask);
        let mut nodes = Vec::with_capacity(self.nodes.len());
        for node in self.nodes {
            nodes.push(open_node(node, self.subtask, context).await?);
        }
        Ok((Chain::new(nodes, watermark), head))
    }
}

/// Where the event time of a chain goes on: the least watermark of its operators that have state. What was late stays late.
fn restored_watermark(nodes: &[NodePlan], subtask: u16) -> i64 {
    let restored = nodes.iter().filter_map(|plan| Some((plan.restored.as_ref()?, plan.node.parallelism)));
    let watermarks = restored.map(|(restored, parallelism)| watermark_of(restored, u32::from(subtask), usize::from(parallelism)));
    watermarks.min().unwrap_or(NO_WATERMARK)
}

async fn open_source(
    plan: &NodePlan,
    subtask: u16,
    splits: Vec<Split>,
    greatest: BTreeMap<String, i64>,
    context: &RunContext,
) -> Result<SourceHead, Error> {
    let node = &plan.node;
    let NodeKind::Source(source) = &node.kind else {
        return Err(Error::internal(format!("node {} heads a source task and is no source", node.uid)));
    };
    let reader = source.source.open(ReaderContext {
        uid: node.uid.to_string(),
        subtask: usize::from(subtask),
        parallelism: usize::from(node.parallelism),
        limits: context.limits,
        split_table: context.split_table.clone(),
    });
    let nothing_to_read = splits.is_empty() && source.source.is_bounded();
    let mut reader = reader.await.map_err(|error| error.within(format!("source {}", node.uid)))?;
    let mut time = match &source.event_time {
        Some(spec) => Some(Box::new(SourceTime::new(&node.uid, spec, greatest, context.split_table.clone(), Arc::clone(&plan.metrics))?)),
        None => None,
    };
    if let Some(time) = &mut time {
        time.add(&splits);
    }
    let added = reader.add_splits(splits).await;
    added.map_err(|error| error.within(format!("source {}", node.uid)))?;
    if let Some(lag) = reader.split_lag() {
        plan.metrics.read_splits_from(move || lag());
    }
    Ok(SourceHead { uid: Arc::clone(&node.uid), reader, limits: context.limits, time, nothing_to_read })
}

async fn open_node(plan: NodePlan, subtask: u16, context: &RunContext) -> Result<ChainNode, Error> {
    let NodePlan { node, outputs, metrics, restored, keyed_inputs } = plan;
    let (work, whole_snapshot) = match &node.kind {
        NodeKind::Source(_) => (Work::Source, false),
        NodeKind::Sink(sink) => {
            let writer = sink.sink.open(WriterContext {
                job: context.job.clone(),
                uid: node.uid.to_string(),
                subtask: usize::from(subtask),
                parallelism: usize::from(node.parallelism),
                generation: context.generation,
                split_table: context.split_table.clone(),
                metrics: Arc::clone(&metrics),
                transactions: context.transactions.as_ref().filter(|_| sink.writes_transactions()).map(Arc::clone),
            });
            let writer = writer.await.map_err(|error| error.within(format!("sink {}", node.uid)))?;
            (Work::Sink(writer, sink.guarantee), false)
        }
        NodeKind::Operator(operator) => {
            let (opened, whole) = open_operator(&node, operator, subtask, restored.as_ref(), keyed_inputs, context).await?;
            (Work::Operator(opened), whole)
        }
    };
    let outputs = outputs.into_iter().map(|output| Output {
        route: output.route,
        target: match output.target {
            TargetPlan::Node { index, input } => Target::Node { index, input },
            TargetPlan::Exchange(writer) => Target::Exchange(writer),
        },
    });
    Ok(ChainNode { uid: Arc::clone(&node.uid), work, outputs: outputs.collect(), metrics, whole_snapshot })
}

/// Opens an operator and restores its state. True: its chain of state files begins anew with the next snapshot.
pub(super) async fn open_operator(
    node: &Node,
    operator: &OperatorNode,
    subtask: u16,
    restored: Option<&OperatorState>,
    keyed_inputs: Vec<bool>,
    context: &RunContext,
) -> Result<(Box<dyn Operator>, bool), Error> {
    let key_groups = KeyGroups::new(context.max_parallelism, node.parallelism).range(usize::from(subtask));
    let task = OperatorTask {
        job: context.job.clone(),
        uid: Arc::clone(&node.uid),
        subtask,
        parallelism: node.parallelism,
        max_parallelism: context.max_parallelism,
        restarts: context.restarts,
        restored: restored.is_some(),
        keyed_inputs,
        split_table: context.split_table.clone(),
    };
    let mut opened = context.operators.open(operator, task).await?;
    let (Some(restored), Some(storage)) = (restored, &context.storage) else {
        return Ok((opened, false));
    };
    let same = restored.subtasks.len() == usize::from(node.parallelism);
    let mut chains = Vec::new();
    for (index, state) in &restored.subtasks {
        if !same || *index == u32::from(subtask) {
            chains.push(read_chain(&**storage, &state.chain).await?);
        }
    }
    if chains.iter().all(Vec::is_empty) {
        return Ok((opened, !same));
    }
    let reader = StateReader::new(chains, key_groups, context.max_parallelism);
    // At an aligned barrier every subtask has the same broadcast state.
    let mut reader = reader.with_broadcast(operator.info.broadcast_states.iter().cloned());
    opened.restore(&mut reader).await?;
    Ok((opened, !same))
}

async fn read_chain(storage: &dyn CheckpointStorage, chain: &[StateFile]) -> Result<Vec<(String, bytes::Bytes)>, Error> {
    let mut files = Vec::with_capacity(chain.len());
    for file in chain {
        files.push((file.path.clone(), read_state_file(storage, file).await?));
    }
    Ok(files)
}
