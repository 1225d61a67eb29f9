//! Keyed state: typed values in memory, found by the key in process; what changed since the last export is known without looking
//! for it; what a record wrote can be taken back.
//!
//! Values are kept decoded and encoded when they are exported, so that a record pays for no encoding. The encoding, the same in
//! all SDKs, is MessagePack with structs as maps with field names: it describes itself, so other languages and
//! `waterwheel savepoint read` can read it, and a struct may gain fields (with `#[serde(default)]`) without a new version.

mod arena;
mod broadcast;
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
mod ttl;
mod value;
mod value_store;

pub use broadcast::BroadcastState;
pub use codec::{decode, encode};
pub use declare::Declare;
pub use map::MapState;
pub use ttl::TimeToLive;

#[cfg(not(target_family = "wasm"))]
pub(crate) use codec::split_stamp;
pub use value::KeyedState;

pub(crate) use registry::Registry;
pub(crate) use ttl::{is_lifetime, window_tag};

use chunk::{Chunk, Cursor};
use current::OwnTimer;

use crate::bindings::{Entries, Scope};

/// One declared state, as the snapshot code sees it, whatever its types.
pub(crate) trait Store {
    fn name(&self) -> &str;
    fn version(&self) -> u32;
    /// As in the plugin's description: "value", "map" or "broadcast".
    fn kind(&self) -> &'static str;
    /// Takes back what the record in process wrote.
    fn roll_back(&self);
    /// Adds entries to the chunk until it is full, going on where the cursor stands. Returns whether that was the last of them.
    fn export(&self, scope: Scope, cursor: &mut Cursor, chunk: &mut Chunk) -> Result<bool, String>;
    fn import(&self, entries: &Entries) -> Result<(), String>;
    /// Whether the key has changes that were not exported.
    fn has_changes(&self, key: &[u8]) -> bool;
    fn evict(&self, key: &[u8]);
    /// The tag of its timers, if it has a time to live.
    fn lifetime(&self) -> Option<u32>;
    /// Lengthens the life of what a step read that did not fail.
    fn settle(&self);
    /// The timer of the key in process has fired: removes what is expired, or sets it anew.
    fn expire(&self, time: i64);
    /// Begins the life of what was imported without one, and sets timers for it.
    fn begin_lives(&self, arm: &mut dyn FnMut(&[u8], OwnTimer));
}
