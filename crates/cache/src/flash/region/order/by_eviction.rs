//! Any eviction policy, with regions as entries: FIFO and LRU over regions share their code with those over items in DRAM.

use policy::eviction::{Fifo, Lru};
use policy::{Entry, Eviction, Slot};

use super::{RegionId, RegionOrder};

/// See the module.
pub struct ByEviction {
    policy: Box<dyn Eviction>,
    wants_hits: bool,
}

impl ByEviction {
    /// The region written longest ago is evicted first. Purely sequential on flash.
    #[must_use]
    pub fn fifo() -> Self {
        Self { policy: Box::new(Fifo::new()), wants_hits: false }
    }

    /// The region least recently written or read is evicted first.
    #[must_use]
    pub fn lru() -> Self {
        Self { policy: Box::new(Lru::exact()), wants_hits: true }
    }

    /// These policies use neither hashes nor weights, and receive every hit, so times do not matter.
    const ENTRY: Entry = Entry { hash: 0, weight: 1 };
    const NOW_SECONDS: u32 = 0;
}

impl RegionOrder for ByEviction {
    fn written(&mut self, region: RegionId, _priority: u8) {
        self.policy.insert(Slot(region.0), Self::ENTRY, Self::NOW_SECONDS);
    }

    fn hit(&mut self, region: RegionId) {
        self.policy.hit(Slot(region.0), Self::NOW_SECONDS);
    }

    fn wants_hits(&self) -> bool {
        self.wants_hits
    }

    fn victim(&mut self) -> Option<RegionId> {
        self.policy.evict(Self::NOW_SECONDS).map(|slot| RegionId(slot.0))
    }

    fn len(&self) -> usize {
        self.policy.len()
    }

    /// Both policies are a single queue: removing all regions in order and adding them again in the same order changes nothing.
    fn in_order(&mut self) -> Vec<(RegionId, u8)> {
        let regions: Vec<_> = std::iter::from_fn(|| self.victim()).map(|region| (region, 0)).collect();
        self.restore(&regions);
        regions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn victims(order: &mut ByEviction) -> Vec<u32> {
        std::iter::from_fn(|| order.victim()).map(|region| region.0).collect()
    }

    #[test]
    fn fifo_order_ignores_reads() {
        let mut order = ByEviction::fifo();
        [3, 1, 2].into_iter().for_each(|region| order.written(RegionId(region), 0));
        assert!(!order.wants_hits());
        assert_eq!(order.in_order().len(), 3);
        assert_eq!(victims(&mut order), [3, 1, 2]);
    }

    #[test]
    fn read_region_becomes_the_last_victim() {
        let mut order = ByEviction::lru();
        [3, 1, 2].into_iter().for_each(|region| order.written(RegionId(region), 0));
        assert!(order.wants_hits());
        order.hit(RegionId(3));
        assert_eq!(order.in_order(), [(RegionId(1), 0), (RegionId(2), 0), (RegionId(3), 0)]);
        assert_eq!(victims(&mut order), [1, 2, 3]);
    }
}
