//! Changes of the index entry of a key.

use super::Dram;
use super::handle::{Draft, Handle};
use super::index::Table;
use super::item::State;
use crate::KeyHash;
use crate::sync::RwLockWriteGuard;

/// The exclusive lock of a key's shard, for changes of its index entry. Hold it briefly, and allocate before taking it: an allocation may
/// have to evict from this shard.
pub struct KeyLock<'a> {
    pub(super) dram: &'a Dram,
    pub(super) table: RwLockWriteGuard<'a, Table>,
    pub(super) hash: KeyHash,
}

impl Dram {
    /// Takes the exclusive lock for changes of the index entry of `hash`.
    pub fn lock(&self, hash: KeyHash) -> KeyLock<'_> {
        KeyLock { dram: self, table: self.index.write(hash), hash }
    }
}

impl<'a> KeyLock<'a> {
    /// The item of `key`, unless it has expired. `key` has the hash that was locked.
    #[must_use]
    pub fn find(&self, key: &[u8]) -> Option<Handle<'a>> {
        let item = self.table.find(&self.dram.pools.arena, key, self.hash)?;
        let expired = item.header().is_expired(self.dram.now_seconds());
        (!expired).then(|| Handle::pin(self.dram, item))
    }

    /// The item of `key`, expired or not.
    #[must_use]
    pub fn find_even_expired(&self, key: &[u8]) -> Option<Handle<'a>> {
        let item = self.table.find(&self.dram.pools.arena, key, self.hash)?;
        Some(Handle::pin(self.dram, item))
    }

    /// Makes `draft` the item of its key; returns the replaced item, which readers may still hold.
    ///
    /// # Panics
    /// If the draft's hash is not the locked one, or the draft is from another tier.
    #[inline]
    pub fn link(&mut self, draft: Draft<'a>) -> Option<Handle<'a>> {
        assert!(std::ptr::eq(draft.dram, self.dram), "a draft is linked in the tier that allocated it");
        assert_eq!(draft.hash, self.hash, "a draft is linked under the lock of its own key");
        assert!(!draft.item.header().state().has(State::CHILD), "a child is added with `add_child`");
        let item = draft.into_item();
        let before = item.header().exchange(State::DRAFT, State::LINKED);
        let replaced = self.table.insert(&self.dram.pools.arena, item, self.hash).map(|old| {
            old.header().clear(State::LINKED);
            // The handle takes over the index's reference.
            Handle::adopt(self.dram, old)
        });
        if !before.has(State::IN_POLICY) {
            let (class, _) = self.dram.pools.class_of(item.reference());
            class.enter_policy(&self.dram.pools, item, self.dram.now_seconds());
        }
        replaced
    }

    /// Removes the index entry of `key`; returns its item, expired or not.
    pub fn unlink(&mut self, key: &[u8]) -> Option<Handle<'a>> {
        let item = self.table.remove_key(&self.dram.pools.arena, key, self.hash)?;
        item.header().clear(State::LINKED);
        Some(Handle::adopt(self.dram, item))
    }
}

impl std::fmt::Debug for KeyLock<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyLock({:x})", self.hash.0)
    }
}
