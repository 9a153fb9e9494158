//! The pages of a region with items that were read since it was written. Only these are read for readmission: the index knows which of its
//! entries were read, but not their pages.

use std::sync::atomic::{AtomicU64, Ordering};

const WORD_BITS: u64 = u64::BITS as u64;

/// One bit per page.
#[derive(Debug)]
pub struct HitPages(Box<[AtomicU64]>);

impl HitPages {
    /// No page of `pages`.
    #[must_use]
    pub fn none(pages: usize) -> Self {
        Self::of(pages, |_| 0)
    }

    /// All of `pages`.
    #[must_use]
    pub fn all(pages: usize) -> Self {
        let end = pages as u64;
        Self::of(pages, |first| if end - first < WORD_BITS { (1 << (end - first)) - 1 } else { u64::MAX })
    }

    fn of(pages: usize, word: impl Fn(u64) -> u64) -> Self {
        let firsts = (0..pages as u64).step_by(WORD_BITS as usize);
        Self(firsts.map(|first| AtomicU64::new(word(first))).collect())
    }

    /// Adds a page.
    pub fn add(&self, page: u32) {
        let (word, bit) = (page as usize / WORD_BITS as usize, 1 << (u64::from(page) % WORD_BITS));
        let word = &self.0[word];
        // Most hits are of pages that were read before; a load leaves the cache line shared.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// The first page from `first` on.
    #[must_use]
    pub fn next(&self, first: u64) -> Option<u64> {
        self.words_from(first)
            .find(|(_, word)| *word != 0)
            .map(|(start, word)| start + u64::from(word.trailing_zeros()))
    }

    /// The number of pages from `first` on.
    #[must_use]
    pub fn count(&self, first: u64) -> u64 {
        self.words_from(first).map(|(_, word)| u64::from(word.count_ones())).sum()
    }

    /// The words from that of page `first` on, without the bits of earlier pages, each with its first page.
    fn words_from(&self, first: u64) -> impl Iterator<Item = (u64, u64)> {
        let skipped = (first / WORD_BITS) as usize;
        self.0.iter().enumerate().skip(skipped).map(move |(number, word)| {
            let start = number as u64 * WORD_BITS;
            let mask = u64::MAX << first.saturating_sub(start);
            (start, word.load(Ordering::Relaxed) & mask)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_found_and_counted_from_any_page_on() {
        for pages in [0, 1, 63, 64, 65, 200] {
            let all = HitPages::all(pages);
            let some = HitPages::none(pages);
            let added: Vec<u64> = (0..pages as u64).filter(|page| page % 7 == 3 || page % 64 == 63).collect();
            added.iter().for_each(|&page| some.add(page as u32));
            for first in 0..=pages as u64 {
                assert_eq!(
                    all.next(first),
                    Some(first).filter(|&first| first < pages as u64),
                    "{first} of {pages}"
                );
                assert_eq!(all.count(first), pages as u64 - first, "{first} of {pages}");
                let later: Vec<u64> = added.iter().copied().filter(|&page| page >= first).collect();
                assert_eq!(some.next(first), later.first().copied(), "{first} of {pages}");
                assert_eq!(some.count(first), later.len() as u64, "{first} of {pages}");
            }
        }
    }
}
