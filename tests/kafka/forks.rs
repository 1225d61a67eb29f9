//! Beginning again, and restoring an older checkpoint or a copy of one: output repeats where a person allowed it, and only there.

use crate::check::{self, Verdict};
use crate::job::{Job, NARROW, Shape};
use crate::output::Isolation;
use crate::points::FORK_POINT;
use crate::topics::wait_for;
use std::process::Command;
use waterwheel::checkpoint::failpoints::CRASH_POINTS;

const ALLOWED: &str = "--allow-duplicate-output";

/// A job that was killed in the middle, with output and so many checkpoints that after the oldest one output was committed.
fn killed_job() -> Job<'static> {
    let job = Job::new(Shape { records: 3_000, ..NARROW });
    let process = job.run_until(600);
    wait_for("there were three checkpoints", || job.slots(&job.name).len() >= 3);
    assert!(job.kill(process), "it was to be killed in the middle");
    job
}

/// What a reader finds: nothing missing, no wrong totals. Returns how many are there again.
#[track_caller]
fn repeated(job: &Job<'_>) -> u64 {
    let Verdict { missing, duplicates, wrong, examples, .. } = check::totals(&job.read("totals", Isolation::Committed), &job.orders);
    assert_eq!((missing, wrong), (0, 0), "{examples:?}");
    duplicates
}

pub(crate) fn beginning_again_repeats_the_output_once_and_only_when_allowed() {
    let job = killed_job();
    job.run(&["--fresh"]).expect(1, &["would be shown again", ALLOWED]);
    let before = job.read("totals", Isolation::Committed).iter().map(Vec::len).sum::<usize>();
    assert!(before > 0);
    job.conclude_fork(&["--fresh", ALLOWED]);
    assert_eq!(repeated(&job), before as u64);
}

pub(crate) fn an_older_checkpoint_repeats_what_came_after_it_and_no_more() {
    let job = killed_job();
    let oldest = job.slots(&job.name)[0].to_string();
    job.run(&["--from-checkpoint", &oldest]).expect(1, &["would be shown again", ALLOWED]);
    job.conclude_fork(&["--from-checkpoint", &oldest, ALLOWED]);
    let repeated = repeated(&job);
    assert!((1..1_500).contains(&repeated), "{repeated} totals are there again");
    // The old incarnation is closed.
    job.run(&["--from-checkpoint", &oldest]).expect(1, &[]);
}

/// Makes a savepoint of the newest checkpoint that is surely committed.
fn create_savepoint(job: &Job<'_>, to: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_waterwheel"));
    let output = command.args(["savepoint", "create"]).arg(job.path("job.yaml")).args(["--to", to]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn savepoints_of_a_running_and_of_a_stopped_job_are_exact() {
    let job = Job::new(Shape { records: 3_000, ..NARROW });
    let path = |name: &str| job.path(name).to_str().unwrap().to_owned();
    let (beside, last) = (path("beside"), path("last"));
    let mut process = job.start_with(&["--savepoint-on-stop", &last], "");
    job.wait_for_more(&mut process, 300);
    create_savepoint(&job, &beside);
    job.wait_for_more(&mut process, 300);
    process.signal("TERM");
    process.wait().expect(0, &["was stopped", &format!("savepoint {last}")]);
    job.run(&["--from-savepoint", &beside]).expect(1, &["would be shown again", ALLOWED]);
    // Where nothing is known of the job but its transactions.
    std::fs::remove_dir_all(job.path("checkpoints")).unwrap();
    job.conclude_fork(&["--from-savepoint", &last, "--take-over-prefix"]);
    assert_eq!(repeated(&job), 0);
}

pub(crate) fn a_savepoint_of_the_past_repeats_what_came_after_it_and_no_more() {
    let job = Job::new(Shape { records: 3_000, ..NARROW });
    let to = job.path("sp").to_str().unwrap().to_owned();
    let mut process = job.run_until(300);
    create_savepoint(&job, &to);
    job.wait_for_more(&mut process, 300);
    assert!(job.kill(process), "it was to be killed in the middle");
    job.conclude_fork(&["--from-savepoint", &to, ALLOWED]);
    let repeated = repeated(&job);
    assert!((1..2_000).contains(&repeated), "{repeated} totals are there again");
}

/// As a savepoint would be used: the folder of a checkpoint, copied to another place.
pub(crate) fn a_copy_of_a_checkpoint_elsewhere_is_a_fork() {
    // The newest one, after which nothing was committed: nothing is repeated, and nobody needs to allow it.
    let job = Job::new(Shape { records: 3_000, ..NARROW });
    let process = job.run_until(600);
    process.signal("TERM");
    process.wait().expect(0, &["was stopped"]);
    let copy = copy_of(&job, *job.slots(&job.name).last().unwrap());
    job.conclude_fork(&["--from-checkpoint", &copy]);
    assert_eq!(repeated(&job), 0);

    // An older one, after which output was committed.
    let job = killed_job();
    let copy = copy_of(&job, job.slots(&job.name)[0]);
    job.run(&["--from-checkpoint", &copy]).expect(1, &["would be shown again", ALLOWED]);
    job.conclude_fork(&["--from-checkpoint", &copy, ALLOWED]);
    assert!(repeated(&job) > 0);
}

/// Copies a checkpoint's folder, with the state that it refers to, and returns the path.
fn copy_of(job: &Job<'_>, slot: u64) -> String {
    let elsewhere = job.path("elsewhere");
    let copied = Command::new("cp").arg("-r").arg(job.path("checkpoints").join(&job.name)).arg(&elsewhere).status().unwrap();
    assert!(copied.success());
    elsewhere.join(format!("chk-{slot}")).to_str().unwrap().to_owned()
}

pub(crate) fn a_crash_at_each_point_of_a_fork_is_finished_by_the_same_command() {
    let arguments = ["--fresh", ALLOWED];
    let other_sinks = "recovery::between-sinks";
    let points = CRASH_POINTS.iter().filter(|point| point.starts_with("recovery::") && **point != other_sinks);
    for point in points {
        let job = killed_job();
        let before = job.read("totals", Isolation::Committed).iter().map(Vec::len).sum::<usize>();
        job.crash(&arguments, &format!("{point}=return(abort)"));
        // Before its first manifest is there, permission is asked for again; afterwards the plain command goes on with it.
        let asks = [FORK_POINT, "recovery::before-copy"].contains(point);
        job.conclude_fork(if asks { &arguments } else { &[] });
        // Whether it had closed the old log when it crashed decides what the plain command goes on with.
        let repeated = repeated(&job);
        assert!(repeated == before as u64 || (repeated == 0 && *point == "recovery::after-generation"), "{point}: {repeated} of {before}");
    }
}
