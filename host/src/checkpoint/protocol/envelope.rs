//! How a manifest is written: one line that names the format and a checksum, then JSON.
//!
//! ```text
//! waterwheel-manifest 1 sha256:9f86d0… 1234
//! {"kind":{"type":"checkpoint"},…}
//! ```
//! The checksum covers the version as well, so a flipped bit is never mistaken for a newer format, and the
//! length tells a truncated file from a changed one.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::manifest::Manifest;

/// The version that this program writes, and the newest that it reads. Any change of a manifest's fields
/// raises it: a program never guesses at fields that it does not know.
///
/// Each released version of the format gets a savepoint in `tests/golden`, which every later program restores.
pub const FORMAT_VERSION: u32 = 1;

const MAGIC: &str = "waterwheel-manifest";
/// No header is longer; bounds what is searched for the end of the first line.
const MAX_HEADER_BYTES: usize = 160;

/// What is wrong with the bytes of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The file is empty.
    #[error("the file is empty")]
    Empty,
    /// The first line is not that of a manifest.
    #[error("its first line is not that of a manifest")]
    Header,
    /// The file ends too early.
    #[error("it is truncated: {found} of {expected} bytes are there")]
    Truncated {
        /// What the header promises.
        expected: u64,
        /// What is there.
        found: u64,
    },
    /// The file goes on after its end.
    #[error("it has {extra} bytes too many")]
    TooLong {
        /// How many.
        extra: u64,
    },
    /// The content was changed after it was written.
    #[error("its checksum does not match: the content was changed after it was written")]
    Checksum,
    /// Written by a newer program.
    #[error("it has format version {found}, and this program reads up to {FORMAT_VERSION}: use the newer program that wrote it")]
    Version {
        /// The version found.
        found: u32,
    },
    /// Intact, but not what this format describes.
    #[error("its content is not what format version {FORMAT_VERSION} describes: {0}")]
    Content(String),
    /// Intact, but it stands where another one belongs.
    #[error("it says that it belongs into {says}: the file was moved or copied by hand")]
    Misplaced {
        /// Job and slot that it names.
        says: String,
    },
    /// Intact, but a state file that it names is not.
    #[error("its state file {path} {problem}")]
    StateFile {
        /// The file.
        path: String,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// A checksum of a state file, written as `xxh3:0123456789abcdef`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Checksum(u64);

impl Checksum {
    /// The checksum of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(xxhash_rust::xxh3::xxh3_64(bytes))
    }

    /// The checksum of chunks that are written one after the other.
    #[must_use]
    pub fn of_chunks<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = xxhash_rust::xxh3::Xxh3::new();
        for chunk in chunks {
            hasher.update(chunk);
        }
        Self(hasher.digest())
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "xxh3:{:016x}", self.0)
    }
}

impl From<Checksum> for String {
    fn from(checksum: Checksum) -> Self {
        checksum.to_string()
    }
}

impl TryFrom<String> for Checksum {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let digits = text.strip_prefix("xxh3:").filter(|digits| digits.len() == 16);
        match digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
            Some(value) => Ok(Self(value)),
            None => Err(format!("{text:?} is no checksum like xxh3:0123456789abcdef")),
        }
    }
}

/// The bytes of `manifest` as they are stored.
///
/// # Errors
/// When the manifest cannot be written as JSON.
pub fn encode(manifest: &Manifest) -> Result<Vec<u8>, serde_json::Error> {
    let body = serde_json::to_vec(manifest)?;
    let mut bytes = format!("{MAGIC} {FORMAT_VERSION} sha256:{} {}\n", digest(FORMAT_VERSION, &body), body.len()).into_bytes();
    bytes.extend_from_slice(&body);
    Ok(bytes)
}

/// Reads what [`encode`] wrote.
///
/// # Errors
/// Says what is wrong when a single bit is not as it was written.
pub fn decode(bytes: &[u8]) -> Result<Manifest, Damage> {
    if bytes.is_empty() {
        return Err(Damage::Empty);
    }
    let (version, checksum, length, body) = split(bytes)?;
    let found = body.len() as u64;
    if found < length {
        return Err(Damage::Truncated { expected: length, found });
    }
    if found > length {
        return Err(Damage::TooLong { extra: found - length });
    }
    if digest(version, body) != checksum {
        return Err(Damage::Checksum);
    }
    if version != FORMAT_VERSION {
        return Err(Damage::Version { found: version });
    }
    serde_json::from_slice(body).map_err(|error| Damage::Content(error.to_string()))
}

/// Version, checksum, promised length and body.
fn split(bytes: &[u8]) -> Result<(u32, &str, u64, &[u8]), Damage> {
    let head = &bytes[..bytes.len().min(MAX_HEADER_BYTES)];
    let end = head.iter().position(|byte| *byte == b'\n').ok_or(Damage::Header)?;
    let line = std::str::from_utf8(&head[..end]).map_err(|_| Damage::Header)?;
    let words: Vec<&str> = line.split(' ').collect();
    let [MAGIC, version, checksum, length] = words[..] else {
        return Err(Damage::Header);
    };
    let checksum = checksum.strip_prefix("sha256:").filter(|hex| hex.len() == 64).ok_or(Damage::Header)?;
    let canonical = |text: &str| text.parse::<u64>().ok().filter(|number| number.to_string() == text);
    let version = canonical(version).and_then(|number| u32::try_from(number).ok()).ok_or(Damage::Header)?;
    let length = canonical(length).ok_or(Damage::Header)?;
    Ok((version, checksum, length, &bytes[end + 1..]))
}

fn digest(version: u32, body: &[u8]) -> String {
    use fmt::Write as _;
    let mut hasher = Sha256::new();
    hasher.update(format!("{MAGIC} {version}\n"));
    hasher.update(body);
    let mut text = String::with_capacity(64);
    for byte in hasher.finalize() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::super::testing::manifest;
    use super::*;

    #[test]
    fn a_manifest_comes_back_as_it_was() {
        let written = manifest("orders", 3, 7);
        assert_eq!(decode(&encode(&written).unwrap()).unwrap(), written);
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let bytes = encode(&manifest("orders", 3, 7)).unwrap();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                assert!(decode(&damaged).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn every_truncation_is_found_and_named() {
        let bytes = encode(&manifest("orders", 3, 7)).unwrap();
        let body_at = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for length in 0..bytes.len() {
            let damage = decode(&bytes[..length]).unwrap_err();
            match length {
                0 => assert_eq!(damage, Damage::Empty),
                _ if length < body_at => assert_eq!(damage, Damage::Header),
                _ => assert!(matches!(damage, Damage::Truncated { .. }), "{damage}"),
            }
        }
        let longer = [&bytes[..], b"x"].concat();
        assert_eq!(decode(&longer).unwrap_err(), Damage::TooLong { extra: 1 });
    }

    #[test]
    fn a_newer_format_is_refused_by_its_version_and_an_unknown_field_too() {
        let body = br#"{"anything":true}"#;
        let newer = [format!("{MAGIC} 9 sha256:{} {}\n", digest(9, body), body.len()).as_bytes(), body].concat();
        assert_eq!(decode(&newer).unwrap_err(), Damage::Version { found: 9 });

        let mut value = serde_json::to_value(manifest("orders", 3, 7)).unwrap();
        value["surprise"] = serde_json::json!(1);
        let body = serde_json::to_vec(&value).unwrap();
        let same = [format!("{MAGIC} 1 sha256:{} {}\n", digest(1, &body), body.len()).as_bytes(), &body].concat();
        assert!(matches!(decode(&same).unwrap_err(), Damage::Content(text) if text.contains("surprise")));
    }

    #[test]
    fn checksums_of_chunks_and_of_the_whole_agree() {
        assert_eq!(Checksum::of(b"abcdef"), Checksum::of_chunks([&b"ab"[..], b"", b"cdef"]));
        let text = Checksum::of(b"abc").to_string();
        assert_eq!(Checksum::try_from(text.clone()).unwrap().to_string(), text);
        assert!(Checksum::try_from("xxh3:zz".to_owned()).is_err());
    }
}
