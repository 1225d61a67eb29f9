//! The state file of a checkpoint: chunks of entries, each with a checksum.
//!
//! Layout, all numbers little-endian: the magic `WWSTATE1`; chunks of `u32` length of the body, `u32` CRC-32 of the body, body; a chunk of
//! length 0 whose checksum is the number of chunks before it ends the file, so that a file cut anywhere is known as such. A body is the
//! state's name (`u32` length, bytes), `u32` version, `u32` number of entries, then columns, each as `u32` number of ends, the ends, `u32`
//! number of bytes, the bytes: keys, subkeys, values, and `removed` (`u32` length, bytes).

use super::Entries;
use crate::record::Column;
use bytes::Bytes;

const MAGIC: &[u8; 8] = b"WWSTATE1";

/// Why a state file cannot be read: a sentence with the place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("damaged at byte {offset}: {message}")]
pub struct StateFileError {
    offset: usize,
    message: String,
}

/// Writes a state file into memory.
#[derive(Debug)]
pub struct StateWriter {
    buffer: Vec<u8>,
    chunks: u32,
    entries: u64,
}

impl Default for StateWriter {
    fn default() -> Self {
        Self { buffer: MAGIC.to_vec(), chunks: 0, entries: 0 }
    }
}

impl StateWriter {
    /// Appends a chunk. Where one file removes all of a key and sets entries of it, the removal comes first.
    pub fn write(&mut self, entries: &Entries) {
        if entries.is_empty() {
            return;
        }
        let head = self.buffer.len();
        self.buffer.extend_from_slice(&[0; 8]);
        put_bytes(&mut self.buffer, entries.state.as_bytes());
        put_number(&mut self.buffer, entries.version);
        put_length(&mut self.buffer, entries.len());
        for column in [&entries.keys, &entries.subkeys, &entries.values] {
            put_length(&mut self.buffer, column.len());
            column.ends().iter().for_each(|end| put_number(&mut self.buffer, *end));
            put_bytes(&mut self.buffer, column.bytes());
        }
        put_bytes(&mut self.buffer, &entries.removed);
        let body = head + 8;
        let length = length_of(self.buffer.len() - body);
        let checksum = crc32fast::hash(&self.buffer[body..]);
        self.buffer[head..head + 4].copy_from_slice(&length.to_le_bytes());
        self.buffer[head + 4..body].copy_from_slice(&checksum.to_le_bytes());
        self.chunks += 1;
        self.entries += entries.len() as u64;
    }

    /// The number of entries so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.chunks == 0
    }

    /// The whole file.
    pub fn finish(mut self) -> Bytes {
        put_number(&mut self.buffer, 0);
        put_number(&mut self.buffer, self.chunks);
        self.buffer.into()
    }
}

fn length_of(length: usize) -> u32 {
    u32::try_from(length).expect("invariant: a chunk is below 4 GiB, its columns cross a 32-bit boundary")
}

fn put_number(buffer: &mut Vec<u8>, number: u32) {
    buffer.extend_from_slice(&number.to_le_bytes());
}

fn put_length(buffer: &mut Vec<u8>, length: usize) {
    put_number(buffer, length_of(length));
}

fn put_bytes(buffer: &mut Vec<u8>, bytes: &[u8]) {
    put_length(buffer, bytes.len());
    buffer.extend_from_slice(bytes);
}

/// Reads the chunks of a state file one after the other; after an error comes nothing more. The end is checked: a file that was cut is an error.
pub fn read_chunks(file: &Bytes) -> impl Iterator<Item = Result<Entries, StateFileError>> + use<> {
    Chunks::of(file.clone())
}

/// The chunks of a state file.
#[derive(Debug)]
pub(super) struct Chunks {
    file: Bytes,
    offset: usize,
    chunks: u32,
    done: bool,
}

impl Iterator for Chunks {
    type Item = Result<Entries, StateFileError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.read().transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

impl Chunks {
    pub(super) fn of(file: Bytes) -> Self {
        Self { file, offset: 0, chunks: 0, done: false }
    }

    fn read(&mut self) -> Result<Option<Entries>, StateFileError> {
        let mut input = Input { bytes: &self.file, offset: self.offset };
        if input.offset == 0 && input.take(MAGIC.len())? != MAGIC {
            return Err(StateFileError { offset: 0, message: "this is not a state file".into() });
        }
        let length = input.number()? as usize;
        let checksum = input.number()?;
        if length == 0 {
            return self.end(&input, checksum);
        }
        let start = input.offset;
        let body = input.take(length)?;
        if crc32fast::hash(body) != checksum {
            return Err(StateFileError { offset: start, message: "the checksum does not match".into() });
        }
        self.offset = input.offset;
        self.chunks += 1;
        body_of(Input { bytes: &self.file[..self.offset], offset: start }).map(Some)
    }

    fn end(&self, input: &Input<'_>, chunks: u32) -> Result<Option<Entries>, StateFileError> {
        if chunks != self.chunks {
            return input.fault(format!("{} chunks instead of {chunks}", self.chunks));
        }
        if input.offset != self.file.len() {
            return input.fault("bytes after the end".into());
        }
        Ok(None)
    }
}

fn body_of(mut input: Input<'_>) -> Result<Entries, StateFileError> {
    let state = String::from_utf8(input.bytes()?.to_vec());
    let Ok(state) = state else { return input.fault("the name of the state is not UTF-8".into()) };
    let version = input.number()?;
    let count = input.number()? as usize;
    let [keys, subkeys, values] = [input.column()?, input.column()?, input.column()?];
    let removed = input.bytes()?.to_vec();
    let entries = Entries { state, version, keys, subkeys, values, removed };
    if entries.len() != count {
        return input.fault(format!("{} keys instead of {count}", entries.len()));
    }
    entries.check().or_else(|fault| input.fault(fault.to_string()))?;
    Ok(entries)
}

struct Input<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Input<'a> {
    fn fault<T>(&self, message: String) -> Result<T, StateFileError> {
        Err(StateFileError { offset: self.offset, message })
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], StateFileError> {
        match self.bytes.get(self.offset..self.offset.saturating_add(length)) {
            Some(taken) => {
                self.offset += length;
                Ok(taken)
            }
            None => self.fault(format!("the file ends where {length} more bytes should be")),
        }
    }

    fn number(&mut self) -> Result<u32, StateFileError> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn bytes(&mut self) -> Result<&'a [u8], StateFileError> {
        let length = self.number()? as usize;
        self.take(length)
    }

    fn column(&mut self) -> Result<Column, StateFileError> {
        let count = self.number()? as usize;
        let ends = self.take(count.saturating_mul(4))?;
        let ends = ends.chunks_exact(4).map(|end| u32::from_le_bytes([end[0], end[1], end[2], end[3]])).collect();
        let bytes = self.bytes()?.to_vec();
        Column::from_parts(ends, bytes).or_else(|message| self.fault(message))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::super::EntryRef;
    use super::*;

    fn sample() -> Bytes {
        let mut entries = Entries::of("total", 3);
        entries.push(EntryRef { key: b"a", subkey: None, value: Some(b"1") });
        entries.push(EntryRef { key: b"", subkey: None, value: None });
        let mut writer = StateWriter::default();
        writer.write(&entries);
        writer.write(&entries);
        writer.finish()
    }

    #[test]
    fn what_was_written_is_read() {
        let chunks: Vec<_> = read_chunks(&sample()).collect::<Result<_, _>>().unwrap();
        assert_eq!(chunks.len(), 2);
        assert_eq!(chunks[0].get(0).value, Some(b"1".as_slice()));
        assert!(chunks[1].get(1).removes_key());
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_found() {
        let file = sample();
        for length in 0..file.len() {
            assert!(read_chunks(&file.slice(..length)).any(|chunk| chunk.is_err()), "cut at {length}");
        }
        for bit in 0..file.len() * 8 {
            let mut flipped = file.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(read_chunks(&flipped.into()).any(|chunk| chunk.is_err()), "bit {bit}");
        }
    }
}
