//! The store: inserts, removals, and the background step.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use device::{Clock, Device, PlacementHandle};
use parking_lot::Mutex;

use crate::KeyHash;
use crate::flash::{DestructorCallback, FlashItem, HashFilter};

use super::buffer::{RegionBuffer, Reservation};
use super::config::{RegionConfig, RegionConfigError, Reinsertion};
use super::entry;
use super::forget::PendingDestructors;
use super::index::{Found, Index};
use super::journal::{FIRST_SEQUENCE, RegionJournal};
use super::layout::{Layout, RegionId, SizeHint, StoreId};
use super::policy::{self, Needs, Placing, Rank, RegionPolicy, Resident};
use super::stats::{Counters, Memory, RegionStats};
use super::supply::{Claim, Supply, WriteHealth};
use super::table::{self, Filling};
use super::{InsertionPoint, MAX_KEY_BYTES};

/// Log-structured regions on a device. Shared by all threads.
///
/// Only [`read`](Self::read), [`step`](Self::step) and [`drain`](Self::drain) wait for the device. Tasks must call `step` until it is idle,
/// whenever [`wait_work`](Self::wait_work) returns; several may do so concurrently.
pub struct RegionStore {
    pub(super) device: Arc<dyn Device>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) config: RegionConfig,
    pub(super) layout: Layout,
    pub(super) id: StoreId,
    pub(super) index: Index,
    pub(super) regions: Box<[Region]>,
    pub(super) points: Box<[Point]>,
    pub(super) supply: Arc<Supply>,
    /// Lock order: the policy before a shard of the index.
    pub(super) policy: Mutex<Box<dyn RegionPolicy>>,
    pub(super) needs: Needs,
    /// Consecutive reclaims that gained almost no space, because nearly all of the region was reinserted.
    pub(super) fruitless: AtomicU32,
    /// Reclaims since a new item was inserted.
    pub(super) since_new: AtomicU32,
    pub(super) next_sequence: AtomicU64,
    pub(super) counters: Counters,
    pub(super) on_eviction: Option<OnEviction>,
    /// Selects the keys reported to `on_eviction`; all if `None`.
    pub(super) is_reported: Option<HashFilter>,
    pub(super) on_destructor: Option<DestructorCallback>,
    /// Items that are no longer in the index, and must be read to call their destructors.
    pub(super) pending_destructors: PendingDestructors,
    /// Records removals and regions, if the store is recovered after a kill.
    pub(super) journal: Option<RegionJournal>,
}

pub use crate::flash::OnEviction;

/// A region of the store with its content.
pub(super) struct Region {
    pub content: Mutex<Content>,
    failures: AtomicU8,
}

impl Region {
    fn new() -> Self {
        Self { content: Mutex::new(Content::Clean), failures: AtomicU8::new(0) }
    }

    /// Counts a failed write during which other regions could be written. Returns the number of failures since the last success.
    pub(super) fn count_failure(&self) -> u8 {
        self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    pub(super) fn failures(&self) -> u8 {
        self.failures.load(Ordering::Relaxed)
    }

    pub(super) fn reset_failures(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }
}

/// The content of a region.
#[derive(Clone)]
pub(super) enum Content {
    /// Empty.
    Clean,
    /// Entries that have not reached flash.
    Buffered(Arc<RegionBuffer>),
    /// Entries on flash.
    Flash { filling: Filling, entries: u32, point: InsertionPoint },
    /// Empty, until a test write succeeds.
    Retired,
}

pub(super) struct Point {
    pub open: Mutex<Option<Arc<RegionBuffer>>>,
    placement: PlacementHandle,
}

/// An item that is in a buffer but not yet visible to readers. Dropping it abandons its space.
///
/// The flush of its region waits for it: keep it only as long as it takes to lock the key.
#[must_use = "a staged item is not in the store before it is committed"]
pub struct Staged {
    pub(super) reservation: Reservation,
    pub(super) placing: Placing,
    pub(super) hash: KeyHash,
    pub(super) payload_bytes: usize,
}

/// Why an item was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No free buffer or no clean region; see [`RegionStore::wait_ready`].
    #[error("no clean region or no free buffer")]
    Full,
    /// The item is larger than a region holds, or its key longer than [`MAX_KEY_BYTES`].
    #[error("the item is larger than a region holds")]
    TooLarge,
    /// The buffers are full of regions whose writes fail. The caller should not wait.
    #[error("the device fails, and the buffers are full")]
    Failing,
    /// So many regions are retired that the store refuses items until one of them can be written again.
    #[error("too few writable regions are left")]
    WornOut,
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// There was nothing to do.
    Idle,
    /// A region was flushed, or its write failed.
    Flushed,
    /// A region was reclaimed, or trimmed after a clear.
    Reclaimed,
    /// A retired region was tested.
    Tested,
    /// An item that is no longer in the index was read, and its destructor called.
    Destroyed,
}

impl RegionStore {
    /// An empty store. Nothing is read or written.
    ///
    /// # Errors
    /// If the configuration does not fit the device.
    pub fn create(
        device: Arc<dyn Device>,
        clock: Arc<dyn Clock>,
        config: RegionConfig,
        id: StoreId,
    ) -> Result<Self, RegionConfigError> {
        let mut store = Self::assemble(device, clock, config, id)?;
        store.journal = Self::new_journal(&store.device, &store.config, id);
        (0..store.layout.region_count).for_each(|region| store.supply.give_region(RegionId(region)));
        Ok(store)
    }

    /// A store without regions, clean or used, and without a journal.
    pub(super) fn assemble(
        device: Arc<dyn Device>,
        clock: Arc<dyn Clock>,
        config: RegionConfig,
        id: StoreId,
    ) -> Result<Self, RegionConfigError> {
        let layout = config.check(&device.geometry())?;
        let regions = layout.region_count as usize;
        let points = points(&config, &*device);
        let policy = policy::build(&config, &layout);
        let needs = policy.needs();
        // A reclaim that must not lose an item needs the whole reserve for itself.
        let reclaims_at_once = if needs.items { 1 } else { usize::MAX };
        Ok(Self {
            supply: Arc::new(Supply::new(
                layout.region_bytes as usize,
                config.buffers as usize,
                reserve(&config),
                regions,
                reclaims_at_once,
            )),
            points,
            regions: std::iter::repeat_with(Region::new).take(regions).collect(),
            policy: Mutex::new(policy),
            needs,
            fruitless: AtomicU32::new(0),
            since_new: AtomicU32::new(0),
            index: Index::new(needs.items),
            next_sequence: AtomicU64::new(FIRST_SEQUENCE),
            counters: Counters::default(),
            on_eviction: None,
            is_reported: None,
            on_destructor: None,
            pending_destructors: PendingDestructors::default(),
            journal: None,
            device,
            clock,
            config,
            layout,
            id,
        })
    }

    /// Copies an item into an open region. Readers find it after its [commit](Self::commit).
    ///
    /// # Errors
    /// A [`Refusal`]. The store is then unchanged, except that a region without enough space for this item is closed.
    pub fn stage(&self, item: &FlashItem<'_>) -> Result<Staged, Refusal> {
        let staged = self.units(item).and_then(|units| {
            let placing = self.placing(units);
            self.stage_at(item, placing, Claim::New)
        });
        staged.inspect_err(|refusal| match refusal {
            Refusal::TooLarge => Counters::one(&self.counters.refused_too_large),
            Refusal::Full | Refusal::Failing | Refusal::WornOut => Counters::one(&self.counters.refused_full),
        })
    }

    fn placing(&self, units: u32) -> Placing {
        if !self.needs.items {
            return Placing::LOWEST;
        }
        self.policy.lock().arrival(SizeHint::of_units(units).units())
    }

    /// The units of the item's entry.
    fn units(&self, item: &FlashItem<'_>) -> Result<u32, Refusal> {
        let payload_bytes = item.key.len() + item.value_len();
        if payload_bytes > self.max_item_bytes() || item.key.len() > MAX_KEY_BYTES {
            return Err(Refusal::TooLarge);
        }
        Ok(self.layout.units(entry::entry_bytes(item.key.len(), item.value_len())))
    }

    pub(super) fn stage_at(
        &self,
        item: &FlashItem<'_>,
        placing: Placing,
        claim: Claim,
    ) -> Result<Staged, Refusal> {
        let units = self.units(item)?;
        let reservation = self.reserve(item, units, self.point(placing), claim)?;
        // Read first: the counter is usually 0, and a read does not take the cache line from other threads.
        if claim == Claim::New && self.since_new.load(Ordering::Relaxed) > 0 {
            self.since_new.store(0, Ordering::Relaxed);
        }
        Ok(self.fill(item, placing, reservation))
    }

    /// Stages an item at any point whose open region has space, for an item that must not be lost.
    pub(super) fn stage_anywhere(&self, item: &FlashItem<'_>, placing: Placing) -> Option<Staged> {
        let units = self.units(item).ok()?;
        let fit = |point: &Point| {
            point.open.lock().as_ref()?.reserve_if_fits(item.hash, units, item.expiry_seconds)
        };
        let reservation = self.points.iter().find_map(fit)?;
        Some(self.fill(item, placing, reservation))
    }

    fn fill(&self, item: &FlashItem<'_>, placing: Placing, mut reservation: Reservation) -> Staged {
        let seal = reservation.buffer().seal;
        entry::encode(item, self.config.value_checksums, seal, reservation.bytes());
        Staged { reservation, placing, hash: item.hash, payload_bytes: item.key.len() + item.value_len() }
    }

    /// The insertion point of a level, limited to the last one.
    fn point(&self, placing: Placing) -> InsertionPoint {
        InsertionPoint(placing.level).min(self.last_point())
    }

    fn reserve(
        &self,
        item: &FlashItem<'_>,
        units: u32,
        point: InsertionPoint,
        claim: Claim,
    ) -> Result<Reservation, Refusal> {
        if claim == Claim::New && self.is_held_back() {
            return Err(self.why_full());
        }
        let mut open = self.points[usize::from(point.0)].open.lock();
        if let Some(buffer) = open.as_ref() {
            if let Some(reservation) = buffer.reserve(item.hash, units, item.expiry_seconds) {
                return Ok(reservation);
            }
            *open = None;
        }
        let buffer = self.open_region(point, claim)?;
        let reservation = buffer.reserve(item.hash, units, item.expiry_seconds);
        *open = Some(buffer);
        Ok(reservation.expect("an item that is not too large fits an empty region"))
    }

    /// The reason why there is no free region or buffer.
    fn why_full(&self) -> Refusal {
        match () {
            () if self.is_worn_out() => Refusal::WornOut,
            () if self.supply.is_failing() => Refusal::Failing,
            () => Refusal::Full,
        }
    }

    /// Whether new items must wait: while reclaims that must not lose an item use the reserve, new items would take the space that they
    /// need.
    fn is_held_back(&self) -> bool {
        self.needs.items && self.supply.is_below_reserve()
    }

    fn open_region(&self, point: InsertionPoint, claim: Claim) -> Result<Arc<RegionBuffer>, Refusal> {
        let Some((region, bytes)) = self.supply.take(claim) else {
            return Err(self.why_full());
        };
        let sequence = self.next_sequence();
        let filling = Filling { store: self.id.0, sequence };
        let supply = Arc::clone(&self.supply);
        let buffer = RegionBuffer::new(region, point, filling, self.layout, bytes, supply);
        *self.region(region).content.lock() = Content::Buffered(Arc::clone(&buffer));
        Ok(buffer)
    }

    /// Makes a staged item visible to readers. Called under the key's lock.
    pub fn commit(&self, staged: Staged) {
        let Staged { reservation, placing, hash, payload_bytes } = staged;
        let item = self.found(&reservation);
        let buffer = reservation.buffer();
        // Before the commit: afterwards the region may be on flash already.
        buffer.payload_bytes.fetch_add(payload_bytes, Ordering::Relaxed);
        buffer.new_items.fetch_add(1, Ordering::Relaxed);
        let (region, point) = (buffer.region, buffer.point);
        reservation.commit(|| {
            if let Some(replaced) = self.put_in(hash, item, region, point, placing) {
                Counters::one(&self.counters.overwritten);
                self.record_removal(replaced.address);
            }
            true
        });
        Counters::one(&self.counters.inserts);
        Counters::add(&self.counters.inserted_bytes, payload_bytes);
    }

    /// Inserts an item into the index. Returns the item that it replaced.
    fn put_in(
        &self,
        hash: KeyHash,
        item: Found,
        region: RegionId,
        point: InsertionPoint,
        placing: Placing,
    ) -> Option<Found> {
        if !self.needs.items {
            return self.index.insert(hash, item);
        }
        let mut policy = self.policy.lock();
        let rank = policy.enter(region, point, placing, item.size.units());
        let before = self.index.insert(hash, Found { rank, ..item })?;
        policy.left(&self.resident(before));
        Some(before)
    }

    /// Removes an item from the index and notifies the policy.
    pub(super) fn take_out(&self, remove: impl FnOnce(&Index) -> Option<Found>) -> Option<Found> {
        if !self.needs.items {
            return remove(&self.index);
        }
        let mut policy = self.policy.lock();
        let found = remove(&self.index)?;
        policy.left(&self.resident(found));
        Some(found)
    }

    /// An item of the index, as the policy sees it.
    pub(super) fn resident(&self, found: Found) -> Resident {
        let (region, _) = self.layout.place(found.address);
        Resident { region, rank: found.rank, hits: found.hits, units: found.size.units() }
    }

    /// Abandons a staged item. Its bytes stay in the region as dead space.
    pub fn abandon(&self, staged: Staged) {
        Counters::one(&self.counters.abandoned);
        drop(staged);
    }

    /// The index record of a reservation.
    pub(super) fn found(&self, reservation: &Reservation) -> Found {
        let address = self.layout.address(reservation.buffer().region, reservation.unit);
        Found { address, size: SizeHint::of_units(reservation.units), hits: 0, rank: Rank::NONE }
    }

    /// Whether the store may hold an item with this hash. `false` is certain.
    #[must_use]
    pub fn may_contain(&self, hash: KeyHash) -> bool {
        self.index.get(hash).is_some()
    }

    /// Whether an item that needs no new region, or that can have one, would be accepted now.
    #[must_use]
    pub fn ready(&self) -> bool {
        // With several insertion points, the next item may need any of them. If each has an open region, they may hold all buffers but
        // the reserve, and none becomes free before an item closes a region: such an item must not wait for a buffer.
        let is_open = |point: &Point| point.open.lock().is_some();
        !self.is_held_back() && (self.supply.has(Claim::New) || self.points.iter().all(is_open))
    }

    /// Waits until the store is [`ready`](Self::ready), or until it cannot become ready soon: the next [`stage`](Self::stage) then
    /// returns the reason.
    pub async fn wait_ready(&self) {
        let is_over = || self.ready() || self.is_worn_out() || self.supply.is_failing();
        while !is_over() {
            let region_returned = self.supply.region_returned.listen();
            if is_over() {
                return;
            }
            region_returned.await;
        }
    }

    /// Whether too few regions are in service for new items.
    pub(crate) fn is_worn_out(&self) -> bool {
        self.supply.in_service() <= self.points.len() + reserve(&self.config)
    }

    pub(super) fn region(&self, region: RegionId) -> &Region {
        &self.regions[region.0 as usize]
    }

    pub(super) fn placement(&self, point: InsertionPoint) -> PlacementHandle {
        self.points[usize::from(point.0)].placement
    }

    pub(super) fn last_point(&self) -> InsertionPoint {
        InsertionPoint(u8::try_from(self.points.len() - 1).expect("at most 16 points"))
    }

    /// Largest key and value together that a region holds.
    #[must_use]
    pub fn max_item_bytes(&self) -> usize {
        let space = self.layout.region_bytes as usize - table::table_bytes(1);
        space / self.layout.unit_bytes as usize * self.layout.unit_bytes as usize - entry::HEADER_BYTES
    }

    /// Bytes of all regions, and of the regions in service that are not clean.
    #[must_use]
    pub fn room_bytes(&self) -> (u64, u64) {
        let (in_service, clean) = (self.supply.in_service() as u64, self.supply.clean() as u64);
        let region_bytes = u64::from(self.layout.region_bytes);
        (self.regions.len() as u64 * region_bytes, in_service.saturating_sub(clean) * region_bytes)
    }

    /// Regions out of service because their writes failed.
    #[must_use]
    pub fn retired_regions(&self) -> usize {
        self.regions.len() - self.supply.in_service()
    }

    /// The state of the device, derived from failed writes.
    pub(crate) fn write_health(&self) -> WriteHealth {
        self.supply.write_health()
    }

    /// Number of items that readers can find.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether the store holds no item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The location of regions on the device.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Number of clean regions.
    #[must_use]
    pub fn clean_regions(&self) -> usize {
        self.supply.clean()
    }

    /// Counters since the store was created or restored.
    #[must_use]
    pub fn stats(&self) -> RegionStats {
        let policy_counts = self.policy.lock().policy_counts();
        let counted = self.counters.read();
        RegionStats {
            items: self.len() as u64,
            // An item may be settled before its insert is counted.
            waiting_bytes: counted.inserted_bytes.saturating_sub(counted.settled_bytes),
            raises: policy_counts.raises,
            regions_deferred: policy_counts.deferrals,
            cold_victims: policy_counts.cold_victims,
            compactions: policy_counts.compactions,
            ..counted
        }
    }

    /// Memory of the store.
    #[must_use]
    pub fn memory(&self) -> Memory {
        Memory {
            index_bytes: self.index.memory_bytes(),
            buffer_bytes: self.config.buffers as usize * self.layout.region_bytes as usize,
            region_bytes: self.regions.len() * size_of::<Region>()
                + self.policy.lock().policy_counts().memory_bytes as usize,
        }
    }
}

/// The insertion points with their placement handles.
fn points(config: &RegionConfig, device: &dyn Device) -> Box<[Point]> {
    let mut before = None;
    let point = |number| {
        let consumer = config.consumer(number);
        let placement = match &before {
            Some((name, placement)) if *name == consumer => *placement,
            _ => device.allocate_handle(&consumer),
        };
        before = Some((consumer, placement));
        Point { open: Mutex::new(None), placement }
    };
    (0..config.points()).map(point).collect()
}

/// Number of clean regions and buffers reserved for reinsertion.
pub(super) fn reserve(config: &RegionConfig) -> usize {
    usize::from(config.reinsertion != Reinsertion::Never || config.order.protects_items())
}

impl Drop for RegionStore {
    fn drop(&mut self) {
        self.supply.close();
    }
}
