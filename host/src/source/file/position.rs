//! The position in a file as a checkpoint keeps it.

use super::identity::{Head, Identity};
use serde::{Deserialize, Serialize};

/// Which file, and the byte at which the next line starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FilePosition {
    /// Where the file was found; when it is another one now, its folder is searched.
    pub(super) path: String,
    device: u64,
    inode: u64,
    head_length: u16,
    /// Hexadecimal, since many JSON readers know no whole number of 64 bits.
    head_hash: String,
    /// Bytes, of the decompressed content where it is compressed.
    pub(super) offset: u64,
    /// Whether the file was given up because it is not the same any more: what stands in its place is to be read as a new one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) lost: bool,
}

impl FilePosition {
    pub(super) fn new(path: String, identity: Identity, offset: u64) -> Self {
        let Identity { device, inode, head } = identity;
        let mut position = Self { path, device, inode, head_length: 0, head_hash: String::new(), offset, lost: false };
        position.set_head(head);
        position
    }

    /// The identity of the file; none when the text of the hash is none.
    pub(super) fn identity(&self) -> Option<Identity> {
        let hash = u64::from_str_radix(&self.head_hash, 16).ok()?;
        Some(Identity { device: self.device, inode: self.inode, head: Head { length: self.head_length, hash } })
    }

    /// Notes a fingerprint of more bytes.
    pub(super) fn set_head(&mut self, head: Head) {
        if self.head_length != head.length {
            self.head_length = head.length;
            self.head_hash = format!("{:016x}", head.hash);
        }
    }
}

/// Where reading a file ends: at its size in bytes (compressed where it is) when it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileStop {
    pub(super) size: u64,
}
