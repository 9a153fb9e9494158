//! The object cache (`test_config.name` `object_cache`): objects live on the heap, and the cache holds an item for each, whose value
//! names the object. When an item is evicted, replaced, removed or expires, the item destructor frees its object. So the eviction policy of
//! the cache decides which objects stay. The number of objects is limited, not their size.
//!
//! All items are of one size, that of the longest key. The memory for them has a little more room than for the limit; the rest is
//! taken by placeholders, items that are held.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cache::dram::HEADER_BYTES;
use cache::{Cache, Destroyed, InsertOptions, Inserted, ItemDestructor, OwnedItem};
use parking_lot::Mutex;

use super::stressors::StressorReport;
use crate::config::plan::{CachePlan, ObjectsPlan};

/// An item's value: shard, place and generation of its object.
pub(super) const ID_BYTES: usize = 12;
const SHARDS: usize = 64;
/// The smallest slab there is: the more of them, the nearer their items come to the limit.
pub const SLAB_BYTES: u32 = 64 << 10;
/// The value of a placeholder.
const NO_OBJECT: [u8; ID_BYTES] = [0xff; ID_BYTES];

/// The objects of one cache.
pub struct Objects {
    plan: ObjectsPlan,
    shards: Box<[Mutex<Shard>]>,
    next_shard: AtomicU64,
    live: AtomicU64,
    most_live: AtomicU64,
    live_bytes: AtomicU64,
    /// Destructor calls for an object that was not there.
    destroyed_twice: AtomicU64,
}

#[derive(Default)]
struct Shard {
    places: Vec<Place>,
    free: Vec<u32>,
}

/// Where an object is, or was.
struct Place {
    /// How many objects were there before.
    generation: u32,
    object: Option<Arc<[u8]>>,
}

/// Which object an item stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ObjectId {
    shard: u32,
    place: u32,
    generation: u32,
}

/// Bytes of an item with the longest key.
#[must_use]
pub fn item_bytes(plan: &ObjectsPlan) -> u32 {
    let bytes = HEADER_BYTES + plan.max_key_bytes as usize + ID_BYTES;
    u32::try_from(bytes.next_multiple_of(8)).unwrap_or(u32::MAX)
}

/// Bytes of DRAM for the items of all objects.
#[must_use]
pub fn dram_bytes(plan: &ObjectsPlan) -> u64 {
    let per_slab = u64::from(SLAB_BYTES / item_bytes(plan)).max(1);
    plan.most_objects.div_ceil(per_slab).max(2) * u64::from(SLAB_BYTES)
}

impl Objects {
    /// No objects yet.
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

    /// The destructor of the cache's items.
    #[must_use]
    pub fn destructor(self: &Arc<Self>) -> ItemDestructor {
        let objects = Arc::clone(self);
        Arc::new(move |item: &Destroyed<'_>| {
            if item.value != NO_OBJECT {
                objects.remove(ObjectId::decode(item.value));
            }
        })
    }

    /// Whether a key is short enough for the items.
    pub(super) fn takes(&self, key: &[u8]) -> bool {
        key.len() as u64 <= self.plan.max_key_bytes
    }

    /// Makes an object; the value of its item.
    pub(super) fn add(&self, object: Arc<[u8]>) -> [u8; ID_BYTES] {
        let shard = self.next_shard.fetch_add(1, Ordering::Relaxed) as usize % SHARDS;
        self.live_bytes.fetch_add(object.len() as u64, Ordering::Relaxed);
        let live = self.live.fetch_add(1, Ordering::Relaxed) + 1;
        let mut places = self.shards[shard].lock();
        let place = places.free.pop().unwrap_or(places.places.len() as u32);
        if place as usize == places.places.len() {
            places.places.push(Place { generation: 0, object: None });
        }
        let slot = &mut places.places[place as usize];
        slot.object = Some(object);
        let id = ObjectId { shard: shard as u32, place, generation: slot.generation };
        drop(places);
        // One object more than items may be on its way in or out for each thread.
        self.most_live.fetch_max(live, Ordering::Relaxed);
        id.encode()
    }

    /// The object of an item's value; `None` if it was freed meanwhile.
    pub(super) fn get(&self, value: &[u8]) -> Option<Arc<[u8]>> {
        let id = ObjectId::decode(value);
        let shard = self.shards.get(id.shard as usize)?.lock();
        let place = shard.places.get(id.place as usize).filter(|place| place.generation == id.generation)?;
        place.object.clone()
    }

    /// Frees an object whose item was never inserted.
    pub(super) fn forget(&self, value: &[u8]) {
        self.remove(ObjectId::decode(value));
    }

    fn remove(&self, id: ObjectId) {
        let removed = self.shards.get(id.shard as usize).and_then(|shard| {
            let mut shard = shard.lock();
            let place =
                shard.places.get_mut(id.place as usize).filter(|it| it.generation == id.generation)?;
            let object = place.object.take()?;
            place.generation = place.generation.wrapping_add(1);
            shard.free.push(id.place);
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

    /// The figures, and a failure if the number of objects differs from `items` or exceeds the limit.
    pub(super) fn report(&self, items: u64) -> StressorReport {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut figures = vec![("objects", "Objects", read(&self.live))];
        if self.plan.tracks_bytes {
            figures.push(("object_bytes", "Bytes of objects", read(&self.live_bytes)));
        }
        let mut failures = Vec::new();
        let (live, twice) = (read(&self.live), read(&self.destroyed_twice));
        if twice > 0 {
            failures.push(format!("{twice} objects were freed twice"));
        }
        if live != items {
            failures.push(format!("{live} objects are alive, and the cache holds {items} items"));
        }
        if live > self.plan.most_objects {
            failures.push(format!("{live} objects are alive, and {} may be", self.plan.most_objects));
        }
        StressorReport { name: "object_cache", figures, failed: failures.len() as u64, failures }
    }
}

impl ObjectId {
    fn encode(self) -> [u8; ID_BYTES] {
        let mut bytes = [0; ID_BYTES];
        for (part, number) in bytes.chunks_exact_mut(4).zip([self.shard, self.place, self.generation]) {
            part.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Self {
        let number = |at: usize| {
            let part = bytes.get(at..at + 4).and_then(|part| part.try_into().ok());
            part.map_or(u32::MAX, u32::from_le_bytes)
        };
        Self { shard: number(0), place: number(4), generation: number(8) }
    }
}

/// Takes the room that `cache` has beyond the limit.
///
/// # Errors
/// In words, why that is not possible.
pub fn placeholders(
    cache: &Cache,
    plan: &ObjectsPlan,
    cache_plan: &CachePlan,
) -> Result<Vec<OwnedItem>, String> {
    let per_slab = u64::from(SLAB_BYTES / item_bytes(plan)).max(1);
    let room = cache_plan.dram_bytes / u64::from(SLAB_BYTES) * per_slab;
    let hold = |number: u64| {
        let key = [b"placeholder ", &number.to_le_bytes()[..]].concat();
        match cache.insert_blocking(&key, &NO_OBJECT, InsertOptions::default()) {
            Inserted::Stored => cache.get_owned_blocking(&key).ok_or("a placeholder was evicted".to_owned()),
            Inserted::Rejected(refusal) => Err(format!("a placeholder was refused: {refusal}")),
        }
    };
    (0..room.saturating_sub(plan.most_objects)).map(hold).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects() -> Arc<Objects> {
        Objects::new(ObjectsPlan { most_objects: 10, max_key_bytes: 16, tracks_bytes: true })
    }

    #[test]
    fn freed_object_is_not_found_under_its_old_id() {
        let objects = objects();
        let first = objects.add([1; 8].into());
        objects.forget(&first);
        assert_eq!(objects.get(&first), None);
        (0..SHARDS).for_each(|_| _ = objects.add([2; 8].into()));
        assert_eq!(objects.get(&first), None, "another object has its place");
    }

    #[test]
    fn object_freed_twice_or_lost_by_the_cache_fails() {
        let objects = objects();
        let id = objects.add([1; 8].into());
        assert_eq!(objects.report(1).failures, Vec::<String>::new());
        assert_eq!(objects.report(0).failures, ["1 objects are alive, and the cache holds 0 items"]);
        objects.forget(&id);
        objects.forget(&id);
        assert_eq!(objects.report(0).failures, ["1 objects were freed twice"]);
    }
}
