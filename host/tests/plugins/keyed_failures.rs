//! A keyed operator that fails again and again: the record, or the timer, is found over restarts.

use crate::support::*;
use bytes::Bytes;
use waterwheel::Error;
use waterwheel::operator::{DEAD_LETTER_ROUTE, ErrorPolicy, Isolation, Operator, Outputs, Times};
use waterwheel::plugin::{OperatorContext, PluginCounts};
use waterwheel::record::Batch;
use waterwheel::state::{StateReader, StateWriter};

/// What a supervisor does, in short: starts the operator again from the beginning until it gets through.
struct Job {
    context: OperatorContext,
    batches: Vec<Batch>,
    /// Cuts the batches anew in every attempt.
    recut: bool,
}

struct Done {
    output: Vec<String>,
    letters: Vec<String>,
    attempts: u32,
    counts: PluginCounts,
    operator: Box<dyn Operator>,
}

impl Job {
    fn new(policy: ErrorPolicy, batches: Vec<Batch>) -> Self {
        let context = OperatorContext { policy, config: serde_json::Value::Null, ..context() };
        Self { context, batches, recut: false }
    }

    async fn run(&mut self) -> Result<Done, Error> {
        for attempt in 0..20 {
            let context = OperatorContext { attempt, metrics: Default::default(), ..self.context.clone() };
            let metrics = std::sync::Arc::clone(&context.metrics);
            let mut operator = load("faulty-keyed").await.operator(context).await?;
            let before = self.context.isolation.steps();
            match self.attempt(&mut *operator, attempt).await {
                Ok((output, letters)) => {
                    return Ok(Done { output, letters, attempts: attempt + 1, counts: metrics.counts(), operator });
                }
                Err(error) if error.retry_helps() => {
                    assert!(attempt == 0 || self.context.isolation.steps() > before, "each restart but the first is a step: {error}");
                }
                Err(error) => return Err(error),
            }
        }
        panic!("it never gets through");
    }

    async fn attempt(&self, operator: &mut dyn Operator, attempt: u32) -> Result<(Vec<String>, Vec<String>), Error> {
        let mut outputs = Outputs::default();
        for batch in &self.batches {
            let cut = if self.recut { 1 + attempt as usize % batch.len() } else { batch.len() };
            for start in (0..batch.len()).step_by(cut) {
                operator.process(0, batch.slice(start..batch.len().min(start + cut)), TIMES, &mut outputs).await?;
            }
        }
        operator.advance(Times { watermark: 1000, processing_time: 1000 }, &mut outputs).await?;
        let all: Vec<_> = outputs.drain().collect();
        let of = |wanted: u8| all.iter().filter(|(route, _)| *route == wanted).flat_map(|(_, batch)| texts(batch)).collect();
        Ok((of(0), of(DEAD_LETTER_ROUTE)))
    }
}

fn trouble(verb: &str) -> Vec<Batch> {
    vec![
        keyed_batch(&[("a", "x"), ("b", "x")], 0),
        keyed_batch(&[("a", "x"), ("b", verb), ("a", "x"), ("b", "x")], 2),
        keyed_batch(&[("b", "x")], 6),
    ]
}

const WITHOUT_IT: [&str; 6] = ["a 1", "b 1", "a 2", "a 3", "b 2", "b 3"];

#[tokio::test]
async fn the_record_that_traps_is_skipped() {
    for verb in ["panic:boom", "fail-batch:all", "exit"] {
        let mut job = Job::new(ErrorPolicy::Skip, trouble(verb));
        let done = job.run().await.unwrap();
        assert_eq!(done.output, WITHOUT_IT, "{verb}");
        // Twice as a batch, once alone, then without it.
        assert_eq!((done.attempts, job.context.isolation.steps(), done.counts.skipped), (4, 2, 1), "{verb}");
    }
}

#[tokio::test]
async fn batches_that_are_cut_anew_do_not_hide_it() {
    let mut job = Job::new(ErrorPolicy::Skip, trouble("panic:boom"));
    job.recut = true;
    assert_eq!(job.run().await.unwrap().output, WITHOUT_IT);
}

#[tokio::test]
async fn two_bad_records_of_a_batch_are_both_found() {
    let batches = vec![keyed_batch(&[("a", "panic:1"), ("a", "x"), ("a", "panic:2"), ("b", "x")], 0)];
    let done = Job::new(ErrorPolicy::Skip, batches).run().await.unwrap();
    assert_eq!((done.output, done.counts.skipped), (vec!["a 1".into(), "b 1".into()], 2));
}

#[tokio::test]
async fn it_goes_to_the_dead_letters() {
    let done = Job::new(ErrorPolicy::DeadLetter, trouble("panic:boom")).run().await.unwrap();
    assert_eq!((done.output, done.letters), (WITHOUT_IT.map(str::to_owned).to_vec(), vec!["panic:boom".to_owned()]));
}

#[tokio::test]
async fn the_policy_fail_names_it() {
    let error = Job::new(ErrorPolicy::Fail, trouble("panic:boom")).run().await.err().unwrap().to_string();
    assert!(error.contains("source orders, split in.json, position 3") && error.contains("boom"), "{error}");
}

#[tokio::test]
async fn a_deadline_is_blamed_on_it_the_third_time_alone() {
    let mut job = Job::new(ErrorPolicy::Skip, trouble("loop"));
    job.context.limits = brief_calls();
    let done = job.run().await.unwrap();
    assert_eq!((done.output, done.attempts), (WITHOUT_IT.map(str::to_owned).to_vec(), 6));
}

#[tokio::test]
async fn a_timer_that_traps_is_found_too() {
    let set = keyed_batch(&[("a", "timer-value:500:panic:late"), ("b", "processing-timer:500"), ("c", "processing-timer:400")], 0);
    let done = Job::new(ErrorPolicy::Skip, vec![set]).run().await.unwrap();
    assert_eq!(done.output, ["a 1", "b 1", "c 1", "c timer processing 400 1", "b timer processing 500 1"]);
    assert_eq!((done.attempts, done.counts.skipped), (4, 1));
}

#[tokio::test]
async fn another_process_skips_the_same_record_without_failing_first() {
    let mut job = Job::new(ErrorPolicy::Skip, trouble("panic:boom"));
    let mut done = job.run().await.unwrap();
    let mut writer = StateWriter::default();
    done.operator.snapshot(&mut writer).await.unwrap();
    let file = writer.finish();
    let mut all = StateWriter::default();
    done.operator.snapshot_all(&mut all).await.unwrap();
    for file in [file, all.finish()] {
        replays(job.context.clone(), file).await;
    }
}

/// A new process that meets the record again after the restore, as at-least-once may.
async fn replays(context: OperatorContext, file: Bytes) {
    let context = OperatorContext { isolation: Isolation::default(), metrics: Default::default(), restored: true, ..context };
    let metrics = std::sync::Arc::clone(&context.metrics);
    let mut operator = load("faulty-keyed").await.operator(context).await.unwrap();
    operator.restore(&mut StateReader::new(vec![vec![("base".into(), file)]], 0..128, 128)).await.unwrap();
    let mut outputs = Outputs::default();
    operator.process(0, trouble("panic:boom")[1].clone(), TIMES, &mut outputs).await.unwrap();
    assert_eq!(drained(&mut outputs, 0), ["a 4", "a 5", "b 4"]);
    assert_eq!((metrics.counts().skipped, metrics.counts().traps), (1, 0));
    let other = keyed_batch(&[("b", "panic:other")], 3);
    let error = operator.process(0, other, TIMES, &mut Outputs::default()).await.unwrap_err();
    assert!(error.retry_helps(), "another value at this place is another record: {error}");
}
