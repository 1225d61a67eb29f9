//! Disks that are full or read-only. They are small ones in memory, which only root can mount; without that right these tests say so and pass.

use crate::check;
use crate::job::{Job, NARROW, Shape};
use serde_json::json;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small disk, unmounted when it is dropped.
struct Disk {
    at: PathBuf,
}

impl Disk {
    /// Mounts one; none when this process may not.
    fn mount(at: PathBuf, options: &str) -> Option<Self> {
        fs::create_dir_all(&at).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&at).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self { at }),
            refused => {
                println!("skipped: no disk can be mounted here ({refused:?})");
                None
            }
        }
    }

    /// Fills it to the last byte; removing the file makes space.
    fn fill(&self) -> PathBuf {
        let path = self.at.join(".ballast");
        let mut file = File::create(&path).unwrap();
        while file.write_all(&[0; 512]).is_ok() {}
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("--lazy").arg(&self.at).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "{} could not be unmounted", self.at.display());
    }
}

fn job() -> Job {
    let job = Job::new(Shape { two_sinks: false, ..NARROW });
    job.change(|job| {
        let delays = json!({"initial-backoff": "50 ms", "max-backoff": "200 ms"});
        job["execution"]["restart-strategy"] = json!({"type": "exponential-delay", "exponential-delay": delays});
    });
    job
}

/// The disk runs full in the middle: the job says so, shows nothing wrong, and goes on when there is space.
fn full_in_the_middle(job: &Job, disk: &Disk, place: &Path) {
    let mut process = job.run_until(3);
    let ballast = disk.fill();
    let said = ["No space left on device", place.to_str().unwrap()];
    process.wait_until("it said that the disk is full", |process| said.iter().all(|words| process.said().contains(words)));
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(process.is_running(), "it gave up:\n{}", process.said());
    check::totals_from(&job.totals(), "", &job.sources, true);
    fs::remove_file(ballast).unwrap();
    process.wait().expect(0, &["has finished"]);
    job.check();
}

#[test]
fn a_full_output_disk_is_named_and_the_job_goes_on_when_there_is_space() {
    let job = job();
    let Some(disk) = Disk::mount(job.totals(), "size=4m") else { return };
    full_in_the_middle(&job, &disk, &job.totals());
}

#[test]
fn a_full_checkpoint_disk_is_named_and_the_job_goes_on_when_there_is_space() {
    let job = job();
    let Some(disk) = Disk::mount(job.path("checkpoints"), "size=4m") else { return };
    full_in_the_middle(&job, &disk, &job.path("checkpoints"));
}

#[test]
fn a_job_killed_on_a_full_checkpoint_disk_goes_on_when_there_is_space() {
    let job = job();
    let Some(disk) = Disk::mount(job.path("checkpoints"), "size=4m") else { return };
    let process = job.run_until(3);
    let ballast = disk.fill();
    std::thread::sleep(std::time::Duration::from_millis(300));
    process.kill();
    // Nothing can be proven of a storage that takes nothing.
    job.run(&[]).expect(1, &["No space left on device", job.path("checkpoints").to_str().unwrap()]);
    fs::remove_file(ballast).unwrap();
    job.finish();
    job.check();
}

#[test]
fn read_only_disks_are_named() {
    let job = job();
    job.change(|job| job["execution"]["restart-strategy"] = json!({"type": "none"}));
    {
        let Some(_disk) = Disk::mount(job.path("checkpoints"), "size=1m,ro") else { return };
        job.run(&[]).expect(1, &[job.path("checkpoints").to_str().unwrap(), "Read-only file system"]);
    }
    {
        let Some(_disk) = Disk::mount(job.totals(), "size=1m,ro") else { return };
        job.run(&[]).expect(1, &["sink totals", job.totals().to_str().unwrap(), "Read-only file system"]);
    }
    job.finish();
    job.check();
}
