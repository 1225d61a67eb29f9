//! Disks that are full, read-only or in the way.

use super::*;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// A small file system of its own, unmounted at the end.
struct Mount(TempDir);

impl Mount {
    /// None where this process may not mount; the test then says that it was left out.
    fn new(options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(folder.path()).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(folder)),
            _ => {
                println!("left out: this user may not mount a file system of its own");
                None
            }
        }
    }

    fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "{} is still mounted", self.0.path().display());
    }
}

#[tokio::test]
async fn a_full_disk_is_named_and_a_new_writer_goes_on_when_there_is_space() {
    let Some(disk) = Mount::new("size=1m") else { return };
    let folder = disk.path().join("out");
    let sink = exactly_once(&folder, json!({}));
    let mut first = writer(&sink, 1).await;
    let full = batch(vec!["x".repeat(200 << 10); 8]);
    let error = first.write(&full).await.unwrap_err();
    let message = error.chain();
    assert!(message.contains(folder.to_str().unwrap()) && message.contains("free space"), "{message}");
    assert!(error.retry_helps());
    // What it holds is unknown now, so it must not prepare it.
    let message = first.prepare(&barrier()).await.unwrap_err().to_string();
    assert!(message.contains("failed or was cancelled before"), "{message}");
    drop(first);
    clean_up(&sink, 2, &[]).await;
    let mut second = writer(&sink, 2).await;
    second.write(&batch(["small"])).await.unwrap();
    let prepared = second.prepare(&barrier()).await.unwrap();
    commit(&sink, &prepared).await.unwrap();
    assert_eq!(lines(&folder), ["small"]);
}

#[tokio::test]
async fn a_disk_that_fills_at_prepare_prepares_nothing() {
    let Some(disk) = Mount::new("size=256k") else { return };
    let sink = exactly_once(&disk.path(), json!({"partition-by": {"pointer": "/p"}}));
    let mut writer = writer(&sink, 1).await;
    // Each buffer stays below what is written at once, together they do not fit.
    for partition in 0..4 {
        writer.write(&batch([format!(r#"{{"p":{partition},"x":"{}"}}"#, "x".repeat(100 << 10))])).await.unwrap();
    }
    let message = writer.prepare(&barrier()).await.unwrap_err().chain();
    assert!(message.contains("free space"), "{message}");
    assert!(lines(&disk.path()).is_empty());
}

#[tokio::test]
async fn a_disk_that_is_read_only_is_named() {
    let Some(disk) = Mount::new("ro,size=64k") else { return };
    let error = exactly_once(&disk.path().join("out"), json!({})).open(context("job", 1)).await.err().unwrap();
    let message = error.chain();
    assert!(message.contains(disk.path().to_str().unwrap()) && message.contains("mounted read-only"), "{message}");
    assert!(!error.retry_helps());
}

#[tokio::test]
async fn a_folder_without_permission_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let closed = folder.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    if fs::write(closed.join("probe"), "").is_ok() {
        println!("left out: this user may write everywhere");
        return;
    }
    let message = exactly_once(&closed.join("out"), json!({})).open(context("job", 1)).await.err().unwrap().chain();
    assert!(message.contains("give the user of this process the right to write"), "{message}");
}

#[tokio::test]
async fn a_file_in_the_place_of_the_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    let message = exactly_once(&file, json!({})).open(context("job", 1)).await.err().unwrap().chain();
    assert!(message.contains(file.to_str().unwrap()) && message.contains("move it away"), "{message}");
    assert_eq!(fs::read(&file).unwrap(), b"x");
}

#[tokio::test]
async fn a_folder_that_disappears_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let sink = exactly_once(&out, json!({}));
    let mut writer = writer(&sink, 1).await;
    writer.write(&batch(vec!["x".repeat(300 << 10)])).await.unwrap();
    fs::remove_dir_all(&out).unwrap();
    let message = writer.prepare(&barrier()).await.unwrap_err().chain();
    assert!(message.contains(out.to_str().unwrap()), "{message}");
}

#[tokio::test]
async fn a_job_whose_files_would_have_too_long_names_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let error = exactly_once(folder.path(), json!({})).open(context(&"j".repeat(200), 1)).await.err().unwrap();
    assert!(error.to_string().contains("shorter uid or job name"), "{error}");
}
