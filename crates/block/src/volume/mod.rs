//! The volume: two devices, one cache, and the promise that an acknowledged flush is kept.
//!
//! # The life of a write
//!
//! ```text
//! lock the blocks -> a free page for each -> data to the pages -> the map points at them -> note, not flushed -> reply
//! flush or FUA: records of what changed -> journal -> one flush of flash, shared by all who wait -> reply
//! later: dirty blocks in runs -> disk -> flush of the disk -> the journal says "clean"
//! ```
//!
//! # The rules that keep the promise
//!
//! 1. **A page that something on flash points at is never written.** A write takes a free page; the page it replaces is free
//!    again after the commit that says so. So after a crash the volume is exactly as it was at a commit: the last one
//!    that was acknowledged, or the one that was under way. A block is never torn.
//! 2. **Data and journal go down with one flush.** Both may be on flash in part when the power goes. A commit counts if all
//!    of its blocks are there and the checksums of all pages it brought are right; it is known to be complete, without
//!    looking, if a later one follows it, because that one was written after its flush.
//! 3. **What the disk must have comes first.** A record that says "clean" is written after the flush of the disk that made
//!    it true.
//! 4. **What flash may say again after a crash is not changed behind its back.** A block that left the cache is written to
//!    the disk directly only after the commit in which it left.
//! 5. **What was acknowledged outlives the process.** Its records are in a note before the reply. A note is written and not
//!    flushed: a power cut may take it, the end of the program may not. It never says "clean".
//! 6. **Recovery ends with a commit.** Before anything is served, what was found is flushed, and then a commit, or a table and
//!    the superblock that names it, says that it counts; a second crash cannot decide otherwise.
//!
//! Why it is so, and what was rejected, is in `DESIGN.md`.

mod check;
mod checkpoint;
pub mod config;
mod create;
pub mod error;
mod found;
mod grow;
mod identity;
pub mod journal;
pub mod layout;
mod noted;
mod order;
mod pace;
mod pages;
mod piece;
mod ranges;
mod read;
pub mod record;
mod recovery;
mod replace;
mod room;
mod state;
pub mod stats;
pub mod superblock;
mod traces;
mod trim;
mod trouble;
mod work;
mod write;
mod writeback;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use device::timer::Timer;
use device::{Device, IoSlice, Request};
use event_listener::Event;
use parking_lot::Mutex;

pub use check::Check;
pub use config::{Health, VolumeConfig};
pub use error::{Result, VolumeError, VolumeErrorKind};
pub use layout::Layout;
pub use recovery::Recovery;
pub use replace::Replaced;
pub use stats::{IoCounts, Stats};
pub use superblock::Superblock;
pub use traces::{Pairing, Traces};
pub use trim::BlockExtent;
pub use trouble::{Condition, Trouble};

use pace::Pace;
use ranges::Ranges;
use state::State;
use trouble::DiskTrouble;

use crate::sets::Mode;

/// The unit that clients may address: offsets and lengths are multiples of this.
pub const SECTOR_BYTES: u32 = 512;

/// A disk with flash in front of it. Cheap to clone; all clones are one volume.
///
/// All methods may be called from any thread and at once. Futures may be dropped at any time: what was begun is not
/// undone by it, and a write may or may not have happened.
#[derive(Clone)]
pub struct Volume {
    shared: Arc<Shared>,
    may_cache: bool,
}

struct Shared {
    flash: Arc<dyn Device>,
    disk: Arc<dyn Device>,
    disk_trouble: Arc<DiskTrouble>,
    traces: Traces,
    timer: Arc<dyn Timer>,
    uuid: u128,
    layout: Layout,
    disk_bytes: u64,
    /// Who reads from or writes to which blocks beyond a plain hit.
    blocks: Arc<Ranges>,
    /// Who writes which blocks of the disk.
    disk_writers: Arc<Ranges>,
    /// Who brings the oldest epoch to the disk.
    destager: Arc<Ranges>,
    /// Who writes a table or the superblock.
    keeper: Arc<Ranges>,
    /// Held (0..1) by the batch of dirty blocks that is written to the disk.
    cleaners: Arc<Ranges>,
    superblock: Mutex<Superblock>,
    pace: Mutex<Pace>,
    /// Whether latencies are to be measured for [`Pace`].
    is_paced: AtomicBool,
    state: Mutex<State>,
    /// Told when a commit ended, pages became free, or a block ceased to be cleaned.
    changed: Event,
    /// Told when a cleaning ended, for those who wait for [room](room).
    room: Event,
}

impl Volume {
    /// Bytes that can be addressed: those of the disk.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.shared.disk_bytes
    }

    /// Bytes of a block: requests in multiples of this are the quick ones.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.shared.layout.block_bytes
    }

    /// The sector size that clients see: the one recorded when the volume was made, or 512 if none was.
    #[must_use]
    pub fn sector_bytes(&self) -> u32 {
        self.shared.superblock.lock().disk.sector_bytes.max(SECTOR_BYTES)
    }

    /// The same volume for a client whose blocks are not to be cached: a backup, say. What is cached serves it, and its
    /// writes of that go there; nothing else comes in. An ordered volume caches its writes all the same.
    #[must_use]
    pub fn without_caching(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), may_cache: false }
    }

    /// Whether blocks that are read come in: not for such a client, nor in write-only mode.
    #[must_use]
    pub fn caches_reads(&self) -> bool {
        self.may_cache && self.shared.state.lock().sets.tuning().mode != Mode::WriteOnly
    }

    /// What the volume is, as its superblock says it.
    #[must_use]
    pub fn superblock(&self) -> Superblock {
        self.shared.superblock.lock().clone()
    }

    /// Reads `len` bytes from `offset` on, both in sectors of 512 bytes.
    ///
    /// # Errors
    /// [`VolumeErrorKind::Invalid`] for a range that is not there; [`VolumeErrorKind::Disk`] or [`VolumeErrorKind::Flash`] where
    /// the only copy of some block cannot be read.
    pub async fn read(&self, offset: u64, len: usize) -> Result<IoSlice> {
        let begun = self.shared.begin_measure();
        let read = self.shared.read(offset, len, self.may_cache).await;
        self.shared.end_measure(begun);
        read
    }

    /// Writes `data` from `offset` on. With `durable` it is as if a flush followed it.
    ///
    /// # Errors
    /// As [`read`](Self::read); the range then holds the old bytes or the new ones, sector by sector.
    pub async fn write(&self, offset: u64, data: IoSlice, durable: bool) -> Result<()> {
        let begun = self.shared.begin_measure();
        let is_on_flash_alone = self.shared.write(offset, data, self.may_cache).await?;
        let acknowledged = self.acknowledge(is_on_flash_alone, durable).await;
        self.shared.end_measure(begun);
        acknowledged
    }

    /// What has to happen before a client is told that his write was done.
    async fn acknowledge(&self, is_on_flash_alone: bool, durable: bool) -> Result<()> {
        match (durable, is_on_flash_alone) {
            (true, _) => self.flush().await,
            (false, true) => self.shared.note().await,
            (false, false) => Ok(()),
        }
    }

    /// Makes everything durable that was written, trimmed or zeroed before, by anyone.
    ///
    /// # Errors
    /// If a device fails. What was written since the last flush that succeeded may then be lost in a crash.
    pub async fn flush(&self) -> Result<()> {
        let target = {
            let state = self.shared.state.lock();
            self.shared.check_open(&state)?;
            state.changes.number()
        };
        self.shared.commit(target).await?;
        let mut state = self.shared.state.lock();
        state.io.client_flushes += 1;
        state.journal.client_flushed_ns = Some(self.shared.timer.monotonic_ns());
        drop(state);
        Ok(())
    }

    /// Brings a volume of an older format to the newest, while it goes on being used; the answer is the format that it
    /// had. Programs that know only the older one refuse it from then on, which is why nothing else does this. Wherever it
    /// breaks off, the volume has all of one format or all of the other.
    ///
    /// # Errors
    /// If the flash fails, and [`VolumeErrorKind::Closed`].
    pub async fn upgrade(&self) -> Result<u32> {
        self.shared.upgrade().await
    }

    /// The volume's figures at this moment.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let has_disk_errors = self.shared.disk_trouble.at(self.shared.timer.monotonic_ns()).is_some();
        let state = self.shared.state.lock();
        let pace = self.shared.pace.lock();
        let (hot_blocks, warm_blocks) = state.sets.hot_and_warm_blocks();
        let (promotions, demotions) = state.sets.promotions_and_demotions();
        Stats {
            hot_blocks,
            warm_blocks,
            promotions,
            demotions,
            counters: *state.sets.counters(),
            io: state.io,
            capacity_blocks: u64::from(self.shared.layout.slots()),
            held_blocks: state.sets.held_blocks(),
            dirty_blocks: state.sets.dirty_blocks(),
            block_bytes: self.shared.layout.block_bytes,
            memory_bytes: state.memory_bytes() as u64,
            journal_used_blocks: state.journal.used(),
            journal_blocks: state.journal.blocks,
            latency_ns_p99: pace.p99_ns(),
            clean_seconds_left: pace.seconds_for(state.sets.dirty_blocks()),
            health: trouble::told(state.health, has_disk_errors),
        }
    }

    /// Begins all counts anew, but for those of errors.
    pub fn zero_stats(&self) {
        let mut state = self.shared.state.lock();
        state.sets.zero_counters();
        state.io.zero();
    }

    /// Makes everything durable, writes a table and says on flash that the volume was closed. Requests that come later
    /// are refused. Dirty blocks stay on flash; [`clean`](Self::clean) first to bring them to the disk.
    ///
    /// # Errors
    /// If a device fails; the volume is closed all the same, and found as after a crash.
    pub async fn close(&self) -> Result<()> {
        self.shared.close().await
    }
}

impl Shared {
    /// Flushes a device by itself, outside of a commit.
    async fn flush_device(device: &dyn Device) -> std::result::Result<(), device::IoError> {
        device.start(Request::Flush).await.map(|_| ())
    }

    /// Sets the latency gate, of so many milliseconds.
    fn set_latency_gate(&self, gate_ms: u32) {
        self.pace.lock().set_gate(u64::from(gate_ms) * 1_000_000);
        self.is_paced.store(gate_ms > 0, Relaxed);
    }

    fn begin_measure(&self) -> Option<u64> {
        self.is_paced.load(Relaxed).then(|| self.timer.monotonic_ns())
    }

    fn end_measure(&self, begun_ns: Option<u64>) {
        if let Some(begun_ns) = begun_ns {
            let now_ns = self.timer.monotonic_ns();
            self.pace.lock().note(now_ns, now_ns.saturating_sub(begun_ns));
        }
    }

    /// Whether dirty blocks reach the disk in the order of flushes.
    fn is_ordered(&self) -> bool {
        self.superblock.lock().ordered
    }

    /// Refuses what a closed volume cannot do.
    fn check_open(&self, state: &State) -> Result<()> {
        match state.health {
            Health::Closed => Err(VolumeError::new(VolumeErrorKind::Closed, "the volume is closed")),
            Health::Healthy | Health::DiskErrors | Health::FlashFailed => Ok(()),
        }
    }

    /// Refuses ranges that are not there.
    fn check_range(&self, offset: u64, len: u64) -> Result<()> {
        let sector = u64::from(SECTOR_BYTES);
        let size = self.disk_bytes;
        let wrong = if !offset.is_multiple_of(sector) || !len.is_multiple_of(sector) {
            "not aligned to sectors of 512 bytes".to_owned()
        } else if offset.checked_add(len).is_none_or(|end| end > size) {
            format!("past the end at {size}")
        } else {
            return Ok(());
        };
        Err(VolumeError::new(VolumeErrorKind::Invalid, format!("{len} bytes at {offset}: {wrong}")))
    }
}
