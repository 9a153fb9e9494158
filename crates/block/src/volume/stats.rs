//! Statistics of a volume.

use device::counters;

use super::config::Health;
use crate::sets::Counters;

counters! {
    /// Device operations since the volume was opened that [`Counters`] does not count.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct IoCounts {
        /// Records of blocks that became dirty.
        metadata_dirties: sum u64,
        /// Records of blocks that were cached clean, became clean or were evicted.
        metadata_cleans: sum u64,
        /// Records that shared a commit with another.
        metadata_batch: sum u64,
        /// Blocks of 4 KiB written to journal, intent log and tables.
        metadata_ssd_writes: sum u64,
        /// Commits of the journal.
        commits: sum u64,
        /// Writes of the intent log, whose records let acknowledged writes survive a kill of the server.
        intent_log_writes: sum u64,
        /// Tables written.
        checkpoints: sum u64,
        /// Flushes of flash for commits; a table takes two more.
        ssd_flushes: sum u64,
        /// Flushes of the disk.
        disk_flushes: sum u64,
        /// Acknowledged flushes and FUA writes of clients.
        client_flushes: sum u64,
        /// Writes that waited for cleaning because all blocks of their set were dirty.
        room_waits: sum u64,
        /// Reads of the disk that failed.
        disk_read_errors: sum u64,
        /// Writes, trims and flushes of the disk that failed.
        disk_write_errors: sum u64,
        /// Reads of flash that failed.
        ssd_read_errors: sum u64,
        /// Writes of flash that failed.
        ssd_write_errors: sum u64,
        /// Blocks read from flash whose checksum was wrong.
        checksum_errors: sum u64,
    }
}

impl IoCounts {
    /// Resets all counters except those of errors.
    pub(super) fn zero(&mut self) {
        *self = Self {
            ssd_read_errors: self.ssd_read_errors,
            checksum_errors: self.checksum_errors,
            ..Self::default()
        };
    }
}

/// A snapshot of a volume's statistics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stats {
    /// Decisions of the cache, under Flashcache's names.
    pub counters: Counters,
    /// Requests to the devices.
    pub io: IoCounts,
    /// Capacity in blocks.
    pub capacity_blocks: u64,
    /// Cached blocks.
    pub held_blocks: u64,
    /// Cached blocks that are newer than the disk.
    pub dirty_blocks: u64,
    /// Clean blocks among those cached whose insertion is not committed: a crash drops them from the cache.
    pub uncommitted_blocks: u64,
    /// Blocks in hot lists. All others are warm; with FIFO and LRU every block is.
    pub hot_blocks: u64,
    /// Blocks that are not in a hot list.
    pub warm_blocks: u64,
    /// Moves of a block to a hot list.
    pub promotions: u64,
    /// Moves of a block from a hot list.
    pub demotions: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Memory for cached blocks, in bytes.
    pub memory_bytes: u64,
    /// Journal blocks in use, of [`journal_blocks`](Self::journal_blocks).
    pub journal_used_blocks: u64,
    /// Blocks of the journal.
    pub journal_blocks: u64,
    /// 99th percentile of recent request latencies; measured only while a latency gate is set.
    pub latency_ns_p99: Option<u64>,
    /// Estimated seconds until all blocks are clean, at the rate of recent cleaning.
    pub clean_seconds_left: Option<f64>,
    /// Which operations the volume can still perform.
    pub health: Health,
}
