//! `waterwheel validate job.yaml`

use super::plugins::JobArguments;
use crate::pipeline::Connectors;
use std::process::ExitCode;

pub(super) fn run(arguments: &JobArguments, connectors: &Connectors) -> ExitCode {
    match arguments.plan(connectors) {
        Ok(plan) => {
            let (sources, operators, sinks) = (plan.sources().count(), plan.operators().count(), plan.sinks().count());
            let file = arguments.file.display();
            super::print(&format!("{file}: job {} is valid: sources {sources}, operators {operators}, sinks {sinks}\n", plan.name))
        }
        Err(faults) => super::report(&arguments.file, &faults),
    }
}
