//! Keyed state: typed values in memory, found by the key in process; what changed since the last export is known without looking
//! for it; what a record wrote can be taken back.
//!
//! Values are kept decoded and encoded when they are exported, so that a record pays for no encoding. The encoding, the same in
//! all SDKs, is MessagePack with structs as maps with field names: it describes itself, so other languages and
//! `waterwheel savepoint read` can read it, and a struct may gain fields (with `#[serde(default)]`) without a new version.

mod arena;
mod chunk;
mod codec;
mod current;
mod declare;
mod index;
mod map;
mod map_store;
mod registry;
#[cfg(test)]
mod tests;
mod value;
mod value_store;

pub use codec::{decode, encode};
pub use declare::Declare;
pub use map::MapState;
pub use value::KeyedState;

pub(crate) use registry::Registry;

use chunk::{Chunk, Cursor};

use crate::bindings::{Entries, Scope};

/// One declared state, as the snapshot code sees it, whatever its types.
pub(crate) trait Store {
    fn name(&self) -> &str;
    fn version(&self) -> u32;
    /// As in the plugin's description: "value" or "map".
    fn kind(&self) -> &'static str;
    /// Takes back what the record in process wrote.
    fn roll_back(&self);
    /// Adds entries to the chunk until it is full, going on where the cursor stands. Returns whether that was the last of them.
    fn export(&self, scope: Scope, cursor: &mut Cursor, chunk: &mut Chunk) -> Result<bool, String>;
    fn import(&self, entries: &Entries) -> Result<(), String>;
    /// Whether the key has changes that were not exported.
    fn has_changes(&self, key: &[u8]) -> bool;
    fn evict(&self, key: &[u8]);
}
