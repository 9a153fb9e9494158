//! Segmented FIFO: regions of reinserted items stay in the queue longer than regions of new ones.
//!
//! There is one queue per priority. A region joins the queue of its priority at the back. If a queue above the lowest exceeds its share
//! of all regions, its oldest region moves to the back of the queue below. Victims come from the front of the lowest queue, which has no
//! limit.
//!
//! Source: the behaviour of CacheLib's `navySegmentedFifoSegmentRatio`.

use std::collections::VecDeque;

use super::{RegionId, RegionOrder};

/// See the module.
#[derive(Debug)]
pub struct SegmentedFifo {
    /// Lowest priority first.
    segments: Vec<VecDeque<RegionId>>,
    shares: Vec<u32>,
}

impl SegmentedFifo {
    /// Segments with these shares, lowest priority first.
    ///
    /// # Panics
    /// If there is no segment, or one without a share.
    #[must_use]
    pub fn new(shares: &[u32]) -> Self {
        assert!(!shares.is_empty() && !shares.contains(&0), "every segment needs a share");
        Self { segments: vec![VecDeque::new(); shares.len()], shares: shares.to_vec() }
    }

    /// Maximum number of regions of a segment: its share of all regions.
    fn limit(&self, segment: usize) -> usize {
        let shares: u64 = self.shares.iter().map(|&share| u64::from(share)).sum();
        usize::try_from(self.len() as u64 * u64::from(self.shares[segment]) / shares)
            .expect("below the total")
    }

    fn rebalance(&mut self) {
        for segment in (1..self.segments.len()).rev() {
            while self.segments[segment].len() > self.limit(segment) {
                let oldest = self.segments[segment].pop_front().expect("longer than its limit");
                self.segments[segment - 1].push_back(oldest);
            }
        }
    }
}

impl RegionOrder for SegmentedFifo {
    fn written(&mut self, region: RegionId, priority: u8) {
        let segment = usize::from(priority).min(self.segments.len() - 1);
        self.segments[segment].push_back(region);
        self.rebalance();
    }

    fn hit(&mut self, _region: RegionId) {}

    fn wants_hits(&self) -> bool {
        false
    }

    fn victim(&mut self) -> Option<RegionId> {
        // Because of rounding, the lowest segment may be empty only if all are.
        let victim = self.segments.iter_mut().find_map(VecDeque::pop_front);
        self.rebalance();
        victim
    }

    fn len(&self) -> usize {
        self.segments.iter().map(VecDeque::len).sum()
    }

    fn in_order(&mut self) -> Vec<(RegionId, u8)> {
        (0_u8..)
            .zip(&self.segments)
            .flat_map(|(priority, segment)| segment.iter().map(move |&region| (region, priority)))
            .collect()
    }

    fn restore(&mut self, regions: &[(RegionId, u8)]) {
        // Added together: if regions were added one by one, the first would exceed shares of a total that is still small.
        for &(region, priority) in regions {
            let segment = usize::from(priority).min(self.segments.len() - 1);
            self.segments[segment].push_back(region);
        }
        self.rebalance();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn victims(order: &mut SegmentedFifo) -> Vec<u32> {
        std::iter::from_fn(|| order.victim()).map(|region| region.0).collect()
    }

    #[test]
    fn region_above_the_share_of_its_segment_is_demoted() {
        let mut order = SegmentedFifo::new(&[2, 1, 1]);
        // With one region in total, no upper segment may hold any: region 9 falls to the lowest.
        order.written(RegionId(9), 2);
        assert_eq!(order.in_order(), [(RegionId(9), 0)]);
        for region in [0, 1, 2] {
            order.written(RegionId(region), 0);
        }
        // With five regions, a quarter is one: region 4 stays in the highest segment.
        order.written(RegionId(4), 2);
        assert_eq!(order.in_order().last(), Some(&(RegionId(4), 2)));
        // A second region pushes it down by one segment only.
        order.written(RegionId(5), 2);
        assert_eq!(order.in_order()[4..], [(RegionId(4), 1), (RegionId(5), 2)]);
        assert_eq!(victims(&mut order), [9, 0, 1, 2, 4, 5]);
    }

    #[test]
    fn region_order_survives_a_restart() {
        let mut order = SegmentedFifo::new(&[1, 1, 1]);
        for region in 0..40 {
            order.written(RegionId(region), (region * 7 % 3) as u8);
            if region % 4 == 0 {
                order.victim();
            }
        }
        let mut again = SegmentedFifo::new(&[1, 1, 1]);
        again.restore(&order.in_order());
        assert_eq!(victims(&mut again), victims(&mut order));
    }

    /// The config may have fewer segments than before the restart.
    #[test]
    fn region_of_a_missing_segment_is_restored_to_the_highest() {
        let mut order = SegmentedFifo::new(&[1]);
        order.restore(&[(RegionId(3), 0), (RegionId(1), 2)]);
        assert_eq!(order.in_order(), [(RegionId(3), 0), (RegionId(1), 0)]);
    }
}
