//! The hits that count: the refresh time of CacheLib's LRU family.

use crate::{HitRule, Slot};

/// Longest refresh time selected by tuning, in seconds.
const TUNED_AT_MOST_SECONDS: u32 = 900;

/// A hit counts only if the last counted one is at least this long ago.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Refresh {
    /// The refresh time, or the minimum for tuning; 0 counts every hit.
    pub seconds: u32,
    /// The share of the oldest entry's age that tuning selects; 0 disables tuning. Entries of a cache with slow turnover are less likely to
    /// be evicted, so their hits can count less often.
    pub ratio: f64,
    /// Tuning interval in seconds; 0 disables tuning.
    pub tune_every_seconds: u32,
}

impl Default for Refresh {
    fn default() -> Self {
        Self { seconds: 60, ratio: 0.1, tune_every_seconds: 60 }
    }
}

impl Refresh {
    /// Every hit counts.
    #[must_use]
    pub fn every_hit() -> Self {
        Self { seconds: 0, ratio: 0.0, tune_every_seconds: 0 }
    }

    fn tunes(&self) -> bool {
        self.seconds > 0 && self.ratio > 0.0 && self.tune_every_seconds > 0
    }
}

/// The current refresh time, and the data for tuning.
pub(crate) struct Clock {
    config: Refresh,
    refresh_seconds: u32,
    next_tuning_seconds: u32,
    /// Time of each slot's last counted use; empty without tuning.
    touched_seconds: Vec<u32>,
}

impl Clock {
    pub(crate) fn new(config: Refresh) -> Self {
        Self { config, refresh_seconds: config.seconds, next_tuning_seconds: 0, touched_seconds: Vec::new() }
    }

    #[inline]
    pub(crate) fn touch(&mut self, slot: Slot, now_seconds: u32) {
        if self.config.tunes() {
            let slot = slot.0 as usize;
            if slot >= self.touched_seconds.len() {
                self.touched_seconds.resize(slot + 1, 0);
            }
            self.touched_seconds[slot] = now_seconds;
        }
    }

    /// Adjusts the refresh time to the oldest entry's age, if the interval has passed.
    #[inline]
    pub(crate) fn tune(&mut self, oldest: Option<Slot>, now_seconds: u32) {
        if now_seconds >= self.next_tuning_seconds && self.config.tunes() {
            self.next_tuning_seconds = now_seconds.saturating_add(self.config.tune_every_seconds);
            let touched = oldest.map_or(now_seconds, |slot| self.touched_seconds[slot.0 as usize]);
            let wanted = f64::from(now_seconds.saturating_sub(touched)) * self.config.ratio;
            let at_most = TUNED_AT_MOST_SECONDS.max(self.config.seconds);
            self.refresh_seconds = (wanted as u32).clamp(self.config.seconds, at_most);
        }
    }

    pub(crate) fn hit_rule(&self) -> HitRule {
        match self.refresh_seconds {
            0 => HitRule::Every,
            refresh_seconds => HitRule::Refresh { refresh_seconds },
        }
    }
}
