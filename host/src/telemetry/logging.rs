//! The log: to standard error, as text for people or as JSON for machines.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io::{self, IsTerminal};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

/// How lines of the log look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// A line of text, with colours on a terminal.
    #[default]
    Text,
    /// An object a line.
    Json,
}

/// Why the log cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The level is none.
    #[error("{level:?} is no log level: write error, warn, info, debug or trace, or a list such as \"info,waterwheel::checkpoint=debug\"")]
    Level {
        /// What was written.
        level: String,
        /// What is wrong there.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The process has a log already.
    #[error("the log of this process was set up before")]
    Again(#[from] tracing_subscriber::util::TryInitError),
}

/// Sends what the process logs to standard error, from a level on: `info`, or a list as `info,waterwheel::checkpoint=debug`.
///
/// For the binary and for embedding programs that have no log of their own; a library that calls it takes the choice from its program.
///
/// # Errors
/// A level that is none, or a process that has a log already.
pub fn init(format: LogFormat, level: &str) -> Result<(), LogError> {
    let filter = filter(level)?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    // It would be said on the standard error that the standard error cannot be written to, and that with a panic.
    let lines = lines.log_internal_errors(false);
    match format {
        LogFormat::Text => lines.with_target(false).finish().try_init()?,
        LogFormat::Json => lines.json().flatten_event(true).finish().try_init()?,
    }
    Ok(())
}

fn filter(level: &str) -> Result<EnvFilter, LogError> {
    let wrong = |source: Box<dyn std::error::Error + Send + Sync>| LogError::Level { level: level.to_owned(), source };
    let directives = level.trim();
    if directives.is_empty() {
        return Err(wrong("there is nothing".into()));
    }
    // A single word that is no level would be taken for the name of a module, and nothing else would be logged.
    if !directives.contains(['=', ',', '[']) {
        directives.parse::<tracing_subscriber::filter::LevelFilter>().map_err(|error| wrong(error.into()))?;
    }
    EnvFilter::try_new(directives).map_err(|error| wrong(error.into()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_is_none_is_named() {
        for right in ["info", "ERROR", "off", "warn,waterwheel::checkpoint=debug"] {
            assert!(filter(right).is_ok(), "{right}");
        }
        for wrong in ["loud", "waterwheel", "waterwheel=loud", ""] {
            let message = filter(wrong).unwrap_err().to_string();
            assert!(message.contains(&format!("{wrong:?} is no log level")), "{message}");
        }
    }

    #[test]
    fn a_second_log_is_refused() {
        // Another test of this process may have been the first.
        let first = init(LogFormat::Json, "off");
        assert!(matches!(first, Ok(()) | Err(LogError::Again(_))));
        assert!(matches!(init(LogFormat::Text, "off"), Err(LogError::Again(_))));
    }
}
