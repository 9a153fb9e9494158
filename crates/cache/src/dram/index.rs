//! From key to item: one hash table a shard, four bytes an entry.
//!
//! The entry is the item's [`ItemRef`]; key and lengths stand in the item itself, where the reader goes next anyway.
//! Many shards bound the time that a growing table holds its lock.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::item::ItemRef;
use super::slab::{Arena, Item};
use super::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::KeyHash;

const MIN_SHARD_BITS: u32 = 6;
const MAX_SHARD_BITS: u32 = 10;
/// Memory behind a shard, at which a table that doubles stays short of a millisecond.
const ARENA_BYTES_PER_SHARD: u64 = 1 << 20;

/// All shards.
pub(super) struct Index {
    shards: Box<[Shard]>,
    bits: u32,
}

#[repr(align(64))]
struct Shard(RwLock<Table>);

/// The table of one shard, seen under its lock.
pub(super) struct Table {
    items: HashTable<ItemRef>,
    shard_bits: u32,
}

impl Index {
    pub(super) fn new(arena_bytes: u64) -> Self {
        let bits = (arena_bytes / ARENA_BYTES_PER_SHARD).max(1).ilog2().clamp(MIN_SHARD_BITS, MAX_SHARD_BITS);
        let shard = || Shard(RwLock::new(Table { items: HashTable::new(), shard_bits: bits }));
        Self { shards: std::iter::repeat_with(shard).take(1 << bits).collect(), bits }
    }

    pub(super) fn shard_count(&self) -> usize {
        self.shards.len()
    }

    #[inline]
    pub(super) fn read(&self, hash: KeyHash) -> RwLockReadGuard<'_, Table> {
        self.shards[hash.shard(self.bits)].0.read()
    }

    pub(super) fn write(&self, hash: KeyHash) -> RwLockWriteGuard<'_, Table> {
        self.shards[hash.shard(self.bits)].0.write()
    }

    pub(super) fn read_shard(&self, shard: usize) -> RwLockReadGuard<'_, Table> {
        self.shards[shard].0.read()
    }

    /// Bytes of heap that the tables take.
    pub(super) fn bytes(&self) -> u64 {
        let tables: usize = self.shards.iter().map(|shard| shard.0.read().items.allocation_size()).sum();
        (tables + size_of_val(&*self.shards)) as u64
    }
}

impl Table {
    /// The shard took the top bits, which are the same for all of its keys; the table tells entries apart by top
    /// bits too, so it gets the hash turned.
    #[inline]
    fn turned(&self, hash: KeyHash) -> u64 {
        hash.0.rotate_left(self.shard_bits)
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    #[inline]
    pub(super) fn find<'a>(&self, arena: &'a Arena, key: &[u8], hash: KeyHash) -> Option<Item<'a>> {
        let found = self.items.find(self.turned(hash), |&entry| arena.item(entry).key() == key)?;
        Some(arena.item(*found))
    }

    /// Puts `item` in; what it replaced.
    pub(super) fn insert<'a>(&mut self, arena: &'a Arena, item: Item<'_>, hash: KeyHash) -> Option<Item<'a>> {
        let (turned, bits) = (self.turned(hash), self.shard_bits);
        let same_key = |entry: &ItemRef| arena.item(*entry).key() == item.key();
        let rehash = |entry: &ItemRef| KeyHash::of(arena.item(*entry).key()).0.rotate_left(bits);
        match self.items.entry(turned, same_key, rehash) {
            Entry::Occupied(mut entry) => {
                Some(arena.item(std::mem::replace(entry.get_mut(), item.reference())))
            }
            Entry::Vacant(entry) => {
                entry.insert(item.reference());
                None
            }
        }
    }

    /// Puts `new` where exactly `old` is; whether it was there.
    pub(super) fn replace_item(&mut self, old: Item<'_>, new: Item<'_>, hash: KeyHash) -> bool {
        let found = self.items.find_mut(self.turned(hash), |&entry| entry == old.reference());
        found.map(|entry| *entry = new.reference()).is_some()
    }

    /// Takes exactly this item out; whether it was there.
    pub(super) fn remove_item(&mut self, item: Item<'_>, hash: KeyHash) -> bool {
        let entry = self.items.find_entry(self.turned(hash), |&entry| entry == item.reference());
        entry.map(|entry| entry.remove()).is_ok()
    }

    /// Takes the item of `key` out.
    pub(super) fn remove_key<'a>(&mut self, arena: &'a Arena, key: &[u8], hash: KeyHash) -> Option<Item<'a>> {
        let same_key = |entry: &ItemRef| arena.item(*entry).key() == key;
        let entry = self.items.find_entry(self.turned(hash), same_key).ok()?;
        Some(arena.item(entry.remove().0))
    }

    /// Every item of the shard.
    pub(super) fn items<'a>(&self, arena: &'a Arena) -> impl Iterator<Item = Item<'a>> {
        self.items.iter().map(|&entry| arena.item(entry))
    }
}
