//! Segmented LRU over regions: a hit promotes the whole region by one segment.
//!
//! BlockCache, the cache between McDipper's FIFO and RIPQ. It is cheap to run, but one popular item promotes all its neighbours. Regions
//! are evicted in an order unrelated to the order of their writes, which raises the write amplification of a drive with larger erase
//! units.
//!
//! Source: Zhou, Tang, Huang, Lloyd: "The Evolution of Advanced Caching in the Facebook CDN", 2016, part II.

use policy::eviction::Slru;
use policy::{Entry, Eviction, Slot};

use super::{RegionId, RegionOrder};

/// See the module.
pub struct SegmentedLru {
    segments: Slru,
}

impl SegmentedLru {
    /// Segments that share `regions` equally.
    ///
    /// # Panics
    /// If there is no segment.
    #[must_use]
    pub fn new(segments: u8, regions: usize) -> Self {
        Self { segments: Slru::new(segments, regions as u64) }
    }

    /// Each region has the same weight, and every hit is reported, so times do not matter.
    const ENTRY: Entry = Entry { hash: 0, weight: 1 };
    const NOW_SECONDS: u32 = 0;
}

impl RegionOrder for SegmentedLru {
    fn written(&mut self, region: RegionId, _priority: u8) {
        self.segments.insert(Slot(region.0), Self::ENTRY, Self::NOW_SECONDS);
    }

    fn hit(&mut self, region: RegionId) {
        self.segments.hit(Slot(region.0), Self::NOW_SECONDS);
    }

    fn wants_hits(&self) -> bool {
        true
    }

    fn victim(&mut self) -> Option<RegionId> {
        self.segments.evict(Self::NOW_SECONDS).map(|slot| RegionId(slot.0))
    }

    fn len(&self) -> usize {
        self.segments.len()
    }

    fn in_order(&mut self) -> Vec<(RegionId, u8)> {
        let next = |segments: &mut Slru| {
            let slot = segments.oldest()?;
            let segment = segments.segment_of(slot);
            segments.remove(slot);
            Some((RegionId(slot.0), segment))
        };
        let regions: Vec<_> = std::iter::from_fn(|| next(&mut self.segments)).collect();
        self.restore(&regions);
        regions
    }

    fn restore(&mut self, regions: &[(RegionId, u8)]) {
        // The highest segment first: each region rises through segments that are still empty, so it demotes no other region.
        for of_segment in regions.chunk_by(|a, b| a.1 == b.1).rev() {
            for &(region, segment) in of_segment {
                self.written(region, segment);
                (0..segment).for_each(|_| self.hit(region));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> SegmentedLru {
        let mut order = SegmentedLru::new(4, 8);
        (0..8).for_each(|region| order.written(RegionId(region), 0));
        for region in [3, 5, 3, 5, 3, 7, 7, 7, 1, 1] {
            order.hit(RegionId(region));
        }
        order
    }

    fn plain(order: &mut SegmentedLru) -> Vec<(u32, u8)> {
        order.in_order().into_iter().map(|(region, segment)| (region.0, segment)).collect()
    }

    #[test]
    fn hit_promotes_a_region_by_one_segment_and_demotes_the_oldest_of_a_full_one() {
        // Computed by hand for segments of two regions: 3 and 7 climb to the top, 5 and then 1 to the second highest.
        let mut order = filled();
        assert_eq!(plain(&mut order), [(0, 0), (2, 0), (4, 0), (6, 0), (5, 2), (1, 2), (3, 3), (7, 3)]);
        // 5 joins the top; 3, the oldest there, moves down to the segment that 5 left.
        order.hit(RegionId(5));
        assert_eq!(plain(&mut order)[4..], [(1, 2), (3, 2), (7, 3), (5, 3)]);
        assert_eq!(order.victim(), Some(RegionId(0)));
    }

    #[test]
    fn region_order_survives_a_restart() {
        let mut order = filled();
        let mut again = SegmentedLru::new(4, 8);
        again.restore(&order.in_order());
        assert_eq!(plain(&mut again), plain(&mut order));
    }
}
