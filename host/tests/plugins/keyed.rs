//! The keyed world: state and timers, in and out of state files.

use crate::support::*;
use bytes::Bytes;
use waterwheel::operator::{Operator, Outputs, Times};
use waterwheel::plugin::{OperatorContext, World};
use waterwheel::record::{KeyGroups, key_group};
use waterwheel::state::{Entries, EntryRef, StateReader, StateWriter, read_chunks};

async fn operator() -> Box<dyn Operator> {
    load("faulty-keyed").await.operator(with(serde_json::Value::Null)).await.unwrap()
}

fn with(config: serde_json::Value) -> OperatorContext {
    OperatorContext { config, ..context() }
}

async fn restored(files: &[Bytes], groups: std::ops::Range<u16>) -> Box<dyn Operator> {
    let context = OperatorContext { restored: true, ..with(serde_json::Value::Null) };
    let mut operator = load("faulty-keyed").await.operator(context).await.unwrap();
    operator.restore(&mut reader(files, groups)).await.unwrap();
    operator
}

fn reader(files: &[Bytes], groups: std::ops::Range<u16>) -> StateReader {
    let chain = files.iter().enumerate().map(|(i, file)| (format!("file-{i}"), file.clone())).collect();
    StateReader::new(vec![chain], groups, 128)
}

async fn feed(operator: &mut dyn Operator, records: &[(&str, &str)]) -> Vec<String> {
    let mut outputs = Outputs::default();
    operator.process(0, keyed_batch(records, 0), TIMES, &mut outputs).await.unwrap();
    drained(&mut outputs, 0)
}

async fn advance(operator: &mut dyn Operator, watermark: i64, processing_time: i64) -> Vec<String> {
    let mut outputs = Outputs::default();
    operator.advance(Times { watermark, processing_time }, &mut outputs).await.unwrap();
    drained(&mut outputs, 0)
}

async fn snapshot(operator: &mut dyn Operator) -> Bytes {
    let mut writer = StateWriter::default();
    operator.snapshot(&mut writer).await.unwrap();
    writer.finish()
}

async fn snapshot_all(operator: &mut dyn Operator) -> Bytes {
    let mut writer = StateWriter::default();
    operator.snapshot_all(&mut writer).await.unwrap();
    writer.finish()
}

fn entries_of(file: &Bytes, state: &str) -> usize {
    read_chunks(file).map(|chunk| chunk.unwrap()).filter(|chunk| chunk.state == state).map(|chunk| chunk.len()).sum()
}

#[tokio::test]
async fn counts_go_on_after_a_restore_from_base_and_delta() {
    let plugin = load("faulty-keyed").await;
    assert_eq!((plugin.world(), plugin.description().input_count()), (World::KeyedPlugin, 2));
    let mut first = operator().await;
    assert_eq!(feed(&mut *first, &[("a", "x"), ("b", "x"), ("a", "remember:s"), ("c", "x")]).await, ["a 1", "b 1", "a 2", "c 1"]);
    let base = snapshot(&mut *first).await;
    assert_eq!((entries_of(&base, "counts"), entries_of(&base, "remembered")), (3, 1));
    feed(&mut *first, &[("a", "x"), ("b", "forget")]).await;
    let all = snapshot_all(&mut *first).await;
    let delta = snapshot(&mut *first).await;
    assert_eq!(entries_of(&delta, "counts"), 2, "only what changed; a full snapshot did not take it away");
    assert_eq!(entries_of(&all, "counts"), 2);
    assert_eq!(entries_of(&snapshot(&mut *first).await, "counts"), 0, "changes are handed over once");
    for files in [vec![base, delta], vec![all]] {
        let mut second = restored(&files, 0..128).await;
        assert_eq!(entries_of(&snapshot(&mut *second).await, "counts"), 0, "what was restored is no change");
        assert_eq!(feed(&mut *second, &[("a", "x"), ("b", "x"), ("c", "x")]).await, ["a 4", "b 1", "c 2"]);
    }
}

#[tokio::test]
async fn inputs_are_told_apart_and_failures_leave_nothing_behind() {
    let context = OperatorContext { policy: waterwheel::operator::ErrorPolicy::Skip, ..with(serde_json::Value::Null) };
    let mut operator = load("faulty-keyed").await.operator(context).await.unwrap();
    let mut outputs = Outputs::default();
    operator.process(1, keyed_batch(&[("a", "x"), ("a", "fail:no"), ("a", "x")], 0), TIMES, &mut outputs).await.unwrap();
    assert_eq!(drained(&mut outputs, 0), ["a 1", "a 2"]);
}

#[tokio::test]
async fn timers_fire_by_both_clocks_once_and_in_order() {
    let mut operator = operator().await;
    assert_eq!(operator.next_timer(), None);
    let set = [
        ("a", "processing-timer:500"),
        ("a", "event-timer:30"),
        ("b", "event-timer:20"),
        ("a", "event-timer:30"),
        ("b", "processing-timer:400"),
        ("b", "delete-processing-timer:400"),
    ];
    feed(&mut *operator, &set).await;
    assert_eq!(operator.next_timer(), Some(500));
    assert_eq!(advance(&mut *operator, 19, 499).await, [""; 0]);
    assert_eq!(advance(&mut *operator, 30, 500).await, ["b timer event 20 3", "a timer event 30 3", "a timer processing 500 3"]);
    assert_eq!((operator.next_timer(), advance(&mut *operator, i64::MAX, i64::MAX).await), (None, vec![]));
    feed(&mut *operator, &[("a", "event-timer:5")]).await;
    assert_eq!(operator.next_timer(), Some(i64::MIN), "one whose time has passed is due at once");
}

#[tokio::test]
async fn timers_fire_in_bounded_numbers() {
    let mut operator = operator().await;
    let values: Vec<String> = (0..1300).map(|time| format!("event-timer:{time}")).collect();
    for chunk in values.chunks(500) {
        let records: Vec<_> = chunk.iter().map(|value| ("k", value.as_str())).collect();
        feed(&mut *operator, &records).await;
    }
    let mut rounds = Vec::new();
    rounds.push(advance(&mut *operator, 2000, 0).await.len());
    while operator.next_timer() == Some(i64::MIN) {
        rounds.push(advance(&mut *operator, 2000, 0).await.len());
    }
    assert_eq!(rounds, [512, 512, 276]);
}

#[tokio::test]
async fn timers_that_came_due_while_the_job_was_down_fire_at_once() {
    let mut first = operator().await;
    feed(&mut *first, &[("a", "processing-timer:100"), ("b", "event-timer:50"), ("b", "processing-timer:900")]).await;
    let base = snapshot(&mut *first).await;
    assert_eq!(entries_of(&base, "waterwheel.timers"), 3);
    assert_eq!(advance(&mut *first, 50, 0).await.len(), 1);
    let delta = snapshot(&mut *first).await;
    assert_eq!(entries_of(&delta, "waterwheel.timers"), 1, "the one that fired is gone");
    let mut second = restored(&[base, delta], 0..128).await;
    assert_eq!(second.next_timer(), Some(100));
    assert_eq!(advance(&mut *second, 60, 300).await, ["a timer processing 100 1"]);
    assert_eq!(second.next_timer(), Some(900));
    second.finish(TIMES, &mut Outputs::default()).await.unwrap();
}

#[tokio::test]
async fn state_and_timers_are_dealt_by_key_group() {
    let mut first = operator().await;
    let keys: Vec<String> = (0..40).map(|i| format!("key-{i}")).collect();
    let records: Vec<_> = keys.iter().map(|key| (key.as_str(), "processing-timer:10")).collect();
    feed(&mut *first, &records).await;
    let file = snapshot_all(&mut *first).await;
    let groups = KeyGroups::new(128, 3);
    let mut fired = 0;
    for subtask in 0..3 {
        let mut operator = restored(std::slice::from_ref(&file), groups.range(subtask)).await;
        let told = advance(&mut *operator, 0, 10).await;
        assert!(told.iter().all(|line| groups.range(subtask).contains(&key_group(line.split(' ').next().unwrap().as_bytes(), 128))));
        fired += told.len();
    }
    assert_eq!(fired, keys.len());
}

#[tokio::test]
async fn large_states_go_in_chunks() {
    let mut first = load("running-total").await.operator(context()).await.unwrap();
    let keys: Vec<String> = (0..60_000).map(|i| format!("customer-{i:020}")).collect();
    for chunk in keys.chunks(5_000) {
        let records: Vec<_> = chunk.iter().map(|key| (key.as_str(), r#"{"amount":1.5}"#)).collect();
        feed(&mut *first, &records).await;
    }
    let file = snapshot(&mut *first).await;
    let sizes: Vec<usize> = read_chunks(&file).map(|chunk| chunk.unwrap().byte_len()).collect();
    assert!(sizes.len() > 1 && sizes.iter().all(|size| *size < 2 << 20), "{sizes:?}");
    // One chunk of everything, larger than the plugin is given at a time.
    let mut whole = Entries::default();
    for chunk in read_chunks(&file).map(|chunk| chunk.unwrap()) {
        whole.state.clone_from(&chunk.state);
        whole.version = chunk.version;
        chunk.iter().for_each(|entry| whole.push(entry));
    }
    let mut writer = StateWriter::default();
    writer.write(&whole);
    let mut second = load("running-total").await.operator(context()).await.unwrap();
    second.restore(&mut reader(&[writer.finish()], 0..128)).await.unwrap();
    let told = feed(&mut *second, &[(&keys[0], r#"{"amount":1}"#), (&keys[59_999], r#"{"amount":1}"#)]).await;
    assert!(told.iter().all(|line| line.contains(r#""count":2,"sum":2.5"#)), "{told:?}");
}

#[tokio::test]
async fn a_state_that_the_plugin_refuses_is_told_in_its_words() {
    let mut file = StateWriter::default();
    let mut entries = Entries::of("counts", 99);
    entries.push(EntryRef { key: b"a", subkey: None, value: Some(b"\x01") });
    file.write(&entries);
    let mut operator = operator().await;
    let error = operator.restore(&mut reader(&[file.finish()], 0..128)).await.unwrap_err();
    let told = error.to_string();
    assert!(told.starts_with("operator op: the plugin refuses its state \"counts\" of version 99: ") && !error.retry_helps(), "{told}");
    let mut foreign = StateWriter::default();
    entries.state = "waterwheel.unheard-of".into();
    foreign.write(&entries);
    let error = self::operator().await.restore(&mut reader(&[foreign.finish()], 0..128)).await.unwrap_err();
    assert!(error.to_string().contains("waterwheel.unheard-of"), "{error}");
    let broken = Bytes::from_static(b"WWSTATE1 and nothing more of it");
    let error = self::operator().await.restore(&mut reader(&[broken], 0..128)).await.unwrap_err();
    assert!(error.chain().contains("file-0") && error.chain().contains("damaged"), "{}", error.chain());
}
