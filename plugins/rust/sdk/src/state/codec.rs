//! The encoding of values and subkeys, and how values of older versions are read.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Encodes a value as the SDK stores it: MessagePack, structs as maps with field names.
///
/// # Errors
/// When the value's own serialisation fails.
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    encode_into(&mut bytes, value)?;
    Ok(bytes)
}

/// Decodes a value as the SDK stores it; what a migration reads the old form with.
///
/// # Errors
/// When the bytes do not begin with a `T`.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    rmp_serde::from_slice(bytes).map_err(|error| error.to_string())
}

pub(crate) fn encode_into<T: Serialize + ?Sized>(bytes: &mut Vec<u8>, value: &T) -> Result<(), String> {
    rmp_serde::encode::write_named(bytes, value).map_err(|error| error.to_string())
}

/// What is in front of a value whose life is limited: a MessagePack extension of eight bytes, of this type, no value of serde's.
const STAMP: [u8; 2] = [0xd7, 0x54];

/// Puts the time that a value's life began at, in milliseconds since the Unix epoch, in front of it.
pub(crate) fn encode_stamp_into(bytes: &mut Vec<u8>, stamp: i64) {
    bytes.extend_from_slice(&STAMP);
    bytes.extend_from_slice(&stamp.to_be_bytes());
}

/// Takes the stamp off a value, if it has one.
pub(crate) fn split_stamp(value: &[u8]) -> (Option<i64>, &[u8]) {
    match value.strip_prefix(&STAMP).and_then(<[u8]>::split_first_chunk::<8>) {
        Some((stamp, value)) => (Some(i64::from_be_bytes(*stamp)), value),
        None => (None, value),
    }
}

/// Makes a value of the present version of one of an older version.
pub(crate) type Migrate<T> = Box<dyn Fn(u32, &[u8]) -> Result<T, String>>;

/// Name and version of a state, and how its values are read.
pub(crate) struct Reader<T> {
    pub(crate) name: String,
    pub(crate) version: u32,
    pub(crate) migrate: Option<Migrate<T>>,
}

impl<T> fmt::Debug for Reader<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Reader").field("name", &self.name).field("version", &self.version).finish_non_exhaustive()
    }
}

impl<T: DeserializeOwned> Reader<T> {
    /// Whether values of this version can be read at all.
    pub(crate) fn accept(&self, version: u32) -> Result<(), String> {
        let Self { name, version: own, migrate } = self;
        if version > *own {
            return Err(format!(
                "state `{name}`: the values are of version {version}, and this plugin knows version {own}; restore with a plugin at least as new as the one that wrote them"
            ));
        }
        if version < *own && migrate.is_none() {
            return Err(format!(
                "state `{name}`: the values are of version {version}, this plugin is at version {own} and has no migration from it"
            ));
        }
        Ok(())
    }

    /// Reads a value of an accepted version, and its stamp.
    pub(crate) fn read(&self, version: u32, key: &[u8], value: &[u8]) -> Result<(T, Option<i64>), String> {
        let Self { name, version: own, migrate } = self;
        let (stamp, value) = split_stamp(value);
        let read = match migrate {
            Some(migrate) if version < *own => migrate(version, value).map_err(|reason| {
                format!("state `{name}`, key {}: the value cannot be migrated from version {version} to {own}: {reason}", Shown(key))
            }),
            _ => decode(value).map_err(|reason| {
                format!(
                    "state `{name}`, key {}: the value cannot be read as version {version}: {reason} (when a state's type changes, its version has to rise and a migration has to read the old one)",
                    Shown(key)
                )
            }),
        };
        Ok((read?, stamp))
    }
}

/// A key in a message for people.
pub(crate) struct Shown<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LONGEST: usize = 100;
        let part = &self.0[..self.0.len().min(LONGEST)];
        let dots = if self.0.len() > LONGEST { "…" } else { "" };
        write!(formatter, "\"{}{dots}\"", part.escape_ascii())
    }
}
