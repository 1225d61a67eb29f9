//! A column: byte strings end to end, as they cross the boundary to a plugin.

/// Byte strings end to end: entry `i` is `bytes[ends[i - 1]..ends[i]]`, where the end before the first is 0.
///
/// Appending copies the bytes once; nothing is allocated for an entry. A column holds less than 4 GiB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    ends: Vec<u32>,
    bytes: Vec<u8>,
}

impl Column {
    /// An empty column with room for `entries` entries of `bytes` bytes together.
    pub fn with_capacity(entries: usize, bytes: usize) -> Self {
        Self { ends: Vec::with_capacity(entries), bytes: Vec::with_capacity(bytes) }
    }

    /// Takes over ends and bytes from outside, after a check.
    ///
    /// # Errors
    /// A sentence: ends that fall, or a last end that is not the number of bytes.
    pub fn from_parts(ends: Vec<u32>, bytes: Vec<u8>) -> Result<Self, String> {
        if !ends.is_sorted()
            && let Some(i) = ends.windows(2).position(|pair| pair[0] > pair[1])
        {
            return Err(format!("ends fall at entry {}: {} after {}", i + 1, ends[i + 1], ends[i]));
        }
        let last = ends.last().map_or(0, |end| *end as usize);
        if last != bytes.len() {
            return Err(format!("the last end is {last}, but there are {} bytes", bytes.len()));
        }
        Ok(Self { ends, bytes })
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes of entry `index`.
    ///
    /// # Panics
    /// Where there is no such entry, as a slice does.
    pub fn get(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.bytes[start..self.ends[index] as usize]
    }

    /// All entries in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Appends an entry.
    pub fn push(&mut self, entry: &[u8]) {
        self.bytes.extend_from_slice(entry);
        self.close_entry();
    }

    /// Appends an entry that `write` appends to the buffer it is given; what was in the buffer before stays.
    pub fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.bytes.len();
        write(&mut self.bytes);
        assert!(self.bytes.len() >= before, "an entry is appended, never cut from the one before");
        self.close_entry();
    }

    fn close_entry(&mut self) {
        let end = u32::try_from(self.bytes.len()).expect("invariant: a column holds less than 4 GiB");
        self.ends.push(end);
    }

    /// Forgets all entries and keeps the memory.
    pub fn clear(&mut self) {
        self.ends.clear();
        self.bytes.clear();
    }

    /// The ends, as they cross the boundary to a plugin.
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// All bytes, end to end.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Gives ends and bytes away.
    pub fn into_parts(self) -> (Vec<u32>, Vec<u8>) {
        (self.ends, self.bytes)
    }
}

impl<'a> FromIterator<&'a [u8]> for Column {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(entries: I) -> Self {
        let mut column = Self::default();
        entries.into_iter().for_each(|entry| column.push(entry));
        column
    }
}
