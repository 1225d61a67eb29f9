//! The suite for sinks that are exactly-once by two-phase commit.

use super::{Fixture, JOB, Outcome, Place, Report, Violation, expect, open, open_for, write};
use crate::checkpoint::protocol::Attempt;
use crate::sink::{CheckpointBarrier, Sink, SinkWriter, TwoPhaseSink};
use serde_json::Value;
use std::ops::Range;

/// Checks what every exactly-once sink obliges itself to.
///
/// # Errors
/// The obligations that it does not meet.
pub async fn check_two_phase(fixture: &dyn Fixture) -> Result<(), Vec<Violation>> {
    let mut report = Report::default();
    report.add("nothing is visible before commit", nothing_is_visible_before_commit(&*fixture.place().await).await);
    report.add("prepare of nothing is an empty list", nothing_may_be_prepared(&*fixture.place().await).await);
    report.add("what is written after prepare is separate from it", later_records_are_separate(&*fixture.place().await).await);
    report.add("prepared work survives the process", prepared_work_survives(&*fixture.place().await).await);
    report.add("commit is idempotent", commit_is_idempotent(&*fixture.place().await).await);
    report.add("commit of missing work fails", commit_of_missing_work_fails(&*fixture.place().await).await);
    report.add("work of several checkpoints can be committed together", work_is_carried_over(&*fixture.place().await).await);
    report.add("abort undoes prepared work and is idempotent", abort_undoes(&*fixture.place().await).await);
    report.add("clean-up deletes what older runs left", clean_up_deletes_leftovers(&*fixture.place().await).await);
    report.add("clean-up keeps what it is told to keep", clean_up_keeps(&*fixture.place().await).await);
    report.add("clean-up spares its own generation and later ones", clean_up_spares_own_generation(&*fixture.place().await).await);
    report.add("clean-up spares other jobs", clean_up_spares_other_jobs(&*fixture.place().await).await);
    report.add("clean-up spares what is visible", clean_up_spares_the_visible(&*fixture.place().await).await);
    report.add("subtasks do not disturb each other", subtasks_are_separate(&*fixture.place().await).await);
    report.finish()
}

/// The two-phase face of a sink.
fn face(sink: &dyn Sink) -> Result<&dyn TwoPhaseSink, String> {
    sink.as_two_phase().ok_or_else(|| "`as_two_phase` gives nothing".to_owned())
}

async fn prepare(writer: &mut dyn SinkWriter, checkpoint: u64) -> Result<Vec<Value>, String> {
    writer
        .prepare(&CheckpointBarrier { checkpoint, attempt: Attempt::random(), last: false })
        .await
        .map_err(|error| format!("prepare: {}", error.chain()))
}

/// Commits as a new process does.
async fn commit(place: &dyn Place, prepared: &[Value]) -> Outcome {
    let sink = place.sink().await;
    face(&*sink)?.commit(prepared).await.map_err(|error| format!("commit: {}", error.chain()))
}

async fn clean_up(place: &dyn Place, below: u64, keep: &[Value]) -> Outcome {
    let sink = place.sink().await;
    face(&*sink)?.clean_up(JOB, below, keep).await.map_err(|error| format!("clean_up: {}", error.chain()))
}

/// What the run of a generation prepared before its process was lost.
async fn prepared_by(place: &dyn Place, generation: u64, numbers: Range<u32>) -> Result<Vec<Value>, String> {
    let sink = place.sink().await;
    let mut writer = open(&*sink, 0, 1, generation).await?;
    write(&mut *writer, 0, numbers).await?;
    let prepared = prepare(&mut *writer, 1).await?;
    if prepared.is_empty() {
        return Err("records were written, and prepare gives an empty list".into());
    }
    Ok(prepared)
}

/// Fails when a commit says that all is well.
async fn commit_must_fail(place: &dyn Place, prepared: &[Value], why: &str) -> Outcome {
    match commit(place, prepared).await {
        Ok(()) => Err(format!("commit succeeded, although {why}")),
        Err(_) => Ok(()),
    }
}

async fn nothing_is_visible_before_commit(place: &dyn Place) -> Outcome {
    let sink = place.sink().await;
    let mut writer = open(&*sink, 0, 1, 1).await?;
    write(&mut *writer, 0, 0..20_000).await?;
    expect(place, &[]).await.map_err(|seen| format!("after write: {seen}"))?;
    let prepared = prepare(&mut *writer, 1).await?;
    expect(place, &[]).await.map_err(|seen| format!("after prepare: {seen}"))?;
    commit(place, &prepared).await?;
    expect(place, &[(0, 0..20_000)]).await.map_err(|seen| format!("after commit: {seen}"))?;
    writer.close().await.map_err(|error| format!("close: {}", error.chain()))?;
    expect(place, &[(0, 0..20_000)]).await.map_err(|seen| format!("after close: {seen}"))
}

async fn nothing_may_be_prepared(place: &dyn Place) -> Outcome {
    let sink = place.sink().await;
    let mut writer = open(&*sink, 0, 1, 1).await?;
    for checkpoint in 1..=2 {
        let prepared = prepare(&mut *writer, checkpoint).await?;
        if !prepared.is_empty() {
            return Err(format!("{} entries", prepared.len()));
        }
    }
    commit(place, &[]).await?;
    expect(place, &[]).await
}

async fn later_records_are_separate(place: &dyn Place) -> Outcome {
    let sink = place.sink().await;
    let mut writer = open(&*sink, 0, 1, 1).await?;
    write(&mut *writer, 0, 0..100).await?;
    let first = prepare(&mut *writer, 1).await?;
    write(&mut *writer, 0, 100..200).await?;
    commit(place, &first).await?;
    expect(place, &[(0, 0..100)]).await?;
    let second = prepare(&mut *writer, 2).await?;
    expect(place, &[(0, 0..100)]).await?;
    commit(place, &second).await?;
    expect(place, &[(0, 0..200)]).await
}

async fn prepared_work_survives(place: &dyn Place) -> Outcome {
    let prepared = prepared_by(place, 1, 0..100).await?;
    commit(place, &prepared).await?;
    expect(place, &[(0, 0..100)]).await
}

async fn commit_is_idempotent(place: &dyn Place) -> Outcome {
    let prepared = prepared_by(place, 1, 0..100).await?;
    let sink = place.sink().await;
    for _ in 0..2 {
        face(&*sink)?.commit(&prepared).await.map_err(|error| format!("commit by the same sink: {}", error.chain()))?;
    }
    commit(place, &prepared).await.map_err(|seen| format!("in a new process: {seen}"))?;
    expect(place, &[(0, 0..100)]).await
}

async fn commit_of_missing_work_fails(place: &dyn Place) -> Outcome {
    let prepared = prepared_by(place, 1, 0..100).await?;
    clean_up(place, 2, &[]).await?;
    commit_must_fail(place, &prepared, "a clean-up had deleted the prepared work").await?;
    expect(place, &[]).await
}

async fn work_is_carried_over(place: &dyn Place) -> Outcome {
    let sink = place.sink().await;
    let mut writer = open(&*sink, 0, 1, 1).await?;
    let mut all = Vec::new();
    for checkpoint in 1..=3_u32 {
        write(&mut *writer, 0, (checkpoint - 1) * 10..checkpoint * 10).await?;
        all.extend(prepare(&mut *writer, checkpoint.into()).await?);
    }
    expect(place, &[]).await?;
    commit(place, &all).await?;
    expect(place, &[(0, 0..30)]).await
}

async fn abort_undoes(place: &dyn Place) -> Outcome {
    let prepared = prepared_by(place, 1, 0..100).await?;
    for _ in 0..2 {
        let sink = place.sink().await;
        face(&*sink)?.abort(&prepared).await.map_err(|error| format!("abort: {}", error.chain()))?;
    }
    commit_must_fail(place, &prepared, "the work was aborted").await?;
    expect(place, &[]).await
}

async fn clean_up_deletes_leftovers(place: &dyn Place) -> Outcome {
    let prepared = prepared_by(place, 1, 0..100).await?;
    let mut unprepared = open(&*place.sink().await, 0, 1, 2).await?;
    write(&mut *unprepared, 0, 100..200).await?;
    drop(unprepared);
    for _ in 0..2 {
        clean_up(place, 3, &[]).await?;
    }
    commit_must_fail(place, &prepared, "a clean-up had deleted the prepared work").await?;
    let next = prepared_by(place, 3, 0..50).await?;
    commit(place, &next).await?;
    expect(place, &[(0, 0..50)]).await
}

async fn clean_up_keeps(place: &dyn Place) -> Outcome {
    let kept = prepared_by(place, 1, 0..100).await?;
    let deleted = prepared_by(place, 1, 100..200).await?;
    clean_up(place, 2, &kept).await?;
    commit_must_fail(place, &deleted, "it was not to be kept").await?;
    commit(place, &kept).await?;
    expect(place, &[(0, 0..100)]).await
}

async fn clean_up_spares_own_generation(place: &dyn Place) -> Outcome {
    let own = prepared_by(place, 2, 0..100).await?;
    let later = prepared_by(place, 3, 100..200).await?;
    clean_up(place, 2, &[]).await?;
    commit(place, &own).await?;
    commit(place, &later).await?;
    expect(place, &[(0, 0..200)]).await
}

async fn clean_up_spares_other_jobs(place: &dyn Place) -> Outcome {
    let sink = place.sink().await;
    let mut prepared = Vec::new();
    // Names that a careless comparison would take for the job's own.
    for (subtask, job) in ["conformance.2", "conformance-2", "conform", "other"].into_iter().enumerate() {
        let mut writer = open_for(job, &*sink, subtask, 4, 1).await?;
        write(&mut *writer, subtask, 0..10).await?;
        prepared.extend(prepare(&mut *writer, 1).await?);
    }
    clean_up(place, 9, &[]).await?;
    commit(place, &prepared).await?;
    expect(place, &[(0, 0..10), (1, 0..10), (2, 0..10), (3, 0..10)]).await
}

async fn clean_up_spares_the_visible(place: &dyn Place) -> Outcome {
    let prepared = prepared_by(place, 1, 0..100).await?;
    commit(place, &prepared).await?;
    clean_up(place, 2, &[]).await?;
    expect(place, &[(0, 0..100)]).await?;
    commit(place, &prepared).await.map_err(|seen| format!("after a clean-up, of what is visible: {seen}"))
}

async fn subtasks_are_separate(place: &dyn Place) -> Outcome {
    let sink = place.sink().await;
    let (mut first, mut second) = (open(&*sink, 0, 2, 1).await?, open(&*sink, 1, 2, 1).await?);
    write(&mut *first, 0, 0..50).await?;
    write(&mut *second, 1, 0..70).await?;
    let of_first = prepare(&mut *first, 1).await?;
    let of_second = prepare(&mut *second, 1).await?;
    commit(place, &of_second).await?;
    expect(place, &[(1, 0..70)]).await?;
    commit(place, &of_first).await?;
    expect(place, &[(0, 0..50), (1, 0..70)]).await
}
