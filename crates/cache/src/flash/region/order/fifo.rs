//! First in, first out: the region written longest ago leaves first. Purely sequential on flash.

use std::collections::VecDeque;

use super::{RegionId, RegionOrder};

/// See the module.
#[derive(Debug, Default)]
pub struct Fifo {
    queue: VecDeque<RegionId>,
}

impl RegionOrder for Fifo {
    fn written(&mut self, region: RegionId, _priority: u8) {
        self.queue.push_back(region);
    }

    fn hit(&mut self, _region: RegionId) {}

    fn wants_hits(&self) -> bool {
        false
    }

    fn victim(&mut self) -> Option<RegionId> {
        self.queue.pop_front()
    }

    fn remove(&mut self, region: RegionId) {
        self.queue.retain(|&other| other != region);
    }

    fn len(&self) -> usize {
        self.queue.len()
    }

    fn in_order(&self) -> Vec<(RegionId, u8)> {
        self.queue.iter().map(|&region| (region, 0)).collect()
    }
}
