//! Checkpoints that were damaged after they were written: the damaged file is named, and the job is never begun again in silence.

use crate::check;
use crate::job::{Job, NARROW, Shape};
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
    let manifest = String::from_utf8(fs::read(newest_manifest(job)).unwrap()).unwrap();
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
    for (damage, words) in [(Damage::Truncated, "is damaged"), (Damage::BitFlipped, "is damaged"), (Damage::Missing, "is missing")] {
        let job = job_that_was_killed();
        let files = state_files(&job);
        assert!(!files.is_empty(), "the checkpoint has no state");
        refused_until_repaired(&job, files.last().unwrap(), damage, &["state file", words, "restore it from a backup"]);
    }
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
