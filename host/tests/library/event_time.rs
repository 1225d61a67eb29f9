//! Event time in a whole job: watermarks of several splits, idle ones, late records, and what a restart remembers. The operator is a keyed
//! plugin that counts records in windows by event-time timers.

use super::store::Store;
use super::timed::Timed;
use super::{Lab, Numbers, PATIENCE, until};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use waterwheel::Host;
use waterwheel::config::Span;
use waterwheel::host::{JobControl, JobEnd, JobHandle, SubmitOptions};
use waterwheel::pipeline::JobBuilder;
use waterwheel::pipeline::spec::{
    EventTimeSpec, FixedDelay, InputSpec, KeyBy, LateRecords, OperatorSpec, RestartType, SinkSpec, SourceSpec,
};
use waterwheel::sink::Guarantee;
use waterwheel::telemetry::TaskReading;

/// The length of a window.
const SIZE: i64 = 1_000;
/// How much later than a greater one a timestamp may come.
const BOUND: i64 = 200;
/// Long enough for a machine that is busy to bring a record of a split that has some.
const IDLE: Duration = Duration::from_millis(1_500);

/// By key and start of the window, the counts that were emitted.
type Windows = BTreeMap<(String, i64), Vec<u64>>;

struct TimeLab {
    timed: Timed,
    store: Store,
    host: Host,
    folder: TempDir,
}

impl TimeLab {
    fn new(splits: Vec<Vec<(String, i64)>>) -> Self {
        let (timed, store) = (Timed::new(splits), Store::default());
        let host = Host::builder().source(Arc::new(timed.clone())).sink(Arc::new(store.clone())).build().unwrap();
        Self { timed, store, host, folder: TempDir::new().unwrap() }
    }

    fn event_time() -> EventTimeSpec {
        EventTimeSpec::default().out_of_orderness(Duration::from_millis(BOUND.unsigned_abs())).interval(Duration::from_millis(5))
    }

    fn job(&self, event_time: EventTimeSpec, late_records: LateRecords, readers: u16, counters: u16) -> JobBuilder {
        let plugin = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("plugins/tumbling-count.wasm");
        assert!(plugin.exists(), "{} is missing: run plugins/build.sh", plugin.display());
        let count = OperatorSpec::new("count", plugin.to_str().unwrap()).input(InputSpec::from("in").keyed_by(KeyBy::Key));
        let count = count.config(json!({"size-ms": SIZE})).late_records(late_records).parallelism(counters);
        let job = JobBuilder::new("time")
            .source(SourceSpec::new("in", "timed").event_time(event_time).parallelism(readers))
            .operator(count)
            .sink(SinkSpec::new("out", "store").input("count").guarantee(Guarantee::ExactlyOnce));
        job.checkpoint_every(Duration::from_millis(20), self.folder.path().join("checkpoints").display().to_string()).execution(
            |execution| {
                execution.restart_strategy.kind = Some(RestartType::FixedDelay);
                execution.restart_strategy.fixed_delay = Some(FixedDelay { attempts: 10, delay: Span::from_millis(5) });
            },
        )
    }

    async fn submit(&self, job: JobBuilder) -> JobHandle {
        let job = self.host.check_job(&job.build(), ".").unwrap_or_else(|faults| panic!("{faults}"));
        self.host.submit(&job, SubmitOptions::default()).await.unwrap()
    }

    async fn finish(&self, handle: JobHandle) {
        self.timed.end();
        let end = tokio::time::timeout(PATIENCE, handle.wait()).await.unwrap();
        assert!(matches!(end, JobEnd::Finished), "{end:?}");
    }

    /// What is visible in the sink `out`.
    fn windows(&self) -> Windows {
        let mut windows = Windows::new();
        for record in self.store.visible().into_iter().filter(|record| record.sink == "out") {
            let window: Value = serde_json::from_str(&record.value).unwrap();
            let key = (window["key"].as_str().unwrap().to_owned(), window["start"].as_i64().unwrap());
            windows.entry(key).or_default().push(window["count"].as_u64().unwrap());
        }
        windows
    }

    /// What has to be emitted when event time has reached `watermark`, computed from the records alone; none of them is late.
    fn expected(&self, watermark: i64) -> Windows {
        let mut windows = Windows::new();
        for (key, timestamp) in self.timed.records() {
            let start = timestamp.div_euclid(SIZE) * SIZE;
            if start + SIZE - 1 <= watermark {
                windows.entry((key.clone(), start)).or_insert_with(|| vec![0])[0] += 1;
            }
        }
        windows
    }

    fn late(&self) -> u64 {
        readings(&self.host, "count").iter().map(|reading| reading.late_records).sum()
    }

    /// Waits until event time has come to this watermark in every subtask of the operator.
    async fn watermark(&self, counters: usize, watermark: i64) {
        let has_come = |reading: &TaskReading| reading.watermark.is_some_and(|reached| reached >= watermark);
        let all = || readings(&self.host, "count").iter().filter(|reading| has_come(reading)).count() == counters;
        wait_for(&format!("the watermark {watermark}"), all).await;
    }
}

/// The metrics of all subtasks of a node.
fn readings(host: &Host, uid: &str) -> Vec<TaskReading> {
    let tasks = host.metrics().jobs().into_iter().flat_map(|(_, job)| job.tasks());
    tasks.filter(|(of, _, _)| of == uid).map(|(_, _, task)| task.reading()).collect()
}

async fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "{what} did not come");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Records of ten keys, out of order by less than the bound.
fn shuffled(random: &mut ChaCha8Rng, first: i64, records: i64) -> Vec<(String, i64)> {
    let mut times: Vec<i64> = (0..records).map(|number| first + number * 10).collect();
    let together = usize::try_from(BOUND / 10).unwrap();
    times.chunks_mut(together).for_each(|chunk| chunk.shuffle(random));
    times.into_iter().map(|time| (format!("key-{}", random.random_range(0..10)), time)).collect()
}

fn one(key: &str, timestamps: &[i64]) -> Vec<(String, i64)> {
    timestamps.iter().map(|timestamp| (key.to_owned(), *timestamp)).collect()
}

async fn restarted(lab: &TimeLab, control: &mut JobControl) {
    let before = control.status().restarts;
    lab.timed.fail();
    until(control, "a restart", |status| status.restarts > before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_of_shuffled_splits_are_exact_and_do_not_wait_for_idle_ones() {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    // Split 3 brings nothing, split 4 stops early; five subtasks read one split each, and the sixth has none.
    let splits = vec![
        shuffled(&mut random, 0, 1_000),
        shuffled(&mut random, -3_333, 1_000),
        shuffled(&mut random, 2_000, 900),
        Vec::new(),
        shuffled(&mut random, 0, 50),
    ];
    let lab = TimeLab::new(splits);
    let job = lab.job(TimeLab::event_time().idle_timeout(IDLE), LateRecords::Process, 6, 3);
    let handle = lab.submit(job).await;
    let mut control = handle.control();
    lab.timed.allow_all();
    // When all are idle event time is that of the one that came furthest.
    let greatest = lab.timed.records().map(|(_, timestamp)| *timestamp).max().unwrap();
    let expected = lab.expected(greatest - BOUND - 1);
    assert!(expected.len() > 100);
    wait_for("every window before the end", || lab.windows().len() >= expected.len()).await;
    assert_eq!(lab.windows(), expected);
    restarted(&lab, &mut control).await;
    lab.finish(handle).await;
    assert_eq!(lab.windows(), lab.expected(i64::MAX), "each window once, with the right count");
    assert_eq!(lab.late(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_split_holds_event_time_back_without_an_idle_timeout() {
    let lab = TimeLab::new(vec![one("a", &[100, 5_000]), one("a", &[50, 6_000])]);
    let handle = lab.submit(lab.job(TimeLab::event_time(), LateRecords::Process, 2, 1)).await;
    lab.timed.allow(0, 2);
    lab.timed.allow(1, 1);
    lab.watermark(1, 50 - BOUND - 1).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(lab.windows(), Windows::new());
    lab.finish(handle).await;
    assert_eq!(lab.windows(), lab.expected(i64::MAX));
}

#[tokio::test(flavor = "multi_thread")]
async fn late_records_go_where_the_job_says() {
    for policy in [LateRecords::Process, LateRecords::Drop, LateRecords::SideOutput] {
        let lab = TimeLab::new(vec![one("a", &[100, 5_000, 200, 4_799, 4_800])]);
        let mut job = lab.job(TimeLab::event_time(), policy, 1, 2);
        if policy == LateRecords::SideOutput {
            job = job.sink(SinkSpec::new("late", "store").input("count.late").guarantee(Guarantee::ExactlyOnce));
        }
        let handle = lab.submit(job).await;
        lab.timed.allow(0, 2);
        lab.watermark(2, 4_799).await;
        lab.finish(handle).await;
        assert_eq!(lab.late(), 2, "{policy:?}: one at the watermark is late, one behind it is not");
        let key = |start| ("a".to_owned(), start);
        let expected = match policy {
            // The window of 100 was emitted already: it begins anew.
            LateRecords::Process => Windows::from([(key(0), vec![1, 1]), (key(4_000), vec![2]), (key(5_000), vec![1])]),
            _ => Windows::from([(key(0), vec![1]), (key(4_000), vec![1]), (key(5_000), vec![1])]),
        };
        assert_eq!(lab.windows(), expected, "{policy:?}");
        let aside = lab.store.visible().into_iter().filter(|record| record.sink == "late").count();
        assert_eq!(aside, if policy == LateRecords::SideOutput { 2 } else { 0 });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_late_before_a_failure_is_late_after_it() {
    // Split 0 has brought event time to 8,799 while split 1 was idle. After the restart split 1 is active again, at 100.
    let lab = TimeLab::new(vec![one("a", &[9_000]), one("a", &[100, 150])]);
    let event_time = TimeLab::event_time().idle_timeout(Duration::from_millis(200));
    let handle = lab.submit(lab.job(event_time, LateRecords::Drop, 2, 1)).await;
    let mut control = handle.control();
    lab.timed.allow(1, 1);
    wait_for("the first record", || readings(&lab.host, "in").iter().any(|reading| reading.records_out == 1)).await;
    lab.timed.allow(0, 1);
    lab.watermark(1, 8_799).await;
    control.checkpoint().await.unwrap();
    restarted(&lab, &mut control).await;
    lab.finish(handle).await;
    assert_eq!(lab.late(), 1);
    assert_eq!(lab.windows(), Windows::from([(("a".to_owned(), 0), vec![1]), (("a".to_owned(), 9_000), vec![1])]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_without_event_time_makes_no_watermark_before_its_end() {
    let lab = Lab::new(Numbers::new(1, 300).pause(1));
    let (end, _) = lab.run(&lab.job().build()).await;
    assert!(matches!(end, JobEnd::Finished), "{end:?}");
    assert!(["in", "out"].into_iter().flat_map(|uid| readings(&lab.host, uid)).all(|reading| reading.watermark.is_none()));
}
