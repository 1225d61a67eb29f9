//! `waterwheel kafka …`: what one needs of a Kafka cluster beside a job, one file a command.

mod connection;
mod count;
mod lag;
mod numbers;
mod produce;
mod topics;
mod transactions;

use super::{Format, fail};
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
    /// Shows transactions that are open and what waits for them, and aborts them.
    #[command(subcommand)]
    Transactions(transactions::Command),
    /// Writes the lines of the standard input to a topic, a record each.
    Produce(produce::Arguments),
    /// Counts the records of a topic: how many, which twice, which missing.
    Count(count::Arguments),
    /// How far a consumer group is behind.
    Lag(lag::Arguments),
}

/// Runs a command. What is wrong is one sentence on the standard error, and exit code 1, or 2 for options that cannot be.
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    if let Err(error) = connection::init_log() {
        return fail(&error.to_string(), 1);
    }
    let options = match arguments.connection.check() {
        Ok(options) => options,
        Err(messages) => {
            for message in messages {
                super::say(&format!("waterwheel: {message}"));
            }
            return ExitCode::from(super::WRONG_SPECIFICATION);
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("the runtime cannot be started: {error}"), 1),
    };
    let done = match &arguments.command {
        Command::Topics(command) => runtime.block_on(topics::run(command, &options)),
        Command::Transactions(command) => runtime.block_on(transactions::run(command, &options)),
        Command::Produce(arguments) => runtime.block_on(produce::run(arguments, &options)),
        Command::Count(arguments) => runtime.block_on(count::run(arguments, &options)),
        Command::Lag(arguments) => runtime.block_on(lag::run(arguments, &options)),
    };
    match done {
        Ok(text) => super::print(&text),
        Err(error) => fail(&error.chain(), 1),
    }
}

/// What a command prints when it went well.
type Outcome = Result<String, Error>;

fn plural(number: i64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
