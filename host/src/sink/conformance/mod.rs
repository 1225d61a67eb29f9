//! Suites that every sink should pass, a stranger's too: what [`Sink`] and [`TwoPhaseSink`](super::TwoPhaseSink) oblige to, seen from outside.
//!
//! Implement [`Fixture`] and [`Place`] for the sink, and call [`check_sink`], for an exactly-once sink [`check_two_phase`] as well, in a test:
//!
//! ```ignore
//! #[tokio::test]
//! async fn my_sink_does_what_it_must() {
//!     check_sink(&MyFixture).await.unwrap();
//!     check_two_phase(&MyExactlyOnceFixture).await.unwrap();
//! }
//! ```
//!
//! A suite goes on after a violation and reports all of them. Values are short texts without line breaks; keys are texts; there are no headers.

mod two_phase;

pub use two_phase::check_two_phase;

use super::{Sink, SinkWriter, WriterContext};
use crate::record::{Batch, Origin, Row, SplitTable};
use async_trait::async_trait;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The job that the suites write for. Some checks write for another one beside it.
pub const JOB: &str = "conformance";

/// The uid that the sinks of the suites must be made with.
pub const UID: &str = "out";

/// Makes places for the sink to write to.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// A place where nothing is yet: a new folder, topic or table. Each check asks for one.
    async fn place(&self) -> Box<dyn Place>;
}

/// One place that the sink writes to, for as long as the checks need it.
#[async_trait]
pub trait Place: Send + Sync {
    /// A new sink for this place, made with the uid [`UID`], that shares nothing in memory with those made before: what a process has
    /// after a restart.
    async fn sink(&self) -> Arc<dyn Sink>;

    /// The values that a reader sees now, with the sink's own isolation (a reader of a transactional sink sees what is committed). Those
    /// of one subtask stand in the order in which the sink promises them; the order between subtasks does not matter.
    async fn visible(&self) -> Vec<Vec<u8>>;
}

/// An obligation that a sink does not meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The obligation in a few words.
    pub obligation: &'static str,
    /// What was seen instead.
    pub seen: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.obligation, self.seen)
    }
}

/// What a check found: nothing, or what it saw instead of what it should have.
type Outcome = Result<(), String>;

/// Collects what checks found.
#[derive(Default)]
struct Report(Vec<Violation>);

impl Report {
    fn add(&mut self, obligation: &'static str, outcome: Outcome) {
        self.0.extend(outcome.err().map(|seen| Violation { obligation, seen }));
    }

    fn finish(self) -> Result<(), Vec<Violation>> {
        if self.0.is_empty() { Ok(()) } else { Err(self.0) }
    }
}

/// Checks what every sink that is at least at-least-once obliges itself to.
///
/// # Errors
/// The obligations that it does not meet.
pub async fn check_sink(fixture: &dyn Fixture) -> Result<(), Vec<Violation>> {
    let mut report = Report::default();
    report.add("what was flushed survives the loss of the process, in order", flush_is_durable(&*fixture.place().await).await);
    report.add("what is written after a flush comes after it", flushes_follow_each_other(&*fixture.place().await).await);
    report.add("a flush of nothing is fine", nothing_may_be_flushed(&*fixture.place().await).await);
    report.add("subtasks do not disturb each other", subtasks_are_separate(&*fixture.place().await).await);
    report.add("a later generation keeps what an earlier one flushed", generations_follow_each_other(&*fixture.place().await).await);
    report.finish()
}

async fn flush_is_durable(place: &dyn Place) -> Outcome {
    let mut writer = open(&*place.sink().await, 0, 1, 1).await?;
    write(&mut *writer, 0, 0..1000).await?;
    writer.flush().await.map_err(|error| format!("flush: {}", error.chain()))?;
    // A process that dies closes nothing.
    drop(writer);
    expect(place, &[(0, 0..1000)]).await
}

async fn flushes_follow_each_other(place: &dyn Place) -> Outcome {
    let mut writer = open(&*place.sink().await, 0, 1, 1).await?;
    for start in [0, 100, 200] {
        write(&mut *writer, 0, start..start + 100).await?;
        writer.flush().await.map_err(|error| format!("flush: {}", error.chain()))?;
        expect(place, &[(0, 0..start + 100)]).await?;
    }
    writer.close().await.map_err(|error| format!("close: {}", error.chain()))?;
    expect(place, &[(0, 0..300)]).await
}

async fn nothing_may_be_flushed(place: &dyn Place) -> Outcome {
    let mut writer = open(&*place.sink().await, 0, 1, 1).await?;
    writer.flush().await.map_err(|error| format!("flush: {}", error.chain()))?;
    writer.write(&Batch::default()).await.map_err(|error| format!("write of an empty batch: {}", error.chain()))?;
    writer.flush().await.map_err(|error| format!("flush: {}", error.chain()))?;
    writer.close().await.map_err(|error| format!("close: {}", error.chain()))?;
    expect(place, &[]).await
}

async fn subtasks_are_separate(place: &dyn Place) -> Outcome {
    let sink = place.sink().await;
    let (mut first, mut second) = (open(&*sink, 0, 2, 1).await?, open(&*sink, 1, 2, 1).await?);
    for start in [0, 50] {
        write(&mut *first, 0, start..start + 50).await?;
        write(&mut *second, 1, start..start + 50).await?;
    }
    first.flush().await.map_err(|error| format!("flush: {}", error.chain()))?;
    second.flush().await.map_err(|error| format!("flush: {}", error.chain()))?;
    expect(place, &[(0, 0..100), (1, 0..100)]).await
}

async fn generations_follow_each_other(place: &dyn Place) -> Outcome {
    for generation in 1..=3_u32 {
        let mut writer = open(&*place.sink().await, 0, 1, generation.into()).await?;
        write(&mut *writer, 0, (generation - 1) * 10..generation * 10).await?;
        writer.flush().await.map_err(|error| format!("flush: {}", error.chain()))?;
    }
    expect(place, &[(0, 0..30)]).await
}

async fn open(sink: &dyn Sink, subtask: usize, parallelism: usize, generation: u64) -> Result<Box<dyn SinkWriter>, String> {
    open_for(JOB, sink, subtask, parallelism, generation).await
}

async fn open_for(job: &str, sink: &dyn Sink, subtask: usize, parallelism: usize, generation: u64) -> Result<Box<dyn SinkWriter>, String> {
    let (job, uid, split_table) = (job.to_owned(), UID.to_owned(), SplitTable::default());
    let context = WriterContext { job, uid, subtask, parallelism, generation, split_table, metrics: Arc::default(), transactions: None };
    sink.open(context).await.map_err(|error| format!("open: {}", error.chain()))
}

/// Record `number` of a subtask; the order of the texts is that of the numbers.
fn value(subtask: usize, number: u32) -> String {
    format!("{subtask}:{number:07}")
}

async fn write(writer: &mut dyn SinkWriter, subtask: usize, numbers: Range<u32>) -> Outcome {
    let mut batch = Batch::default();
    for number in numbers.clone() {
        let value = value(subtask, number);
        let row = Row { key: Some(value.as_bytes()), value: Some(value.as_bytes()), timestamp: number.into(), origin: Origin::NONE };
        batch.push(row);
        if batch.len() == 64 || number + 1 == numbers.end {
            writer.write(&batch).await.map_err(|error| format!("write: {}", error.chain()))?;
            batch.clear();
        }
    }
    Ok(())
}

/// Whether exactly these records of these subtasks are visible, each subtask's in order.
async fn expect(place: &dyn Place, expected: &[(usize, Range<u32>)]) -> Outcome {
    let visible: Vec<String> = place.visible().await.into_iter().map(|value| String::from_utf8_lossy(&value).into_owned()).collect();
    let mut rest = visible.len();
    for (subtask, numbers) in expected {
        let prefix = format!("{subtask}:");
        let found: Vec<&String> = visible.iter().filter(|value| value.starts_with(&prefix)).collect();
        let wanted: Vec<String> = numbers.clone().map(|number| value(*subtask, number)).collect();
        if !found.iter().copied().eq(&wanted) {
            let first = found.iter().zip(&wanted).position(|(found, wanted)| *found != wanted).unwrap_or(found.len().min(wanted.len()));
            return Err(format!(
                "of subtask {subtask} {} records are visible instead of {}; the first difference is at {first}: {:?} instead of {:?}",
                found.len(),
                wanted.len(),
                found.get(first),
                wanted.get(first)
            ));
        }
        rest -= found.len();
    }
    if rest > 0 {
        return Err(format!("{rest} records are visible that should not be, among {:?}", visible.iter().take(3).collect::<Vec<_>>()));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
