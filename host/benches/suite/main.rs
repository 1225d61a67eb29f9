//! The benchmarks of `make bench`. CPU time of this process, or time on the clock where it says so; ratios are of figures of one run.
//! A table on the standard output, and JSON in `target/bench/waterwheel.json`. Arguments name the parts to run (`boundary`, `pipeline`,
//! `export`, `recovery`, `kafka`); without any, all are run.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a benchmark that cannot run stops")]

mod boundary;
mod export;
#[cfg(feature = "kafka")]
mod kafka;
mod pipeline;
mod process;
mod recovery;
mod report;

use report::Report;
use std::path::PathBuf;

fn main() {
    // `cargo test --benches` runs this as a test: nothing is measured then.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    #[cfg(feature = "kafka")]
    if kafka::bare::ran() {
        return;
    }
    let parts = parts();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut report = Report::default();
    for part in &parts {
        match part.as_str() {
            "boundary" => runtime.block_on(boundary::measure(&mut report)),
            "pipeline" => runtime.block_on(pipeline::measure(&mut report)),
            "export" => runtime.block_on(export::measure(&mut report)),
            "recovery" => recovery::measure(&mut report),
            #[cfg(feature = "kafka")]
            "kafka" => kafka::measure(&mut report),
            other => panic!("there is no part {other}; there are {PARTS:?}"),
        }
    }
    report.print();
    // Only a whole run is kept.
    if parts.len() == PARTS.len() {
        report.write(&target().join("bench/waterwheel.json"));
    }
}

const PARTS: &[&str] = &[
    "boundary",
    "pipeline",
    "export",
    "recovery",
    #[cfg(feature = "kafka")]
    "kafka",
];

/// The parts that the arguments name, or all.
fn parts() -> Vec<String> {
    let named: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    if named.is_empty() { PARTS.iter().map(|part| (*part).to_owned()).collect() } else { named }
}

/// The root of the workspace.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A sample plugin, built by `plugins/build.sh`.
fn plugin(name: &str) -> PathBuf {
    let folder = std::env::var_os("WATERWHEEL_PLUGINS").map_or_else(|| target().join("plugins"), PathBuf::from);
    folder.join(format!("{name}.wasm"))
}

/// CPU time of this process so far, in nanoseconds: user and system, in steps of 10 ms.
fn cpu_nanoseconds() -> u64 {
    process::cpu_nanoseconds("self")
}
