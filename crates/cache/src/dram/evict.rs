//! Eviction of an item: it is selected under the class lock, offered to the spill with no lock held, and removed from the index under its
//! shard's lock.

use super::children::children;
use super::item::{ItemRef, State};
use super::pools::{AllocationPurpose, Taken};
use super::slab::Item;
use super::{AllocateError, Class, Dram};
use crate::KeyHash;

/// Receives evicted items.
///
/// An eviction calls [`stage`](Self::stage) once, with no lock held and the item still findable. The staged copy is then either committed,
/// under the item's shard lock in the step that unlinks the item, or abandoned because the item was used, replaced or removed in between.
/// A key is therefore always in DRAM or beyond the spill, without a gap.
pub trait Spill {
    /// The state between staging and commit.
    type Staged;

    /// Whether every victim is dropped, and no other method does anything. An eviction then needs no [`Victim`], and no other time than
    /// that of recent hits.
    const DISCARDS: bool = false;

    /// Prepares the eviction: copies the item to the next tier, unless it has expired.
    fn stage(&self, victim: &Victim<'_>) -> Stage<Self::Staged>;

    /// The item is evicted now. Called under its shard's lock, so it must be brief and not call back into the tier.
    fn commit(&self, staged: Self::Staged, victim: &Victim<'_>);

    /// The item is evicted now, and nothing was staged for it. Called like [`commit`](Self::commit).
    fn dropped(&self, _victim: &Victim<'_>) {}

    /// The item stays, or another thread removed it: the staged copy must not become visible.
    fn abandon(&self, staged: Self::Staged, victim: &Victim<'_>);

    /// The item was evicted; `committed` says whether a staged copy was committed. Called with no lock held, while it can still be read.
    fn after_eviction(&self, _victim: &Victim<'_>, _committed: bool) {}
}

/// The spill's answer to an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage<T> {
    /// The item can be evicted without a copy.
    Drop,
    /// The item can be evicted; this represents its copy.
    Ready(T),
    /// The spill cannot accept more now. The item stays, and the allocation fails with [`AllocateError::Busy`].
    Busy,
}

/// The spill of a tier without a next tier.
#[derive(Debug, Clone, Copy, Default)]
pub struct Discard;

impl Spill for Discard {
    type Staged = ();
    const DISCARDS: bool = true;

    fn stage(&self, _: &Victim<'_>) -> Stage<()> {
        Stage::Drop
    }

    fn commit(&self, (): (), _: &Victim<'_>) {}

    fn abandon(&self, (): (), _: &Victim<'_>) {}
}

/// An item about to be evicted.
#[derive(Debug)]
pub struct Victim<'a> {
    dram: &'a Dram,
    item: Item<'a>,
    hash: KeyHash,
    now_seconds: u32,
    value: [&'a [u8]; 1],
    /// Values of parent and children, if there are children.
    chain: Vec<&'a [u8]>,
    head: Option<ItemRef>,
    expiry_seconds: u32,
    is_clean: bool,
}

impl<'a> Victim<'a> {
    #[inline]
    pub(super) fn new(dram: &'a Dram, item: Item<'a>, hash: KeyHash, now_seconds: u32) -> Self {
        let head = dram.chains.head(item);
        let mut chain = Vec::new();
        if head.is_some() {
            chain.push(item.value());
            chain.extend(children(&dram.pools.arena, head).map(Item::value));
        }
        let value = [item.value()];
        Self {
            dram,
            item,
            hash,
            now_seconds,
            value,
            chain,
            head,
            expiry_seconds: item.header().expiry_seconds(),
            is_clean: item.header().state().has(State::CLEAN),
        }
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &'a [u8] {
        self.item.key()
    }

    /// The key's hash.
    #[must_use]
    pub fn hash(&self) -> KeyHash {
        self.hash
    }

    /// The value in pieces: the item's own, then its children's, newest first.
    #[must_use]
    pub fn value(&self) -> &[&'a [u8]] {
        if self.chain.is_empty() { &self.value } else { &self.chain }
    }

    /// Unix second at which the item expires; 0 means never.
    #[must_use]
    pub fn expiry_seconds(&self) -> u32 {
        self.expiry_seconds
    }

    /// The tag of the item.
    #[must_use]
    pub fn tag(&self) -> u16 {
        self.item.header().tag()
    }

    /// The pool of the item.
    #[must_use]
    pub fn pool(&self) -> super::PoolId {
        self.dram.pools.class_of(self.item.reference()).0.pool
    }

    /// Whether the same value is known to be on flash.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.is_clean
    }

    /// Whether it is still in the index.
    pub(crate) fn is_linked(&self) -> bool {
        self.item.header().state().has(State::LINKED)
    }

    /// Whether it has expired.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.item.header().is_expired(self.now_seconds)
    }

    /// Seconds since the item's last use, with the precision that the policy's hit rule permits.
    #[must_use]
    pub fn idle_seconds(&self) -> u32 {
        self.now_seconds.saturating_sub(self.item.header().touched_seconds())
    }

    /// Whether the staged copy still equals the item, and a copy known to be on flash is still there.
    fn is_as_staged(&self) -> bool {
        let header = self.item.header();
        self.dram.chains.head(self.item) == self.head
            && header.expiry_seconds() == self.expiry_seconds
            && (!self.is_clean || header.state().has(State::CLEAN))
    }
}

/// The result of an attempted eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    /// The item was evicted; the evictor owns the chunk.
    Gone,
    /// The item is in use.
    InUse,
    /// Flash cannot accept the item now.
    Busy,
}

impl Dram {
    /// Allocates a chunk of `class`, as a draft in the policy; evicts if necessary.
    #[inline]
    pub(super) fn take_chunk<'a, S: Spill>(
        &'a self,
        class: &'a Class,
        wanted: AllocationPurpose,
        spill: &S,
    ) -> Result<Item<'a>, AllocateError> {
        loop {
            let (item, hash) = match class.take(&self.pools, wanted, |hash| self.index.prefetch_line(hash)) {
                Taken::Free(item) => return Ok(item),
                Taken::Victim { item, hash } => (item, hash),
                Taken::Chain { parent, child } => {
                    if self.evict_chain_of(parent, child, wanted.now_seconds, spill) == Attempt::Busy {
                        return Err(AllocateError::Busy);
                    }
                    continue;
                }
                Taken::Nothing => {
                    self.take_slab_from_others(class, spill)?;
                    continue;
                }
            };
            let attempt = if S::DISCARDS {
                self.discard(item, hash)
            } else {
                self.evict(&Victim::new(self, item, hash, wanted.now_seconds), spill)
            };
            if attempt == Attempt::Gone {
                item.header().become_draft();
                return Ok(item);
            }
            self.undo_eviction(class, item, wanted);
            if attempt == Attempt::Busy {
                return Err(AllocateError::Busy);
            }
        }
    }

    #[cold]
    fn undo_eviction(&self, class: &Class, item: Item<'_>, wanted: AllocationPurpose) {
        class.undo_eviction(&self.pools, item, wanted);
        self.release(item);
    }

    /// As [`evict`](Self::evict), without a spill.
    #[inline]
    fn discard(&self, item: Item<'_>, hash: KeyHash) -> Attempt {
        let mut table = self.index.write(hash);
        let state = item.header().state();
        let (linked, references) = (state.has(State::LINKED), state.references());
        if linked && references == 2 {
            let removed = table.remove_item(item, hash);
            debug_assert!(removed, "a linked item is in the index");
        } else if linked || references != 1 {
            return Attempt::InUse;
        }
        drop(table);
        self.free_chain_if_any(state, item);
        Attempt::Gone
    }

    /// Tries to evict an item that the caller marked `EVICTING` and holds a reference to.
    pub(super) fn evict<S: Spill>(&self, victim: &Victim<'_>, spill: &S) -> Attempt {
        let item = victim.item;
        let staged = match spill.stage(victim) {
            Stage::Busy => return Attempt::Busy,
            Stage::Ready(staged) => Some(staged),
            Stage::Drop => None,
        };
        let mut table = self.index.write(victim.hash);
        let state = item.header().state();
        let (linked, references) = (state.has(State::LINKED), state.references());
        if linked && references == 2 && victim.is_as_staged() {
            let removed = table.remove_item(item, victim.hash);
            debug_assert!(removed, "a linked item is in the index");
            let copied = staged.is_some();
            match staged {
                Some(staged) => spill.commit(staged, victim),
                None => spill.dropped(victim),
            }
            drop(table);
            spill.after_eviction(victim, copied);
            self.free_chain_if_any(state, item);
            return Attempt::Gone;
        }
        drop(table);
        if let Some(staged) = staged {
            spill.abandon(staged, victim);
        }
        // Another thread removed the item, and no reader is left: it is freed.
        if !linked && references == 1 {
            self.free_chain_if_any(state, item);
            return Attempt::Gone;
        }
        Attempt::InUse
    }

    /// Ends an attempted eviction, and drops the reference that the caller has held since it marked the item `EVICTING`. If the item stays,
    /// the mark is cleared and the item enters its policy again, which may have skipped it because of the mark.
    pub(super) fn end_attempt(&self, item: Item<'_>, has_left: bool, now_seconds: u32) {
        if has_left {
            item.header().become_draft();
        } else {
            item.header().clear(State::EVICTING);
            self.pools.class_of(item.reference()).0.enter_policy(&self.pools, item, now_seconds);
        }
        self.release(item);
    }

    /// Frees the chain of an unreachable item. Called before the item's chunk is reused for a new item, which overwrites the link to the
    /// chain.
    pub(super) fn free_chain_if_any(&self, state: State, item: Item<'_>) {
        if state.has(State::CHAINED) {
            self.free_chain(item);
        }
    }
}
