//! How records are dealt to parallel subtasks.

use super::numbers::KEYS;
use super::store::Record;
use super::{Lab, Numbers};
use std::collections::{BTreeMap, BTreeSet};
use waterwheel::host::JobEnd;
use waterwheel::pipeline::JobBuilder;
use waterwheel::pipeline::spec::{FixedDelay, InputSpec, KeyBy, RestartType, SinkSpec, SourceSpec};
use waterwheel::sink::Guarantee;

/// A job whose sinks read the sources `in` (one subtask) and `other` (two), with failures on the way.
fn job(lab: &Lab, sinks: impl IntoIterator<Item = SinkSpec>) -> JobBuilder {
    let sources = [SourceSpec::new("in", "numbers"), SourceSpec::new("other", "numbers").parallelism(2)];
    let job = sources.into_iter().fold(JobBuilder::new("lab"), JobBuilder::source);
    let job = sinks.into_iter().fold(job, |job, sink| job.sink(sink.guarantee(Guarantee::ExactlyOnce).parallelism(3)));
    job.checkpoint_every(std::time::Duration::from_millis(20), lab.checkpoints()).execution(|execution| {
        execution.restart_strategy.kind = Some(RestartType::FixedDelay);
        execution.restart_strategy.fixed_delay = Some(FixedDelay { attempts: 10, delay: waterwheel::config::Span::from_millis(5) });
    })
}

/// Runs the job, and gives what each sink shows.
async fn shown(lab: &Lab, job: JobBuilder) -> BTreeMap<String, Vec<Record>> {
    let (end, status) = lab.run(&job.build()).await;
    assert!(matches!(end, JobEnd::Finished), "{end:?}");
    // The splits 0 of both sources may fail at once.
    assert!((1..=2).contains(&status.restarts), "{status:?}");
    let mut shown: BTreeMap<String, Vec<Record>> = BTreeMap::new();
    lab.store.visible().into_iter().for_each(|record| shown.entry(record.sink.clone()).or_default().push(record));
    shown
}

fn sorted_values<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<String> {
    let mut values: Vec<String> = records.into_iter().map(|record| record.value.clone()).collect();
    values.sort();
    values
}

/// All values, each as often as there are sources that bring it.
fn all(lab: &Lab, times: usize) -> Vec<String> {
    let mut all: Vec<String> = lab.numbers.all_values().into_iter().flat_map(|value| std::iter::repeat_n(value, times)).collect();
    all.sort();
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_a_key_meet_in_one_subtask_and_stay_in_order() {
    let lab = Lab::new(Numbers::new(3, 200).pause(1).failing(2));
    let keyed = |from: &str| InputSpec::from(from).keyed_by(KeyBy::Key);
    let sink = SinkSpec::new("keyed", "store").input(keyed("in")).input(keyed("other"));
    let shown = shown(&lab, job(&lab, [sink])).await;
    let shown = &shown["keyed"];
    assert_eq!(sorted_values(shown), all(&lab, 2));
    let mut subtasks: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for record in shown {
        subtasks.entry(&record.key).or_default().insert(record.subtask);
    }
    assert_eq!(subtasks.len() as u64, KEYS);
    assert!(subtasks.values().all(|of_key| of_key.len() == 1), "{subtasks:?}");
    assert!(subtasks.values().flatten().collect::<BTreeSet<_>>().len() > 1, "all keys met in one subtask: {subtasks:?}");
    expect_order(shown);
}

/// Two sources bring the same records, so each number of a split comes twice; the first times come in order, and so do the second times.
fn expect_order(shown: &[Record]) {
    let mut numbers: BTreeMap<(&str, &str), Vec<u64>> = BTreeMap::new();
    for record in shown {
        let (split, number) = record.value.split_once(':').unwrap();
        numbers.entry((&record.key, split)).or_default().push(number.parse().unwrap());
    }
    for (place, numbers) in numbers {
        let mut seen = BTreeSet::new();
        let (first, second): (Vec<u64>, Vec<u64>) = numbers.iter().copied().partition(|number| seen.insert(*number));
        assert!(first.is_sorted() && second.is_sorted(), "{place:?}: {numbers:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_subtask_gets_what_is_broadcast_and_rebalance_gives_each_its_part() {
    let lab = Lab::new(Numbers::new(2, 300).pause(1).failing(2));
    let broadcast = InputSpec { broadcast: true, ..InputSpec::from("in") };
    let sinks = [SinkSpec::new("whole", "store").input(broadcast), SinkSpec::new("parts", "store").input("in").input("other")];
    let shown = shown(&lab, job(&lab, sinks)).await;
    for subtask in 0..3 {
        let of = |sink: &str| shown[sink].iter().filter(|record| record.subtask == subtask).collect::<Vec<_>>();
        assert_eq!(sorted_values(of("whole")), all(&lab, 1), "subtask {subtask}");
        let part = of("parts").len();
        assert!((200..=600).contains(&part), "subtask {subtask} has {part} of 1200 records");
    }
    assert_eq!(sorted_values(&shown["parts"]), all(&lab, 2));
}
