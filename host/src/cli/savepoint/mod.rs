//! `waterwheel savepoint …`: makes savepoints of checkpoints, and looks into savepoints and checkpoints without running a job.

mod create;
mod diff;
mod list;
mod look;
mod read;
mod write;

use super::{Format, Outcome};
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

/// Runs a command. What is wrong is one sentence on the standard error, and exit code 1.
pub(super) fn run(arguments: &Arguments, connectors: &Connectors) -> ExitCode {
    super::answer(async {
        match &arguments.command {
            Command::Create(arguments) => create::run(arguments, connectors).await,
            Command::List(arguments) => list::run(arguments).await,
            Command::Show(arguments) => look::show(arguments).await,
            Command::Verify(arguments) => look::verify(arguments).await,
            Command::Delete(arguments) => look::delete(arguments).await,
            Command::Read(arguments) => read::run(arguments).await,
            Command::Write(arguments) => write::run(arguments).await,
            Command::Diff(arguments) => diff::run(arguments).await,
        }
    })
}
