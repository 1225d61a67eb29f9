//! Which file is which: device, inode and a fingerprint of the first bytes, since names change and inodes are used again.

use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes that a fingerprint covers at most.
pub(super) const HEAD_BYTES: usize = 256;

/// A fingerprint of the first bytes of a file; those of a file that grows stay the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) length: u16,
    pub(super) hash: u64,
}

impl Head {
    /// The fingerprint of the first bytes, up to [`HEAD_BYTES`].
    pub(super) fn of(bytes: &[u8]) -> Self {
        let bytes = &bytes[..bytes.len().min(HEAD_BYTES)];
        let length = u16::try_from(bytes.len()).expect("invariant: 256 bytes at most");
        Self { length, hash: xxh3_64(bytes) }
    }

    /// Whether the file with these first bytes may be the one with this fingerprint.
    pub(super) fn fits(&self, bytes: &[u8]) -> bool {
        bytes.get(..usize::from(self.length)).is_some_and(|head| Self::of(head) == *self)
    }
}

/// The first bytes of a file, [`HEAD_BYTES`] at most, wherever it is being read.
pub(super) fn read_head(file: &File) -> io::Result<Vec<u8>> {
    let (mut bytes, mut filled) = (vec![0; HEAD_BYTES], 0);
    while filled < HEAD_BYTES {
        match file.read_at(&mut bytes[filled..], filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// What tells a file from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) head: Head,
}

impl Identity {
    /// The identity of a file with these first bytes.
    pub(super) fn of(metadata: &Metadata, head: &[u8]) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino(), head: Head::of(head) }
    }

    /// Whether a file is this one. Its device may have got another number (by a restart of the machine) when it has the same name.
    pub(super) fn is(&self, metadata: &Metadata, head: &[u8], same_name: bool) -> bool {
        self.inode == metadata.ino() && (same_name || self.device == metadata.dev()) && self.head.fits(head)
    }
}

/// The id of a split: the file's name when it was found, and its identity then. The name may be another one's later; the whole never is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SplitId {
    pub(super) name: String,
    pub(super) identity: Identity,
    /// Above 0 for a file that was cut and began anew with the same bytes.
    pub(super) round: u32,
}

impl fmt::Display for SplitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Identity { device, inode, head } = self.identity;
        write!(f, "{}@{device:x}-{inode:x}-{}-{:016x}", self.name, head.length, head.hash)?;
        if self.round > 0 { write!(f, "-{}", self.round) } else { Ok(()) }
    }
}

impl SplitId {
    /// Reads an id, if it is one.
    pub(super) fn parse(id: &str) -> Option<Self> {
        let (name, identity) = id.rsplit_once('@')?;
        let mut parts = identity.split('-');
        let mut hex = || u64::from_str_radix(parts.next()?, 16).ok();
        let (device, inode) = (hex()?, hex()?);
        let head = Head { length: parts.next()?.parse().ok()?, hash: u64::from_str_radix(parts.next()?, 16).ok()? };
        let round = parts.next().map_or(Some(0), |round| round.parse().ok())?;
        let parsed = Self { name: name.to_owned(), identity: Identity { device, inode, head }, round };
        (parsed.to_string() == id).then_some(parsed)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_back() {
        let identity = Identity { device: 0x801, inode: 77, head: Head::of(b"first line\n") };
        for (name, round) in [("a.log", 0), ("odd@1-2/name-3", 2)] {
            let id = SplitId { name: name.into(), identity, round };
            assert_eq!(SplitId::parse(&id.to_string()), Some(id));
        }
        for wrong in ["a.log", "a@1-2-3", "a@1-2-3-zz", "a@1-2-3-4-5-6", "0-of-1"] {
            assert_eq!(SplitId::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_head_fits_what_grew_and_nothing_else() {
        let head = Head::of(b"first");
        assert!(head.fits(b"first") && head.fits(b"first and more"));
        assert!(!head.fits(b"firs") && !head.fits(b"other and more"));
        assert_eq!(Head::of(&[1; 1000]), Head::of(&[1; 256]));
    }
}
