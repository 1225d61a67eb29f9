//! The coordinator's look-out for new splits of the sources: found while the job runs, and dealt to the readers in turn.

use super::coordinator::{Coordinator, RunEnd, SourceTask, TaskHandle};
use super::task::Command;
use crate::Error;
use crate::source::Split;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

impl Coordinator<'_> {
    pub(super) fn schedule_discovery(&mut self) {
        if self.progress.drained {
            return;
        }
        let intervals = self.tasks.iter().filter_map(|task| task.source.as_ref()?.source.discovery_interval());
        if let Some(interval) = intervals.min() {
            self.progress.discovering = true;
            self.progress.next_discovery = Instant::now() + interval;
        }
    }

    pub(super) async fn discovered(&mut self, found: Vec<(SourceTask, Result<Vec<Split>, Error>)>) -> Result<(), RunEnd> {
        for (source, splits) in found {
            let splits = splits.map_err(|error| RunEnd::Failed(error.within(format!("source {}", source.uid))))?;
            let known = self.known_splits.entry(Arc::clone(&source.uid)).or_default();
            let readers: Vec<_> =
                self.tasks.iter().filter(|task| task.source.as_ref().is_some_and(|other| other.uid == source.uid)).collect();
            for split in splits {
                let reader = readers[known.len() % readers.len()];
                if known.insert(split.id.clone()) {
                    tracing::info!(source = &*source.uid, split = split.id, "a new split was found");
                    let _gone = reader.commands.send(Command::AddSplits(vec![split])).await;
                }
            }
        }
        self.schedule_discovery();
        Ok(())
    }
}

/// Looks for new splits of every source that finds some while it runs, at the given moment.
pub(super) async fn discover(
    tasks: &[TaskHandle],
    known: &BTreeMap<Arc<str>, BTreeSet<String>>,
    at: Instant,
) -> Vec<(SourceTask, Result<Vec<Split>, Error>)> {
    tokio::time::sleep_until(at.into()).await;
    let none = BTreeSet::new();
    let mut found = Vec::new();
    let mut asked = BTreeSet::new();
    for source in tasks.iter().filter_map(|task| task.source.as_ref()) {
        if source.source.discovery_interval().is_some() && asked.insert(Arc::clone(&source.uid)) {
            let splits = source.source.discover(known.get(&source.uid).unwrap_or(&none)).await;
            found.push((source.clone(), splits));
        }
    }
    found
}
