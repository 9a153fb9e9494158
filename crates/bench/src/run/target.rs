//! The interface of a cache under stress: the operations that the loop calls, and the counters for the report.

use std::ops::Deref;

use cache::stats::{CounterTable, FlashStats};
use cache::{Cursor, Lookahead};
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

    /// Figures and failures after a run, if the target is a stressor.
    fn special_report(&self) -> Option<StressorReport> {
        None
    }

    /// Counters since the target was opened.
    fn snapshot(&self) -> Snapshot;

    /// Counters of flash; `None` without flash. Called for every sample of a run.
    fn flash_stats(&self) -> Option<FlashStats> {
        self.snapshot().stats.flash
    }

    /// Whether the media writes of flash are those of listed drives.
    fn lists_drives(&self) -> bool {
        self.snapshot().device.is_some_and(|device| !device.listed_drives.is_empty())
    }

    /// Latencies of the device's reads and writes; `None` if they are not measured. Called for every sample of a run.
    fn device_latency(&self) -> Option<(Histogram, Histogram)> {
        self.snapshot().device?.latency
    }
}

/// A found value.
pub trait Found: Deref<Target = [u8]> {
    /// The tier that held the item.
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

/// Counters of a target since it was opened, from which figures are computed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// The cache's counters. The media writes of its flash are those of the listed drives, if the config lists any.
    pub stats: cache::Stats,
    /// The flash device; `None` without flash.
    pub device: Option<FlashDevice>,
    /// The largest item that DRAM accepts; `None` if unknown.
    pub item_limit: Option<ItemLimit>,
}

/// The device under flash.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FlashDevice {
    /// Its capacity.
    pub capacity_bytes: u64,
    /// Media writes of each listed drive.
    pub listed_drives: Vec<DriveBytes>,
    /// The message of the first I/O error.
    pub first_error: Option<String>,
    /// Whether I/O goes through the page cache.
    pub buffered: bool,
    /// How requests reach the kernel; `None` if flash is in memory or a model.
    pub engine: Option<Engine>,
    /// Each consumer that requested a placement handle, and its handle; 0 is the shared default. Empty without placement.
    pub placement: Vec<(String, u16)>,
    /// Latencies of reads and writes, if they are measured.
    pub latency: Option<(Histogram, Histogram)>,
}

impl Snapshot {
    /// The sum of both. Media writes are dropped: a drive that both list would count twice. The report reads all drives together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut stats = self.stats.clone().plus(&other.stats);
        if let (Some(sum), Some(_), Some(_)) = (&mut stats.flash, &self.stats.flash, &other.stats.flash) {
            sum.device.media_written_bytes = None;
        }
        Self {
            stats,
            device: match (&self.device, &other.device) {
                (Some(mine), Some(theirs)) => Some(mine.plus(theirs)),
                (one, other) => one.clone().or_else(|| other.clone()),
            },
            item_limit: self.item_limit.filter(|_| self.item_limit == other.item_limit),
        }
    }

    /// The difference to `earlier`, a previous reading. Gauges keep their current value.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            stats: self.stats.since(&earlier.stats),
            device: match (&self.device, &earlier.device) {
                (Some(now), Some(before)) => Some(now.since(before)),
                (now, _) => now.clone(),
            },
            item_limit: self.item_limit,
        }
    }

    /// Whether `written_bytes`, or an earlier run, filled the whole flash once; `None` without flash, or if its size is unknown.
    #[must_use]
    pub fn is_filled_by(&self, written_bytes: u64) -> Option<bool> {
        let flash = self.stats.flash.as_ref()?;
        Some(flash.recovered || written_bytes >= self.device.as_ref()?.capacity_bytes)
    }

    /// Latencies of the device's reads and writes, if they are measured.
    #[must_use]
    pub fn device_latency(&self) -> Option<&(Histogram, Histogram)> {
        self.device.as_ref()?.latency.as_ref()
    }

    /// Calls `show` with the name and value of each counter in CacheBench's list.
    pub fn each_listed_counter(&self, mut show: impl FnMut(&'static str, u64)) {
        self.stats.for_each(|it| {
            if let (Some(name), Some(value)) = (it.counter.listed_as, it.value) {
                show(name, value);
            }
        });
    }
}

impl FlashDevice {
    fn plus(&self, other: &Self) -> Self {
        let latency = self.latency.clone().zip(other.latency.as_ref());
        Self {
            capacity_bytes: self.capacity_bytes + other.capacity_bytes,
            first_error: self.first_error.clone().or_else(|| other.first_error.clone()),
            buffered: self.buffered || other.buffered,
            engine: self.engine.max(other.engine),
            // Handles are numbered per namespace: equal numbers may be different handles.
            placement: Vec::new(),
            listed_drives: Vec::new(),
            latency: latency.map(|((mut reads, mut writes), other)| {
                reads.merge(&other.0);
                writes.merge(&other.1);
                (reads, writes)
            }),
        }
    }

    fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        for drive in &mut since.listed_drives {
            let before = earlier.listed_drives.iter().find(|it| it.path == drive.path);
            let before_bytes = before.and_then(|it| it.media_bytes);
            drive.media_bytes =
                drive.media_bytes.zip(before_bytes).map(|(now, then)| now.saturating_sub(then));
        }
        if let (Some((reads, writes)), Some(before)) = (&mut since.latency, &earlier.latency) {
            (*reads, *writes) = (reads.since(&before.0), writes.since(&before.1));
        }
        since
    }
}

/// The name of an outcome (`stored`, `rejected_too_large`), and its count.
pub type OutcomeCount = (&'static str, u64);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use cache::stats::FlashStats;

    use super::*;

    /// A reading in which each counter is `count` or twice that, and each gauge is `state`.
    fn at(count: u64, state: u64) -> Snapshot {
        let mut flash = FlashStats::default();
        (flash.puts.offered, flash.puts.logical_bytes) = (count, 2 * count);
        flash.device.media_written_bytes = Some(2 * count);
        let mut stats = cache::Stats { flash: Some(flash), ..cache::Stats::default() };
        (stats.gets.misses, stats.dram_memory.arena_bytes) = (count, state);
        let device = FlashDevice {
            capacity_bytes: state,
            listed_drives: vec![drive("/dev/a", count), drive("/dev/b", 2 * count)],
            latency: Some((times(count), times(2 * count))),
            ..FlashDevice::default()
        };
        Snapshot { stats, device: Some(device), item_limit: None }
    }

    fn drive(path: &str, bytes: u64) -> DriveBytes {
        DriveBytes { path: path.into(), media_bytes: Some(bytes), is_shared: false }
    }

    fn times(count: u64) -> Histogram {
        let mut histogram = Histogram::default();
        (0..count).for_each(|_| histogram.record(1000));
        histogram
    }

    #[test]
    fn since_subtracts_counters_and_keeps_gauges() {
        let mut expected = at(6, 7);
        expected.device.as_mut().unwrap().capacity_bytes = 7;
        assert_eq!(at(10, 7).since(&at(4, 7)), expected);
    }

    #[test]
    fn plus_adds_counters_and_drops_drives() {
        let mut both = at(7, 12);
        both.stats.flash.as_mut().unwrap().device.media_written_bytes = None;
        both.device.as_mut().unwrap().listed_drives.clear();
        assert_eq!(at(3, 4).plus(&at(4, 8)), both);
    }

    #[test]
    fn sum_with_a_side_without_latency_has_none_and_missing_flash_counts_as_zero() {
        let known = at(3, 4);
        let mut unmeasured = at(4, 8);
        unmeasured.device.as_mut().unwrap().latency = None;
        for both in [known.plus(&unmeasured), unmeasured.plus(&known)] {
            assert_eq!(both.device_latency(), None);
        }
        let both = Snapshot::default().plus(&known);
        assert_eq!(
            (both.stats.flash, both.device),
            (known.stats.flash, known.device),
            "no flash counts as zero"
        );
    }

    #[test]
    fn plus_is_recovered_if_both_are_and_buffered_if_either_is() {
        let one = |flag| {
            let flash = FlashStats { recovered: flag, ..FlashStats::default() };
            let device = Some(FlashDevice { buffered: flag, ..FlashDevice::default() });
            Snapshot {
                stats: cache::Stats { flash: Some(flash), ..cache::Stats::default() },
                device,
                item_limit: None,
            }
        };
        for (mine, theirs) in [(true, false), (false, true)] {
            let both = one(mine).plus(&one(theirs));
            assert_eq!((both.stats.flash.unwrap().recovered, both.device.unwrap().buffered), (false, true));
        }
        assert!(one(true).plus(&one(true)).stats.flash.unwrap().recovered);
    }
}
