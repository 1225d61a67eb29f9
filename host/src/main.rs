//! The command `waterwheel`.

use std::process::ExitCode;
use waterwheel::pipeline::Connectors;

fn main() -> ExitCode {
    waterwheel::cli::run(&Connectors::builtin())
}
