//! What a region store has done, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

/// Declares the counters twice, from one list: as the atomics that count, and as the plain numbers that are shown.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counts since the store was created or restored.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct RegionStats { $($(#[$doc])* pub $name: u64),* }

        impl std::ops::AddAssign for RegionStats {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }

        #[derive(Default)]
        pub(crate) struct Counters { $(pub(crate) $name: AtomicU64),* }

        impl Counters {
            pub(crate) fn snapshot(&self) -> RegionStats {
                RegionStats { $($name: self.$name.load(Ordering::Relaxed)),* }
            }
        }
    };
}

counters! {
    /// Items committed, reinserted ones not included.
    inserts,
    /// Their keys and values, bytes.
    inserted_bytes,
    /// Of these, bytes whose region has left memory: written, or lost to failed writes.
    settled_bytes,
    /// Of these, those lost to failed writes.
    unwritten_bytes,
    /// Bytes written for regions that have left memory: `written_bytes` without the regions being written.
    settled_written_bytes,
    /// Items committed whose region could not be written, dead ones too.
    unwritten_items,
    /// Items brought back by a restart.
    items_restored,
    /// Items that a restart could not bring back: their region's table was damaged.
    items_unrestored,
    /// Items staged and then abandoned: dead space.
    abandoned,
    /// Commits that replaced an item with the same key, or with the same hash bits in the index.
    overwritten,
    /// Items forgotten on request.
    forgotten,
    /// Insertions refused because no buffer or no clean region was free.
    refused_full,
    /// Insertions refused because the item is larger than a region holds.
    refused_too_large,
    /// Lookups.
    reads,
    /// Reads that found their item.
    hits,
    /// Of these: from a region that had not left memory.
    hits_in_memory,
    /// Reads that found another key: the index took two hashes for one.
    wrong_key,
    /// Reads that found their item past its time.
    expired,
    /// Reads that had to look again because the region was reclaimed meanwhile.
    read_retries,
    /// Entries whose header or key was damaged.
    header_checksum_errors,
    /// Entries whose value was damaged.
    value_checksum_errors,
    /// Regions whose table was damaged.
    table_checksum_errors,
    /// Reads of entries that the device failed.
    read_errors,
    /// Bytes read to serve reads.
    read_bytes,
    /// Regions flushed.
    regions_flushed,
    /// Bytes written.
    written_bytes,
    /// Of these, bytes of entries: header, key, value.
    written_entry_bytes,
    /// Bytes of regions that stayed empty, between entries and table.
    hole_bytes,
    /// Writes that the device failed.
    write_errors,
    /// Regions whose content was lost to failed writes.
    regions_lost,
    /// Region writes that failed and were put off to be made again.
    flushes_postponed,
    /// Regions taken out of service because they failed repeatedly while others could be written.
    regions_retired,
    /// Retired regions returned to service, because a test write succeeded.
    regions_returned,
    /// Regions reclaimed.
    regions_reclaimed,
    /// Bytes read to reclaim.
    reclaim_read_bytes,
    /// Live items that left with their region.
    evictions,
    /// Live items that left with their region, past their time.
    evicted_expired,
    /// Live items written again when their region was reclaimed.
    reinsertions,
    /// Keys and values written again, bytes.
    reinserted_bytes,
    /// Items that were to be written again and could not: no room, too much of the region already, damage, failed reads.
    reinsertions_failed,
    /// Items dropped because they or their region were damaged, could not be read to be written again, or were not written.
    items_lost,
    /// Trims that the device failed.
    trim_errors,
    /// Items given a higher place in the queue by a hit, where items have places.
    raises,
    /// Regions moved from the end of the queue to its head, too many of their items being in use.
    regions_deferred,
    /// Regions reclaimed out of turn, while much was being written again, because they needed little of it.
    cold_victims,
    /// Regions reclaimed early because most of their bytes were dead; their live items were rewritten.
    compactions,
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

    /// Keys and values that wait in memory: `inserted_bytes - settled_bytes`.
    #[must_use]
    pub fn waiting_bytes(&self) -> u64 {
        // An item may be settled before it is counted.
        self.inserted_bytes.saturating_sub(self.settled_bytes)
    }
}

/// Memory that a region store takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// The index: records, spare room, headers.
    pub index_bytes: usize,
    /// Region buffers, allocated or yet to be.
    pub buffer_bytes: usize,
    /// A small record per region, and the policy's state of regions and virtual blocks.
    pub region_bytes: usize,
}

impl Memory {
    /// All of it.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.index_bytes + self.buffer_bytes + self.region_bytes
    }
}
