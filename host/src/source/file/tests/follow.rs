//! Files that grow, are rotated, and appear while they are read.

use super::*;

const FOLLOW: fn() -> Value = || json!({"follow": true, "rotation-wait": "100 ms"});

#[tokio::test]
async fn a_line_that_comes_in_halves_is_one_record() {
    let folder = Folder::new();
    folder.write("a.log", "one\ntw");
    let mut reading = Reading::start(&folder.source("a.log", FOLLOW())).await;
    assert_eq!(reading.until(1).await.values(), ["one"]);
    let positions = reading.reader.positions();
    folder.append("a.log", "o\nthr");
    assert_eq!(reading.until(2).await.values(), ["one", "two"]);
    folder.append("a.log", "ee\r");
    folder.append("a.log", "\nfour\n");
    assert_eq!(reading.until(4).await.values(), ["one", "two", "three", "four"]);
    let mut again = Reading::open(&reading.source, positions).await;
    assert_eq!(again.until(3).await.values(), ["two", "three", "four"]);
    assert_eq!(reading.status, ReadStatus::Open);
}

#[tokio::test]
async fn new_files_are_found_when_their_first_line_is_there() {
    let folder = Folder::new();
    let source = folder.source("*.log", FOLLOW());
    assert_eq!(source.discovery_interval(), Some(Duration::from_secs(5)));
    assert!(!source.is_bounded());
    let mut reading = Reading::start(&source).await;
    assert_eq!(reading.discover().await, 0);
    folder.write("a.log", "begin");
    folder.write("b.log", "");
    assert_eq!(reading.discover().await, 0);
    folder.append("a.log", "ning\n");
    assert_eq!(reading.discover().await, 1);
    assert_eq!(reading.until(1).await.values(), ["beginning"]);
    folder.append("b.log", "b\n");
    assert_eq!((reading.discover().await, reading.discover().await), (1, 0));
    folder.append("a.log", "more\n");
    assert_eq!(reading.until(3).await.records.len(), 3);
}

#[tokio::test]
async fn a_rotated_file_is_read_to_its_end_and_the_new_one_from_its_start() {
    let folder = Folder::new();
    folder.write("app.log", "a1\n");
    let mut reading = Reading::start(&folder.source("app.log", FOLLOW())).await;
    reading.until(1).await;
    folder.append("app.log", "a2\n");
    folder.rename("app.log", "app.log.1");
    folder.append("app.log.1", "a3\nlast without an end");
    folder.write("app.log", "b1\n");
    assert_eq!(reading.discover().await, 1);
    reading.until(5).await;
    let mut values = reading.values();
    values.sort_unstable();
    assert_eq!(values, ["a1", "a2", "a3", "b1", "last without an end"]);
    let finished: Vec<_> = reading.reader.positions().iter().map(|split| split.finished).collect();
    assert_eq!(finished, [true, false], "the rotated file has come to its end, the other one has not");
    assert_eq!(reading.discover().await, 0);
    folder.append("app.log", "b2\n");
    assert_eq!(reading.until(6).await.values()[5], "b2");
}

#[tokio::test]
async fn a_rotation_under_a_pattern_that_fits_both_names_repeats_nothing() {
    let folder = Folder::new();
    folder.write("app.log", "a1\n");
    let mut reading = Reading::start(&folder.source("app.log*", FOLLOW())).await;
    reading.until(1).await;
    folder.rename("app.log", "app.log.1");
    folder.write("app.log", "b1\n");
    assert_eq!(reading.discover().await, 1);
    reading.until(2).await;
    folder.rename("app.log.1", "app.log.2");
    folder.rename("app.log", "app.log.1");
    folder.write("app.log", "c1\n");
    assert_eq!(reading.discover().await, 1);
    assert_eq!(reading.until(3).await.values(), ["a1", "b1", "c1"]);
}

#[tokio::test]
async fn rotations_while_the_job_is_down_lose_nothing() {
    let folder = Folder::new();
    folder.write("app.log", "a1\na2\n");
    let source = folder.source("app.log", FOLLOW());
    let splits = source.discover(&BTreeSet::new()).await.unwrap();
    let mut reading = Reading::open_with(&source, splits, BatchLimits { records: 1, ..LIMITS }).await;
    reading.try_next().await.unwrap();
    let positions = reading.reader.positions();
    drop(reading);
    folder.append("app.log", "a3\n");
    folder.rename("app.log", "app.log.1");
    folder.write("app.log", "b1\n");
    let mut again = Reading::open(&folder.source("app.log", FOLLOW()), positions).await;
    assert_eq!(again.discover().await, 1);
    again.until(3).await;
    let mut values = again.values();
    values.sort_unstable();
    assert_eq!(values, ["a2", "a3", "b1"]);
}

#[tokio::test]
async fn a_deleted_file_is_read_to_its_end() {
    let folder = Folder::new();
    folder.write("a.log", "a1\n");
    let mut reading = Reading::start(&folder.source("*.log", FOLLOW())).await;
    reading.until(1).await;
    let mut writer = OpenOptions::new().append(true).open(folder.path("a.log")).unwrap();
    fs::remove_file(folder.path("a.log")).unwrap();
    writer.write_all(b"a2\n").unwrap();
    reading.until(2).await;
    reading.pause().await;
    assert!(reading.reader.positions()[0].finished);
    let mut again = Reading::open(&reading.source, reading.reader.positions()).await;
    again.pause().await;
    assert_eq!(again.records, [], "a finished file may be gone");
}

#[tokio::test]
async fn a_truncated_file_fails_the_job_and_says_why() {
    let folder = Folder::new();
    folder.write("a.log", "a1\na2\na3\n");
    let mut reading = Reading::start(&folder.source("a.log", FOLLOW())).await;
    reading.until(3).await;
    folder.write("a.log", "b1\n");
    let error = reading.failure().await;
    let text = error.to_string();
    assert!(text.contains("was cut to 3 bytes when it was read to byte 9") && text.contains("rotated by renaming"), "{text}");
    assert!(!error.retry_helps());
}

#[tokio::test]
async fn an_overwritten_file_is_noticed_though_it_is_longer() {
    let folder = Folder::new();
    folder.write("a.log", "a1\n");
    let mut reading = Reading::start(&folder.source("a.log", FOLLOW())).await;
    reading.until(1).await;
    folder.write("a.log", "other and longer\n");
    assert!(reading.failure().await.to_string().contains("was overwritten"));
}

#[tokio::test]
async fn a_truncated_file_is_read_anew_where_the_options_say_so() {
    let folder = Folder::new();
    // The same first line each time: what the file is known by does not change.
    folder.write("a.log", "head\na1\na2\n");
    let mut options = FOLLOW();
    options["on-lost-file"] = json!("skip");
    let source = folder.source("a.log", options.clone());
    let mut reading = Reading::start(&source).await;
    reading.until(3).await;
    folder.write("a.log", "head\n");
    reading.pause().await;
    assert!(reading.reader.positions()[0].finished);
    let positions = reading.reader.positions();
    assert_eq!(reading.discover().await, 1);
    assert_eq!(reading.until(4).await.values()[3], "head");
    folder.append("a.log", "b1\n");
    reading.until(5).await;
    assert_eq!(reading.discover().await, 0);
    // A crash before the new split was in a checkpoint.
    let mut again = Reading::open(&folder.source("a.log", options), positions).await;
    assert_eq!(again.discover().await, 1);
    assert_eq!(again.until(2).await.values(), ["head", "b1"]);
}

#[tokio::test]
async fn a_new_file_of_a_used_inode_is_another_one() {
    let folder = Folder::new();
    folder.write("a.log", "a1\n");
    let source = folder.source("*.log", FOLLOW());
    let known: BTreeSet<_> = source.discover(&BTreeSet::new()).await.unwrap().into_iter().map(|split| split.id).collect();
    // Writing in place keeps the inode, as a file system does that gives it to the next file.
    folder.write("a.log", "b1\n");
    let splits = source.discover(&known).await.unwrap();
    assert_eq!(splits.len(), 1);
    assert!(!known.contains(&splits[0].id));
    folder.append("a.log", "b2\n");
    let known = known.into_iter().chain([splits[0].id.clone()]).collect();
    assert_eq!(source.discover(&known).await.unwrap(), [], "growing changes nothing");
}

#[tokio::test]
async fn compressed_files_are_taken_up_when_they_are_complete() {
    let folder = Folder::new();
    let bytes = zstd::encode_all(&b"one\ntwo"[..], 1).unwrap();
    folder.write("a.log.zst", &bytes[..5]);
    let mut reading = Reading::start(&folder.source("*", json!({"follow": true, "rotation-wait": "300 ms"}))).await;
    assert_eq!(reading.discover().await, 0, "it was just written to");
    folder.write("a.log.zst", &bytes);
    reading.pause().await;
    assert_eq!(reading.discover().await, 0);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(reading.discover().await, 1);
    assert_eq!(reading.until(2).await.values(), ["one", "two"]);
    assert!(reading.reader.positions()[0].finished);
    assert_eq!(reading.status, ReadStatus::Open, "files may still come");
}

#[tokio::test]
async fn a_file_that_is_written_fast_and_rotated_often_is_read_exactly_once() {
    let folder = Folder::new();
    folder.write("app.log", "0\n");
    let mut reading = Reading::start(&folder.source("app.log*", json!({"follow": true, "rotation-wait": "200 ms"}))).await;
    let path = folder.path("app.log");
    let writer = std::thread::spawn(move || {
        for number in 1..3_000 {
            let mut file = OpenOptions::new().append(true).create(true).open(&path).unwrap();
            let line = format!("{number}\n");
            let (one, two) = line.split_at(line.len() / 2);
            file.write_all(one.as_bytes()).unwrap();
            file.write_all(two.as_bytes()).unwrap();
            if number % 500 == 0 {
                fs::rename(&path, path.with_extension(format!("log.{number}"))).unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    });
    let end = std::time::Instant::now() + PATIENCE;
    while reading.records.len() < 3_000 && std::time::Instant::now() < end {
        reading.discover().await;
        // A restart at any time.
        if reading.records.len() % 7 == 3 {
            let (positions, records) = (reading.reader.positions(), std::mem::take(&mut reading.records));
            reading = Reading::open(&reading.source, positions).await;
            reading.records = records;
        }
        reading.pause().await;
    }
    writer.join().unwrap();
    reading.until(3_000).await;
    let mut numbers: Vec<u32> = reading.values().iter().map(|value| value.parse().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..3_000).collect::<Vec<_>>());
}
