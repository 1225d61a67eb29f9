//! The error that reaches the supervisor of a job: a sentence for people, who has to act, and whether trying again can help.

use std::error::Error as StdError;
use std::fmt;

/// Who has to act on an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The person who wrote the job or the plugin: a wrong option, a record that a plugin cannot process.
    User,
    /// Something outside: storage, a broker, a disk.
    External,
    /// A fault of Waterwheel itself.
    Internal,
}

/// What went wrong in a source, an operator or a sink while a job runs.
///
/// The supervisor restarts the job by its restart strategy when [`Error::retry_helps`], and fails it at once otherwise.
#[derive(Debug)]
pub struct Error {
    class: Class,
    retry_helps: bool,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// A fault of the job's author; trying again cannot help.
    pub fn user(message: impl Into<String>) -> Self {
        Self::new(Class::User, false, message)
    }

    /// A fault of something outside; trying again may help.
    pub fn external(message: impl Into<String>) -> Self {
        Self::new(Class::External, true, message)
    }

    /// A fault of Waterwheel; trying again may help.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Class::Internal, true, message)
    }

    fn new(class: Class, retry_helps: bool, message: impl Into<String>) -> Self {
        Self { class, retry_helps, message: message.into(), source: None }
    }

    /// Keeps the error below as the source.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Says whether trying again can help, where that differs from the class's default.
    #[must_use]
    pub fn with_retry(mut self, helps: bool) -> Self {
        self.retry_helps = helps;
        self
    }

    /// Puts words before the message: which part of the job it happened in.
    #[must_use]
    pub fn within(mut self, place: impl fmt::Display) -> Self {
        let place = format!("{place}: ");
        // Whoever raised it may have said so already.
        if !self.message.starts_with(&place) {
            self.message.insert_str(0, &place);
        }
        self
    }

    /// Who has to act.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Whether the job may be restarted because of it.
    pub fn retry_helps(&self) -> bool {
        self.retry_helps
    }

    /// The message and those of all errors below it, joined by `: `.
    pub fn chain(&self) -> String {
        chain_of(self)
    }
}

/// The message of an error and those of all errors below it, joined by `: `. A message that ends with the one below it is not followed by
/// that one again.
pub fn chain_of(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(error) = below {
        let message = error.to_string();
        if !text.ends_with(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        below = error.source();
    }
    text
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|error| error as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_names_every_cause_once() {
        let cause = std::io::Error::other("no room");
        let error = Error::external("cannot write: no room").caused_by(cause);
        assert_eq!(error.chain(), "cannot write: no room");
        let outer = Error::external("the job failed").caused_by(error);
        assert_eq!(outer.chain(), "the job failed: cannot write: no room");
    }

    #[test]
    fn a_place_is_named_once() {
        let error = Error::user("cannot read").within("source a").within("source a").within("job b");
        assert_eq!(error.to_string(), "job b: source a: cannot read");
    }
}
