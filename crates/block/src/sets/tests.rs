//! Small cases with known results, and the memory limits.

use super::*;

const WAYS: u32 = 8;

/// One set of eight slots.
fn one_set(tuning: Tuning) -> Sets {
    let geometry =
        Geometry { block_bytes: 4096, sets: 1, ways: WAYS, placement: Placement::Linear, placement_key: 0 };
    Sets::new(SetsConfig { geometry, tuning }).expect("within bounds")
}

fn threshold(dirty_percent: u8) -> Tuning {
    Tuning { policy: SetPolicy::Lru, dirty_percent, ..Preset::V2.tuning() }
}

fn write(sets: &mut Sets, block: u64) -> Slot {
    match sets.write(block, Admit::Yes) {
        Write::Hit(slot) | Write::Taken { slot, .. } => {
            sets.mark_dirty(slot);
            slot
        }
        Write::Around(_) => panic!("no slot for block {block}"),
    }
}

fn blocks(cleaning: &Cleaning) -> Vec<u64> {
    (0..cleaning.slots.len() as u64).map(|number| cleaning.first_block + number).collect()
}

#[test]
fn set_above_threshold_cleans_oldest_block_with_its_neighbours() {
    let mut sets = one_set(threshold(50));
    for block in [10, 30, 11, 50] {
        write(&mut sets, block);
    }
    assert_eq!(sets.next_cleaning(), None, "half of the eight slots may be dirty");
    write(&mut sets, 9);
    let cleaning = sets.next_cleaning().expect("one block too many is dirty");
    assert_eq!(blocks(&cleaning), [9, 10, 11], "10 is the oldest");
    assert_eq!(sets.next_cleaning(), None, "blocks being cleaned do not count as dirty");
    assert_eq!(sets.end_cleaning(&cleaning, true), 3);
    assert_eq!((sets.counters().front_merge, sets.counters().back_merge), (1, 1));
    assert_eq!((sets.dirty_blocks(), sets.counters().cleanings), (2, 3));
}

#[test]
fn drain_cleans_blocks_once_and_skips_rewritten_ones() {
    let mut sets = one_set(Tuning { clean_run_blocks: 1, ..threshold(100) });
    for block in [10, 30, 50, 70] {
        write(&mut sets, block);
    }
    assert_eq!(sets.next_cleaning(), None, "no drain was started");
    sets.start_drain();
    write(&mut sets, 30);
    write(&mut sets, 90);
    assert_eq!(sets.blocks_to_drain(), 3);
    let done = sets.next_cleaning().expect("10 is in the drain");
    let lost = sets.next_cleaning().expect("50 is in the drain");
    assert_eq!((blocks(&done), blocks(&lost)), (vec![10], vec![50]));
    assert_eq!((sets.end_cleaning_of(&done, |_| true), sets.end_cleaning_of(&lost, |_| false)), (1, 0));
    assert_eq!((sets.blocks_to_drain(), sets.dirty_blocks(), sets.counters().cleanings), (1, 4, 1));
    let third = sets.next_cleaning().expect("70 is in the drain");
    sets.end_cleaning(&third, false);
    assert_eq!(sets.blocks_to_drain(), 1, "it is retried");
    sets.forget(third.slots[0]);
    assert_eq!((sets.blocks_to_drain(), sets.next_cleaning()), (0, None));
}

#[test]
fn run_length_is_limited_by_limit_runs() {
    let mut sets = one_set(Tuning { clean_run_blocks: u32::MAX, ..threshold(0) });
    sets.limit_runs(3);
    for block in 0..8 {
        write(&mut sets, block);
    }
    let runs: Vec<usize> = std::iter::from_fn(|| sets.next_cleaning()).map(|run| run.slots.len()).collect();
    assert_eq!(runs, [3, 3]);
}

#[test]
fn run_includes_neighbours_from_other_sets() {
    let geometry = Geometry {
        block_bytes: 4096,
        sets: 16,
        ways: WAYS,
        placement: Placement::Hashed { run_bytes: 4096 },
        placement_key: 1,
    };
    let mut sets = Sets::new(SetsConfig { geometry, tuning: threshold(100) }).expect("within bounds");
    let slots: Vec<Slot> = (100..110).map(|block| write(&mut sets, block)).collect();
    let in_sets: std::collections::HashSet<u32> = slots.iter().map(|slot| slot.0 / WAYS).collect();
    assert!(in_sets.len() > 3, "single blocks are scattered");
    sets.start_drain();
    let cleaning = sets.next_cleaning().expect("all blocks are in the drain");
    assert_eq!(blocks(&cleaning), (100..110).collect::<Vec<_>>());
}

#[test]
fn block_rewritten_during_cleaning_stays_dirty() {
    let mut sets = one_set(threshold(0));
    let slot = write(&mut sets, 1);
    let cleaning = sets.next_cleaning().expect("no block may be dirty");
    sets.mark_dirty(slot);
    assert_eq!(sets.end_cleaning(&cleaning, true), 0);
    assert!(sets.word(slot).is_dirty());
    let again = sets.next_cleaning().expect("it is still dirty");
    assert_eq!(sets.end_cleaning(&again, true), 1);
}

#[test]
fn failed_run_stays_dirty_and_is_chosen_again() {
    let mut sets = one_set(threshold(0));
    write(&mut sets, 1);
    let cleaning = sets.next_cleaning().expect("no block may be dirty");
    assert_eq!(sets.end_cleaning(&cleaning, false), 0);
    assert_eq!((sets.dirty_blocks(), sets.counters().cleanings), (1, 0));
    assert_eq!(sets.next_cleaning().map(|cleaning| cleaning.slots), Some(cleaning.slots));
}

#[test]
fn runs_in_flight_are_limited_per_set_and_in_total() {
    let tuning = Tuning { cleanings_per_set: 2, cleanings_total: 3, ..threshold(0) };
    let geometry =
        Geometry { block_bytes: 4096, sets: 2, ways: WAYS, placement: Placement::Linear, placement_key: 0 };
    let mut sets = Sets::new(SetsConfig { geometry, tuning }).expect("within bounds");
    for block in [0, 2, 4, 6, 8, 10, 12] {
        write(&mut sets, block);
    }
    let in_flight: Vec<Cleaning> = std::iter::from_fn(|| sets.next_cleaning()).collect();
    assert_eq!(in_flight.len(), 3);
    let of_first = in_flight.iter().filter(|cleaning| cleaning.first_block < 8).count();
    assert_eq!(of_first, 2, "two runs of the first set, one of the second");
    sets.end_cleaning(&in_flight[0], true);
    assert!(sets.next_cleaning().is_some());
}

#[test]
fn lazy_cleaning_cleans_only_the_next_victim() {
    let mut sets = one_set(Tuning { lazy_depth: 1, ..threshold(100) });
    for block in 0..8 {
        write(&mut sets, block * 2);
        if block > 0 {
            sets.mark_clean(sets.find(block * 2).expect("just written"));
        }
    }
    assert_eq!(sets.next_cleaning(), None, "no block needs a slot");
    let Read::Fill { evicted, .. } = sets.read(99, Admit::Yes) else { panic!("there are clean blocks") };
    assert_eq!(evicted, Some(2), "block 0 is older, but dirty");
    let cleaning = sets.next_cleaning().expect("block 0 is the next victim");
    assert_eq!(blocks(&cleaning), [0]);
    sets.end_cleaning(&cleaning, true);
    let Read::Fill { evicted, .. } = sets.read(98, Admit::Yes) else { panic!("there are clean blocks") };
    assert_eq!(evicted, Some(0));
}

#[test]
fn set_without_clean_slot_is_cleaned_first() {
    let mut sets = one_set(threshold(100));
    let slots: Vec<Slot> = (0..8).map(|block| write(&mut sets, block * 2)).collect();
    assert_eq!(sets.allocate(99), Allocation::AllDirty);
    let cleaning = sets.next_cleaning().expect("a slot is needed");
    assert_eq!(sets.allocate(99), Allocation::AllDirty, "not yet");
    sets.end_cleaning(&cleaning, true);
    assert_eq!(sets.allocate(99), Allocation::Evicted(slots[0], 0));
    assert_eq!(sets.counters().no_room, 2);
    for slot in &slots[1..] {
        sets.mark_clean(*slot);
        sets.pin(*slot);
    }
    sets.pin(slots[0]);
    assert_eq!(sets.allocate(55), Allocation::Busy);
}

#[test]
fn pinned_block_is_neither_evicted_nor_cleaned() {
    let mut sets = one_set(threshold(0));
    let slot = write(&mut sets, 0);
    sets.pin(slot);
    assert_eq!(sets.next_cleaning(), None);
    assert!(!sets.forget(slot));
    for block in 100..200 {
        sets.read(block, Admit::Yes);
    }
    assert_eq!(sets.find(0), Some(slot));
    sets.unpin(slot);
    assert!(sets.forget(slot));
    assert_eq!((sets.find(0), sets.dirty_blocks()), (None, 0));
}

#[test]
fn dirty_block_unused_for_two_sweeps_is_cleaned() {
    let mut sets = one_set(Tuning { idle_seconds: 10, ..threshold(100) });
    let (idle, used) = (write(&mut sets, 0), write(&mut sets, 100));
    let mut cleaned = Vec::new();
    for second in 0..=30 {
        sets.age(second);
        sets.hit(used);
        if let Some(cleaning) = sets.next_cleaning() {
            assert_eq!(cleaning.slots, [idle]);
            sets.end_cleaning(&cleaning, true);
            cleaned.push(second);
        }
    }
    assert!(matches!(cleaned[..], [10..=20]), "after one to two sweeps of 10 seconds, once: {cleaned:?}");
    assert_eq!(sets.counters().fallow_cleanings, 1);
}

/// A run that fails completely must not use up the allowance of idle blocks or count blocks that joined it, and its block is
/// chosen again.
#[test]
fn failed_run_counts_nothing_and_is_chosen_again() {
    let mut idle = one_set(Tuning { idle_seconds: 10, idle_blocks_per_second: 1, ..threshold(100) });
    let first = write(&mut idle, 0);
    write(&mut idle, 1);
    let begun = (0..=30).find_map(|second| {
        idle.age(second);
        idle.next_cleaning()
    });
    let failed_run = begun.expect("it is idle");
    idle.end_cleaning(&failed_run, false);
    let counts = |sets: &Sets| {
        let Counters { front_merge, back_merge, cleanings, fallow_cleanings, .. } = *sets.counters();
        (front_merge, back_merge, cleanings, fallow_cleanings)
    };
    assert_eq!(counts(&idle), (0, 0, 0, 0));
    let again = idle.next_cleaning().expect("it is still idle");
    assert_eq!(again, failed_run);
    idle.end_cleaning_of(&again, |slot| slot == first);
    assert_eq!(counts(&idle), (0, 0, 1, 1));

    let mut tail = one_set(Tuning { lazy_depth: 2, ..threshold(100) });
    write(&mut tail, 0);
    for block in 10..18 {
        assert!(matches!(tail.read(block, Admit::Yes), Read::Fill { .. }));
    }
    let failed_run = tail.next_cleaning().expect("it is the next victim");
    tail.end_cleaning(&failed_run, false);
    let again = tail.next_cleaning().expect("it is still the next victim");
    assert_eq!(again, failed_run);
    tail.end_cleaning_of(&again, |_| false);
    assert_eq!(tail.next_cleaning(), None, "the disk just refused it");
    tail.age(1);
    tail.age(2);
    assert_eq!(tail.next_cleaning(), Some(failed_run));
}

/// Reads by a backup must not affect the eviction order.
#[test]
fn reads_of_an_uncached_client_do_not_change_the_eviction_order() {
    let mut sets = one_set(threshold(100));
    for block in 0..8 {
        sets.read(block, Admit::Yes);
    }
    for (block, admit) in [(0, Admit::Refused), (1, Admit::Sequential), (2, Admit::NoSpace)] {
        assert!(matches!(sets.read(block, admit), Read::Hit(_)));
    }
    assert_eq!((sets.counters().read_hits, sets.set(0).operations.hits), (3, 3));
    let evicted = |sets: &mut Sets, block| match sets.read(block, Admit::Yes) {
        Read::Fill { evicted, .. } => evicted,
        _ => None,
    };
    // Misses that insert no block do not affect the eviction order of other blocks.
    assert_eq!([8, 9, 10].map(|block| evicted(&mut sets, block)), [Some(0), Some(1), Some(3)]);
}

#[test]
fn mode_decides_admission_and_dirty_state() {
    let of = |mode| one_set(Tuning { mode, ..threshold(100) });
    let mut around = of(Mode::WriteAround);
    let Read::Fill { slot, .. } = around.read(1, Admit::Yes) else { panic!("reads are cached") };
    assert_eq!(around.write(1, Admit::Yes), Write::Around(Some(slot)), "the cached copy is outdated");
    let mut write_only = of(Mode::WriteOnly);
    assert_eq!(write_only.read(1, Admit::Yes), Read::Around);
    assert!(matches!(write_only.write(1, Admit::Yes), Write::Taken { .. }));
    assert!(matches!(write_only.read(1, Admit::Yes), Read::Hit(_)), "cached blocks are used");
    let mut back = of(Mode::WriteBack);
    assert_eq!(back.read(1, Admit::Sequential), Read::Around);
    assert_eq!(back.write(2, Admit::Refused), Write::Around(None));
    let counters = back.counters();
    assert_eq!((counters.uncached_sequential_reads, counters.uncached_writes), (1, 1));
    assert_eq!(counters.uncached_sequential_writes, 0);
}

#[test]
fn policy_change_keeps_cached_blocks() {
    let mut sets = one_set(threshold(100));
    for block in 0..8 {
        sets.read(block, Admit::Yes);
    }
    let policy = SetPolicy::Lru2q { hot_percent: 50, promote_hits: 1 };
    sets.set_tuning(Tuning { policy, ..threshold(100) }).expect("within bounds");
    for block in 0..4 {
        sets.read(block, Admit::Yes);
    }
    assert_eq!(sets.hot_and_warm_blocks(), (4, 4));
    for block in 100..200 {
        sets.read(block, Admit::Yes);
    }
    assert!((0..4).all(|block| sets.find(block).is_some()), "a scan does not evict hot blocks");
    let wrong = Tuning { dirty_percent: 101, ..threshold(100) };
    let error = sets.set_tuning(wrong).expect_err("above 100 %");
    assert_eq!(error.to_string(), "dirty_percent is 101: must be at most 100");
    assert_eq!(sets.tuning().policy, policy, "an invalid setting changes nothing");
}

/// Blocks being cleaned count as slots that become free.
#[test]
fn blocks_being_cleaned_count_as_future_free_slots() {
    let mut sets = one_set(Tuning { cleanings_per_set: 3, ..threshold(100) });
    for block in 0..u64::from(WAYS) {
        write(&mut sets, block * 2);
    }
    assert!(sets.request_slots(0, 1));
    let cleaning = sets.next_cleaning().expect("slots were requested");
    assert!(!sets.request_slots(0, 1), "one slot becomes free");
    assert!(sets.request_slots(0, 2));
    sets.next_cleaning().expect("slots were requested");
    sets.end_cleaning(&cleaning, true);
    assert!(!sets.request_slots(0, 2), "one slot is free and one becomes free");
}

#[test]
fn memory_is_17_bytes_per_block_and_66_per_set() {
    let sets = 1 << 14;
    let bytes = |ways: u32| {
        let geometry =
            Geometry { block_bytes: 4096, sets, ways, placement: Placement::Linear, placement_key: 0 };
        let sets = Sets::new(SetsConfig { geometry, tuning: threshold(100) }).expect("within bounds");
        sets.memory_bytes()
    };
    let of_blocks = bytes(2) - bytes(1);
    let of_sets = bytes(1) - of_blocks;
    assert_eq!([of_blocks, of_sets].map(|bytes| bytes / sets as usize), [17, 66]);
}

#[test]
fn preset_needs_less_than_17_5_bytes_per_block() {
    let sets = Sets::new(Preset::V3.config(1 << 30)).expect("a preset");
    let blocks = f64::from(sets.geometry().slots());
    let bytes = sets.memory_bytes() as f64 / blocks;
    assert!(bytes < 17.5, "{bytes:.2} bytes a block");
}

/// A frequently used set exceeds 32-bit counters within days.
#[test]
fn set_counters_exceed_32_bits() {
    let mut sets = one_set(threshold(100));
    write(&mut sets, 1);
    sets.states[0].operations = SetOperations {
        hits: u32::MAX.into(),
        read_misses: u32::MAX.into(),
        write_misses: u32::MAX.into(),
        cleaned: u32::MAX.into(),
    };
    write(&mut sets, 1);
    write(&mut sets, 2);
    sets.read(3, Admit::Yes);
    sets.start_drain();
    let cleaning = sets.next_cleaning().expect("all blocks are in the drain");
    sets.end_cleaning(&cleaning, true);
    let SetOperations { hits, read_misses, write_misses, cleaned } = sets.set(0).operations;
    let counts = [hits, read_misses, write_misses, cleaned].map(|count| count - u64::from(u32::MAX));
    assert_eq!(counts, [1, 1, 1, cleaning.slots.len() as u64]);
}

/// The retried attempt counts by its final result; evictions and dropped copies stay counted.
#[test]
fn undone_request_leaves_counters_unchanged() {
    let counted = |sets: &Sets| {
        let counters =
            Counters { replacement: 0, write_replacement: 0, write_invalidates: 0, ..*sets.counters() };
        let SetView { operations, .. } = sets.set(0);
        (counters, operations)
    };
    let mut decisions = std::collections::HashSet::new();
    for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround, Mode::WriteOnly] {
        // All blocks of the set are dirty, or none.
        for dirty in [true, false] {
            let mut sets = one_set(threshold(100));
            let slots: Vec<Slot> = (0..u64::from(WAYS)).map(|block| write(&mut sets, block)).collect();
            if !dirty {
                slots.iter().for_each(|slot| assert!(sets.mark_clean(*slot)));
            }
            sets.set_tuning(Tuning { mode, ..threshold(100) }).expect("within bounds");
            for admit in [Admit::Yes, Admit::Sequential, Admit::Refused, Admit::NoSpace] {
                for block in [1, 100 + sets.counters().reads] {
                    let before = counted(&sets);
                    let read = sets.read(block, admit);
                    assert_ne!(counted(&sets), before);
                    sets.undo_read(block, admit, read);
                    assert_eq!(counted(&sets), before, "{mode:?}: {read:?}");
                    let was_dirty = sets.find(block).is_some_and(|slot| sets.word(slot).is_dirty());
                    let write = sets.write(block, admit);
                    assert_ne!(counted(&sets), before);
                    sets.undo_write(block, admit, write, was_dirty);
                    assert_eq!(counted(&sets), before, "{mode:?}: {write:?}");
                    decisions.insert(std::mem::discriminant(&read));
                }
            }
        }
    }
    assert_eq!(decisions.len(), 3, "hits, fills and reads around the cache");
}

#[test]
fn reverted_counts_saturate_at_zero_after_a_reset_or_mode_change() {
    let mut sets = one_set(threshold(100));
    write(&mut sets, 1);
    let taken_back = |sets: &mut Sets, mode| {
        let (read, write) = (sets.read(1, Admit::Yes), sets.write(2, Admit::Yes));
        let past_all = sets.read(3, Admit::Sequential);
        sets.zero_counters();
        sets.set_tuning(Tuning { mode, ..threshold(100) }).expect("within bounds");
        sets.undo_read(1, Admit::Yes, read);
        sets.undo_read(3, Admit::Sequential, past_all);
        sets.undo_write(2, Admit::Yes, write, true);
        sets.undo_bypassing_write();
        assert_eq!(*sets.counters(), Counters::default());
    };
    for mode in [Mode::WriteOnly, Mode::WriteAround, Mode::WriteThrough, Mode::WriteBack] {
        taken_back(&mut sets, mode);
    }
}
