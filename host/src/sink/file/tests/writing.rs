//! The first phase: formats, partitions, rolling, names.

use super::*;
use std::time::Duration;

async fn prepare_and_commit(sink: &Arc<dyn Sink>, writer: &mut dyn SinkWriter) -> usize {
    let prepared = writer.prepare(&barrier()).await.unwrap();
    commit(sink, &prepared).await.unwrap();
    prepared.len()
}

#[tokio::test]
async fn tombstones_are_refused_as_lines_and_kept_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let mut batch = batch(["a"]);
    batch.push(Row { key: Some(b"k"), value: None, timestamp: 5, origin: Origin::NONE });
    let sink = exactly_once(folder.path(), json!({}));
    let mut lines_writer = writer(&sink, 1).await;
    let error = lines_writer.write(&batch).await.unwrap_err();
    assert!(error.to_string().contains("tombstone") && !error.retry_helps(), "{error}");

    let sink = exactly_once(folder.path(), json!({"format": "json"}));
    let mut writer = writer(&sink, 2).await;
    writer.write(&batch).await.unwrap();
    prepare_and_commit(&sink, &mut *writer).await;
    let second: Value = serde_json::from_str(&lines(folder.path())[1]).unwrap();
    assert_eq!(second, json!({"key": "k", "value": null, "timestamp": 5}));
}

#[tokio::test]
async fn large_records_are_written_whole() {
    let folder = tempfile::tempdir().unwrap();
    let sink = exactly_once(folder.path(), json!({}));
    let mut writer = writer(&sink, 1).await;
    let values: Vec<String> = [5 << 20, 1, 3 << 20].iter().map(|length| "z".repeat(*length)).collect();
    for value in &values {
        writer.write(&batch([value])).await.unwrap();
    }
    assert_eq!(prepare_and_commit(&sink, &mut *writer).await, 1);
    assert!(lines(folder.path()) == values);
}

#[tokio::test]
async fn files_roll_by_size_within_a_checkpoint_and_never_span_two() {
    let folder = tempfile::tempdir().unwrap();
    let sink = exactly_once(folder.path(), json!({"roll-size": 10}));
    let mut writer = writer(&sink, 1).await;
    let values: Vec<String> = (100..107).map(|number| number.to_string()).collect();
    writer.write(&batch(&values[..4])).await.unwrap();
    assert_eq!(prepare_and_commit(&sink, &mut *writer).await, 2);
    writer.write(&batch(&values[4..])).await.unwrap();
    assert_eq!(prepare_and_commit(&sink, &mut *writer).await, 1);
    let lengths: Vec<_> = files(folder.path()).into_values().map(|bytes| bytes.len()).collect();
    assert_eq!(lengths, [12, 4, 12]);
    assert_eq!(lines(folder.path()), values);
}

#[tokio::test]
async fn files_roll_by_time() {
    let folder = tempfile::tempdir().unwrap();
    let sink = exactly_once(folder.path(), json!({"roll-interval": "30 ms"}));
    let mut writer = writer(&sink, 1).await;
    writer.write(&batch(["a"])).await.unwrap();
    tokio::time::sleep(Duration::from_millis(40)).await;
    writer.write(&batch(["b"])).await.unwrap();
    assert_eq!(prepare_and_commit(&sink, &mut *writer).await, 2);
    assert_eq!(lines(folder.path()), ["a", "b"]);
}

#[tokio::test]
async fn records_go_to_the_folder_of_their_partition() {
    let folder = tempfile::tempdir().unwrap();
    let sink = exactly_once(folder.path(), json!({"partition-by": {"time": "day=%Y-%m-%d/%H"}}));
    let mut writer = writer(&sink, 1).await;
    let mut batch = Batch::default();
    for (timestamp, value) in [(0, "a"), (3_600_000, "b"), (10, "c"), (86_400_000, "d")] {
        batch.push(Row { key: None, value: Some(value.as_bytes()), timestamp, origin: Origin::NONE });
    }
    writer.write(&batch).await.unwrap();
    assert_eq!(prepare_and_commit(&sink, &mut *writer).await, 3);
    let found: Vec<_> = files(folder.path()).into_iter().map(|(name, bytes)| (name[..17].to_owned(), bytes)).collect();
    let expected = [("day=1970-01-01/00", "a\nc\n"), ("day=1970-01-01/01", "b\n"), ("day=1970-01-02/00", "d\n")];
    assert_eq!(found, expected.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())));
}

#[tokio::test]
async fn more_partitions_than_may_be_open_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let sink = exactly_once(folder.path(), json!({"partition-by": {"pointer": "/p"}, "max-open-partitions": 3}));
    let mut writer = writer(&sink, 1).await;
    let values: Vec<String> = (0..500).map(|number| format!(r#"{{"p":"p{}","n":{number}}}"#, (number * 7) % 11)).collect();
    for values in values.chunks(37) {
        writer.write(&batch(values)).await.unwrap();
    }
    assert!(prepare_and_commit(&sink, &mut *writer).await > 11);
    for partition in 0..11 {
        let name = format!("p{partition}");
        let expected: Vec<_> = values.iter().filter(|value| value.contains(&format!("\"{name}\""))).cloned().collect();
        assert_eq!(lines(&folder.path().join(&name)), expected, "{name}");
    }
    assert_eq!(lines(folder.path()).len(), values.len());
}

#[tokio::test]
async fn the_partition_written_last_stays_open() {
    let folder = tempfile::tempdir().unwrap();
    let sink = exactly_once(folder.path(), json!({"partition-by": {"pointer": ""}, "max-open-partitions": 2}));
    let mut writer = writer(&sink, 1).await;
    // 1 is in use all the time, so 2 and 3 are closed.
    writer.write(&batch(["1", "2", "1", "3", "1", "4", "1"])).await.unwrap();
    assert_eq!(prepare_and_commit(&sink, &mut *writer).await, 4);
    assert_eq!(lines(&folder.path().join("1")), ["1"; 4]);
}

#[tokio::test]
async fn a_run_that_counts_generations_anew_takes_other_names() {
    let folder = tempfile::tempdir().unwrap();
    for value in ["a", "b", "c"] {
        let sink = exactly_once(folder.path(), json!({}));
        let mut writer = writer(&sink, 1).await;
        writer.write(&batch([value])).await.unwrap();
        let prepared = writer.prepare(&barrier()).await.unwrap();
        // The second one is left pending: its name is taken as well.
        if value != "b" {
            commit(&sink, &prepared).await.unwrap();
        }
    }
    assert_eq!(lines(folder.path()), ["a", "c"]);
    assert_eq!(hidden(folder.path()).len(), 1);
}

#[tokio::test]
async fn close_leaves_nothing_that_no_checkpoint_names() {
    let folder = tempfile::tempdir().unwrap();
    let sink = exactly_once(folder.path(), json!({"roll-size": "100 KiB"}));
    let mut writer = writer(&sink, 1).await;
    writer.write(&batch(["a"])).await.unwrap();
    let prepared = writer.prepare(&barrier()).await.unwrap();
    writer.write(&batch(vec!["x".repeat(60 << 10); 7])).await.unwrap();
    assert!(hidden(folder.path()).len() > 1);
    writer.close().await.unwrap();
    commit(&sink, &prepared).await.unwrap();
    assert_eq!(lines(folder.path()), ["a"]);
    assert!(hidden(folder.path()).is_empty());
}

#[tokio::test]
async fn an_exactly_once_flush_is_durable_and_still_hidden() {
    let folder = tempfile::tempdir().unwrap();
    for compression in ["none", "gzip", "zstd"] {
        let sink = exactly_once(folder.path(), json!({"compression": compression}));
        let mut writer = writer(&sink, 1).await;
        writer.write(&batch(["a"])).await.unwrap();
        writer.flush().await.unwrap();
        let left = files(folder.path());
        assert!(left.iter().any(|(name, bytes)| name.starts_with('.') && name.ends_with(".in-progress") && !bytes.is_empty()), "{left:?}");
        writer.write(&batch(["b"])).await.unwrap();
        assert_eq!(prepare_and_commit(&sink, &mut *writer).await, 1);
    }
    assert_eq!(lines(folder.path()), ["a", "b"].repeat(3));
}

#[tokio::test]
async fn at_least_once_is_visible_when_files_roll_and_cleans_up_after_dead_runs() {
    let folder = tempfile::tempdir().unwrap();
    let pending_of_exactly_once = ".part-out@job-00000-000001-000000099.jsonl.pending";
    fs::write(folder.path().join(pending_of_exactly_once), "a manifest may name it\n").unwrap();
    let sink = sink(folder.path(), Guarantee::AtLeastOnce, json!({"roll-size": "300 KiB"}));
    let mut dead = writer(&sink, 1).await;
    dead.write(&batch(vec!["x".repeat(290 << 10); 1])).await.unwrap();
    assert_eq!(hidden(folder.path()).len(), 2);
    drop(dead);
    let mut writer = writer(&sink, 2).await;
    assert_eq!(hidden(folder.path()), [pending_of_exactly_once]);
    writer.write(&batch(vec!["y".repeat(100 << 10); 4])).await.unwrap();
    assert_eq!(lines(folder.path()).len(), 3, "the first three rolled");
    writer.close().await.unwrap();
    assert_eq!(lines(folder.path()).len(), 4);
    assert!(sink.as_two_phase().is_none());
    assert!(writer.prepare(&barrier()).await.is_err());
}
