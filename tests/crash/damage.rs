//! Checkpoints that were damaged after they were written: the damaged file is named, and the job is never begun again in silence.

use crate::check;
use crate::job::{Job, NARROW, Shape};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const FAILED: i32 = 1;

/// What happens to a file.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Truncated,
    BitFlipped,
    Missing,
}

impl Damage {
    fn inflict(self, path: &Path) {
        let mut content = fs::read(path).unwrap();
        let middle = content.len() / 2;
        match self {
            Self::Truncated => content.truncate(middle),
            Self::BitFlipped => content[middle] ^= 1,
            Self::Missing => return fs::remove_file(path).unwrap(),
        }
        fs::write(path, content).unwrap();
    }
}

fn job_that_was_killed() -> Job {
    let job = Job::new(Shape { two_sinks: false, ..NARROW });
    assert!(job.run_until(10).kill(), "it was to be killed in the middle");
    job
}

fn newest_manifest(job: &Job) -> PathBuf {
    let number = |path: &PathBuf| path.file_name()?.to_str()?.strip_prefix("chk-")?.parse::<u64>().ok();
    let folders = fs::read_dir(job.path("checkpoints/orders")).unwrap().map(|entry| entry.unwrap().path());
    let with_manifest = folders.filter(|folder| number(folder).is_some() && folder.join("_metadata").exists());
    with_manifest.max_by_key(number).unwrap().join("_metadata")
}

/// The state files that the newest manifest names.
fn state_files(job: &Job) -> Vec<PathBuf> {
    let manifest = newest_manifest_text(job);
    let files = manifest.split('"').filter(|text| text.ends_with(".state"));
    files.map(|file| job.path("checkpoints").join(file)).collect()
}

/// The job refuses to start and names the file; nothing changes; with the file put back it goes on.
fn refused_until_repaired(job: &Job, file: &Path, damage: Damage, words: &[&str]) {
    let (good, before) = (fs::read(file).unwrap(), check::visible(&job.totals()));
    damage.inflict(file);
    for _ in 0..2 {
        let ended = job.run(&[]);
        ended.expect(FAILED, words);
        let within = file.strip_prefix(job.path("checkpoints")).unwrap();
        assert!(ended.said.contains(within.to_str().unwrap()), "{} is not named:\n{}", within.display(), ended.said);
    }
    let after = check::visible(&job.totals());
    assert!(before.iter().all(|(path, content)| after.get(path) == Some(content)), "{damage:?}: visible output was changed");
    fs::write(file, good).unwrap();
    job.finish();
    job.check();
}

#[test]
fn a_damaged_manifest_is_named_and_the_job_does_not_begin_again() {
    for (damage, words) in [(Damage::Truncated, "truncated"), (Damage::BitFlipped, "checksum does not match")] {
        let job = job_that_was_killed();
        refused_until_repaired(&job, &newest_manifest(&job), damage, &["is damaged", words]);
    }
}

#[test]
fn a_damaged_state_file_is_named_and_the_job_does_not_begin_again() {
    for (damage, words) in
        [(Damage::Truncated, "has the wrong length"), (Damage::BitFlipped, "is damaged"), (Damage::Missing, "is missing")]
    {
        let job = job_that_was_killed();
        let files = state_files(&job);
        assert!(!files.is_empty(), "the checkpoint has no state");
        refused_until_repaired(&job, files.last().unwrap(), damage, &["state file", words, "waterwheel checkpoint verify"]);
    }
}

#[test]
fn a_start_that_cannot_restore_leaves_nothing_behind() {
    let job = job_that_was_killed();
    let newest = newest_manifest(&job);
    Damage::Missing.inflict(state_files(&job).last().unwrap());
    job.run(&[]).expect(FAILED, &["is missing"]);
    assert_eq!(newest_manifest(&job), newest);
}

#[test]
fn an_older_checkpoint_is_taken_instead_of_one_with_a_damaged_state_file_when_a_person_says_so() {
    for damage in [Damage::Truncated, Damage::BitFlipped, Damage::Missing] {
        let job = job_that_was_killed();
        // Of the newest checkpoint alone: the ones before it do not need its last delta.
        damage.inflict(state_files(&job).last().unwrap());
        job.hurry();
        job.run(&["--older-than-damaged"]).expect(0, &["has finished"]);
        let mut lines = check::lines(&job.totals(), "");
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len() as u64, NARROW.records, "{damage:?}");
    }
}

#[test]
fn a_job_whose_checkpoints_are_gone_does_not_write_its_output_again() {
    let job = job_that_was_killed();
    let before = check::visible(&job.totals());
    fs::remove_dir_all(job.path("checkpoints")).unwrap();
    job.run(&[]).expect(FAILED, &["job orders has no checkpoints in", "part-totals@orders-", "--fresh"]);
    assert_eq!(check::visible(&job.totals()), before);
    job.hurry();
    job.run(&["--fresh"]).expect(0, &["has finished"]);
}

#[test]
fn a_running_job_whose_checkpoints_are_removed_stops_and_puts_nothing_more() {
    let job = Job::new(Shape { two_sinks: false, ..NARROW });
    let process = job.run_until(10);
    // Renamed: removing takes several steps, in which the job may still make folders.
    fs::rename(job.path("checkpoints"), job.path("moved")).unwrap();
    process.wait().expect(FAILED, &["were deleted, moved or replaced while it ran"]);
    assert!(!job.path("checkpoints/orders").join("chk-0").exists());
    fs::remove_dir_all(job.path("checkpoints")).unwrap_or_default();
    fs::rename(job.path("moved"), job.path("checkpoints")).unwrap();
    job.finish();
    job.check();
}

#[test]
fn state_that_is_damaged_under_a_running_job_is_written_anew() {
    let job = Job::new(Shape { two_sinks: false, ..NARROW });
    let mut process = job.run_until(3);
    let damaged = RefCell::new(BTreeSet::new());
    // As soon as state files are folded the damage is seen; the base may have been folded into another one meanwhile.
    process.wait_until("the damage was seen", |process| {
        if let Some(base) = state_files(&job).first()
            && base.exists()
            && damaged.borrow_mut().insert(base.clone())
        {
            Damage::BitFlipped.inflict(base);
        }
        process.said().contains("cannot be restored, and the next one takes the whole state of total")
    });
    process.wait_until("another base was written", |_| state_files(&job).first().is_some_and(|base| !damaged.borrow().contains(base)));
    assert!(process.kill());
    job.finish();
    job.check();
}

fn newest_manifest_text(job: &Job) -> String {
    fs::read(newest_manifest(job)).map(|bytes| String::from_utf8(bytes).unwrap()).unwrap_or_default()
}

#[test]
fn an_older_checkpoint_is_taken_instead_of_a_damaged_one_when_a_person_says_so() {
    let job = job_that_was_killed();
    Damage::BitFlipped.inflict(&newest_manifest(&job));
    job.hurry();
    job.run(&["--older-than-damaged"]).expect(0, &["has finished"]);
    // What the damaged one had shown may be there twice, but all of it is right, and nothing is missing.
    let mut lines = check::lines(&job.totals(), "");
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len() as u64, NARROW.records);
}
