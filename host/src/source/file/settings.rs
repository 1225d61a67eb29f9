//! The options of a file source, checked and with their defaults: what the rest of the module works with.

use super::listing::Pattern;
use super::options::{Compression, OnLostFile};
use crate::record::JsonPointer;
use std::path::Path;
use std::time::Duration;

/// What the parts of a file source share.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) uid: String,
    pub(super) pattern: Pattern,
    /// Whether blank lines are no records.
    pub(super) skip_blank: bool,
    pub(super) key: Option<JsonPointer>,
    pub(super) compression: Compression,
    pub(super) follow: bool,
    pub(super) discovery_interval: Duration,
    pub(super) rotation_wait: Duration,
    /// Bytes of the longest record.
    pub(super) max_record: usize,
    pub(super) on_lost_file: OnLostFile,
}

/// How the bytes of a file are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Plain,
    Gzip,
    Zstd,
}

impl Settings {
    /// How a file is to be read, by the option or its name.
    pub(super) fn encoding(&self, path: &Path) -> Encoding {
        match self.compression {
            Compression::None => Encoding::Plain,
            Compression::Gzip => Encoding::Gzip,
            Compression::Zstd => Encoding::Zstd,
            Compression::Auto => match path.extension().and_then(|extension| extension.to_str()) {
                Some("gz" | "gzip") => Encoding::Gzip,
                Some("zst" | "zstd") => Encoding::Zstd,
                _ => Encoding::Plain,
            },
        }
    }
}
