//! What can be stressed: the few operations that the loop needs, and the counters that the report is made of.

use std::ops::Deref;

use cache::Lookahead;
use cache::dram::Cursor;
use device::Engine;

use super::item_sizes::ItemLimit;
use super::latency::Histogram;
use super::listed_drives::DriveBytes;
use super::stressors::StressorReport;

/// Something that keeps values under keys and may lose them. In the real world its futures end at once: the thread that
/// asks does the waiting. In the simulated world they wait as tasks.
pub trait Target: Send + Sync {
    /// A found value, which stays readable while it is held.
    type Item<'a>: Found
    where
        Self: 'a;

    /// Looks `key` up.
    fn get(&self, key: &[u8]) -> impl Future<Output = Option<Self::Item<'_>>>;

    /// Whether the thread that asks does the waiting, and so may [get](Self::get_blocking) without a future.
    fn is_blocking(&self) -> bool {
        false
    }

    /// Looks `key` up on this thread, where it [may](Self::is_blocking). What a future hands over is copied twice, half written as
    /// it is then, and the waits for that were 2 to 4 % of a run in memory.
    fn get_blocking(&self, key: &[u8]) -> Option<Self::Item<'_>> {
        let _ = key;
        unreachable!("this target is asked through futures")
    }

    /// A request for `key` comes soon. `ahead` is the thread's own. Nothing has to be done.
    fn look_ahead(&self, ahead: &mut Lookahead, key: &[u8]) {
        let _ = (ahead, key);
    }

    /// Stores a value of `value_bytes` that `fill` writes.
    fn set(
        &self,
        key: &[u8],
        value_bytes: usize,
        how: SetHow,
        fill: impl FnOnce(&mut [u8]),
    ) -> impl Future<Output = SetOutcome>;

    /// Hangs another piece on the item under `key`; no where there is none, or no room.
    fn chain(
        &self,
        key: &[u8],
        value_bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> impl Future<Output = bool>;

    /// Removes `key`; whether it held something.
    fn delete(&self, key: &[u8]) -> bool;

    /// Whether `key` may be there, without reading it.
    fn could_exist(&self, key: &[u8]) -> bool;

    /// Shows `visit` the bytes of some items in DRAM, from a place on; answers where to go on, or `None` at the end. Who has no
    /// such walk has nothing to show.
    fn scan_dram(&self, from: Cursor, visit: &mut dyn FnMut(u64)) -> Option<Cursor> {
        let _ = (from, visit);
        None
    }

    /// Waits until all removals have reached the device.
    ///
    /// # Errors
    /// A description, if items were lost meanwhile.
    fn settle(&self) -> Result<(), String> {
        Ok(())
    }

    /// Figures and failures of a target of a special kind after a run.
    fn special_report(&self) -> Option<StressorReport> {
        None
    }

    /// What was counted so far.
    fn snapshot(&self) -> Snapshot;

    /// The bytes among that; `None` without flash. It is asked at every moment that is kept of a run.
    fn flash_bytes(&self) -> Option<FlashBytes> {
        self.snapshot().flash.as_ref().map(FlashBytes::of)
    }

    /// The device's latencies among that; `None` where they are not known. Asked for as often.
    fn device_latency(&self) -> Option<(Histogram, Histogram)> {
        self.snapshot().flash?.device_latency
    }
}

/// A value that was found.
pub trait Found: Deref<Target = [u8]> {
    /// Where.
    fn layer(&self) -> Layer;

    /// Shows the chained pieces, in any order.
    fn each_link(&self, show: &mut dyn FnMut(&[u8]));
}

/// Where a value was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// In memory.
    Dram,
    /// On flash, or on its way there.
    Flash,
}

/// How a value is to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetHow {
    /// The pool it counts against.
    pub pool: u16,
    /// Seconds it lives; `None` is for ever.
    pub ttl_seconds: Option<u32>,
    /// Leave alone what is there.
    pub only_if_absent: bool,
}

/// How a set ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetOutcome {
    /// The value is there.
    Stored,
    /// Something else was, and it was to be left alone.
    Kept,
    /// No room; what was there before is still there.
    Refused,
}

/// Counters of a target since it was opened: what figures are computed from. `None` is unknown, never zero.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// DRAM.
    pub dram: DramCounts,
    /// Flash; `None` where there is none.
    pub flash: Option<FlashCounts>,
    /// How inserts into DRAM ended, each as exactly one of these; empty where the target does not tell.
    pub insert_ends: Vec<End>,
    /// How chaining pieces to items ended, likewise.
    pub chain_ends: Vec<End>,
    /// The largest item that DRAM takes; `None` where it is not known.
    pub item_limit: Option<ItemLimit>,
    /// Everything else a target tells, for `printNvmCounters` and the JSON.
    pub details: Vec<Detail>,
}

/// Something that one kind of target tells.
#[derive(Debug, Clone, PartialEq)]
pub struct Detail {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// Whether it is what there is now, and not what was counted so far.
    pub is_state: bool,
}

impl Detail {
    /// What was counted so far.
    #[must_use]
    pub fn count(name: &'static str, value: u64) -> Self {
        Self { name, value: value as f64, is_state: false }
    }

    /// What there is now.
    #[must_use]
    pub fn state(name: &'static str, value: u64) -> Self {
        Self { name, value: value as f64, is_state: true }
    }
}

/// A way for an insert to end, by its name (`stored`, `rejected_too_large`), and how many did.
pub type End = (&'static str, u64);

/// DRAM's counters.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DramCounts {
    /// Items now.
    pub items: Option<u64>,
    /// Allocations tried.
    pub alloc_attempts: Option<u64>,
    /// Allocations refused.
    pub alloc_failures: Option<u64>,
    /// Evictions tried.
    pub evict_attempts: Option<u64>,
    /// Evictions.
    pub evictions: Option<u64>,
    /// Share of each pool's memory in use, 0 to 1.
    pub pool_usage: Vec<f64>,
    /// The size classes that have memory, pool by pool.
    pub classes: Vec<ClassUse>,
    /// Slabs moved between classes.
    pub slabs_released: Option<u64>,
    /// Items moved for that, and those that could not be.
    pub slab_moves: Option<(u64, u64)>,
    /// Items evicted for that, and those that could not be.
    pub slab_evictions: Option<(u64, u64)>,
}

/// Memory of a size class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassUse {
    /// Its pool.
    pub pool: u8,
    /// Its number in the pool.
    pub class: usize,
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// Bytes of its slabs.
    pub slab_bytes: u64,
    /// Of these, bytes of chunks that hold items.
    pub used_bytes: u64,
}

/// Flash's counters.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FlashCounts {
    /// Items now.
    pub items: Option<u64>,
    /// Lookups.
    pub gets: Option<u64>,
    /// Lookups that waited for another's.
    pub gets_coalesced: Option<u64>,
    /// Items offered.
    pub puts: Option<u64>,
    /// Of them, taken.
    pub puts_stored: Option<u64>,
    /// Of them, not written since flash held them already.
    pub puts_clean: Option<u64>,
    /// Of them, given up since the key was changed meanwhile.
    pub puts_overtaken: Option<u64>,
    /// Of them, given up since the item was used meanwhile and stayed in DRAM.
    pub puts_stayed: Option<u64>,
    /// Of them, expired.
    pub puts_expired: Option<u64>,
    /// How the items offered ended, each as exactly one of these; empty where the target does not tell.
    pub put_ends: Vec<End>,
    /// Times that an item stayed in DRAM, to be offered again, since flash was behind with its writes.
    pub put_waits: Option<u64>,
    /// Key and value of the largest item that it takes.
    pub max_item_bytes: Option<u64>,
    /// Whether it has regions for large items, and not buckets alone.
    pub has_regions: Option<bool>,
    /// Items lost to failed writes, those that were never written among them, or to damage.
    pub lost: Option<u64>,
    /// Items that left.
    pub evictions: Option<u64>,
    /// Deletes that reached flash.
    pub deletes: Option<u64>,
    /// Bytes of keys and values taken, but for those that were given up before they were written.
    pub logical_bytes: Option<u64>,
    /// Of these, bytes that wait in memory to be written.
    pub waiting_bytes: Option<u64>,
    /// Bytes that flash holds.
    pub capacity_bytes: Option<u64>,
    /// Bytes written to the device.
    pub host_bytes: Option<u64>,
    /// Bytes read from the device.
    pub host_read_bytes: Option<u64>,
    /// Completed writes of buckets and regions, from which write amplification over an interval is computed.
    pub settled: Option<Settled>,
    /// Bytes the medium wrote: of the drives that are listed for that, or as flash itself tells.
    pub media_bytes: Option<u64>,
    /// What each listed drive tells.
    pub listed_drives: Vec<DriveBytes>,
    /// Transfers that failed.
    pub io_errors: Option<u64>,
    /// What was said of the first of them.
    pub first_io_error: Option<String>,
    /// Things read that were damaged.
    pub checksum_errors: Option<u64>,
    /// Whether transfers went through the page cache.
    pub buffered: bool,
    /// What carries transfers to the kernel; `None` where flash is in memory or a model.
    pub engine: Option<Engine>,
    /// Who asked for a placement handle, and what each was given; 0 is everybody's default. Empty without placement.
    pub placement: Vec<(String, u16)>,
    /// Whether it came back with what an earlier run left.
    pub recovered: bool,
    /// Why it did not, where an earlier run had left something.
    pub loss: Option<&'static str>,
    /// Latency of device reads and writes so far, where they are measured.
    pub device_latency: Option<(Histogram, Histogram)>,
}

impl FlashCounts {
    /// Whether `written_bytes`, or what an earlier run wrote, are all of flash once; `None` where its size is not known.
    #[must_use]
    pub fn is_filled_by(&self, written_bytes: u64) -> Option<bool> {
        Some(self.recovered || written_bytes >= self.capacity_bytes?)
    }

    /// Bytes of keys and values that were written: those taken but for those that wait. What the cache writes for each of
    /// them is its write amplification; without this, a short run would seem to write less than it took.
    #[must_use]
    pub fn settled_bytes(&self) -> Option<u64> {
        Some(self.logical_bytes?.saturating_sub(self.waiting_bytes?))
    }
}

/// Completed writes of buckets and regions. Both fields are updated when a write completes, so they can be compared over any interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settled {
    /// Keys and values.
    pub items: u64,
    /// Buckets and regions.
    pub host: u64,
}

impl Settled {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { items: self.items + other.items, host: self.host + other.host }
    }

    /// The difference to `earlier`, a previous reading.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self { items: self.items.saturating_sub(earlier.items), host: self.host.saturating_sub(earlier.host) }
    }
}

/// What flash took and what was written for it, since it was opened. `None` is unknown, never zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlashBytes {
    /// Bytes of keys and values taken, but for those that were given up before they were written.
    pub logical: Option<u64>,
    /// Of these, bytes that wait in memory to be written.
    pub waiting: Option<u64>,
    /// Bytes written to the device.
    pub host: Option<u64>,
    /// Completed writes of buckets and regions.
    pub settled: Option<Settled>,
    /// Bytes the medium wrote.
    pub media: Option<u64>,
    /// Whether listed drives told `media`.
    pub is_listed: bool,
}

impl FlashBytes {
    /// The bytes among all that flash counts.
    #[must_use]
    pub fn of(flash: &FlashCounts) -> Self {
        Self {
            logical: flash.logical_bytes,
            waiting: flash.waiting_bytes,
            host: flash.host_bytes,
            settled: flash.settled,
            media: flash.media_bytes,
            is_listed: !flash.listed_drives.is_empty(),
        }
    }

    /// Of two instances together. Where one lists a drive and the other's flash tells by itself, it may be the same drive:
    /// then nobody knows.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let sum = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
        Self {
            logical: sum(self.logical, other.logical),
            waiting: sum(self.waiting, other.waiting),
            host: sum(self.host, other.host),
            settled: self.settled.zip(other.settled).map(|(mine, theirs)| mine.plus(theirs)),
            media: sum(self.media, other.media).filter(|_| self.is_listed == other.is_listed),
            is_listed: self.is_listed || other.is_listed,
        }
    }

    /// What was written since `earlier`, a former state; what waits is what waits now.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        let grown = |now: Option<u64>, then: Option<u64>| now?.checked_sub(then?);
        Self {
            // What was taken then may have been given up since.
            logical: self.logical.zip(earlier.logical).map(|(now, then)| now.saturating_sub(then)),
            host: grown(self.host, earlier.host),
            settled: self.settled.zip(earlier.settled).map(|(now, then)| now.since(then)),
            media: grown(self.media, earlier.media),
            ..self
        }
    }
}
