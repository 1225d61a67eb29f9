//! Tests of a plugin, in native code and without a host: `cargo test` is all that they need.
//!
//! [`MapHarness`] and [`KeyedHarness`] run a plugin through the same code that runs it in a component, columns and snapshots included; they
//! play the host: clocks, timers, headers, storage. What the plugin emitted, which records failed, and what it logged and counted is read from
//! [`Observed`], which both give.
//!
//! ```
//! use waterwheel_plugin::testing::{Input, MapHarness};
//! # use waterwheel_plugin::*;
//! # struct Tag;
//! # impl MapPlugin for Tag {
//! #     type Config = NoConfig;
//! #     fn open(_: NoConfig, _: &Environment) -> Result<Self, Failure> { Ok(Self) }
//! #     fn process(&mut self, record: &Record<'_>, out: &mut Output<'_>) -> Result<(), Failure> {
//! #         let region = record.header("region").flatten().ok_or_else(|| fail("no region"))?;
//! #         out.emit(record).set_header("area", region).remove_header("region");
//! #         out.count("tagged", 1);
//! #         Ok(())
//! #     }
//! # }
//! # export_map!(Tag);
//!
//! let mut plugin = MapHarness::<Tag>::open("null")?;
//! plugin.process(&[Input::value("a").key("k").header("region", "north"), Input::value("b")])?;
//!
//! let output = plugin.take_output();
//! assert_eq!((output[0].key_text(), output[0].text()), ("k", "a"));
//! assert_eq!(output[0].headers, [("area".to_owned(), Some(b"north".to_vec()))]);
//! assert_eq!(plugin.take_failures()[0].reason, "no region");
//! assert_eq!(plugin.counter("tagged"), 1);
//! # Ok::<(), String>(())
//! ```

mod columns;
mod keyed;
mod map;
mod observed;
mod snapshot;

pub use crate::bindings::Scope;
pub use keyed::KeyedHarness;
pub use map::MapHarness;
pub use observed::{FailedRecord, Observed, OutputRecord};
pub use snapshot::{Snapshot, StateEntry};

use crate::host::{Header, Place};

/// The environment that a plugin under test is told.
const ENVIRONMENT: &str = r#"{"job":"test","uid":"under-test","subtask":0,"parallelism":1,"attempt":0,"restored":false}"#;

/// A record for a plugin under test. A key is null, and the event time 0, unless it is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Input {
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) timestamp: i64,
    pub(crate) headers: Vec<Header>,
    pub(crate) origin: Option<Place>,
}

impl Input {
    /// A record with this value.
    #[must_use]
    pub fn value(value: impl AsRef<[u8]>) -> Self {
        Self { value: Some(value.as_ref().to_vec()), ..Self::default() }
    }

    /// A record with a null value.
    #[must_use]
    pub fn tombstone() -> Self {
        Self::default()
    }

    /// With this key.
    #[must_use]
    pub fn key(mut self, key: impl AsRef<[u8]>) -> Self {
        self.key = Some(key.as_ref().to_vec());
        self
    }

    /// With this event time, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn timestamp(mut self, timestamp: i64) -> Self {
        self.timestamp = timestamp;
        self
    }

    /// With one more header.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_owned(), Some(value.as_ref().to_vec())));
        self
    }

    /// With one more header, whose value is null.
    #[must_use]
    pub fn null_header(mut self, name: &str) -> Self {
        self.headers.push((name.to_owned(), None));
        self
    }

    /// Read at this place.
    #[must_use]
    pub fn origin(mut self, place: Place) -> Self {
        self.origin = Some(place);
        self
    }
}

impl From<&str> for Input {
    fn from(value: &str) -> Self {
        Self::value(value)
    }
}
