//! The links of a child in a [chain](super::chain).

use std::sync::atomic::{AtomicU32, Ordering};

use super::item::ItemRef;

/// Bytes of a child's links.
pub(super) const LINKS_BYTES: usize = size_of::<Links>();

/// The parent of a child and the next, older child; stored in place of a key.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Links {
    parent: AtomicU32,
    next: AtomicU32,
}

impl Links {
    pub(super) fn parent(&self) -> ItemRef {
        ItemRef(self.parent.load(Ordering::Acquire))
    }

    pub(super) fn next(&self) -> Option<ItemRef> {
        Some(ItemRef(self.next.load(Ordering::Acquire))).filter(|&next| next != ItemRef::NONE)
    }

    pub(super) fn set_parent(&self, parent: ItemRef) {
        self.parent.store(parent.0, Ordering::Release);
    }

    pub(super) fn set_next(&self, next: Option<ItemRef>) {
        self.next.store(next.unwrap_or(ItemRef::NONE).0, Ordering::Release);
    }
}
