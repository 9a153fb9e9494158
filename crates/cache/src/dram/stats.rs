//! Statistics of the DRAM tier.

use device::counters;
use device::counters::CounterTable;

use super::{Class, Dram, PoolId};

counters! {
    /// Statistics of one slab class of a pool. Counters start when the tier is created; other fields are current values.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct ClassStats, label "class" {
        /// Size of a chunk.
        chunk_bytes: other u32 [|mine, theirs| if mine == theirs { *mine } else { 0 }],
        /// Number of slabs.
        slabs: state u32,
        /// Number of items: visible ones, drafts, children of chains, and removed ones that are still referenced.
        items: state u64,
        /// Total size of the items, headers and keys included.
        requested_bytes: state u64,
        /// Total size of the chunks that hold items.
        allocated_bytes: state u64,
        /// Attempted allocations; a retry after an unsuccessful eviction counts again.
        allocation_attempts: sum u64,
        /// Allocations that found no free chunk, no slab and no item that could be evicted.
        allocation_failures: sum u64,
        /// Evicted items.
        evictions: sum u64,
        /// Items that the policy selected and that could not be evicted: in use, or the spill was full.
        eviction_failures: sum u64,
        /// Gets that hit in this class.
        hits: sum u64,
        /// Seconds since the last use of the next victim; `None` if there is none.
        tail_age_seconds: other Option<u32> [|mine, theirs| *mine.max(theirs)],
    }
}

counters! {
    /// Statistics of one pool.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct PoolStats, label "pool" {
        /// The pool.
        pool: other PoolId [|mine, _theirs| *mine],
        /// Its limit of slabs.
        quota_slabs: state u32,
        /// Slabs in use.
        used_slabs: state u32,
        /// Bytes of a slab.
        slab_bytes: other u32 [|mine, theirs| *mine.max(theirs)],
        /// Its classes, by ascending chunk size.
        classes: part Vec<ClassStats>,
    }
}

impl PoolStats {
    /// The sum of all classes; the tail age is the maximum, and the chunk size 0.
    #[must_use]
    pub fn total(&self) -> ClassStats {
        self.classes.iter().fold(ClassStats::default(), CounterTable::plus)
    }

    /// The share of the pool's memory that chunks of items take: allocated bytes ÷ (quota × slab bytes).
    #[must_use]
    pub fn used_fraction(&self) -> f64 {
        let capacity_bytes = u64::from(self.quota_slabs) * u64::from(self.slab_bytes);
        self.total().allocated_bytes as f64 / capacity_bytes as f64
    }
}

counters! {
    /// Memory of the DRAM tier.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct MemoryStats {
        /// Slabs, in use or not.
        arena_bytes: state u64,
        /// Slabs in use; only these cost memory.
        used_slab_bytes: state u64 [listed_as "dram_used_slab_bytes"],
        /// Hash tables.
        index_bytes: state u64 [listed_as "dram_index_bytes"],
        /// Memory of the policies: `bytes_per_slot` for every chunk of every slab in use.
        policy_bytes: state u64,
    }
}

impl Dram {
    /// Statistics of all pools.
    #[must_use]
    pub fn stats(&self) -> Vec<PoolStats> {
        let pools = 0..self.pools.layout.quotas.len() as u8;
        pools.map(|pool| self.pool_stats(PoolId(pool))).collect()
    }

    /// Statistics of one pool.
    ///
    /// # Panics
    /// If the pool does not exist.
    #[must_use]
    pub fn pool_stats(&self, pool: PoolId) -> PoolStats {
        PoolStats {
            pool,
            quota_slabs: self.pools.quota(pool),
            used_slabs: self.pools.slabs_used(pool),
            slab_bytes: self.pools.arena.slab_bytes(),
            classes: self.pools.classes_of(pool).iter().map(|class| self.class_stats(class)).collect(),
        }
    }

    pub(super) fn class_stats(&self, class: &Class) -> ClassStats {
        let hits = self.hits.sum(class.index.into());
        let now_seconds = self.now_seconds();
        let inner = class.lock();
        let counters = inner.counters;
        let oldest = inner.oldest(class);
        ClassStats {
            chunk_bytes: class.chunk_bytes,
            slabs: counters.slabs,
            items: counters.items,
            requested_bytes: counters.requested_bytes,
            allocated_bytes: counters.items * u64::from(class.chunk_bytes),
            allocation_attempts: counters.allocation_attempts,
            allocation_failures: counters.allocation_failures,
            evictions: counters.evictions,
            eviction_failures: counters.eviction_failures,
            hits,
            tail_age_seconds: oldest.map(|item| now_seconds.saturating_sub(item.header().touched_seconds())),
        }
    }

    /// Hits, summed over all classes.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.pools.classes.iter().map(|class| self.hits.sum(class.index.into())).sum()
    }

    /// Number of items in the index.
    #[must_use]
    pub fn len(&self) -> usize {
        (0..self.index.shard_count()).map(|shard| self.index.read_shard(shard).len()).sum()
    }

    /// Whether the index is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory of the tier.
    #[must_use]
    pub fn memory(&self) -> MemoryStats {
        let of_class = |class: &Class| {
            let slabs = u64::from(class.lock().counters.slabs);
            (slabs * u64::from(self.pools.arena.slab_bytes()), slabs * u64::from(class.chunks_per_slab))
        };
        let tables = self.pools.classes.iter().map(|class| class.chunks.table_bytes());
        let used = self.pools.classes.iter().map(of_class);
        let (used_slab_bytes, slots) = used.fold((0, 0), |(bytes, slots), (b, s)| (bytes + b, slots + s));
        MemoryStats {
            arena_bytes: self.pools.arena.bytes(),
            used_slab_bytes,
            index_bytes: self.index.bytes() + self.chains.bytes(),
            policy_bytes: slots * self.pools.policy_bytes_per_slot + tables.sum::<u64>(),
        }
    }
}
