//! `waterwheel kafka …`: what one needs of a Kafka cluster beside a job, one file a command.

mod connection;
mod produce;
mod topics;

use crate::Error;
use clap::Subcommand;
use connection::Connection;
use std::process::ExitCode;

/// A command for a cluster.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists, creates and deletes topics.
    #[command(subcommand)]
    Topics(topics::Command),
    /// Writes the lines of the standard input to a topic, a record each.
    Produce(produce::Arguments),
}

/// Runs a command. What is wrong is one sentence on the standard error, and exit code 1, or 2 for options that cannot be.
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    if let Err(error) = connection::init_log() {
        return fail(&error.to_string());
    }
    let options = match arguments.connection.check() {
        Ok(options) => options,
        Err(messages) => {
            for message in messages {
                eprintln!("waterwheel: {message}");
            }
            return ExitCode::from(super::WRONG_SPECIFICATION);
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("the runtime cannot be started: {error}")),
    };
    let done = match &arguments.command {
        Command::Topics(command) => runtime.block_on(topics::run(command, &options)),
        Command::Produce(arguments) => runtime.block_on(produce::run(arguments, &options)),
    };
    match done {
        Ok(text) => super::print(&text),
        Err(error) => fail(&error.chain()),
    }
}

/// What a command prints when it went well.
type Outcome = Result<String, Error>;

fn fail(message: &str) -> ExitCode {
    eprintln!("waterwheel: {message}");
    ExitCode::FAILURE
}
