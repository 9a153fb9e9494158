//! Items with children.

use policy::eviction::Sieve;

use super::*;

fn add_child<S: Spill>(dram: &Dram, key: &[u8], value: &[u8], spill: &S) -> Result<bool, AllocateError> {
    let hash = KeyHash::of(key);
    let mut draft = dram.allocate_child(POOL, hash, value.len(), spill)?;
    draft.copy_from_slice(value);
    let refused = dram.lock(hash).add_child(key, draft);
    Ok(refused.is_ok())
}

fn chain_of(dram: &Dram, key: &[u8]) -> Vec<Vec<u8>> {
    get(dram, key).unwrap().chain().map(<[u8]>::to_vec).collect()
}

#[test]
fn children_are_read_newest_first_and_removed_with_their_parent() {
    let (dram, _) = small(3, HitRule::Every);
    put(&dram, b"key", b"parent").unwrap();
    get(&dram, b"key").unwrap().mark_clean();
    for value in [b"one", b"two"] {
        assert!(add_child(&dram, b"key", value, &Discard).unwrap());
    }
    assert!(!add_child(&dram, b"none", b"orphan", &Discard).unwrap());
    let parent = get(&dram, b"key").unwrap();
    assert!(!parent.is_clean(), "the copy on flash has no children");
    let as_seen = parent.chain();
    assert!(add_child(&dram, b"key", &vec![3; 20 << 10], &Discard).unwrap());
    assert_eq!(
        as_seen.collect::<Vec<_>>(),
        [b"two", b"one"],
        "an iteration that has started does not see new children"
    );
    assert_eq!(parent.chain().count(), 3);
    assert!(remove(&dram, b"key"));
    assert_eq!(
        parent.chain().map(<[u8]>::len).collect::<Vec<_>>(),
        [20 << 10, 3, 3],
        "pinned as the parent is"
    );
    drop(parent);
    assert_all_memory_is_freed(&dram);
}

#[test]
fn evicting_a_child_evicts_the_whole_chain() {
    struct Seen(std::cell::RefCell<Vec<Vec<u8>>>);
    impl Spill for Seen {
        type Staged = ();
        fn stage(&self, victim: &Victim<'_>) -> Stage<()> {
            assert_eq!(victim.key(), b"key");
            *self.0.borrow_mut() = victim.value().iter().map(|piece| piece.to_vec()).collect();
            Stage::Ready(())
        }
        fn commit(&self, (): (), _: &Victim<'_>) {}
        fn abandon(&self, (): (), _: &Victim<'_>) {}
    }
    // The parent is large, the children are small; each kind has one slab. Small items evict the oldest child.
    let (dram, _) = small(2, HitRule::Ignore);
    put(&dram, b"key", &vec![7; 20 << 10]).unwrap();
    for value in [b"one", b"two"] {
        assert!(add_child(&dram, b"key", value, &Discard).unwrap());
    }
    put(&dram, b"a", b"a").unwrap();
    put(&dram, b"b", b"b").unwrap();
    let pinned = get(&dram, b"key").unwrap();
    put(&dram, b"c", b"c").unwrap();
    assert!(get(&dram, b"a").is_none(), "children of a pinned item are not evicted");
    drop(pinned);
    let seen = Seen(Default::default());
    put_through(&dram, b"d", b"d", 0, &Discard).unwrap();
    // FIFO: b was evicted. The reinserted children are next.
    put_through(&dram, b"e", b"e", 0, &seen).unwrap();
    assert!(get(&dram, b"key").is_none());
    assert_eq!(*seen.0.borrow(), [vec![7; 20 << 10], b"two".to_vec(), b"one".to_vec()]);
    assert_eq!(dram.pool_stats(POOL).classes[1].items, 0);
    assert_all_memory_is_freed(&dram);
}

#[test]
fn hit_of_a_parent_protects_its_children() {
    let (dram, _) = small_under(2, Arc::new(|| Box::new(Sieve::new())));
    put(&dram, b"key", &vec![7; 20 << 10]).unwrap();
    assert!(add_child(&dram, b"key", b"child", &Discard).unwrap());
    for key in [b"a", b"b", b"c"] {
        put(&dram, key, key).unwrap();
    }
    drop(get(&dram, b"key"));
    put(&dram, b"d", b"d").unwrap();
    assert!(dram.peek(b"a", KeyHash::of(b"a")).is_none(), "the child is older");
    assert_eq!(chain_of(&dram, b"key"), [b"child"]);
    assert_all_memory_is_freed(&dram);
}

#[test]
fn child_added_while_its_parent_is_staged_aborts_the_eviction() {
    struct Adds<'a>(&'a Dram, std::cell::Cell<u32>);
    impl Spill for Adds<'_> {
        type Staged = ();
        fn stage(&self, victim: &Victim<'_>) -> Stage<()> {
            if victim.key() == b"a" {
                assert!(add_child(self.0, b"a", &vec![1; 20 << 10], &Discard).unwrap());
            }
            Stage::Ready(())
        }
        fn commit(&self, (): (), victim: &Victim<'_>) {
            assert_eq!(victim.key(), b"b", "the staged copy of `a` was incomplete");
        }
        fn abandon(&self, (): (), _: &Victim<'_>) {
            self.1.set(self.1.get() + 1);
        }
    }
    let (dram, _) = small(2, HitRule::Ignore);
    put(&dram, b"large", &vec![0; 20 << 10]).unwrap();
    for key in [b"a", b"b", b"c", b"d"] {
        put(&dram, key, key).unwrap();
    }
    let spill = Adds(&dram, Default::default());
    put_through(&dram, b"e", b"e", 0, &spill).unwrap();
    assert_eq!(spill.1.get(), 1);
    assert_eq!(chain_of(&dram, b"a").len(), 1);
    assert_all_memory_is_freed(&dram);
}

#[test]
fn parents_and_children_are_moved_from_a_released_slab() {
    let (dram, _) = small(4, HitRule::Ignore);
    for number in 0..4_u8 {
        put(&dram, &[number], &[number]).unwrap();
    }
    // The second slab has children of the items in the first.
    for number in [0, 1, 0, 0_u8] {
        assert!(add_child(&dram, &[number], &[number, 9], &Discard).unwrap());
    }
    for number in 4..12_u8 {
        put(&dram, &[number], &[number]).unwrap();
    }
    (4..12).for_each(|number| assert!(remove(&dram, &[number])));
    let how = Rebalance {
        strategy: Strategy::FreeMemory { min_free_slabs: 1 },
        min_slabs: 0,
        move_on_release: true,
    };
    for _ in 0..2 {
        let released = rebalance(&dram, &how).unwrap();
        assert_eq!((released.completed, released.items.moves, released.items.evictions), (true, 4, 0));
        assert_accounted(&dram);
        for number in 0..4_u8 {
            assert_eq!(*get(&dram, &[number]).unwrap(), [number]);
        }
        assert_eq!(chain_of(&dram, &[0]), [[0, 9]; 3]);
        assert_eq!(chain_of(&dram, &[1]), [[1, 9]]);
    }
    assert_all_memory_is_freed(&dram);
}
