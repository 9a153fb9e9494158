//! The index of a shard: which regions may hold a key.
//!
//! A slot has the low bits of a region's sequence number, a fingerprint of the key, and whether the item was read. It has no offset:
//! within a region, the key's hash and the [fences](super::fences) lead to the page. Slots are packed in lines of 64 bytes. A key has two
//! candidate lines, and an insert takes the one with more free slots, so lines fill evenly. If both are full, an entry of them moves to its
//! other line.
//!
//! Entries of an evicted region are dead. They are not visited at eviction: their sequence number lies outside the range of
//! [live](Live) ones, which makes the slot free. A [sweep](Lines::sweep) clears dead slots before their number recurs.

use policy::prefetch::{CACHE_LINE_BYTES, prefetch};

/// Words of a line: one cache line.
const LINE_WORDS: usize = CACHE_LINE_BYTES / size_of::<u64>();
/// Maximum number of regions that a lookup considers for one key. More occur only with deliberate fingerprint collisions.
pub const MAX_CANDIDATES: usize = 8;

/// The sequence numbers of the live regions, and how many of their low bits a slot has.
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

/// The address of a key in its shard. Keys of equal address are indistinguishable in the index; keys of different addresses never match
/// each other's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address {
    /// The two candidate lines in ascending order; they may be equal. Each follows from the other and the fingerprint, so an entry can be
    /// moved to its other line (partial-key cuckoo hashing, Fan et al., CoNEXT 2014).
    lines: [u32; 2],
    /// Not 0, which marks a slot as free.
    fingerprint: u32,
}

impl Address {
    /// The address of a key whose hash selects `line` of `line_count` lines.
    pub fn new(line: u32, fingerprint: u32, line_count: u32) -> Self {
        let other = other_line(line, fingerprint, line_count);
        Self { lines: [line.min(other), line.max(other)], fingerprint }
    }

    /// One of the candidate lines. It determines the address together with the fingerprint.
    pub fn line(&self) -> u32 {
        self.lines[0]
    }

    /// The fingerprint of the key.
    pub fn fingerprint(&self) -> u32 {
        self.fingerprint
    }
}

/// The other candidate line of an entry. The function is its own inverse.
fn other_line(line: u32, fingerprint: u32, line_count: u32) -> u32 {
    let sum = fingerprint.wrapping_mul(0x9E37_79B1) % line_count;
    ((u64::from(sum) + u64::from(line_count) - u64::from(line)) % u64::from(line_count)) as u32
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

    /// The candidates newer than `sequence`.
    pub fn after(mut self, sequence: u64) -> Self {
        self.len = self.as_slice().partition_point(|&newer| newer > sequence);
        self
    }
}

/// The treatment of an insert into full lines whose entries cannot be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// Replaces the oldest entry of both lines.
    ReplaceOldest,
    /// Adds an entry beyond the lines, until one becomes free. No entry is lost.
    Overflow,
}

/// The result of an insert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    /// No other entry was lost.
    Kept,
    /// Inserted in place of the oldest entry of both lines.
    Replaced {
        /// Its region.
        oldest: u64,
        address: Address,
    },
    /// Not inserted: every entry of both lines belongs to the newest region.
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

/// An entry and its place.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    line: u32,
    slot: u32,
    entry: Slot,
}

/// The line number of entries beyond the lines; the slot is their position in the list.
const OVERFLOW_LINE: u32 = u32::MAX;

/// The lines of a shard.
pub struct Lines {
    format: SlotFormat,
    slots_per_line: u32,
    line_count: u32,
    /// The lines from `first_word` on. Zeroed memory is requested for words, and not for aligned lines, because it is then taken from
    /// the operating system without being written.
    words: Box<[u64]>,
    /// The first word that begins a cache line.
    first_word: usize,
    /// Entries whose two lines are full; removed ones have the fingerprint 0.
    overflow: Vec<(Address, Slot)>,
    sweep_at: usize,
}

impl Lines {
    /// Empty lines.
    pub fn new(lines: u32, format: SlotFormat) -> Self {
        assert!(format.bits() <= u32::BITS, "a slot fits 32 bits");
        let words: Box<[u64]> = vec![0; (lines as usize + 1) * LINE_WORDS - 1].into();
        let past_line = words.as_ptr().addr() % CACHE_LINE_BYTES / size_of::<u64>();
        Self {
            format,
            slots_per_line: format.slots(),
            line_count: lines,
            words,
            first_word: (LINE_WORDS - past_line) % LINE_WORDS,
            overflow: Vec::new(),
            sweep_at: 0,
        }
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

    /// All live regions with an entry of this address that is newer than `after`, newest first.
    pub fn all_after(&self, address: &Address, after: u64, live: Live) -> Vec<u64> {
        let mut sequences = Vec::new();
        self.each_match(address, |_, slot| {
            sequences.extend(live.decode(slot.sequence_low).filter(|&sequence| sequence > after));
        });
        sequences.sort_unstable_by(|a, b| b.cmp(a));
        sequences
    }

    /// Inserts an entry of region `sequence`, which is the newest. No other entry of this region has the address.
    pub fn insert(&mut self, address: &Address, sequence: u64, live: Live, when_full: WhenFull) -> Inserted {
        let new = Slot { sequence_low: live.encode(sequence), fingerprint: address.fingerprint, hits: 0 };
        if let Some((line, slot)) =
            self.free_slot(address, live).or_else(|| self.make_free_slot(address, live))
        {
            self.set(line, slot, new);
            return Inserted::Kept;
        }
        if when_full == WhenFull::Overflow {
            self.overflow.push((*address, new));
            return Inserted::Kept;
        }
        let oldest = address.lines.iter().filter_map(|&line| self.oldest_slot(line, live)).min();
        match oldest {
            Some((oldest, line, slot)) if oldest < sequence => {
                let replaced = Address::new(line, self.get(line, slot).fingerprint, self.line_count);
                self.set(line, slot, new);
                Inserted::Replaced { oldest, address: replaced }
            }
            _ => Inserted::Full,
        }
    }

    /// A free slot in the line of the address that has more of them.
    fn free_slot(&self, address: &Address, live: Live) -> Option<(u32, u32)> {
        let free = address.lines.map(|line| self.free_slots(line, live));
        let emptier = usize::from(free[1].count > free[0].count);
        free[emptier].first.map(|slot| (address.lines[emptier], slot))
    }

    /// Moves an entry of the full lines to its other line, if that has a free slot. Returns the slot that is now free.
    fn make_free_slot(&mut self, address: &Address, live: Live) -> Option<(u32, u32)> {
        let line_count = self.line_count;
        for line in address.lines {
            for slot in 0..self.slots_per_line {
                let entry = self.get(line, slot);
                let other = other_line(line, entry.fingerprint, line_count);
                if other != line
                    && let Some(free) = self.free_slots(other, live).first
                {
                    self.set(other, free, entry);
                    return Some((line, slot));
                }
            }
        }
        None
    }

    /// Moves entries beyond the lines into slots that have become free. Returns whether all fit.
    pub fn place_overflow(&mut self, live: Live) -> bool {
        if self.overflow.is_empty() {
            return true;
        }
        for (address, entry) in std::mem::take(&mut self.overflow) {
            if entry.fingerprint == 0 || live.decode(entry.sequence_low).is_none() {
                continue;
            }
            match self.free_slot(&address, live).or_else(|| self.make_free_slot(&address, live)) {
                Some((line, slot)) => self.set(line, slot, entry),
                None => self.overflow.push((address, entry)),
            }
        }
        self.overflow.is_empty()
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

    /// The entry of region `sequence`.
    pub fn find(&self, address: &Address, sequence: u64, live: Live) -> Option<Found> {
        let mut found = None;
        self.each_match(address, |(line, slot), entry| {
            if live.decode(entry.sequence_low) == Some(sequence) {
                found = Some(Found { line, slot, entry });
            }
        });
        found
    }

    /// Records a read of an entry. The index has not changed since the entry was [found](Self::find).
    pub fn mark_hit(&mut self, found: Found) {
        let Found { line, slot, entry } = found;
        let most = (1 << self.format.hit_bits) - 1;
        if entry.hits < most {
            self.set(line, slot, Slot { hits: entry.hits + 1, ..entry });
        }
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
            for slot in 0..self.slots_per_line {
                let entry = self.get(line, slot);
                if entry.fingerprint != 0 && live.decode(entry.sequence_low).is_none() {
                    self.clear_slot(line, slot);
                }
            }
            self.sweep_at = (self.sweep_at + 1) % self.line_count as usize;
        }
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.lines_mut().fill([0; LINE_WORDS]);
        self.overflow.clear();
    }

    /// The content, for a snapshot.
    pub fn words(&self) -> impl Iterator<Item = u64> + '_ {
        self.lines().iter().flatten().copied()
    }

    /// Takes the content from a snapshot.
    pub fn restore(&mut self, words: impl Iterator<Item = u64>) {
        self.lines_mut().iter_mut().flatten().zip(words).for_each(|(to, word)| *to = word);
    }

    fn lines(&self) -> &[[u64; LINE_WORDS]] {
        &self.words[self.first_word..].as_chunks().0[..self.line_count as usize]
    }

    fn lines_mut(&mut self) -> &mut [[u64; LINE_WORDS]] {
        &mut self.words[self.first_word..].as_chunks_mut().0[..self.line_count as usize]
    }

    fn each_match(&self, address: &Address, mut visit: impl FnMut((u32, u32), Slot)) {
        let sequence_bits = self.format.sequence_bits;
        let fingerprint_mask = ((1 << self.format.fingerprint_bits) - 1) << sequence_bits;
        let wanted = u64::from(address.fingerprint) << sequence_bits;
        let [first, second] = address.lines;
        let lines = if first == second { &address.lines[..1] } else { &address.lines[..] };
        // Both lines come from memory at the same time.
        prefetch((&raw const self.lines()[second as usize]).cast());
        for &line in lines {
            for (slot, value) in self.values(line) {
                // Compared in place: of the 20 slots of a line, hardly any other one matches.
                if value & fingerprint_mask == wanted {
                    visit((line, slot), self.unpack(value));
                }
            }
        }
        for (number, (other, entry)) in self.overflow.iter().enumerate() {
            if other == address && entry.fingerprint != 0 {
                visit((OVERFLOW_LINE, number as u32), *entry);
            }
        }
    }

    fn free_slots(&self, line: u32, live: Live) -> FreeSlots {
        let mut free = FreeSlots { count: 0, first: None };
        for (slot, value) in self.values(line) {
            let entry = self.unpack(value);
            if entry.fingerprint == 0 || live.decode(entry.sequence_low).is_none() {
                free.count += 1;
                free.first = free.first.or(Some(slot));
            }
        }
        free
    }

    /// Sequence number, line and slot of the oldest live entry of a line.
    fn oldest_slot(&self, line: u32, live: Live) -> Option<(u64, u32, u32)> {
        let slots = 0..self.slots_per_line;
        slots.filter_map(|slot| Some((live.decode(self.get(line, slot).sequence_low)?, line, slot))).min()
    }

    fn get(&self, line: u32, slot: u32) -> Slot {
        self.unpack(value_at(&self.lines()[line as usize], slot * self.format.bits()))
    }

    /// The slots of a line with their values, which have bits of the next slot above their own.
    #[inline]
    fn values(&self, line: u32) -> impl Iterator<Item = (u32, u64)> {
        let (words, bits) = (&self.lines()[line as usize], self.format.bits());
        (0..self.slots_per_line).map(move |slot| (slot, value_at(words, slot * bits)))
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
        if line == OVERFLOW_LINE {
            self.overflow[slot as usize].1 = entry;
            return;
        }
        let SlotFormat { sequence_bits, fingerprint_bits, .. } = self.format;
        let value = u64::from(entry.sequence_low)
            | u64::from(entry.fingerprint) << sequence_bits
            | u64::from(entry.hits) << (sequence_bits + fingerprint_bits);
        self.store(line, slot, value);
    }

    fn clear_slot(&mut self, line: u32, slot: u32) {
        if line == OVERFLOW_LINE {
            self.overflow[slot as usize].1.fingerprint = 0;
            return;
        }
        self.store(line, slot, 0);
    }

    fn store(&mut self, line: u32, slot: u32, value: u64) {
        let bits = self.format.bits();
        let mask = (1_u64 << bits) - 1;
        let words = &mut self.lines_mut()[line as usize];
        let bit = slot * bits;
        let (word, shift) = ((bit / u64::BITS) as usize, bit % u64::BITS);
        words[word] = words[word] & !(mask << shift) | value << shift;
        if shift + bits > u64::BITS {
            let low_bits = u64::BITS - shift;
            words[word + 1] = words[word + 1] & !(mask >> low_bits) | value >> low_bits;
        }
    }
}

/// The 32 bits of a line from `bit` on, and some more. Without a branch: whether a slot crosses a word follows no pattern.
#[inline]
fn value_at(words: &[u64; LINE_WORDS], bit: u32) -> u64 {
    let (word, shift) = ((bit / u64::BITS) as usize % LINE_WORDS, bit % u64::BITS);
    // Behind the last word, the first one: no slot has these bits.
    let next = words[(word + 1) % LINE_WORDS];
    words[word] >> shift | next << 1 << (u64::BITS - 1 - shift)
}

struct FreeSlots {
    count: u32,
    first: Option<u32>,
}

#[cfg(test)]
mod tests;
