//! Headers of a batch's records. They stay on the host: a plugin asks for them by row, and an emitted record gets those of the row it came from.

use super::Column;

/// One header: its name, and its value or null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The name; names may repeat within a record.
    pub name: &'a str,
    /// The value; null is not empty.
    pub value: Option<&'a [u8]>,
}

/// The headers of a batch's rows, in columns: nothing is allocated for a record, and nothing at all where no record has headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// For each row the end of its headers in the columns; may be shorter than the batch: the rows after have none.
    ends: Vec<u32>,
    names: Column,
    values: Column,
    nulls: Vec<bool>,
}

impl Headers {
    /// Whether no row has headers.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The headers of a row, in order.
    pub fn row(&self, row: usize) -> impl ExactSizeIterator<Item = Header<'_>> {
        let end = self.ends.get(row).or(self.ends.last()).map_or(0, |end| *end as usize);
        let start = match row.checked_sub(1) {
            None => 0,
            Some(before) => self.ends.get(before).map_or(end, |end| *end as usize),
        };
        (start..end).map(|i| Header {
            name: std::str::from_utf8(self.names.get(i)).unwrap_or_default(),
            value: (!self.nulls[i]).then(|| self.values.get(i)),
        })
    }

    /// Appends a header to row `row`, which must be the last row that has headers, or a later one.
    pub fn push(&mut self, row: usize, header: Header<'_>) {
        assert!(self.ends.len() <= row + 1, "headers are appended in the order of the rows");
        self.names.push(header.name.as_bytes());
        self.values.push(header.value.unwrap_or_default());
        self.nulls.push(header.value.is_none());
        let before = self.ends.last().copied().unwrap_or(0);
        self.ends.resize(row + 1, before);
        if let Some(end) = self.ends.last_mut() {
            *end += 1;
        }
    }

    /// Copies the headers of `other`'s row `from` to row `row`.
    pub fn copy_row(&mut self, row: usize, other: &Headers, from: usize) {
        if other.is_empty() {
            return;
        }
        for header in other.row(from) {
            self.push(row, header);
        }
    }

    /// Bytes of all names and values.
    pub fn byte_len(&self) -> usize {
        self.names.bytes().len() + self.values.bytes().len()
    }

    /// Forgets all headers and keeps the memory.
    pub fn clear(&mut self) {
        self.ends.clear();
        self.names.clear();
        self.values.clear();
        self.nulls.clear();
    }
}
