//! The hybrid cache as a target.

use std::ops::Deref;
use std::sync::Arc;

use cache::stats::FlashStats;
use cache::{Cache, Cursor, InsertOptions, Item, Lookahead};
use device::Device;
use device::wrap::MeasureDevice;
use parking_lot::Mutex;

use super::item_sizes::ItemLimit;
use super::latency::Histogram;
use super::listed_drives::{DriveBytes, ListedDrive};
use super::object_limits::ObjectLimits;
use super::objects::{ID_BYTES, Objects};
use super::stressors::StressorReport;
use super::target::{FlashDevice, Found, Layer, SetHow, SetOutcome, Snapshot, Target};

/// A cache, with the measurements of its device.
pub struct EngineTarget {
    cache: Cache,
    call_mode: CallMode,
    flash: Option<MeasuredFlash>,
    listed_drives: Vec<ListedDrive>,
    item_limit: Option<ItemLimit>,
    objects: Option<ObjectCache>,
}

/// The objects of an object cache, and its limits.
struct ObjectCache {
    objects: Arc<Objects>,
    limits: ObjectLimits,
}

/// The result of a get: an item, or the object that the item refers to.
pub enum EngineItem<'a> {
    /// An item.
    Item(Item<'a>),
    /// An object on the heap.
    Object(Arc<[u8]>),
}

impl Deref for EngineItem<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Item(item) => item,
            Self::Object(object) => object,
        }
    }
}

/// The flash device of a cache, with its measurements.
pub struct MeasuredFlash {
    /// The device. It knows the placement handle of each consumer, and the first I/O error.
    pub device: Arc<MeasureDevice>,
    /// Latencies of its reads and writes.
    pub latency: Arc<DeviceLatency>,
    /// Whether data placement is enabled.
    pub placing: bool,
}

/// Which interface of the cache is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallMode {
    /// Blocking calls: the caller's thread waits.
    Blocking,
    /// Async calls: the caller is a task, in simulated time or on a thread with several workers.
    Async,
}

/// Read and write latencies of a device, in several stripes to reduce lock contention.
#[derive(Default)]
pub struct DeviceLatency {
    stripes: [Stripe; STRIPES],
}

const STRIPES: usize = 8;

#[derive(Default)]
#[repr(align(128))]
struct Stripe {
    reads: Mutex<Histogram>,
    writes: Mutex<Histogram>,
}

impl DeviceLatency {
    /// Records a read.
    pub fn read(&self, latency_ns: u64) {
        self.stripe(latency_ns).reads.lock().record(latency_ns);
    }

    /// Records a write.
    pub fn write(&self, latency_ns: u64) {
        self.stripe(latency_ns).writes.lock().record(latency_ns);
    }

    /// The low bits of a latency are close to random, so they select the stripe.
    fn stripe(&self, latency_ns: u64) -> &Stripe {
        &self.stripes[latency_ns as usize % STRIPES]
    }

    /// Reads and writes recorded so far.
    #[must_use]
    pub fn read_and_write(&self) -> (Histogram, Histogram) {
        let (mut reads, mut writes) = (Histogram::default(), Histogram::default());
        for stripe in &self.stripes {
            reads.merge(&stripe.reads.lock());
            writes.merge(&stripe.writes.lock());
        }
        (reads, writes)
    }
}

impl MeasuredFlash {
    /// The placement handle of each consumer; empty if placement is disabled.
    fn placement(&self) -> Vec<(String, u16)> {
        let consumers = if self.placing { self.device.consumers() } else { Vec::new() };
        consumers.into_iter().map(|(consumer, handle)| (consumer, handle.0)).collect()
    }
}

impl EngineTarget {
    /// Creates a target for `cache`.
    #[must_use]
    pub fn new(cache: Cache, call_mode: CallMode, flash: Option<MeasuredFlash>) -> Self {
        Self { cache, call_mode, flash, listed_drives: Vec::new(), item_limit: None, objects: None }
    }

    /// Sets the drives whose media writes are read from the drives themselves.
    #[must_use]
    pub fn with_listed_drives(self, listed_drives: Vec<ListedDrive>) -> Self {
        Self { listed_drives, ..self }
    }

    /// Sets the largest item that DRAM accepts.
    #[must_use]
    pub fn limited_to(self, limit: ItemLimit) -> Self {
        Self { item_limit: Some(limit), ..self }
    }

    /// Makes the target an object cache.
    #[must_use]
    pub fn with_objects(self, objects: Arc<Objects>, limits: ObjectLimits) -> Self {
        Self { objects: Some(ObjectCache { objects, limits }), ..self }
    }

    /// The item, or in an object cache its object; `None` if the object has been freed in the meantime.
    #[inline]
    fn found<'a>(&self, item: Item<'a>) -> Option<EngineItem<'a>> {
        match &self.objects {
            None => Some(EngineItem::Item(item)),
            Some(cache) => cache.objects.get(&item).map(EngineItem::Object),
        }
    }

    /// The cache.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Returns the cache after the run.
    #[must_use]
    pub fn into_cache(self) -> Cache {
        self.cache
    }
}

impl Found for EngineItem<'_> {
    fn layer(&self) -> Layer {
        match self {
            Self::Item(item) if item.layer() == cache::Layer::Flash => Layer::Flash,
            _ => Layer::Dram,
        }
    }

    fn each_link(&self, show: &mut dyn FnMut(&[u8])) {
        if let Self::Item(item) = self {
            item.chain().for_each(show);
        }
    }
}

impl Target for EngineTarget {
    type Item<'a> = EngineItem<'a>;

    #[inline]
    async fn get(&self, key: &[u8]) -> Option<EngineItem<'_>> {
        let item = match self.call_mode {
            CallMode::Blocking => self.cache.get_blocking(key),
            CallMode::Async => self.cache.get(key).await,
        };
        self.found(item?)
    }

    #[inline]
    fn is_blocking(&self) -> bool {
        self.call_mode == CallMode::Blocking
    }

    #[inline]
    fn get_blocking(&self, key: &[u8]) -> Option<EngineItem<'_>> {
        self.found(self.cache.get_blocking(key)?)
    }

    #[inline]
    fn look_ahead(&self, ahead: &mut Lookahead, key: &[u8]) {
        self.cache.look_ahead(ahead, key);
    }

    async fn set(
        &self,
        key: &[u8],
        value_bytes: usize,
        how: SetHow,
        fill: impl FnOnce(&mut [u8]),
    ) -> SetOutcome {
        let Ok(pool) = u8::try_from(how.pool) else { return SetOutcome::Refused };
        let options = InsertOptions { pool, ttl_seconds: how.ttl_seconds };
        // Avoids allocating memory for a value that would be discarded.
        if how.only_if_absent && self.cache.contains(key) && self.get(key).await.is_some() {
            return SetOutcome::Kept;
        }
        if let Some(cache) = &self.objects {
            cache.limits.step_if_due(&self.cache, &cache.objects);
            return self.set_object(cache, key, value_bytes, &options, how.only_if_absent, fill);
        }
        let allocated = match self.call_mode {
            CallMode::Blocking => self.cache.allocate_blocking(key, value_bytes, options),
            CallMode::Async => self.cache.allocate(key, value_bytes, options).await,
        };
        let Ok(mut item) = allocated else { return SetOutcome::Refused };
        fill(&mut item);
        if !how.only_if_absent {
            self.cache.insert_new(item);
            return SetOutcome::Stored;
        }
        if self.cache.insert_new_if_absent(item) { SetOutcome::Stored } else { SetOutcome::Kept }
    }

    async fn chain(&self, key: &[u8], value_bytes: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        match self.call_mode {
            CallMode::Blocking => self.cache.add_chained_blocking(key, value_bytes, fill).is_ok(),
            CallMode::Async => self.cache.add_chained(key, value_bytes, fill).await.is_ok(),
        }
    }

    fn delete(&self, key: &[u8]) -> bool {
        self.cache.remove(key)
    }

    fn could_exist(&self, key: &[u8]) -> bool {
        self.cache.contains(key)
    }

    fn scan_dram(&self, from: Cursor, visit: &mut dyn FnMut(u64)) -> Option<Cursor> {
        self.cache.scan_dram(from, |key, value| visit((key.len() + value.len()) as u64))
    }

    fn special_report(&self) -> Option<StressorReport> {
        let cache = self.objects.as_ref()?;
        Some(cache.objects.report(self.cache.len() as u64, cache.limits.current_limit()))
    }

    fn settle(&self) -> Result<(), String> {
        self.cache.settle_blocking().map_err(|error| error.to_string())
    }

    fn snapshot(&self) -> Snapshot {
        let mut stats = self.cache.stats();
        let listed_drives: Vec<_> = self.listed_drives.iter().map(ListedDrive::read).collect();
        set_media_bytes(&mut stats, &listed_drives);
        let device = self.flash.as_ref().map(|flash| FlashDevice {
            capacity_bytes: flash.device.geometry().capacity_bytes,
            listed_drives,
            first_error: flash.device.first_failure(),
            buffered: flash.device.geometry().buffered,
            engine: flash.device.engine(),
            placement: flash.placement(),
            latency: Some(flash.latency.read_and_write()),
        });
        Snapshot { stats, device, item_limit: self.item_limit }
    }

    /// Skips the histograms of a snapshot.
    fn flash_stats(&self) -> Option<FlashStats> {
        let mut stats = self.cache.stats();
        set_media_bytes(&mut stats, &self.listed_drives.iter().map(ListedDrive::read).collect::<Vec<_>>());
        stats.flash
    }

    fn lists_drives(&self) -> bool {
        !self.listed_drives.is_empty()
    }

    fn device_latency(&self) -> Option<(Histogram, Histogram)> {
        Some(self.flash.as_ref()?.latency.read_and_write())
    }
}

/// Replaces the media writes that flash reports by those of the listed drives, if there are any.
fn set_media_bytes(stats: &mut cache::Stats, listed_drives: &[DriveBytes]) {
    if let (Some(flash), [_, ..]) = (&mut stats.flash, listed_drives) {
        flash.device.media_written_bytes = listed_drives.iter().map(DriveBytes::of_this_instance).sum();
    }
}

impl EngineTarget {
    /// Stores an object on the heap and inserts an item that refers to it.
    fn set_object(
        &self,
        ObjectCache { objects, limits }: &ObjectCache,
        key: &[u8],
        value_bytes: usize,
        options: &InsertOptions,
        only_if_absent: bool,
        fill: impl FnOnce(&mut [u8]),
    ) -> SetOutcome {
        // An eviction gives up after a limited number of placeholders, and does not meet them again.
        let attempts = || 0..limits.attempts();
        let allocate = || attempts().find_map(|_| self.cache.allocate_blocking(key, ID_BYTES, options).ok());
        let Some(mut item) = Some(key).filter(|key| objects.accepts_key(key)).and_then(|_| allocate()) else {
            return SetOutcome::Refused;
        };
        let mut object = vec![0; value_bytes];
        fill(&mut object);
        let id = objects.add(object.into());
        item.copy_from_slice(&id);
        if !only_if_absent {
            self.cache.insert_new(item);
            return SetOutcome::Stored;
        }
        if self.cache.insert_new_if_absent(item) {
            return SetOutcome::Stored;
        }
        objects.free(&id);
        SetOutcome::Kept
    }
}
