//! A log whose regions are in the order of hashes, as the engine's log for small items.
//!
//! Objects collect in an open region in memory. A full region is sorted by hash, packed into pages and written as a whole, and the oldest
//! region is evicted for it. Objects that were hit since they were written are readmitted to the open region, up to a share of it.
//! An index entry has no offset, so the log costs about 3 bytes of DRAM per object; the price is an unused end of each page, half an
//! object on average.

use std::collections::VecDeque;

use super::blocks::{Block, Blocks};
use super::{FlashCache, WeightedObject};

/// The sizes of a [`HashLog`], as weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HashLogRules {
    /// Weight of a region.
    pub region_weight: u64,
    /// Weight of a page, the unit of a read. No object spans two pages.
    pub page_weight: u64,
    /// Weight of the header of a page.
    pub page_overhead: u64,
    /// Weight of the header of an object in its page.
    pub object_overhead: u32,
    /// The part of each region for objects of the evicted region that were hit since they were written.
    pub readmission_share: f64,
}

impl HashLogRules {
    /// The engine's page format, and 448 regions of at least a page.
    #[must_use]
    pub fn of_engine(capacity_weight: u64, readmission_share: f64) -> Self {
        let page_weight = 4096;
        let region_weight = (capacity_weight / 448).next_multiple_of(page_weight).max(page_weight);
        Self { region_weight, page_weight, page_overhead: 36, object_overhead: 4, readmission_share }
    }
}

/// The log.
pub struct HashLog {
    rules: HashLogRules,
    blocks: Blocks,
    open: Block,
    open_objects: u64,
    /// The oldest at the back.
    sealed: VecDeque<Block>,
    /// Regions besides the open one, at most.
    max_sealed: usize,
    is_hit: Vec<bool>,
    written_weight: u64,
    evicted: Vec<(u32, u32)>,
}

impl HashLog {
    /// A log of at least one region.
    #[must_use]
    pub fn new(capacity_weight: u64, mut rules: HashLogRules) -> Self {
        rules.region_weight = rules.region_weight.clamp(1, capacity_weight.max(1));
        rules.page_weight = rules.page_weight.clamp(1, rules.region_weight);
        let mut blocks = Blocks::new(rules.region_weight);
        let count = (capacity_weight / rules.region_weight).max(1);
        Self {
            open: blocks.open(),
            blocks,
            rules,
            open_objects: 0,
            sealed: VecDeque::new(),
            max_sealed: count as usize - 1,
            is_hit: Vec::new(),
            written_weight: 0,
            evicted: Vec::new(),
        }
    }

    /// Whether the open region has no page for another object of this weight, if each page ends half an object early.
    fn is_full_for(&self, weight: u32) -> bool {
        if self.open_objects == 0 {
            return false;
        }
        let pages = self.rules.region_weight / self.rules.page_weight;
        let objects = self.open_objects + 1;
        let overhead = u64::from(self.rules.object_overhead);
        let entries = self.blocks.filled_weight(self.open) + u64::from(weight) + objects * overhead;
        let waste = pages * entries / (2 * objects);
        entries + waste > pages * self.rules.page_weight.saturating_sub(self.rules.page_overhead)
    }

    fn append(&mut self, object: u32, weight: u32) {
        if object as usize >= self.is_hit.len() {
            self.is_hit.resize(object as usize + 1, false);
        }
        self.is_hit[object as usize] = false;
        self.blocks.append(self.open, object, weight);
        self.open_objects += 1;
    }

    /// Writes the open region, and evicts the oldest one if there are too many.
    fn seal(&mut self) {
        self.written_weight += self.rules.region_weight;
        self.sealed.push_front(self.open);
        self.open = self.blocks.open();
        self.open_objects = 0;
        while self.sealed.len() > self.max_sealed
            && let Some(oldest) = self.sealed.pop_back()
        {
            let mut evicted = std::mem::take(&mut self.evicted);
            self.blocks.erase(oldest, &mut evicted);
            self.readmit(&evicted);
            self.evicted = evicted;
        }
    }

    fn readmit(&mut self, evicted: &[(u32, u32)]) {
        let mut budget = (self.rules.region_weight as f64 * self.rules.readmission_share) as u64;
        for &(object, weight) in evicted {
            let needed = u64::from(weight) + u64::from(self.rules.object_overhead);
            if self.is_hit[object as usize] && needed <= budget {
                budget -= needed;
                self.append(object, weight);
            }
        }
    }
}

impl FlashCache for HashLog {
    fn holds(&self, object: u32) -> bool {
        self.blocks.home(object).is_some()
    }

    fn hit(&mut self, object: u32) {
        self.is_hit[object as usize] = true;
    }

    fn insert(&mut self, objects: &[WeightedObject]) {
        for &WeightedObject { object, weight } in objects {
            if self.is_full_for(weight) {
                self.seal();
            }
            self.append(object, weight);
        }
    }

    fn remove(&mut self, object: u32) {
        self.blocks.forget(object);
    }

    fn expire(&mut self, object: u32) {
        self.blocks.forget(object);
    }

    /// Whole regions; the open one is in memory.
    fn written_weight(&self) -> u64 {
        self.written_weight
    }

    fn weight_at_most(&self) -> u64 {
        let overhead = self.rules.page_overhead + u64::from(self.rules.object_overhead);
        self.rules.page_weight.saturating_sub(overhead)
    }
}
