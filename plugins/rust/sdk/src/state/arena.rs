//! A list that grows without moving what it holds.

use std::ops::{Index, IndexMut};

/// How many values a page has.
const PAGE: usize = 1024;

/// Values by their numbers, in pages. It grows by a page at a time: no record waits while all values are copied into a larger place, and
/// there is never a second copy of them.
#[derive(Debug)]
pub(super) struct Arena<T> {
    /// All but the last are full.
    pages: Vec<Vec<T>>,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self { pages: Vec::new() }
    }
}

impl<T> Arena<T> {
    pub(super) fn len(&self) -> usize {
        self.pages.last().map_or(0, |last| (self.pages.len() - 1) * PAGE + last.len())
    }

    pub(super) fn push(&mut self, value: T) {
        match self.pages.last_mut() {
            Some(last) if last.len() < PAGE => last.push(value),
            Some(_) => {
                let mut page = Vec::with_capacity(PAGE);
                page.push(value);
                self.pages.push(page);
            }
            // The first page grows like any list: most states are small.
            None => self.pages.push(vec![value]),
        }
    }

    #[inline]
    pub(super) fn get(&self, number: usize) -> Option<&T> {
        self.pages.get(number / PAGE)?.get(number % PAGE)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.pages.get_mut(number / PAGE)?.get_mut(number % PAGE)
    }
}

impl<T> Index<u32> for Arena<T> {
    type Output = T;

    #[inline]
    fn index(&self, number: u32) -> &T {
        let number = number as usize;
        &self.pages[number / PAGE][number % PAGE]
    }
}

impl<T> IndexMut<u32> for Arena<T> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut T {
        let number = number as usize;
        &mut self.pages[number / PAGE][number % PAGE]
    }
}

#[cfg(test)]
mod tests {
    use super::{Arena, PAGE};

    #[test]
    fn values_are_found_by_number_across_pages() {
        let mut arena = Arena::default();
        let count = u32::try_from(3 * PAGE + 1).unwrap_or_default();
        for number in 0..count {
            assert_eq!(arena.len(), number as usize);
            assert!(arena.get(number as usize).is_none());
            arena.push(number);
        }
        arena[1024] = 7;
        assert!((0..count).all(|number| arena[number] == if number == 1024 { 7 } else { number }));
        assert_eq!(arena.get(2 * PAGE), Some(&2048));
    }
}
