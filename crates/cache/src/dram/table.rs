//! A hash table of item references, for one shard.
//!
//! Twelve references, a byte of hash for each, and a counter share a cache line, so a hit costs one cache miss in the table and one in the
//! item. The counter is the number of entries that did not fit the full line and were stored further on (F14's overflow count: Bronson &
//! Shi, "Open-sourcing F14 for faster, more memory-efficient hash tables", 2019). A removal decrements it, so there are no tombstones: a
//! table with constant churn keeps its size and never needs a cleanup. Usual tables clean up by rehashing all keys, and here each key is a
//! cache miss.
//!
//! Unlike in F14, lines are probed sequentially, because the processor prefetches the next one, and their number is not a power of two, so
//! that growing by half leaves less memory unused.

use std::ptr::null;

use wide::u8x16;

use super::item::ItemRef;

const ENTRIES: usize = 12;
/// Average load above which the table grows: 85 %.
const MAX_LOAD: (usize, usize) = (85, 100);

/// Upper limit of the size per entry: just after the table has grown by half.
pub const MOST_BYTES_PER_ENTRY: f64 =
    1.5 * size_of::<Line>() as f64 * MAX_LOAD.1 as f64 / (ENTRIES * MAX_LOAD.0) as f64;

/// One cache line. An entry is empty if its tag is 0.
#[derive(Clone)]
#[repr(C, align(64))]
struct Line {
    /// One tag per entry, and the count of entries whose probe sequence passed this full line: one vector.
    tags_and_passed_by: [u8; 16],
    references: [ItemRef; ENTRIES],
}

const _: () = assert!(size_of::<Line>() == 64, "one cache line");

const EMPTY: Line = Line { tags_and_passed_by: [0; 16], references: [ItemRef::NONE; ENTRIES] };

/// The position of an entry. Valid until the table changes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    line: usize,
    entry: usize,
}

/// The memory range of a table's lines, for prefetching only: the table may have been reallocated since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LineRange {
    pub first: *const (),
    pub lines: usize,
}

impl LineRange {
    /// The line at which a lookup of `hash` starts.
    #[inline]
    pub(super) fn home(self, hash: u64) -> *const () {
        self.first.wrapping_byte_add(home(hash, self.lines) * size_of::<Line>())
    }
}

/// The table.
#[derive(Default)]
pub(super) struct Table {
    lines: Box<[Line]>,
    len: usize,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }

    pub(super) fn line_range(&self) -> LineRange {
        let first = self.lines.first().map_or(null(), |line| std::ptr::from_ref(line).cast());
        LineRange { first, lines: self.lines.len() }
    }

    /// The first entry whose tag matches `hash`, which is nearly always the right one if the key exists.
    #[inline]
    pub(super) fn likely(&self, hash: u64) -> Option<ItemRef> {
        self.find_map(hash, Some).map(|(_, reference)| reference)
    }

    /// As [`likely`](Self::likely), in the first line of the lookup only.
    #[inline]
    pub(super) fn likely_in_home_line(&self, hash: u64) -> Option<ItemRef> {
        let here = self.lines.get(self.home(hash))?;
        here.references.get(here.equal_bytes(tag(hash)).trailing_zeros() as usize).copied()
    }

    /// The entry with `hash` for which `is_meant` is true.
    #[inline]
    pub(super) fn find(&self, hash: u64, mut is_meant: impl FnMut(ItemRef) -> bool) -> Option<Place> {
        self.find_map(hash, |reference| is_meant(reference).then_some(())).map(|(place, ())| place)
    }

    /// Returns the result of `meant` for the entry with `hash` for which it is `Some`. Inlined, because otherwise the result goes through
    /// memory at every get.
    #[inline(always)]
    pub(super) fn find_map<T>(
        &self,
        hash: u64,
        mut meant: impl FnMut(ItemRef) -> Option<T>,
    ) -> Option<(Place, T)> {
        let line = self.home(hash);
        let here = self.lines.get(line)?;
        let entry = here.equal_bytes(tag(hash)).trailing_zeros() as usize;
        match here.references.get(entry) {
            Some(&reference) => match meant(reference) {
                Some(found) => Some((Place { line, entry }, found)),
                None => self.find_further(hash, line, meant),
            },
            None if here.passed_by() == 0 => None,
            None => self.find_further(hash, self.after(line), meant),
        }
    }

    /// Continues from `line`, after the first candidate was wrong, or the first line had none and an overflow. A separate function, so that
    /// the common case has no loop.
    #[inline(never)]
    fn find_further<T>(
        &self,
        hash: u64,
        mut line: usize,
        mut meant: impl FnMut(ItemRef) -> Option<T>,
    ) -> Option<(Place, T)> {
        let tag = tag(hash);
        // Bounded, because the counters of all lines can be above 0 although not all lines are full.
        for _ in 0..self.lines.len() {
            let here = &self.lines[line];
            let mut equal = here.equal_bytes(tag);
            while let Some(&reference) = here.references.get(equal.trailing_zeros() as usize) {
                if let Some(found) = meant(reference) {
                    return Some((Place { line, entry: equal.trailing_zeros() as usize }, found));
                }
                equal &= equal - 1;
            }
            if here.passed_by() == 0 {
                return None;
            }
            line = self.after(line);
        }
        None
    }

    /// Replaces the reference at `place`; returns the old one.
    pub(super) fn replace(&mut self, place: Place, reference: ItemRef) -> ItemRef {
        std::mem::replace(&mut self.lines[place.line].references[place.entry], reference)
    }

    /// Inserts an entry that the table does not contain. `hash_of` returns the hash of an existing entry, for growth.
    pub(super) fn insert(&mut self, hash: u64, reference: ItemRef, hash_of: impl Fn(ItemRef) -> u64) {
        if self.is_full() {
            self.grow(hash_of);
        }
        self.put(hash, reference);
    }

    /// Whether another entry would exceed the load.
    #[inline]
    fn is_full(&self) -> bool {
        (self.len + 1) * MAX_LOAD.1 > self.lines.len() * ENTRIES * MAX_LOAD.0
    }

    /// Inserts an entry whose hash no entry of its first line can have, in the common case: the line has space, and nothing was stored
    /// further on. Otherwise returns false, and the caller searches for the entry before it inserts one.
    #[inline]
    pub(super) fn insert_likely(&mut self, hash: u64, reference: ItemRef) -> bool {
        let (line, has_room) = (self.home(hash), !self.is_full());
        let Some(here) = self.lines.get_mut(line) else { return false };
        if !has_room || here.passed_by() != 0 || here.equal_bytes(tag(hash)) != 0 {
            return false;
        }
        // The bytes of the counter, which are 0 too, come last and have no entry.
        let free = here.equal_bytes(0).trailing_zeros() as usize;
        let Some(entry) = here.references.get_mut(free) else { return false };
        *entry = reference;
        here.tags_and_passed_by[free] = tag(hash);
        self.len += 1;
        true
    }

    /// Removes an entry in the common case: it is the first candidate of its first line. Otherwise returns false.
    #[inline]
    pub(super) fn remove_likely(&mut self, hash: u64, reference: ItemRef) -> bool {
        let Some(here) = self.lines.get_mut(home(hash, self.lines.len())) else { return false };
        let first = here.equal_bytes(tag(hash)).trailing_zeros() as usize;
        match here.references.get_mut(first) {
            Some(entry) if *entry == reference => *entry = ItemRef::NONE,
            _ => return false,
        }
        here.tags_and_passed_by[first] = 0;
        self.len -= 1;
        true
    }

    /// Removes the entry at `place`, which has `hash`.
    pub(super) fn remove(&mut self, hash: u64, place: Place) -> ItemRef {
        let mut line = self.home(hash);
        while line != place.line {
            let here = &mut self.lines[line];
            here.set_passed_by(here.passed_by() - 1);
            line = self.after(line);
        }
        self.len -= 1;
        self.lines[line].tags_and_passed_by[place.entry] = 0;
        std::mem::replace(&mut self.lines[line].references[place.entry], ItemRef::NONE)
    }

    /// Removes all entries. The table keeps its size, so that later inserts do not have to grow it.
    pub(super) fn take_all(&mut self) -> Vec<ItemRef> {
        let all = self.iter().collect();
        self.lines.fill(EMPTY);
        self.len = 0;
        all
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = ItemRef> {
        let entries = self.lines.iter().flat_map(|line| line.tags().iter().zip(&line.references));
        entries.filter(|&(&tag, _)| tag != 0).map(|(_, &reference)| reference)
    }

    fn put(&mut self, hash: u64, reference: ItemRef) {
        let mut line = self.home(hash);
        loop {
            let here = &mut self.lines[line];
            if let Some(entry) = here.tags().iter().position(|&tag| tag == 0) {
                here.tags_and_passed_by[entry] = tag(hash);
                here.references[entry] = reference;
                self.len += 1;
                return;
            }
            here.set_passed_by(here.passed_by() + 1);
            line = self.after(line);
        }
    }

    #[cold]
    fn grow(&mut self, hash_of: impl Fn(ItemRef) -> u64) {
        let lines = self.lines.len() + self.lines.len() / 2 + 1;
        let smaller = std::mem::replace(self, Self { lines: vec![EMPTY; lines].into(), len: 0 });
        smaller.iter().for_each(|reference| self.put(hash_of(reference), reference));
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        home(hash, self.lines.len())
    }

    #[inline]
    fn after(&self, line: usize) -> usize {
        if line + 1 == self.lines.len() { 0 } else { line + 1 }
    }
}

/// The line of an entry among `lines`, from the lower half of its hash. The top bits choose the shard: keys whose hashes share them, by
/// chance or by intent, still spread over the table.
#[inline]
fn home(hash: u64, lines: usize) -> usize {
    ((hash & 0xffff_ffff) as usize * lines) >> 32
}

/// Distinguishes the entries of a line: the byte of the hash above the half that selects the line, but never 0.
#[inline]
fn tag(hash: u64) -> u8 {
    ((hash >> 32) as u8).max(1)
}

impl Line {
    /// A mask of the bytes equal to `tag`: bit `n` for entry `n`. Bytes of the counter, which may be equal too, come last.
    #[inline]
    fn equal_bytes(&self, tag: u8) -> u32 {
        u8x16::new(self.tags_and_passed_by).simd_eq(u8x16::splat(tag)).to_bitmask()
    }

    fn tags(&self) -> &[u8] {
        &self.tags_and_passed_by[..ENTRIES]
    }

    #[inline]
    fn passed_by(&self) -> u32 {
        let [.., a, b, c, d] = self.tags_and_passed_by;
        u32::from_le_bytes([a, b, c, d])
    }

    fn set_passed_by(&mut self, count: u32) {
        self.tags_and_passed_by[ENTRIES..].copy_from_slice(&count.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::KeyHash;

    /// Hashes with few different values in the lower half, so that lines overflow far.
    fn clustered(reference: ItemRef) -> u64 {
        let mixed = KeyHash(u64::from(reference.0)).remix() & 0xf000_0000_0000_0003;
        (mixed | u64::from(reference.0 % 5) << 2).rotate_left(32)
    }

    fn spread(reference: ItemRef) -> u64 {
        KeyHash(u64::from(reference.0)).remix()
    }

    #[test]
    fn table_equals_a_map_with_few_and_with_many_hash_collisions() {
        let ops = if cfg!(miri) { 300 } else { 20_000 };
        for hash_of in [clustered, spread] {
            let mut rng = StdRng::seed_from_u64(3);
            let (mut table, mut map) = (Table::default(), HashMap::new());
            for _ in 0..ops {
                let reference = ItemRef(rng.random_range(0..600));
                let found = table.find(hash_of(reference), |held| held == reference);
                assert_eq!(found.is_some(), map.contains_key(&reference));
                match found {
                    Some(place) => {
                        if !(rng.random() && table.remove_likely(hash_of(reference), reference)) {
                            assert_eq!(table.remove(hash_of(reference), place), reference);
                        }
                        map.remove(&reference);
                    }
                    None => {
                        assert!(!table.remove_likely(hash_of(reference), reference), "it is absent");
                        if !(rng.random() && table.insert_likely(hash_of(reference), reference)) {
                            table.insert(hash_of(reference), reference, hash_of);
                        }
                        map.insert(reference, ());
                    }
                }
                assert_eq!(table.len(), map.len());
            }
            assert_eq!(table.iter().count(), map.len());
            assert!(table.iter().all(|reference| map.contains_key(&reference)));
            for reference in table.iter().collect::<Vec<_>>() {
                let place = table.find(hash_of(reference), |held| held == reference).unwrap();
                table.remove(hash_of(reference), place);
            }
            assert!(table.lines.iter().all(|line| line.passed_by() == 0), "no overflow is left");
        }
    }

    /// An entry that may be in the table already is left to the caller, which replaces it.
    #[test]
    fn likely_insert_refuses_a_hash_that_the_table_may_contain() {
        let mut table = Table::default();
        assert!(!table.insert_likely(0, ItemRef(0)), "it has no line");
        (0..13).for_each(|number| table.insert(0, ItemRef(number), |_| 0));
        assert!(!table.insert_likely(0, ItemRef(0)), "an entry of the line has the tag");
        for number in 0..12 {
            let place = table.find(0, |held| held == ItemRef(number)).unwrap();
            table.remove(0, place);
        }
        assert!(!table.insert_likely(0, ItemRef(12)), "the entry is in a later line");
        let place = table.find(0, |held| held == ItemRef(12)).unwrap();
        table.remove(0, place);
        assert!(table.insert_likely(0, ItemRef(12)));
        assert!(table.find(0, |held| held == ItemRef(12)).is_some());
    }

    /// If they shared a line, each insert would walk past all earlier entries, under the lock of their shard.
    #[test]
    fn keys_with_equal_top_bits_spread_over_the_lines() {
        let count = if cfg!(miri) { 200 } else { 200_000 };
        let hash_of = |reference: ItemRef| 0xfeed_beef << 32 | spread(reference) & 0xffff_ffff;
        let mut table = Table::default();
        (0..count).for_each(|number| table.insert(hash_of(ItemRef(number)), ItemRef(number), hash_of));
        let most = table.lines.iter().map(Line::passed_by).max().unwrap();
        assert!(most < 100, "{most} of {count} entries passed one line by");
    }

    #[test]
    fn lookup_ends_if_every_line_has_an_overflow() {
        let mut table = Table::default();
        // The table grew to two lines for entries that are removed.
        (0..20).for_each(|number| table.insert(spread(ItemRef(number)), ItemRef(number), spread));
        assert_eq!(table.lines.len(), 2);
        for number in 0..20 {
            let place = table.find(spread(ItemRef(number)), |held| held == ItemRef(number)).unwrap();
            table.remove(spread(ItemRef(number)), place);
        }
        let (first, second) = (7 << 32, 7 << 32 | 1 << 31);
        let put = |table: &mut Table, hash, numbers: std::ops::Range<u32>| {
            numbers.for_each(|number| table.insert(hash, ItemRef(number), |_| unreachable!("it has room")));
        };
        put(&mut table, first, 0..13);
        for number in 0..6 {
            let place = table.find(first, |held| held == ItemRef(number)).unwrap();
            table.remove(first, place);
        }
        put(&mut table, second, 20..32);
        assert!(table.lines.iter().all(|line| line.passed_by() > 0));
        assert!(table.find(first, |_| false).is_none());
    }

    #[test]
    fn constant_churn_does_not_grow_the_table() {
        let mut table = Table::default();
        (0..1000).for_each(|number| table.insert(spread(ItemRef(number)), ItemRef(number), spread));
        let bytes = table.bytes();
        for number in 1000..if cfg!(miri) { 1100 } else { 50_000 } {
            let old = ItemRef(number - 1000);
            let place = table.find(spread(old), |held| held == old).unwrap();
            table.remove(spread(old), place);
            table.insert(spread(ItemRef(number)), ItemRef(number), spread);
        }
        assert_eq!(table.bytes(), bytes);
        assert!(bytes <= 1000 * 10);
    }
}
