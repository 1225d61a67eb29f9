//! What differs between the plan that a manifest was made with and the one that is to go on from it.

use super::manifest::PlanRevision;

/// One difference between two plans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanChange {
    /// The number of key groups differs. State is dealt by key group, so this is refused.
    MaxParallelism {
        /// What the state was made with.
        before: u32,
        /// What is asked for.
        after: u32,
    },
    /// A part is new: it begins without state.
    Added(String),
    /// A part is gone: its state is left behind.
    Removed(String),
    /// A part runs another plugin or another type: it must accept the state.
    Code(String),
    /// A part has another configuration.
    Config(String),
    /// A part has another number of subtasks: its state is dealt anew.
    Parallelism {
        /// The part.
        uid: String,
        /// How many subtasks it had.
        before: u32,
        /// How many it gets.
        after: u32,
    },
}

impl PlanChange {
    /// The sentence that refuses the change, if it is never possible.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        match self {
            Self::MaxParallelism { before, after } => Some(format!(
                "max-parallelism was {before} when the state was made and is {after} now: it cannot be changed; put it back, or start with --fresh"
            )),
            _ => None,
        }
    }
}

/// Every difference, by uid.
#[must_use]
pub fn changes(before: &PlanRevision, after: &PlanRevision) -> Vec<PlanChange> {
    let mut changes = Vec::new();
    if before.max_parallelism != after.max_parallelism {
        changes.push(PlanChange::MaxParallelism { before: before.max_parallelism, after: after.max_parallelism });
    }
    changes.extend(before.parts.keys().filter(|uid| !after.parts.contains_key(*uid)).cloned().map(PlanChange::Removed));
    for (uid, part) in &after.parts {
        let Some(old) = before.parts.get(uid) else {
            changes.push(PlanChange::Added(uid.clone()));
            continue;
        };
        if (&old.digest, &old.type_name) != (&part.digest, &part.type_name) {
            changes.push(PlanChange::Code(uid.clone()));
        }
        if old.config != part.config {
            changes.push(PlanChange::Config(uid.clone()));
        }
        if old.parallelism != part.parallelism {
            changes.push(PlanChange::Parallelism { uid: uid.clone(), before: old.parallelism, after: part.parallelism });
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::super::manifest::PlanPart;
    use super::*;

    #[test]
    fn every_difference_is_named_and_only_a_changed_max_parallelism_is_refused() {
        let part = |digest: &str, parallelism| PlanPart { digest: Some(digest.to_owned()), parallelism, ..PlanPart::default() };
        let mut before = PlanRevision { max_parallelism: 128, ..PlanRevision::default() };
        before.parts.insert("gone".to_owned(), part("a", 1));
        before.parts.insert("kept".to_owned(), part("a", 1));
        let mut after = PlanRevision { max_parallelism: 64, ..PlanRevision::default() };
        after.parts.insert("kept".to_owned(), part("b", 2));
        after.parts.insert("new".to_owned(), part("c", 1));
        let found = changes(&before, &after);
        let kept = "kept".to_owned();
        let expected = [
            PlanChange::MaxParallelism { before: 128, after: 64 },
            PlanChange::Removed("gone".to_owned()),
            PlanChange::Code(kept.clone()),
            PlanChange::Parallelism { uid: kept, before: 1, after: 2 },
            PlanChange::Added("new".to_owned()),
        ];
        assert_eq!(found, expected);
        assert_eq!(found.iter().filter_map(PlanChange::refusal).count(), 1);
        assert_eq!(changes(&before, &before), []);
    }
}
