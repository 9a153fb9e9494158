//! The interface of a cache under stress: the operations that the loop calls, and the counters for the report.

use std::ops::Deref;

use cache::Lookahead;
use cache::dram::Cursor;
use device::Engine;

use super::item_sizes::ItemLimit;
use super::latency::Histogram;
use super::listed_drives::DriveBytes;
use super::stressors::StressorReport;

/// A cache of values by key, which may evict them. In real time with worker threads, its futures complete immediately, because the
/// calling thread blocks. Otherwise they wait as tasks.
pub trait Target: Send + Sync {
    /// A found value, readable until it is dropped.
    type Item<'a>: Found
    where
        Self: 'a;

    /// Looks up `key`.
    fn get(&self, key: &[u8]) -> impl Future<Output = Option<Self::Item<'_>>>;

    /// Whether calls block the calling thread, so that [`get_blocking`](Self::get_blocking) can be used.
    fn is_blocking(&self) -> bool {
        false
    }

    /// Looks up `key` on this thread, if the target [is blocking](Self::is_blocking). Returning the item through a future copied it
    /// twice, and stalls on the half-written copy took 2 to 4 % of a run in memory.
    fn get_blocking(&self, key: &[u8]) -> Option<Self::Item<'_>> {
        let _ = key;
        unreachable!("this target supports async gets only")
    }

    /// Announces a request for `key`, so that its memory can be prefetched. `ahead` belongs to the thread.
    fn look_ahead(&self, ahead: &mut Lookahead, key: &[u8]) {
        let _ = (ahead, key);
    }

    /// Stores a value of `value_bytes` bytes, written by `fill`.
    fn set(
        &self,
        key: &[u8],
        value_bytes: usize,
        how: SetHow,
        fill: impl FnOnce(&mut [u8]),
    ) -> impl Future<Output = SetOutcome>;

    /// Adds a chained item to the item under `key`; `false` if there is no such item or no memory.
    fn chain(
        &self,
        key: &[u8],
        value_bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> impl Future<Output = bool>;

    /// Removes `key`; `false` if it was absent.
    fn delete(&self, key: &[u8]) -> bool;

    /// Whether `key` may be present, without reading it.
    fn could_exist(&self, key: &[u8]) -> bool;

    /// Calls `visit` with the bytes of some items in DRAM, starting at `from`. Returns where to continue, or `None` at the end. A
    /// target without such an iterator visits nothing.
    fn scan_dram(&self, from: Cursor, visit: &mut dyn FnMut(u64)) -> Option<Cursor> {
        let _ = (from, visit);
        None
    }

    /// Waits until all removals have reached the device.
    ///
    /// # Errors
    /// A message, if items were lost in the process.
    fn settle(&self) -> Result<(), String> {
        Ok(())
    }

    /// Figures and failures of a special target after a run.
    fn special_report(&self) -> Option<StressorReport> {
        None
    }

    /// Counters since the target was opened.
    fn snapshot(&self) -> Snapshot;

    /// Byte counters of flash; `None` without flash. Called for every sample of a run.
    fn flash_bytes(&self) -> Option<FlashBytes> {
        self.snapshot().flash.as_ref().map(FlashBytes::of)
    }

    /// Latencies of the device's reads and writes; `None` if they are not measured. Called for every sample of a run.
    fn device_latency(&self) -> Option<(Histogram, Histogram)> {
        self.snapshot().flash?.device_latency
    }
}

/// A found value.
pub trait Found: Deref<Target = [u8]> {
    /// The tier that held it.
    fn layer(&self) -> Layer;

    /// Calls `show` with each chained item, in any order.
    fn each_link(&self, show: &mut dyn FnMut(&[u8]));
}

/// The tier in which a value was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// In memory.
    Dram,
    /// On flash, or waiting to be written to it.
    Flash,
}

/// Options of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetHow {
    /// The pool.
    pub pool: u16,
    /// Time to live in seconds; `None` never expires.
    pub ttl_seconds: Option<u32>,
    /// Leaves an existing value unchanged.
    pub only_if_absent: bool,
}

/// The result of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetOutcome {
    /// The value was stored.
    Stored,
    /// An existing value was left unchanged, as requested.
    Kept,
    /// Not enough memory, or the item is too large; an existing value is unchanged.
    Refused,
}

/// Counters of a target since it was opened, from which figures are computed. `None` means unknown, not zero.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// DRAM.
    pub dram: DramCounts,
    /// Flash; `None` without flash.
    pub flash: Option<FlashCounts>,
    /// Counts of inserts by outcome, each insert in exactly one; empty if the target does not report them.
    pub insert_ends: Vec<OutcomeCount>,
    /// Counts of additions of chained items by outcome, likewise.
    pub chain_ends: Vec<OutcomeCount>,
    /// The largest item that DRAM accepts; `None` if unknown.
    pub item_limit: Option<ItemLimit>,
    /// Further counters of the target, for `printNvmCounters` and the JSON.
    pub details: Vec<Detail>,
}

/// A named counter or gauge of one kind of target.
#[derive(Debug, Clone, PartialEq)]
pub struct Detail {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// Whether it is a gauge (a current value) and not a counter.
    pub is_state: bool,
}

impl Detail {
    /// A counter.
    #[must_use]
    pub fn count(name: &'static str, value: u64) -> Self {
        Self { name, value: value as f64, is_state: false }
    }

    /// A gauge.
    #[must_use]
    pub fn state(name: &'static str, value: u64) -> Self {
        Self { name, value: value as f64, is_state: true }
    }
}

/// The name of an outcome (`stored`, `rejected_too_large`), and its count.
pub type OutcomeCount = (&'static str, u64);

/// DRAM's counters.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DramCounts {
    /// Current number of items.
    pub items: Option<u64>,
    /// Attempted allocations.
    pub alloc_attempts: Option<u64>,
    /// Refused allocations.
    pub alloc_failures: Option<u64>,
    /// Attempted evictions.
    pub evict_attempts: Option<u64>,
    /// Successful evictions.
    pub evictions: Option<u64>,
    /// Share of each pool's memory in use, 0 to 1.
    pub pool_usage: Vec<f64>,
    /// The size classes that have memory, pool by pool.
    pub classes: Vec<ClassUse>,
    /// Slabs moved between classes.
    pub slabs_released: Option<u64>,
    /// Items moved to release a slab, and failed moves.
    pub slab_moves: Option<(u64, u64)>,
    /// Items evicted to release a slab, and failed evictions.
    pub slab_evictions: Option<(u64, u64)>,
}

/// Memory of a size class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassUse {
    /// Its pool.
    /// The pool.
    pub pool: u8,
    /// Number of the class in its pool.
    pub class: usize,
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// Bytes of its slabs.
    pub slab_bytes: u64,
    /// Bytes of the chunks in use.
    pub used_bytes: u64,
}

/// Flash's counters.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FlashCounts {
    /// Current number of items.
    pub items: Option<u64>,
    /// Lookups.
    pub gets: Option<u64>,
    /// Lookups that waited for another lookup of the same key.
    pub gets_coalesced: Option<u64>,
    /// Items offered to flash.
    pub puts: Option<u64>,
    /// Offered items that were accepted.
    pub puts_stored: Option<u64>,
    /// Offered items that were not written because flash already held them.
    pub puts_clean: Option<u64>,
    /// Offered items that were dropped because their key changed before the write.
    pub puts_overtaken: Option<u64>,
    /// Offered items that were not written because they were used again and stayed in DRAM.
    pub puts_stayed: Option<u64>,
    /// Offered items that had expired.
    pub puts_expired: Option<u64>,
    /// Counts of offered items by outcome, each item in exactly one; empty if the target does not report them.
    pub put_ends: Vec<OutcomeCount>,
    /// Times that an item stayed in DRAM, to be offered again later, because flash writes were behind.
    pub put_waits: Option<u64>,
    /// Largest accepted item, key and value.
    pub max_item_bytes: Option<u64>,
    /// Whether flash has regions for large items besides the buckets for small ones.
    pub has_regions: Option<bool>,
    /// Items lost to failed writes or to damage, including items whose write was never started.
    pub lost: Option<u64>,
    /// Evicted items.
    pub evictions: Option<u64>,
    /// Deletes that removed an item from flash.
    pub deletes: Option<u64>,
    /// Key and value bytes that were accepted, without those dropped before they were written.
    pub logical_bytes: Option<u64>,
    /// Those of `logical_bytes` that wait in memory to be written.
    pub waiting_bytes: Option<u64>,
    /// Capacity of the device.
    pub capacity_bytes: Option<u64>,
    /// Bytes written to the device.
    pub host_bytes: Option<u64>,
    /// Bytes read from the device.
    pub host_read_bytes: Option<u64>,
    /// Completed writes of buckets and regions, from which write amplification over an interval is computed.
    pub settled: Option<Settled>,
    /// Media writes: of the listed drives, or as the flash device reports them.
    pub media_bytes: Option<u64>,
    /// Media writes of each listed drive.
    pub listed_drives: Vec<DriveBytes>,
    /// Failed reads and writes.
    pub io_errors: Option<u64>,
    /// The message of the first I/O error.
    pub first_io_error: Option<String>,
    /// Buckets, regions or items whose checksum did not match.
    pub checksum_errors: Option<u64>,
    /// Whether I/O goes through the page cache.
    pub buffered: bool,
    /// How requests reach the kernel; `None` if flash is in memory or a model.
    pub engine: Option<Engine>,
    /// Each consumer that requested a placement handle, and its handle; 0 is the shared default. Empty without placement.
    pub placement: Vec<(String, u16)>,
    /// Whether it was opened with the contents of an earlier run.
    pub recovered: bool,
    /// Why the contents of an earlier run could not be recovered, if there were any.
    pub loss: Option<&'static str>,
    /// Latencies of device reads and writes, if they are measured.
    pub device_latency: Option<(Histogram, Histogram)>,
}

impl FlashCounts {
    /// Whether `written_bytes`, or an earlier run, filled the whole flash once; `None` if its size is unknown.
    #[must_use]
    pub fn is_filled_by(&self, written_bytes: u64) -> Option<bool> {
        Some(self.recovered || written_bytes >= self.capacity_bytes?)
    }

    /// Key and value bytes that were written: `logical_bytes` without those that still wait. Write amplification is computed from
    /// these; with `logical_bytes` it would be too low in a short run.
    #[must_use]
    pub fn settled_bytes(&self) -> Option<u64> {
        Some(self.logical_bytes?.saturating_sub(self.waiting_bytes?))
    }
}

/// Completed writes of buckets and regions. Both fields are updated when a write completes, so their ratio is valid over any interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settled {
    /// Key and value bytes.
    pub items: u64,
    /// Bytes of buckets and regions.
    pub host: u64,
}

impl Settled {
    /// The sum of both.
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

/// Byte counters of flash since it was opened. `None` means unknown, not zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlashBytes {
    /// Key and value bytes that were accepted, without those dropped before they were written.
    pub logical: Option<u64>,
    /// Those of `logical` that wait in memory to be written.
    pub waiting: Option<u64>,
    /// Bytes written to the device.
    pub host: Option<u64>,
    /// Completed writes of buckets and regions.
    pub settled: Option<Settled>,
    /// Media writes.
    pub media: Option<u64>,
    /// Whether `media` comes from listed drives.
    pub is_listed: bool,
}

impl FlashBytes {
    /// Extracts the byte counters.
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

    /// The sum over two instances. If only one of them lists drives, both may count the same drive, so the sum of `media` is unknown.
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

    /// The difference to `earlier`, a previous reading; `waiting` is the current value.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        let grown = |now: Option<u64>, then: Option<u64>| now?.checked_sub(then?);
        Self {
            // Bytes accepted before `earlier` may have been dropped since.
            logical: self.logical.zip(earlier.logical).map(|(now, then)| now.saturating_sub(then)),
            host: grown(self.host, earlier.host),
            settled: self.settled.zip(earlier.settled).map(|(now, then)| now.since(then)),
            media: grown(self.media, earlier.media),
            ..self
        }
    }
}
