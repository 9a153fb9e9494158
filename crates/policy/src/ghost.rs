//! A ghost queue: remembers recently evicted keys without their values.
//!
//! An entry has 4 bytes: a fingerprint of 20 bits and the insertion time in 12. Time is the weight inserted since the start, in ticks of
//! 1/1024 of the window, so an entry expires when a window's weight was inserted after it: the queue of "FIFO queues are all you need for
//! cache eviction" (SOSP'23, section 4.2) without a queue. Sixteen entries share a cache line, the newest first, and a key is searched in
//! its line only. A full line drops its oldest entry early; an absent key is reported as present with a probability below 16 / 2^20.
//!
//! The table grows line by line, by linear hashing: Litwin, "Linear hashing: a new tool for file and table addressing", VLDB'80. So it is
//! never larger than its largest reservation requires; it does not shrink.

use wide::u32x8;

use crate::prefetch::prefetch_to_write;

const LINE: usize = 16;
const FINGERPRINT_BITS: u32 = 20;
const STAMP_BITS: u32 = 32 - FINGERPRINT_BITS;
const STAMP_MASK: u32 = (1 << STAMP_BITS) - 1;
/// Ticks in a window. Timestamps wrap around after four windows; sweeping visits every line once per window, so no entry remains until its
/// timestamp looks recent again.
const TICKS: u64 = 1024;
/// Minimum size: 64 lines are 4 KiB.
const LINES_AT_LEAST: usize = 64;
/// Entries per line for sizing: the other places are spare, because keys do not spread evenly.
const FILL: usize = 11;
const EMPTY: u32 = 0;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u32; LINE]);

/// Keys evicted within the last `window` of weight.
pub struct Ghost {
    lines: Vec<Line>,
    /// The largest power of two up to the number of lines. The low hash bits select among this many lines; each line beyond it has taken
    /// half of the keys of the line `base_lines` before it.
    base_lines: usize,
    window: u64,
    tick_weight: u64,
    /// Ticks so far, and the weight inserted since the last one.
    tick: u32,
    since_tick: u64,
    sweep_next: usize,
    /// Lines due to be swept, in fractions: [`TICKS`] are one line.
    sweep_due: u64,
}

impl Ghost {
    /// Remembers keys for the last `window_weight` inserted.
    #[must_use]
    pub fn new(window_weight: u64) -> Self {
        let lines = vec![Line([EMPTY; LINE]); LINES_AT_LEAST];
        let mut ghost = Self {
            lines,
            base_lines: LINES_AT_LEAST,
            window: 0,
            tick_weight: 1,
            tick: 0,
            since_tick: 0,
            sweep_next: 0,
            sweep_due: 0,
        };
        ghost.set_window(window_weight);
        ghost
    }

    /// Changes the window. Remembered keys keep their position in it.
    pub fn set_window(&mut self, window_weight: u64) {
        self.window = window_weight;
        self.tick_weight = window_weight.div_ceil(TICKS).max(1);
    }

    /// Makes the table large enough for this many entries: 16 places for every 11.
    #[inline]
    pub fn reserve(&mut self, entries: usize) {
        if self.lines.len() * FILL < entries {
            self.grow(entries.div_ceil(FILL));
        }
    }

    #[cold]
    fn grow(&mut self, lines: usize) {
        if self.lines.capacity() < lines {
            // The capacity grows by a 32nd, not by doubling, which would waste memory.
            self.lines.reserve_exact(lines + lines / 32 - self.lines.len());
        }
        while self.lines.len() < lines {
            // One more bit of the hash now selects between this line and the new one, but entries do not store it: each is copied to both.
            // The wrong copy matches no key and expires.
            self.lines.push(self.lines[self.lines.len() - self.base_lines]);
            if self.lines.len() == 2 * self.base_lines {
                self.base_lines *= 2;
            }
        }
    }

    /// Records an evicted key.
    #[inline]
    pub fn insert(&mut self, hash: u64, weight: u32) {
        self.since_tick += u64::from(weight);
        if self.since_tick >= self.tick_weight {
            self.advance();
        }
        let entry = fingerprint(hash) << STAMP_BITS | self.tick & STAMP_MASK;
        let line = self.line_of(hash);
        let places = &mut self.lines[line].0;
        let before = *places;
        places[1..].copy_from_slice(&before[..LINE - 1]);
        places[0] = entry;
    }

    /// Whether the key was evicted recently; if so it is removed, because it returned.
    #[inline]
    pub fn take(&mut self, hash: u64) -> bool {
        let line = self.line_of(hash);
        let equal = self.lines[line].with_fingerprint(fingerprint(hash));
        if equal == 0 {
            return false;
        }
        let (place, places) = (equal.trailing_zeros() as usize, &mut self.lines[line].0);
        let entry = places[place];
        places.copy_within(place + 1.., place);
        places[LINE - 1] = EMPTY;
        age(entry, self.tick) < self.window_ticks()
    }

    /// Prefetches the line of `hash`.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch_to_write(std::ptr::from_ref(&self.lines[self.line_of(hash)]).cast());
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.lines.capacity() * size_of::<Line>()
    }

    fn window_ticks(&self) -> u32 {
        self.window.div_ceil(self.tick_weight) as u32
    }

    fn line_of(&self, hash: u64) -> usize {
        let line = hash as usize & (2 * self.base_lines - 1);
        if line < self.lines.len() { line } else { line - self.base_lines }
    }

    /// Advances the time by the one tick or more that is due. In a small table, each insertion is a tick.
    #[inline]
    fn advance(&mut self) {
        self.since_tick -= self.tick_weight;
        self.tick = self.tick.wrapping_add(1);
        self.sweep_due += self.lines.len() as u64;
        if self.since_tick >= self.tick_weight {
            self.advance_further();
        }
        if self.sweep_due >= TICKS {
            self.sweep();
        }
    }

    #[cold]
    fn advance_further(&mut self) {
        let ticks = self.since_tick / self.tick_weight;
        self.since_tick %= self.tick_weight;
        self.tick = self.tick.wrapping_add(ticks as u32);
        self.sweep_due += ticks * self.lines.len() as u64;
        if ticks + 1 >= TICKS {
            self.lines.fill(Line([EMPTY; LINE]));
            self.sweep_due = 0;
        }
    }

    /// Sweeps expired entries: as many lines per tick as cover the table once in a window.
    #[inline(never)]
    fn sweep(&mut self) {
        let (tick, window_ticks) = (self.tick, self.window_ticks());
        let lines = self.sweep_due / TICKS;
        self.sweep_due %= TICKS;
        for _ in 0..lines {
            let line = if self.sweep_next < self.lines.len() { self.sweep_next } else { 0 };
            self.sweep_next = line + 1;
            // The newest entries are first, so expired ones are at the end.
            for place in self.lines[line].0.iter_mut().rev() {
                match *place {
                    EMPTY => {}
                    entry if age(entry, tick) >= window_ticks => *place = EMPTY,
                    _ => break,
                }
            }
        }
    }
}

impl Line {
    /// The entries with this fingerprint: bit `n` for place `n`.
    #[inline]
    fn with_fingerprint(&self, wanted: u32) -> u32 {
        let (halves, _) = self.0.as_chunks::<8>();
        let equal =
            |half: &[u32; 8]| (u32x8::new(*half) >> STAMP_BITS).simd_eq(u32x8::splat(wanted)).to_bitmask();
        equal(&halves[0]) | equal(&halves[1]) << 8
    }
}

/// Never 0, so that no entry equals [`EMPTY`].
fn fingerprint(hash: u64) -> u32 {
    ((hash >> (64 - FINGERPRINT_BITS)) as u32).max(1)
}

/// Ticks since the entry was inserted.
fn age(entry: u32, tick: u32) -> u32 {
    tick.wrapping_sub(entry) & STAMP_MASK
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;
    use crate::simulate::hash_of;

    /// A model: all insertions, with the key cleared when it is taken.
    #[derive(Default)]
    struct Twin {
        queue: Vec<(Option<u64>, u32)>,
    }

    impl Twin {
        fn take(&mut self, key: u64, window: u64) -> bool {
            let Some(place) = self.queue.iter().rposition(|&(queued, _)| queued == Some(key)) else {
                return false;
            };
            let after: u64 = self.queue[place + 1..].iter().map(|&(_, weight)| u64::from(weight)).sum();
            self.queue[place].0 = None;
            after < window
        }
    }

    #[test]
    fn small_window_equals_a_list() {
        for seed in 0..40 {
            let mut rng = StdRng::seed_from_u64(seed);
            let window = rng.random_range(0..200);
            let (mut ghost, mut twin) = (Ghost::new(window), Twin::default());
            let weight_at_most = rng.random_range(1..4);
            for _ in 0..2000 {
                let key = rng.random_range(0..400);
                assert_eq!(ghost.take(hash_of(key)), twin.take(key, window), "seed {seed}, key {key}");
                if rng.random() {
                    let weight = rng.random_range(1..=weight_at_most);
                    ghost.insert(hash_of(key), weight);
                    twin.queue.push((Some(key), weight));
                }
            }
        }
    }

    /// Between powers of two, some lines have twice the keys of others: here lines have 1, 1.25, 1.5, 1.75 and 2 times 8192 keys. The
    /// window is a tenth smaller than the reservation, as in S3-FIFO.
    #[test]
    fn large_window_has_few_losses_and_false_positives() {
        for reserved in [90_200, 112_600, 135_100, 157_600, 180_200_u64] {
            let window = reserved * 9 / 10;
            let mut ghost = Ghost::new(window);
            ghost.reserve(reserved as usize);
            for key in 0..10 * window {
                ghost.insert(hash_of(key), 1);
            }
            let false_positives =
                (20 * window..20 * window + 1_000_000).filter(|&key| ghost.take(hash_of(key)));
            let false_positives = false_positives.count();
            assert!(false_positives < 40, "{false_positives} of a million absent keys");
            // The precision of the window's end.
            let tick = window.div_ceil(TICKS);
            let older = (0..9 * window - tick).filter(|&key| ghost.take(hash_of(key))).count();
            assert!(older < 60, "{older} older than the window");
            let kept = (9 * window + tick..10 * window).filter(|&key| ghost.take(hash_of(key))).count();
            assert!(kept as u64 > window * 96 / 100, "{kept} of {window}");
            assert!(ghost.memory_bytes() as u64 <= reserved * 6, "{} bytes", ghost.memory_bytes());
        }
    }

    #[test]
    fn wrapped_timestamps_do_not_look_recent() {
        let window = 1024;
        for quiet in [1024, 3000, 4096, 5000, 8192, 70_000] {
            let mut ghost = Ghost::new(window);
            ghost.insert(hash_of(1), 1);
            (0..quiet).for_each(|key| ghost.insert(hash_of(10 + key), 1));
            assert!(!ghost.take(hash_of(1)), "after {quiet} others");
        }
        let mut ghost = Ghost::new(window);
        ghost.insert(hash_of(1), 1);
        ghost.insert(hash_of(2), 4096);
        assert!(!ghost.take(hash_of(1)), "one entry of four windows' weight was inserted");
    }

    #[test]
    fn expired_entries_are_swept_within_a_window_even_in_large_steps() {
        let (window, old) = (1 << 20, 5000);
        let mut ghost = Ghost::new(window);
        ghost.reserve(20_000);
        (0..old).for_each(|key| ghost.insert(hash_of(key), 1));
        let weight = 16 * (window / TICKS);
        let newer = 2 * window / weight;
        (0..newer).for_each(|key| ghost.insert(hash_of(old + key), weight as u32));
        let kept = ghost.lines.iter().flat_map(|line| line.0).filter(|&place| place != EMPTY).count();
        assert!(
            kept as u64 <= newer,
            "{kept} places taken, of {newer} entries since one window after the old ones"
        );
    }

    #[test]
    fn growth_keeps_all_entries() {
        let mut ghost = Ghost::new(600);
        (0..300).for_each(|key| ghost.insert(hash_of(key), 1));
        let before = ghost.memory_bytes();
        ghost.reserve(20_000);
        assert!(ghost.memory_bytes() > 16 * before);
        assert!((0..300).all(|key| ghost.take(hash_of(key))));
        assert!(!(0..300).any(|key| ghost.take(hash_of(key))), "taken once");
    }

    #[test]
    fn changed_window_applies_from_the_insertion_time() {
        let mut ghost = Ghost::new(100);
        (0..100).for_each(|key| ghost.insert(hash_of(key), 1));
        ghost.set_window(10);
        assert!(!ghost.take(hash_of(89)));
        assert!(ghost.take(hash_of(90)));
    }
}
