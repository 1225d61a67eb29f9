//! `waterwheel validate job.yaml`

use crate::pipeline::plan::AssumedPlugins;
use crate::pipeline::{Connectors, Job, Plan};
use std::path::PathBuf;
use std::process::ExitCode;

/// Checks a job file and names every fault.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The job file, YAML or JSON.
    file: PathBuf,
}

pub(super) fn run(arguments: &Arguments, connectors: &Connectors) -> ExitCode {
    let checked = Job::read(&arguments.file, connectors).and_then(|job| Plan::build(&job, &AssumedPlugins::of(job.spec())));
    match checked {
        Ok(plan) => {
            let (sources, operators, sinks) = (plan.sources().count(), plan.operators().count(), plan.sinks().count());
            super::print(&format!(
                "{}: job {} is valid: sources {sources}, operators {operators}, sinks {sinks}\n",
                arguments.file.display(),
                plan.name
            ))
        }
        Err(faults) => super::report(&arguments.file, &faults),
    }
}
