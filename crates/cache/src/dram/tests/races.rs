//! Concurrent eviction, replacement, reading, removal and slab release, in schedules that shuttle generates: threads can switch between
//! any two operations on an item's state.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p flashwright-cache --lib races`

use std::collections::HashSet;
use std::sync::Arc;

use super::*;
use crate::sync;

const SCHEDULES: usize = 3000;

/// A spill that records the evicted keys.
#[derive(Default)]
struct Below {
    keys: std::sync::Mutex<HashSet<Vec<u8>>>,
}

impl Spill for Below {
    type Staged = Vec<u8>;

    fn stage(&self, victim: &Victim<'_>) -> Stage<Vec<u8>> {
        sync::step();
        assert_eq!(victim.key()[0], victim.value()[0][0], "a value of another key");
        Stage::Ready(victim.key().to_vec())
    }

    fn commit(&self, staged: Vec<u8>, victim: &Victim<'_>) {
        assert_eq!(staged, victim.key());
        self.keys.lock().unwrap().insert(staged);
    }

    fn abandon(&self, _: Vec<u8>, _: &Victim<'_>) {}
}

fn explore(test: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(test, SCHEDULES);
}

fn run(threads: Vec<Box<dyn FnOnce(&Dram, &Below) + Send>>, prepare: impl Fn(&Dram, &Below)) {
    let (dram, _) = small(2, HitRule::Every);
    let (dram, below) = (Arc::new(dram), Arc::new(Below::default()));
    prepare(&dram, &below);
    let threads: Vec<_> = threads
        .into_iter()
        .map(|thread| {
            let (dram, below) = (Arc::clone(&dram), Arc::clone(&below));
            shuttle::thread::spawn(move || thread(&dram, &below))
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_all_memory_is_freed(&dram);
}

/// Fills two slabs: four small items (a to d) and two large ones (x and y).
fn full(dram: &Dram, below: &Below) {
    for key in [b"a", b"b", b"c", b"d"] {
        put_through(dram, key, key, 0, below).unwrap();
    }
    for key in [b"x", b"y"] {
        put_through(dram, key, &vec![key[0]; 20 << 10], 0, below).unwrap();
    }
}

fn read(dram: &Dram, key: &[u8]) -> bool {
    let Some(found) = get(dram, key) else { return false };
    sync::step();
    assert_eq!(found[0], key[0], "a value of another key");
    found.chain().for_each(|child| assert_eq!(child[0], key[0], "a child of another key"));
    true
}

/// Adds a child whose value is its parent's key.
fn add_child(dram: &Dram, parent: &[u8; 1], below: &Below) {
    let hash = KeyHash::of(parent);
    let mut draft = dram.allocate_child(POOL, hash, 1, below).unwrap();
    draft.copy_from_slice(parent);
    assert!(dram.lock(hash).add_child(parent, draft).is_ok());
}

fn release_slab(dram: &Dram, strategy: Strategy, below: &Below) {
    dram.rebalance_step(POOL, &Rebalance { strategy, min_slabs: 0, move_on_release: true }, below);
}

#[test]
fn eviction_against_readers_replacement_and_removal() {
    explore(|| {
        run(
            vec![
                Box::new(|dram, below| {
                    let _ = put_through(dram, b"e", b"e", 0, below);
                    let _ = put_through(dram, b"f", b"f", 0, below);
                }),
                Box::new(|dram, below| {
                    let _ = put_through(dram, b"a", b"a again", 0, below);
                    remove(dram, b"b");
                }),
                Box::new(|dram, _| {
                    read(dram, b"a");
                    read(dram, b"b");
                }),
            ],
            full,
        );
    });
}

/// As above, for a tier without a spill, whose evictions have no stage.
#[test]
fn discarding_eviction_against_readers_replacement_and_removal() {
    explore(|| {
        run(
            vec![
                Box::new(|dram, _| {
                    for key in [b"e", b"f", b"g"] {
                        let _ = put_through(dram, key, key, 0, &Discard);
                    }
                }),
                Box::new(|dram, _| {
                    let _ = put_through(dram, b"a", b"a again", 0, &Discard);
                    remove(dram, b"b");
                }),
                Box::new(|dram, _| {
                    read(dram, b"a");
                    read(dram, b"b");
                    read(dram, b"c");
                }),
            ],
            full,
        );
    });
}

#[test]
fn key_being_evicted_is_always_in_one_of_the_tiers() {
    explore(|| {
        run(
            vec![
                Box::new(|dram, below| {
                    let _ = put_through(dram, b"e", b"e", 0, below);
                }),
                Box::new(|dram, below| {
                    let _ = put_through(dram, b"f", b"f", 0, below);
                }),
                Box::new(|dram, below| {
                    for key in [b"a", b"b"] {
                        let somewhere = read(dram, key) || below.keys.lock().unwrap().contains(&key[..]);
                        assert!(somewhere, "{key:?} is in neither tier");
                    }
                }),
            ],
            full,
        );
    });
}

#[test]
fn concurrent_allocations_get_different_chunks() {
    explore(|| {
        let fill = |byte: u8| {
            move |dram: &Dram, below: &Below| {
                let key = [byte];
                let Ok(mut draft) = dram.allocate(POOL, &key, KeyHash::of(&key), 100, 0, below) else {
                    return;
                };
                draft.fill(byte);
                sync::step();
                assert!(draft.iter().all(|&other| other == byte), "another thread has the same chunk");
                drop(dram.lock(KeyHash::of(&key)).link(draft));
                read(dram, &key);
            }
        };
        run(vec![Box::new(fill(1)), Box::new(fill(2)), Box::new(fill(3))], full);
    });
}

#[test]
fn slab_release_against_allocation_readers_and_removal() {
    explore(|| {
        run(
            vec![
                Box::new(|dram, below| release_slab(dram, Strategy::Random { drawn: 0 }, below)),
                Box::new(|dram, below| {
                    let _ = put_through(dram, b"e", b"e", 0, below);
                }),
                Box::new(|dram, _| {
                    read(dram, b"a");
                    remove(dram, b"b");
                }),
            ],
            full,
        );
    });
}

#[test]
fn chain_removed_while_a_slab_release_moves_its_parent_is_freed() {
    explore(|| {
        run(
            vec![
                Box::new(|dram, below| {
                    release_slab(dram, Strategy::FreeMemory { min_free_slabs: 1 }, below);
                }),
                Box::new(|dram, _| {
                    remove(dram, b"a");
                }),
            ],
            // The parent is in one slab and its child in the other, which has free chunks for both.
            |dram, below| {
                for key in [b"a", b"b", b"c", b"d", b"e"] {
                    put_through(dram, key, key, 0, below).unwrap();
                }
                add_child(dram, b"a", below);
                for key in [b"b", b"c", b"d"] {
                    remove(dram, key);
                }
            },
        );
    });
}

#[test]
fn parent_skipped_during_the_eviction_of_its_chain_returns_to_its_policy() {
    explore(|| {
        run(
            vec![
                Box::new(|dram, below| {
                    let _ = put_through(dram, b"e", b"e", 0, below);
                }),
                Box::new(|dram, below| {
                    let _ = put_through(dram, b"z", &vec![b'z'; 20 << 10], 0, below);
                }),
                Box::new(|dram, _| {
                    read(dram, b"x");
                }),
            ],
            // The small class would evict the child next, the large one its parent.
            |dram, below| {
                full(dram, below);
                add_child(dram, b"x", below);
                for key in [b"b", b"c", b"d"] {
                    read(dram, key);
                }
            },
        );
    });
}

#[test]
fn chain_is_consistent_when_it_grows_during_eviction_and_reads() {
    explore(|| {
        run(
            vec![
                Box::new(|dram, below| {
                    let hash = KeyHash::of(b"x");
                    if let Ok(mut draft) = dram.allocate_child(POOL, hash, 3, below) {
                        draft.copy_from_slice(b"xyz");
                        let refused = dram.lock(hash).add_child(b"x", draft);
                        drop(refused);
                    }
                }),
                Box::new(|dram, below| {
                    let _ = put_through(dram, b"z", &vec![b'z'; 20 << 10], 0, below);
                    let _ = put_through(dram, b"e", b"e", 0, below);
                }),
                Box::new(|dram, _| {
                    read(dram, b"x");
                }),
            ],
            |dram, below| {
                full(dram, below);
                add_child(dram, b"x", below);
            },
        );
    });
}
