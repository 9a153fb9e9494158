//! Operations of a single thread.

use policy::eviction::{S3Fifo, Sieve};

use super::*;

#[test]
fn inserted_value_is_read_in_place_until_removed() {
    let (dram, _) = small(4, HitRule::Ignore);
    put(&dram, b"key", b"value").unwrap();
    assert_eq!(&*get(&dram, b"key").unwrap(), b"value");
    assert!(get(&dram, b"other").is_none());
    assert!(remove(&dram, b"key"));
    assert!(!remove(&dram, b"key"));
    assert!(get(&dram, b"key").is_none());
}

#[test]
fn replaced_value_stays_readable_through_a_handle() {
    let (dram, _) = small(4, HitRule::Ignore);
    put(&dram, b"key", b"old").unwrap();
    let old = get(&dram, b"key").unwrap();
    put(&dram, b"key", b"new").unwrap();
    assert_eq!(&*old, b"old");
    assert!(!old.is_linked());
    assert_eq!(&*get(&dram, b"key").unwrap(), b"new");
}

#[test]
fn full_class_evicts_in_the_order_of_its_policy() {
    // One slab of four chunks.
    let (dram, _) = small(1, HitRule::Every);
    for key in [b"a", b"b", b"c", b"d"] {
        put(&dram, key, key).unwrap();
    }
    drop(get(&dram, b"a"));
    put(&dram, b"e", b"e").unwrap();
    assert!(get(&dram, b"b").is_none(), "the least recently used item was evicted");
    for key in [b"a", b"c", b"d", b"e"] {
        assert_eq!(&*get(&dram, key).unwrap(), key);
    }
}

#[test]
fn marked_item_is_not_evicted() {
    let (dram, _) = small_under(1, Arc::new(|| Box::new(Sieve::new())));
    for key in [b"a", b"b", b"c", b"d"] {
        put(&dram, key, key).unwrap();
    }
    drop(get(&dram, b"a"));
    for (new, leaves) in [(b"e", b"b"), (b"f", b"c"), (b"g", b"d"), (b"h", b"e"), (b"i", b"f")] {
        put(&dram, new, new).unwrap();
        assert!(dram.peek(leaves, KeyHash::of(leaves)).is_none(), "{leaves:?} is evicted for {new:?}");
    }
    assert!(get(&dram, b"a").is_some(), "the hand has passed it");
}

#[test]
fn mark_protects_an_item_from_eviction_once() {
    let (dram, _) = small_under(1, Arc::new(|| Box::new(Sieve::new())));
    let keys = [b"a", b"b", b"c", b"d"];
    for key in keys {
        put(&dram, key, key).unwrap();
    }
    keys.iter().for_each(|key| drop(get(&dram, *key)));
    for (new, leaves) in [(b"e", b"a"), (b"f", b"b"), (b"g", b"c")] {
        put(&dram, new, new).unwrap();
        assert!(dram.peek(leaves, KeyHash::of(leaves)).is_none(), "{leaves:?} is evicted for {new:?}");
    }
}

#[test]
#[should_panic(expected = "a policy counts 4 hits in marks of 3")]
fn policy_with_a_hit_limit_above_the_marks_is_refused() {
    let rule = HitRule::Mark { marks: Arc::new(policy::Marks::default()), at_most: 4 };
    let (dram, _) = small(1, rule);
    let _ = put(&dram, b"key", b"value");
}

#[test]
#[should_panic(expected = "a policy that counts hits in marks must use the marks of its class")]
fn policy_that_reads_other_marks_is_refused() {
    let rule = HitRule::Mark { marks: Arc::new(policy::Marks::default()), at_most: 1 };
    let (dram, _) = small(1, rule);
    let _ = put(&dram, b"key", b"value");
}

#[test]
fn new_item_in_a_reused_chunk_has_no_marks() {
    let (dram, _) = small_under(1, Arc::new(|| Box::new(S3Fifo::new(0))));
    for key in [b"a", b"b", b"c", b"d"] {
        put(&dram, key, key).unwrap();
    }
    drop(get(&dram, b"a"));
    let marks = |key: &[u8]| dram.peek(key, KeyHash::of(key)).map(|item| item.item.header().marks());
    assert_eq!(marks(b"a"), Some(1));
    put(&dram, b"e", b"e").unwrap();
    assert_eq!((marks(b"a"), marks(b"e")), (None, Some(0)), "one hit is too few for the main queue");
}

#[test]
fn pinned_item_is_not_evicted_and_insert_among_pinned_items_fails() {
    let (dram, _) = small(1, HitRule::Ignore);
    for key in [b"a", b"b", b"c", b"d"] {
        put(&dram, key, key).unwrap();
    }
    let pins: Vec<_> = [b"a", b"b", b"c"].iter().map(|key| get(&dram, *key).unwrap()).collect();
    put(&dram, b"e", b"e").unwrap();
    assert!(get(&dram, b"d").is_none(), "the only unpinned item was evicted");
    let pin_e = get(&dram, b"e").unwrap();
    assert_eq!(put(&dram, b"f", b"f"), Err(AllocateError::NoMemory));
    drop(pin_e);
    put(&dram, b"f", b"f").unwrap();
    assert_eq!(pins.iter().map(|pin| pin[0]).collect::<Vec<_>>(), b"abc");
}

/// Pinned items can fill S3-FIFO's main queue beyond its share; the policy must then evict from the small queue.
#[test]
fn insert_evicts_unpinned_items_among_many_pinned_ones() {
    let (dram, _) = small_under(40, Arc::new(|| Box::new(S3Fifo::new(0))));
    let put_next = |key: u32| put(&dram, &key.to_le_bytes(), b"value");
    (0..160).for_each(|key| put_next(key).unwrap());
    let in_use = (0..160_u32).filter(|key| key % 20 != 0);
    let held: Vec<_> = in_use.map(|key| get(&dram, &key.to_le_bytes()).unwrap()).collect();
    for key in 160..400 {
        assert_eq!(put_next(key), Ok(()), "{} of 160 items are pinned", held.len());
    }
}

/// Pinned items are reinserted into both S3-FIFO queues in turn, so the unpinned one is selected only after some were selected twice.
#[test]
fn only_unpinned_item_is_found_at_any_position() {
    for free in (0..160).step_by(if cfg!(miri) { 50 } else { 3 }) {
        let (dram, _) = small_under(40, Arc::new(|| Box::new(S3Fifo::new(0))));
        let put_next = |key: u32| put(&dram, &key.to_le_bytes(), b"value");
        for key in 0..160 {
            put_next(key).unwrap();
            // Enough for the main queue.
            (0..2).for_each(|_| drop(get(&dram, &key.to_le_bytes())));
        }
        (160..320).for_each(|key| put_next(key).unwrap());
        let mut keys = Vec::new();
        dram.scan(Cursor::default(), usize::MAX, &mut |item| keys.push(item.key().to_vec()));
        keys.sort_by_key(|key| u32::from_le_bytes(key[..].try_into().unwrap()));
        keys.remove(free);
        // Pinned and not hit.
        let held: Vec<_> = keys.iter().map(|key| dram.peek(key, KeyHash::of(key)).unwrap()).collect();
        // Every other tier is closed without an insert.
        if free % 2 == 0 {
            (320..330).for_each(|key| assert_eq!(put_next(key), Ok(()), "{free} is unpinned"));
        }
        while dram.empty_step(&Discard) != EvictionStep::All {}
        assert_eq!(dram.len(), held.len(), "{free} is unpinned");
    }
}

#[test]
#[cfg_attr(miri, ignore = "needs more items than are quickly made")]
fn insert_examines_a_limited_number_of_pinned_items() {
    let (dram, _) = small_under(500, Arc::new(|| Box::new(S3Fifo::new(0))));
    let held: Vec<_> = (0..2000_u32)
        .map(|key| {
            put(&dram, &key.to_le_bytes(), b"value").unwrap();
            get(&dram, &key.to_le_bytes()).unwrap()
        })
        .collect();
    assert_eq!(put(&dram, b"one more", b"value"), Err(AllocateError::NoMemory));
    let looked_at: u64 = dram.pools.classes.iter().map(|class| class.lock().counters.eviction_failures).sum();
    assert!((1..=1024).contains(&looked_at), "{looked_at} of {}", held.len());
}

/// The policy's refresh time runs from the insert, although nothing has read the clock for a long time before it.
#[test]
fn hit_just_after_an_insert_is_not_reported_to_a_policy_with_a_refresh_time() {
    let (dram, clock) = small(1, HitRule::Refresh { refresh_seconds: 60 });
    clock.advance_by(1_000_000_000_000);
    [b"a", b"b", b"c", b"d"].iter().for_each(|key| put(&dram, *key, *key).unwrap());
    assert!(get(&dram, b"a").is_some());
    put(&dram, b"e", b"e").unwrap();
    assert!(get(&dram, b"a").is_none() && get(&dram, b"b").is_some(), "the oldest item is evicted");
}

#[test]
fn expired_item_is_a_miss_and_its_memory_is_freed() {
    let (dram, clock) = small(1, HitRule::Ignore);
    let soon = clock.unix_seconds() + 10;
    put_through(&dram, b"key", b"value", soon, &Discard).unwrap();
    clock.advance_by(9_000_000_000);
    assert!(get(&dram, b"key").is_some());
    clock.advance_by(1_000_000_000);
    assert!(dram.peek(b"key", KeyHash::of(b"key")).is_none());
    assert!(get(&dram, b"key").is_none());
    let items: u64 = dram.pools.classes.iter().map(|class| class.lock().counters.items).sum();
    assert_eq!(items, 0);
}

#[test]
fn dropped_draft_is_not_found_and_its_chunk_is_freed() {
    let (dram, _) = small(1, HitRule::Ignore);
    drop(dram.allocate(POOL, b"key", KeyHash::of(b"key"), 5, 0, &Discard).unwrap());
    assert!(get(&dram, b"key").is_none());
    for key in [b"a", b"b", b"c", b"d"] {
        put(&dram, key, key).unwrap();
    }
    assert_eq!(&*get(&dram, b"a").unwrap(), b"a", "the draft's chunk was free again");
}

#[test]
fn oversized_item_is_refused_with_its_size() {
    let (dram, _) = small(1, HitRule::Ignore);
    let refused = put(&dram, b"key", &vec![0; 32 << 10]).unwrap_err();
    assert_eq!(refused, AllocateError::TooLarge { bytes: 32 << 10, max: (32 << 10) - 280 });
    let long = vec![0; MAX_KEY_BYTES + 1];
    assert_eq!(put(&dram, &long, b""), Err(AllocateError::KeyTooLong { bytes: MAX_KEY_BYTES + 1 }));
}

/// Items that remain in DRAM when a cache closes are not recovered.
#[test]
fn class_with_referenced_items_does_not_block_emptying_the_others() {
    let (dram, _) = small(2, HitRule::Ignore);
    put(&dram, b"small", b"value").unwrap();
    put(&dram, b"large", &[7; 20_000]).unwrap();
    let held = get(&dram, b"small").unwrap();
    assert_eq!(dram.empty_step(&Discard), EvictionStep::Some);
    assert!(get(&dram, b"large").is_none());
    assert_eq!(dram.empty_step(&Discard), EvictionStep::All);
    drop(held);
    assert_eq!(dram.empty_step(&Discard), EvictionStep::Some);
    assert!(dram.is_empty());
}

/// The flash copy may be evicted between the check that the item is clean and its removal from DRAM.
#[test]
fn item_losing_its_flash_copy_during_eviction_is_not_dropped_as_clean() {
    struct Leaves<'a>(&'a Dram);
    impl Spill for Leaves<'_> {
        type Staged = ();
        fn stage(&self, victim: &Victim<'_>) -> Stage<()> {
            assert!(victim.is_clean());
            if victim.key() == b"a" {
                self.0.peek(b"a", KeyHash::of(b"a")).unwrap().mark_dirty();
            }
            Stage::Drop
        }
        fn commit(&self, (): (), _: &Victim<'_>) {}
        fn abandon(&self, (): (), _: &Victim<'_>) {}
    }
    let (dram, _) = small(1, HitRule::Ignore);
    for key in [b"a", b"b", b"c", b"d"] {
        put(&dram, key, key).unwrap();
        get(&dram, key).unwrap().mark_clean();
    }
    put_through(&dram, b"e", b"e", 0, &Leaves(&dram)).unwrap();
    assert!(get(&dram, b"a").is_some() && get(&dram, b"b").is_none());
    assert_all_memory_is_freed(&dram);
}
