//! What a plan contributes to commits and to the start of a run.

use super::check;
use super::open::OpenOperator;
use super::status::StatusWriter;
use crate::Error;
use crate::checkpoint::participants::{LastResource, Leftovers, Participants, StartHooks};
use crate::checkpoint::protocol::plan::{Kept, mixed_up};
use crate::checkpoint::protocol::{
    JobId, KeyedInput, Manifest, OperatorState, OutputGuarantee, PlanPart, PlanRevision, PreparedWork, SourceState, SplitState,
};
use crate::checkpoint::storage::FilesAt;
use crate::pipeline::plan::{Edge, Exchange, Node, NodeKind, OperatorNode, Plan, SinkNode};
use crate::plugin::World;
use crate::sink::{Transactions, TwoPhaseSink};
use crate::source::Source;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The two-phase sinks of a plan and its sources, as the checkpoint protocol sees them.
#[derive(Clone, Debug)]
pub(super) struct PlanParties {
    plan: Arc<Plan>,
    /// Where people see that a commit is being tried again.
    status: Arc<StatusWriter>,
    /// Whether state that no operator of the plan claims may be left behind.
    ignore_unclaimed_state: bool,
    /// What the sinks write through whose transactions hold the decision, if there are such.
    transactions: Option<Arc<dyn Transactions>>,
    /// To try whether they take a state.
    operators: Arc<dyn OpenOperator>,
}

impl PlanParties {
    pub(super) fn new(
        plan: Arc<Plan>,
        status: Arc<StatusWriter>,
        ignore_unclaimed_state: bool,
        transactions: Option<Arc<dyn Transactions>>,
        operators: Arc<dyn OpenOperator>,
    ) -> Self {
        Self { plan, status, ignore_unclaimed_state, transactions, operators }
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(super) fn operators(&self) -> &Arc<dyn OpenOperator> {
        &self.operators
    }

    /// The transactions that hold the decision, if the plan has sinks that write inside of such.
    pub(super) fn transactions(&self) -> Option<&Arc<dyn Transactions>> {
        self.transactions.as_ref()
    }

    /// The same, as the checkpoint protocol sees them.
    pub(super) fn last_resource(&self) -> Option<&dyn LastResource> {
        self.transactions.as_deref().map(|transactions| transactions as &dyn LastResource)
    }

    /// The strongest guarantee that a sink of the plan gives.
    pub(super) fn guarantee(&self) -> OutputGuarantee {
        if self.plan.sinks().any(|(_, sink)| sink.is_transactional()) { OutputGuarantee::ExactlyOnce } else { OutputGuarantee::AtLeastOnce }
    }

    fn two_phase(&self) -> impl Iterator<Item = (&str, &dyn TwoPhaseSink)> {
        let transactional = self.plan.sinks().filter(|(_, sink)| sink.is_transactional());
        transactional.filter_map(|(node, SinkNode { sink, .. })| Some((&*node.uid, sink.as_two_phase()?)))
    }

    /// The revision of the plan, with the number that follows from the one before.
    pub(super) fn revision(&self, before: Option<&PlanRevision>) -> PlanRevision {
        let part = |node: &Node| {
            let part = PlanPart {
                type_name: node.type_name().to_owned(),
                config: node.written.clone(),
                parallelism: u32::from(node.parallelism),
                ..PlanPart::default()
            };
            match &node.kind {
                NodeKind::Source(source) => PlanPart { identity: source.source.identity(), ..part },
                NodeKind::Operator(operator) => PlanPart {
                    digest: operator.info.digest.clone(),
                    inputs: self.keyed_inputs(node, operator),
                    states: operator.info.states.clone(),
                    ..part
                },
                NodeKind::Sink(_) => part,
            }
        };
        let parts: BTreeMap<String, PlanPart> = self.plan.nodes.iter().map(|node| (node.uid.to_string(), part(node))).collect();
        let number = match before {
            Some(before) if before.parts == parts => before.number,
            Some(before) => before.number + 1,
            None => 1,
        };
        PlanRevision { number, parts, max_parallelism: u32::from(self.plan.max_parallelism), guarantee: self.guarantee() }
    }

    /// By what the inputs of an operator with state by key are dealt.
    fn keyed_inputs(&self, node: &Node, operator: &OperatorNode) -> Vec<KeyedInput> {
        if operator.info.world != World::KeyedPlugin {
            return Vec::new();
        }
        let keyed = |edge: &Edge| KeyedInput {
            from: match edge.route {
                0 => self.plan.nodes[edge.from].uid.to_string(),
                route => format!("{}, output {route}", self.plan.nodes[edge.from].uid),
            },
            // An input's number is a byte in the job file.
            number: u8::try_from(edge.input).unwrap_or(u8::MAX),
            key_by: match &edge.exchange {
                Exchange::KeyGroup { key_by, .. } => json!(key_by),
                Exchange::Forward | Exchange::Rebalance | Exchange::Broadcast => Value::Null,
            },
        };
        self.plan.inputs(node.index).map(keyed).collect()
    }

    /// Why parts of the plan cannot go on from what the restored manifest keeps under their uids.
    fn mixed_up(&self, restored: &Manifest, now: &PlanRevision) -> Vec<String> {
        let snapshot = &restored.snapshot;
        let with_state = snapshot.operators.iter().filter(|(_, state)| has_files(state)).map(|(uid, _)| (uid, Kept::State));
        let kept = snapshot.sources.keys().map(|uid| (uid, Kept::Positions)).chain(with_state);
        let parts = kept.filter_map(|(uid, kept)| Some((uid, kept, snapshot.plan.parts.get(uid)?, now.parts.get(uid)?)));
        parts.flat_map(|(uid, kept, before, after)| mixed_up(uid, kept, before, after)).collect()
    }

    /// What stands in the restored manifest and has no place in the plan.
    fn unclaimed(&self, restored: &Manifest) -> Vec<String> {
        let snapshot = &restored.snapshot;
        let operators = snapshot.operators.iter().filter(|(_, state)| has_files(state));
        let operators = operators.map(|(uid, _)| uid).filter(|uid| !self.plan.operators().any(|(node, _)| &*node.uid == uid.as_str()));
        let sources = snapshot.sources.keys().filter(|uid| !self.plan.sources().any(|(node, _)| &*node.uid == uid.as_str()));
        operators.map(|uid| format!("operator {uid}")).chain(sources.map(|uid| format!("source {uid}"))).collect()
    }
}

#[async_trait]
impl Participants for PlanParties {
    fn order(&self) -> Vec<String> {
        self.two_phase().map(|(uid, _)| uid.to_owned()).collect()
    }

    async fn commit(&self, sink: &str, work: &[PreparedWork]) -> Result<(), Error> {
        let found = self.two_phase().find(|(uid, _)| *uid == sink);
        let (_, two_phase) = found.ok_or_else(|| Error::internal(format!("the plan has no two-phase sink {sink}")))?;
        let prepared: Vec<Value> = work.iter().map(|work| work.work.clone()).collect();
        two_phase.commit(&prepared).await.map_err(|error| error.within(format!("sink {sink}")))
    }

    fn commit_retried(&self, _sink: &str, error: &Error, tries: u32) {
        self.status.warn(&format!("{} (tried {tries} times, and tried again)", error.chain()));
    }

    async fn visible_output(&self, job: &JobId) -> Result<Option<String>, Error> {
        for (uid, two_phase) in self.two_phase() {
            let found = two_phase.visible_output(job.as_str()).await.map_err(|error| error.within(format!("sink {uid}")))?;
            if let Some(found) = found {
                return Ok(Some(format!("{found} (sink {uid})")));
            }
        }
        Ok(None)
    }

    async fn clean_up(&self, leftovers: &Leftovers<'_>) -> Result<(), Error> {
        let below = leftovers.before.map_or(u64::MAX, |generation| generation.0);
        for (uid, two_phase) in self.two_phase() {
            let keep: Vec<Value> = leftovers.keep.iter().filter(|work| work.sink == uid).map(|work| work.work.clone()).collect();
            let cleaned = two_phase.clean_up(leftovers.job.as_str(), below, &keep).await;
            cleaned.map_err(|error| error.within(format!("sink {uid}")))?;
        }
        Ok(())
    }
}

#[async_trait]
impl StartHooks for PlanParties {
    async fn resolve_start(&self) -> Result<BTreeMap<String, SourceState>, Error> {
        let mut resolved = BTreeMap::new();
        for (node, source) in self.plan.sources() {
            resolved.insert(node.uid.to_string(), resolve(&node.uid, &*source.source).await?);
        }
        Ok(resolved)
    }

    fn plan(&self, restored: Option<&Manifest>) -> Result<PlanRevision, Error> {
        let Some(restored) = restored else { return Ok(self.revision(None)) };
        let before = &restored.snapshot.plan;
        let max = u32::from(self.plan.max_parallelism);
        if before.max_parallelism != 0 && before.max_parallelism != max {
            return Err(Error::user(format!(
                "max-parallelism is {max}, but the state of job {} was written with {}: it is the number of key groups and never changes; \
                 set it back, or begin again with --fresh",
                restored.job, before.max_parallelism
            )));
        }
        let unclaimed = self.unclaimed(restored);
        if !unclaimed.is_empty() && !self.ignore_unclaimed_state {
            return Err(Error::user(format!(
                "checkpoint {} of job {} holds state of {}, which the job does not have: give the uid back, or leave the state behind \
                 with --allow-non-restored-state",
                restored.slot,
                restored.job,
                unclaimed.join(", ")
            )));
        }
        let revision = self.revision(Some(before));
        let mixed_up = self.mixed_up(restored, &revision);
        if !mixed_up.is_empty() {
            return Err(Error::user(format!(
                "checkpoint {} of job {} does not fit the job any more: {}. Put it back as it was; or give what is meant now a uid of its own, \
                 and leave behind what is kept under the old one with --allow-non-restored-state; or begin again with --fresh",
                restored.slot,
                restored.job,
                mixed_up.join("; ")
            )));
        }
        Ok(revision)
    }

    async fn check_restore(&self, restored: &Manifest, files: &FilesAt) -> Result<(), Error> {
        StartHooks::plan(self, Some(restored))?;
        check::check_restore(self, restored, files).await
    }
}

/// Whether there is state of an operator.
fn has_files(state: &OperatorState) -> bool {
    state.subtasks.values().any(|subtask| !subtask.chain.is_empty())
}

/// Where a source begins, decided once.
pub(super) async fn resolve(uid: &str, source: &dyn Source) -> Result<SourceState, Error> {
    let splits = source.discover(&BTreeSet::new()).await.map_err(|error| error.within(format!("source {uid}")))?;
    let splits =
        splits.into_iter().map(|split| (split.id, SplitState { position: split.position, stop: split.stop, finished: split.finished }));
    Ok(SourceState { splits: splits.collect(), extra: Value::Null })
}
