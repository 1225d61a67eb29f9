//! What operators remember: entries in columns, the files of a checkpoint that hold them, and how a base and its deltas become one.
//!
//! The host never needs to understand a value; it needs keys, to deal entries to key groups, and the names and versions of states.

mod chain;
mod data;
mod entries;
mod file;
mod hidden;
mod lines;
mod reader;
pub mod timers;

pub use chain::merge;
pub use entries::{Entries, EntriesFault, EntryRef};
pub use file::{StateFileError, StateWriter, read_chunks};
pub use lines::{StateLine, shown_key, shown_value};
pub use reader::StateReader;
