//! Maps keys to items, by one [`Table`](table::Table) per shard, under its lock.
//!
//! An entry is the item's [`ItemRef`](super::item::ItemRef). Key and lengths are in the item itself, which the reader accesses next anyway.
//! The number of shards limits the time for which a growing table holds its lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use policy::prefetch::{prefetch, prefetch_to_write};

use super::slab::{Arena, Item, SlabUse};
use super::table;
use crate::KeyHash;
use crate::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

const MIN_SHARD_BITS: u32 = 6;
const MAX_SHARD_BITS: u32 = 10;
/// Item memory per shard, for which growing the table takes less than a millisecond.
const ARENA_BYTES_PER_SHARD: u64 = 1 << 20;

/// Upper limit of the index size per item.
pub const INDEX_MOST_BYTES_PER_ITEM: f64 = table::MOST_BYTES_PER_ENTRY;
/// Size of the shards without items, and of one or two unused lines per shard.
pub const INDEX_LEAST_BYTES: u64 =
    (size_of::<Shard>() as u64 + size_of::<Place>() as u64 + 128) << MAX_SHARD_BITS;

/// All shards.
pub(super) struct Index {
    shards: Box<[Shard]>,
    /// The location of each shard's table, for prefetches. Separate from the shards, whose locks change constantly: these cache lines stay
    /// shared by all cores.
    places: Arc<[Place]>,
    /// A hash shifted right by this is the number of its shard.
    shift: u32,
}

#[repr(align(64))]
struct Shard(RwLock<Table>);

/// The table of one shard, accessed under its lock.
pub(super) struct Table {
    entries: table::Table,
    shard: usize,
    places: Arc<[Place]>,
}

/// The address of a table, for prefetching. It is read without a lock, so it may be inconsistent: half old and half new.
#[derive(Debug, Default)]
struct Place {
    first: AtomicPtr<()>,
    lines: AtomicUsize,
}

impl Index {
    pub(super) fn new(arena_bytes: u64) -> Self {
        let bits = (arena_bytes / ARENA_BYTES_PER_SHARD).max(1).ilog2().clamp(MIN_SHARD_BITS, MAX_SHARD_BITS);
        let places: Arc<[Place]> = std::iter::repeat_with(Place::default).take(1 << bits).collect();
        let shard = |shard| {
            let (entries, places) = (table::Table::default(), Arc::clone(&places));
            Shard(RwLock::new(Table { entries, shard, places }))
        };
        Self { shards: (0..1 << bits).map(shard).collect(), places, shift: u64::BITS - bits }
    }

    /// Prefetches the lines that a lookup of `hash` accesses first.
    #[inline]
    pub(super) fn prefetch_line(&self, hash: KeyHash) {
        let shard = (hash.0 >> self.shift) as usize;
        prefetch_to_write(std::ptr::from_ref(&self.shards[shard]).cast());
        prefetch(self.places[shard].line_range().home(hash.0));
    }

    /// As [`prefetch_line`](Self::prefetch_line), without the lock of the shard.
    #[inline]
    pub(super) fn prefetch_entries(&self, hash: KeyHash) {
        prefetch(self.places[(hash.0 >> self.shift) as usize].line_range().home(hash.0));
    }

    /// Prefetches the item that a lookup of `hash` would examine first.
    #[inline]
    pub(super) fn prefetch_item(&self, arena: &Arena, hash: KeyHash) {
        // The lock is held to the end, because a slab's chunk size is stable only while the item is linked.
        let table = self.read(hash);
        if let Some(reference) = table.entries.likely(hash.0) {
            arena.item(reference).prefetch();
        }
    }

    pub(super) fn shard_count(&self) -> usize {
        self.shards.len()
    }

    #[inline]
    pub(super) fn read(&self, hash: KeyHash) -> RwLockReadGuard<'_, Table> {
        self.shards[(hash.0 >> self.shift) as usize].0.read()
    }

    #[inline]
    pub(super) fn write(&self, hash: KeyHash) -> RwLockWriteGuard<'_, Table> {
        self.shards[(hash.0 >> self.shift) as usize].0.write()
    }

    pub(super) fn read_shard(&self, shard: usize) -> RwLockReadGuard<'_, Table> {
        self.shards[shard].0.read()
    }

    pub(super) fn write_shard(&self, shard: usize) -> RwLockWriteGuard<'_, Table> {
        self.shards[shard].0.write()
    }

    /// Bytes of all tables.
    pub(super) fn bytes(&self) -> u64 {
        let tables: usize = self.shards.iter().map(|shard| shard.0.read().entries.bytes()).sum();
        (tables + size_of_val(&*self.shards) + size_of_val(&*self.places)) as u64
    }
}

impl Place {
    #[inline]
    fn line_range(&self) -> table::LineRange {
        let (first, lines) = (self.first.load(Ordering::Relaxed), self.lines.load(Ordering::Relaxed));
        table::LineRange { first, lines }
    }

    /// Writes only if it has changed, so that other cores keep their copy of the cache line.
    fn keep_up(&self, now: table::LineRange) {
        if self.line_range() != now {
            self.first.store(now.first.cast_mut(), Ordering::Relaxed);
            self.lines.store(now.lines, Ordering::Relaxed);
        }
    }
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub(super) fn find<'a>(&self, arena: &'a Arena, key: &[u8], hash: KeyHash) -> Option<Item<'a>> {
        self.find_with_slab(arena, key, hash).map(|(item, _)| item)
    }

    /// As [`find_with_slab`](Self::find_with_slab), but examines only the first candidate of the first line. `None` may be wrong.
    #[inline(always)]
    pub(super) fn find_likely<'a>(
        &self,
        arena: &'a Arena,
        key: &[u8],
        hash: KeyHash,
    ) -> Option<(Item<'a>, SlabUse)> {
        let found = arena.item_and_slab(self.entries.likely_in_home_line(hash.0)?);
        Some(found).filter(|(item, _)| is_same(item.key(), key))
    }

    /// As `find`, with the use of the item's slab.
    #[inline]
    pub(super) fn find_with_slab<'a>(
        &self,
        arena: &'a Arena,
        key: &[u8],
        hash: KeyHash,
    ) -> Option<(Item<'a>, SlabUse)> {
        let of_key = |entry| Some(arena.item_and_slab(entry)).filter(|(item, _)| is_same(item.key(), key));
        self.entries.find_map(hash.0, of_key).map(|(_, found)| found)
    }

    /// Inserts `item` and returns the replaced one.
    #[inline]
    pub(super) fn insert<'a>(&mut self, arena: &'a Arena, item: Item<'_>, hash: KeyHash) -> Option<Item<'a>> {
        if self.entries.insert_likely(hash.0, item.reference()) {
            return None;
        }
        self.insert_unlikely(arena, item, hash)
    }

    /// An insert that may replace an item, or overflow or grow the table.
    #[inline(never)]
    fn insert_unlikely<'a>(&mut self, arena: &'a Arena, item: Item<'_>, hash: KeyHash) -> Option<Item<'a>> {
        if let Some(place) = self.place_of_key(arena, item.key(), hash) {
            return Some(arena.item(self.entries.replace(place, item.reference())));
        }
        let hash_of = |entry| arena.hash_of(arena.item(entry).key()).0;
        self.entries.insert(hash.0, item.reference(), hash_of);
        self.places[self.shard].keep_up(self.entries.line_range());
        None
    }

    /// Replaces exactly `old` by `new`; returns whether it was there.
    pub(super) fn replace_item(&mut self, old: Item<'_>, new: Item<'_>, hash: KeyHash) -> bool {
        let place = self.place_of_item(old, hash);
        place.map(|place| self.entries.replace(place, new.reference())).is_some()
    }

    /// Removes exactly this item; returns whether it was there.
    #[inline]
    pub(super) fn remove_item(&mut self, item: Item<'_>, hash: KeyHash) -> bool {
        self.entries.remove_likely(hash.0, item.reference()) || self.remove_unlikely(item, hash)
    }

    #[inline(never)]
    fn remove_unlikely(&mut self, item: Item<'_>, hash: KeyHash) -> bool {
        let place = self.place_of_item(item, hash);
        place.map(|place| self.entries.remove(hash.0, place)).is_some()
    }

    /// Removes the item of `key`.
    pub(super) fn remove_key<'a>(&mut self, arena: &'a Arena, key: &[u8], hash: KeyHash) -> Option<Item<'a>> {
        let place = self.place_of_key(arena, key, hash)?;
        Some(arena.item(self.entries.remove(hash.0, place)))
    }

    /// Removes all items of the shard.
    pub(super) fn take_all<'a>(&mut self, arena: &'a Arena) -> Vec<Item<'a>> {
        self.entries.take_all().into_iter().map(|entry| arena.item(entry)).collect()
    }

    /// All items of the shard.
    pub(super) fn items<'a>(&self, arena: &'a Arena) -> impl Iterator<Item = Item<'a>> {
        self.entries.iter().map(|entry| arena.item(entry))
    }

    #[inline]
    fn place_of_key(&self, arena: &Arena, key: &[u8], hash: KeyHash) -> Option<table::Place> {
        self.entries.find(hash.0, |entry| is_same(arena.item(entry).key(), key))
    }

    fn place_of_item(&self, item: Item<'_>, hash: KeyHash) -> Option<table::Place> {
        self.entries.find(hash.0, |entry| entry == item.reference())
    }
}

/// Whether two keys are equal. Most keys are short, and two overlapping words compare them without a call of `memcmp`.
#[inline]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let (Some(first), Some(last)) = (one.first_chunk::<8>(), one.last_chunk::<8>()) else {
        return one == other;
    };
    other.first_chunk() == Some(first)
        && other.last_chunk() == Some(last)
        && (one.len() <= 16 || one == other)
}

#[cfg(test)]
mod tests {
    use device::VirtualClock;
    use policy::eviction::S3Fifo;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::dram::item::ItemRef;
    use crate::dram::{Discard, Dram, DramConfig, PoolId};

    #[test]
    fn items_of_a_shard_are_distinguished_by_hash_without_reading_them() {
        let count = if cfg!(miri) { 100 } else { 3000 };
        for bits in MIN_SHARD_BITS..=MAX_SHARD_BITS {
            let mut rng = StdRng::seed_from_u64(7);
            let mut in_shard = || 5 << (64 - bits) | rng.random::<u64>() >> bits;
            let hashes: Vec<u64> = (0..count).map(|_| in_shard()).collect();
            let mut table = table::Table::default();
            let hash_of = |entry: ItemRef| hashes[entry.0 as usize];
            (0..count).for_each(|n| table.insert(hash_of(ItemRef(n)), ItemRef(n), hash_of));
            let mut looks = 0;
            for (n, &hash) in (0..).zip(&hashes) {
                let is_meant = |entry| {
                    looks += 1;
                    entry == ItemRef(n)
                };
                assert!(table.find(hash, is_meant).is_some());
            }
            assert!(
                looks <= count + count / 10,
                "{looks} items looked at to find {count}, {bits} bits of shard"
            );
        }
    }

    /// The prefetched line must be the one that a lookup accesses, also after the table has grown.
    #[test]
    fn prefetched_address_follows_a_growing_table() {
        let mut config = DramConfig::new(4 << 20, Arc::new(|| Box::new(S3Fifo::new(0))));
        config.slab_bytes = Some(1 << 16);
        config.alloc_sizes = vec![64];
        let dram = Dram::new(&config, Arc::new(VirtualClock::default())).unwrap();
        let keys = if cfg!(miri) { 300 } else { 20_000_u32 };
        let mut likely = 0;
        for key in (0..keys).map(u32::to_le_bytes) {
            let hash = KeyHash::of(&key);
            let draft = dram.allocate(PoolId(0), &key, hash, 8, 0, &Discard).unwrap();
            dram.lock(hash).link(draft);
            let table = dram.index.read(hash);
            let shard = (hash.0 >> dram.index.shift) as usize;
            assert_eq!(
                dram.index.places[shard].line_range().home(hash.0),
                table.entries.line_range().home(hash.0)
            );
            let found = table.find(&dram.pools.arena, &key, hash).unwrap();
            likely += u32::from(table.entries.likely(hash.0) == Some(found.reference()));
        }
        assert!(likely > keys / 10 * 9, "{likely} of {keys} are the first candidate of a lookup");
    }

    #[test]
    fn keys_are_equal_only_if_every_byte_is() {
        for length in 0..40 {
            let key: Vec<u8> = (1..=length).collect();
            assert!(is_same(&key, &key.clone()));
            assert!(!is_same(&key, &[&key[..], &[0]].concat()));
            for at in 0..key.len() {
                let mut other = key.clone();
                other[at] ^= 1;
                assert!(!is_same(&key, &other), "byte {at} of {length}");
            }
        }
    }
}
