//! What callers hold: a [`Handle`] to read an item in place, a [`Draft`] to fill one.

use std::ops::{Deref, DerefMut};

use policy::HitRule;

use super::Dram;
use super::item::State;
use super::slab::Item;
use crate::KeyHash;

/// An item, pinned: neither moved nor freed while the handle lives. Reads as the value.
pub struct Handle<'a> {
    pub(super) dram: &'a Dram,
    pub(super) item: Item<'a>,
}

impl<'a> Handle<'a> {
    /// Makes a handle of a reference that the caller counted already.
    #[inline]
    pub(super) fn adopt(dram: &'a Dram, item: Item<'a>) -> Self {
        Self { dram, item }
    }

    /// Counts a new reference. The caller holds the shard's lock and found the item linked.
    #[inline]
    pub(super) fn pin(dram: &'a Dram, item: Item<'a>) -> Self {
        item.header().pin();
        Self { dram, item }
    }

    /// The same for a hit, which is counted where the policy wants it counted in marks.
    #[inline]
    pub(super) fn pin_hit(dram: &'a Dram, item: Item<'a>, rule: &HitRule) -> Self {
        match rule {
            HitRule::Mark { at_most, .. } => item.header().pin_marked(*at_most),
            _ => item.header().pin(),
        }
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

    /// Unix second at which the item expires; 0 is never.
    #[must_use]
    pub fn expiry_seconds(&self) -> u32 {
        self.item.header().expiry_seconds()
    }

    /// Gives the item another time to expire.
    pub fn set_expiry_seconds(&self, expiry_seconds: u32) {
        self.item.header().set_expiry_seconds(expiry_seconds);
    }

    /// Gives the item another tag. Under its key's lock.
    pub fn set_tag(&self, tag: u16) {
        self.item.header().set_tag(tag);
    }

    /// The tag its draft was given.
    #[must_use]
    pub fn tag(&self) -> u16 {
        self.item.header().tag()
    }

    /// The pool it is in.
    #[must_use]
    pub fn pool(&self) -> super::PoolId {
        self.dram.pools.class_of(self.item.reference()).0.pool
    }

    /// Says that the same value is on flash now.
    pub fn mark_clean(&self) {
        self.item.header().set(State::CLEAN);
    }

    /// Says that flash does not have this value any more.
    pub fn mark_dirty(&self) {
        self.item.header().clear(State::CLEAN);
    }

    /// Whether the same value is known to be on flash.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.item.header().state().has(State::CLEAN)
    }

    /// Whether the item can still be found. Once false, it stays so.
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

/// An item on its way in: its value is filled through `DerefMut`, then [`KeyLock::link`](super::KeyLock::link) makes
/// it visible. Dropped without, it was never there. The value's bytes are what the memory held before, not zeros.
// In this order, the bytes that mean nothing are last. Compilers move those together with what follows, in pieces of other sizes
// than it is read by, and such a read waits until the value, just written, has arrived in memory.
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

    /// Unix second at which the item expires; 0 is never.
    #[must_use]
    pub fn expiry_seconds(&self) -> u32 {
        self.item.header().expiry_seconds()
    }

    /// The item with a tag, of the caller's meaning; 0 is none.
    #[inline]
    #[must_use]
    pub fn tagged(self, tag: u16) -> Self {
        if tag != 0 {
            self.item.header().set_tag(tag);
        }
        self
    }

    /// Says that the same value is on flash.
    pub fn mark_clean(&mut self) {
        self.item.header().set(State::CLEAN);
    }

    /// The item; its one reference is the caller's now.
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
