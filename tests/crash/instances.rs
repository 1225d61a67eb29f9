//! Two instances of one job: the later one takes over, and the earlier one stops for good, whenever it notices.

use crate::check;
use crate::job::{Job, NARROW, WIDE};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const SUPERSEDED: i32 = 3;

/// All manifests of the job.
fn manifests(job: &Job) -> BTreeMap<PathBuf, Vec<u8>> {
    let read = |path: PathBuf| Some((path.clone(), std::fs::read(path).ok()?));
    let folders = std::fs::read_dir(job.path("checkpoints/orders")).unwrap();
    folders.filter_map(|folder| read(folder.unwrap().path().join("_metadata"))).collect()
}

fn content(folders: &[&Path]) -> BTreeMap<PathBuf, Vec<u8>> {
    folders.iter().flat_map(|folder| check::visible(folder)).collect()
}

#[test]
fn a_second_instance_takes_over_and_the_first_one_says_so() {
    for shape in [NARROW, WIDE] {
        let job = Job::new(shape);
        let first = job.run_until(4);
        let second = job.start();
        first.wait().expect(SUPERSEDED, &["superseded by generation 2", "another instance of this job", "this one stops"]);
        second.wait().expect(0, &["has finished"]);
        job.check();
    }
}

#[test]
fn instances_that_take_over_in_turn_leave_exact_output() {
    let job = Job::new(WIDE);
    let mut running = job.run_until(2);
    for _ in 0..4 {
        let next = job.run_until(2);
        running.wait().expect(SUPERSEDED, &["superseded"]);
        running = next;
    }
    running.wait().expect(0, &["has finished"]);
    job.check();
}

#[test]
fn a_paused_instance_that_wakes_while_another_runs_writes_nothing_more() {
    let job = Job::new(WIDE);
    let first = job.run_until(4);
    first.signal("STOP");
    // Of generation 1, what is visible stays as it is from when the second one has rolled forward.
    let mut second = job.run_until(6);
    let of_first = |files: BTreeMap<PathBuf, Vec<u8>>| -> BTreeMap<_, _> {
        files.into_iter().filter(|(path, _)| path.to_string_lossy().contains("-000001-")).collect()
    };
    let (totals, cleaned) = (job.totals(), job.path("cleaned"));
    let before = of_first(content(&[&totals, &cleaned]));
    first.signal("CONT");
    assert!(second.is_running(), "the second instance was to be still at work");
    first.wait().expect(SUPERSEDED, &["superseded by generation 2"]);
    assert!(of_first(content(&[&totals, &cleaned])) == before, "the first instance wrote after it was superseded");
    second.wait().expect(0, &["has finished"]);
    job.check();
}

#[test]
fn a_paused_instance_that_wakes_after_the_end_writes_nothing_more() {
    let job = Job::new(WIDE);
    let first = job.run_until(4);
    first.signal("STOP");
    job.finish();
    job.check();
    let (totals, cleaned) = (job.totals(), job.path("cleaned"));
    let (before, log) = (content(&[&totals, &cleaned]), manifests(&job));
    first.signal("CONT");
    first.wait().expect(SUPERSEDED, &["superseded by generation 2"]);
    assert!(content(&[&totals, &cleaned]) == before, "the first instance wrote after it was superseded");
    // It may have put its manifest into a slot that retention had freed, far below the newest, where it counts for nothing.
    assert!(log.iter().all(|(path, content)| manifests(&job).get(path) == Some(content)), "the log was changed");
    job.run(&[]).expect(0, &["had finished before"]);
}

/// Paused in the middle of a commit or before a manifest, which is the worst moment to be superseded.
#[test]
fn an_instance_that_stood_still_in_the_middle_of_a_checkpoint_shows_nothing_twice() {
    for point in [
        "checkpoint::before-manifest",
        "checkpoint::after-manifest",
        "commit::between-sinks",
        "sink-file::before-rename",
        "retention::before-deletes",
    ] {
        let job = Job::new(WIDE);
        let mut first = job.start_with(&[], &format!("{point}=2*off->sleep(1500)->off"));
        first.wait_until("there was output", |_| !check::visible(&job.totals()).is_empty());
        let second = job.start();
        first.wait().expect(SUPERSEDED, &["superseded by generation 2"]);
        second.wait().expect(0, &["has finished"]);
        job.check();
    }
}
