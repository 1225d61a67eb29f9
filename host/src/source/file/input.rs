//! A file as a stream of its content, from a byte on.

use super::settings::Encoding;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::sync::Arc;

/// What a member of a gzip file begins with.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Compressed bytes that are read at once.
const COMPRESSED_READ_BYTES: usize = 128 << 10;

/// The content of a file from a byte of it on, up to what lies within the first `size` bytes of the file.
pub(super) struct Input(Box<dyn Read + Send>);

impl Input {
    /// Opens the content of a file. A compressed one is decompressed from its beginning, to skip what was read before.
    ///
    /// # Errors
    /// Reading; damaged content; content that ends before `offset`.
    pub(super) fn open(file: &Arc<File>, encoding: Encoding, offset: u64, size: Option<u64>) -> io::Result<Self> {
        // One descriptor: the rest of the source reads at places that it names, which moves nothing here.
        let mut file = Arc::clone(file);
        let size = size.unwrap_or(u64::MAX);
        if encoding == Encoding::Plain {
            file.seek(SeekFrom::Start(offset))?;
            return Ok(Self(Box::new(file.take(size.saturating_sub(offset)))));
        }
        file.rewind()?;
        let compressed = BufReader::with_capacity(COMPRESSED_READ_BYTES, file.take(size));
        let mut content: Box<dyn Read + Send> = match encoding {
            Encoding::Zstd => Box::new(zstd::Decoder::with_buffer(compressed)?),
            _ => Box::new(Members::Behind(Some(compressed), 0)),
        };
        let skipped = io::copy(&mut content.by_ref().take(offset), &mut io::sink()).map_err(cut_off)?;
        if skipped < offset {
            let message = format!("its content ends at byte {skipped}, but {offset} bytes were already read");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
        }
        Ok(Self(content))
    }
}

/// The members of a gzip file, end to end. Zeros behind the last one are padding, as for gzip(1); anything else there is an error.
enum Members<R> {
    /// Within a member, of which so many came before.
    Within(Box<flate2::bufread::GzDecoder<R>>, u64),
    /// Behind so many members; without a reader at the end, or after a failure.
    Behind(Option<R>, u64),
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            match std::mem::replace(self, Self::Behind(None, 0)) {
                Self::Within(mut member, before) => {
                    let read = member.read(buffer)?;
                    if read > 0 {
                        *self = Self::Within(member, before);
                        return Ok(read);
                    }
                    *self = Self::Behind(Some(member.into_inner()), before + 1);
                }
                Self::Behind(None, _) => return Ok(0),
                Self::Behind(Some(mut compressed), before) => {
                    if !has_member(&mut compressed, before)? {
                        return Ok(0);
                    }
                    *self = Self::Within(Box::new(flate2::bufread::GzDecoder::new(compressed)), before);
                }
            }
        }
    }
}

/// Whether another member follows.
fn has_member(compressed: &mut impl BufRead, before: u64) -> io::Result<bool> {
    let start = compressed.fill_buf()?;
    match (start.first(), start.get(1)) {
        (None, _) => return Ok(false),
        (Some(first), second) if *first == GZIP_MAGIC[0] && second.is_none_or(|second| *second == GZIP_MAGIC[1]) => return Ok(true),
        _ if before == 0 => return Err(io::Error::new(io::ErrorKind::InvalidData, "it does not begin as gzip data does")),
        _ => {}
    }
    loop {
        let padding = compressed.fill_buf()?;
        if padding.is_empty() {
            return Ok(false);
        }
        if padding.iter().any(|byte| *byte != 0) {
            let message = "bytes that are no gzip data follow behind its end: cut them off, or compress the file anew";
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        let length = padding.len();
        compressed.consume(length);
    }
}

/// What a decoder says of data that end in the middle, in words.
fn cut_off(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            io::Error::new(io::ErrorKind::UnexpectedEof, "it is cut off: the compressed data end in the middle")
        }
        _ => error,
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(cut_off)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn content(encoding: Encoding, bytes: &[u8]) -> Result<String, String> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let mut text = String::new();
        let mut input = Input::open(&Arc::new(file), encoding, 0, None).map_err(|error| error.to_string())?;
        input.read_to_string(&mut text).map(|_| text).map_err(|error| error.to_string())
    }

    #[test]
    fn gzip_members_follow_one_another_and_zeros_behind_them_are_padding() {
        let two = [gzip(b"one"), gzip(b"two")].concat();
        assert_eq!(content(Encoding::Gzip, &two).unwrap(), "onetwo");
        assert_eq!(content(Encoding::Gzip, &[&two[..], &[0; 300_000]].concat()).unwrap(), "onetwo");
        assert_eq!(content(Encoding::Gzip, &[gzip(b""), gzip(b"x")].concat()).unwrap(), "x");
    }

    #[test]
    fn what_is_no_gzip_is_told() {
        let one = gzip(b"one");
        for garbage in [&b"garbage"[..], b"\0\0garbage", b"\x1fx", &[&[0; 10][..], &one].concat()] {
            let fault = content(Encoding::Gzip, &[&one[..], garbage].concat()).unwrap_err();
            assert!(fault.contains("follow behind its end"), "{fault}");
        }
        assert!(content(Encoding::Gzip, b"plain").unwrap_err().contains("does not begin as gzip"));
        assert_eq!(content(Encoding::Gzip, b"").unwrap(), "");
    }

    #[test]
    fn compressed_data_that_end_in_the_middle_are_told_wherever_they_are_cut() {
        let text: Vec<u8> = (0..1_000_u32).flat_map(|number| format!("{}\n", number.wrapping_mul(2_654_435_761)).into_bytes()).collect();
        for (encoding, whole) in [(Encoding::Gzip, gzip(&text)), (Encoding::Zstd, zstd::encode_all(&text[..], 3).unwrap())] {
            for length in [1, 3, 9, whole.len() / 2, whole.len() - 9, whole.len() - 1] {
                let fault = content(encoding, &whole[..length]).unwrap_err();
                assert!(fault.contains("cut off"), "{encoding:?} cut to {length} bytes: {fault}");
            }
        }
    }
}
