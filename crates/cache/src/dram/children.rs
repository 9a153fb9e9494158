//! The children of items: the newest child of each parent, and walks along a chain.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};

use super::item::{ItemRef, State};
use super::slab::{Arena, Item};
use crate::sync::Mutex;

/// The newest child of every parent that has one. The innermost lock: nothing is locked under it.
pub(super) struct Chains {
    heads: Box<[Mutex<Heads>]>,
}

/// Uses a fixed hasher, so that each run of a simulation uses the same memory.
type Heads = HashMap<ItemRef, ItemRef, BuildHasherDefault<DefaultHasher>>;

const STRIPES: usize = 64;

impl Chains {
    pub(super) fn new() -> Self {
        Self { heads: std::iter::repeat_with(Mutex::default).take(STRIPES).collect() }
    }

    fn stripe(&self, parent: ItemRef) -> &Mutex<Heads> {
        &self.heads[parent.0 as usize % STRIPES]
    }

    /// The newest child of `parent`.
    #[inline]
    pub(super) fn head(&self, parent: Item<'_>) -> Option<ItemRef> {
        if parent.header().state().has(State::CHAINED) { self.head_of_chained(parent) } else { None }
    }

    #[cold]
    fn head_of_chained(&self, parent: Item<'_>) -> Option<ItemRef> {
        self.stripe(parent.reference()).lock().get(&parent.reference()).copied()
    }

    pub(super) fn set_head(&self, parent: Item<'_>, head: ItemRef) {
        self.stripe(parent.reference()).lock().insert(parent.reference(), head);
    }

    pub(super) fn take_head(&self, parent: Item<'_>) -> Option<ItemRef> {
        self.stripe(parent.reference()).lock().remove(&parent.reference())
    }

    /// Bytes of the tables.
    pub(super) fn bytes(&self) -> u64 {
        let entries: usize = self.heads.iter().map(|stripe| stripe.lock().capacity()).sum();
        (entries * (size_of::<(ItemRef, ItemRef)>() + 1) + size_of_val(&*self.heads)) as u64
    }
}

/// The children from `head` on, newest first. The caller holds a reference to their parent.
pub(super) fn children(arena: &Arena, head: Option<ItemRef>) -> impl Iterator<Item = Item<'_>> {
    let head = head.map(|head| arena.item(head));
    std::iter::successors(head, |child| child.links().next().map(|next| arena.item(next)))
}

/// The parent of a child. Under the class lock of the linked child.
pub(super) fn parent_of<'a>(arena: &'a Arena, child: Item<'_>) -> Item<'a> {
    arena.item(child.links().parent())
}
