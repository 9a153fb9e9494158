//! Counters of the cache, under Flashcache's names where it has them.

use device::counters;

counters! {
    /// Counters since the cache was opened, in Flashcache's order. `Sets` counts its decisions; the volume counts `read_invalidates` and
    /// the reads and writes of its devices.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Counters {
        /// Blocks requested by reads.
        reads: sum u64,
        /// Blocks requested by writes.
        writes: sum u64,
        /// Blocks of reads that were cached, including those whose missing sectors came from the disk.
        read_hits: sum u64,
        /// Blocks of writes that were cached.
        write_hits: sum u64,
        /// Blocks of writes that were cached and dirty.
        dirty_write_hits: sum u64,
        /// Blocks evicted for a block read.
        replacement: sum u64,
        /// Blocks evicted for a block written.
        write_replacement: sum u64,
        /// Cached blocks dropped by a write around the cache.
        write_invalidates: sum u64,
        /// Cached blocks dropped because flash could not be read.
        read_invalidates: sum u64,
        /// Blocks cleaned for any reason.
        cleanings: sum u64,
        /// Blocks cleaned because they were idle; included in `cleanings`.
        fallow_cleanings: sum u64,
        /// Blocks not cached: nothing in their set could be evicted, no flash page was free, or too many blocks were being written.
        no_room: sum u64,
        /// Blocks cleaned together with their successor on disk.
        front_merge: sum u64,
        /// Blocks cleaned together with their predecessor on disk.
        back_merge: sum u64,
        /// Reads of the disk.
        disk_reads: sum u64,
        /// Writes of the disk.
        disk_writes: sum u64,
        /// Blocks read from flash, including for cleaning and for partial writes.
        ssd_reads: sum u64,
        /// Blocks written to flash; metadata_ssd_writes has the rest.
        ssd_writes: sum u64,
        /// Blocks read around the cache.
        uncached_reads: sum u64,
        /// Blocks written around the cache.
        uncached_writes: sum u64,
        /// Blocks read around the cache as part of a long stream.
        uncached_sequential_reads: sum u64,
        /// Blocks written around the cache as part of a long stream.
        uncached_sequential_writes: sum u64,
        /// Blocks dropped because their content was discarded.
        trim_blocks: sum u64,
    }
}

impl Counters {
    /// Read hits per read in percent; 0 without reads.
    #[must_use]
    pub fn read_hit_percent(&self) -> f64 {
        percent(self.read_hits, self.reads)
    }

    /// Write hits per write in percent.
    #[must_use]
    pub fn write_hit_percent(&self) -> f64 {
        percent(self.write_hits, self.writes)
    }

    /// Writes to dirty blocks per write in percent.
    #[must_use]
    pub fn dirty_write_hit_percent(&self) -> f64 {
        percent(self.dirty_write_hits, self.writes)
    }

    /// Hits per read or write in percent.
    #[must_use]
    pub fn hit_percent(&self) -> f64 {
        percent(self.read_hits + self.write_hits, self.reads + self.writes)
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 * 100.0 }
}

/// Operations of one set, in blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetOperations {
    /// Reads and writes of cached blocks.
    pub hits: u64,
    /// Reads of other blocks.
    pub read_misses: u64,
    /// Writes of other blocks.
    pub write_misses: u64,
    /// Blocks written to the disk by cleaning.
    pub cleaned: u64,
}

/// State and counters of a set, for status displays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetView {
    /// Cached blocks.
    pub held: u32,
    /// Cached blocks that are dirty.
    pub dirty: u32,
    /// Cached blocks that are being cleaned.
    pub cleaning: u32,
    /// Operations since the cache was opened.
    pub operations: SetOperations,
}
