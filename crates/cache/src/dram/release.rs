//! Empties a slab: each of its items is moved to another chunk of its class, or evicted.
//!
//! First the class stops allocating the slab's chunks, then each item is evicted by the same protocol as any victim. Referenced items are
//! retried; if they are still referenced after a few rounds, the slab is returned to its class.
//!
//! A class that gives up a slab holds fewer items. If items may move, the policy selects the victims: while no chunk is free, the policy's
//! next victim is evicted from any slab, and if that was another slab, an item moves into its chunk. The number of evictions is the same
//! as without moving, but the class loses its coldest items instead of the items in the slab.

use super::children::parent_of;
use super::evict::{Attempt, Spill, Victim};
use super::item::State;
use super::pools::{Class, Inner, Pools, Releasing};
use super::slab::Item;
use super::{AllocateError, Dram};

/// Rounds over the items of a slab before its release is given up.
const ROUNDS: u32 = 3;

/// Numbers of moved and evicted items during the release of a slab.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReleaseStats {
    /// Attempted moves.
    pub move_attempts: u64,
    /// Successful moves.
    pub moves: u64,
    /// Attempted evictions: of items in the slab, and of others to free chunks for those.
    pub eviction_attempts: u64,
    /// Successful evictions of both kinds.
    pub evictions: u64,
}

impl ReleaseStats {
    fn count_eviction(&mut self, attempt: Attempt) {
        self.eviction_attempts += 1;
        self.evictions += u64::from(attempt == Attempt::Gone);
    }
}

/// The state of a slab's release.
struct Release {
    releasing: Releasing,
    move_items: bool,
    /// Limit of further victims to request from the policy. It is needed because victims may be in use, and other threads may take the
    /// freed chunks.
    victims_left: u32,
    stats: ReleaseStats,
}

/// The contents of a chunk in a slab that is being released.
enum ChunkContents<'a> {
    Empty,
    /// An item marked `EVICTING`, with one reference more, removed from the policy.
    Leaving(Item<'a>),
    /// A child. Its parent is marked `EVICTING` and has one reference more.
    Child {
        parent: Item<'a>,
        child: Item<'a>,
    },
    /// Referenced by a reader.
    InUse,
}

impl Dram {
    /// Takes a slab for a class without one from the class with the most slabs in its pool.
    #[cold]
    pub(super) fn take_slab_from_others<S: Spill>(
        &self,
        class: &Class,
        spill: &S,
    ) -> Result<(), AllocateError> {
        let _one_at_a_time = self.pools.one_release(class.pool);
        if class.lock().free_chunks(class) > 0
            || self.pools.slabs_used(class.pool) < self.pools.quota(class.pool)
        {
            return Ok(()); // Another thread's release provided a slab in the meantime.
        }
        let mut donors: Vec<_> = self.pools.classes_of(class.pool).iter().collect();
        donors.retain(|donor| donor.index != class.index && donor.lock().counters.slabs > 0);
        donors.sort_by_key(|donor| std::cmp::Reverse(donor.lock().counters.slabs));
        let mut refusal = AllocateError::NoMemory;
        for donor in donors {
            match self.release_slab(donor, false, spill) {
                (Ok(slab), _) => {
                    class.lock().assign_slab(&self.pools, class, slab);
                    return Ok(());
                }
                (Err(AllocateError::Busy), _) => refusal = AllocateError::Busy,
                (Err(_), _) => {}
            }
        }
        Err(refusal)
    }

    /// Empties a slab of `class` and removes it from the class: the slab of the policy's next victim.
    /// The caller holds the pool's [`Pools::one_release`].
    pub(super) fn release_slab<S: Spill>(
        &self,
        class: &Class,
        move_items: bool,
        spill: &S,
    ) -> (Result<u32, AllocateError>, ReleaseStats) {
        let Some(releasing) = class.lock().begin_release(&self.pools, class) else {
            return (Err(AllocateError::NoMemory), ReleaseStats::default());
        };
        let victims_left = 2 * releasing.carved;
        let mut release = Release { releasing, move_items, victims_left, stats: ReleaseStats::default() };
        let mut last = Attempt::InUse;
        for _ in 0..ROUNDS {
            last = self.empty_slab(class, &mut release, spill);
            if last != Attempt::InUse {
                break;
            }
        }
        let done = class.lock().end_release(&self.pools, class, releasing, self.now_seconds());
        let refusal = if last == Attempt::Busy { AllocateError::Busy } else { AllocateError::NoMemory };
        (if done { Ok(releasing.slab) } else { Err(refusal) }, release.stats)
    }

    /// One round over the chunks of a slab: `Gone` if all are free, `Busy` as soon as the spill is.
    fn empty_slab<S: Spill>(&self, class: &Class, release: &mut Release, spill: &S) -> Attempt {
        let mut round = Attempt::Gone;
        let releasing = release.releasing;
        for chunk in 0..releasing.carved {
            if release.move_items && self.make_room_for(class, chunk, release, spill) == Attempt::Busy {
                return Attempt::Busy;
            }
            let contents = class.lock().contents(&self.pools, releasing, chunk);
            let attempt = match contents {
                ChunkContents::Empty => Attempt::Gone,
                ChunkContents::InUse => Attempt::InUse,
                ChunkContents::Leaving(item) => self.move_or_evict(class, item, item, release, spill),
                ChunkContents::Child { parent, child } => {
                    self.move_or_evict(class, parent, child, release, spill)
                }
            };
            match attempt {
                Attempt::Gone => {}
                Attempt::InUse => round = Attempt::InUse,
                Attempt::Busy => return Attempt::Busy,
            }
        }
        round
    }

    /// Evicts the policy's victims until a chunk is free for the item in this one, or until that item is the victim.
    fn make_room_for<S: Spill>(
        &self,
        class: &Class,
        chunk: u32,
        release: &mut Release,
        spill: &S,
    ) -> Attempt {
        let now_seconds = self.now_seconds();
        while release.victims_left > 0
            && class.lock().lacks_room_for(&self.pools, class, release.releasing, chunk, now_seconds)
        {
            release.victims_left -= 1;
            let Some(attempt) = self.evict_next(class, spill) else { break };
            release.stats.count_eviction(attempt);
            if attempt == Attempt::Busy {
                return Attempt::Busy;
            }
        }
        Attempt::Gone
    }

    /// Moves or evicts the contents of a chunk: an item, or a child with its parent. The caller marked the item `EVICTING` and holds a
    /// reference to it.
    fn move_or_evict<S: Spill>(
        &self,
        class: &Class,
        item: Item<'_>,
        contents: Item<'_>,
        release: &mut Release,
        spill: &S,
    ) -> Attempt {
        let now_seconds = self.now_seconds();
        let victim = Victim::new(self, item, self.hash_of(item.key()), now_seconds);
        let is_child = contents.reference() != item.reference();
        let chunk = if release.move_items {
            class.lock().chunk_for_move(&self.pools, class, contents, now_seconds)
        } else {
            None
        };
        let (attempt, item_left) = if let Some(chunk) = chunk {
            let attempt = match is_child {
                true => self.move_child(&victim, item, contents, chunk),
                false => self.move_item(&victim, item, chunk),
            };
            release.stats.move_attempts += 1;
            release.stats.moves += u64::from(attempt == Attempt::Gone);
            (attempt, attempt == Attempt::Gone && !is_child)
        } else {
            let attempt = self.evict(&victim, spill);
            release.stats.count_eviction(attempt);
            class.lock().counters.evictions += u64::from(attempt == Attempt::Gone);
            (attempt, attempt == Attempt::Gone)
        };
        self.end_attempt(item, item_left, now_seconds);
        attempt
    }

    /// Copies an item to `chunk`, a draft, and redirects the index entry to it.
    fn move_item(&self, victim: &Victim<'_>, old: Item<'_>, mut chunk: Item<'_>) -> Attempt {
        let header = old.header();
        chunk.header().describe(
            header.key_len() as u16,
            header.value_len() as u32,
            header.expiry_seconds(),
            header.touched_seconds(),
        );
        chunk.write_key(old.key());
        chunk.value_mut().copy_from_slice(old.value());
        let mut table = self.index.write(victim.hash());
        let state = header.state();
        if !(state.has(State::LINKED) && state.references() == 2) {
            drop(table);
            self.release(chunk);
            // If another thread removed the item and no reader is left, it is freed with its chain.
            if state.has(State::LINKED) || state.references() > 1 {
                return Attempt::InUse;
            }
            self.free_chain_if_any(state, old);
            return Attempt::Gone;
        }
        // Tag and expiry may have been changed through a handle in the meantime.
        chunk.header().set_tag(header.tag());
        chunk.header().set_expiry_seconds(header.expiry_seconds());
        if state.has(State::CHAINED) {
            self.move_chain(old, chunk);
        }
        let clean = if state.has(State::CLEAN) { State::CLEAN } else { 0 };
        let before = chunk.header().exchange(State::DRAFT, State::LINKED | clean);
        let replaced = table.replace_item(old, chunk, victim.hash());
        debug_assert!(replaced, "a linked item is in the index");
        if !before.has(State::IN_POLICY) {
            let (class, _) = self.pools.class_of(chunk.reference());
            class.enter_policy(&self.pools, chunk, self.now_seconds());
        }
        Attempt::Gone
    }
}

impl Inner {
    /// Selects the slab of the oldest item, or the last one, and stops allocating its chunks.
    fn begin_release(&mut self, pools: &Pools, class: &Class) -> Option<Releasing> {
        assert!(self.releasing.is_none(), "one release at a time in a pool");
        let oldest = self.oldest(class).map(|item| pools.arena.slab_of(item.reference()));
        let slab = oldest.or_else(|| class.chunks.last())?;
        let carving = self.carving.iter().position(|&(carved, _)| carved == slab);
        let carved = carving.map_or(class.chunks_per_slab, |at| self.carving.remove(at).1);
        let releasing = Releasing { slab, carved };
        self.releasing = Some(releasing);
        self.update_capacity(class);
        let mut next = self.free_head.take();
        while let Some(free) = next {
            let item = pools.arena.item(free);
            let after = item.header().next_free();
            next = (after != super::item::ItemRef::NONE).then_some(after);
            if !self.is_releasing(pools, item) {
                self.push_free(item);
            }
        }
        Some(releasing)
    }

    fn contents<'a>(&mut self, pools: &'a Pools, releasing: Releasing, chunk: u32) -> ChunkContents<'a> {
        let item = pools.arena.item(pools.arena.reference(releasing.slab, chunk));
        if item.header().state().has(State::FREE) {
            return ChunkContents::Empty;
        }
        if item.header().state().has(State::CHILD) {
            let linked = item.header().state().has(State::LINKED);
            let parent = linked
                .then(|| parent_of(&pools.arena, item))
                .filter(|parent| parent.header().begin_eviction());
            return parent
                .map_or(ChunkContents::InUse, |parent| ChunkContents::Child { parent, child: item });
        }
        if !item.header().begin_eviction() {
            return ChunkContents::InUse;
        }
        if item.header().clear(State::IN_POLICY).has(State::IN_POLICY) {
            let (_, slot) = pools.class_of(item.reference());
            self.policy().remove(slot);
        }
        ChunkContents::Leaving(item)
    }

    /// Whether an item of the slab could move if there were a free chunk. Items that the policy has already selected for an allocation, and
    /// expired items, are evicted anyway: no other item is evicted for them.
    fn lacks_room_for(
        &mut self,
        pools: &Pools,
        class: &Class,
        releasing: Releasing,
        chunk: u32,
        now_seconds: u32,
    ) -> bool {
        let item = pools.arena.item(pools.arena.reference(releasing.slab, chunk));
        let state = item.header().state();
        let could_move = state.has(State::LINKED) && state.has(State::IN_POLICY) && state.references() == 1;
        could_move && !item.header().is_expired(now_seconds) && !self.has_free_chunk(pools, class)
    }

    /// Allocates a chunk for an item of the same class that must move.
    fn chunk_for_move<'a>(
        &mut self,
        pools: &'a Pools,
        class: &Class,
        moved: Item<'_>,
        now_seconds: u32,
    ) -> Option<Item<'a>> {
        let item = self.free_chunk(pools, class)?;
        item.header().set_state(State::DRAFT | State::IN_POLICY, 1);
        let (_, slot) = pools.class_of(item.reference());
        self.policy().insert(slot, pools.entry_of(moved), now_seconds);
        item.header().set_marks(moved.header().marks());
        self.counters.items += 1;
        self.counters.requested_bytes += moved.header().item_bytes();
        Some(item)
    }

    /// Removes the slab from the class if it is empty, otherwise returns it to use; returns whether it was empty.
    fn end_release(&mut self, pools: &Pools, class: &Class, releasing: Releasing, now_seconds: u32) -> bool {
        self.releasing = None;
        let Releasing { slab, carved } = releasing;
        let items = || (0..carved).map(|chunk| pools.arena.item(pools.arena.reference(slab, chunk)));
        if items().all(|item| item.header().state().has(State::FREE)) {
            class.chunks.give_away(pools.arena.slab_use(slab).ordinal);
            self.counters.slabs -= 1;
            self.update_capacity(class);
            return true;
        }
        self.update_capacity(class);
        for item in items() {
            let state = item.header().state();
            if state.has(State::FREE) {
                self.push_free(item);
            } else if state.has(State::LINKED) && !state.has(State::IN_POLICY | State::EVICTING) {
                let (_, slot) = pools.class_of(item.reference());
                self.policy().insert(slot, pools.entry_of(item), now_seconds);
                item.header().set(State::IN_POLICY);
            }
        }
        if carved < class.chunks_per_slab {
            self.carving.push((slab, carved));
        }
        false
    }
}
