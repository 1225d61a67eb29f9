//! Cuts a stream of bytes into blocks of whole lines, without an allocation for a line.

use super::identity::Head;
use std::io::{self, Read};
use std::ops::Range;

/// Bytes that are read at once: large enough that system calls cost nothing, small enough for the processor's cache.
const READ_BYTES: usize = 256 << 10;

/// Lines as they were read, end to end, and where they are.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// The split, by its number in the reader.
    pub(super) split: usize,
    /// The best fingerprint of the file that was known.
    pub(super) head: Head,
    /// The byte of the file at which the block starts.
    start: u64,
    bytes: Vec<u8>,
    lines: Vec<Line>,
}

/// A line within a block: where it starts, ends, and where the next one starts.
#[derive(Clone, Copy, Debug)]
struct Line {
    start: u32,
    end: u32,
    next: u32,
}

impl Block {
    /// The number of records.
    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// The bytes of a record, the byte of the file at which it starts, and the one at which the next line starts.
    pub(super) fn record(&self, index: usize) -> Option<(&[u8], u64, u64)> {
        let line = self.lines.get(index)?;
        let bytes = &self.bytes[line.start as usize..line.end as usize];
        Some((bytes, self.start + u64::from(line.start), self.start + u64::from(line.next)))
    }

    /// The byte of the file behind the block.
    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

/// What came of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    /// The block holds whole lines (or only blank ones, which are no records).
    Lines,
    /// There is no whole line now: the end of the input, at least for now.
    Nothing,
}

/// Why reading failed.
#[derive(Debug)]
pub(super) enum LineError {
    /// The input did.
    Input(io::Error),
    /// The line that starts at this byte is too long.
    TooLong(u64),
}

/// Cuts the bytes of one input into lines.
#[derive(Debug)]
pub(super) struct Lines {
    /// The beginning of a line whose end was not read yet.
    carry: Vec<u8>,
    /// The byte of the file at which the carry starts.
    start: u64,
    max_record: usize,
    skip_blank: bool,
}

impl Lines {
    /// Cuts an input that starts at this byte, the start of a line.
    pub(super) fn new(start: u64, max_record: usize, skip_blank: bool) -> Self {
        Self { carry: Vec::new(), start, max_record, skip_blank }
    }

    /// The byte up to which the input was read.
    pub(super) fn read_to(&self) -> u64 {
        self.start + self.carry.len() as u64
    }

    /// The byte at which the line starts that was not read to its end yet: where another reading of the input goes on.
    pub(super) fn line_start(&self) -> u64 {
        self.start
    }

    /// Reads the next block of whole lines; what follows the last line end is kept for the next one.
    pub(super) fn read(&mut self, input: &mut dyn Read, block: &mut Block) -> Result<Filled, LineError> {
        self.begin(block);
        let (mut line_start, mut has_line_end) = (0, false);
        loop {
            let before = block.bytes.len();
            block.bytes.reserve(READ_BYTES);
            let read = input.take(READ_BYTES as u64).read_to_end(&mut block.bytes).map_err(LineError::Input)?;
            for line_end in memchr::memchr_iter(b'\n', &block.bytes[before..]).map(|at| before + at) {
                self.add_line(&mut block.lines, &block.bytes, line_start..line_end, true)?;
                (line_start, has_line_end) = (line_end + 1, true);
            }
            // A line end of two bytes may come yet, of which one does not count.
            if block.bytes.len() - line_start > self.max_record + 1 {
                return Err(LineError::TooLong(self.start + line_start as u64));
            }
            if has_line_end {
                self.carry.clear();
                self.carry.extend_from_slice(&block.bytes[line_start..]);
                block.bytes.truncate(line_start);
                self.start = block.end();
                return Ok(Filled::Lines);
            }
            if read == 0 {
                std::mem::swap(&mut self.carry, &mut block.bytes);
                block.bytes.clear();
                return Ok(Filled::Nothing);
            }
        }
    }

    /// The input has ended: what is left is the last line, without a line end.
    pub(super) fn finish(&mut self, block: &mut Block) -> Result<(), LineError> {
        self.begin(block);
        let length = block.bytes.len();
        if length > 0 {
            self.add_line(&mut block.lines, &block.bytes, 0..length, false)?;
        }
        self.start = block.end();
        Ok(())
    }

    /// Empties a block and puts it where the next line starts, with what was read of that line.
    pub(super) fn begin(&mut self, block: &mut Block) {
        block.start = self.start;
        block.lines.clear();
        block.bytes.clear();
        std::mem::swap(&mut self.carry, &mut block.bytes);
    }

    /// Notes the line at a range of a block's bytes, which its line end follows or not.
    fn add_line(&self, lines: &mut Vec<Line>, bytes: &[u8], at: Range<usize>, has_line_end: bool) -> Result<(), LineError> {
        let mut line = &bytes[at.clone()];
        if has_line_end {
            line = line.strip_suffix(b"\r").unwrap_or(line);
        }
        if line.len() > self.max_record {
            return Err(LineError::TooLong(self.start + at.start as u64));
        }
        if self.skip_blank && line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let narrow = |at: usize| u32::try_from(at).expect("invariant: a record is limited to 1 GiB, so a block is below 4 GiB");
        let next = at.end + usize::from(has_line_end);
        lines.push(Line { start: narrow(at.start), end: narrow(at.start + line.len()), next: narrow(next) });
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An input that gives its bytes in the given pieces, each followed by an end that is not the last one.
    fn read_all(pieces: &[&[u8]], max_record: usize, skip_blank: bool) -> Result<Vec<(Vec<u8>, u64, u64)>, LineError> {
        let (mut lines, mut block, mut records) = (Lines::new(1_000, max_record, skip_blank), Block::default(), Vec::new());
        let collect = |block: &Block, records: &mut Vec<_>| {
            records.extend((0..block.len()).map(|index| {
                let (bytes, start, next) = block.record(index).unwrap();
                (bytes.to_vec(), start, next)
            }));
        };
        for piece in pieces {
            let mut input = *piece;
            while lines.read(&mut input, &mut block)? == Filled::Lines {
                collect(&block, &mut records);
            }
        }
        lines.finish(&mut block)?;
        collect(&block, &mut records);
        assert_eq!(lines.read_to(), 1_000 + pieces.iter().map(|piece| piece.len() as u64).sum::<u64>());
        Ok(records)
    }

    #[test]
    fn line_ends_of_both_kinds_are_taken_off() {
        let records = read_all(&[b"a\r\nb\n\n\r\n \nlast\r"], 100, false).unwrap();
        let values: Vec<_> = records.iter().map(|record| record.0.as_slice()).collect();
        assert_eq!(values, [&b"a"[..], b"b", b"", b"", b" ", b"last\r"]);
        assert_eq!(records[1].1, 1_003);
        let records = read_all(&[b"a\r\nb\n\n\r\n \nlast"], 100, true).unwrap();
        assert_eq!(records.iter().map(|record| record.1).collect::<Vec<_>>(), [1_000, 1_003, 1_010]);
    }

    #[test]
    fn a_line_that_is_too_long_is_named_by_its_start() {
        for (text, fits) in
            [("ok\n12345\n", true), ("ok\n12345\r\n", true), ("ok\n123456\n", false), ("ok\n123456", false), ("ok\n1234567890", false)]
        {
            match read_all(&[text.as_bytes()], 5, false) {
                Ok(records) => assert!(fits && records.len() == 2, "{text:?}"),
                Err(LineError::TooLong(at)) => assert!(!fits && at == 1_003, "{text:?} at {at}"),
                Err(LineError::Input(error)) => unreachable!("{error}"),
            }
        }
    }

    #[test]
    fn lines_longer_than_a_read_are_whole() {
        let long = vec![b'x'; 3 * READ_BYTES];
        let text = [&long[..], b"\n", &long, b"\nend"].concat();
        let records = read_all(&[&text], 10 * READ_BYTES, false).unwrap();
        assert_eq!(records.iter().map(|record| record.0.len()).collect::<Vec<_>>(), [long.len(), long.len(), 3]);
    }

    proptest! {
        #[test]
        fn any_pieces_give_the_lines_of_the_whole(text in "[ab\r\n ]{0,200}", cuts in prop::collection::vec(0_usize..200, 0..6)) {
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(text.len())).chain([0, text.len()]).collect();
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]).collect();
            let records = read_all(&pieces, 1_000, false).unwrap();
            let mut expected: Vec<_> = text.split('\n').map(str::to_owned).collect();
            let last = expected.pop().unwrap_or_default();
            for line in &mut expected {
                if line.ends_with('\r') { line.pop(); }
            }
            if !last.is_empty() { expected.push(last); }
            let read: Vec<_> = records.iter().map(|record| String::from_utf8(record.0.clone()).unwrap()).collect();
            prop_assert_eq!(read, expected);
            for (index, record) in records.iter().enumerate() {
                let next = records.get(index + 1).map_or(1_000 + text.len() as u64, |next| next.1);
                prop_assert_eq!(record.2, next);
            }
        }
    }
}
