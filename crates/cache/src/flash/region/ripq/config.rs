//! The configuration of a priority queue of items.

use super::super::layout::MAX_POINTS;
use super::caching::Caching;

/// Configuration of a restricted insertion priority queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RipqConfig {
    /// K: number of sections of the queue, each with an insertion point at its head. With relative priorities, sections have equal bytes;
    /// with absolute ones, the n-th section from the end has n parts. With one insertion point per section, there are as many regions in
    /// memory.
    pub sections: u8,
    /// The policy that assigns priorities.
    pub caching: Caching,
    /// SIPQ: all new and moved items go to one region in memory, and only virtual blocks express priorities. It needs the memory of one
    /// insertion point and rewrites items that RIPQ could leave in place.
    pub single_point: bool,
    /// If more than this share of the region at the end of the queue would have to be rewritten, the region moves to the head instead and
    /// the next one is tried. `None` disables this. It does not apply to absolute priorities.
    pub hot_above: Option<f64>,
    /// Whether bursts of reinsertion are smoothed.
    pub early_reclaim: Option<EarlyReclaim>,
    /// If more than this share of a region is dead (items replaced or removed, or written half empty), the region is reclaimed before all
    /// others, and its live items are rewritten in place. Not in the sources, whose photos are never overwritten. `None` disables this.
    pub compact_above: Option<f64>,
}

/// While many items are being rewritten, regions with few such items are reclaimed early.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EarlyReclaim {
    /// Weight of the newest reclaim in the moving average of the share written again.
    pub coefficient: f64,
    /// Moving average above which a cold region is searched for.
    pub above: f64,
    /// A region is cold if less than this share of it would be rewritten.
    pub cold_below: f64,
}

impl EarlyReclaim {
    /// As in production (the article's part IV).
    pub const PRODUCTION: Self = Self { coefficient: 0.5, above: 0.2, cold_below: 0.1 };
}

impl RipqConfig {
    /// Eight sections, all refinements on.
    #[must_use]
    pub fn new(caching: Caching) -> Self {
        Self {
            sections: 8,
            caching,
            single_point: false,
            hot_above: Some(0.6),
            early_reclaim: Some(EarlyReclaim::PRODUCTION),
            compact_above: Some(0.5),
        }
    }

    /// Without the refinements of part IV: the queue as published.
    #[must_use]
    pub fn plain(caching: Caching) -> Self {
        Self { hot_above: None, early_reclaim: None, compact_above: None, ..Self::new(caching) }
    }

    /// Number of regions that are filled concurrently.
    #[must_use]
    pub fn points(&self) -> usize {
        if self.single_point { 1 } else { usize::from(self.sections) }
    }

    /// Describes the setting that is out of range, if any.
    pub(crate) fn fault(&self) -> Option<String> {
        let share = |value: f64| (0.0..=1.0).contains(&value);
        if !(1..=MAX_POINTS).contains(&usize::from(self.sections)) {
            return Some(format!("{} sections; 1 to {MAX_POINTS} are supported", self.sections));
        }
        if [self.hot_above, self.compact_above].into_iter().flatten().any(|ratio| !share(ratio)) {
            return Some("the shares above which a region is hot or dead must be between 0 and 1".to_owned());
        }
        let early_reclaim = self.early_reclaim.unwrap_or(EarlyReclaim::PRODUCTION);
        if ![early_reclaim.coefficient, early_reclaim.above, early_reclaim.cold_below].into_iter().all(share)
        {
            return Some("the shares that smooth bursts must be between 0 and 1".to_owned());
        }
        self.caching.fault()
    }
}
