//! One file while it is written: a buffer in memory, behind it a hidden file, perhaps compressed, with its length and checksum.

use super::options::Compression;
use flate2::write::GzEncoder;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Instant;

/// A part is written to its file when this much is buffered, in bytes: large writes, and few switches to the threads that may block.
pub(super) const BUFFER_BYTES: usize = 256 << 10;

/// The records of a file that is not closed yet.
#[derive(Debug)]
pub(super) struct Part {
    /// Relative to the sink's path.
    pub(super) folder: String,
    /// What is not in the file yet.
    pub(super) buffer: Vec<u8>,
    /// None until the first bytes are written to it.
    pub(super) output: Option<Output>,
    /// Before compression.
    pub(super) bytes: u64,
    pub(super) records: u64,
    pub(super) opened: Instant,
    /// The writer's tick when it last turned to this part.
    pub(super) last_used: u64,
}

impl Part {
    pub(super) fn new(folder: &str, last_used: u64) -> Self {
        let folder = folder.to_owned();
        Self { folder, buffer: Vec::new(), output: None, bytes: 0, records: 0, opened: Instant::now(), last_used }
    }
}

/// The hidden file of a part.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) folder: PathBuf,
    pub(super) name: super::name::PartName,
    encoder: Encoder,
}

enum Encoder {
    Plain(Counted),
    Gzip(GzEncoder<Counted>),
    Zstd(zstd::Encoder<'static, Counted>),
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain",
            Self::Gzip(_) => "Gzip",
            Self::Zstd(_) => "Zstd",
        })
    }
}

impl Output {
    pub(super) fn new(folder: PathBuf, name: super::name::PartName, file: File, compression: Compression) -> io::Result<Self> {
        let counted = Counted { file, length: 0, checksum: crc32fast::Hasher::new() };
        let encoder = match compression {
            Compression::None => Encoder::Plain(counted),
            Compression::Gzip => Encoder::Gzip(GzEncoder::new(counted, flate2::Compression::default())),
            Compression::Zstd => Encoder::Zstd(zstd::Encoder::new(counted, zstd::DEFAULT_COMPRESSION_LEVEL)?),
        };
        Ok(Self { folder, name, encoder })
    }

    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.encoder {
            Encoder::Plain(file) => file.write_all(bytes),
            Encoder::Gzip(encoder) => encoder.write_all(bytes),
            Encoder::Zstd(encoder) => encoder.write_all(bytes),
        }
    }

    /// Returns when all that was written can be read after a power failure.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        match &mut self.encoder {
            Encoder::Plain(file) => file.file.sync_all(),
            Encoder::Gzip(encoder) => encoder.flush().and_then(|()| encoder.get_ref().file.sync_all()),
            Encoder::Zstd(encoder) => encoder.flush().and_then(|()| encoder.get_ref().file.sync_all()),
        }
    }

    /// Ends the file and syncs it; the path of its folder, its name, its length and its checksum.
    pub(super) fn finish(self) -> io::Result<(PathBuf, super::name::PartName, u64, u32)> {
        let counted = match self.encoder {
            Encoder::Plain(file) => file,
            Encoder::Gzip(encoder) => encoder.finish()?,
            Encoder::Zstd(encoder) => encoder.finish()?,
        };
        counted.file.sync_all()?;
        Ok((self.folder, self.name, counted.length, counted.checksum.finalize()))
    }

    /// Where the file is while it is written.
    pub(super) fn path(&self) -> PathBuf {
        self.folder.join(self.name.in_progress())
    }
}

/// A file that counts what is written to it.
struct Counted {
    file: File,
    length: u64,
    checksum: crc32fast::Hasher,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.checksum.update(&bytes[..written]);
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
