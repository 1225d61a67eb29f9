//! `waterwheel plan job.yaml`

use super::plugins::JobArguments;
use crate::pipeline::Connectors;
use crate::pipeline::plan::Format;
use std::process::ExitCode;

/// A job file and how to draw it.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    job: JobArguments,
    /// How to draw it.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn run(arguments: &Arguments, connectors: &Connectors) -> ExitCode {
    match arguments.job.plan(connectors) {
        Ok(plan) => super::print(&plan.draw(arguments.format)),
        Err(faults) => super::report(&arguments.job.file, &faults),
    }
}
