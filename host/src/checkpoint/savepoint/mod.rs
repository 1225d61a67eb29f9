//! Savepoints: a checkpoint made into one folder that stands alone, belongs to a person, and can be moved, copied and restored anywhere.
//!
//! ```text
//! {savepoint}/_metadata                            the manifest, put create-if-absent when all files are there
//! {savepoint}/{attempt}/{operator}-{subtask}.state one base file for each subtask that has state
//! ```
//! The manifest stands in the same envelope as an entry of a log; its kind is [`ManifestKind::Savepoint`](super::protocol::ManifestKind), and the
//! paths in it are relative to the folder. Everything else is that of the checkpoint it was made of, also its attempt, so that a restore is
//! judged like that of the checkpoint itself; what belongs to the running job alone is left out: prepared output (it is visible), producers and
//! a pending stop. A folder without `_metadata` is no savepoint.
//!
//! It is made of a completed checkpoint by folding the files of each subtask, so no operator is asked, and whatever wrote the state, the
//! format is that of [state files](crate::state). Reading order: [`choose`] (which checkpoint of a log counts; pure) → [`make()`] → [`find()`] (by its
//! path) → [`verify()`] → [`write`](mod@write) (from entries) → [`delete()`].

pub mod choose;
mod delete;
mod error;
mod find;
mod make;
mod verify;
pub mod write;

pub use delete::delete;
pub use error::SavepointError;
pub use find::{Found, find, list};
pub use make::{Target, make, make_of_log, make_of_slot};
pub use verify::verify;
pub use write::write;

/// The file that makes a folder a savepoint or a checkpoint.
pub const METADATA: &str = "_metadata";

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests;
