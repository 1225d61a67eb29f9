//! The suites have teeth: a right sink in memory passes, and each way of being wrong is found.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::Error;
use crate::sink::{CheckpointBarrier, TwoPhaseSink};
use serde_json::{Value, json};
use std::sync::Mutex;

/// What is wrong with a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    FlushIsForgotten,
    OrderIsReversed,
    GenerationsOverwrite,
    SubtasksShareABuffer,
    WriteIsVisible,
    PrepareIsVisible,
    PrepareGivesEmptyWork,
    PrepareKeepsItsRecords,
    PreparedIsInMemory,
    CommitRepeats,
    SecondCommitFails,
    MissingIsDone,
    OneCommitCountsForAll,
    AbortDoesNothing,
    SecondAbortFails,
    CleanUpDoesNothing,
    CleanUpIgnoresKeep,
    CleanUpTakesItsOwn,
    CleanUpTakesOtherJobs,
    CleanUpTakesTheVisible,
}

/// What is on the other side; one lock, held for moments.
#[derive(Debug, Default)]
struct Store {
    visible: Vec<Vec<u8>>,
    /// Prepared work: id, job, generation, records.
    prepared: Vec<(u64, String, u64, Vec<Vec<u8>>)>,
    committed: Vec<u64>,
    aborted: Vec<u64>,
    next: u64,
    shared: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct MemorySink {
    wrong: Wrong,
    two_phase: bool,
    store: Arc<Mutex<Store>>,
    /// What a wrong sink keeps only in memory.
    own: Arc<Mutex<Vec<u64>>>,
}

struct MemoryWriter {
    wrong: Wrong,
    two_phase: bool,
    context: WriterContext,
    store: Arc<Mutex<Store>>,
    own: Arc<Mutex<Vec<u64>>>,
    buffer: Vec<Vec<u8>>,
}

#[async_trait]
impl Sink for MemorySink {
    async fn open(&self, context: WriterContext) -> Result<Box<dyn SinkWriter>, Error> {
        let (store, own) = (Arc::clone(&self.store), Arc::clone(&self.own));
        if self.wrong == Wrong::GenerationsOverwrite && context.generation > 1 {
            store.lock().unwrap().visible.clear();
        }
        Ok(Box::new(MemoryWriter { wrong: self.wrong, two_phase: self.two_phase, context, store, own, buffer: Vec::new() }))
    }

    fn as_two_phase(&self) -> Option<&dyn TwoPhaseSink> {
        self.two_phase.then_some(self as _)
    }
}

#[async_trait]
impl SinkWriter for MemoryWriter {
    async fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        let mut store = self.store.lock().unwrap();
        let values = batch.rows().filter_map(|row| row.value.map(<[u8]>::to_vec));
        match self.wrong {
            Wrong::WriteIsVisible => store.visible.extend(values),
            Wrong::SubtasksShareABuffer => store.shared.extend(values),
            _ => self.buffer.extend(values),
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Error> {
        let mut store = self.store.lock().unwrap();
        if self.wrong == Wrong::OrderIsReversed {
            self.buffer.reverse();
        }
        if self.wrong != Wrong::FlushIsForgotten {
            store.visible.append(&mut self.buffer);
        }
        Ok(())
    }

    async fn prepare(&mut self, _barrier: &CheckpointBarrier) -> Result<Vec<Value>, Error> {
        if !self.two_phase {
            return Err(Error::internal("this sink does not prepare"));
        }
        let mut store = self.store.lock().unwrap();
        let records = match self.wrong {
            Wrong::PrepareKeepsItsRecords => self.buffer.clone(),
            Wrong::SubtasksShareABuffer => std::mem::take(&mut store.shared),
            _ => std::mem::take(&mut self.buffer),
        };
        if records.is_empty() && self.wrong != Wrong::PrepareGivesEmptyWork {
            return Ok(Vec::new());
        }
        if self.wrong == Wrong::PrepareIsVisible {
            store.visible.extend(records.iter().cloned());
        }
        store.next += 1;
        let id = store.next;
        store.prepared.push((id, self.context.job.clone(), self.context.generation, records));
        self.own.lock().unwrap().push(id);
        Ok(vec![json!(id)])
    }
}

#[async_trait]
impl TwoPhaseSink for MemorySink {
    async fn commit(&self, prepared: &[Value]) -> Result<(), Error> {
        let mut store = self.store.lock().unwrap();
        for id in prepared.iter().filter_map(Value::as_u64) {
            if self.wrong == Wrong::PreparedIsInMemory && !self.own.lock().unwrap().contains(&id) {
                return Err(Error::external("it is gone"));
            }
            let place = store.prepared.iter().position(|(known, ..)| *known == id);
            let done = store.committed.contains(&id);
            match place {
                Some(place) => {
                    let records =
                        if self.wrong == Wrong::CommitRepeats { store.prepared[place].3.clone() } else { store.prepared.remove(place).3 };
                    store.committed.push(id);
                    if self.wrong != Wrong::PrepareIsVisible {
                        store.visible.extend(records);
                    }
                }
                None if done && self.wrong != Wrong::SecondCommitFails => {}
                None if self.wrong == Wrong::MissingIsDone => {}
                None => return Err(Error::external(format!("{id} is not there"))),
            }
            if self.wrong == Wrong::OneCommitCountsForAll {
                break;
            }
        }
        Ok(())
    }

    async fn abort(&self, prepared: &[Value]) -> Result<(), Error> {
        let mut store = self.store.lock().unwrap();
        for id in prepared.iter().filter_map(Value::as_u64) {
            if self.wrong == Wrong::SecondAbortFails && store.aborted.contains(&id) {
                return Err(Error::external("it was aborted before"));
            }
            store.aborted.push(id);
            if self.wrong != Wrong::AbortDoesNothing {
                store.prepared.retain(|(known, ..)| *known != id);
            }
        }
        Ok(())
    }

    async fn clean_up(&self, job: &str, below: u64, keep: &[Value]) -> Result<(), Error> {
        let mut store = self.store.lock().unwrap();
        let wrong = self.wrong;
        if wrong == Wrong::CleanUpTakesTheVisible {
            store.visible.clear();
        }
        store.prepared.retain(|(id, of, generation, _)| {
            let kept = keep.contains(&json!(id)) && wrong != Wrong::CleanUpIgnoresKeep;
            let others = if wrong == Wrong::CleanUpTakesOtherJobs { !of.starts_with(job) } else { of != job };
            let own = *generation >= below && wrong != Wrong::CleanUpTakesItsOwn;
            kept || others || own || wrong == Wrong::CleanUpDoesNothing
        });
        Ok(())
    }
}

struct MemoryFixture(Wrong, bool);

struct MemoryPlace(Wrong, bool, Arc<Mutex<Store>>);

#[async_trait]
impl Fixture for MemoryFixture {
    async fn place(&self) -> Box<dyn Place> {
        Box::new(MemoryPlace(self.0, self.1, Arc::default()))
    }
}

#[async_trait]
impl Place for MemoryPlace {
    async fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(MemorySink { wrong: self.0, two_phase: self.1, store: Arc::clone(&self.2), own: Arc::default() })
    }

    async fn visible(&self) -> Vec<Vec<u8>> {
        self.2.lock().unwrap().visible.clone()
    }
}

#[tokio::test]
async fn a_right_sink_passes() {
    check_sink(&MemoryFixture(Wrong::Nothing, false)).await.unwrap();
    check_two_phase(&MemoryFixture(Wrong::Nothing, true)).await.unwrap();
}

async fn must_violate(two_phase: bool, wrong: Wrong, obligation: &str) {
    let fixture = MemoryFixture(wrong, two_phase);
    let result = if two_phase { check_two_phase(&fixture).await } else { check_sink(&fixture).await };
    let violations = result.err().unwrap_or_default();
    assert!(violations.iter().any(|violation| violation.obligation.contains(obligation)), "{wrong:?}: {violations:?}");
}

#[tokio::test]
async fn every_way_of_being_wrong_at_flush_is_found() {
    for (wrong, obligation) in [
        (Wrong::FlushIsForgotten, "survives the loss of the process"),
        (Wrong::OrderIsReversed, "in order"),
        (Wrong::GenerationsOverwrite, "a later generation"),
    ] {
        must_violate(false, wrong, obligation).await;
    }
}

#[tokio::test]
async fn every_way_of_being_wrong_in_two_phases_is_found() {
    for (wrong, obligation) in [
        (Wrong::WriteIsVisible, "nothing is visible before commit"),
        (Wrong::PrepareIsVisible, "nothing is visible before commit"),
        (Wrong::PrepareGivesEmptyWork, "prepare of nothing"),
        (Wrong::PrepareKeepsItsRecords, "separate from it"),
        (Wrong::PreparedIsInMemory, "survives the process"),
        (Wrong::CommitRepeats, "commit is idempotent"),
        (Wrong::SecondCommitFails, "commit is idempotent"),
        (Wrong::MissingIsDone, "commit of missing work fails"),
        (Wrong::OneCommitCountsForAll, "several checkpoints"),
        (Wrong::AbortDoesNothing, "abort undoes"),
        (Wrong::SecondAbortFails, "abort undoes"),
        (Wrong::CleanUpDoesNothing, "deletes what older runs left"),
        (Wrong::CleanUpIgnoresKeep, "told to keep"),
        (Wrong::CleanUpTakesItsOwn, "own generation"),
        (Wrong::CleanUpTakesOtherJobs, "other jobs"),
        (Wrong::CleanUpTakesTheVisible, "what is visible"),
        (Wrong::SubtasksShareABuffer, "subtasks do not disturb"),
    ] {
        must_violate(true, wrong, obligation).await;
    }
    // A sink that is not two-phase at all violates every one.
    assert_eq!(check_two_phase(&MemoryFixture(Wrong::Nothing, false)).await.unwrap_err().len(), 14);
}
