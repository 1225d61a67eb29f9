//! `waterwheel schema`

use crate::pipeline::Connectors;
use crate::pipeline::spec::job_schema;
use std::process::ExitCode;

pub(super) fn run(connectors: &Connectors) -> ExitCode {
    super::print(&format!("{:#}\n", job_schema(connectors)))
}
