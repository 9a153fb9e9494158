//! Moves of slabs between classes.

use super::*;

const LARGE: usize = 20 << 10;

fn fill(dram: &Dram, prefix: u8, count: u8, value_len: usize) {
    for number in 0..count {
        put(dram, &[prefix, number], &vec![number; value_len]).unwrap();
    }
}

#[test]
fn class_without_a_slab_takes_one_from_the_class_with_most() {
    let (dram, _) = small(3, HitRule::Ignore);
    fill(&dram, b's', 12, 100);
    put(&dram, b"large", &vec![1; LARGE]).unwrap();
    assert_eq!(get(&dram, b"large").unwrap().len(), LARGE);
    let stats = dram.pool_stats(POOL);
    assert_eq!((stats.classes[0].slabs, stats.classes[1].slabs), (2, 1));
    assert_eq!(stats.classes[0].evictions, 4);
    assert_accounted(&dram);
}

#[test]
fn slab_with_an_item_in_use_stays_in_its_class() {
    let (dram, _) = small(1, HitRule::Ignore);
    fill(&dram, b's', 4, 100);
    let pin = get(&dram, &[b's', 2]).unwrap();
    assert_eq!(put(&dram, b"large", &vec![1; LARGE]), Err(AllocateError::NoMemory));
    assert_accounted(&dram);
    assert_eq!(*pin, [2; 100]);
    drop(pin);
    assert!(get(&dram, &[b's', 2]).is_some(), "a pinned item is still in the index");
    put(&dram, b"large", &vec![1; LARGE]).unwrap();
    assert!(get(&dram, &[b's', 2]).is_none());
    assert_accounted(&dram);
}

#[test]
fn items_of_a_released_slab_move_to_free_chunks_of_their_class() {
    let (dram, clock) = small(3, HitRule::Ignore);
    let strategy = Strategy::TailAge { min_difference_ratio: 0.25 };
    let how = Rebalance { strategy, min_slabs: 1, move_on_release: true };
    fill(&dram, b's', 8, 100);
    fill(&dram, b'l', 2, LARGE);
    assert_eq!(rebalance(&dram, &how), None, "no class lacks chunks");
    for number in 4..8 {
        assert!(remove(&dram, &[b's', number]));
    }
    get(&dram, &[b's', 0]).unwrap().mark_clean();
    clock.advance_by(1_000_000_000_000);
    fill(&dram, b'l', 2, LARGE);
    let released = rebalance(&dram, &how).unwrap();
    assert!(released.completed);
    assert_eq!((released.from_chunk_bytes, released.to_chunk_bytes), (16 << 10, Some(32 << 10)));
    assert_eq!(released.items, ReleaseStats { move_attempts: 4, moves: 4, ..ReleaseStats::default() });
    for number in 0..4 {
        assert_eq!(*get(&dram, &[b's', number]).unwrap(), [number; 100]);
    }
    assert!(get(&dram, &[b's', 0]).unwrap().is_clean(), "the item's flags move with it");
    assert_accounted(&dram);
    assert_eq!(rebalance(&dram, &how), None, "the donor keeps its last slab");
}

/// Moves a slab from a random class, which keeps at least one, to another that has one.
fn at_random(drawn: u64) -> Rebalance {
    Rebalance { strategy: Strategy::Random { drawn }, min_slabs: 1, move_on_release: true }
}

/// A full class has no free chunks for the slab's items, so its coldest items are evicted first, from any slab.
#[test]
fn full_class_that_releases_a_slab_evicts_its_coldest_items() {
    let (dram, _) = small(4, HitRule::Every);
    fill(&dram, b's', 12, 100);
    fill(&dram, b'l', 2, LARGE);
    (1..4).for_each(|number| drop(get(&dram, &[b's', number])));
    drop(get(&dram, &[b's', 5]));
    let released = rebalance(&dram, &at_random(0)).unwrap();
    assert_eq!((released.completed, released.from_chunk_bytes), (true, 16 << 10));
    let expected = ReleaseStats { move_attempts: 3, moves: 3, eviction_attempts: 4, evictions: 4 };
    assert_eq!(released.items, expected);
    let left: Vec<_> = (0..12).filter(|&number| get(&dram, &[b's', number]).is_none()).collect();
    assert_eq!(left, [0, 4, 6, 7]);
    assert_eq!(dram.pool_stats(POOL).classes[0].evictions, 4);
    assert_accounted(&dram);
}

#[test]
fn pinned_and_expired_items_of_a_released_slab_evict_no_other() {
    let (dram, clock) = small(4, HitRule::Every);
    let expiry_seconds = dram.now_seconds() + 100;
    for key in [b"x", b"y"] {
        put_through(&dram, key, &[0; 100], expiry_seconds, &Discard).unwrap();
    }
    fill(&dram, b's', 10, 100);
    fill(&dram, b'l', 2, LARGE);
    // The next victims are the fourth item of the first slab, and then items of other slabs.
    for key in [b"x", b"y"] {
        drop(get(&dram, key).unwrap());
    }
    let held = get(&dram, &[b's', 0]).unwrap();
    clock.advance_by(100_000_000_000);
    let released = rebalance(&dram, &at_random(0)).unwrap();
    assert!(!released.completed);
    let expected = ReleaseStats { eviction_attempts: 3, evictions: 3, ..ReleaseStats::default() };
    assert_eq!(released.items, expected);
    drop(held);
    let left: Vec<_> = (0..10).filter(|&number| get(&dram, &[b's', number]).is_none()).collect();
    assert_eq!(left, [1]);
    assert_all_memory_is_freed(&dram);
}

#[test]
fn draft_selected_as_victim_is_skipped() {
    let (dram, _) = small(4, HitRule::Every);
    let hash = KeyHash::of(b"draft");
    let draft = dram.allocate(POOL, b"draft", hash, 100, 0, &Discard).unwrap();
    fill(&dram, b's', 11, 100);
    fill(&dram, b'l', 2, LARGE);
    assert!(!rebalance(&dram, &at_random(0)).unwrap().completed, "the draft is in the oldest slab");
    drop(dram.lock(hash).link(draft));
    assert!(get(&dram, b"draft").is_some());
    assert_all_memory_is_freed(&dram);
}

#[test]
fn slab_moves_to_the_class_with_hits() {
    let (dram, _) = small(3, HitRule::Ignore);
    fill(&dram, b's', 8, 100);
    fill(&dram, b'l', 18, LARGE);
    let strategy = Strategy::Hits { min_difference_ratio: 0.1, min_difference: 10 };
    let how = Rebalance { strategy, min_slabs: 1, move_on_release: false };
    assert_eq!(rebalance(&dram, &how), None, "no hits");
    for _ in 0..10 {
        drop(get(&dram, &[b'l', 17]));
    }
    fill(&dram, b'm', 1, LARGE);
    let released = rebalance(&dram, &how).unwrap();
    assert_eq!(released.to_chunk_bytes, Some(32 << 10));
    assert_eq!(released.items.evictions, 4);
    assert_eq!(rebalance(&dram, &how), None, "no hits since");
}

#[test]
fn slab_of_free_chunks_returns_to_the_pool() {
    let (dram, _) = small(2, HitRule::Ignore);
    fill(&dram, b's', 8, 100);
    (0..4).for_each(|number| assert!(remove(&dram, &[b's', number])));
    let how = Rebalance {
        strategy: Strategy::FreeMemory { min_free_slabs: 1 },
        min_slabs: 0,
        move_on_release: true,
    };
    let released = rebalance(&dram, &how).unwrap();
    assert_eq!((released.completed, released.to_chunk_bytes), (true, None));
    assert_eq!(dram.pool_stats(POOL).used_slabs, 1);
    (4..8).for_each(|number| assert!(get(&dram, &[b's', number]).is_some()));
    assert_accounted(&dram);
}

/// A class without items has no next victim, and must give its slabs nevertheless.
#[test]
fn class_without_items_gives_its_slabs_to_the_others() {
    let by_age = Strategy::TailAge { min_difference_ratio: 0.25 };
    let by_hits = Strategy::Hits { min_difference_ratio: 0.1, min_difference: 10 };
    for strategy in [by_age, by_hits] {
        let (dram, _) = small(4, HitRule::Ignore);
        fill(&dram, b's', 12, 100);
        fill(&dram, b'l', 2, LARGE);
        (0..12).for_each(|number| assert!(remove(&dram, &[b's', number])));
        let how = Rebalance { strategy, min_slabs: 1, move_on_release: true };
        for larges in [4, 6] {
            let released = rebalance(&dram, &how).unwrap();
            assert_eq!((released.completed, released.to_chunk_bytes), (true, None));
            assert_eq!(rebalance(&dram, &how), None, "the pool has an unassigned slab");
            fill(&dram, b'l', larges, LARGE);
            assert_eq!(dram.pool_stats(POOL).classes[1].evictions, 0);
        }
        assert_eq!(rebalance(&dram, &how), None, "the donor keeps its last slab");
        assert_accounted(&dram);
    }
}

fn by_age(min_slabs: u32) -> Rebalance {
    let strategy = Strategy::TailAge { min_difference_ratio: 0.25 };
    Rebalance { strategy, min_slabs, move_on_release: false }
}

fn slabs(dram: &Dram) -> [u32; 2] {
    [0, 1].map(|class| dram.pool_stats(POOL).classes[class].slabs)
}

/// A tier that has stored many item sizes must not keep a slab for each unused size.
#[test]
fn unused_class_loses_its_last_slab() {
    for (min_slabs, left) in [(0, [0, 3]), (1, [1, 2])] {
        let (dram, _) = small(3, HitRule::Ignore);
        fill(&dram, b's', 4, 100);
        for _ in 0..6 {
            fill(&dram, b'l', 10, LARGE);
            rebalance(&dram, &by_age(min_slabs));
        }
        assert_eq!(slabs(&dram), left);
        assert_accounted(&dram);
    }
}

#[test]
fn class_without_inserts_keeps_frequently_hit_items() {
    let (dram, _) = small(3, HitRule::Ignore);
    fill(&dram, b's', 4, 100);
    for _ in 0..20 {
        (0..4).for_each(|number| drop(get(&dram, &[b's', number])));
        fill(&dram, b'l', 10, LARGE);
        assert_eq!(rebalance(&dram, &by_age(0)), None);
    }
    assert_eq!(slabs(&dram), [1, 2]);
}

/// The age of the next victim varies by chance, mostly if it may be a new item, and must not cause useless moves.
#[test]
fn classes_with_equal_turnover_keep_their_slabs_at_any_age_of_their_next_victims() {
    let (dram, clock) = small(6, HitRule::Ignore);
    for round in 0..50_u8 {
        clock.advance_by(7_000_000_000);
        // The inserts are seconds apart, so the class of the last one has younger items.
        let (first, second) = if round % 3 == 0 { (b's', b'l') } else { (b'l', b's') };
        for class in [first, second] {
            let (prefix, count, len) = if class == b's' { (round, 12, 100) } else { (128 + round, 6, LARGE) };
            fill(&dram, prefix, count + round % 2, len);
            clock.advance_by(20_000_000_000);
        }
        assert_eq!(rebalance(&dram, &by_age(0)), None, "round {round}");
    }
    let evictions = [0, 1].map(|class| dram.pool_stats(POOL).classes[class].evictions);
    assert_eq!((slabs(&dram), evictions), ([3, 3], [613, 319]));
}

/// A tier of 128 slabs of 64 KiB, with at most two moves per step. A slab has eight, four or two chunks.
fn three_sizes() -> Dram {
    let mut config = DramConfig::new(128 << 16, queue(HitRule::Ignore));
    config.slab_bytes = Some(1 << 16);
    config.alloc_sizes = vec![8 << 10, 16 << 10, 32 << 10];
    Dram::new(&config, Arc::new(VirtualClock::default())).unwrap()
}

/// Inserts items under distinct keys; `per_slab` of them fit a slab.
fn put_many(dram: &Dram, per_slab: usize, numbers: std::ops::Range<u16>) {
    let value = vec![0; (1 << 16) / per_slab - 100];
    for number in numbers {
        put(dram, &[&[per_slab as u8][..], &number.to_le_bytes()].concat(), &value).unwrap();
    }
}

/// A slab that was just received is empty, but not spare.
#[test]
fn slab_just_received_does_not_move_on() {
    let dram = three_sizes();
    put_many(&dram, 4, 0..4);
    put_many(&dram, 2, 0..2);
    put_many(&dram, 8, 0..126 * 8);
    for _ in 0..4 {
        assert_eq!(dram.rebalance_step(POOL, &by_age(0), &Discard), [], "nothing was evicted");
    }
    put_many(&dram, 4, 4..200);
    put_many(&dram, 2, 2..120);
    let moves = dram.rebalance_step(POOL, &by_age(0), &Discard);
    let moves: Vec<_> = moves.iter().map(|moved| (moved.from_chunk_bytes, moved.to_chunk_bytes)).collect();
    let expected = [(8 << 10, Some(32 << 10)), (8 << 10, Some(16 << 10))];
    assert_eq!(moves, expected, "the class with the youngest items receives first, and one slab in 64 moves");
    assert_accounted(&dram);
}

/// A tier full of large items with one slab of small items unused for long; then large items are inserted.
fn with_an_unused_slab() -> Dram {
    let dram = three_sizes();
    put_many(&dram, 8, 0..8);
    put_many(&dram, 2, 0..254);
    for _ in 0..6 {
        assert_eq!(dram.rebalance_step(POOL, &by_age(0), &Discard), [], "nothing was evicted");
    }
    put_many(&dram, 2, 254..600);
    dram
}

#[test]
fn class_that_gave_its_last_slab_gives_no_other_in_the_same_step() {
    let dram = with_an_unused_slab();
    let moves = dram.rebalance_step(POOL, &by_age(0), &Discard);
    assert_eq!(moves.iter().map(|moved| moved.completed).collect::<Vec<_>>(), [true]);
    assert_accounted(&dram);
}

#[test]
fn slab_that_cannot_be_emptied_is_tried_once_per_step() {
    let dram = with_an_unused_slab();
    let held = get(&dram, &[8, 3, 0]).unwrap();
    // Otherwise the unused slab would have more hits than a slab of the others.
    (400..600_u16).for_each(|number| drop(get(&dram, &[&[2][..], &number.to_le_bytes()].concat()).unwrap()));
    let moves = dram.rebalance_step(POOL, &by_age(0), &Discard);
    assert_eq!(moves.iter().map(|moved| moved.completed).collect::<Vec<_>>(), [false]);
    drop(held);
    assert_accounted(&dram);
}

/// Emptying a slab evicts its items, so frequent moves would evict more items than the inserts need.
#[test]
fn slab_in_use_moves_only_after_evictions_of_eight_slabs() {
    let (dram, _) = small(12, HitRule::Ignore);
    fill(&dram, b's', 40, 100);
    fill(&dram, b'l', 4, LARGE);
    assert_eq!(rebalance(&dram, &by_age(0)), None, "nothing was evicted");
    let mut turned_over = 0;
    let moved = (0..40).find(|&round| {
        (0..40).for_each(|number| drop(get(&dram, &[b's', number])));
        fill(&dram, 128 + round, 4, 100);
        fill(&dram, round, 4, LARGE);
        turned_over += 3;
        rebalance(&dram, &by_age(0)).is_some()
    });
    assert_eq!(
        (moved.is_some(), turned_over),
        (true, 9),
        "a slab of the first, two of the second in each round"
    );
    assert_eq!(slabs(&dram), [9, 3]);
    assert_accounted(&dram);
}

#[test]
fn returned_slab_is_assigned_again_after_the_pool_was_exhausted() {
    let (dram, _) = small(2, HitRule::Ignore);
    fill(&dram, b's', 12, 100);
    assert_eq!(dram.pool_stats(POOL).classes[0].evictions, 4, "there was no third slab");
    (4..8).for_each(|number| assert!(remove(&dram, &[b's', number])));
    let strategy = Strategy::FreeMemory { min_free_slabs: 1 };
    let how = Rebalance { strategy, min_slabs: 0, move_on_release: true };
    assert!(rebalance(&dram, &how).unwrap().completed);
    fill(&dram, b't', 4, 100);
    let stats = dram.pool_stats(POOL);
    assert_eq!((stats.used_slabs, stats.classes[0].evictions), (2, 4));
    (8..12).for_each(|number| assert!(get(&dram, &[b's', number]).is_some()));
    assert_accounted(&dram);
}

#[test]
fn pools_stay_within_their_shares() {
    let mut config = DramConfig::new(4 << 16, queue(HitRule::Ignore));
    config.slab_bytes = Some(1 << 16);
    config.alloc_sizes = vec![16 << 10];
    config.pools = [0.25, 0.75].map(|share| PoolConfig { name: share.to_string(), share }).into();
    let dram = Dram::new(&config, Arc::new(VirtualClock::default())).unwrap();
    for number in 0..100_u8 {
        let (key, pool) = ([number], PoolId(number % 2));
        let draft = dram.allocate(pool, &key, KeyHash::of(&key), 1, 0, &Discard).unwrap();
        drop(dram.lock(KeyHash::of(&key)).link(draft));
    }
    let items: Vec<_> = dram.stats().iter().map(|pool| pool.total().items).collect();
    assert_eq!(items, [4, 12]);
}
