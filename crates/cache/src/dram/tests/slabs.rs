//! Slabs on the move between classes.

use super::*;

const LARGE: usize = 20 << 10;

fn fill(dram: &Dram, prefix: u8, count: u8, value_len: usize) {
    for number in 0..count {
        put(dram, &[prefix, number], &vec![number; value_len]).unwrap();
    }
}

#[test]
fn a_class_without_a_slab_takes_one_from_the_richest() {
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
fn a_slab_with_an_item_in_use_goes_back_to_work() {
    let (dram, _) = small(1, HitRule::Ignore);
    fill(&dram, b's', 4, 100);
    let pin = get(&dram, &[b's', 2]).unwrap();
    assert_eq!(put(&dram, b"large", &vec![1; LARGE]), Err(AllocateError::NoMemory));
    assert_accounted(&dram);
    assert_eq!(*pin, [2; 100]);
    drop(pin);
    assert!(get(&dram, &[b's', 2]).is_some(), "an item that could not leave is still there");
    put(&dram, b"large", &vec![1; LARGE]).unwrap();
    assert!(get(&dram, &[b's', 2]).is_none());
    assert_accounted(&dram);
}

#[test]
fn a_released_slabs_items_move_where_their_class_has_free_chunks() {
    let (dram, clock) = small(3, HitRule::Ignore);
    fill(&dram, b's', 8, 100);
    fill(&dram, b'l', 2, LARGE);
    for number in 4..8 {
        assert!(remove(&dram, &[b's', number]));
    }
    get(&dram, &[b's', 0]).unwrap().mark_clean();
    clock.advance_by(1_000_000_000_000);
    fill(&dram, b'l', 2, LARGE);
    let strategy = Strategy::TailAge { min_difference_ratio: 0.25, min_difference_seconds: 100 };
    let how = Rebalance { strategy, min_slabs: 1, move_on_release: true };
    let released = dram.rebalance_step(POOL, &how, &Discard).unwrap();
    assert!(released.completed);
    assert_eq!((released.from_chunk_bytes, released.to_chunk_bytes), (16 << 10, Some(32 << 10)));
    assert_eq!(released.items, ReleaseStats { move_attempts: 4, moves: 4, ..ReleaseStats::default() });
    for number in 0..4 {
        assert_eq!(*get(&dram, &[b's', number]).unwrap(), [number; 100]);
    }
    assert!(get(&dram, &[b's', 0]).unwrap().is_clean(), "what is known of an item moves with it");
    assert_accounted(&dram);
    assert_eq!(dram.rebalance_step(POOL, &how, &Discard), None, "the donor keeps its last slab");
}

#[test]
fn hits_pull_a_slab_to_where_they_are() {
    let (dram, _) = small(3, HitRule::Ignore);
    fill(&dram, b's', 8, 100);
    fill(&dram, b'l', 2, LARGE);
    for _ in 0..10 {
        drop(get(&dram, &[b'l', 0]));
    }
    let strategy = Strategy::Hits { min_difference_ratio: 0.1, min_difference: 10 };
    let how = Rebalance { strategy, min_slabs: 1, move_on_release: false };
    let released = dram.rebalance_step(POOL, &how, &Discard).unwrap();
    assert_eq!(released.to_chunk_bytes, Some(32 << 10));
    assert_eq!(released.items.evictions, 4);
    assert_eq!(dram.rebalance_step(POOL, &how, &Discard), None, "no hits since");
}

#[test]
fn free_chunks_worth_a_slab_go_back_to_the_pool() {
    let (dram, _) = small(2, HitRule::Ignore);
    fill(&dram, b's', 8, 100);
    (0..4).for_each(|number| assert!(remove(&dram, &[b's', number])));
    let how = Rebalance {
        strategy: Strategy::FreeMemory { min_free_slabs: 1 },
        min_slabs: 0,
        move_on_release: true,
    };
    let released = dram.rebalance_step(POOL, &how, &Discard).unwrap();
    assert_eq!((released.completed, released.to_chunk_bytes), (true, None));
    assert_eq!(dram.pool_stats(POOL).used_slabs, 1);
    (4..8).for_each(|number| assert!(get(&dram, &[b's', number]).is_some()));
    assert_accounted(&dram);
}

/// It had no next victim, and so was passed over for ever.
#[test]
fn a_class_whose_items_are_all_gone_gives_its_slabs_to_the_others() {
    let by_age = Strategy::TailAge { min_difference_ratio: 0.25, min_difference_seconds: 100 };
    let by_hits = Strategy::Hits { min_difference_ratio: 0.1, min_difference: 10 };
    for strategy in [by_age, by_hits] {
        let (dram, _) = small(4, HitRule::Ignore);
        fill(&dram, b's', 12, 100);
        fill(&dram, b'l', 2, LARGE);
        (0..12).for_each(|number| assert!(remove(&dram, &[b's', number])));
        let how = Rebalance { strategy, min_slabs: 1, move_on_release: true };
        for larges in [4, 6] {
            let released = dram.rebalance_step(POOL, &how, &Discard).unwrap();
            assert_eq!((released.completed, released.to_chunk_bytes), (true, None));
            assert_eq!(dram.rebalance_step(POOL, &how, &Discard), None, "there is a slab to be had");
            fill(&dram, b'l', larges, LARGE);
            assert_eq!(dram.pool_stats(POOL).classes[1].evictions, 0);
        }
        assert_eq!(dram.rebalance_step(POOL, &how, &Discard), None, "the donor keeps its last slab");
        assert_accounted(&dram);
    }
}

#[test]
fn a_slab_that_went_back_is_handed_out_again_though_the_pool_had_none_left_before() {
    let (dram, _) = small(2, HitRule::Ignore);
    fill(&dram, b's', 12, 100);
    assert_eq!(dram.pool_stats(POOL).classes[0].evictions, 4, "no third slab was to be had");
    (4..8).for_each(|number| assert!(remove(&dram, &[b's', number])));
    let strategy = Strategy::FreeMemory { min_free_slabs: 1 };
    let how = Rebalance { strategy, min_slabs: 0, move_on_release: true };
    assert!(dram.rebalance_step(POOL, &how, &Discard).unwrap().completed);
    fill(&dram, b't', 4, 100);
    let stats = dram.pool_stats(POOL);
    assert_eq!((stats.used_slabs, stats.classes[0].evictions), (2, 4));
    (8..12).for_each(|number| assert!(get(&dram, &[b's', number]).is_some()));
    assert_accounted(&dram);
}

#[test]
fn pools_keep_to_their_shares() {
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
