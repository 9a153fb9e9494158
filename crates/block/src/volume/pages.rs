//! Allocation of flash pages.
//!
//! A page is *free* when no record that may be on flash assigns a block to it and no operation reads it. Only free pages are
//! allocated. A page that loses its block becomes free after the commit that records this and after its last reader.

use std::collections::{HashMap, HashSet};

use super::layout::Layout;

/// The pages of all groups.
pub(super) struct Pages {
    per_group: u32,
    /// One bit per page, set while it is free.
    free: Vec<u64>,
    groups: Vec<Group>,
    /// Number of readers of each page that has any.
    readers: HashMap<u32, u32>,
    /// Pages that become free after their last reader.
    lingering: HashSet<u32>,
    /// One bit per page, set when it is allocated. `None` unless allocations are recorded.
    allocated: Option<Vec<u64>>,
}

struct Group {
    first: u32,
    end: u32,
    free: u32,
    /// Where the search for a free page continues: consecutive writes get adjacent pages.
    hand: u32,
}

impl Pages {
    /// All pages free.
    pub(super) fn new(layout: &Layout) -> Self {
        let (pages, per_group) = (layout.pages(), layout.pages_per_group());
        let groups = (0..pages.div_ceil(per_group)).map(|group| {
            let first = group * per_group;
            let end = pages.min(first + per_group);
            Group { first, end, free: end - first, hand: first }
        });
        let mut free = vec![u64::MAX; pages.div_ceil(64) as usize];
        if !pages.is_multiple_of(64) {
            *free.last_mut().expect("there are pages") = (1 << (pages % 64)) - 1;
        }
        let groups = groups.collect();
        Self { per_group, free, groups, readers: HashMap::new(), lingering: HashSet::new(), allocated: None }
    }

    /// Allocates a page of `group`: the next free one after the last allocated.
    pub(super) fn take(&mut self, group: u32) -> Option<u32> {
        let Group { first, end, free, hand } = self.groups[group as usize];
        if free == 0 {
            return None;
        }
        let page = self.next_free(hand, end).or_else(|| self.next_free(first, hand));
        let page = page.expect("the group has a free page");
        self.clear(page);
        let group = &mut self.groups[group as usize];
        group.free -= 1;
        group.hand = if page + 1 == end { first } else { page + 1 };
        if let Some(allocated) = &mut self.allocated {
            allocated[page as usize / 64] |= 1 << (page % 64);
        }
        Some(page)
    }

    /// Starts or stops recording which pages are allocated.
    pub(super) fn record_allocations(&mut self, records: bool) {
        self.allocated = records.then(|| vec![0; self.free.len()]);
    }

    /// Whether the page was allocated since recording started or since the last call for it.
    pub(super) fn was_allocated(&mut self, page: u32) -> bool {
        let Some(word) = self.allocated.as_mut().map(|bits| &mut bits[page as usize / 64]) else {
            return false;
        };
        let bit = 1 << (page % 64);
        let was_allocated = *word & bit != 0;
        *word &= !bit;
        was_allocated
    }

    /// Marks a page as in use, during recovery.
    pub(super) fn occupy(&mut self, page: u32) {
        debug_assert!(self.is_free(page), "page {page} is occupied twice");
        self.clear(page);
        self.groups[(page / self.per_group) as usize].free -= 1;
    }

    /// Frees a page after its last reader. No record on flash may assign a block to it.
    pub(super) fn free(&mut self, page: u32) {
        if self.readers.contains_key(&page) {
            self.lingering.insert(page);
        } else {
            self.set(page);
        }
    }

    /// Keeps the page from being reused until [`end_read`](Self::end_read).
    pub(super) fn begin_read(&mut self, page: u32) {
        *self.readers.entry(page).or_insert(0) += 1;
    }

    /// The reader is done.
    pub(super) fn end_read(&mut self, page: u32) {
        let readers = self.readers.get_mut(&page).expect("a read that began");
        *readers -= 1;
        if *readers == 0 {
            self.readers.remove(&page);
            if self.lingering.remove(&page) {
                self.set(page);
            }
        }
    }

    /// Number of pages of `group`.
    pub(super) fn all_in(&self, group: u32) -> u32 {
        let Group { first, end, .. } = self.groups[group as usize];
        end - first
    }

    /// Number of free pages of `group`.
    pub(super) fn free_in(&self, group: u32) -> u32 {
        self.groups[group as usize].free
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.free.capacity() * 8 + self.groups.capacity() * size_of::<Group>()
    }

    pub(super) fn is_free(&self, page: u32) -> bool {
        self.free[page as usize / 64] >> (page % 64) & 1 == 1
    }

    fn next_free(&self, from: u32, end: u32) -> Option<u32> {
        let mut at = from;
        while at < end {
            let word = self.free[at as usize / 64] >> (at % 64);
            if word != 0 {
                let page = at + word.trailing_zeros();
                return (page < end).then_some(page);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    fn clear(&mut self, page: u32) {
        self.free[page as usize / 64] &= !(1 << (page % 64));
    }

    fn set(&mut self, page: u32) {
        debug_assert!(!self.is_free(page), "page {page} is freed twice");
        self.free[page as usize / 64] |= 1 << (page % 64);
        self.groups[(page / self.per_group) as usize].free += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages() -> Pages {
        Pages::new(&Layout::with_sets(4096, 300, 512, None, false))
    }

    #[test]
    fn group_allocates_each_page_once_in_order() {
        let mut pages = pages();
        for group in 0..3 {
            let count = pages.free_in(group);
            let first = group * pages.per_group;
            for page in first..first + count {
                assert_eq!(pages.take(group), Some(page));
            }
            assert_eq!(pages.take(group), None);
        }
    }

    #[test]
    fn page_with_readers_is_free_after_the_last_one() {
        let mut pages = pages();
        let page = pages.take(1).unwrap();
        pages.begin_read(page);
        pages.begin_read(page);
        pages.free(page);
        assert!(!pages.is_free(page));
        pages.end_read(page);
        assert!(!pages.is_free(page));
        pages.end_read(page);
        assert!(pages.is_free(page));
    }

    #[test]
    fn recorded_allocation_is_reported_once() {
        let mut pages = pages();
        let before = pages.take(0).unwrap();
        pages.record_allocations(true);
        let after = pages.take(0).unwrap();
        assert_eq!([before, after, after].map(|page| pages.was_allocated(page)), [false, true, false]);
    }

    #[test]
    fn freed_pages_are_allocated_again_in_order() {
        let mut pages = pages();
        let taken: Vec<u32> = std::iter::from_fn(|| pages.take(0)).collect();
        for &page in taken.iter().filter(|page| *page % 7 == 3) {
            pages.free(page);
        }
        let again: Vec<u32> = std::iter::from_fn(|| pages.take(0)).collect();
        assert_eq!(again, taken.into_iter().filter(|page| page % 7 == 3).collect::<Vec<_>>());
    }
}
