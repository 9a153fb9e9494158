//! Pools, their slab classes, and the supply of slabs.
//!
//! A class divides its slabs into chunks of one size, under one eviction policy. The class lock guards the
//! free list, the policy and the `IN_POLICY` and `FREE` flags. Lock order: shard, class, supply.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use policy::marks::MOST_HITS;
use policy::{Entry, Eviction, HitRule, Slot};

use super::chunks::Chunks;
use super::config::{DramConfig, DramConfigError, Layout, PolicyFactory, PoolId};
use super::hits::{Hits, SharedHits};
use super::item::{ItemRef, State};
use super::slab::{Arena, Item, SlabUse};
use super::victims::Foreseen;
use crate::KeyHash;
use crate::sync::{Mutex, MutexGuard};

/// The arena, and the assignment of its chunks.
pub(super) struct Pools {
    pub arena: Arc<Arena>,
    pub layout: Layout,
    /// The classes of pool 0 by ascending size, then those of pool 1, and so on.
    pub classes: Box<[Class]>,
    supply: Supply,
    policy: PolicyFactory,
    pub(super) policy_bytes_per_slot: u64,
    size_table: Box<[u8]>,
}

/// One chunk size in one pool.
#[repr(align(64))]
pub(super) struct Class {
    pub pool: PoolId,
    pub index: u16,
    pub chunk_bytes: u32,
    pub chunks_per_slab: u32,
    pub(super) chunks: Arc<Chunks>,
    rule: OnceLock<HitRule>,
    hits: SharedHits,
    inner: SeparateLines<Mutex<Inner>>,
}

/// Separate cache lines: every hit reads the fields before it, and must not wait for a core that changes this one. Two lines, because
/// processors fetch them in pairs.
#[repr(align(128))]
struct SeparateLines<T>(T);

/// State guarded by the class lock.
#[derive(Default)]
pub(super) struct Inner {
    pub(super) policy: Option<Box<dyn Eviction>>,
    pub(super) free_head: Option<ItemRef>,
    /// Slabs with chunks that were never allocated, each with the number of its first such chunk. The memory from there on was never
    /// accessed.
    pub(super) carving: Vec<(u32, u32)>,
    /// The slab that is being emptied: its chunks are no longer allocated.
    pub(super) releasing: Option<Releasing>,
    /// The likely next victim. Forgotten when any chunk of the class is freed, after which its slot may have another item.
    pub(super) foreseen: Option<Foreseen>,
    pub counters: ClassCounters,
}

/// Counters of one class, kept under its lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ClassCounters {
    pub slabs: u32,
    pub items: u64,
    pub requested_bytes: u64,
    pub allocation_attempts: u64,
    pub allocation_failures: u64,
    pub evictions: u64,
    pub eviction_failures: u64,
}

/// A slab that is being released by its class.
#[derive(Debug, Clone, Copy)]
pub(super) struct Releasing {
    pub slab: u32,
    /// Number of chunks that were ever allocated; the memory behind them was never accessed.
    pub carved: u32,
}

/// Unassigned slabs, and the number of slabs of each pool.
struct Supply {
    state: Mutex<SupplyState>,
    /// Whether a pool was found to have no slab left, and none was returned since. Changed under the lock. Every insert that evicts reads
    /// this first, and so avoids a lock that all classes share.
    spent: Vec<AtomicBool>,
    quotas: Vec<u32>,
    releases: Vec<Mutex<()>>,
}

struct SupplyState {
    free: Vec<u32>,
    used: Vec<u32>,
}

/// The purpose of an allocation.
#[derive(Debug, Clone, Copy)]
pub(super) struct AllocationPurpose {
    pub entry: Entry,
    pub bytes: u64,
    pub now_seconds: u32,
}

/// The result of taking a chunk from a class.
pub(super) enum Taken<'a> {
    /// A chunk that is a draft already.
    Free(Item<'a>),
    /// An item to be evicted. The caller holds a reference, and the policy already has the chunk's slot for the new entry.
    Victim {
        /// The item.
        item: Item<'a>,
        /// The hash of its key.
        hash: KeyHash,
    },
    /// A child of a chain to be evicted. The caller holds a reference to the parent, and the child is not in the policy.
    Chain {
        /// The parent of the chain.
        parent: Item<'a>,
        /// The chosen child.
        child: Item<'a>,
    },
    /// Nothing: no free chunk, no slab, and no item that can be evicted.
    Nothing,
}

impl<'a> Taken<'a> {
    /// An item that the caller references.
    pub(super) fn victim(pools: &Pools, item: Item<'a>) -> Self {
        Self::Victim { item, hash: pools.arena.hash_of(item.key()) }
    }
}

impl Pools {
    /// The policy's entry of an item that is already linked.
    pub(super) fn entry_of(&self, item: Item<'_>) -> Entry {
        let is_child = item.header().state().has(State::CHILD);
        let of_key = || self.arena.hash_of(item.key()).0;
        let hash = if is_child { KeyHash(item.reference().0.into()).remix() } else { of_key() };
        Entry { hash, weight: 1 }
    }

    pub(super) fn new(config: &DramConfig) -> Result<Self, DramConfigError> {
        let layout = Layout::of(config)?;
        let bytes = u64::from(layout.slab_count) * u64::from(layout.slab_bytes);
        let arena = Arena::new(layout.slab_count, layout.slab_bytes, layout.chunk_bits)
            .map_err(|source| DramConfigError::Map { bytes, source })?;
        let arena = Arc::new(arena);
        let pools = 0..layout.quotas.len() as u8;
        let sizes = || layout.sizes.iter().copied();
        let cells = pools.flat_map(|pool| sizes().map(move |size| (PoolId(pool), size)));
        let slabs_at_most = |pool: PoolId| layout.quotas[usize::from(pool.0)];
        let class = |(index, (pool, size))| {
            Class::new(pool, index as u16, Chunks::new(Arc::clone(&arena), size, slabs_at_most(pool)))
        };
        let classes = cells.enumerate().map(class).collect();
        let supply = Supply::new(&layout);
        let size_table = size_table(&layout.sizes);
        let policy = config.policy.clone();
        let policy_bytes_per_slot = config.policy_bytes_per_slot();
        Ok(Self { arena, classes, supply, policy, policy_bytes_per_slot, size_table, layout })
    }

    /// The class for items of `item_bytes` in `pool`; `None` if no chunk is that large.
    #[inline]
    pub(super) fn class_for(&self, pool: PoolId, item_bytes: usize) -> Option<&Class> {
        let sizes = &self.layout.sizes;
        let first = *self.size_table.get(item_bytes / SIZE_STEP)? as usize;
        let class = first + sizes[first..].iter().position(|&size| size as usize >= item_bytes)?;
        Some(&self.classes[usize::from(pool.0) * sizes.len() + class])
    }

    /// The class of an item's slab, and the item's slot in its policy.
    #[inline]
    pub(super) fn class_of(&self, reference: ItemRef) -> (&Class, Slot) {
        self.class_in_slab(reference, self.arena.slab_use(self.arena.slab_of(reference)))
    }

    /// As [`class_of`](Self::class_of), if the use of the slab is known.
    #[inline]
    pub(super) fn class_in_slab(&self, reference: ItemRef, slab_use: SlabUse) -> (&Class, Slot) {
        let class = &self.classes[usize::from(slab_use.class)];
        (class, class.chunks.slot(slab_use.ordinal, self.arena.chunk_of(reference)))
    }

    /// Frees a chunk whose last reference was dropped.
    #[cold]
    pub(super) fn free(&self, item: Item<'_>) {
        let (class, _) = self.class_of(item.reference());
        class.lock().free(self, class, item);
    }

    /// The classes of a pool, by ascending size.
    pub(super) fn classes_of(&self, pool: PoolId) -> &[Class] {
        let sizes = self.layout.sizes.len();
        &self.classes[usize::from(pool.0) * sizes..][..sizes]
    }

    /// Returns an emptied slab to the pool.
    pub(super) fn give_back(&self, pool: PoolId, slab: u32) {
        self.supply.give_back(pool, slab);
    }

    /// Serializes slab releases within a pool.
    pub(super) fn one_release(&self, pool: PoolId) -> MutexGuard<'_, ()> {
        self.supply.releases[usize::from(pool.0)].lock()
    }

    pub(super) fn quota(&self, pool: PoolId) -> u32 {
        self.supply.quotas[usize::from(pool.0)]
    }

    pub(super) fn slabs_used(&self, pool: PoolId) -> u32 {
        self.supply.state.lock().used[usize::from(pool.0)]
    }
}

const SIZE_STEP: usize = 64;

/// For each multiple of 64 bytes, the first class of at least that size. The class for a size is that one or a few further.
fn size_table(sizes: &[u32]) -> Box<[u8]> {
    let largest = *sizes.last().expect("a layout has sizes") as usize;
    let first_at =
        |bytes: usize| sizes.iter().position(|&size| size as usize >= bytes).unwrap_or(sizes.len() - 1);
    (0..=largest / SIZE_STEP).map(|step| first_at(step * SIZE_STEP) as u8).collect()
}

impl Supply {
    fn new(layout: &Layout) -> Self {
        let free = (0..layout.slab_count).rev().collect();
        let state = SupplyState { free, used: vec![0; layout.quotas.len()] };
        let releases = layout.quotas.iter().map(|_| Mutex::new(())).collect();
        let spent = layout.quotas.iter().map(|_| AtomicBool::new(false)).collect();
        Self { state: Mutex::new(state), spent, quotas: layout.quotas.clone(), releases }
    }

    /// Whether the pool has no slab left, as far as is known without the lock.
    #[inline]
    fn is_spent(&self, pool: PoolId) -> bool {
        self.spent[usize::from(pool.0)].load(Ordering::Relaxed)
    }

    /// Takes an unassigned slab and counts it for the pool.
    #[cold]
    fn take(&self, pool: PoolId) -> Option<u32> {
        if self.is_spent(pool) {
            return None;
        }
        let pool = usize::from(pool.0);
        let mut state = self.state.lock();
        let slab = if state.used[pool] < self.quotas[pool] { state.free.pop() } else { None };
        match slab {
            Some(_) => state.used[pool] += 1,
            None => self.spent[pool].store(true, Ordering::Relaxed),
        }
        slab
    }

    fn give_back(&self, pool: PoolId, slab: u32) {
        let mut state = self.state.lock();
        state.used[usize::from(pool.0)] -= 1;
        state.free.push(slab);
        // Other pools, whose quota is not used up, may have found no slab either.
        self.spent.iter().for_each(|spent| spent.store(false, Ordering::Relaxed));
    }
}

impl Class {
    fn new(pool: PoolId, index: u16, chunks: Chunks) -> Self {
        let (chunk_bytes, chunks_per_slab) = (chunks.bytes_each(), chunks.per_slab());
        let chunks = Arc::new(chunks);
        let (rule, hits) = (OnceLock::new(), SharedHits::default());
        let inner = SeparateLines(Mutex::new(Inner::default()));
        Self { pool, index, chunk_bytes, chunks_per_slab, chunks, rule, hits, inner }
    }

    /// How hits are reported to the policy. A class with items has a policy.
    #[inline]
    pub(super) fn rule(&self) -> &HitRule {
        self.rule.get().unwrap_or(&HitRule::Ignore)
    }

    /// How hits are reported, in short.
    #[inline]
    pub(super) fn hits(&self) -> Hits {
        self.hits.get()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.0.lock()
    }

    /// Takes a chunk: a free one, one of a new slab, or one whose item has to be evicted first. `prefetch` is called with the keys that
    /// will be removed from the index: the likely next victim's, and that of a victim that was not foreseen.
    #[inline]
    pub(super) fn take<'a>(
        &'a self,
        pools: &'a Pools,
        wanted: AllocationPurpose,
        prefetch: impl Fn(KeyHash),
    ) -> Taken<'a> {
        let mut inner = self.lock();
        inner.counters.allocation_attempts += 1;
        let free = if inner.may_have_free_chunk(pools, self) { inner.free_chunk(pools, self) } else { None };
        if let Some(item) = free {
            return inner.fill(pools, self, item, wanted);
        }
        let Some((taken, next)) = inner.choose_victim(pools, self, wanted, &prefetch) else {
            inner.counters.allocation_failures += 1;
            return Taken::Nothing;
        };
        let foreseen = inner.foreseen;
        drop(inner);
        if let Some(item) = next {
            item.prefetch_chunk(self.chunk_bytes);
        }
        if let Some(foreseen) = foreseen {
            prefetch(foreseen.hash);
        }
        taken
    }

    /// Undoes the selection of a victim that could not be evicted: its slot belongs to the old entry again, as after a hit.
    pub(super) fn undo_eviction(&self, pools: &Pools, item: Item<'_>, wanted: AllocationPurpose) {
        let mut inner = self.lock();
        let (_, slot) = pools.class_of(item.reference());
        if item.header().clear(State::EVICTING).has(State::IN_POLICY) {
            inner.policy().remove(slot);
        }
        inner.policy().restore(slot, pools.entry_of(item), wanted.now_seconds);
        item.header().set(State::IN_POLICY);
        inner.counters.evictions -= 1;
        inner.counters.eviction_failures += 1;
        inner.counters.requested_bytes += item.header().item_bytes();
        inner.counters.requested_bytes -= wanted.bytes;
    }

    /// Inserts an item into its policy that was removed from it while it was a draft.
    #[cold]
    pub(super) fn enter_policy(&self, pools: &Pools, item: Item<'_>, now_seconds: u32) {
        let mut inner = self.lock();
        let state = item.header().state();
        if state.has(State::LINKED) && !state.has(State::IN_POLICY | State::EVICTING) {
            let (_, slot) = pools.class_of(item.reference());
            inner.policy().insert(slot, pools.entry_of(item), now_seconds);
            item.header().set(State::IN_POLICY);
        }
    }

    /// Reports a hit to the policy, if it still has the item.
    pub(super) fn hit(&self, pools: &Pools, item: Item<'_>, now_seconds: u32) {
        let (_, slot) = pools.class_of(item.reference());
        let mut inner = self.lock();
        if item.header().state().has(State::IN_POLICY) {
            inner.policy().hit(slot, now_seconds);
        }
    }
}

impl Inner {
    /// Gives a free chunk to a new entry.
    #[inline(never)]
    fn fill<'a>(
        &mut self,
        pools: &'a Pools,
        class: &Class,
        item: Item<'a>,
        wanted: AllocationPurpose,
    ) -> Taken<'a> {
        item.header().set_state(State::DRAFT | State::IN_POLICY, 1);
        let (_, slot) = pools.class_of(item.reference());
        self.policy().insert(slot, wanted.entry, wanted.now_seconds);
        self.counters.items += 1;
        self.counters.requested_bytes += wanted.bytes;
        // Memory that was never accessed has no pages to prefetch.
        if let Some(next) = self.free_head {
            pools.arena.item(next).prefetch_chunk(class.chunk_bytes);
        }
        Taken::Free(item)
    }

    pub(super) fn policy(&mut self) -> &mut dyn Eviction {
        &mut **self.policy.as_mut().expect("a class gets its policy with its first slab")
    }

    pub(super) fn free_chunk<'a>(&mut self, pools: &'a Pools, class: &Class) -> Option<Item<'a>> {
        if let Some(head) = self.free_head {
            let item = pools.arena.item(head);
            let next = item.header().next_free();
            self.free_head = (next != ItemRef::NONE).then_some(next);
            return Some(item);
        }
        if !self.has_free_chunk(pools, class) {
            return None;
        }
        let (slab, next) = self.carving.last_mut()?;
        let item = pools.arena.item(pools.arena.reference(*slab, *next));
        *next += 1;
        if *next == class.chunks_per_slab {
            self.carving.pop();
        }
        Some(item)
    }

    /// Whether [`free_chunk`](Self::free_chunk) may return one. `false` is certain, and in a full class takes three loads.
    #[inline]
    fn may_have_free_chunk(&self, pools: &Pools, class: &Class) -> bool {
        self.free_head.is_some() || !self.carving.is_empty() || !pools.supply.is_spent(class.pool)
    }

    /// Whether there is a free chunk, if necessary in a slab that the pool had not assigned.
    pub(super) fn has_free_chunk(&mut self, pools: &Pools, class: &Class) -> bool {
        if self.free_head.is_some() || !self.carving.is_empty() {
            return true;
        }
        let slab = pools.supply.take(class.pool);
        slab.inspect(|&slab| self.assign_slab(pools, class, slab)).is_some()
    }

    /// Assigns a slab of the pool to the class.
    #[cold]
    pub(super) fn assign_slab(&mut self, pools: &Pools, class: &Class, slab: u32) {
        if self.policy.is_none() {
            let mut policy = (pools.policy)();
            policy.keep_marks_in(Arc::clone(&class.chunks) as _);
            let rule = policy.hit_rule();
            if let HitRule::Mark { marks, at_most } = &rule {
                assert!(*at_most <= MOST_HITS, "a policy counts {at_most} hits in marks of {MOST_HITS}");
                let (reported, kept) = (Arc::as_ptr(marks).cast::<()>(), Arc::as_ptr(&class.chunks).cast());
                assert_eq!(
                    reported, kept,
                    "a policy that counts hits in marks must use the marks of its class"
                );
            }
            class.hits.set(&rule);
            let _ = class.rule.set(rule);
            self.policy = Some(policy);
        }
        let ordinal = class.chunks.add(slab);
        pools
            .arena
            .set_slab_use(slab, SlabUse { chunk_bytes: class.chunk_bytes, class: class.index, ordinal });
        self.carving.push((slab, 0));
        self.counters.slabs += 1;
        self.update_capacity(class);
    }

    /// Number of chunks that can be allocated without an eviction.
    pub(super) fn free_chunks(&self, class: &Class) -> u64 {
        u64::from(self.counters.slabs) * u64::from(class.chunks_per_slab) - self.counters.items
    }

    /// The next victim of the policy, if it knows it.
    pub(super) fn oldest<'a>(&self, class: &'a Class) -> Option<Item<'a>> {
        let slot = self.policy.as_ref()?.oldest()?;
        Some(class.chunks.item(slot))
    }

    /// Sets the policy's capacity in chunks, without those of a slab that is being released.
    pub(super) fn update_capacity(&mut self, class: &Class) {
        let slabs = self.counters.slabs - u32::from(self.releasing.is_some());
        let capacity = u64::from(slabs) * u64::from(class.chunks_per_slab);
        self.policy().set_capacity(capacity);
    }

    /// Whether the policy has no items.
    pub(super) fn is_without_items(&self) -> bool {
        self.policy.as_ref().is_none_or(|policy| policy.is_empty())
    }

    /// Puts a chunk on the free list.
    pub(super) fn free(&mut self, pools: &Pools, class: &Class, item: Item<'_>) {
        self.counters.items -= 1;
        self.counters.requested_bytes -= item.header().item_bytes();
        self.foreseen = None;
        if item.header().state().has(State::IN_POLICY) {
            let (_, slot) = pools.class_of(item.reference());
            self.policy().remove(slot);
        }
        item.header().set_state(State::FREE, 0);
        debug_assert_eq!(pools.class_of(item.reference()).0.index, class.index);
        if !self.is_releasing(pools, item) {
            self.push_free(item);
        }
    }

    pub(super) fn push_free(&mut self, item: Item<'_>) {
        item.header().set_next_free(self.free_head.unwrap_or(ItemRef::NONE));
        self.free_head = Some(item.reference());
    }

    pub(super) fn is_releasing(&self, pools: &Pools, item: Item<'_>) -> bool {
        self.releasing.is_some_and(|releasing| releasing.slab == pools.arena.slab_of(item.reference()))
    }
}
