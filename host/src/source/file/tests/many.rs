//! More files that are followed than are kept open.

use super::*;
use crate::source::file::worker::MAX_OPEN_FILES;

/// More than twice as many as are kept open.
const MANY: usize = 150;

fn follow() -> Value {
    json!({"follow": true, "rotation-wait": "300 ms"})
}

fn name(number: usize) -> String {
    format!("{number:03}.log")
}

/// Files of a folder that this process has open, by name.
fn open_files(folder: &Folder) -> Vec<String> {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap();
    let paths = descriptors.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    let names = paths.filter_map(|path| Some(path.strip_prefix(folder.0.path()).ok()?.to_str()?.to_owned()));
    names.filter(|name| !name.is_empty()).collect()
}

/// A folder of many files of one line each, which were all read.
async fn many(folder: &Folder) -> Reading {
    for number in 0..MANY {
        folder.write(&name(number), format!("{number}\n"));
    }
    let mut reading = Reading::start(&folder.source("*.log", follow())).await;
    reading.until(MANY).await;
    reading
}

/// One that was closed.
fn closed(folder: &Folder) -> usize {
    let open = open_files(folder);
    (0..MANY).find(|number| !open.contains(&name(*number))).unwrap()
}

#[tokio::test]
async fn many_files_need_few_descriptors_and_all_are_followed() {
    let folder = Folder::new();
    let mut reading = many(&folder).await;
    assert!(open_files(&folder).len() <= MAX_OPEN_FILES, "{:?}", open_files(&folder));
    for round in 1..4 {
        for number in 0..MANY {
            folder.append(&name(number), &format!("{number} again\n"));
        }
        reading.until(MANY * (round + 1)).await;
        assert!(open_files(&folder).len() <= MAX_OPEN_FILES, "{:?}", open_files(&folder));
    }
    let mut again = Reading::open(&reading.source, reading.reader.positions()).await;
    again.pause().await;
    assert_eq!(again.records, []);
}

#[tokio::test]
async fn a_closed_file_that_was_rotated_is_read_to_its_last_line() {
    let folder = Folder::new();
    let mut reading = many(&folder).await;
    let file = name(closed(&folder));
    folder.append(&file, "before\n");
    folder.rename(&file, "rotated");
    folder.append("rotated", "behind\nlast without an end");
    folder.write(&file, "new\n");
    reading.until(MANY + 3).await;
    assert_eq!(reading.discover().await, 1);
    reading.until(MANY + 4).await;
    let mut values = reading.values().split_off(MANY);
    values.sort_unstable();
    assert_eq!(values, ["before", "behind", "last without an end", "new"]);
    let finished = reading.reader.positions().iter().filter(|split| split.finished).count();
    assert_eq!(finished, 1, "the rotated file has come to its end");
}

#[tokio::test]
async fn a_closed_file_that_was_deleted_at_its_end_is_finished() {
    let folder = Folder::new();
    let mut reading = many(&folder).await;
    let file = closed(&folder);
    fs::remove_file(folder.path(&name(file))).unwrap();
    let finished = |reading: &Reading| reading.reader.positions().iter().filter(|split| split.finished).count();
    reading.pause().await;
    assert_eq!(finished(&reading), 0, "it may come back within rotation-wait");
    tokio::time::sleep(Duration::from_millis(600)).await;
    reading.pause().await;
    assert_eq!(finished(&reading), 1);
    assert_eq!(reading.records.len(), MANY);
}

#[tokio::test]
async fn a_closed_file_that_was_deleted_in_the_middle_of_a_line_is_lost() {
    let folder = Folder::new();
    for number in 0..MANY {
        folder.write(&name(number), format!("{number}\nbegun"));
    }
    let mut reading = Reading::start(&folder.source("*.log", follow())).await;
    reading.until(MANY).await;
    fs::remove_file(folder.path(&name(closed(&folder)))).unwrap();
    let error = reading.failure().await;
    assert!(error.to_string().contains("was deleted or moved to another folder") && !error.retry_helps(), "{error}");
}
