//! The snapshot of a clean close, and its recovery: two bytes per item, four if items have ranks.
//!
//! A [snapshot](super::snapshot) lists the filling of each region, the order of reclaim, and the live entries. Hashes, lengths and expiry
//! times are not in it: a restart reads them from the regions' tables. After a crash there is no snapshot. The store is then
//! [recovered](RegionStore::recover) by its journal. Without a journal it is created with another identity and ignores all old regions,
//! since an entry alone does not show whether it was removed.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::checksum::Crc32c;
use device::{Clock, Device};
use futures_util::future::join_all;

use crate::flash::Waiting;

use super::config::{RegionConfig, RegionConfigError};
use super::index::Found;
use super::layout::{RegionId, SizeHint, StoreId};
use super::policy::Rank;
use super::snapshot::{CHECKSUM_BYTES, Head, Held, HeldBytes, Live, Snapshot, Tail};
use super::stats::Counters;
use super::store::{Content, RegionStore};
use super::table::{Filling, Record};
use crate::flash::outage::TestPlan;

/// Tables read concurrently at a restart.
const TABLES_AT_ONCE: usize = 32;

/// Minimum number of live items in a band. Each band scans the whole index twice. Few in tests, so that their small stores have several
/// bands.
const BAND_ITEMS: u64 = if cfg!(test) { 100 } else { 1 << 18 };
/// Number of bands of a large store; with it, a band takes a byte per item.
const BANDS: u64 = 8;

/// Why a store could not be restored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The configuration does not fit the device.
    #[error(transparent)]
    Config(#[from] RegionConfigError),
    /// The snapshot is damaged or cut short.
    #[error("the region store's snapshot is damaged: {0}")]
    Damaged(&'static str),
    /// The snapshot is of a format that this version does not know.
    #[error("the region store's snapshot is of format {0}; this version reads formats 1 and 2")]
    Format(u32),
    /// The store was made with another layout.
    #[error("the region store was created with {setting} {was}, but is now configured with {is}")]
    Layout {
        /// The setting.
        setting: &'static str,
        /// Its value in the snapshot.
        was: u32,
        /// Its value in the configuration.
        is: u32,
    },
}

/// A snapshot that is being written. The index finds items by hash, and a snapshot lists them by location. Sorting all of them together
/// would take more memory than the index, so the snapshot is built in bands of consecutive regions.
pub struct OutgoingSnapshot<'a> {
    store: &'a RegionStore,
    head: Head,
    held: Vec<Held>,
    tail: Tail,
    bytes: u64,
}

impl RegionStore {
    /// The snapshot of the store. Call it after [`drain`](Self::drain), with no concurrent calls; it omits items that are not on flash.
    ///
    /// The caller must destroy the snapshot before the store is used again after a restart. A snapshot older than the last remove or insert
    /// would bring removed items back.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        self.snapshot_within(u64::MAX).pieces().flatten().collect()
    }

    /// A snapshot of at most `most_bytes`. If items are smaller than expected, the regions next in line for reclaim are left out and are
    /// clean after the restart.
    #[must_use]
    pub fn snapshot_within(&self, most_bytes: u64) -> OutgoingSnapshot<'_> {
        let live = self.live_items();
        let mut policy = self.policy.lock();
        let (in_order, saved) = (policy.in_order(), self.needs.items.then(|| policy.save()));
        drop(policy);
        let held = in_order.into_iter().filter_map(|(id, priority)| {
            let Content::Flash { filling, entries, point } = *self.region(id).content.lock() else {
                return None;
            };
            Some(Held { id, priority, point, sequence: filling.sequence, entries, live: live[id.0 as usize] })
        });
        let is_retired = |id: &RegionId| matches!(*self.region(*id).content.lock(), Content::Retired);
        let mut outgoing = OutgoingSnapshot {
            store: self,
            head: Head {
                has_ranks: saved.is_some(),
                unit_bytes: self.layout.unit_bytes,
                region_bytes: self.layout.region_bytes,
                region_count: self.layout.region_count,
                store: self.id.0,
                next_sequence: self.next_sequence.load(Ordering::Relaxed),
            },
            held: held.collect(),
            tail: Tail {
                retired: (0..self.layout.region_count).map(RegionId).filter(is_retired).collect(),
                policy: saved,
            },
            bytes: 0,
        };
        outgoing.shorten(most_bytes);
        outgoing
    }

    /// The number of live items in each region.
    fn live_items(&self) -> Vec<u32> {
        let mut live = vec![0; self.layout.region_count as usize];
        self.index.for_each(|found| live[self.layout.place(found.address).0.0 as usize] += 1);
        live
    }

    /// The live items of some regions, in the order of their locations.
    fn live_in(&self, held: &[Held]) -> Vec<Vec<Live>> {
        let mut at = vec![usize::MAX; self.layout.region_count as usize];
        held.iter().enumerate().for_each(|(number, held)| at[held.id.0 as usize] = number);
        let mut live: Vec<Vec<Live>> =
            held.iter().map(|held| Vec::with_capacity(held.live as usize)).collect();
        self.index.for_each(|found| {
            let (region, unit) = self.layout.place(found.address);
            if let Some(live) = live.get_mut(at[region.0 as usize]) {
                live.push(Live { unit, hits: found.hits, rank: found.rank });
            }
        });
        live.iter_mut().for_each(|live| live.sort_unstable());
        live
    }
}

impl<'a> OutgoingSnapshot<'a> {
    /// Size of the whole snapshot.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The snapshot, in pieces.
    pub fn pieces(&self) -> impl Iterator<Item = Vec<u8>> {
        let head = self.head.encode(self.held.len(), self.tail.retired.len());
        let regions = self.bands().flat_map(|band| self.regions(band));
        let mut parts =
            std::iter::once(head).chain(regions).chain(std::iter::once_with(|| self.tail.encode()));
        let mut checksum = Some(Crc32c::default());
        std::iter::from_fn(move || {
            let Some(part) = parts.next() else {
                let checksum = checksum.take()?.finish();
                return Some(checksum.to_le_bytes().to_vec());
            };
            checksum.as_mut()?.update(&part);
            Some(part)
        })
    }

    /// Leaves out regions, starting with the next victim, until the snapshot fits into `most_bytes`.
    fn shorten(&mut self, most_bytes: u64) {
        let sizes: Vec<u64> =
            self.bands().flat_map(|band| self.regions(band)).map(|region| region.len() as u64).collect();
        let ends = self.head.encode(0, 0).len() as u64 + self.tail.encode().len() as u64 + CHECKSUM_BYTES;
        self.bytes = ends + sizes.iter().sum::<u64>();
        let left_out = |size: &&u64| {
            let is_left_out = self.bytes > most_bytes;
            self.bytes -= if is_left_out { **size } else { 0 };
            is_left_out
        };
        let left_out = sizes.iter().take_while(left_out).count();
        for held in self.held.drain(..left_out) {
            // The region is clean after the restart, so removals of its items will not be recorded.
            self.store.record_emptied(held.id, held.sequence);
        }
    }

    /// Each region of a band, encoded.
    fn regions(&self, band: Range<usize>) -> impl Iterator<Item = Vec<u8>> {
        let held = &self.held[band];
        self.store.live_in(held).into_iter().zip(held).map(|(live, held)| {
            let mut region = Vec::new();
            held.encode(&live, self.head.has_ranks, &mut region);
            region
        })
    }

    /// Consecutive held regions in bands, each limited to the number of items that fit.
    fn bands(&self) -> impl Iterator<Item = Range<usize>> {
        let all: u64 = self.held.iter().map(|held| u64::from(held.live)).sum();
        let most = (all / BANDS).max(BAND_ITEMS);
        let mut start = 0;
        std::iter::from_fn(move || {
            let mut items = 0;
            let fits = |held: &&Held| {
                items += u64::from(held.live);
                items <= most
            };
            let rest = &self.held[start..];
            let len = rest.iter().take_while(fits).count().max(1).min(rest.len());
            let band = start..start + len;
            start = band.end;
            (!band.is_empty()).then_some(band)
        })
    }
}

impl RegionStore {
    /// Restores a store from its [`snapshot`](Self::snapshot). A region whose table is damaged is dropped and counted.
    ///
    /// # Errors
    /// If the snapshot is damaged or of another layout, or the configuration does not fit the device.
    pub async fn restore(
        device: Arc<dyn Device>,
        clock: Arc<dyn Clock>,
        config: RegionConfig,
        snapshot: &[u8],
        waiting: Waiting,
    ) -> Result<Self, RestoreError> {
        Self::restore_regions(device, clock, config, snapshot, waiting).await.map(|(store, _)| store)
    }

    /// As [`restore`](Self::restore), but also returns the dropped regions.
    pub(super) async fn restore_regions(
        device: Arc<dyn Device>,
        clock: Arc<dyn Clock>,
        config: RegionConfig,
        snapshot: &[u8],
        waiting: Waiting,
    ) -> Result<(Self, Vec<Held>), RestoreError> {
        let snapshot = Snapshot::decode(snapshot)?;
        let store = Self::assemble(device, clock, config, StoreId(snapshot.head.store))?;
        snapshot.check(&store.layout)?;
        store.next_sequence.store(snapshot.head.next_sequence, Ordering::Relaxed);
        let knows_ranks =
            snapshot.tail.policy.as_ref().is_some_and(|saved| store.policy.lock().recall(saved));
        let mut in_order = Vec::with_capacity(snapshot.held.len());
        let mut dropped = Vec::new();
        for some in snapshot.held.chunks(TABLES_AT_ONCE) {
            let read = join_all(some.iter().map(|it| store.read_held(&it.held, waiting))).await;
            for (region, records) in some.iter().zip(read) {
                if store.restore_items(region, records.as_deref(), knows_ranks) {
                    in_order.push((region.held.id, region.held.priority));
                } else {
                    dropped.push(region.held);
                }
            }
        }
        store.policy.lock().restore(&in_order);
        for &region in &snapshot.tail.retired {
            *store.region(region).content.lock() = Content::Retired;
            store.supply.retire_region(region, TestPlan::after_restart());
        }
        let is_clean = |id: &RegionId| matches!(*store.region(*id).content.lock(), Content::Clean);
        let clean = (0..store.layout.region_count).map(RegionId).filter(is_clean);
        clean.for_each(|region| store.supply.give_region(region));
        Ok((store, dropped))
    }

    async fn read_held(&self, held: &Held, waiting: Waiting) -> Option<Vec<Record>> {
        let filling = Filling { store: self.id.0, sequence: held.sequence };
        self.read_table(held.id, held.entries, filling, waiting).await
    }

    /// Inserts the live items of a region into the index, with their ranks if these are still valid; `false` if the region's table is
    /// lost.
    fn restore_items(&self, region: &HeldBytes<'_>, records: Option<&[Record]>, knows_ranks: bool) -> bool {
        let held = &region.held;
        let live = held.live as usize;
        let Some(records) = records else {
            Counters::add(&self.counters.items_unrestored, live);
            return false;
        };
        let mut records = records.iter();
        let mut restored = 0;
        let mut policy = self.policy.lock();
        for Live { unit, hits, rank } in region.live() {
            // Both are in the order of locations; a live item that is not in the table is ignored.
            let Some(record) = records.by_ref().find(|record| record.unit >= unit) else { break };
            if record.unit == unit && record.live {
                let address = self.layout.address(held.id, unit);
                let rank = if knows_ranks { rank } else { Rank::NONE };
                let found = Found { address, size: SizeHint::of_units(record.units), hits, rank };
                let rank = policy.reenter(&self.resident(found));
                self.index.insert_new(record.hash, Found { rank, ..found });
                restored += 1;
            }
        }
        Counters::add(&self.counters.items_restored, restored);
        Counters::add(&self.counters.items_unrestored, live - restored);
        let filling = Filling { store: self.id.0, sequence: held.sequence };
        let content = Content::Flash { filling, entries: held.entries, point: held.point };
        *self.region(held.id).content.lock() = content;
        true
    }
}
