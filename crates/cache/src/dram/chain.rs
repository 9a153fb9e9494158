//! Chains: items extended by children, beyond the size of one chunk.
//!
//! A child occupies its own chunk. In place of a key it stores its parent and the next, older child. The newest child of a parent is in a
//! table beside the index, so an item without children pays one flag for this feature.
//!
//! ```text
//! child   | header | parent u32 | next u32 | value … |
//! ```
//!
//! A chain grows only at its head, under the shard's lock, and is freed as a whole with its parent. The holder of a reference to the parent
//! can therefore walk it without a lock: the part that it has seen does not change. Evicting a child evicts the whole chain; the evictor
//! then references the *parent*, and a child is freed before its parent.

use super::children::children;
use super::evict::{Attempt, Spill, Victim};
use super::handle::{Draft, Handle};
use super::item::{HEADER_BYTES, ItemRef, State};
use super::links::LINKS_BYTES;
use super::pools::AllocationPurpose;
use super::slab::Item;
use super::{AllocateError, Dram, Entry, KeyLock, PoolId};
use crate::KeyHash;

impl Dram {
    /// Allocates a child, to be filled and linked by [`KeyLock::add_child`]. Otherwise as [`Dram::allocate`].
    pub fn allocate_child<S: Spill>(
        &self,
        pool: PoolId,
        hash: KeyHash,
        value_len: usize,
        spill: &S,
    ) -> Result<Draft<'_>, AllocateError> {
        let bytes = (HEADER_BYTES + LINKS_BYTES).saturating_add(value_len);
        let class = self.class_for(pool, value_len, 0, bytes)?;
        let now_seconds = self.now_seconds();
        // A child has no key, so ghosts do not remember it.
        let entry = Entry { hash: hash.remix(), weight: 1 };
        let wanted = AllocationPurpose { entry, bytes: bytes as u64, now_seconds };
        let item = self.take_chunk(class, wanted, spill)?;
        item.header().describe(LINKS_BYTES as u16, value_len as u32, 0, now_seconds);
        item.links().set_parent(ItemRef::NONE);
        item.links().set_next(None);
        item.header().set(State::CHILD);
        Ok(Draft { dram: self, item, hash })
    }

    /// Frees the children of an item before its own chunk is freed or reused. The caller has the only reference to the item.
    #[cold]
    pub(super) fn free_chain(&self, parent: Item<'_>) {
        let mut next = self.chains.take_head(parent);
        parent.header().clear(State::CHAINED);
        while let Some(reference) = next {
            let child = self.pools.arena.item(reference);
            next = child.links().next();
            self.pools.free(child);
        }
    }

    /// Evicts the chain of a child that a class's policy selected. The caller has marked the parent `EVICTING` and holds a reference to it;
    /// the child is not in its policy.
    pub(super) fn evict_chain_of<S: Spill>(
        &self,
        parent: Item<'_>,
        child: Item<'_>,
        now_seconds: u32,
        spill: &S,
    ) -> Attempt {
        let victim = Victim::new(self, parent, self.hash_of(parent.key()), now_seconds);
        let attempt = self.evict(&victim, spill);
        let has_left = attempt == Attempt::Gone;
        if !has_left {
            // The child still exists, because its parent is referenced. It enters the policy again before another evictor can run.
            self.pools.class_of(child.reference()).0.enter_policy(&self.pools, child, now_seconds);
        }
        self.pools.class_of(parent.reference()).0.lock().counters.evictions += u64::from(has_left);
        self.end_attempt(parent, has_left, now_seconds);
        attempt
    }

    /// Moves the chain of `old` to `new`. Requires the shard's lock and the only reference to `old`.
    pub(super) fn move_chain(&self, old: Item<'_>, new: Item<'_>) {
        let Some(head) = self.chains.take_head(old) else { return };
        for child in children(&self.pools.arena, Some(head)) {
            // An evictor reads the parent under the child's class lock, and must not follow it to a freed chunk.
            let (class, _) = self.pools.class_of(child.reference());
            let _evictors_wait = class.lock();
            child.links().set_parent(new.reference());
        }
        self.chains.set_head(new, head);
        new.header().set(State::CHAINED);
        old.header().clear(State::CHAINED);
    }

    /// Copies a child to `chunk`, a draft, which replaces it in the chain. The caller marked the parent `EVICTING` and holds a reference
    /// to it.
    pub(super) fn move_child(
        &self,
        victim: &Victim<'_>,
        parent: Item<'_>,
        old: Item<'_>,
        mut chunk: Item<'_>,
    ) -> Attempt {
        let header = old.header();
        chunk.header().describe(LINKS_BYTES as u16, header.value_len() as u32, 0, header.touched_seconds());
        chunk.value_mut().copy_from_slice(old.value());
        let table = self.index.write(victim.hash());
        let state = parent.header().state();
        if !(state.has(State::LINKED) && state.references() == 2) {
            drop(table);
            self.release(chunk);
            return Attempt::InUse;
        }
        chunk.links().set_parent(parent.reference());
        chunk.links().set_next(old.links().next());
        let head = self.chains.head(parent);
        let before =
            children(&self.pools.arena, head).find(|child| child.links().next() == Some(old.reference()));
        match before {
            Some(before) => before.links().set_next(Some(chunk.reference())),
            None => self.chains.set_head(parent, chunk.reference()),
        }
        chunk.header().set(State::CHILD);
        self.link_child(chunk);
        drop(table);
        self.pools.free(old);
        Attempt::Gone
    }

    fn link_child(&self, child: Item<'_>) {
        let before = child.header().exchange(State::DRAFT, State::LINKED);
        if !before.has(State::IN_POLICY) {
            let (class, _) = self.pools.class_of(child.reference());
            class.enter_policy(&self.pools, child, self.now_seconds());
        }
    }
}

impl<'a> KeyLock<'a> {
    /// Adds a child at the head of the chain of `key`'s item. Returns the draft if there is no such item, or it has expired. The item
    /// is no longer clean.
    ///
    /// # Panics
    /// If the draft's hash is not the locked one, or the draft is from another tier.
    pub fn add_child(&mut self, key: &[u8], draft: Draft<'a>) -> Result<(), Draft<'a>> {
        assert!(std::ptr::eq(draft.dram, self.dram), "a child is added in the tier that allocated it");
        assert_eq!(draft.hash, self.hash, "a child is added under the lock of its parent's key");
        assert!(draft.item.header().state().has(State::CHILD), "allocated by `allocate_child`");
        let Some(parent) = self.find(key) else { return Err(draft) };
        let (child, parent) = (draft.into_item(), parent.item);
        child.links().set_parent(parent.reference());
        child.links().set_next(self.dram.chains.head(parent));
        self.dram.chains.set_head(parent, child.reference());
        parent.header().exchange(State::CLEAN, State::CHAINED);
        self.dram.link_child(child);
        Ok(())
    }
}

impl Handle<'_> {
    /// Whether the item has children.
    #[must_use]
    pub fn is_chained(&self) -> bool {
        self.item.header().state().has(State::CHAINED)
    }

    /// The values of the children, newest first, as of now.
    pub fn chain(&self) -> impl Iterator<Item = &[u8]> {
        children(&self.dram.pools.arena, self.dram.chains.head(self.item)).map(Item::value)
    }
}
