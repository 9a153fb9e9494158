//! The index of a shard: which regions may hold a key.
//!
//! A slot has the low bits of a region's sequence number, a fingerprint of the key, and whether the item was read. It has no offset:
//! within a region, the key's hash and the [fences](super::fences) lead to the page. Slots are packed in lines of 64 bytes. A key has two
//! candidate lines, and an insert takes the one with more free slots, so lines fill evenly.
//!
//! Entries of an evicted region are dead. They are not visited at eviction: their sequence number lies outside the range of
//! [live](Live) ones, which makes the slot free. A [sweep](Lines::sweep) clears dead slots before their number recurs.

/// Words of a line: one cache line.
const LINE_WORDS: usize = 8;
/// The most regions that a lookup considers for one key. There are more only if fingerprints collide by design.
pub const MAX_CANDIDATES: usize = 8;

/// The live regions: their sequence numbers, and how many low bits of these a slot has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Live {
    /// The oldest live region.
    pub min: u64,
    /// The newest region; at least `2^bits`, so that numbers can be decoded.
    pub max: u64,
    pub bits: u32,
}

impl Live {
    /// The sequence number of a live region with these low bits.
    fn decode(self, low: u32) -> Option<u64> {
        let mask = (1_u64 << self.bits) - 1;
        let sequence = self.max - (self.max.wrapping_sub(u64::from(low)) & mask);
        (sequence >= self.min).then_some(sequence)
    }

    fn encode(self, sequence: u64) -> u32 {
        (sequence & ((1 << self.bits) - 1)) as u32
    }
}

/// The address of a key in its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The two candidate lines; they may be equal.
    pub lines: [u32; 2],
    /// Not 0, which marks a slot as free.
    pub fingerprint: u32,
}

impl Address {
    /// Whether an entry of one address could be taken for an entry of the other.
    pub fn collides_with(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint && self.lines.iter().any(|line| other.lines.contains(line))
    }
}

/// The regions that may hold a key, newest first.
#[derive(Debug, Clone, Copy, Default)]
pub struct Candidates {
    sequences: [u64; MAX_CANDIDATES],
    len: usize,
}

impl Candidates {
    fn add(&mut self, sequence: u64) {
        let at = self.as_slice().iter().position(|&newer| newer <= sequence).unwrap_or(self.len);
        if at == MAX_CANDIDATES || self.as_slice().get(at) == Some(&sequence) {
            return;
        }
        // The oldest is dropped: a newer copy of a key must not be skipped in favour of an older one.
        let end = self.len.min(MAX_CANDIDATES - 1);
        self.sequences.copy_within(at..end, at + 1);
        self.sequences[at] = sequence;
        self.len = end + 1;
    }

    /// The sequence numbers.
    pub fn as_slice(&self) -> &[u64] {
        &self.sequences[..self.len]
    }
}

/// The result of an insert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    /// Into a free slot.
    Free,
    /// In place of the oldest entry of both lines, of this region.
    Replaced(u64),
    /// Not at all: every entry of both lines is as new.
    Full,
}

/// The layout of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotFormat {
    pub sequence_bits: u32,
    pub fingerprint_bits: u32,
    pub hit_bits: u32,
}

impl SlotFormat {
    fn bits(self) -> u32 {
        self.sequence_bits + self.fingerprint_bits + self.hit_bits
    }

    fn slots(self) -> u32 {
        (LINE_WORDS as u32 * u64::BITS) / self.bits()
    }
}

/// A decoded slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot {
    sequence_low: u32,
    fingerprint: u32,
    hits: u32,
}

/// The lines of a shard.
pub struct Lines {
    format: SlotFormat,
    words: Box<[[u64; LINE_WORDS]]>,
    sweep_at: usize,
}

impl Lines {
    /// Empty lines.
    pub fn new(lines: u32, format: SlotFormat) -> Self {
        assert!(format.bits() <= u32::BITS, "a slot fits 32 bits");
        Self { format, words: vec![[0; LINE_WORDS]; lines as usize].into(), sweep_at: 0 }
    }

    /// The live regions with an entry of this address, newest first.
    pub fn candidates(&self, address: &Address, live: Live) -> Candidates {
        let mut candidates = Candidates::default();
        self.each_match(address, |_, slot| {
            if let Some(sequence) = live.decode(slot.sequence_low) {
                candidates.add(sequence);
            }
        });
        candidates
    }

    /// Inserts an entry of region `sequence`, which is the newest.
    pub fn insert(&mut self, address: &Address, sequence: u64, live: Live) -> Inserted {
        let free = address.lines.map(|line| self.free_slots(line, live));
        let emptier = usize::from(free[1].count > free[0].count);
        let new = Slot { sequence_low: live.encode(sequence), fingerprint: address.fingerprint, hits: 0 };
        if let Some(slot) = free[emptier].first {
            self.set(address.lines[emptier], slot, new);
            return Inserted::Free;
        }
        let oldest = address.lines.iter().filter_map(|&line| self.oldest_slot(line, live)).min();
        match oldest {
            Some((oldest, line, slot)) if oldest < sequence => {
                self.set(line, slot, new);
                Inserted::Replaced(oldest)
            }
            _ => Inserted::Full,
        }
    }

    /// Removes all entries of the address. Calls `removed` with the region of each live one.
    pub fn remove(&mut self, address: &Address, live: Live, mut removed: impl FnMut(u64)) {
        let mut found = Vec::new();
        self.each_match(address, |place, slot| found.push((place, live.decode(slot.sequence_low))));
        for ((line, slot), sequence) in found {
            self.clear_slot(line, slot);
            sequence.iter().for_each(|&sequence| removed(sequence));
        }
    }

    /// Removes the entry of region `sequence`. Returns false if there is none.
    pub fn remove_one(&mut self, address: &Address, sequence: u64, live: Live) -> bool {
        let mut found = None;
        self.each_match(address, |place, slot| {
            if live.decode(slot.sequence_low) == Some(sequence) {
                found = Some(place);
            }
        });
        found.inspect(|&(line, slot)| self.clear_slot(line, slot)).is_some()
    }

    /// Records a read of the entry of region `sequence`. Returns false if there is none.
    pub fn mark_hit(&mut self, address: &Address, sequence: u64, live: Live) -> bool {
        let mut found = None;
        self.each_match(address, |place, slot| {
            if live.decode(slot.sequence_low) == Some(sequence) {
                found = Some((place, slot));
            }
        });
        let Some(((line, slot), entry)) = found else { return false };
        let most = (1 << self.format.hit_bits) - 1;
        if entry.hits < most {
            self.set(line, slot, Slot { hits: entry.hits + 1, ..entry });
        }
        true
    }

    /// Reads of the entry of region `sequence` since it was written, saturated; `None` without such an entry.
    pub fn hits(&self, address: &Address, sequence: u64, live: Live) -> Option<u32> {
        let mut hits = None;
        self.each_match(address, |_, slot| {
            if live.decode(slot.sequence_low) == Some(sequence) {
                hits = hits.max(Some(slot.hits));
            }
        });
        hits
    }

    /// Clears the dead slots of the next `lines` lines.
    pub fn sweep(&mut self, lines: u32, live: Live) {
        for _ in 0..lines {
            let line = self.sweep_at as u32;
            for slot in 0..self.format.slots() {
                let entry = self.get(line, slot);
                if entry.fingerprint != 0 && live.decode(entry.sequence_low).is_none() {
                    self.clear_slot(line, slot);
                }
            }
            self.sweep_at = (self.sweep_at + 1) % self.words.len();
        }
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.words.fill([0; LINE_WORDS]);
    }

    /// The content, for a snapshot.
    pub fn words(&self) -> impl Iterator<Item = u64> + '_ {
        self.words.iter().flatten().copied()
    }

    /// Takes the content from a snapshot.
    pub fn restore(&mut self, words: impl Iterator<Item = u64>) {
        self.words.iter_mut().flatten().zip(words).for_each(|(to, word)| *to = word);
    }

    fn each_match(&self, address: &Address, mut visit: impl FnMut((u32, u32), Slot)) {
        let [first, second] = address.lines;
        let lines = if first == second { &address.lines[..1] } else { &address.lines[..] };
        for &line in lines {
            for slot in 0..self.format.slots() {
                let entry = self.get(line, slot);
                if entry.fingerprint == address.fingerprint {
                    visit((line, slot), entry);
                }
            }
        }
    }

    fn free_slots(&self, line: u32, live: Live) -> FreeSlots {
        let mut free = FreeSlots { count: 0, first: None };
        for slot in 0..self.format.slots() {
            let entry = self.get(line, slot);
            if entry.fingerprint == 0 || live.decode(entry.sequence_low).is_none() {
                free.count += 1;
                free.first = free.first.or(Some(slot));
            }
        }
        free
    }

    /// Sequence number, line and slot of the oldest live entry of a line.
    fn oldest_slot(&self, line: u32, live: Live) -> Option<(u64, u32, u32)> {
        let slots = 0..self.format.slots();
        slots.filter_map(|slot| Some((live.decode(self.get(line, slot).sequence_low)?, line, slot))).min()
    }

    fn get(&self, line: u32, slot: u32) -> Slot {
        let words = &self.words[line as usize];
        let bit = slot * self.format.bits();
        let (word, shift) = ((bit / u64::BITS) as usize, bit % u64::BITS);
        let mut value = words[word] >> shift;
        if shift + self.format.bits() > u64::BITS {
            value |= words[word + 1] << (u64::BITS - shift);
        }
        self.unpack(value)
    }

    fn unpack(&self, value: u64) -> Slot {
        let SlotFormat { sequence_bits, fingerprint_bits, hit_bits } = self.format;
        let field = |shift: u32, bits: u32| ((value >> shift) & ((1 << bits) - 1)) as u32;
        Slot {
            sequence_low: field(0, sequence_bits),
            fingerprint: field(sequence_bits, fingerprint_bits),
            hits: field(sequence_bits + fingerprint_bits, hit_bits),
        }
    }

    fn set(&mut self, line: u32, slot: u32, entry: Slot) {
        let SlotFormat { sequence_bits, fingerprint_bits, .. } = self.format;
        let value = u64::from(entry.sequence_low)
            | u64::from(entry.fingerprint) << sequence_bits
            | u64::from(entry.hits) << (sequence_bits + fingerprint_bits);
        self.store(line, slot, value);
    }

    fn clear_slot(&mut self, line: u32, slot: u32) {
        self.store(line, slot, 0);
    }

    fn store(&mut self, line: u32, slot: u32, value: u64) {
        let bits = self.format.bits();
        let mask = (1_u64 << bits) - 1;
        let words = &mut self.words[line as usize];
        let bit = slot * bits;
        let (word, shift) = ((bit / u64::BITS) as usize, bit % u64::BITS);
        words[word] = words[word] & !(mask << shift) | value << shift;
        if shift + bits > u64::BITS {
            let low_bits = u64::BITS - shift;
            words[word + 1] = words[word + 1] & !(mask >> low_bits) | value >> low_bits;
        }
    }
}

struct FreeSlots {
    count: u32,
    first: Option<u32>,
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    const FORMAT: SlotFormat = SlotFormat { sequence_bits: 5, fingerprint_bits: 11, hit_bits: 1 };

    fn live(min: u64, max: u64) -> Live {
        Live { min, max, bits: 5 }
    }

    fn address(first: u32, second: u32, fingerprint: u32) -> Address {
        Address { lines: [first, second], fingerprint }
    }

    #[test]
    fn slots_are_independent_of_their_neighbours() {
        for bits in [9, 12, 15] {
            let format = SlotFormat { sequence_bits: bits, fingerprint_bits: 11, hit_bits: 2 };
            let mut lines = Lines::new(1, format);
            let mut random = StdRng::seed_from_u64(u64::from(bits));
            let mut twin = HashMap::new();
            for _ in 0..2000 {
                let slot = random.random_range(0..format.slots());
                let entry = Slot {
                    sequence_low: random.random_range(0..1 << bits),
                    fingerprint: random.random_range(0..1 << 11),
                    hits: random.random_range(0..4),
                };
                lines.set(0, slot, entry);
                twin.insert(slot, entry);
                assert!(twin.iter().all(|(&slot, &entry)| lines.get(0, slot) == entry));
            }
        }
    }

    #[test]
    fn candidates_are_the_live_regions_newest_first() {
        let mut lines = Lines::new(4, FORMAT);
        let key = address(1, 2, 77);
        for sequence in 100..112 {
            lines.insert(&key, sequence, live(90, sequence));
        }
        lines.insert(&address(1, 2, 78), 111, live(90, 111));
        let found = lines.candidates(&key, live(107, 111));
        assert_eq!(found.as_slice(), [111, 110, 109, 108, 107]);
        let newest: Vec<u64> = (104..112).rev().collect();
        assert_eq!(lines.candidates(&key, live(90, 111)).as_slice(), newest);
    }

    #[test]
    fn insert_into_lines_with_free_slots_keeps_all_entries() {
        let mut lines = Lines::new(8, FORMAT);
        let mut random = StdRng::seed_from_u64(3);
        let mut keys = Vec::new();
        for fingerprint in 1..=FORMAT.slots() * 6 {
            let key = address(random.random_range(0..8), random.random_range(0..8), fingerprint);
            assert_eq!(lines.insert(&key, 100, live(90, 100)), Inserted::Free);
            keys.push(key);
        }
        assert!(keys.iter().all(|key| lines.candidates(key, live(90, 100)).as_slice() == [100]));
    }

    #[test]
    fn full_lines_lose_their_oldest_entry() {
        let mut lines = Lines::new(2, FORMAT);
        let slots = u64::from(FORMAT.slots());
        for number in 0..2 * slots {
            let key = address(0, 1, 1 + number as u32);
            let sequence = 100 + number / slots;
            assert_eq!(lines.insert(&key, sequence, live(100, sequence)), Inserted::Free);
        }
        assert_eq!(lines.insert(&address(0, 1, 999), 102, live(100, 102)), Inserted::Replaced(100));
        assert_eq!(lines.candidates(&address(0, 1, 999), live(100, 102)).as_slice(), [102]);
        let free = Lines::insert(&mut lines, &address(0, 1, 1000), 103, live(102, 103));
        assert_eq!(free, Inserted::Free, "entries of evicted regions are free slots");
    }

    #[test]
    fn removed_entry_and_its_collisions_are_gone() {
        let mut lines = Lines::new(4, FORMAT);
        let (key, colliding, other) = (address(0, 1, 5), address(1, 2, 5), address(2, 3, 5));
        for key in [key, colliding, other] {
            lines.insert(&key, 50, live(40, 50));
        }
        let mut removed = 0;
        lines.remove(&colliding, live(40, 50), |sequence| removed += usize::from(sequence == 50));
        assert!(removed >= 1);
        assert!(lines.candidates(&colliding, live(40, 50)).as_slice().is_empty());
        assert!(
            colliding.collides_with(&key) && colliding.collides_with(&other) && !key.collides_with(&other)
        );
    }

    #[test]
    fn hits_saturate_and_belong_to_one_region() {
        let mut lines = Lines::new(2, FORMAT);
        let key = address(0, 1, 9);
        lines.insert(&key, 60, live(50, 60));
        lines.insert(&key, 61, live(50, 61));
        assert!(lines.mark_hit(&key, 60, live(50, 61)) && lines.mark_hit(&key, 60, live(50, 61)));
        assert!(!lines.mark_hit(&key, 59, live(50, 61)));
        assert_eq!(lines.hits(&key, 60, live(50, 61)), Some(1));
        assert_eq!(lines.hits(&key, 61, live(50, 61)), Some(0));
        assert_eq!(lines.hits(&key, 61, live(62, 61)), None);
    }

    #[test]
    fn swept_slots_do_not_come_alive_when_their_number_recurs() {
        let mut lines = Lines::new(8, FORMAT);
        let key = address(3, 6, 4);
        lines.insert(&key, 100, live(100, 100));
        lines.sweep(8, live(110, 120));
        assert!(lines.candidates(&key, live(125, 132)).as_slice().is_empty());
        lines.insert(&key, 100, live(100, 100));
        assert_eq!(lines.candidates(&key, live(125, 132)).as_slice(), [132], "without a sweep it would");
    }
}
