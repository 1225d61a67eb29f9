//! The second phase: what a crash at each step leaves, and what a commit, an abort and a clean-up make of it.

use super::*;
use std::path::PathBuf;

fn path(prepared: &Value, name: &str) -> PathBuf {
    prepared[name].as_str().unwrap().into()
}

#[tokio::test]
async fn the_manifest_names_a_file_by_length_and_checksum() {
    let folder = tempfile::tempdir().unwrap();
    let sink = exactly_once(folder.path(), json!({}));
    let mut writer = writer(&sink, 7).await;
    writer.write(&batch(["a", "b"])).await.unwrap();
    let prepared = writer.prepare(&barrier()).await.unwrap();
    let at = folder.path().to_str().unwrap();
    let name = "part-out@job-00000-000007-000000000.jsonl";
    let crc32 = crc32fast::hash(b"a\nb\n");
    let expected = json!({
        "pending": format!("{at}/.{name}.pending"), "target": format!("{at}/{name}"), "length": 4, "crc32": crc32, "records": 2, "number": 0,
    });
    assert_eq!(prepared, [expected]);
}

#[tokio::test]
async fn a_crash_before_prepare_leaves_only_what_a_clean_up_deletes() {
    let folder = tempfile::tempdir().unwrap();
    let sink = exactly_once(folder.path(), json!({"roll-size": "300 KiB"}));
    let mut writer = writer(&sink, 1).await;
    // One file rolled and pending, one in progress.
    writer.write(&batch(vec!["x".repeat(145 << 10); 5])).await.unwrap();
    assert_eq!(lines(folder.path()), [""; 0]);
    let left = hidden(folder.path());
    assert!(left.iter().any(|name| name.ends_with(".pending")), "{left:?}");
    assert!(left.iter().any(|name| name.ends_with(".in-progress")), "{left:?}");
    drop(writer);
    clean_up(&sink, 1, &[]).await;
    assert_eq!(hidden(folder.path()), left, "its own generation is spared");
    clean_up(&sink, 2, &[]).await;
    assert!(files(folder.path()).is_empty());
}

#[tokio::test]
async fn a_crash_between_the_two_steps_of_a_rename_is_repaired_by_the_next_commit() {
    let folder = tempfile::tempdir().unwrap();
    let sink = exactly_once(folder.path(), json!({}));
    let mut writer = writer(&sink, 1).await;
    writer.write(&batch(["a"])).await.unwrap();
    let prepared = writer.prepare(&barrier()).await.unwrap();
    fs::hard_link(path(&prepared[0], "pending"), path(&prepared[0], "target")).unwrap();
    commit(&sink, &prepared).await.unwrap();
    assert_eq!(lines(folder.path()), ["a"]);
    assert!(hidden(folder.path()).is_empty());
}

#[tokio::test]
async fn a_crash_in_the_middle_of_a_commit_is_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let sink = exactly_once(folder.path(), json!({"partition-by": {"pointer": ""}}));
    let mut writer = writer(&sink, 1).await;
    writer.write(&batch(["1", "2", "3"])).await.unwrap();
    let prepared = writer.prepare(&barrier()).await.unwrap();
    assert_eq!(prepared.len(), 3);
    commit(&sink, &prepared[..1]).await.unwrap();
    let restarted = exactly_once(folder.path(), json!({}));
    clean_up(&restarted, 2, &prepared).await;
    commit(&restarted, &prepared).await.unwrap();
    commit(&restarted, &prepared).await.unwrap();
    assert_eq!(lines(folder.path()), ["1", "2", "3"]);
}

#[tokio::test]
async fn another_file_under_the_name_is_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let sink = exactly_once(folder.path(), json!({}));
    let mut writer = writer(&sink, 1).await;
    writer.write(&batch(["right"])).await.unwrap();
    let prepared = writer.prepare(&barrier()).await.unwrap();
    let target = path(&prepared[0], "target");
    // Of the same length.
    fs::write(&target, "wrong\n").unwrap();
    let message = commit(&sink, &prepared).await.unwrap_err().chain();
    assert!(message.contains(target.to_str().unwrap()) && message.contains("not overwritten"), "{message}");
    assert_eq!(fs::read(&target).unwrap(), b"wrong\n");
    assert_eq!(hidden(folder.path()).len(), 1, "the pending file is still there");
    fs::remove_file(&target).unwrap();
    commit(&sink, &prepared).await.unwrap();
    assert_eq!(lines(folder.path()), ["right"]);
}

#[tokio::test]
async fn a_committed_file_that_was_changed_or_moved_is_not_called_done() {
    let folder = tempfile::tempdir().unwrap();
    let sink = exactly_once(folder.path(), json!({}));
    let mut writer = writer(&sink, 1).await;
    writer.write(&batch(["right"])).await.unwrap();
    let prepared = writer.prepare(&barrier()).await.unwrap();
    commit(&sink, &prepared).await.unwrap();
    let target = path(&prepared[0], "target");
    fs::write(&target, "tight\n").unwrap();
    let message = commit(&sink, &prepared).await.unwrap_err().chain();
    assert!(message.contains("CRC-32"), "{message}");
    fs::remove_file(&target).unwrap();
    let error = commit(&sink, &prepared).await.unwrap_err();
    let message = error.chain();
    assert!(message.contains(target.to_str().unwrap()) && message.contains("1 records would be missing"), "{message}");
    assert!(error.retry_helps());
}

#[tokio::test]
async fn a_damaged_pending_file_is_not_made_visible() {
    let folder = tempfile::tempdir().unwrap();
    let sink = exactly_once(folder.path(), json!({}));
    let mut writer = writer(&sink, 1).await;
    writer.write(&batch(["a", "b"])).await.unwrap();
    let prepared = writer.prepare(&barrier()).await.unwrap();
    fs::write(path(&prepared[0], "pending"), "a\n").unwrap();
    let message = commit(&sink, &prepared).await.unwrap_err().chain();
    assert!(message.contains("2 bytes instead of 4"), "{message}");
    assert!(lines(folder.path()).is_empty());
}

#[tokio::test]
async fn work_is_committed_where_it_was_prepared_though_the_path_has_changed() {
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let sink = exactly_once(old.path(), json!({}));
    let mut writer = writer(&sink, 1).await;
    writer.write(&batch(["a"])).await.unwrap();
    let prepared = writer.prepare(&barrier()).await.unwrap();
    commit(&exactly_once(new.path(), json!({})), &prepared).await.unwrap();
    assert_eq!(lines(old.path()), ["a"]);
}

#[tokio::test]
async fn clean_up_touches_nothing_that_is_not_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let elsewhere = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.join("sub/.hidden")).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), root.join("link")).unwrap();
    let leftover = ".part-out@job-00000-000001-000000000.jsonl.pending";
    let foreign = [
        "data.csv",
        ".hidden.pending",
        ".part.pending",
        "part-out@job-00000-000001-000000000.jsonl",
        ".part-other@job-00000-000001-000000000.jsonl.pending",
        ".part-out@job.2-00000-000001-000000000.jsonl.pending",
        ".part-out@job-00000-000009-000000000.jsonl.in-progress",
        ".part-out@job-00000-1-000000000.jsonl.in-progress",
        "sub/.hidden/.part-out@job-00000-000001-000000000.jsonl.pending",
    ];
    for name in foreign {
        fs::write(root.join(name), name).unwrap();
    }
    fs::write(elsewhere.path().join(leftover), "").unwrap();
    for name in [leftover, "sub/.part-out@job-00002-000001-000000000.jsonl.gz.in-progress"] {
        fs::write(root.join(name), "").unwrap();
    }
    fs::create_dir(root.join(".part-out@job-00000-000001-000000005.jsonl.pending")).unwrap();
    clean_up(&exactly_once(root, json!({})), 9, &[]).await;
    fs::remove_file(root.join("link")).unwrap();
    let mut expected = foreign.to_vec();
    expected.sort_unstable();
    assert_eq!(files(root).into_keys().collect::<Vec<_>>(), expected);
    assert!(elsewhere.path().join(leftover).exists(), "links are not followed");
}

#[tokio::test]
async fn what_dead_runs_of_other_logs_and_incarnations_had_in_progress_goes_and_what_is_newer_stays() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let of = |job: &str, generation: u64, state: &str| format!(".part-out@{job}-00000-{generation:06}-000000000.jsonl.{state}");
    let sink = exactly_once(root, json!({}));
    // Checkpoints were deleted or switched on since, and the count of generations began anew.
    let old = [of("job.2", 7, "in-progress"), of("job.2", 1_796_076_667_054, "in-progress"), of("job", 9, "in-progress")];
    // A manifest may name what is pending.
    let kept = [of("job.2", 7, "pending"), of("job.3", 1, "in-progress"), of("jobs", 1, "in-progress")];
    for name in old.iter().chain(&kept) {
        fs::write(root.join(name), "x").unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(30));
    sink.verify().await.unwrap();
    std::thread::sleep(std::time::Duration::from_millis(30));
    let newer = of("job.2", 8, "in-progress");
    fs::write(root.join(&newer), "x").unwrap();
    sink.as_two_phase().unwrap().clean_up("job.2", 2, &[]).await.unwrap();
    let mut expected = [&kept[..], &[newer]].concat();
    expected.sort_unstable();
    assert_eq!(files(root).into_keys().collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn what_is_not_prepared_work_of_a_file_sink_is_refused_before_anything_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let sink = exactly_once(folder.path(), json!({}));
    let precious = folder.path().join("precious");
    fs::write(&precious, "x").unwrap();
    let leftover = folder.path().join(".part-out@job-00000-000001-000000000.jsonl.pending");
    fs::write(&leftover, "x").unwrap();
    let two_phase = sink.as_two_phase().unwrap();
    let forged = json!({"pending": precious, "target": folder.path().join("x"), "length": 1, "crc32": 0, "records": 1, "number": 0});
    for wrong in [forged, json!(null), json!({"transaction": 1})] {
        let prepared = [wrong];
        assert!(two_phase.commit(&prepared).await.is_err());
        assert!(two_phase.abort(&prepared).await.is_err());
        assert!(two_phase.clean_up("job", 9, &prepared).await.is_err());
    }
    assert!(precious.exists() && leftover.exists());
}

#[tokio::test]
async fn a_folder_that_is_not_there_needs_no_cleaning() {
    let folder = tempfile::tempdir().unwrap();
    clean_up(&exactly_once(&folder.path().join("none"), json!({})), 2, &[]).await;
    assert!(!folder.path().join("none").exists());
}
