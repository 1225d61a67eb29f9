//! The generator from outside, through the traits.

#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value, reason = "tests")]

use super::*;
use crate::record::{Batch, SplitTable};
use crate::source::{BatchLimits, ReadStatus};
use std::time::{Duration, Instant};

fn source(options: Value) -> Arc<dyn Source> {
    GeneratorType.create("gen", &options).unwrap()
}

fn context(limits: BatchLimits) -> ReaderContext {
    ReaderContext { uid: "gen".into(), subtask: 0, parallelism: 1, limits, split_table: SplitTable::default() }
}

const LIMITS: BatchLimits = BatchLimits { records: 100, bytes: 64 << 10, linger: Duration::from_millis(5) };

async fn read_all(source: &Arc<dyn Source>, splits: Vec<Split>) -> Vec<(u64, Option<Vec<u8>>, Vec<u8>, i64)> {
    let mut reader = source.open(context(LIMITS)).await.unwrap();
    reader.add_splits(splits).await.unwrap();
    let mut records = Vec::new();
    loop {
        let mut batch = Batch::default();
        let status = reader.next_batch(&mut batch).await.unwrap();
        assert!(batch.len() <= LIMITS.records);
        let row =
            |row: crate::record::Row<'_>| (row.origin.position, row.key.map(<[u8]>::to_vec), row.value.unwrap().to_vec(), row.timestamp);
        records.extend(batch.rows().map(row));
        if status == ReadStatus::Finished {
            return records;
        }
    }
}

#[tokio::test]
async fn records_do_not_depend_on_the_number_of_splits() {
    let options = |splits: u32| json!({"count": 3_000, "seed": 9, "splits": splits, "key": "k{user}", "template": ["{sequence}", "{user}", "{amount}", "{date-time}"]});
    let one = source(options(1));
    let records = read_all(&one, one.discover(&BTreeSet::new()).await.unwrap()).await;
    assert_eq!(records.len(), 3_000);
    assert_eq!(records[255].3 - records[0].3, 255);
    for (_, key, value, _) in &records {
        let value: Value = serde_json::from_slice(value).unwrap();
        assert_eq!(key.as_deref().unwrap(), format!("k{}", value[1]).as_bytes());
    }
    let three = source(options(3));
    let splits = three.discover(&BTreeSet::new()).await.unwrap();
    let mut dealt = Vec::new();
    for split in splits {
        dealt.extend(read_all(&three, vec![split]).await);
    }
    dealt.sort();
    assert_eq!(dealt, records);
}

#[tokio::test]
async fn another_number_of_splits_is_refused_after_a_restart() {
    let known = source(json!({"splits": 2})).discover(&BTreeSet::new()).await.unwrap().into_iter().map(|split| split.id).collect();
    let error = source(json!({"splits": 3})).discover(&known).await.unwrap_err();
    assert!(error.to_string().contains("leave `splits` as it was"), "{error}");
    assert_eq!(source(json!({"splits": 2})).discover(&known).await.unwrap(), []);
}

#[tokio::test]
async fn a_position_of_another_split_is_refused() {
    let source = source(json!({"splits": 2, "count": 10}));
    let mut reader = source.open(context(LIMITS)).await.unwrap();
    for (id, position) in [("0-of-2", json!(300)), ("0-of-2", json!("x")), ("file", json!(0))] {
        let split = Split { id: id.into(), position, stop: None, finished: false };
        assert!(reader.add_splits(vec![split]).await.is_err());
    }
}

#[tokio::test]
async fn the_end_of_the_checkpoint_counts_not_that_of_the_options() {
    let source = source(json!({"count": 1_000}));
    let split = Split { id: "0-of-1".into(), position: json!(40), stop: Some(json!(50)), finished: false };
    assert_eq!(read_all(&source, vec![split]).await.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn the_rate_holds_over_all_subtasks() {
    let source = source(json!({"count": 5_000, "rate": 1_000, "splits": 4}));
    let splits = source.discover(&BTreeSet::new()).await.unwrap();
    let start = tokio::time::Instant::now();
    let readers = splits.chunks(2).map(|splits| {
        let (source, splits) = (Arc::clone(&source), splits.to_vec());
        tokio::spawn(async move { read_all(&source, splits).await.len() })
    });
    let counts = futures::future::join_all(readers).await;
    assert_eq!(counts.into_iter().map(Result::unwrap).sum::<usize>(), 5_000);
    let took = start.elapsed();
    assert!((4_800..5_200).contains(&took.as_millis()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_generator_lingers_and_then_hands_on() {
    let source = source(json!({"rate": 100}));
    let mut reader = source.open(context(BatchLimits { linger: Duration::from_millis(35), ..LIMITS })).await.unwrap();
    reader.add_splits(source.discover(&BTreeSet::new()).await.unwrap()).await.unwrap();
    let mut batch = Batch::default();
    assert_eq!(reader.next_batch(&mut batch).await.unwrap(), ReadStatus::Open);
    assert!((3..=4).contains(&batch.len()), "{}", batch.len());
    assert_eq!(reader.pending_records(), None);
}

#[tokio::test]
async fn batches_keep_to_their_bytes() {
    let source = source(json!({"count": 100, "payload": "fixed", "size": "1000 B"}));
    let mut reader = source.open(context(BatchLimits { bytes: 3_500, ..LIMITS })).await.unwrap();
    reader.add_splits(source.discover(&BTreeSet::new()).await.unwrap()).await.unwrap();
    assert_eq!(reader.pending_records(), Some(100));
    let mut batch = Batch::default();
    reader.next_batch(&mut batch).await.unwrap();
    assert_eq!((batch.len(), batch.byte_len()), (3, 3_000));
    assert!(serde_json::from_slice::<Value>(batch.value(0).unwrap()).is_ok());
    let tiny = BatchLimits { bytes: 10, ..LIMITS };
    let mut reader = source.open(context(tiny)).await.unwrap();
    reader.add_splits(source.discover(&BTreeSet::new()).await.unwrap()).await.unwrap();
    batch.clear();
    reader.next_batch(&mut batch).await.unwrap();
    assert_eq!(batch.len(), 1, "a larger record is a batch of its own");
}

#[test]
fn every_fault_of_the_options_is_found_at_once() {
    let options = json!({"rate": 0, "splits": 0, "users": 0, "size": "1 GiB", "key": "{padding}", "template": {"a": "{sequense}"},
        "amount": {"min": 5, "max": 1, "decimals": 2}});
    let faults = GeneratorType.create("gen", &options).unwrap_err();
    let paths: Vec<_> = faults.iter().map(|fault| fault.path.as_str()).collect();
    assert_eq!(paths, ["/rate", "/splits", "/users", "/size", "/amount", "/template/a", "/key"], "{faults:?}");
    let faults = GeneratorType.create("gen", &json!({"rates": 1, "time": {"step": "x"}})).unwrap_err();
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert_eq!(GeneratorType.create("gen", &json!({"size": 200})).unwrap_err()[0].path, "/template");
    assert_eq!(GeneratorType.create("gen", &json!({"template": "{padding}"})).unwrap_err()[0].path, "/size");
    assert_eq!(GeneratorType.create("gen", &json!({"payload": "fixed", "template": 1})).unwrap_err()[0].path, "/template");
}

#[test]
fn the_schema_describes_every_option() {
    let schema = GeneratorType.options_schema();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap();
    assert!(properties.contains_key("rate") && properties.contains_key("template"));
    for (name, property) in properties {
        assert!(property.get("description").is_some() || property.get("$ref").is_some(), "{name}: {property}");
    }
}

/// Not a benchmark, but a guard: a ready-made record must not cost an allocation or a system call.
#[tokio::test]
async fn ready_made_records_come_fast() {
    let source = source(json!({"payload": "fixed"}));
    let mut reader = source.open(context(BatchLimits { records: 512, ..LIMITS })).await.unwrap();
    reader.add_splits(source.discover(&BTreeSet::new()).await.unwrap()).await.unwrap();
    let (mut batch, start, mut records) = (Batch::default(), Instant::now(), 0_u32);
    while records < 5_000_000 {
        batch.clear();
        reader.next_batch(&mut batch).await.unwrap();
        records += u32::try_from(batch.len()).unwrap();
    }
    let per_second = f64::from(records) / start.elapsed().as_secs_f64();
    eprintln!("{:.1} M records/s", per_second / 1e6);
    assert!(per_second > 1e6, "{per_second}");
}
