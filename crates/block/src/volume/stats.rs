//! What a volume tells of itself.

use super::config::Health;
use crate::sets::Counters;

/// Operations on the devices beside those that [`Counters`] has, since the volume was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IoCounts {
    /// Records of blocks that became dirty, as committed.
    pub metadata_dirties: u64,
    /// Records of blocks that came in clean, became clean or left, as committed.
    pub metadata_cleans: u64,
    /// Records that shared a commit with another.
    pub metadata_batch: u64,
    /// Blocks of 4 KiB written to the journal, the notes and the tables.
    pub metadata_ssd_writes: u64,
    /// Commits.
    pub commits: u64,
    /// Notes: what outlives the process before a commit.
    pub notes: u64,
    /// Tables written.
    pub checkpoints: u64,
    /// Flushes of flash for commits.
    pub ssd_flushes: u64,
    /// Flushes of the disk.
    pub disk_flushes: u64,
    /// Flushes and FUA writes that clients asked for and that were acknowledged.
    pub client_flushes: u64,
    /// Writes that waited for something to be cleaned, because all in their set was dirty.
    pub room_waits: u64,
    /// Reads of the disk that failed.
    pub disk_read_errors: u64,
    /// Writes, trims and flushes of the disk that failed.
    pub disk_write_errors: u64,
    /// Reads of flash that failed.
    pub ssd_read_errors: u64,
    /// Writes of flash that failed.
    pub ssd_write_errors: u64,
    /// Blocks read from flash whose checksum was wrong.
    pub checksum_errors: u64,
}

impl IoCounts {
    /// Begins anew, but for errors, which a health is told by.
    pub(super) fn zero(&mut self) {
        *self = Self {
            disk_read_errors: self.disk_read_errors,
            disk_write_errors: self.disk_write_errors,
            ssd_read_errors: self.ssd_read_errors,
            ssd_write_errors: self.ssd_write_errors,
            checksum_errors: self.checksum_errors,
            ..Self::default()
        };
    }
}

/// A volume at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stats {
    /// What the cache decided and how often, under Flashcache's names.
    pub counters: Counters,
    /// What became of the devices' requests.
    pub io: IoCounts,
    /// Blocks the cache can hold.
    pub capacity_blocks: u64,
    /// Blocks it holds.
    pub held_blocks: u64,
    /// Blocks it holds that are newer than the disk's.
    pub dirty_blocks: u64,
    /// Blocks in hot lists, and in warm ones, where everything is that is not hot: in FIFO and LRU all.
    pub hot_blocks: u64,
    /// See [`hot_blocks`](Self::hot_blocks).
    pub warm_blocks: u64,
    /// Blocks that rose to a hot list.
    pub promotions: u64,
    /// Blocks that fell from one.
    pub demotions: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Bytes of memory taken for cached blocks.
    pub memory_bytes: u64,
    /// Blocks of the journal in use, of [`journal_blocks`](Self::journal_blocks).
    pub journal_used_blocks: u64,
    /// Blocks of the journal.
    pub journal_blocks: u64,
    /// The 99th percentile of what the last reads and writes took, while a latency gate is set.
    pub latency_ns_p99: Option<u64>,
    /// Seconds until everything dirty is on the disk, at the pace of the last cleanings.
    pub clean_seconds_left: Option<f64>,
    /// What the volume can still do.
    pub health: Health,
}
