//! A policy that ranks regions: an order of regions, and a rule that selects the items to reinsert from a reclaimed region.

use super::super::config::{RegionConfig, Reinsertion};
use super::super::order::RegionOrder;
use super::super::{InsertionPoint, RegionId};
use super::{Needs, Placing, Raise, RegionPolicy, Resident};
use crate::KeyHash;

/// See the module.
pub struct ByOrder {
    order: Box<dyn RegionOrder>,
    /// Whether the order holds each region. A hit may be reported before a region enters the order or after it leaves.
    held: Box<[bool]>,
    reinsertion: Reinsertion,
    again: ReinsertionPoint,
}

/// The insertion point of reinsertions.
#[derive(Clone, Copy)]
enum ReinsertionPoint {
    /// The point of the priority that equals the item's hits.
    ByHits,
    /// Always this point.
    At(u8),
}

impl ByOrder {
    /// Wraps `order` over `regions` regions, with the reinsertion of `config`.
    #[must_use]
    pub fn new(order: Box<dyn RegionOrder>, config: &RegionConfig, regions: usize) -> Self {
        let last = u8::try_from(config.points() - 1).expect("few points");
        let again =
            if config.order.priorities() > 1 { ReinsertionPoint::ByHits } else { ReinsertionPoint::At(last) };
        Self { order, held: vec![false; regions].into(), reinsertion: config.reinsertion, again }
    }

    fn hold(&mut self, region: RegionId, is_held: bool) {
        self.held[region.0 as usize] = is_held;
    }
}

impl RegionPolicy for ByOrder {
    fn needs(&self) -> Needs {
        Needs { hits: self.order.wants_hits(), items: false }
    }

    /// The reader no longer holds the region's lock when the hit is reported, so the region may have left the order.
    fn hit(&mut self, item: &Resident) -> Option<Raise> {
        if self.held[item.region.0 as usize] {
            self.order.hit(item.region);
        }
        None
    }

    fn survives(&mut self, item: &Resident, hash: KeyHash, draw: u64) -> Option<Placing> {
        let keep = match self.reinsertion {
            Reinsertion::Never => false,
            Reinsertion::Hits { at_least } => item.hits >= at_least,
            Reinsertion::Percent { percent, seed } => {
                KeyHash(hash.0 ^ seed ^ draw).remix() % 100 < u64::from(percent)
            }
        };
        let level = match self.again {
            ReinsertionPoint::ByHits => item.hits,
            ReinsertionPoint::At(level) => level,
        };
        keep.then_some(Placing { level, worth: 0.0 })
    }

    fn written(&mut self, region: RegionId, point: InsertionPoint) {
        self.hold(region, true);
        self.order.written(region, point.0);
    }

    fn victim(&mut self) -> Option<RegionId> {
        let victim = self.order.victim()?;
        self.hold(victim, false);
        Some(victim)
    }

    fn len(&self) -> usize {
        self.order.len()
    }

    fn in_order(&mut self) -> Vec<(RegionId, u8)> {
        self.order.in_order()
    }

    fn restore(&mut self, regions: &[(RegionId, u8)]) {
        regions.iter().for_each(|&(region, _)| self.hold(region, true));
        self.order.restore(regions);
    }
}
