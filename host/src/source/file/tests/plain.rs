//! Files that are read once.

use super::*;
use std::io::Read;

fn gzip(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    flate2::read::GzEncoder::new(text.as_bytes(), flate2::Compression::fast()).read_to_end(&mut bytes).unwrap();
    bytes
}

fn zstd(text: &str) -> Vec<u8> {
    zstd::encode_all(text.as_bytes(), 1).unwrap()
}

fn numbered(range: std::ops::Range<usize>) -> String {
    range.map(|number| format!("{{\"n\":{number}}}\n")).collect()
}

#[tokio::test]
async fn json_lines_skip_blank_ones_and_raw_lines_do_not() {
    let folder = Folder::new();
    folder.write("a.txt", "{\"a\":1}\r\n\n  \n{\"a\":2}\nnot json");
    assert_eq!(read(&folder.source("a.txt", json!({}))).await, [r#"{"a":1}"#, r#"{"a":2}"#, "not json"]);
    assert_eq!(read(&folder.source("a.txt", json!({"format": "lines"}))).await, [r#"{"a":1}"#, "", "  ", r#"{"a":2}"#, "not json"]);
}

#[tokio::test]
async fn keys_are_taken_from_the_lines() {
    let folder = Folder::new();
    folder.write("a.jsonl", "{\"u\":{\"id\":\"x\"}}\n{\"u\":{\"id\":7}}\n{\"u\":1}\n{\"u\":{\"id\":\"\"}}\nnot json\n");
    let mut reading = Reading::start(&folder.source("a.jsonl", json!({"key": "/u/id"}))).await;
    let keys: Vec<_> = reading.finish().await.records.iter().map(|record| record.2.as_deref()).collect();
    assert_eq!(keys, [Some("x"), Some("7"), None, Some(""), None]);
}

#[tokio::test]
async fn each_file_is_a_split_read_in_the_order_of_names() {
    let folder = Folder::new();
    for name in ["b.log", "a.log", "c.log", "other.txt"] {
        folder.write(name, format!("{name} 1\n{name} 2\n"));
    }
    folder.write("empty.log", "");
    let mut reading = Reading::start(&folder.source("*.log", json!({}))).await;
    let places: Vec<_> = reading.finish().await.records.iter().map(|record| (record.0.as_str(), record.1)).collect();
    assert_eq!(places, [("a.log", 0), ("a.log", 8), ("b.log", 0), ("b.log", 8), ("c.log", 0), ("c.log", 8)]);
    assert_eq!(read(&folder.source("", json!({}))).await.len(), 8);
    fs::hard_link(folder.path("a.log"), folder.path("z.log")).unwrap();
    assert_eq!(read(&folder.source("*.log", json!({}))).await.len(), 6, "one file under two names is read once");
}

/// Each reported position, the same records again: the heart of it.
async fn resumes_everywhere(folder: &Folder, name: &str, lines: usize) {
    let source = folder.source(name, json!({}));
    let splits = source.discover(&BTreeSet::new()).await.unwrap();
    let mut reading = Reading::open_with(&source, splits, BatchLimits { records: 1, ..LIMITS }).await;
    let mut positions = vec![reading.reader.positions()];
    while reading.status == ReadStatus::Open {
        reading.try_next().await.unwrap();
        positions.push(reading.reader.positions());
    }
    assert_eq!(reading.records.len(), lines);
    assert!(positions.len() > lines);
    for (behind, splits) in positions.into_iter().enumerate() {
        let mut again = Reading::open(&source, splits).await;
        again.finish().await;
        assert_eq!(again.records, reading.records[behind.min(lines)..], "{name} behind record {behind}");
    }
}

#[tokio::test]
async fn reading_resumes_at_every_position() {
    let folder = Folder::new();
    let text = "\n\n".to_owned() + &numbered(0..60) + "\r\n" + &numbered(60..90) + "last";
    folder.write("plain.jsonl", &text);
    resumes_everywhere(&folder, "plain.jsonl", 91).await;
    folder.write("one.gz", gzip(&text));
    resumes_everywhere(&folder, "one.gz", 91).await;
    folder.write("members.gzip", [gzip(&text[..333]), gzip(&text[333..])].concat());
    resumes_everywhere(&folder, "members.gzip", 91).await;
    folder.write("one.zst", zstd(&text));
    resumes_everywhere(&folder, "one.zst", 91).await;
    folder.write("frames.zstd", [zstd(&text[..333]), zstd(&text[333..])].concat());
    resumes_everywhere(&folder, "frames.zstd", 91).await;
}

#[tokio::test]
async fn large_files_are_read_whole() {
    let folder = Folder::new();
    let text = numbered(0..100_000);
    folder.write("a.jsonl", &text);
    folder.write("b.jsonl.gz", gzip(&text));
    folder.write("c.jsonl.zst", zstd(&text));
    let values = read(&folder.source("*", json!({}))).await;
    assert_eq!(values.len(), 300_000);
    for (number, value) in values.iter().enumerate() {
        assert_eq!(*value, format!("{{\"n\":{}}}", number % 100_000));
    }
}

#[tokio::test]
async fn what_is_appended_after_the_start_is_not_read() {
    let folder = Folder::new();
    folder.write("a.log", "one\nhalf");
    let source = folder.source("*.log", json!({}));
    let splits = source.discover(&BTreeSet::new()).await.unwrap();
    folder.append("a.log", " a line\nmore\n");
    folder.write("b.log", "new\n");
    let known = splits.iter().map(|split| split.id.clone()).collect();
    assert_eq!(source.discover(&known).await.unwrap(), [], "the files were resolved once");
    let mut reading = Reading::open(&source, splits.clone()).await;
    assert_eq!(reading.finish().await.values(), ["one", "half"]);
    assert!(reading.reader.positions()[0].finished);
    let mut again = Reading::open(&folder.source("*.log", json!({})), splits).await;
    assert_eq!(again.finish().await.values(), ["one", "half"], "nor after a restart");
}

#[tokio::test]
async fn a_compressed_file_is_what_the_option_says() {
    let folder = Folder::new();
    folder.write("a.bin", gzip("one\n"));
    folder.write("plain.gz", "two\n");
    assert_eq!(read(&folder.source("a.bin", json!({"compression": "gzip"}))).await, ["one"]);
    assert_eq!(read(&folder.source("plain.gz", json!({"compression": "none"}))).await, ["two"]);
}

#[tokio::test]
async fn subtasks_share_the_files() {
    let folder = Folder::new();
    for name in ["a", "b", "c", "d"] {
        folder.write(name, numbered(0..500));
    }
    let source = folder.source("*", json!({"rate": 10_000}));
    let mut splits = source.discover(&BTreeSet::new()).await.unwrap();
    let others = splits.split_off(2);
    let (mut one, mut two) = (Reading::open(&source, splits).await, Reading::open(&source, others).await);
    let start = std::time::Instant::now();
    tokio::join!(one.finish(), two.finish());
    assert_eq!((one.records.len(), two.records.len()), (1_000, 1_000));
    assert!(start.elapsed() > Duration::from_millis(150), "the rate holds for both together: {:?}", start.elapsed());
}

#[tokio::test]
async fn a_line_that_is_too_long_is_named() {
    let folder = Folder::new();
    folder.write("a.log", format!("short\n{}\n", "x".repeat(2_000)));
    let error = Reading::start(&folder.source("a.log", json!({"max-record-size": "1 KiB"}))).await.failure().await;
    let text = error.chain();
    assert!(text.contains("source in: the line at byte 6 of") && text.contains("a.log") && text.contains("max-record-size"), "{text}");
    assert!(!error.retry_helps());
    let source = folder.source("a.log", json!({}));
    let mut reading =
        Reading::open_with(&source, source.discover(&BTreeSet::new()).await.unwrap(), BatchLimits { bytes: 100, ..LIMITS }).await;
    assert_eq!(reading.finish().await.records.len(), 2, "a record above the batch's bytes is a batch of its own");
}

#[tokio::test]
async fn damaged_files_are_named() {
    let folder = Folder::new();
    let text = numbered(0..10_000);
    for (name, bytes) in [("cut.gz", gzip(&text)), ("cut.zst", zstd(&text))] {
        folder.write(name, &bytes[..bytes.len() / 2]);
        let mut reading = Reading::start(&folder.source(name, json!({}))).await;
        let error = reading.failure().await;
        assert!(error.chain().contains(name) && error.chain().contains("complete"), "{}", error.chain());
        assert!(!error.retry_helps());
    }
    folder.write("text.gz", "no gzip\n");
    assert!(Reading::start(&folder.source("text.gz", json!({}))).await.failure().await.chain().contains("set compression"));
}

#[tokio::test]
async fn a_missing_file_is_named_before_anything_is_read() {
    let folder = Folder::new();
    for pattern in ["a.log", "*.log", "none/*.log"] {
        let error = folder.source(pattern, json!({})).discover(&BTreeSet::new()).await.unwrap_err();
        assert!(error.to_string().contains(pattern) && error.to_string().contains("follow"), "{error}");
    }
}

#[tokio::test]
async fn files_that_changed_since_the_checkpoint_are_refused() {
    let folder = Folder::new();
    type Change = (&'static str, fn(&Folder));
    let changes: [Change; 3] = [
        ("was replaced", |folder| {
            folder.write("new", numbered(50..100));
            folder.rename("new", "a.log");
        }),
        ("was cut to 8 bytes", |folder| folder.write("a.log", numbered(0..1))),
        ("was deleted", |folder| fs::remove_file(folder.path("a.log")).unwrap()),
    ];
    for (words, change) in changes {
        folder.write("a.log", numbered(0..100));
        let source = folder.source("a.log", json!({}));
        let splits = source.discover(&BTreeSet::new()).await.unwrap();
        let mut reading = Reading::open_with(&source, splits, BatchLimits { records: 40, ..LIMITS }).await;
        reading.try_next().await.unwrap();
        let splits = reading.reader.positions();
        drop(reading);
        change(&folder);
        let error = Reading::open(&source, splits.clone()).await.failure().await;
        assert!(error.to_string().contains(words) && error.to_string().contains("on-lost-file"), "{error}");
        assert!(error.to_string().contains("a.log") && !error.retry_helps(), "{error}");
        let mut skipping = Reading::open(&folder.source("a.log", json!({"on-lost-file": "skip"})), splits).await;
        assert_eq!(skipping.finish().await.records, [], "the rest is skipped");
    }
}

#[tokio::test]
async fn a_renamed_file_is_found_again() {
    let folder = Folder::new();
    folder.write("a.log", numbered(0..100));
    let source = folder.source("a.log", json!({}));
    let splits = source.discover(&BTreeSet::new()).await.unwrap();
    folder.rename("a.log", "renamed");
    folder.write("a.log", numbered(200..300));
    let mut reading = Reading::open(&source, splits).await;
    assert_eq!(reading.finish().await.records.len(), 100);
    assert_eq!(reading.records[0].3, r#"{"n":0}"#);
}

#[tokio::test]
async fn splits_of_another_source_are_refused() {
    let folder = Folder::new();
    folder.write("a.log", "x\n");
    let source = folder.source("a.log", json!({}));
    let mut reader = Reading::open(&source, Vec::new()).await.reader;
    let split = Split { id: "0-of-1".into(), position: json!(5), stop: None, finished: false };
    assert!(reader.add_splits(vec![split]).await.unwrap_err().to_string().contains("uid"));
    let follow = folder.source("a.log", json!({"follow": true}));
    assert!(follow.discover(&BTreeSet::from(["0-of-1".to_owned()])).await.unwrap_err().to_string().contains("uid"));
}

#[test]
fn every_fault_of_the_options_is_found_at_once() {
    let options = json!({"path": "a/[", "format": "lines", "key": "user", "max-record-size": 0, "rate": -1, "discovery-interval": "1 s",
        "rotation-wait": "1 s"});
    let faults = FileType.create("in", &options).unwrap_err();
    let paths: Vec<_> = faults.iter().map(|fault| fault.path.as_str()).collect();
    assert_eq!(paths, ["/rate", "/max-record-size", "/discovery-interval", "/rotation-wait", "/key", "/key", "/path"], "{faults:?}");
    let faults = FileType.create("in", &json!({"formats": 1, "follow": "yes"})).unwrap_err();
    let paths: Vec<_> = faults.iter().map(|fault| fault.path.as_str()).collect();
    assert_eq!(paths, ["/follow", "/formats", "/path"], "{faults:?}");
}

#[test]
fn the_schema_describes_every_option() {
    let schema = FileType.options_schema();
    for (name, property) in schema.get("properties").and_then(Value::as_object).unwrap() {
        assert!(property.get("description").is_some(), "{name}: {property}");
    }
}

#[tokio::test]
async fn the_thread_ends_with_its_reader() {
    let folder = Folder::new();
    folder.write("a.log", numbered(0..1_000_000));
    let threads = || {
        fs::read_dir("/proc/self/task")
            .unwrap()
            .filter(|task| fs::read_to_string(task.as_ref().unwrap().path().join("comm")).is_ok_and(|name| name.starts_with("file-ending")))
            .count()
    };
    let path = folder.path("a.log");
    let source = FileType.create("ending", &json!({"path": path.to_str().unwrap()})).unwrap();
    let mut reading = Reading::start(&source).await;
    reading.try_next().await.unwrap();
    assert_eq!(threads(), 1);
    drop(reading);
    for _ in 0..100 {
        if threads() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the thread goes on");
}

/// Not a benchmark, but a guard: a line must not cost an allocation or a system call.
#[tokio::test]
async fn lines_come_fast() {
    let folder = Folder::new();
    folder.write("a.log", format!("{}\n", "x".repeat(99)).repeat(500_000));
    let source = folder.source("a.log", json!({}));
    let context = ReaderContext {
        uid: "in".into(),
        subtask: 0,
        parallelism: 1,
        limits: BatchLimits { records: 512, ..LIMITS },
        split_table: SplitTable::default(),
    };
    let mut reader = source.open(context).await.unwrap();
    reader.add_splits(source.discover(&BTreeSet::new()).await.unwrap()).await.unwrap();
    let (mut batch, start, mut records) = (Batch::default(), std::time::Instant::now(), 0);
    while reader.next_batch(&mut batch).await.unwrap() == ReadStatus::Open {
        records += batch.len();
        batch.clear();
    }
    let per_second = (records + batch.len()) as f64 / start.elapsed().as_secs_f64();
    assert_eq!(records + batch.len(), 500_000);
    eprintln!("{:.1} M lines/s", per_second / 1e6);
    assert!(per_second > 3e5, "{per_second}");
}
