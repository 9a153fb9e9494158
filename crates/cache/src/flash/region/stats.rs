//! Counters of a region store.

use std::sync::atomic::{AtomicU64, Ordering};

use device::counters;

counters! {
    /// Counters since the store was created or restored. Items and waiting bytes are current values.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct RegionStats, atomics pub(crate) Counters {
        /// Items in the regions.
        items: state u64 [listed_as "navy_bc_items"],
        /// Items committed, reinserted ones not included.
        inserts: sum u64 [listed_as "navy_bc_inserts"],
        /// Lookups.
        reads: sum u64 [listed_as "navy_bc_lookups"],
        /// Lookups that found their item.
        hits: sum u64 [listed_as "navy_bc_succ_lookups"],
        /// Live items dropped when their region was reclaimed.
        evictions: sum u64 [listed_as "navy_bc_evictions"],
        /// Live items written again when their region was reclaimed.
        reinsertions: sum u64 [listed_as "navy_bc_reinsertions"],
        /// Regions reclaimed.
        regions_reclaimed: sum u64 [listed_as "navy_bc_reclaim"],
        /// Key and value bytes of the committed items.
        inserted_bytes: sum u64 [listed_as "navy_bc_logical_written"],
        /// Bytes written.
        written_bytes: sum u64 [listed_as "navy_bc_physical_written"],
        /// Bytes of regions that stayed empty, between entries and table.
        hole_bytes: sum u64 [listed_as "navy_bc_hole_bytes"],
        /// Regions flushed.
        regions_flushed: sum u64 [listed_as "navy_bc_regions_flushed"],
        /// Key and value bytes that wait in memory: `inserted_bytes - settled_bytes`.
        waiting_bytes: state u64,
        /// The part of `inserted_bytes` whose region has left memory: written, or lost to failed writes.
        settled_bytes: sum u64,
        /// The part of `inserted_bytes` that was lost to failed writes.
        unwritten_bytes: sum u64,
        /// Bytes written for regions that have left memory: `written_bytes` without the regions being written.
        settled_written_bytes: sum u64,
        /// Committed items whose region could not be written, including replaced and removed ones.
        unwritten_items: sum u64,
        /// Items recovered by a restart.
        items_restored: sum u64,
        /// Items that a restart could not recover, because the table of their region was damaged.
        items_unrestored: sum u64,
        /// Items staged and then abandoned: dead space.
        abandoned: sum u64,
        /// Commits that replaced an item with the same key, or with the same hash bits in the index.
        overwritten: sum u64,
        /// Items removed on request.
        forgotten: sum u64,
        /// Inserts refused because no buffer or no clean region was free.
        refused_full: sum u64,
        /// Inserts refused because the item is larger than a region holds.
        refused_too_large: sum u64,
        /// Hits in a region that had not left memory.
        hits_in_memory: sum u64,
        /// Lookups that read the entry of another key, because both keys share an index record.
        wrong_key: sum u64,
        /// Lookups whose item had expired.
        expired: sum u64,
        /// Lookups repeated because the region was reclaimed meanwhile.
        read_retries: sum u64,
        /// Entries whose header or key was damaged.
        header_checksum_errors: sum u64,
        /// Entries whose value was damaged.
        value_checksum_errors: sum u64,
        /// Regions whose table was damaged.
        table_checksum_errors: sum u64,
        /// Failed device reads of entries.
        read_errors: sum u64,
        /// Bytes read by lookups.
        read_bytes: sum u64,
        /// The part of `written_bytes` that is entries: header, key and value.
        written_entry_bytes: sum u64,
        /// Failed device writes.
        write_errors: sum u64,
        /// Regions whose content was lost to failed writes.
        regions_lost: sum u64,
        /// Failed region writes that were postponed.
        flushes_postponed: sum u64,
        /// Regions taken out of service because they failed repeatedly while others could be written.
        regions_retired: sum u64,
        /// Retired regions returned to service, because a test write succeeded.
        regions_returned: sum u64,
        /// Bytes read to reclaim regions.
        reclaim_read_bytes: sum u64,
        /// Evicted items that had expired.
        evicted_expired: sum u64,
        /// Key and value bytes of the reinserted items.
        reinserted_bytes: sum u64,
        /// Items that could not be reinserted: no space, share of the region exhausted, damage, or failed reads.
        reinsertions_failed: sum u64,
        /// Items lost because they or their region were damaged, could not be read for reinsertion, or were not written.
        items_lost: sum u64,
        /// Failed trims.
        trim_errors: sum u64,
        /// Items moved to a higher place in the queue by a hit.
        raises: sum u64,
        /// Regions moved from the end of the queue to its head, because too many of their items were in use.
        regions_deferred: sum u64,
        /// Regions reclaimed early, while reinsertion was high, because few of their items had to be reinserted.
        cold_victims: sum u64,
        /// Regions reclaimed early because most of their bytes were dead; their live items were rewritten.
        compactions: sum u64,
    }
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, amount: usize) {
        counter.fetch_add(amount as u64, Ordering::Relaxed);
    }

    pub(crate) fn one(counter: &AtomicU64) {
        Self::add(counter, 1);
    }
}

impl RegionStats {
    /// Bytes written per byte inserted: `written_bytes / inserted_bytes`; `None` before the first insert.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        (self.inserted_bytes > 0).then(|| self.written_bytes as f64 / self.inserted_bytes as f64)
    }
}

/// Memory of a region store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// The index: records, unused capacity, headers.
    pub index_bytes: usize,
    /// Region buffers, allocated or not yet.
    pub buffer_bytes: usize,
    /// A small record per region, and the policy's state of regions and virtual blocks.
    pub region_bytes: usize,
}
