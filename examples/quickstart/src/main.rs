//! The quickstart: writes orders to a file, runs the job that adds them up for each user, kills the host with SIGKILL in the middle as often
//! as asked, and checks with a program of its own that the output is exact. The last line is JSON; the exit code says whether it held.

mod check;
mod drive;
mod orders;

use anyhow::{Context, Result};
use clap::Parser;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Runs the quickstart job through kills, and checks its output.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many orders.
    #[arg(long, default_value_t = 1_000_000)]
    records: u64,
    /// How many times the host is killed.
    #[arg(long, default_value_t = 2)]
    kills: u32,
    /// The binary of the host.
    #[arg(long, default_value = "target/release/waterwheel")]
    waterwheel: PathBuf,
    /// The job file.
    #[arg(long, default_value = "examples/quickstart/job.yaml")]
    job: PathBuf,
    /// The folder that the job works in; it is emptied first.
    #[arg(long, default_value = "target/quickstart")]
    folder: PathBuf,
}

/// What the demo came to.
#[derive(Debug, Serialize)]
struct Outcome {
    records: u64,
    missing: u64,
    duplicates: u64,
    wrong_totals: u64,
    out_of_order: u64,
    kills: usize,
    /// From each kill to the first record that the next process read, in milliseconds.
    recovery_ms: Vec<u64>,
    records_per_second: u64,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let folder = &arguments.folder;
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| format!("{} cannot be emptied", folder.display()))?;
    }
    std::fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let file = folder.join("orders.jsonl");
    orders::write(&file, arguments.records).with_context(|| format!("{} cannot be written", file.display()))?;
    eprintln!("{} orders are in {}", arguments.records, file.display());

    let began = Instant::now();
    let recoveries = drive::run(&arguments.waterwheel, &arguments.job, arguments.records, arguments.kills)?;
    let time = began.elapsed();
    let checked = check::output(&folder.join("totals"), arguments.records)?;
    let outcome = Outcome {
        records: checked.records,
        missing: checked.missing,
        duplicates: checked.duplicates,
        wrong_totals: checked.wrong_totals,
        out_of_order: checked.out_of_order,
        kills: recoveries.len(),
        recovery_ms: recoveries.iter().map(millis).collect(),
        records_per_second: per_second(arguments.records, time),
    };
    println!("{}", serde_json::to_string(&outcome)?);
    let exact = outcome.missing + outcome.duplicates + outcome.wrong_totals + outcome.out_of_order == 0;
    let complete = outcome.records == arguments.records && outcome.kills == arguments.kills as usize;
    Ok(if exact && complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn millis(duration: &Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn per_second(records: u64, time: Duration) -> u64 {
    let millis = u64::try_from(time.as_millis().max(1)).unwrap_or(u64::MAX);
    records.saturating_mul(1000) / millis
}
