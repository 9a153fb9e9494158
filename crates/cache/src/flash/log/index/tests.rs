//! The index, entry by entry.

use std::collections::HashMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

const FORMAT: SlotFormat = SlotFormat { sequence_bits: 5, fingerprint_bits: 11, hit_bits: 1 };

fn live(min: u64, max: u64) -> Live {
    Live { min, max, bits: 5 }
}

/// The address in an index of 8 lines.
fn address(line: u32, fingerprint: u32) -> Address {
    Address::new(line, fingerprint, 8)
}

fn insert(lines: &mut Lines, key: &Address, sequence: u64, live: Live) -> Inserted {
    lines.insert(key, sequence, live, WhenFull::ReplaceOldest)
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
fn other_line_is_its_own_inverse() {
    for line_count in [1, 2, 7, 64, 1000] {
        for (line, fingerprint) in (0..line_count).zip([1, 5, 2047].into_iter().cycle()) {
            let other = other_line(line, fingerprint, line_count);
            assert!(other < line_count);
            assert_eq!(other_line(other, fingerprint, line_count), line);
            assert_eq!(
                Address::new(line, fingerprint, line_count),
                Address::new(other, fingerprint, line_count)
            );
        }
    }
}

#[test]
fn candidates_are_the_live_regions_newest_first() {
    let mut lines = Lines::new(8, FORMAT);
    let key = address(1, 77);
    for sequence in 100..112 {
        insert(&mut lines, &key, sequence, live(90, sequence));
    }
    insert(&mut lines, &address(1, 78), 111, live(90, 111));
    let found = lines.candidates(&key, live(107, 111));
    assert_eq!(found.as_slice(), [111, 110, 109, 108, 107]);
    assert_eq!(found.after(109).as_slice(), [111, 110]);
    let newest: Vec<u64> = (104..112).rev().collect();
    assert_eq!(lines.candidates(&key, live(90, 111)).as_slice(), newest);
    let all: Vec<u64> = (101..112).rev().collect();
    assert_eq!(lines.all_after(&key, 100, live(90, 111)), all);
}

#[test]
fn insert_into_almost_full_lines_keeps_all_entries() {
    let mut lines = Lines::new(8, FORMAT);
    let mut random = StdRng::seed_from_u64(3);
    let mut keys = Vec::new();
    for fingerprint in 1..=FORMAT.slots() * 15 / 2 {
        let key = address(random.random_range(0..8), fingerprint);
        assert_eq!(insert(&mut lines, &key, 100, live(90, 100)), Inserted::Kept);
        keys.push(key);
    }
    assert!(keys.iter().all(|key| lines.candidates(key, live(90, 100)).as_slice() == [100]));
}

#[test]
fn full_lines_lose_their_oldest_entry() {
    let mut lines = Lines::new(2, FORMAT);
    let slots = u64::from(FORMAT.slots());
    let key = |number: u64| Address::new(0, 1 + number as u32, 2);
    for number in 0..2 * slots {
        let sequence = 100 + number / slots;
        // An odd fingerprint leads to both lines.
        assert_eq!(insert(&mut lines, &key(2 * number), sequence, live(100, sequence)), Inserted::Kept);
    }
    let replaced = Inserted::Replaced { oldest: 100, address: key(0) };
    assert_eq!(insert(&mut lines, &key(200), 102, live(100, 102)), replaced);
    assert_eq!(lines.candidates(&key(200), live(100, 102)).as_slice(), [102]);
    let free = insert(&mut lines, &key(202), 103, live(102, 103));
    assert_eq!(free, Inserted::Kept, "entries of evicted regions are free slots");
}

#[test]
fn overflowing_entries_are_found_removed_and_placed_when_slots_become_free() {
    let mut lines = Lines::new(1, FORMAT);
    let key = |number: u32| Address::new(0, 1 + number, 1);
    let slots = FORMAT.slots();
    for number in 0..slots + 3 {
        let sequence = if number < slots { 100 } else { 101 };
        assert_eq!(
            lines.insert(&key(number), sequence, live(100, sequence), WhenFull::Overflow),
            Inserted::Kept
        );
    }
    let now = live(100, 101);
    assert!((0..slots + 3).all(|number| !lines.candidates(&key(number), now).as_slice().is_empty()));
    assert!(!lines.place_overflow(now));
    lines.mark_hit(lines.find(&key(slots), 101, now).unwrap());
    assert!(lines.remove_one(&key(slots + 1), 101, now));
    assert!(lines.candidates(&key(slots + 1), now).as_slice().is_empty());
    let now = live(101, 101);
    assert!(lines.place_overflow(now));
    assert_eq!(lines.hits(&key(slots), 101, now), Some(1));
    assert_eq!(lines.hits(&key(slots + 2), 101, now), Some(0));
}

#[test]
fn removed_entry_is_gone_and_entries_of_other_addresses_stay() {
    let mut lines = Lines::new(8, FORMAT);
    let (key, other) = (address(0, 5), address(0, 6));
    for sequence in [49, 50] {
        insert(&mut lines, &key, sequence, live(40, sequence));
    }
    insert(&mut lines, &other, 50, live(40, 50));
    let mut removed = Vec::new();
    lines.remove(&key, live(40, 50), |sequence| removed.push(sequence));
    removed.sort_unstable();
    assert_eq!(removed, [49, 50]);
    assert!(lines.candidates(&key, live(40, 50)).as_slice().is_empty());
    assert_eq!(lines.candidates(&other, live(40, 50)).as_slice(), [50]);
}

#[test]
fn hits_saturate_and_belong_to_one_region() {
    let mut lines = Lines::new(8, FORMAT);
    let key = address(0, 9);
    insert(&mut lines, &key, 60, live(50, 60));
    insert(&mut lines, &key, 61, live(50, 61));
    (0..2).for_each(|_| lines.mark_hit(lines.find(&key, 60, live(50, 61)).unwrap()));
    assert!(lines.find(&key, 59, live(50, 61)).is_none());
    assert_eq!(lines.hits(&key, 60, live(50, 61)), Some(1));
    assert_eq!(lines.hits(&key, 61, live(50, 61)), Some(0));
    assert_eq!(lines.hits(&key, 61, live(62, 61)), None);
}

#[test]
fn swept_slots_stay_empty_when_their_region_number_recurs() {
    let mut lines = Lines::new(8, FORMAT);
    let key = address(3, 4);
    insert(&mut lines, &key, 100, live(100, 100));
    lines.sweep(8, live(110, 120));
    assert!(lines.candidates(&key, live(125, 132)).as_slice().is_empty());
    insert(&mut lines, &key, 100, live(100, 100));
    assert_eq!(lines.candidates(&key, live(125, 132)).as_slice(), [132], "without a sweep it would");
}

#[test]
fn each_line_is_one_cache_line() {
    for count in 1..20 {
        let lines = Lines::new(count, FORMAT);
        assert_eq!(lines.lines().len(), count as usize);
        assert!(lines.lines().as_ptr().addr().is_multiple_of(CACHE_LINE_BYTES), "{count} lines");
    }
}
