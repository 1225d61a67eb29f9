//! Loops, waits and allocations without end: each has its sentence, and nothing else suffers.

use crate::support::*;
use std::sync::Arc;
use std::time::{Duration, Instant};
use waterwheel::config::Size;
use waterwheel::operator::{ErrorPolicy, Outputs};
use waterwheel::plugin::{Limits, OperatorContext};

#[tokio::test]
async fn a_loop_ends_at_the_deadline_and_is_blamed_the_third_time() {
    let context = OperatorContext { limits: brief_calls(), ..context() };
    let metrics = Arc::clone(&context.metrics);
    let mut operator = load("faulty").await.operator(context).await.unwrap();
    let started = Instant::now();
    let told = error_of(&mut *operator, &["a", "loop"]).await.to_string();
    assert!(told.contains("position 1") && told.contains("the call took longer than 250ms") && told.contains("call-timeout"), "{told}");
    // Once in the batch, three times alone.
    assert_eq!(metrics.counts().traps, 4);
    assert!(started.elapsed() >= Duration::from_millis(4 * 250), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_loop_does_not_keep_other_tasks_from_their_turns() {
    let context = OperatorContext { limits: brief_calls(), policy: ErrorPolicy::Skip, ..context() };
    let mut operator = load("faulty").await.operator(context).await.unwrap();
    // One thread for both.
    let turns = tokio::spawn(async {
        let mut turns = 0;
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            turns += 1;
            if turns == 15 {
                return Instant::now();
            }
        }
    });
    assert_eq!(process(&mut *operator, &["loop"]).await, [""; 0]);
    let done = Instant::now();
    assert!(turns.await.unwrap() < done, "other tasks had their turns while the plugin looped");
}

#[tokio::test]
async fn memory_without_end_ends_at_the_limit() {
    let limits = Limits { memory: Size(16 << 20), ..Limits::default() };
    let context = OperatorContext { limits, policy: ErrorPolicy::Skip, ..context() };
    let metrics = Arc::clone(&context.metrics);
    let mut operator = load("faulty").await.operator(context.clone()).await.unwrap();
    assert_eq!(process(&mut *operator, &["a", "allocate", "b"]).await, ["a", "b"]);
    assert!(metrics.counts().memory_bytes <= 16 << 20);
    let strict = OperatorContext { policy: ErrorPolicy::Fail, ..context };
    let mut operator = load("faulty").await.operator(strict).await.unwrap();
    let told = error_of(&mut *operator, &["allocate"]).await.to_string();
    assert!(
        told.contains("the plugin asked for memory up to ") && told.contains("may use 16 MiB (the operator's `limits: memory`)"),
        "{told}"
    );
}

#[tokio::test]
async fn too_little_memory_to_start_is_told() {
    let limits = Limits { memory: Size(64 << 10), ..Limits::default() };
    let error = load("faulty").await.operator(OperatorContext { limits, ..context() }).await.err().unwrap();
    assert!(error.to_string().contains("may use 64 KiB"), "{error}");
}

#[tokio::test]
async fn a_call_that_is_done_in_time_is_not_disturbed_by_ticks() {
    let mut operator = load("passthrough").await.operator(OperatorContext { limits: brief_calls(), ..context() }).await.unwrap();
    let started = Instant::now();
    let mut outputs = Outputs::default();
    while started.elapsed() < Duration::from_millis(300) {
        operator.process(0, batch(&["a"]), TIMES, &mut outputs).await.unwrap();
        assert_eq!(drained(&mut outputs, 0), ["a"]);
    }
}
