//! `waterwheel savepoint …`: makes savepoints of checkpoints, and looks into savepoints and checkpoints without running a job.

mod create;
mod diff;
mod list;
mod look;
mod read;
mod write;

use super::{Format, fail};
use crate::Error;
use crate::pipeline::Connectors;
use std::process::ExitCode;

/// What to do with savepoints.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Makes a savepoint of a checkpoint: the newest that counts, or one by its number. The job may run or not.
    Create(create::Arguments),
    /// The savepoints in a folder.
    List(list::Arguments),
    /// A savepoint or checkpoint as JSON: positions, state files, the plan.
    Show(look::Arguments),
    /// Reads every file and compares lengths and checksums.
    Verify(look::Arguments),
    /// Deletes a savepoint.
    Delete(look::Arguments),
    /// The state in a savepoint or checkpoint, an entry a line, as JSON.
    Read(read::Arguments),
    /// Makes a savepoint of such lines, for a job that is to begin with this state.
    Write(write::Arguments),
    /// Which keys a second savepoint or checkpoint has more, has no more, or has with other values.
    Diff(diff::Arguments),
}

/// What a command prints when it went well.
type Outcome = Result<String, Error>;

/// Runs a command. What is wrong is one sentence on the standard error, and exit code 1.
pub(super) fn run(arguments: &Arguments, connectors: &Connectors) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("the runtime cannot be started: {error}"), 1),
    };
    let done = match &arguments.command {
        Command::Create(arguments) => runtime.block_on(create::run(arguments, connectors)),
        Command::List(arguments) => runtime.block_on(list::run(arguments)),
        Command::Show(arguments) => runtime.block_on(look::show(arguments)),
        Command::Verify(arguments) => runtime.block_on(look::verify(arguments)),
        Command::Delete(arguments) => runtime.block_on(look::delete(arguments)),
        Command::Read(arguments) => runtime.block_on(read::run(arguments)),
        Command::Write(arguments) => runtime.block_on(write::run(arguments)),
        Command::Diff(arguments) => runtime.block_on(diff::run(arguments)),
    };
    match done {
        Ok(text) => super::print(&text),
        Err(error) => fail(&error.chain(), 1),
    }
}
