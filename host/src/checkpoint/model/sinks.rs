//! Simulated file sinks: pending files are renamed at commit; what is neither pending nor visible is an error.

use async_trait::async_trait;
use serde_json::json;

use super::super::participants::{Leftovers, Participants};
use super::super::protocol::{Generation, JobId, PreparedWork, SinkWork};
use super::world::{FileName, SINKS, Shared, step};
use crate::Error;

#[derive(Clone, Debug)]
pub(super) struct SimSinks {
    pub(super) world: Shared,
    pub(super) process: usize,
}

impl SimSinks {
    /// Prepares a file with `positions` in each sink.
    pub(super) async fn prepare(&self, job: &JobId, generation: Generation, positions: &[u64]) -> Vec<SinkWork> {
        let mut prepared = Vec::new();
        for sink in SINKS {
            step().await;
            let mut world = self.world.lock();
            let number = world.fresh();
            let name = FileName { sink: sink.to_owned(), job: job.clone(), generation, number };
            world.note(|| {
                format!("P{} prepares file {number} of {sink} with {positions:?} (generation {generation} of {job})", self.process)
            });
            world.pending.insert(name, positions.to_vec());
            prepared.push(SinkWork { sink: sink.to_owned(), work: json!({"number": number, "positions": positions}) });
        }
        prepared
    }

    fn file(work: &PreparedWork) -> (FileName, Vec<u64>) {
        let number = work.work["number"].as_u64().unwrap();
        let positions = work.work["positions"].as_array().unwrap().iter().map(|position| position.as_u64().unwrap()).collect();
        (FileName { sink: work.sink.clone(), job: work.job.clone(), generation: work.generation, number }, positions)
    }
}

#[async_trait]
impl Participants for SimSinks {
    fn order(&self) -> Vec<String> {
        SINKS.iter().map(|sink| (*sink).to_owned()).collect()
    }

    async fn commit(&self, sink: &str, work: &[PreparedWork]) -> Result<(), Error> {
        for work in work {
            step().await;
            let (name, positions) = Self::file(work);
            let mut world = self.world.lock();
            if world.fault(25, |budget| &mut budget.sink) {
                world.note(|| format!("P{} cannot rename file {} now", self.process, name.number));
                return Err(Error::external("the folder cannot be written"));
            }
            if let Some(pending) = world.pending.remove(&name) {
                world.note(|| format!("P{} renames file {} of {sink}: {pending:?} become visible", self.process, name.number));
                world.show(sink, &name.job, &pending);
                world.visible.insert(name, pending);
            } else if world.visible.get(&name) != Some(&positions) {
                world.note(|| format!("P{} finds file {} of {sink} neither pending nor visible", self.process, name.number));
                return Err(Error::user(format!("file {} is neither pending nor visible", name.number)));
            }
        }
        step().await;
        Ok(())
    }

    async fn clean_up(&self, leftovers: &Leftovers<'_>) -> Result<(), Error> {
        let keep: Vec<FileName> = leftovers.keep.iter().map(|work| Self::file(work).0).collect();
        let old = |name: &FileName| name.job == *leftovers.job && leftovers.before.is_none_or(|before| name.generation < before);
        step().await;
        let found: Vec<FileName> = self.world.lock().pending.keys().filter(|name| old(name) && !keep.contains(name)).cloned().collect();
        for name in found {
            step().await;
            let mut world = self.world.lock();
            world.note(|| format!("P{} deletes the left over file {} of {}", self.process, name.number, name.sink));
            world.pending.remove(&name);
        }
        Ok(())
    }
}
