//! Counters of the cache, under Flashcache's names where it has them.

/// Counters since the cache was opened, in blocks unless a field says otherwise. `Sets` counts them, except those marked as counted by
/// the volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Blocks requested by reads.
    pub reads: u64,
    /// Blocks requested by writes.
    pub writes: u64,
    /// Reads of cached blocks, including those whose missing sectors came from the disk
    /// ([`disk_reads`](Self::disk_reads)).
    pub read_hits: u64,
    /// Writes of cached blocks.
    pub write_hits: u64,
    /// Writes of cached dirty blocks.
    pub dirty_write_hits: u64,
    /// Blocks evicted for a read.
    pub replacement: u64,
    /// Blocks evicted for a write.
    pub write_replacement: u64,
    /// Cached blocks dropped because a write bypassed the cache.
    pub write_invalidates: u64,
    /// Cached blocks dropped because their page could not be read. Counted by the volume.
    pub read_invalidates: u64,
    /// Blocks cleaned for any reason.
    pub cleanings: u64,
    /// Blocks cleaned because they were idle; included in `cleanings`.
    pub fallow_cleanings: u64,
    /// Blocks not inserted: no block of their set could be evicted, no page was free, or too many inserted blocks were still being
    /// written.
    pub no_room: u64,
    /// Blocks cleaned together with their successor on the disk.
    pub front_merge: u64,
    /// Blocks cleaned together with their predecessor on the disk.
    pub back_merge: u64,
    /// Read operations of the disk. Counted by the volume.
    pub disk_reads: u64,
    /// Write operations of the disk. Counted by the volume.
    pub disk_writes: u64,
    /// Blocks read from flash, including for cleaning and for partial writes. Counted by the volume.
    pub ssd_reads: u64,
    /// Blocks written to flash. Counted by the volume.
    pub ssd_writes: u64,
    /// Blocks read from the disk without caching them.
    pub uncached_reads: u64,
    /// Blocks written to the disk without caching them.
    pub uncached_writes: u64,
    /// The part of `uncached_reads` in long sequential streams.
    pub uncached_sequential_reads: u64,
    /// The part of `uncached_writes` in long sequential streams.
    pub uncached_sequential_writes: u64,
    /// Cached blocks dropped by a trim.
    pub trim_blocks: u64,
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

    /// All counters with their names, in Flashcache's order.
    #[must_use]
    pub fn named(&self) -> [(&'static str, u64); 23] {
        [
            ("reads", self.reads),
            ("writes", self.writes),
            ("read_hits", self.read_hits),
            ("write_hits", self.write_hits),
            ("dirty_write_hits", self.dirty_write_hits),
            ("replacement", self.replacement),
            ("write_replacement", self.write_replacement),
            ("write_invalidates", self.write_invalidates),
            ("read_invalidates", self.read_invalidates),
            ("cleanings", self.cleanings),
            ("fallow_cleanings", self.fallow_cleanings),
            ("no_room", self.no_room),
            ("front_merge", self.front_merge),
            ("back_merge", self.back_merge),
            ("disk_reads", self.disk_reads),
            ("disk_writes", self.disk_writes),
            ("ssd_reads", self.ssd_reads),
            ("ssd_writes", self.ssd_writes),
            ("uncached_reads", self.uncached_reads),
            ("uncached_writes", self.uncached_writes),
            ("uncached_sequential_reads", self.uncached_sequential_reads),
            ("uncached_sequential_writes", self.uncached_sequential_writes),
            ("trim_blocks", self.trim_blocks),
        ]
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
