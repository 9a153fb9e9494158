//! The items of a shard that are in memory: one table for each region that is not written yet.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashTable;

use crate::KeyHash;
use crate::flash::FlashItem;

/// Memory of a buffered item beside its bytes: table entry, reference counts and the allocator's rounding.
pub const OVERHEAD_BYTES: usize = 96;

/// An item in memory.
#[derive(Debug, Clone)]
pub struct Buffered {
    pub hash: KeyHash,
    /// Key, then value.
    pub bytes: Arc<[u8]>,
    pub key_len: u8,
    pub tag: u16,
    pub expiry_seconds: u32,
    /// Whether a live region may hold the item too: it was readmitted. Its removal must be recorded.
    pub is_on_flash: bool,
}

impl Buffered {
    pub fn key(&self) -> &[u8] {
        &self.bytes[..usize::from(self.key_len)]
    }

    /// Memory that the item takes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + OVERHEAD_BYTES
    }

    /// Bytes of the item in a page.
    pub fn page_bytes(&self) -> usize {
        super::page::entry_bytes(self.bytes.len(), self.expiry_seconds, self.tag)
    }

    /// Calls `visit` with the item as callbacks receive it.
    pub fn as_flash_item(&self, visit: impl FnOnce(&FlashItem<'_>)) {
        let (key, value) = self.bytes.split_at(usize::from(self.key_len));
        let Self { hash, expiry_seconds, tag, .. } = *self;
        visit(&FlashItem { key, hash, value: &[value], expiry_seconds, tag });
    }
}

/// The items of one region.
struct Table {
    sequence: u64,
    items: HashTable<Buffered>,
}

/// The tables of a shard, oldest region first.
#[derive(Default)]
pub struct Tables {
    tables: VecDeque<Table>,
}

impl Tables {
    /// The newest version of a key.
    pub fn find(&self, hash: KeyHash, key: &[u8]) -> Option<&Buffered> {
        self.tables.iter().rev().find_map(|table| table.items.find(hash.0, |item| item.key() == key))
    }

    /// Whether there is an item with this hash.
    pub fn contains_hash(&self, hash: KeyHash) -> bool {
        self.tables.iter().any(|table| table.items.find(hash.0, |item| item.hash == hash).is_some())
    }

    /// Adds an item to the open region `sequence`. The key must not be in any table.
    pub fn insert(&mut self, sequence: u64, item: Buffered) {
        if self.tables.back().is_none_or(|table| table.sequence < sequence) {
            self.tables.push_back(Table { sequence, items: HashTable::new() });
        }
        let table = self.tables.iter_mut().rev().find(|table| table.sequence == sequence);
        let table = table.expect("the open region is the newest");
        table.items.insert_unique(item.hash.0, item, |item| item.hash.0);
    }

    /// Removes a key from all tables; returns its items, each with its region.
    pub fn remove(&mut self, hash: KeyHash, key: &[u8]) -> Option<(u64, Buffered)> {
        let mut newest = None;
        for table in &mut self.tables {
            let Ok(entry) = table.items.find_entry(hash.0, |item| item.key() == key) else { continue };
            newest = Some((table.sequence, entry.remove().0));
        }
        newest
    }

    /// The items of region `sequence`.
    pub fn items(&self, sequence: u64) -> impl Iterator<Item = &Buffered> {
        let table = self.tables.iter().find(|table| table.sequence == sequence);
        table.into_iter().flat_map(|table| table.items.iter())
    }

    /// Takes an item out of region `sequence`. Returns false if it was removed or replaced before.
    pub fn take(&mut self, sequence: u64, item: &Buffered) -> bool {
        let Some(table) = self.tables.iter_mut().find(|table| table.sequence == sequence) else {
            return false;
        };
        let found = table.items.find_entry(item.hash.0, |it| Arc::ptr_eq(&it.bytes, &item.bytes));
        found.map(|entry| drop(entry.remove())).is_ok()
    }

    /// Drops the table of region `sequence`; returns the items that were left in it.
    pub fn drop_region(&mut self, sequence: u64) -> Vec<Buffered> {
        let Some(at) = self.tables.iter().position(|table| table.sequence == sequence) else {
            return Vec::new();
        };
        self.tables.remove(at).map_or_else(Vec::new, |table| table.items.into_iter().collect())
    }

    /// Removes all items. Tables of regions being written stay, empty.
    pub fn clear(&mut self, mut removed: impl FnMut(u64, &Buffered)) {
        for table in &mut self.tables {
            let sequence = table.sequence;
            table.items.iter().for_each(|item| removed(sequence, item));
            table.items.clear();
        }
    }

    /// The keys of all items.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.tables.iter().flat_map(|table| table.items.iter().map(|item| item.key().to_vec())).collect()
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.tables.iter().map(|table| table.items.len()).sum()
    }
}
