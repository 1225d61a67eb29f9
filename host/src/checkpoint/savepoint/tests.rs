//! Savepoints without a job: made of manifests and files that are written here.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tempfile::TempDir;

use super::super::participants::System;
use super::super::protocol::testing::manifest;
use super::super::protocol::{
    Attempt, Checksum, CommittedPoint, Damage, ForkIntent, KeyGroupRange, LogEntry, LogView, Manifest, ManifestKind, OperatorState,
    PreparedWork, Slot, StateFile, StateFileKind, StopRequest, SubtaskState, envelope,
};
use super::super::storage::{self, CheckpointStorage, FilesAt, StorageOptions};
use super::choose::{NoChoice, newest, of_slot};
use super::write::Gathered;
use super::*;
use crate::checkpoint::log::JobLog;
use crate::state::{Entries, EntryRef, StateReader, StateWriter};

fn log(manifests: Vec<Manifest>) -> LogView {
    let entry = |manifest: Manifest| (manifest.slot, LogEntry { path: format!("chk-{}", manifest.slot), content: Ok(Arc::new(manifest)) });
    LogView::new(manifest("orders", 1, 0).job, manifests.into_iter().map(entry).collect())
}

fn transactional(mut manifest: Manifest, committed: Option<&Manifest>) -> Manifest {
    manifest.snapshot.transactional_ids = vec!["orders-0".to_owned()];
    manifest.committed = committed.map(|committed| CommittedPoint { slot: committed.slot, attempt: committed.attempt });
    manifest
}

fn chosen(log: &LogView) -> Result<u64, NoChoice> {
    newest(log).map(|manifest| manifest.slot.0)
}

#[test]
fn without_transactions_the_newest_entry_counts_and_with_them_the_newest_that_was_committed() {
    let of = |slot| manifest("orders", 1, slot);
    assert_eq!(chosen(&log(vec![of(0), of(1), of(2)])), Ok(2));
    let zero = transactional(of(0), None);
    let one = transactional(of(1), Some(&zero));
    let two = transactional(of(2), Some(&one));
    assert_eq!(chosen(&log(vec![zero.clone(), one.clone(), two.clone()])), Ok(1));
    let released = Manifest { released: true, ..two.clone() };
    assert_eq!(chosen(&log(vec![zero.clone(), one.clone(), released])), Ok(2), "it was the job's last");
    let last = Manifest { kind: ManifestKind::Final, ..two.clone() };
    assert_eq!(chosen(&log(vec![zero.clone(), one, last])), Ok(2));
    assert!(matches!(chosen(&log(vec![zero])), Err(NoChoice::NotCommitted { .. })));
    // Retention has deleted the committed one, as it does once a newer one is committed.
    assert_eq!(chosen(&log(vec![two])), Ok(2));
}

#[test]
fn what_does_not_count_is_refused_with_its_reason() {
    let of = |slot| manifest("orders", 1, slot);
    assert!(matches!(chosen(&log(vec![])), Err(NoChoice::Nothing { .. })));
    let by = of(0).job.next_incarnation();
    let forked = Manifest { kind: ManifestKind::Forked { by, intent: ForkIntent::Fresh }, ..of(2) };
    let view = log(vec![of(0), of(1), forked]);
    assert!(matches!(chosen(&view), Err(NoChoice::Replaced { .. })));
    assert_eq!(of_slot(&view, Slot(1)).unwrap().slot, Slot(1), "by its number it can be had");
    assert!(matches!(of_slot(&view, Slot(2)), Err(NoChoice::NoSuch { .. })));
    let discarded = Manifest { kind: ManifestKind::Discarded, ..of(2) };
    assert!(matches!(chosen(&log(vec![of(1), discarded])), Err(NoChoice::Discarded { .. })));
    // A later run went on from 0.
    let copy = Manifest { kind: ManifestKind::Copy { of: of(0).attempt, of_slot: Slot(0), of_start: true }, ..manifest("orders", 2, 2) };
    let view = log(vec![of(0), of(1), copy]);
    assert!(matches!(of_slot(&view, Slot(1)), Err(NoChoice::Rejected { .. })));
    let mut entries: BTreeMap<Slot, LogEntry> = log(vec![of(0), of(1)]).entries().map(|(slot, entry)| (slot, entry.clone())).collect();
    entries.insert(Slot(2), LogEntry { path: "chk-2".to_owned(), content: Err(Damage::Empty) });
    let view = LogView::new(of(0).job, entries);
    assert!(matches!(chosen(&view), Err(NoChoice::Damaged { .. })));
    assert_eq!(of_slot(&view, Slot(1)).unwrap().slot, Slot(1));
}

/// A checkpoint in a folder, with a chain of two files in each of two subtasks.
struct Lab {
    folder: TempDir,
    storage: Arc<dyn CheckpointStorage>,
    checkpoint: Manifest,
}

fn file(entries: &[(&str, Option<&str>)]) -> Bytes {
    let mut writer = StateWriter::default();
    let mut chunk = Entries::of("totals", 3);
    for (key, value) in entries {
        chunk.push(EntryRef { key: key.as_bytes(), subkey: None, value: value.map(str::as_bytes) });
    }
    writer.write(&chunk);
    writer.finish()
}

impl Lab {
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let storage = storage::open(folder.path().join("checkpoints").to_str().unwrap(), StorageOptions::default()).await.unwrap();
        let mut checkpoint = manifest("orders", 1, 7);
        let mut operator = OperatorState::default();
        for subtask in 0..2 {
            let name = |at: u32| format!("orders/shared/1/total-{subtask}-{at}.state");
            let mut chain = Vec::new();
            let changes = [file(&[(&format!("a{subtask}"), Some("1")), ("b", Some("1"))]), file(&[("b", None), ("c", Some("2"))])];
            for (at, (content, kind)) in (0..).zip(changes.into_iter().zip([StateFileKind::Base, StateFileKind::Delta])) {
                let key_groups = KeyGroupRange { first: 0, last: 127 };
                chain.push(StateFile { path: name(at), kind, bytes: content.len() as u64, checksum: Checksum::of(&content), key_groups });
                storage.write(&name(at), vec![content]).await.unwrap();
            }
            operator.subtasks.insert(subtask, SubtaskState { chain, ..SubtaskState::default() });
        }
        operator.subtasks.insert(2, SubtaskState::default());
        checkpoint.snapshot.operators.insert("total".to_owned(), operator);
        checkpoint.snapshot.plan.max_parallelism = 128;
        checkpoint.snapshot.transactional_ids = vec!["orders-0".to_owned()];
        checkpoint.snapshot.pending_stop = Some(StopRequest { drain: false, savepoint: None });
        let (sink, work) = ("out".to_owned(), serde_json::Value::Null);
        let job = checkpoint.job.clone();
        let prepared = PreparedWork { sink, job, generation: checkpoint.generation, checkpoint: checkpoint.attempt, work };
        checkpoint.snapshot.prepared = vec![prepared];
        let lab = Self { folder, storage, checkpoint };
        let entry = Bytes::from(envelope::encode(&lab.checkpoint).unwrap());
        lab.storage.write("orders/chk-7/_metadata", vec![entry]).await.unwrap();
        lab
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn target(&self, name: &str) -> Target {
        Target::new(Some(&self.path(name)), None).unwrap()
    }

    async fn make(&self, name: &str) -> Result<(String, Manifest), SavepointError> {
        make(&self.checkpoint, &FilesAt::root(Arc::clone(&self.storage)), &self.target(name)).await
    }
}

async fn entries(found: &Found) -> Vec<(String, u32, String)> {
    let operator = &found.manifest.snapshot.operators["total"];
    let mut reader = StateReader::new(found.chains(operator).await.unwrap(), 0..128, 128);
    let mut all = Vec::new();
    while let Some(entries) = reader.next_entries().await.unwrap() {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        all.extend(entries.iter().map(|entry| (text(entry.key), entries.version, text(entry.value.unwrap()))));
    }
    all.sort();
    all
}

fn expected() -> Vec<(String, u32, String)> {
    [("a0", "1"), ("a1", "1"), ("c", "2"), ("c", "2")].map(|(key, value)| (key.to_owned(), 3, value.to_owned())).to_vec()
}

#[tokio::test]
async fn a_savepoint_has_one_file_a_subtask_and_nothing_that_belongs_to_the_run() {
    let lab = Lab::new().await;
    let (path, made) = lab.make("sp").await.unwrap();
    let found = find(&path).await.unwrap();
    assert_eq!(found.manifest, made);
    assert!(found.is_savepoint() && made.kind == ManifestKind::Savepoint { bootstrap: false });
    let (snapshot, before) = (&made.snapshot, &lab.checkpoint.snapshot);
    assert_eq!((snapshot.checkpoint, made.attempt, made.slot), (before.checkpoint, lab.checkpoint.attempt, Slot(7)));
    assert!(snapshot.prepared.is_empty() && snapshot.transactional_ids.is_empty() && snapshot.pending_stop.is_none());
    let chains: Vec<usize> = snapshot.operators["total"].subtasks.values().map(|subtask| subtask.chain.len()).collect();
    assert_eq!(chains, [1, 1, 0]);
    assert!(snapshot.files().all(|file| file.kind == StateFileKind::Base && !file.path.contains("shared")));
    assert_eq!(entries(&found).await, expected());
    assert_eq!(verify(&found).await.unwrap(), [""; 0]);
    // The checkpoint itself says the same.
    let checkpoint = find(&lab.path("checkpoints/orders/chk-7")).await.unwrap();
    assert!(!checkpoint.is_savepoint());
    assert_eq!(entries(&checkpoint).await, expected());
    assert_eq!(verify(&checkpoint).await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn it_stands_alone_wherever_it_is_moved() {
    let lab = Lab::new().await;
    lab.make("sp").await.unwrap();
    std::fs::remove_dir_all(lab.path("checkpoints")).unwrap();
    std::fs::create_dir(lab.path("elsewhere")).unwrap();
    std::fs::rename(lab.path("sp"), lab.path("elsewhere/moved")).unwrap();
    for path in [lab.path("elsewhere/moved/"), format!("file://{}", lab.path("elsewhere/moved")), lab.path("elsewhere/moved/_metadata")] {
        assert_eq!(entries(&find(&path).await.unwrap()).await, expected(), "{path}");
    }
    let listed = list(&lab.path("elsewhere")).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].as_ref().unwrap().path, lab.path("elsewhere/moved"));
}

#[tokio::test]
async fn the_same_checkpoint_gives_the_same_savepoint_and_another_one_is_refused() {
    let mut lab = Lab::new().await;
    let (_, first) = lab.make("sp").await.unwrap();
    let bytes = std::fs::read(lab.path("sp/_metadata")).unwrap();
    let (_, second) = lab.make("sp").await.unwrap();
    assert_eq!(first, second);
    // As after a crash before the manifest: the files are written again, as they were.
    std::fs::remove_file(lab.path("sp/_metadata")).unwrap();
    lab.make("sp").await.unwrap();
    assert_eq!(std::fs::read(lab.path("sp/_metadata")).unwrap(), bytes);
    lab.checkpoint.attempt = Attempt::random();
    let refused = lab.make("sp").await.unwrap_err().to_string();
    assert!(refused.contains("there is a savepoint at") && refused.contains("job orders"), "{refused}");
    let refused = lab.target("sp").check().await.unwrap_err().to_string();
    assert!(refused.contains("there is a savepoint at"), "{refused}");
    let (path, _) = lab.make("many/").await.unwrap();
    assert_eq!(path, lab.path("many/savepoint-orders-7"));
}

#[tokio::test]
async fn each_damaged_file_is_named_and_what_was_begun_is_deleted() {
    let lab = Lab::new().await;
    let file = lab.path("checkpoints/orders/shared/1/total-1-1.state");
    let content = std::fs::read(&file).unwrap();
    let cases: [(&str, Option<Vec<u8>>); 3] = [
        ("is missing", None),
        ("has the wrong length", Some(content[1..].to_vec())),
        ("does not match its checksum", Some(content.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at == 20)).collect())),
    ];
    for (problem, damaged) in cases {
        match damaged {
            None => std::fs::remove_file(&file).unwrap(),
            Some(damaged) => std::fs::write(&file, damaged).unwrap(),
        }
        let refused = lab.make("sp").await.unwrap_err().to_string();
        assert!(refused.contains("total-1-1.state") && refused.contains(problem), "{refused}");
        assert!(list(&lab.path("sp")).await.unwrap().is_empty());
        let left = walk(Path::new(&lab.path("sp")));
        assert!(left.is_empty(), "{left:?}");
        let checkpoint = find(&lab.path("checkpoints/orders/chk-7")).await.unwrap();
        let problems = verify(&checkpoint).await.unwrap();
        assert!(problems.len() == 1 && problems[0].contains("total-1-1.state") && problems[0].contains(problem), "{problems:?}");
    }
}

fn walk(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(walk(&entry.path())),
            false => found.push(entry.path().display().to_string()),
        }
    }
    found
}

#[tokio::test]
async fn only_a_savepoint_is_deleted() {
    let lab = Lab::new().await;
    lab.make("sp").await.unwrap();
    std::fs::write(lab.path("sp/notes.txt"), "mine").unwrap();
    let refused = delete(&lab.path("checkpoints/orders/chk-7")).await.unwrap_err().to_string();
    assert!(refused.contains("is a checkpoint of job orders"), "{refused}");
    assert!(matches!(delete(&lab.path("checkpoints")).await, Err(SavepointError::NotThere { .. })));
    delete(&lab.path("sp")).await.unwrap();
    assert_eq!(walk(Path::new(&lab.path("sp"))), [lab.path("sp/notes.txt")], "what is somebody else's stays");
    assert!(matches!(delete(&lab.path("sp")).await, Err(SavepointError::NotThere { .. })));
    assert!(Path::new(&lab.path("checkpoints/orders/chk-7/_metadata")).exists());
}

#[tokio::test]
async fn a_savepoint_that_was_put_into_a_log_by_hand_is_no_entry_of_it() {
    let lab = Lab::new().await;
    lab.make("sp").await.unwrap();
    std::fs::create_dir(lab.path("checkpoints/orders/chk-8")).unwrap();
    std::fs::copy(lab.path("sp/_metadata"), lab.path("checkpoints/orders/chk-8/_metadata")).unwrap();
    let log = JobLog::open(Arc::clone(&lab.storage), Arc::new(System), lab.checkpoint.job.clone()).await.unwrap();
    let entry = log.read_slot(Slot(8)).await.unwrap().unwrap();
    assert!(matches!(entry.content, Err(Damage::Misplaced { says }) if says.contains("savepoint")));
}

#[tokio::test]
async fn a_savepoint_is_written_from_lines_and_its_lines_are_the_same() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("sp").to_str().unwrap().to_owned();
    let target = Target::new(Some(&path), None).unwrap();
    let lines = [
        r#"{"operator":"total","state":"totals","version":3,"key":"anna","subkey":null,"value":{"count":3,"sum":1.5}}"#,
        r#"{"operator":"total","state":"windows","version":1,"key":{"base64":"/w=="},"subkey":17,"value":[1,null]}"#,
    ];
    let mut gathered = Gathered::default();
    lines.iter().chain([&""]).for_each(|line| gathered.add(line).unwrap());
    for (line, problem) in [
        (lines[0], "a second time"),
        (r#"{"operator":"total","state":"totals","key":"a","subkey":1,"value":1}"#, "has subkeys in some entries"),
        (r#"{"operator":"a/b","state":"totals","key":"a","value":1}"#, "is no uid"),
    ] {
        let refused = gathered.add(line).unwrap_err().to_string();
        assert!(refused.contains("line ") && refused.contains(problem), "{refused}");
    }
    assert_eq!(gathered.entries(), 2);
    let (_, made) = write(gathered, "orders", 64, &target).await.unwrap();
    assert!(made.is_bootstrap() && made.snapshot.plan.max_parallelism == 64);
    let found = find(&path).await.unwrap();
    assert_eq!(verify(&found).await.unwrap(), [""; 0]);
    let mut reader = StateReader::new(found.chains(&made.snapshot.operators["total"]).await.unwrap(), 0..64, 64);
    let mut read = Vec::new();
    while let Some(entries) = reader.next_entries().await.unwrap() {
        let line = |entry| crate::state::StateLine::of("total", &entries.state, entries.version, &entry).to_json();
        read.extend(entries.iter().map(line));
    }
    read.sort();
    assert_eq!(read, lines);
    assert!(matches!(write(Gathered::default(), "orders", 64, &target).await, Err(SavepointError::Exists { .. })));
    assert!(matches!(write(Gathered::default(), "a/b", 64, &target).await, Err(SavepointError::Name(_))));
}

#[test]
fn a_savepoint_has_a_place_that_lasts() {
    assert!(matches!(Target::new(None, None), Err(SavepointError::NoPlace)));
    assert!(matches!(Target::new(Some("memory://"), None), Err(SavepointError::InMemory { .. })));
    assert_eq!(Target::new(Some(""), Some("there")).unwrap().as_str(), "there/");
    assert_eq!(Target::new(Some("here"), Some("there")).unwrap().as_str(), "here");
}
