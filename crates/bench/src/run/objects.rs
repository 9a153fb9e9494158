//! The object cache (`test_config.name` `object_cache`): objects are on the heap, and the cache holds an item for each, whose value
//! identifies the object. When an item is evicted, replaced, removed or expires, the item destructor frees its object. So the eviction
//! policy of the cache decides which objects stay.
//!
//! All items have the size of the one with the longest key. [`super::object_limits`] limits the number of objects and their total size.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cache::config::{Destroyed, ItemDestructor};
use cache::internals::dram::HEADER_BYTES;
use parking_lot::Mutex;

use super::stressors::StressorReport;
use crate::config::plan::ObjectsPlan;

/// An item's value: shard, slot and generation of its object.
pub(super) const ID_BYTES: usize = 12;
const SHARDS: usize = 64;
/// The smallest possible slab, so that few placeholders are needed.
pub const SLAB_BYTES: u32 = 64 << 10;
/// The value of a placeholder.
pub(super) const NO_OBJECT: [u8; ID_BYTES] = [0xff; ID_BYTES];

/// The objects of one cache.
pub struct Objects {
    plan: ObjectsPlan,
    shards: Box<[Mutex<Shard>]>,
    next_shard: AtomicU64,
    live: AtomicU64,
    most_live: AtomicU64,
    live_bytes: AtomicU64,
    /// Destructor calls for an object that had already been freed.
    destroyed_twice: AtomicU64,
}

#[derive(Default)]
struct Shard {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

/// A place for one object.
struct Slot {
    /// Number of earlier objects in this slot.
    generation: u32,
    object: Option<Arc<[u8]>>,
}

/// Identifies the object of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ObjectId {
    shard: u32,
    slot: u32,
    generation: u32,
}

/// Size of an item with the longest key.
#[must_use]
pub fn item_bytes(plan: &ObjectsPlan) -> u32 {
    let bytes = HEADER_BYTES + plan.max_key_bytes as usize + ID_BYTES;
    u32::try_from(bytes.next_multiple_of(8)).unwrap_or(u32::MAX)
}

/// Size of the DRAM that holds the items of all objects.
#[must_use]
pub fn dram_bytes(plan: &ObjectsPlan) -> u64 {
    let per_slab = u64::from(SLAB_BYTES / item_bytes(plan)).max(1);
    plan.max_objects.div_ceil(per_slab).max(2) * u64::from(SLAB_BYTES)
}

impl Objects {
    /// Creates an empty store.
    #[must_use]
    pub fn new(plan: ObjectsPlan) -> Arc<Self> {
        Arc::new(Self {
            plan,
            shards: std::iter::repeat_with(Mutex::default).take(SHARDS).collect(),
            next_shard: AtomicU64::new(0),
            live: AtomicU64::new(0),
            most_live: AtomicU64::new(0),
            live_bytes: AtomicU64::new(0),
            destroyed_twice: AtomicU64::new(0),
        })
    }

    /// The item destructor of the cache.
    #[must_use]
    pub fn destructor(self: &Arc<Self>) -> ItemDestructor {
        let objects = Arc::clone(self);
        Arc::new(move |item: &Destroyed<'_>| {
            if item.value != NO_OBJECT {
                objects.remove(ObjectId::decode(item.value));
            }
        })
    }

    /// Whether the items have space for `key`.
    pub(super) fn accepts_key(&self, key: &[u8]) -> bool {
        key.len() as u64 <= self.plan.max_key_bytes
    }

    /// Stores an object; returns the value for its item.
    pub(super) fn add(&self, object: Arc<[u8]>) -> [u8; ID_BYTES] {
        let shard = self.next_shard.fetch_add(1, Ordering::Relaxed) as usize % SHARDS;
        self.live_bytes.fetch_add(object.len() as u64, Ordering::Relaxed);
        let live = self.live.fetch_add(1, Ordering::Relaxed) + 1;
        let mut shard_state = self.shards[shard].lock();
        let slot = shard_state.free.pop().unwrap_or(shard_state.slots.len() as u32);
        if slot as usize == shard_state.slots.len() {
            shard_state.slots.push(Slot { generation: 0, object: None });
        }
        let entry = &mut shard_state.slots[slot as usize];
        entry.object = Some(object);
        let id = ObjectId { shard: shard as u32, slot, generation: entry.generation };
        drop(shard_state);
        // Each thread can have one object whose item is being inserted or removed.
        self.most_live.fetch_max(live, Ordering::Relaxed);
        id.encode()
    }

    /// The object of an item's value; `None` if it has been freed.
    pub(super) fn get(&self, value: &[u8]) -> Option<Arc<[u8]>> {
        let id = ObjectId::decode(value);
        let shard = self.shards.get(id.shard as usize)?.lock();
        let slot = shard.slots.get(id.slot as usize).filter(|slot| slot.generation == id.generation)?;
        slot.object.clone()
    }

    /// Frees an object whose item was never inserted.
    pub(super) fn free(&self, value: &[u8]) {
        self.remove(ObjectId::decode(value));
    }

    fn remove(&self, id: ObjectId) {
        let removed = self.shards.get(id.shard as usize).and_then(|shard| {
            let mut shard = shard.lock();
            let slot = shard.slots.get_mut(id.slot as usize).filter(|it| it.generation == id.generation)?;
            let object = slot.object.take()?;
            slot.generation = slot.generation.wrapping_add(1);
            shard.free.push(id.slot);
            Some(object)
        });
        match removed {
            Some(object) => {
                self.live.fetch_sub(1, Ordering::Relaxed);
                self.live_bytes.fetch_sub(object.len() as u64, Ordering::Relaxed);
            }
            None => _ = self.destroyed_twice.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Number of objects, and their total size in bytes.
    pub(super) fn live(&self) -> (u64, u64) {
        (self.live.load(Ordering::Relaxed), self.live_bytes.load(Ordering::Relaxed))
    }

    /// The figures, and a failure if the number of objects differs from `items` or exceeds the limit.
    pub(super) fn report(&self, items: u64, limit: u64) -> StressorReport {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut figures = vec![("objects", "Objects", read(&self.live))];
        if self.plan.tracks_bytes || self.plan.size_limit.is_some() {
            figures.push(("object_bytes", "Bytes of objects", read(&self.live_bytes)));
        }
        if self.plan.size_limit.is_some() {
            figures.push(("object_limit", "Limit of objects by size", limit));
        }
        let mut failures = Vec::new();
        let (live, twice) = (read(&self.live), read(&self.destroyed_twice));
        if twice > 0 {
            failures.push(format!("{twice} objects were freed twice"));
        }
        if live != items {
            failures.push(format!("{live} objects are alive, and the cache holds {items} items"));
        }
        if live > self.plan.max_objects {
            failures.push(format!("{live} objects are alive, and the limit is {}", self.plan.max_objects));
        }
        StressorReport { name: "object_cache", figures, failed: failures.len() as u64, failures }
    }
}

impl ObjectId {
    fn encode(self) -> [u8; ID_BYTES] {
        let mut bytes = [0; ID_BYTES];
        for (part, number) in bytes.chunks_exact_mut(4).zip([self.shard, self.slot, self.generation]) {
            part.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Self {
        let number = |at: usize| {
            let part = bytes.get(at..at + 4).and_then(|part| part.try_into().ok());
            part.map_or(u32::MAX, u32::from_le_bytes)
        };
        Self { shard: number(0), slot: number(4), generation: number(8) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects() -> Arc<Objects> {
        Objects::new(ObjectsPlan { max_objects: 10, max_key_bytes: 16, tracks_bytes: true, size_limit: None })
    }

    #[test]
    fn freed_object_is_not_found_under_its_old_id() {
        let objects = objects();
        let first = objects.add([1; 8].into());
        objects.free(&first);
        assert_eq!(objects.get(&first), None);
        (0..SHARDS).for_each(|_| _ = objects.add([2; 8].into()));
        assert_eq!(objects.get(&first), None, "another object has its slot");
    }

    #[test]
    fn object_freed_twice_or_lost_by_the_cache_is_a_failure() {
        let objects = objects();
        let id = objects.add([1; 8].into());
        assert_eq!(objects.report(1, 10).failures, Vec::<String>::new());
        assert_eq!(objects.report(0, 10).failures, ["1 objects are alive, and the cache holds 0 items"]);
        objects.free(&id);
        objects.free(&id);
        assert_eq!(objects.report(0, 10).failures, ["1 objects were freed twice"]);
    }
}
