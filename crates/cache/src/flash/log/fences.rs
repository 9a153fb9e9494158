//! Fences: for each page of a region, where in the hash space its items begin.
//!
//! Items are uniform in the hash space, so page `p` of `n` begins near `p / n` of it. A fence stores the deviation only: two bytes per
//! page. Hashes are rounded to a *position*, in units of which an average page has [`UNITS_PER_PAGE`]. A page never ends between two items
//! of equal position, so a fence leads to exactly one page.

use crate::KeyHash;

/// Positions per page. More of them round less, so that fewer items share a position; fewer fit a larger region into 16 bits.
pub const UNITS_PER_PAGE: u32 = 64;

/// The position of a hash in a region that is scaled for `pages` pages.
#[must_use]
pub fn position(hash: KeyHash, pages: u32) -> u64 {
    let units = u128::from(pages) * u128::from(UNITS_PER_PAGE);
    ((u128::from(hash.0) * units) >> 64) as u64
}

/// The fences of one region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fences {
    /// The number of pages that positions are scaled for.
    scale_pages: u32,
    deviations: Box<[i16]>,
}

impl Fences {
    /// The fences of pages whose first items have these positions, in ascending order. `None` if a deviation exceeds 16 bits.
    #[must_use]
    pub fn new(scale_pages: u32, first_positions: &[u64]) -> Option<Self> {
        let deviations = first_positions.iter().enumerate().map(|(page, &first)| deviation(page, first));
        Some(Self { scale_pages, deviations: deviations.collect::<Option<_>>()? })
    }

    /// The fences of pages with these first positions. `None` is an unreadable page: no hash leads to it, as far as 16 bits allow.
    #[must_use]
    pub fn rebuilt(scale_pages: u32, first_positions: &[Option<u64>]) -> Self {
        let mut following = i64::MAX;
        let deviation = |(page, first): (usize, &Option<u64>)| {
            following = first.and_then(|first| i64::try_from(first).ok()).unwrap_or(following);
            following.saturating_sub(expected(page)).clamp(i64::from(i16::MIN), i64::from(i16::MAX)) as i16
        };
        let mut deviations: Box<[i16]> = first_positions.iter().enumerate().rev().map(deviation).collect();
        deviations.reverse();
        Self { scale_pages, deviations }
    }

    /// Fences restored from a snapshot.
    #[must_use]
    pub fn restored(scale_pages: u32, deviations: Box<[i16]>) -> Self {
        Self { scale_pages, deviations }
    }

    /// The number of pages that positions are scaled for.
    #[must_use]
    pub fn scale_pages(&self) -> u32 {
        self.scale_pages
    }

    /// The stored deviations.
    #[must_use]
    pub fn deviations(&self) -> &[i16] {
        &self.deviations
    }

    /// The page that holds items with this hash; `None` if the hash precedes the first page.
    #[must_use]
    pub fn page_of(&self, hash: KeyHash) -> Option<u32> {
        let position = position(hash, self.scale_pages) as i64;
        let (mut low, mut high) = self.near(position);
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.first(middle) <= position { low = middle + 1 } else { high = middle }
        }
        low.checked_sub(1).map(|page| page as u32)
    }

    /// Pages between which the first one beyond `position` is. Begins at the page that even spacing suggests, and doubles the distance: a
    /// page is seldom more than a few pages from there.
    fn near(&self, position: i64) -> (usize, usize) {
        let pages = self.deviations.len();
        let even = ((position / i64::from(UNITS_PER_PAGE)) as usize).min(pages);
        let (mut low, mut high) = (even, even);
        let mut distance = 1;
        while low > 0 && self.first(low - 1) > position {
            high = low - 1;
            low = low.saturating_sub(distance);
            distance *= 2;
        }
        while high < pages && self.first(high) <= position {
            low = high + 1;
            high = pages.min(high + distance);
            distance *= 2;
        }
        (low, high)
    }

    fn first(&self, page: usize) -> i64 {
        expected(page) + i64::from(self.deviations[page])
    }
}

/// The deviation of a page's first position, if it fits a fence.
#[must_use]
pub fn deviation(page: usize, first: u64) -> Option<i16> {
    i16::try_from(i64::try_from(first).ok()? - expected(page)).ok()
}

fn expected(page: usize) -> i64 {
    page as i64 * i64::from(UNITS_PER_PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hash_maps_to_the_page_of_its_range() {
        let pages = 100;
        let hash_at = |position: u64| KeyHash(((u128::from(position) << 64) / (100 * 64)) as u64 + 1);
        let firsts: Vec<u64> = (0..100).map(|page| page * 64 + (page * 37) % 50).collect();
        let fences = Fences::new(pages, &firsts).unwrap();
        for at in 0..6400 {
            let expected = firsts.iter().rposition(|&first| first <= at).map(|page| page as u32);
            assert_eq!(fences.page_of(hash_at(at)), expected, "position {at}");
        }
    }

    #[test]
    fn page_far_from_its_evenly_spaced_place_is_found() {
        let hash_at = |position: u64| KeyHash(((u128::from(position) << 64) / (1000 * 64)) as u64 + 1);
        for shift in [-200_i64, -7, 0, 7, 200] {
            let firsts: Vec<u64> = (200..800).map(|page| ((page + shift) * 64) as u64).collect();
            let fences = Fences::rebuilt(1000, &firsts.iter().copied().map(Some).collect::<Vec<_>>());
            for at in 0..64_000 {
                let expected = firsts.iter().rposition(|&first| first <= at).map(|page| page as u32);
                assert_eq!(fences.page_of(hash_at(at)), expected, "shift {shift}, position {at}");
            }
        }
    }

    #[test]
    fn rebuilt_fences_lead_no_hash_to_a_page_of_unknown_position() {
        let firsts = [Some(3), None, Some(130), None, None, Some(330), None];
        let fences = Fences::rebuilt(100, &firsts);
        let hash_at = |position: u64| KeyHash(((u128::from(position) << 64) / (100 * 64)) as u64 + 1);
        for at in 0..6400 {
            let expected = firsts.iter().rposition(|first| first.is_some_and(|first| first <= at));
            assert_eq!(fences.page_of(hash_at(at)), expected.map(|page| page as u32), "position {at}");
        }
        let known: Vec<u64> = vec![3, 64, 130];
        let all = Fences::rebuilt(10, &known.iter().copied().map(Some).collect::<Vec<_>>());
        assert_eq!(Some(all), Fences::new(10, &known));
    }

    #[test]
    fn deviation_beyond_16_bits_is_refused() {
        assert!(Fences::new(10, &[0, 64 + 32_767]).is_some());
        assert!(Fences::new(10, &[0, 64 + 32_768]).is_none());
    }
}
