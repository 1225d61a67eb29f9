//! Why a call of a plugin failed.

use crate::Error;
use crate::config::{Size, Span};
use std::time::Duration;

/// Why a call of a plugin failed. Each kind has its own sentence, for each has another thing to be done.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The plugin trapped: a panic, an uncaught exception, an exit, memory out of bounds.
    #[error("{}", trap_sentence(message, panic.as_deref(), place.as_deref()))]
    Trap {
        /// What the engine says.
        message: String,
        /// What the plugin's panic hook said before, if it did.
        panic: Option<String>,
        /// The function in which it happened, where the component has names.
        place: Option<String>,
    },
    /// The call took longer than it may.
    #[error("the call took longer than {} (the operator's `limits: call-timeout`)", Span(*limit))]
    Deadline {
        /// How long a call may take.
        limit: Duration,
    },
    /// The plugin asked for more memory than it may use, and could not go on without.
    #[error("the plugin asked for memory up to {}, and may use {} (the operator's `limits: memory`)", Size(*asked as u64), Size(*limit as u64))]
    Memory {
        /// Bytes that it may use.
        limit: usize,
        /// Bytes that it would have used.
        asked: usize,
    },
    /// The plugin refused the whole call, in its own words.
    #[error("{0}")]
    Returned(String),
    /// What the plugin returned is not as the contract says: a sentence.
    #[error("the plugin returned what the contract does not allow: {0}")]
    WrongColumns(String),
    /// The host could not make the call.
    #[error("{}", .0.chain())]
    Host(Error),
}

impl CallError {
    /// Whether a plugin that failed when it was started may be started later: the same memory is as little then.
    pub fn may_pass_at_start(&self) -> bool {
        matches!(self, Self::Deadline { .. })
    }

    /// Whether the fault may lie with the load of the machine and not with a record: such a one is tried again before it is believed.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Deadline { .. } | Self::Memory { .. })
    }
}

fn trap_sentence(message: &str, panic: Option<&str>, place: Option<&str>) -> String {
    let place = place.map(|place| format!(" in {place}")).unwrap_or_default();
    match panic {
        Some(panic) => format!("the plugin panicked: {panic}"),
        None => format!("the plugin trapped{place}: {message}"),
    }
}
