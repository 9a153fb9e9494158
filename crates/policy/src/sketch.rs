//! Estimates how often keys were seen recently: a count-min sketch of 4-bit counters that are halved periodically.
//!
//! Cormode, Muthukrishnan: "An improved data stream summary", J. Algorithms 55, 2005 (the sketch); Einziger, Friedman, Manes: "TinyLFU: A
//! Highly Efficient Cache Admission Policy", ACM ToS 13(4), 2017, section 3 (small counters, the reset). All four counters of a key are in
//! one cache line: a key then collides only with others of its line, which costs little precision and saves three cache misses.

/// Words of 16 counters in a cache line.
const WORDS: usize = 8;
/// Counters of a key; each can be in two words of the line.
const ROWS: u32 = 4;
const COUNTER_AT_MOST: u64 = 15;
/// 16 counters per entry, four of each row: 8 bytes.
const ENTRIES_PER_LINE: usize = 8;
const LINES_AT_LEAST: usize = 4;
/// Clears the bits that halving shifts from a counter into its neighbour.
const HALVES: u64 = 0x7777_7777_7777_7777;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; WORDS]);

/// The counters.
pub struct Sketch {
    lines: Vec<Line>,
    sample_per_entry: usize,
    additions: usize,
}

impl Sketch {
    /// A sketch that halves its counters after `sample_per_entry` counts per entry of its size.
    #[must_use]
    pub fn new(sample_per_entry: usize) -> Self {
        Self { lines: vec![Line([0; WORDS]); LINES_AT_LEAST], sample_per_entry, additions: 0 }
    }

    /// Makes room for this many entries. The keys of `known` keep their estimates, others are lost: a counter does not record its key, and
    /// copying a line to both of its successors would keep the counts of other keys as noise.
    pub fn reserve(&mut self, entries: usize, known: &[u64]) {
        if self.lines.len() * ENTRIES_PER_LINE >= entries {
            return;
        }
        let lines = entries.div_ceil(ENTRIES_PER_LINE).next_power_of_two();
        let small = std::mem::replace(&mut self.lines, vec![Line([0; WORDS]); lines]);
        let small = Self { lines: small, ..*self };
        for hash in known {
            self.raise(*hash, small.estimate(*hash).into());
        }
    }

    /// Counts the key. Only its lowest counters increase: the others are already too high because of other keys (Estan, Varghese: "New
    /// directions in traffic measurement and accounting", SIGCOMM'02, conservative update).
    pub fn count(&mut self, hash: u64) {
        let seen = u64::from(self.estimate(hash));
        if seen == COUNTER_AT_MOST {
            return;
        }
        self.raise(hash, seen + 1);
        self.additions += 1;
        if self.additions >= self.lines.len() * ENTRIES_PER_LINE * self.sample_per_entry {
            self.halve();
        }
    }

    /// Estimated count of the key since the last halving, up to 15: never too low, too high if keys collide.
    #[must_use]
    pub fn estimate(&self, hash: u64) -> u8 {
        let line = &self.lines[self.line_of(hash)];
        let counts = (0..ROWS).map(|row| {
            let (word, shift) = counter(hash, row);
            line.0[word] >> shift & COUNTER_AT_MOST
        });
        counts.min().expect("a key has counters") as u8
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }

    /// Raises the key's counters to at least `count`.
    fn raise(&mut self, hash: u64, count: u64) {
        let line = self.line_of(hash);
        for row in 0..ROWS {
            let (word, shift) = counter(hash, row);
            let word = &mut self.lines[line].0[word];
            *word += count.saturating_sub(*word >> shift & COUNTER_AT_MOST) << shift;
        }
    }

    fn line_of(&self, hash: u64) -> usize {
        hash as usize & (self.lines.len() - 1)
    }

    fn halve(&mut self) {
        for word in self.lines.iter_mut().flat_map(|line| &mut line.0) {
            *word = *word >> 1 & HALVES;
        }
        self.additions /= 2;
    }
}

/// The word in the line, and the counter's shift in the word: five bits of the hash per row, from the top.
fn counter(hash: u64, row: u32) -> (usize, u32) {
    let chosen = (hash >> (64 - 5 * (row + 1))) as u32 & 31;
    ((row * 2 + chosen / 16) as usize, chosen % 16 * 4)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;
    use crate::simulate::hash_of;

    #[test]
    fn estimate_is_never_too_low_and_rarely_too_high() {
        for seed in 0..5 {
            let mut rng = StdRng::seed_from_u64(seed);
            let mut sketch = Sketch::new(1_000_000);
            sketch.reserve(1000, &[]);
            let mut seen = HashMap::new();
            for _ in 0..3000 {
                let key = rng.random_range(0..1000_u64);
                sketch.count(hash_of(key));
                *seen.entry(key).or_insert(0_u8) += 1;
            }
            let too_many = seen.iter().filter(|&(&key, &count)| {
                let estimate = sketch.estimate(hash_of(key));
                assert!(
                    estimate >= count.min(15),
                    "seed {seed}: key {key} seen {count} times, not {estimate}"
                );
                estimate > count + 1
            });
            assert!(too_many.count() < 100, "seed {seed}");
        }
    }

    #[test]
    fn counters_saturate_at_15_and_halve_after_the_sample() {
        let mut sketch = Sketch::new(1);
        let room = sketch.lines.len() * ENTRIES_PER_LINE;
        for _ in 0..40 {
            sketch.count(hash_of(1));
        }
        assert_eq!(sketch.estimate(hash_of(1)), 15);
        // 15 of the 40 counted; the others found saturated counters.
        for other in 0..room as u64 - 16 {
            sketch.count(hash_of(1000 + other));
        }
        assert_eq!(sketch.estimate(hash_of(1)), 15);
        sketch.count(hash_of(99_999));
        assert_eq!(sketch.estimate(hash_of(1)), 7);
    }

    #[test]
    fn growth_keeps_the_estimates() {
        let mut sketch = Sketch::new(100);
        for key in 0..40 {
            (0..=key % 10).for_each(|_| sketch.count(hash_of(key)));
        }
        let before: Vec<u8> = (0..40).map(|key| sketch.estimate(hash_of(key))).collect();
        let known: Vec<u64> = (0..40).map(hash_of).collect();
        sketch.reserve(5000, &known);
        let after: Vec<u8> = (0..40).map(|key| sketch.estimate(hash_of(key))).collect();
        assert_eq!(before, after);
        assert_eq!(sketch.memory_bytes(), 1024 * 64);
    }

    #[test]
    fn growth_gives_no_key_the_counts_of_another() {
        let mut sketch = Sketch::new(1_000_000);
        let mut known = Vec::new();
        for key in 0..20_000 {
            known.push(hash_of(key));
            sketch.reserve(known.len(), &known);
            // One in ten is popular, like the first keys of a trace.
            (0..if key % 10 == 0 { 15 } else { 1 }).for_each(|_| sketch.count(hash_of(key)));
        }
        let too_many =
            known.iter().enumerate().filter(|(key, hash)| key % 10 > 0 && sketch.estimate(**hash) > 1);
        let too_many = too_many.count();
        assert!(too_many < 180, "{too_many} of 18,000 keys that were seen once");
    }
}
