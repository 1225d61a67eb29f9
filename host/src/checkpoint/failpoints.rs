//! Places where a crash is provoked in tests, named after the protocol's steps.
//!
//! With feature `failpoints`, `FAILPOINTS="checkpoint::after-manifest=2*off->return(abort)"` (the syntax of the
//! crate `fail`) lets the third pass of that place end the process at once, like `kill -9`: no destructor runs,
//! nothing is flushed. `return(exit)`-less builds contain nothing of this.

/// Every crash point of the protocol and of the sinks that take part in it, in the order in which a run passes them.
pub const CRASH_POINTS: &[&str] = &[
    "recovery::after-generation",
    "recovery::after-forked",
    "recovery::before-copy",
    "recovery::after-copy",
    "recovery::before-roll-forward",
    "recovery::between-sinks",
    "recovery::after-roll-forward",
    "recovery::after-clean-up",
    "sink-file::before-prepare-sync",
    "sink-file::after-prepare",
    "checkpoint::before-manifest",
    "checkpoint::after-manifest",
    "commit::before-last-resource",
    "commit::before-sinks",
    "sink-file::before-rename",
    "sink-file::between-renames",
    "sink-file::after-rename",
    "commit::between-sinks",
    "commit::after-sinks",
    "retention::before-deletes",
    "retention::between-deletes",
    "retention::after-deletes",
];

/// Ends the process here when the failpoint `name` is set to `return(abort)`; sleeps, pauses and prints as the
/// crate `fail` says. Does nothing without feature `failpoints`.
///
/// The environment variable `FAILPOINTS` is read at the first call.
#[cfg(feature = "failpoints")]
pub fn crash_point(name: &'static str) {
    debug_assert!(name.contains("::"), "crash points are named after a step");
    SETUP.call_once(|| {
        // Kept for the life of the process: dropping the scenario would clear the configuration.
        std::mem::forget(fail::FailScenario::setup());
    });
    fail::fail_point!(name, |action| {
        if action.as_deref() == Some("abort") {
            // `abort` raises SIGABRT: no destructor, no flush, no unwinding.
            std::process::abort();
        }
    });
}

#[cfg(feature = "failpoints")]
static SETUP: std::sync::Once = std::sync::Once::new();

/// Does nothing in this build.
#[cfg(not(feature = "failpoints"))]
#[inline]
pub fn crash_point(_name: &'static str) {}
