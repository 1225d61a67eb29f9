//! Places where a crash is provoked in tests, named after the protocol's steps.
//!
//! With feature `failpoints`, `FAILPOINTS="checkpoint::after-manifest=2*off->return(abort)"` (the syntax of the
//! crate `fail`) lets the third pass of that place end the process at once, like `kill -9`: no destructor runs,
//! nothing is flushed. Builds without the feature contain nothing of this.

/// Every crash point of the protocol and of the sinks that take part in it, in the order in which a run passes them.
pub const CRASH_POINTS: &[&str] = &[
    "sink-kafka::after-marker-read",
    "recovery::after-generation",
    "recovery::after-forked",
    "sink-kafka::after-fencing-one",
    "recovery::before-copy",
    "recovery::after-copy",
    "recovery::before-roll-forward",
    "recovery::between-sinks",
    "recovery::after-roll-forward",
    "recovery::after-clean-up",
    "sink-file::before-prepare-sync",
    "sink-file::after-prepare",
    "sink-kafka::after-drain",
    "sink-kafka::after-marker",
    "sink-kafka::after-switch",
    "checkpoint::before-manifest",
    "checkpoint::after-manifest",
    "commit::before-last-resource",
    "sink-kafka::before-commit",
    "sink-kafka::after-commit",
    "commit::before-sinks",
    "sink-file::before-rename",
    "sink-file::between-renames",
    "sink-file::after-rename",
    "commit::between-sinks",
    "commit::after-sinks",
    "retention::before-deletes",
    "retention::between-deletes",
    "retention::after-deletes",
    "savepoint::before-files",
    "savepoint::after-file",
    "savepoint::before-manifest",
    "savepoint::after-manifest",
    "savepoint::before-delete",
    "savepoint::between-deletes",
];

/// Ends the process here when the failpoint `name` is set to `return(abort)`, and lets it stand still until it gets SIGCONT when it is set
/// to `return(stop)`; sleeps, pauses and prints as the crate `fail` says. Does nothing without feature `failpoints`.
///
/// The environment variable `FAILPOINTS` is read at the first call.
#[cfg(feature = "failpoints")]
pub fn crash_point(name: &'static str) {
    debug_assert!(name.contains("::"), "crash points are named after a step");
    SETUP.call_once(|| {
        // Kept for the life of the process: dropping the scenario would clear the configuration.
        std::mem::forget(fail::FailScenario::setup());
    });
    fail::fail_point!(name, |action| match action.as_deref() {
        // `abort` raises SIGABRT: no destructor, no flush, no unwinding.
        Some("abort") => std::process::abort(),
        Some("stop") => stand_still(),
        _ => {}
    });
}

/// SIGSTOP: all threads of the process stand still, as on a machine that sleeps.
#[cfg(feature = "failpoints")]
fn stand_still() {
    let stopped = std::process::Command::new("kill").args(["-STOP", &std::process::id().to_string()]).status();
    if !stopped.as_ref().is_ok_and(std::process::ExitStatus::success) {
        // A test that waits for it must not go on as if it had happened.
        eprintln!("the failpoint could not send SIGSTOP: {stopped:?}");
        std::process::abort();
    }
}

#[cfg(feature = "failpoints")]
static SETUP: std::sync::Once = std::sync::Once::new();

/// Does nothing in this build.
#[cfg(not(feature = "failpoints"))]
#[inline]
pub fn crash_point(_name: &'static str) {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::CRASH_POINTS;

    #[test]
    fn the_list_names_exactly_the_points_in_the_code() {
        let sources = [
            include_str!("commit.rs"),
            include_str!("retention.rs"),
            include_str!("savepoint/make.rs"),
            include_str!("savepoint/delete.rs"),
            include_str!("recovery/mod.rs"),
            include_str!("recovery/fork.rs"),
            include_str!("recovery/own_log.rs"),
            include_str!("../sink/file/prepared.rs"),
            include_str!("../sink/file/writer.rs"),
            include_str!("../sink/kafka/transactions/mod.rs"),
            include_str!("../sink/kafka/transactions/owner.rs"),
        ];
        let steps = ["checkpoint::", "commit::", "recovery::", "retention::", "savepoint::", "sink-file::", "sink-kafka::"];
        let literals = sources.iter().flat_map(|source| source.split('"').skip(1).step_by(2));
        let used: BTreeSet<&str> = literals.filter(|text| steps.iter().any(|step| text.starts_with(step))).collect();
        assert_eq!(used, CRASH_POINTS.iter().copied().collect());
        assert_eq!(used.len(), CRASH_POINTS.len(), "a name stands twice in the list");
    }

    /// Passes a crash point five times and says so: the child of the test below.
    #[cfg(feature = "failpoints")]
    #[test]
    fn passes_a_crash_point_five_times() {
        for pass in 1..=5 {
            super::crash_point("checkpoint::before-manifest");
            println!("passed {pass}");
        }
    }

    #[cfg(feature = "failpoints")]
    #[test]
    #[allow(clippy::unwrap_used, reason = "tests")]
    fn the_chosen_pass_ends_the_process() {
        let child = |actions: &str| {
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            command.args(["--nocapture", "--test-threads=1", "passes_a_crash_point_five_times"]);
            command.env("FAILPOINTS", format!("checkpoint::before-manifest={actions}"));
            let output = command.output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            ((1..=5).filter(|pass| text.contains(&format!("passed {pass}"))).count(), output.status.code())
        };
        assert_eq!(child("2*off->return(abort)"), (2, None), "killed by a signal after two passes");
        assert_eq!(child("off"), (5, Some(0)));
    }
}
