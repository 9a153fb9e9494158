//! References to items: a [`Handle`] to read one in place, a [`Draft`] to fill one.

use std::ops::{Deref, DerefMut};

use super::Dram;
use super::item::State;
use super::slab::Item;
use crate::KeyHash;

/// A pinned item: it is neither moved nor freed while the handle lives. Derefs to its value.
pub struct Handle<'a> {
    pub(super) dram: &'a Dram,
    pub(super) item: Item<'a>,
}

impl<'a> Handle<'a> {
    /// Makes a handle of a reference that is already counted.
    #[inline]
    pub(super) fn adopt(dram: &'a Dram, item: Item<'a>) -> Self {
        Self { dram, item }
    }

    /// Gives up the handle; its reference passes to the caller.
    #[inline]
    pub(super) fn into_item(self) -> Item<'a> {
        let item = self.item;
        std::mem::forget(self);
        item
    }

    /// Counts a new reference. The caller holds the shard's lock and found the item linked.
    #[inline]
    pub(super) fn pin(dram: &'a Dram, item: Item<'a>) -> Self {
        item.header().pin();
        Self { dram, item }
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.item.key()
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.item.value()
    }

    /// Unix second at which the item expires; 0 means never.
    #[must_use]
    pub fn expiry_seconds(&self) -> u32 {
        self.item.header().expiry_seconds()
    }

    /// Sets the expiry time.
    pub fn set_expiry_seconds(&self, expiry_seconds: u32) {
        self.item.header().set_expiry_seconds(expiry_seconds);
    }

    /// Sets the tag. Called under the key's lock.
    pub fn set_tag(&self, tag: u16) {
        self.item.header().set_tag(tag);
    }

    /// The tag.
    #[must_use]
    pub fn tag(&self) -> u16 {
        self.item.header().tag()
    }

    /// The pool of the item.
    #[must_use]
    pub fn pool(&self) -> super::PoolId {
        self.dram.pools.class_of(self.item.reference()).0.pool
    }

    /// Records that flash has the same value.
    pub fn mark_clean(&self) {
        self.item.header().set(State::CLEAN);
    }

    /// Records that flash no longer has this value.
    pub fn mark_dirty(&self) {
        self.item.header().clear(State::CLEAN);
    }

    /// Whether the same value is known to be on flash.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.item.header().state().has(State::CLEAN)
    }

    /// Whether the item is in the index. Once false, it stays false.
    #[must_use]
    pub fn is_linked(&self) -> bool {
        self.item.header().state().has(State::LINKED)
    }
}

impl Deref for Handle<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.item.value()
    }
}

impl Clone for Handle<'_> {
    fn clone(&self) -> Self {
        Self::pin(self.dram, self.item)
    }
}

impl Drop for Handle<'_> {
    #[inline]
    fn drop(&mut self) {
        self.dram.release(self.item);
    }
}

impl std::fmt::Debug for Handle<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({} bytes of key, {} of value)", self.key().len(), self.len())
    }
}

/// An item under construction: its value is filled through `DerefMut`, then [`KeyLock::link`](super::KeyLock::link) makes it visible.
/// Dropping it discards it. The value initially holds arbitrary bytes, not zeros.
// The field order puts padding last. Compilers otherwise copy it together with other fields in chunks of other sizes than those of later
// reads, and such a read stalls until the preceding write of the value has completed.
#[repr(C)]
pub struct Draft<'a> {
    pub(super) dram: &'a Dram,
    pub(super) hash: KeyHash,
    pub(super) item: Item<'a>,
}

impl<'a> Draft<'a> {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.item.key()
    }

    /// The key's hash.
    #[must_use]
    pub fn hash(&self) -> KeyHash {
        self.hash
    }

    /// Unix second at which the item expires; 0 means never.
    #[must_use]
    pub fn expiry_seconds(&self) -> u32 {
        self.item.header().expiry_seconds()
    }

    /// Sets a tag, whose meaning is the caller's; 0 means none.
    #[inline]
    #[must_use]
    pub fn tagged(self, tag: u16) -> Self {
        if tag != 0 {
            self.item.header().set_tag(tag);
        }
        self
    }

    /// Records that flash has the same value.
    pub fn mark_clean(&mut self) {
        self.item.header().set(State::CLEAN);
    }

    /// Returns the item; its one reference passes to the caller.
    pub(super) fn into_item(self) -> Item<'a> {
        let item = self.item;
        std::mem::forget(self);
        item
    }
}

impl Deref for Draft<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.item.value()
    }
}

impl DerefMut for Draft<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.item.value_mut()
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        self.dram.release(self.item);
    }
}

impl std::fmt::Debug for Draft<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Draft({} bytes of key, {} of value)", self.key().len(), self.len())
    }
}
