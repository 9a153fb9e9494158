//! LRU-2Q as in CacheLib (MM2Q): new entries need a second use before they can displace proven ones. They enter a hot queue, fall to a cold
//! one, and only a hit in the cold queue moves them to the warm queue, so a scan passes through hot and cold and does not affect the warm
//! queue.
//!
//! After Johnson, Shasha: "2Q: A Low Overhead High Performance Buffer Management Replacement Algorithm", VLDB'94, whose A1in is the hot
//! queue and whose Am is the warm one. CacheLib's cold queue replaces the paper's A1out, but contains entries instead of ghosts, and also
//! receives the warm queue's oldest entries. A hit in the hot queue moves the entry to its front, which the paper's FIFO A1in does not do.

use crate::eviction::refresh::{Clock, Refresh};
use crate::segments::{Queue, Segments, share};
use crate::{Entry, Eviction, HitRule, Slot};

const WARM: Queue = 0;
const HOT: Queue = 1;
const COLD: Queue = 2;

/// Settings of an LRU-2Q.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lru2qConfig {
    /// Which hits move an entry.
    pub refresh: Refresh,
    /// The hot queue's share of all entries, in percent.
    pub hot_percent: u8,
    /// The cold queue's share, percent. The warm queue has the rest.
    pub cold_percent: u8,
}

impl Default for Lru2qConfig {
    fn default() -> Self {
        Self { refresh: Refresh::default(), hot_percent: 20, cold_percent: 20 }
    }
}

/// The three queues.
pub struct Lru2q {
    queues: Segments,
    hot_percent: u8,
    warm_percent: u8,
    clock: Clock,
    /// The queue of the last restored entry.
    restores_to_warm: bool,
}

impl Lru2q {
    /// Creates empty queues.
    ///
    /// # Panics
    /// If hot and cold together are more than 100 percent.
    #[must_use]
    pub fn new(config: Lru2qConfig) -> Self {
        let Lru2qConfig { refresh, hot_percent, cold_percent } = config;
        let warm_percent = 100_u8.checked_sub(hot_percent.saturating_add(cold_percent));
        let warm_percent = warm_percent.unwrap_or_else(|| {
            panic!("hot queue {hot_percent} % and cold queue {cold_percent} % are together more than 100 % of an LRU-2Q")
        });
        let (queues, clock) = (Segments::new(3), Clock::new(refresh));
        Self { queues, hot_percent, warm_percent, clock, restores_to_warm: false }
    }

    fn enter(&mut self, queue: Queue, slot: Slot, weight: u32, now_seconds: u32) {
        self.queues.push_front(queue, slot, weight);
        self.clock.touch(slot, now_seconds);
        self.settle();
    }

    /// Moves entries above the shares of the warm and the hot queue to the cold one.
    fn settle(&mut self) {
        let held = self.queues.total_weight();
        for (queue, percent) in [(WARM, self.warm_percent), (HOT, self.hot_percent)] {
            let share = share(held, percent);
            while self.queues.weight(queue) > share
                && let Some(slot) = self.queues.back(queue)
            {
                self.queues.move_to_front(COLD, slot);
            }
        }
    }
}

impl Eviction for Lru2q {
    fn insert(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        self.enter(HOT, slot, entry.weight, now_seconds);
    }

    fn hit(&mut self, slot: Slot, now_seconds: u32) {
        match self.queues.queue_of(slot) {
            HOT => self.queues.move_to_front(HOT, slot),
            COLD => {
                self.queues.move_to_front(WARM, slot);
                self.settle();
            }
            _ => self.queues.move_to_front(WARM, slot),
        }
        self.clock.touch(slot, now_seconds);
        self.clock.tune(self.oldest(), now_seconds);
    }

    fn evict(&mut self, now_seconds: u32) -> Option<Slot> {
        // In consecutive evictions the cold queue must not run empty; otherwise there is nothing to do here.
        self.settle();
        self.clock.tune(self.oldest(), now_seconds);
        let victim = self.oldest()?;
        self.queues.remove(victim);
        Some(victim)
    }

    fn remove(&mut self, slot: Slot) {
        self.queues.remove(slot);
        self.settle();
    }

    /// Alternates between the warm and the hot queue, so that an insert evicts only the entries that these queues push out.
    fn restore(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        self.restores_to_warm ^= true;
        let queue = if self.restores_to_warm { WARM } else { HOT };
        self.enter(queue, slot, entry.weight, now_seconds);
    }

    fn len(&self) -> usize {
        self.queues.len()
    }

    fn oldest(&self) -> Option<Slot> {
        [COLD, HOT, WARM].into_iter().find_map(|queue| self.queues.back(queue))
    }

    fn hit_rule(&self) -> HitRule {
        self.clock.hit_rule()
    }

    fn reweigh(&mut self, slot: Slot, weight: u32) {
        self.queues.reweigh(slot, weight);
        self.settle();
    }

    fn look_ahead(&self, slots: &[Slot]) {
        self.queues.look_ahead(slots);
    }
}
