//! The volume: a disk, a flash device that caches it, and their durability rules.
//!
//! # How a write proceeds
//!
//! ```text
//! lock the blocks -> allocate a page for each -> write the pages -> update the map -> intent log, not flushed -> reply
//! flush or FUA: intent log -> one flush of the flash for all waiting requests -> reply
//! commit: records of all changes -> journal -> flush of the flash; the intent log before it is no longer needed
//! later: runs of dirty blocks -> disk -> flush of the disk -> the journal records them as clean
//! ```
//!
//! # Owners
//!
//! * [`State`], behind one mutex: the page of each block, the free [pages], and the state machines of the other owners. These
//!   do no I/O: the [`Sets`](crate::sets::Sets), the [`Journal`](journal::Journal), the [epochs], the [slot queue](slot_queue), the [health].
//! * [`Identity`](identity::Identity): the superblock in force, and the disk that belongs to the volume.
//! * [`Disk`](disk::Disk): the device, its size and its errors.
//! * [`Committer`](journal::Committer): commits, entries of the intent log, tables and superblocks.
//! * [`DiskIo`](disk_io::DiskIo): reads, writes and trims of the disk, as the rules permit.
//! * [`Cleaner`](cleaning::Cleaner): cleaning and destaging.
//! * [`Inner`]: reads, writes and trims of clients.
//!
//! # Durability rules
//!
//! 1. **A page that metadata on flash refers to is never written.** A write takes a free page. The page that it replaces becomes
//!    free when the commit that records the change is durable. So after a crash the volume has the state of a commit, or of an
//!    intent log entry after it: the last one that was flushed, or a later one. No block is torn.
//! 2. **Data and journal share one flush.** After a power cut either may be missing in part. The last commit is valid if all its
//!    blocks are present and the checksums of all pages that it wrote match. An earlier commit is valid without that check:
//!    the next commit is written only after its flush.
//! 3. **The disk is flushed before the journal records a block as clean.**
//! 4. **A block that recovery could restore from flash is not written to the disk directly.** A block that left the cache is
//!    written directly only after the commit that records its removal.
//! 5. **An acknowledged write survives a kill of the process.** Its records are in the intent log before the reply. The intent log
//!    is written without a flush, so until a client flushes, a power cut may lose it. It never records a block as clean.
//! 6. **Recovery ends with a commit.** Before the first request, the recovered state is flushed. Then a commit, or a new table with
//!    a superblock that refers to it, confirms that state, so a second recovery reaches the same result.
//!
//! # Lock order
//!
//! Range locks ([`ranges`]) are held across I/O and taken in this order:
//!
//! 1. the turn of a sequential write that bypasses the cache: [`Inner::bypass_turn`]
//! 2. blocks of the cache: [`Inner::blocks`]
//! 3. the turn of a batch of cleaning, which holds no block of the cache
//! 4. blocks of the disk: [`DiskIo::lock`](disk_io::DiskIo::lock)
//! 5. destaging: [`Cleaner::lock_destaging`](cleaning::Cleaner::lock_destaging)
//! 6. tables and superblocks: [`Committer::lock_metadata`](journal::Committer::lock_metadata)
//!
//! A commit may have to write a table, so no task waits for a commit while it holds the last lock. The commit that ends a table is an
//! exception: it never writes another table.
//!
//! Mutexes are never held across I/O. `state` comes first: the mutexes of the pace and of range locks may be locked under it. Those of the
//! superblock and of `state` are never held together. Dropping a [`Work`](work::Work) locks `state`, so no `Work` is dropped under it.
//!
//! The reasons, and the rejected alternatives, are in `DESIGN.md`.

mod check;
mod cleaning;
mod close;
pub mod config;
mod copy_ahead;
mod create;
mod disk;
mod disk_io;
mod drains;
mod epochs;
pub mod error;
mod flash_io;
mod flash_map;
mod grow;
mod health;
mod identity;
mod inner;
pub mod journal;
pub mod layout;
mod os_identity;
mod pace;
mod page_copy;
mod page_map;
mod pages;
mod ranges;
mod read;
pub mod record;
mod recovery;
mod replace;
mod samples;
mod segment;
mod sequential_writes;
mod shared;
mod slot_queue;
mod state;
pub mod stats;
pub mod superblock;
mod trim;
mod upkeep;
mod work;
mod write;
mod write_blocker;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use device::IoSlice;
use parking_lot::MutexGuard;

pub use check::Check;
pub use config::{Health, VolumeConfig};
pub use copy_ahead::CopiedAhead;
pub use error::{Result, VolumeError, VolumeErrorKind};
pub use flash_map::Recovery;
pub use health::{Condition, DeviceErrors};
pub use layout::Layout;
pub use os_identity::{OsIdentity, Pairing};
pub use record::SECTOR_BYTES;
pub use replace::Replaced;
pub use stats::{IoCounts, Stats};
pub use superblock::Superblock;
pub use trim::BlockExtent;

use inner::Inner;
use state::State;

use crate::sets::Mode;

/// A disk with a flash cache. Clones share one volume.
///
/// All methods may be called concurrently from any thread. Dropping a future does not cancel its I/O: a dropped write may or may
/// not take effect.
#[derive(Clone)]
pub struct Volume {
    inner: Arc<Inner>,
    may_cache: bool,
}

impl Volume {
    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.shared.state.lock()
    }

    /// Size of the volume, which is the size of the disk.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.inner.shared.disk.bytes()
    }

    /// Block size. Requests that are aligned to it are the fastest.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.inner.shared.layout.block_bytes
    }

    /// Sector size presented to clients: the one recorded when the volume was created, or 512.
    #[must_use]
    pub fn sector_bytes(&self) -> u32 {
        self.superblock().disk.sector_bytes.max(SECTOR_BYTES)
    }

    /// The same volume for a client that must not fill the cache, such as a backup. Its requests use cached blocks and insert no
    /// others. An ordered volume still caches its writes.
    #[must_use]
    pub fn without_caching(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), may_cache: false }
    }

    /// Whether both are the same open volume.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Whether a read miss inserts its block: not after [`without_caching`](Self::without_caching), and not in write-only mode.
    #[must_use]
    pub fn caches_reads(&self) -> bool {
        self.may_cache && self.state().sets.tuning().mode != Mode::WriteOnly
    }

    /// The superblock in force.
    #[must_use]
    pub fn superblock(&self) -> Superblock {
        self.inner.shared.identity.superblock()
    }

    /// Reads `len` bytes at `offset`; both are multiples of 512.
    ///
    /// # Errors
    /// [`VolumeErrorKind::Invalid`] for a range outside the volume; [`VolumeErrorKind::Disk`] or [`VolumeErrorKind::Flash`] if the
    /// only copy of a block cannot be read.
    pub async fn read(&self, offset: u64, len: usize) -> Result<IoSlice> {
        let begun = self.inner.cleaner.begin_measure();
        let read = self.inner.read(offset, len, self.may_cache).await;
        self.inner.cleaner.end_measure(begun);
        read
    }

    /// Writes `data` at `offset`. With `durable` the volume is flushed before it returns (FUA).
    ///
    /// # Errors
    /// As [`read`](Self::read). After an error each sector of the range holds its old or its new contents.
    pub async fn write(&self, offset: u64, data: IoSlice, durable: bool) -> Result<()> {
        let begun = self.inner.cleaner.begin_measure();
        let is_on_flash_alone = self.inner.write(offset, data, self.may_cache).await?;
        let acknowledged = self.acknowledge(is_on_flash_alone, durable).await;
        self.inner.cleaner.end_measure(begun);
        acknowledged
    }

    /// Makes a completed write as durable as its acknowledgement requires.
    async fn acknowledge(&self, is_on_flash_alone: bool, durable: bool) -> Result<()> {
        match (durable, is_on_flash_alone) {
            (true, _) => self.flush().await,
            (false, true) => self.inner.committer.log_changes().await,
            (false, false) => Ok(()),
        }
    }

    /// Makes all writes, trims and zeroing completed before this call durable, including those of other clients.
    ///
    /// # Errors
    /// The devices' failures. Writes since the last successful flush may then be lost in a crash.
    pub async fn flush(&self) -> Result<()> {
        let target = {
            let state = self.state();
            state.health.check_open()?;
            state.journal.last_change()
        };
        self.inner.committer.flush_changes(target).await?;
        let mut state = self.state();
        state.io.client_flushes += 1;
        state.journal.client_flushed(self.inner.shared.timer.monotonic_ns());
        drop(state);
        Ok(())
    }

    /// Converts a volume of an older format to the newest, without interrupting requests. Returns the previous format. Older
    /// programs refuse the volume afterwards, so no other operation does this. A crash leaves the volume in one of the two formats.
    ///
    /// # Errors
    /// If the flash fails, and [`VolumeErrorKind::Closed`].
    pub async fn upgrade(&self) -> Result<u32> {
        self.inner.committer.upgrade().await
    }

    /// Current statistics.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let now_ns = self.inner.shared.timer.monotonic_ns();
        let disk_errors = self.inner.shared.disk.current_errors();
        let (disk_read_errors, disk_write_errors) = self.inner.shared.disk.error_counts();
        let state = self.state();
        let (latency_ns_p99, clean_seconds_left) = self.inner.cleaner.rates(state.sets.dirty_blocks());
        let (hot_blocks, warm_blocks) = state.sets.hot_and_warm_blocks();
        let (promotions, demotions) = state.sets.promotions_and_demotions();
        Stats {
            hot_blocks,
            warm_blocks,
            promotions,
            demotions,
            counters: *state.sets.counters(),
            io: IoCounts {
                disk_read_errors,
                disk_write_errors,
                ssd_write_errors: state.health.errors(),
                ..state.io
            },
            capacity_blocks: u64::from(self.inner.shared.layout.slots()),
            held_blocks: state.sets.held_blocks(),
            dirty_blocks: state.sets.dirty_blocks(),
            uncommitted_blocks: (state.journal.clean_inserted() + state.filling_blocks()) as u64,
            block_bytes: self.inner.shared.layout.block_bytes,
            memory_bytes: state.memory_bytes() as u64,
            journal_used_blocks: state.journal.used(),
            journal_blocks: state.journal.blocks(),
            latency_ns_p99,
            clean_seconds_left,
            health: state.health.condition(disk_errors, now_ns).health,
        }
    }

    /// The volume's health and device errors.
    #[must_use]
    pub fn condition(&self) -> Condition {
        let disk_errors = self.inner.shared.disk.current_errors();
        self.state().health.condition(disk_errors, self.inner.shared.timer.monotonic_ns())
    }

    /// Resets all counters except those of errors.
    pub fn zero_stats(&self) {
        let mut state = self.state();
        state.sets.zero_counters();
        state.io.zero();
    }
}
