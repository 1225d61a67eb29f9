//! The functions of the host. In a component they are imports; in native code, which is tests, a thread-local [`Fake`] stands in.

/// A header's name and value; a value may be null.
pub type Header = (String, Option<Vec<u8>>);

/// Where a record was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The uid of the source in the job specification.
    pub source: String,
    /// What the source reads in order: a topic's partition, a file.
    pub split: String,
    /// The position in the split, as the source writes it.
    pub position: String,
}

/// How loud a message in the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For whoever looks for a fault.
    Debug,
    /// Worth knowing in ordinary operation.
    Info,
    /// Something is not as it should be, and the plugin goes on.
    Warn,
    /// Something failed.
    Error,
}

/// Messages to the job's log, under the operator's uid. The host may cut long messages and thin out floods.
pub mod log {
    use super::{Level, imp};

    /// Writes a message of level [`Level::Debug`].
    pub fn debug(message: impl AsRef<str>) {
        imp::log(Level::Debug, message.as_ref());
    }

    /// Writes a message of level [`Level::Info`].
    pub fn info(message: impl AsRef<str>) {
        imp::log(Level::Info, message.as_ref());
    }

    /// Writes a message of level [`Level::Warn`].
    pub fn warn(message: impl AsRef<str>) {
        imp::log(Level::Warn, message.as_ref());
    }

    /// Writes a message of level [`Level::Error`].
    pub fn error(message: impl AsRef<str>) {
        imp::log(Level::Error, message.as_ref());
    }
}

pub(crate) use imp::{count, headers, origin};

#[cfg(target_family = "wasm")]
pub(crate) use imp::panicked;

#[cfg(target_family = "wasm")]
mod imp {
    use super::{Header, Level, Place};
    use crate::bindings::common::waterwheel::plugin::host;

    pub(crate) fn log(level: Level, message: &str) {
        let level = match level {
            Level::Debug => host::Level::Debug,
            Level::Info => host::Level::Info,
            Level::Warn => host::Level::Warn,
            Level::Error => host::Level::Error,
        };
        host::log(level, message);
    }

    pub(crate) fn count(counter: &str, by: u64) {
        host::count(counter, by);
    }

    pub(crate) fn headers(row: u32) -> Vec<Header> {
        host::headers(row)
    }

    pub(crate) fn origin(row: u32) -> Option<Place> {
        host::origin(row).map(|place| Place { source: place.source, split: place.split, position: place.position })
    }

    pub(crate) fn panicked(message: &str) {
        host::panicked(message);
    }
}

#[cfg(not(target_family = "wasm"))]
pub(crate) use imp::Fake;

#[cfg(not(target_family = "wasm"))]
mod imp {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use super::{Header, Level, Place};

    /// What a plugin under test sees of its host, and what it told it.
    #[derive(Debug, Default)]
    pub(crate) struct Fake {
        pub(crate) logs: Vec<(Level, String)>,
        pub(crate) counters: BTreeMap<String, u64>,
        /// By row of the batch in process.
        pub(crate) headers: Vec<Vec<Header>>,
        /// By row of the batch in process.
        pub(crate) origins: Vec<Option<Place>>,
    }

    thread_local! {
        static FAKE: RefCell<Fake> = RefCell::default();
    }

    impl Fake {
        /// Runs `call` with this one as the host of the thread.
        pub(crate) fn during<R>(&mut self, call: impl FnOnce() -> R) -> R {
            FAKE.with_borrow_mut(|installed| std::mem::swap(installed, self));
            let result = call();
            FAKE.with_borrow_mut(|installed| std::mem::swap(installed, self));
            result
        }
    }

    pub(crate) fn log(level: Level, message: &str) {
        FAKE.with_borrow_mut(|fake| fake.logs.push((level, message.to_owned())));
    }

    pub(crate) fn count(counter: &str, by: u64) {
        FAKE.with_borrow_mut(|fake| *fake.counters.entry(counter.to_owned()).or_default() += by);
    }

    pub(crate) fn headers(row: u32) -> Vec<Header> {
        FAKE.with_borrow(|fake| fake.headers.get(row as usize).cloned().unwrap_or_default())
    }

    pub(crate) fn origin(row: u32) -> Option<Place> {
        FAKE.with_borrow(|fake| fake.origins.get(row as usize).cloned().flatten())
    }
}
