//! S4-FIFO without its model: [`S3Fifo`](super::S3Fifo) whose sizes and thresholds are settings, and that can ignore hits right after an
//! insertion.
//!
//! Xia, Nixon, Marthen, Bhandari, Yang: "Learning-augmented heuristics: simple yet smart, robust and interpretable cache eviction", OSDI'26,
//! as in the authors' code for libCacheSim without tuning. There a model that was trained on 4,140 traces chooses one of 18 settings after
//! the cache has filled. The model is not included, so the caller chooses; the paper's "offline" results are those of the best setting.
//!
//! With the settings of S3-FIFO it equals [`S3FifoRules::Reference`](super::S3FifoRules).

use std::fmt;

use crate::ghost_queue::GhostQueue;
use crate::segments::{Queue, Segments};
use crate::{Entry, Eviction, HitRule, Slot};

const SMALL: Queue = 0;
const MAIN: Queue = 1;
/// Rounds in which the main queue spares an entry: two bits.
const MAIN_FREQUENCY_AT_MOST: u8 = 3;

/// The settings that the paper's model chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct S4FifoSettings {
    /// Share of the small queue, percent of the capacity: 1 to 99.
    pub small_percent: u8,
    /// Weight of the ghosts, percent of the capacity.
    pub ghost_percent: u16,
    /// Share of the small queue's newest entries whose hits do not count, percent: 0 to 100.
    pub skip_percent: u8,
    /// Hits in the small queue with which an entry moves to the main queue.
    pub promote_hits: u8,
    /// Whether an entry with a ghost enters the main queue. Otherwise ghosts have no effect.
    pub ghosts_return_to_main: bool,
}

impl S4FifoSettings {
    /// The settings with which S4-FIFO equals S3-FIFO.
    pub const S3_FIFO: Self = Self {
        small_percent: 10,
        ghost_percent: 90,
        skip_percent: 0,
        promote_hits: 2,
        ghosts_return_to_main: true,
    };

    /// The most frequent choice of the paper's model.
    pub const USUAL: Self = Self {
        small_percent: 20,
        ghost_percent: 300,
        skip_percent: 25,
        promote_hits: 1,
        ghosts_return_to_main: true,
    };

    /// Reads `s20g300k25p1r0`; settings that are absent are those of S3-FIFO. `None` if it has none, or a wrong one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut settings = Self::S3_FIFO;
        let mut rest = text;
        while let Some(letter) = rest.chars().next() {
            let digits = rest.get(1..)?;
            let end = digits.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(digits.len());
            let value: u16 = digits[..end].parse().ok()?;
            let small = u8::try_from(value).ok();
            match letter {
                's' => settings.small_percent = small.filter(|percent| (1..100).contains(percent))?,
                'g' => settings.ghost_percent = value,
                'k' => settings.skip_percent = small.filter(|percent| *percent <= 100)?,
                'p' => settings.promote_hits = small.filter(|hits| *hits > 0)?,
                'r' => settings.ghosts_return_to_main = value == 0,
                _ => return None,
            }
            rest = &digits[end..];
        }
        (!text.is_empty()).then_some(settings)
    }
}

/// The settings as in the policy's name: `s20-g300-k25-p1-r0`.
impl fmt::Display for S4FifoSettings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { small_percent, ghost_percent, skip_percent, promote_hits, ghosts_return_to_main } = self;
        let threshold = u8::from(!ghosts_return_to_main);
        write!(out, "s{small_percent}-g{ghost_percent}-k{skip_percent}-p{promote_hits}-r{threshold}")
    }
}

/// The small, main and ghost queues.
pub struct S4Fifo {
    settings: S4FifoSettings,
    segments: Segments,
    small_len: u64,
    /// Entries that entered the small queue so far.
    small_entries: u64,
    ghosts: GhostQueue,
    entries: Vec<State>,
    small_capacity: u64,
    main_capacity: u64,
    /// Whether nothing was evicted yet.
    is_filling: bool,
    /// An announced entry, and whether its ghost was found.
    announced: Option<(Entry, bool)>,
    /// The queue of the last restored entry.
    restored_to: Queue,
}

/// State of an entry.
#[derive(Clone, Copy, Default)]
struct State {
    hash: u64,
    /// Number of its entry into the small queue.
    number: u64,
    hits: u8,
}

impl S4Fifo {
    /// Empty queues that share `capacity_weight`.
    #[must_use]
    pub fn new(capacity_weight: u64, settings: S4FifoSettings) -> Self {
        let mut policy = Self {
            settings,
            segments: Segments::new(2),
            small_len: 0,
            small_entries: 0,
            ghosts: GhostQueue::default(),
            entries: Vec::new(),
            small_capacity: 0,
            main_capacity: 0,
            is_filling: true,
            announced: None,
            restored_to: SMALL,
        };
        policy.set_capacity(capacity_weight);
        policy
    }

    /// Weight of the small queue in a cache of this capacity.
    #[must_use]
    pub fn small_weight(capacity_weight: u64, settings: S4FifoSettings) -> u64 {
        (capacity_weight as f64 * (f64::from(settings.small_percent) / 100.0)) as u64
    }

    fn recall(&mut self, hash: u64) -> bool {
        self.settings.ghosts_return_to_main && self.ghosts.take(hash)
    }

    fn state(&mut self, slot: Slot) -> &mut State {
        &mut self.entries[slot.0 as usize]
    }

    fn enter(&mut self, queue: Queue, slot: Slot, entry: Entry) {
        if slot.0 as usize >= self.entries.len() {
            self.entries.resize(slot.0 as usize + 1, State::default());
        }
        *self.state(slot) = State { hash: entry.hash, number: self.small_entries, hits: 0 };
        self.segments.push_front(queue, slot, entry.weight);
        if queue == SMALL {
            self.small_entries += 1;
            self.small_len += 1;
        }
    }

    fn evict_small(&mut self) -> Option<Slot> {
        while let Some(oldest) = self.segments.back(SMALL) {
            let State { hash, hits, .. } = *self.state(oldest);
            self.small_len -= 1;
            if hits < self.settings.promote_hits {
                self.ghosts.insert(hash, self.segments.weight_of(oldest) as u32);
                self.ghosts.trim();
                self.segments.remove(oldest);
                return Some(oldest);
            }
            self.state(oldest).hits = 0;
            self.segments.move_to_front(MAIN, oldest);
        }
        None
    }

    fn evict_main(&mut self) -> Option<Slot> {
        while let Some(oldest) = self.segments.back(MAIN) {
            let state = self.state(oldest);
            if state.hits == 0 {
                self.segments.remove(oldest);
                return Some(oldest);
            }
            state.hits = state.hits.min(MAIN_FREQUENCY_AT_MOST) - 1;
            self.segments.move_to_front(MAIN, oldest);
        }
        None
    }

    fn main_is_next(&self) -> bool {
        self.segments.weight(MAIN) > self.main_capacity || self.segments.back(SMALL).is_none()
    }
}

impl Eviction for S4Fifo {
    fn announce(&mut self, entry: Entry) {
        self.announced = Some((entry, self.recall(entry.hash)));
    }

    fn had_ghost(&self) -> bool {
        self.announced.is_some_and(|(_, had_ghost)| had_ghost)
    }

    fn refuse(&mut self, entry: Entry) {
        self.recall(entry.hash);
    }

    fn insert(&mut self, slot: Slot, entry: Entry, _now_seconds: u32) {
        let had_ghost = match self.announced.take() {
            Some((announced, had_ghost)) if announced == entry => had_ghost,
            _ => self.recall(entry.hash),
        };
        let spills = self.is_filling && self.segments.weight(SMALL) >= self.small_capacity;
        self.enter(if had_ghost || spills { MAIN } else { SMALL }, slot, entry);
    }

    fn hit(&mut self, slot: Slot, _now_seconds: u32) {
        let skipped = self.small_len as f64 * (f64::from(self.settings.skip_percent) / 100.0);
        let age = self.small_entries - self.state(slot).number;
        if self.segments.queue_of(slot) == MAIN || age >= skipped as u64 {
            let state = self.state(slot);
            state.hits = state.hits.saturating_add(1);
        }
    }

    fn evict(&mut self, _now_seconds: u32) -> Option<Slot> {
        self.is_filling = false;
        if self.main_is_next() {
            return self.evict_main();
        }
        // All entries of the small queue can have moved to the main one.
        self.evict_small().or_else(|| self.evict_main())
    }

    fn remove(&mut self, slot: Slot) {
        self.small_len -= u64::from(self.segments.queue_of(slot) == SMALL);
        self.segments.remove(slot);
    }

    /// Alternates between the queues: if one held all pinned entries, every victim would be sought there.
    fn restore(&mut self, slot: Slot, entry: Entry, _now_seconds: u32) {
        self.ghosts.take(entry.hash);
        self.restored_to = SMALL + MAIN - self.restored_to;
        self.enter(self.restored_to, slot, entry);
    }

    fn set_capacity(&mut self, capacity_weight: u64) {
        self.small_capacity = Self::small_weight(capacity_weight, self.settings);
        self.main_capacity = capacity_weight - self.small_capacity;
        let ghost_share = f64::from(self.settings.ghost_percent) / 100.0;
        self.ghosts.set_capacity((capacity_weight as f64 * ghost_share) as u64);
    }

    fn len(&self) -> usize {
        self.segments.len()
    }

    fn oldest(&self) -> Option<Slot> {
        let (next, other) = if self.main_is_next() { (MAIN, SMALL) } else { (SMALL, MAIN) };
        self.segments.back(next).or_else(|| self.segments.back(other))
    }

    fn hit_rule(&self) -> HitRule {
        HitRule::Every
    }

    /// Links, queue and weight, the state, and the ghosts.
    fn bytes_per_slot(&self) -> u32 {
        let ghosts = GhostQueue::BYTES_PER_GHOST * u32::from(self.settings.ghost_percent) / 100;
        13 + size_of::<State>() as u32 + ghosts
    }

    fn reweigh(&mut self, slot: Slot, weight: u32) {
        self.segments.reweigh(slot, weight);
    }

    fn look_ahead(&self, slots: &[Slot]) {
        self.segments.look_ahead(slots);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_read_back_as_printed_and_wrong_ones_are_refused() {
        let plain = |settings: S4FifoSettings| settings.to_string().replace('-', "");
        for settings in [S4FifoSettings::S3_FIFO, S4FifoSettings::USUAL] {
            assert_eq!(S4FifoSettings::parse(&plain(settings)), Some(settings));
        }
        assert_eq!(S4FifoSettings::parse("s10"), Some(S4FifoSettings::S3_FIFO));
        for wrong in ["", "s", "s0", "s100", "x1", "p0", "k101", "g99999", "s20q", "20"] {
            assert_eq!(S4FifoSettings::parse(wrong), None, "{wrong}");
        }
    }
}
