//! Tries whether operators take the state of a checkpoint, before a run restores it for good: each subtask is opened, imports, and is dropped.

use super::build::keyed_inputs;
use super::open::{RunContext, open_operator};
use super::parties::PlanParties;
use crate::Error;
use crate::checkpoint::protocol::{Manifest, OperatorState, PlanPart, StateFile};
use crate::checkpoint::storage::FilesAt;
use crate::record::SplitTable;
use std::sync::Arc;

/// Whether an operator may refuse state that the same code with the same configuration has written, or has taken before.
fn may_refuse(before: Option<&PlanPart>, now: Option<&PlanPart>) -> bool {
    let (Some(before), Some(now)) = (before, now) else { return true };
    before.digest.is_none() || (&before.digest, &before.config, before.parallelism) != (&now.digest, &now.config, now.parallelism)
}

/// Imports the state of every operator whose plugin, configuration or parallelism is not the one that wrote it, subtask by subtask.
///
/// # Errors
/// The first operator that does not take its state, with its sentence.
pub(super) async fn check_restore(parties: &PlanParties, restored: &Manifest, files: &FilesAt) -> Result<(), Error> {
    let (plan, before) = (parties.plan(), &restored.snapshot.plan.parts);
    let now = parties.revision(None).parts;
    let context = RunContext {
        job: restored.job.to_string(),
        generation: 0,
        restarts: 0,
        max_parallelism: plan.max_parallelism,
        limits: plan.settings.batch,
        split_table: SplitTable::default(),
        storage: Some(Arc::clone(&files.storage)),
        operators: Arc::clone(parties.operators()),
        transactions: None,
    };
    for (node, operator) in plan.operators() {
        let Some(state) = restored.snapshot.operators.get(&*node.uid).filter(|state| has_files(state)) else { continue };
        if !may_refuse(before.get(&*node.uid), now.get(&*node.uid)) {
            continue;
        }
        let state = at(state, files);
        for subtask in 0..node.parallelism {
            tracing::debug!(operator = &*node.uid, subtask, "the state to restore is tried");
            open_operator(node, operator, subtask, Some(&state), keyed_inputs(plan, node.index), &context).await?;
        }
    }
    Ok(())
}

/// Whether there is state of an operator.
fn has_files(state: &OperatorState) -> bool {
    state.subtasks.values().any(|subtask| !subtask.chain.is_empty())
}

/// The state with the paths of its files from the root of their storage.
fn at(state: &OperatorState, files: &FilesAt) -> OperatorState {
    let mut state = state.clone();
    let chains = state.subtasks.values_mut().flat_map(|subtask| &mut subtask.chain);
    chains.for_each(|file: &mut StateFile| file.path = files.path(&file.path));
    state
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_wrote_the_state_is_sure_to_take_it() {
        let part = |digest: &str, parallelism| PlanPart { digest: Some(digest.to_owned()), parallelism, ..PlanPart::default() };
        assert!(!may_refuse(Some(&part("a", 2)), Some(&part("a", 2))));
        assert!(may_refuse(Some(&part("a", 2)), Some(&part("b", 2))));
        assert!(may_refuse(Some(&part("a", 2)), Some(&part("a", 1))), "more state comes together, and memory is limited");
        assert!(may_refuse(Some(&part("a", 2)), Some(&PlanPart { config: json!({"x": 1}), ..part("a", 2) })));
        assert!(may_refuse(None, Some(&part("a", 2))));
        assert!(may_refuse(Some(&PlanPart::default()), Some(&PlanPart::default())), "a digest that is not known is not the same one");
    }
}
