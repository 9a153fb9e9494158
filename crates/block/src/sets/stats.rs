//! What the cache counts, under Flashcache's names where it had them.

/// Counters since the cache was opened, in blocks unless a field says otherwise. `Sets` counts its decisions; the volume counts the
/// fields marked *volume*.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Blocks asked for by reads.
    pub reads: u64,
    /// Blocks asked for by writes.
    pub writes: u64,
    /// Reads of blocks that were in the cache: all that was asked for, or some sectors of them, to which the disk added the others
    /// ([`disk_reads`](Self::disk_reads)).
    pub read_hits: u64,
    /// Writes to a block that was in the cache.
    pub write_hits: u64,
    /// Writes to a block that was in the cache and dirty.
    pub dirty_write_hits: u64,
    /// Blocks that left for a block read.
    pub replacement: u64,
    /// Blocks that left for a block written.
    pub write_replacement: u64,
    /// Cached blocks dropped because a write went around the cache.
    pub write_invalidates: u64,
    /// Cached blocks dropped because a read of them from flash failed. *Volume.*
    pub read_invalidates: u64,
    /// Blocks cleaned, for any reason.
    pub cleanings: u64,
    /// Blocks cleaned because they were idle; included in `cleanings`.
    pub fallow_cleanings: u64,
    /// Blocks not taken in because nothing in their set could leave, and blocks read for which no page of flash was free, or while
    /// too many others were on their way in.
    pub no_room: u64,
    /// Blocks that joined a cleaning because their successor on disk was in it.
    pub front_merge: u64,
    /// Blocks that joined a cleaning because their predecessor on disk was in it.
    pub back_merge: u64,
    /// Reads of the disk, operations. *Volume.*
    pub disk_reads: u64,
    /// Writes of the disk, operations. *Volume.*
    pub disk_writes: u64,
    /// Blocks read from flash, also to be cleaned or written in part. *Volume.*
    pub ssd_reads: u64,
    /// Blocks written to flash. *Volume.*
    pub ssd_writes: u64,
    /// Blocks read around the cache.
    pub uncached_reads: u64,
    /// Blocks written around the cache.
    pub uncached_writes: u64,
    /// Of those, because they belonged to a long stream.
    pub uncached_sequential_reads: u64,
    /// Of those, because they belonged to a long stream.
    pub uncached_sequential_writes: u64,
    /// Blocks dropped because their content was discarded.
    pub trim_blocks: u64,
}

impl Counters {
    /// Read hits of all reads, percent; 0 where there were none.
    #[must_use]
    pub fn read_hit_percent(&self) -> f64 {
        percent(self.read_hits, self.reads)
    }

    /// Write hits of all writes, percent.
    #[must_use]
    pub fn write_hit_percent(&self) -> f64 {
        percent(self.write_hits, self.writes)
    }

    /// Writes to dirty blocks of all writes, percent.
    #[must_use]
    pub fn dirty_write_hit_percent(&self) -> f64 {
        percent(self.dirty_write_hits, self.writes)
    }

    /// Hits of reads and writes, percent: the "hit rate" of the studies.
    #[must_use]
    pub fn hit_percent(&self) -> f64 {
        percent(self.read_hits + self.write_hits, self.reads + self.writes)
    }

    /// All counts with their names, in the order Flashcache prints them.
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

/// What happened in one set, in blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetOperations {
    /// Reads and writes of blocks that the set held.
    pub hits: u64,
    /// Reads of blocks that it did not hold.
    pub read_misses: u64,
    /// Writes of blocks that it did not hold.
    pub write_misses: u64,
    /// Blocks of the set written to the disk.
    pub cleaned: u64,
}

/// A set, for status and pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetView {
    /// Blocks it holds.
    pub held: u32,
    /// Of those, dirty ones.
    pub dirty: u32,
    /// Of those, ones on their way to the disk.
    pub cleaning: u32,
    /// What happened in it since the cache was opened.
    pub operations: SetOperations,
}
