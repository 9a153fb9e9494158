//! Owned references to items.

use std::ops::Deref;
use std::sync::Arc;

use super::children::children;
use super::handle::Handle;
use super::item::ItemRef;
use super::slab::Item;
use super::{Dram, PoolId};

/// A pinned item together with a reference to its tier: the owned form of a [`Handle`], which borrows the tier.
///
/// The chunk belongs to this item while it is referenced, so the item reference can be resolved each time; storing the address would
/// require a borrow of the tier, which is a field of this struct.
pub(crate) struct Kept<T: AsRef<Dram>> {
    tier: Arc<T>,
    reference: ItemRef,
}

impl<T: AsRef<Dram>> Kept<T> {
    /// Pins the item of `handle` once more.
    ///
    /// # Panics
    /// If the handle is from another tier.
    pub(crate) fn new(tier: Arc<T>, handle: &Handle<'_>) -> Self {
        assert!(std::ptr::eq((*tier).as_ref(), handle.dram), "the item is from another cache");
        handle.item.header().pin();
        let reference = handle.item.reference();
        Self { tier, reference }
    }

    /// A handle to the item that borrows the tier.
    ///
    /// # Panics
    /// If `dram` is another tier.
    pub(crate) fn lend(self, dram: &Dram) -> Handle<'_> {
        assert!(std::ptr::eq((*self.tier).as_ref(), dram), "the item is from another cache");
        // Pinned once more, because dropping `self` releases the first pin.
        Handle::pin(dram, dram.pools.arena.item(self.reference))
    }

    fn item(&self) -> Item<'_> {
        (*self.tier).as_ref().pools.arena.item(self.reference)
    }

    /// Unix second at which the item expires; 0 means never.
    pub(crate) fn expiry_seconds(&self) -> u32 {
        self.item().header().expiry_seconds()
    }

    /// The pool of the item.
    pub(crate) fn pool(&self) -> PoolId {
        (*self.tier).as_ref().pools.class_of(self.reference).0.pool
    }

    /// The current values of the children, newest first.
    pub(crate) fn chain(&self) -> impl Iterator<Item = &[u8]> {
        let dram = (*self.tier).as_ref();
        children(&dram.pools.arena, dram.chains.head(self.item())).map(Item::value)
    }
}

impl<T: AsRef<Dram>> Deref for Kept<T> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.item().value()
    }
}

impl<T: AsRef<Dram>> Drop for Kept<T> {
    fn drop(&mut self) {
        (*self.tier).as_ref().release(self.item());
    }
}
