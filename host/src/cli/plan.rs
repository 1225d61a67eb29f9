//! `waterwheel plan job.yaml`

use crate::pipeline::plan::{AssumedPlugins, Format};
use crate::pipeline::{Connectors, Job, Plan};
use std::path::PathBuf;
use std::process::ExitCode;

/// Draws the graph of a job, with its tasks and its guarantees.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The job file, YAML or JSON.
    file: PathBuf,
    /// How to draw it.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn run(arguments: &Arguments, connectors: &Connectors) -> ExitCode {
    match Job::read(&arguments.file, connectors).and_then(|job| Plan::build(&job, &AssumedPlugins::of(job.spec()))) {
        Ok(plan) => super::print(&plan.draw(arguments.format)),
        Err(faults) => super::report(&arguments.file, &faults),
    }
}
