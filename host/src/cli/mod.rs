//! The command line: one file a command.

mod checkpoint;
#[cfg(feature = "kafka")]
mod kafka;
mod plan;
mod plugin;
mod plugins;
mod progress;
mod run;
mod savepoint;
mod schema;
mod validate;

use crate::config::Faults;
use crate::pipeline::Connectors;
use clap::{Parser, Subcommand};
use std::path::Path;
use std::process::ExitCode;

/// Exit code of wrong usage or a wrong specification, the one that clap has for wrong usage.
const WRONG_SPECIFICATION: u8 = 2;

/// A stream host: replayable sources, WebAssembly operators, checkpoints, exactly-once sinks.
#[derive(Debug, Parser)]
#[command(name = "waterwheel", version, propagate_version = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Checks a job file and names every fault.
    Validate(plugins::JobArguments),
    /// Draws the graph of a job, with its tasks and its guarantees.
    Plan(plan::Arguments),
    /// Runs a job in the foreground, from where it stands.
    Run(run::Arguments),
    /// Looks into the checkpoints of a job: which there are, what is in them, whether they are intact.
    Checkpoint(checkpoint::Arguments),
    /// Makes savepoints, and looks into them: state as lines of JSON, what differs between two, whether they are intact.
    Savepoint(savepoint::Arguments),
    /// Checks whether a plugin takes the state that another one, or an older version of it, has written.
    Plugin(plugin::Arguments),
    /// Prints the JSON schema of job files.
    Schema,
    /// Looks into a Kafka cluster, and writes to it: topics, records.
    #[cfg(feature = "kafka")]
    Kafka(kafka::Arguments),
}

/// Runs the command line of this process; `connectors` are the types of sources and sinks that job files can name.
///
/// Exit codes: 0 it went well, 1 it did not, 2 wrong usage or specification, 3 superseded by a newer run of the job, 130 interrupted.
pub fn run(connectors: &Connectors) -> ExitCode {
    match Arguments::parse().command {
        Command::Validate(arguments) => validate::run(&arguments, connectors),
        Command::Plan(arguments) => plan::run(&arguments, connectors),
        Command::Run(arguments) => run::run(&arguments, connectors),
        Command::Checkpoint(arguments) => checkpoint::run(&arguments, connectors),
        Command::Savepoint(arguments) => savepoint::run(&arguments, connectors),
        Command::Plugin(arguments) => plugin::run(&arguments),
        Command::Schema => schema::run(connectors),
        #[cfg(feature = "kafka")]
        Command::Kafka(arguments) => kafka::run(&arguments),
    }
}

/// For whom a command prints.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Format {
    /// For people.
    #[default]
    Text,
    /// One object, for programs.
    Json,
}

/// What a command prints when it went well.
type Outcome = Result<String, crate::Error>;

/// Runs a command that answers with a text. What is wrong is one sentence on the standard error, and exit code 1.
fn answer(command: impl Future<Output = Outcome>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("the runtime cannot be started: {error}"), 1),
    };
    match runtime.block_on(command) {
        Ok(text) => print(&text),
        Err(error) => fail(&error.chain(), 1),
    }
}

/// Says what went wrong, and gives the exit code.
fn fail(message: &str, code: u8) -> ExitCode {
    say(&format!("waterwheel: {message}"));
    ExitCode::from(code)
}

/// Writes a line to the standard error. Whoever reads it may be gone, or the disk behind it full: what a command does and its exit code
/// do not depend on that, where `eprintln!` would end it with a panic.
fn say(line: &str) {
    use std::io::Write;
    let _gone = writeln!(std::io::stderr(), "{line}");
}

/// Writes to the standard output. Whoever reads it may have seen enough and be gone.
fn print(text: &str) -> ExitCode {
    use std::io::Write;
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => fail(&format!("cannot write to the standard output: {error}"), 1),
    }
}

/// Names every fault of a job file, one a line.
fn report(file: &Path, faults: &Faults) -> ExitCode {
    for fault in &faults.0 {
        say(&format!("{}: {fault}", file.display()));
    }
    let count = faults.0.len();
    say(&format!("{count} {}", if count == 1 { "fault" } else { "faults" }));
    ExitCode::from(WRONG_SPECIFICATION)
}
