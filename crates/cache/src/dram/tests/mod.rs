//! Tests of the whole tier, and the small policies they run on.
#![allow(unexpected_cfgs, reason = "`shuttle` is set by hand, for the schedule-exploring tests only")]

#[cfg(not(shuttle))]
mod basics;
#[cfg(not(shuttle))]
mod chains;
#[cfg(not(shuttle))]
mod model;
#[cfg(shuttle)]
mod races;
#[cfg(not(shuttle))]
mod slabs;
#[cfg(not(shuttle))]
mod threads;

use std::collections::VecDeque;
use std::sync::Arc;

use device::VirtualClock;
use policy::{Entry, Eviction, HitRule, Slot};

use super::*;

/// The simplest FIFO or LRU policy.
struct Queue {
    slots: VecDeque<Slot>,
    rule: HitRule,
}

impl Eviction for Queue {
    fn insert(&mut self, slot: Slot, _: Entry, _: u32) {
        assert!(!self.slots.contains(&slot) || self.slots.len() > 64, "{slot:?} was inserted twice");
        self.slots.push_back(slot);
    }

    fn hit(&mut self, slot: Slot, _: u32) {
        self.remove(slot);
        self.slots.push_back(slot);
    }

    fn evict(&mut self, _: u32) -> Option<Slot> {
        self.slots.pop_front()
    }

    fn remove(&mut self, slot: Slot) {
        let at = self.slots.iter().position(|&held| held == slot).expect("only what is held is removed");
        self.slots.remove(at);
    }

    fn len(&self) -> usize {
        self.slots.len()
    }

    fn oldest(&self) -> Option<Slot> {
        self.slots.front().copied()
    }

    fn hit_rule(&self) -> HitRule {
        self.rule.clone()
    }
}

fn queue(rule: HitRule) -> PolicyFactory {
    Arc::new(move || Box::new(Queue { slots: VecDeque::new(), rule: rule.clone() }))
}

/// A rebalancing step in a tier that is too small for more than one move.
fn rebalance(dram: &Dram, how: &Rebalance) -> Option<Released> {
    let mut moves = dram.rebalance_step(POOL, how, &Discard);
    assert!(moves.len() <= 1, "{moves:?}");
    moves.pop()
}

/// A tier of `slabs` slabs of 64 KiB, in chunks of 16 KiB and 32 KiB: four and two to a slab.
fn small(slabs: u64, rule: HitRule) -> (Dram, Arc<VirtualClock>) {
    small_under(slabs, queue(rule))
}

fn small_under(slabs: u64, policy: PolicyFactory) -> (Dram, Arc<VirtualClock>) {
    let mut config = DramConfig::new(slabs << 16, policy);
    config.slab_bytes = Some(1 << 16);
    config.alloc_sizes = vec![16 << 10, 32 << 10];
    let clock = Arc::new(VirtualClock::default());
    (Dram::new(&config, clock.clone()).unwrap(), clock)
}

/// Checks that every chunk of every slab is exactly one of: an item, on the free list, never allocated.
fn assert_accounted(dram: &Dram) {
    for class in &dram.pools.classes {
        let inner = class.lock();
        let mut free = 0;
        let mut next = inner.free_head;
        while let Some(reference) = next {
            let header = dram.pools.arena.item(reference).header();
            assert!(header.state().has(item::State::FREE));
            assert_eq!(header.state().references(), 0);
            free += 1;
            next = Some(header.next_free()).filter(|&next| next != item::ItemRef::NONE);
        }
        let untouched: u32 = inner.carving.iter().map(|&(_, next)| class.chunks_per_slab - next).sum();
        let chunks = u64::from(inner.counters.slabs) * u64::from(class.chunks_per_slab);
        assert_eq!(inner.counters.items + free + u64::from(untouched), chunks, "{} bytes", class.chunk_bytes);
    }
}

/// Removes all items and checks that all memory is freed.
fn assert_all_memory_is_freed(dram: &Dram) {
    let mut keys = Vec::new();
    let in_policy = |item: Item<'_>| item.header().state().has(State::IN_POLICY);
    let mut visit = |handle: &Handle<'_>| {
        assert!(in_policy(handle.item), "an item missing from its policy is never evicted");
        assert!(
            children::children(&dram.pools.arena, dram.chains.head(handle.item)).all(in_policy),
            "a lost child"
        );
        keys.push(handle.key().to_vec());
    };
    assert!(dram.scan(Cursor::default(), usize::MAX, &mut visit).is_none());
    for key in keys {
        assert!(remove(dram, &key));
    }
    assert!(dram.is_empty());
    assert_accounted(dram);
    for pool in dram.stats() {
        assert_eq!(pool.total().items, 0);
        assert_eq!(pool.total().requested_bytes, 0);
    }
}

const POOL: PoolId = PoolId(0);

/// Allocates, fills and links an item.
#[cfg(not(shuttle))]
fn put(dram: &Dram, key: &[u8], value: &[u8]) -> Result<(), AllocateError> {
    put_through(dram, key, value, 0, &Discard)
}

fn put_through<S: Spill>(
    dram: &Dram,
    key: &[u8],
    value: &[u8],
    expiry_seconds: u32,
    spill: &S,
) -> Result<(), AllocateError> {
    let hash = KeyHash::of(key);
    let mut draft = dram.allocate(POOL, key, hash, value.len(), expiry_seconds, spill)?;
    draft.copy_from_slice(value);
    let replaced = dram.lock(hash).link(draft);
    drop(replaced);
    Ok(())
}

fn get<'a>(dram: &'a Dram, key: &[u8]) -> Option<Handle<'a>> {
    dram.get(key, KeyHash::of(key))
}

fn remove(dram: &Dram, key: &[u8]) -> bool {
    let removed = dram.lock(KeyHash::of(key)).unlink(key);
    removed.is_some()
}
