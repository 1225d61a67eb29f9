//! `waterwheel plugin check NEW.wasm --against SAVEPOINT`: whether a plugin takes a state, before a job is upgraded to it.

use super::fail;
use crate::Error;
use crate::checkpoint::savepoint;
use crate::host::{Host, StateVerdict, TriedState};
use crate::plugin::PluginReference;
use serde_json::Value;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// What to do with a plugin.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Gives the state in a savepoint or checkpoint to the plugin and says of each state whether it was taken, migrated or refused; 1 when
    /// one was refused.
    Check(Check),
}

/// Which plugin, and which state.
#[derive(Debug, clap::Args)]
struct Check {
    /// The plugin: a path.
    plugin: PluginReference,
    /// The folder of the savepoint, or of a checkpoint, `{dir}/{job}/chk-{number}`.
    #[arg(long, value_name = "SAVEPOINT")]
    against: String,
    /// The operator whose state it is to take. By default the one that has state, or those whose plugin has the same file name.
    #[arg(long, value_name = "UID")]
    operator: Option<String>,
    /// The configuration to open it with, as JSON. By default the one that the operator had.
    #[arg(long, value_name = "JSON", value_parser = json)]
    config: Option<Value>,
    /// Where compiled plugins are kept.
    #[arg(long, value_name = "FOLDER", env = "WATERWHEEL_PLUGIN_CACHE")]
    plugin_cache: Option<PathBuf>,
}

fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// Runs the command.
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let Command::Check(arguments) = &arguments.command;
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("the runtime cannot be started: {error}"), 1),
    };
    match runtime.block_on(check(arguments)) {
        Ok(tried) => conclude(arguments, &tried),
        Err(error) => fail(&error.chain(), 1),
    }
}

async fn check(arguments: &Check) -> Result<Vec<TriedState>, Error> {
    let found = savepoint::find(&arguments.against).await?;
    let mut builder = Host::builder();
    if let Some(folder) = &arguments.plugin_cache {
        builder = builder.plugin_cache(folder);
    }
    builder.build()?.try_state(&arguments.plugin, &found, arguments.operator.as_deref(), arguments.config.as_ref()).await
}

fn conclude(arguments: &Check, tried: &[TriedState]) -> ExitCode {
    let mut text = String::new();
    for TriedState { operator, state, versions, entries, verdict } in tried {
        let versions = versions.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let verdict = match verdict {
            StateVerdict::Taken => "taken".to_owned(),
            StateVerdict::Migrated(to) => format!("taken and migrated to version {to}"),
            StateVerdict::Refused(sentence) => format!("refused: {sentence}"),
        };
        // Writing to a text cannot fail.
        let _written = writeln!(text, "operator {operator}, state {state}, version {versions}, {entries} entries: {verdict}");
    }
    if tried.is_empty() {
        let _written = writeln!(text, "{} holds no state", arguments.against);
    }
    let printed = super::print(&text);
    let refused = tried.iter().filter(|state| matches!(state.verdict, StateVerdict::Refused(_))).count();
    if refused > 0 {
        return fail(&format!("the plugin {} refuses {refused} of {} states", arguments.plugin, tried.len()), 1);
    }
    printed
}
