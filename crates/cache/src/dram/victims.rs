//! The choice of a class's next victim, under the class lock.

use policy::Slot;

use super::children::parent_of;
use super::item::State;
use super::pools::{AllocationPurpose, Class, Inner, Pools, Taken};
use super::slab::Item;
use crate::KeyHash;

/// Limit of items in use that an insert examines under the class's lock before it fails. If one item in a hundred can be evicted, this
/// fails once in 30,000 inserts; the policy then continues with other items.
const MOST_TRIES: usize = 1024;

/// A linked item that will probably be evicted next. Its index entry was prefetched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Foreseen {
    slot: Slot,
    /// The hash of its key.
    pub hash: KeyHash,
}

/// A victim or chain, and the item that will probably be the next victim.
type Chosen<'a> = (Taken<'a>, Option<Item<'a>>);

impl Inner {
    /// Asks the policy for victims until one is unreferenced.
    #[inline]
    pub(super) fn choose_victim<'a>(
        &mut self,
        pools: &'a Pools,
        class: &'a Class,
        wanted: AllocationPurpose,
        prefetch: &impl Fn(KeyHash),
    ) -> Option<Chosen<'a>> {
        let slot = self.policy.as_mut()?.evict_for(wanted.entry, wanted.now_seconds)?;
        let chosen = self.claim(pools, class, slot, wanted, prefetch);
        chosen.or_else(|| self.choose_further(pools, class, slot, wanted))
    }

    /// Continues [`choose_victim`](Self::choose_victim) after the item in `slot` could not be claimed.
    #[cold]
    fn choose_further<'a>(
        &mut self,
        pools: &'a Pools,
        class: &'a Class,
        mut slot: Slot,
        wanted: AllocationPurpose,
    ) -> Option<Chosen<'a>> {
        // Policies select an item that can be evicted before they have selected each item twice.
        let tries = (2 * (self.policy().len() + 1)).min(MOST_TRIES);
        for tried in 1..=tries {
            let item = class.chunks.item(slot);
            if let Some(chain) = self.skip_unevictable(pools, item, slot, wanted.now_seconds) {
                return Some((chain, None));
            }
            if tried < tries {
                slot = self.policy().evict(wanted.now_seconds)?;
                let chosen = self.claim(pools, class, slot, wanted, &|_| {});
                if chosen.is_some() {
                    return chosen;
                }
            }
        }
        None
    }

    /// Marks the item in `slot` for eviction, unless it is in use, or cannot be evicted alone. Its slot is given to the new entry
    /// immediately, which saves a second lock acquisition after the item is unlinked.
    #[inline]
    fn claim<'a>(
        &mut self,
        pools: &'a Pools,
        class: &'a Class,
        slot: Slot,
        wanted: AllocationPurpose,
        prefetch: &impl Fn(KeyHash),
    ) -> Option<Chosen<'a>> {
        let item = class.chunks.item(slot);
        let seen = item.header().state();
        // `IN_POLICY` stays set, because the slot belongs to the new entry.
        let is_plain = !seen.has(State::CHILD) && !self.is_releasing(pools, item);
        if !is_plain || !item.header().begin_eviction_of(seen) {
            return None;
        }
        let hash = match self.foreseen.filter(|foreseen| foreseen.slot == slot) {
            Some(foreseen) => foreseen.hash,
            None => {
                let hash = pools.arena.hash_of(item.key());
                prefetch(hash);
                hash
            }
        };
        debug_assert_eq!(
            hash,
            pools.arena.hash_of(item.key()),
            "a chunk was reused since its item was foreseen"
        );
        let next = self.policy().insert_and_foresee(slot, wanted.entry, wanted.now_seconds);
        self.counters.evictions += 1;
        self.counters.requested_bytes += wanted.bytes;
        self.counters.requested_bytes -= item.header().item_bytes();
        let next = next.map(|slot| (slot, class.chunks.item(slot)));
        self.foreseen = next.and_then(|(slot, item)| {
            item.linked_key().map(|key| Foreseen { slot, hash: pools.arena.hash_of(key) })
        });
        Some((Taken::Victim { item, hash }, next.map(|(_, item)| item)))
    }

    /// Handles a selected item that cannot be evicted alone: it leaves the policy, or is reinserted as after a hit.
    #[cold]
    fn skip_unevictable<'a>(
        &mut self,
        pools: &'a Pools,
        item: Item<'a>,
        slot: Slot,
        now_seconds: u32,
    ) -> Option<Taken<'a>> {
        let state = item.header().clear(State::IN_POLICY);
        if state.references() == 0 || !state.has(State::LINKED) || state.has(State::EVICTING) {
            // Already being evicted, or a draft: its owner reinserts it if necessary.
            return None;
        }
        if self.is_releasing(pools, item) {
            return None;
        }
        if state.has(State::CHILD) {
            let parent = parent_of(&pools.arena, item);
            if parent.header().begin_eviction() {
                return Some(Taken::Chain { parent, child: item });
            }
        }
        self.policy().restore(slot, pools.entry_of(item), now_seconds);
        item.header().set(State::IN_POLICY);
        self.counters.eviction_failures += 1;
        None
    }

    /// The policy's next victim, removed from the policy and marked as leaving; [`Taken::Nothing`] if it is in use.
    pub(super) fn take_victim<'a>(
        &mut self,
        pools: &'a Pools,
        class: &'a Class,
        now_seconds: u32,
    ) -> Option<Taken<'a>> {
        let slot = self.policy.as_mut()?.evict(now_seconds)?;
        let item = class.chunks.item(slot);
        let seen = item.header().state();
        if !seen.has(State::CHILD) && item.header().begin_eviction_of(seen) {
            item.header().clear(State::IN_POLICY);
            return Some(Taken::victim(pools, item));
        }
        Some(self.skip_unevictable(pools, item, slot, now_seconds).unwrap_or(Taken::Nothing))
    }
}
