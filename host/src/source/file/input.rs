//! A file as a stream of its content, from a byte on.

use super::settings::Encoding;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};

/// Compressed bytes that are read at once.
const COMPRESSED_READ_BYTES: usize = 128 << 10;

/// The content of a file from a byte of it on, up to what lies within the first `size` bytes of the file.
pub(super) struct Input(Box<dyn Read + Send>);

impl Input {
    /// Opens the content of a file. A compressed one is decompressed from its beginning, to skip what was read before.
    ///
    /// # Errors
    /// Reading; damaged content; content that ends before `offset`.
    pub(super) fn open(file: &File, encoding: Encoding, offset: u64, size: Option<u64>) -> io::Result<Self> {
        let mut file = file.try_clone()?;
        let size = size.unwrap_or(u64::MAX);
        if encoding == Encoding::Plain {
            file.seek(SeekFrom::Start(offset))?;
            return Ok(Self(Box::new(file.take(size.saturating_sub(offset)))));
        }
        file.rewind()?;
        let compressed = BufReader::with_capacity(COMPRESSED_READ_BYTES, file.take(size));
        let mut content: Box<dyn Read + Send> = match encoding {
            Encoding::Zstd => Box::new(zstd::Decoder::with_buffer(compressed)?),
            _ => Box::new(flate2::bufread::MultiGzDecoder::new(compressed)),
        };
        let skipped = io::copy(&mut content.by_ref().take(offset), &mut io::sink())?;
        if skipped < offset {
            let message = format!("its content ends at byte {skipped}, but {offset} bytes were already read");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
        }
        Ok(Self(content))
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}
