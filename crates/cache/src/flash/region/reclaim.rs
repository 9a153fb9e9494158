//! Reclaim of a region: its table lists its items, some are reinserted, and the others are evicted.

use std::ops::Range;

use futures_util::future::join_all;

use crate::KeyHash;
use crate::flash::{FlashItem, HashFilter, OnEviction, Waiting};

use std::sync::atomic::Ordering;

use super::InsertionPoint;
use super::entry::{Entry, Seal, expired};
use super::flush::Persistence;
use super::index::Found;
use super::layout::{Address, Layout, RegionId};
use super::policy::{Needs, Placing};
use super::stats::Counters;
use super::store::{Content, RegionStore, Staged};
use super::supply::Claim;
use super::table::{self, Filling, Record};

/// Share of a region that may be reinserted, in eighths. The rest is the gain of a reclaim: without it, a store of popular items alone
/// would only copy them and admit no new ones.
const MOST_KEPT_EIGHTHS: u64 = 7;

/// Concurrent reads of a reclaim.
const RUNS_AT_ONCE: usize = 8;

/// An item of a region that is being reclaimed.
struct Leaving {
    record: Record,
    found: Found,
    /// Offset in the region.
    start: usize,
    /// The placing for its reinsertion; `None` evicts it.
    keep: Option<Placing>,
    is_expired: bool,
}

/// The budget of a reclaim for reinsertion.
pub(super) struct ReinsertionBudget {
    most_units: u64,
    kept_units: u64,
    /// Whether all items may be kept. A policy that protects items loses one only after a whole round of the store with almost no gain,
    /// since no new item could be stored then.
    unlimited: bool,
}

impl ReinsertionBudget {
    fn new(store: &RegionStore) -> Self {
        let fruitless = store.fruitless.load(Ordering::Relaxed);
        let since_new = store.since_new.fetch_add(1, Ordering::Relaxed);
        Self::after(store.layout, store.needs, fruitless, since_new)
    }

    /// What a reclaim may reinsert after `fruitless` reclaims in a row with almost no gain, and `since_new` reclaims since a new item was
    /// stored.
    ///
    /// Large items leave unused ends behind them: reinserted items can fill as many regions as they came from, though each had an eighth to
    /// gain. If no new item found space in a whole round, a region is evicted without reinsertion.
    pub(super) fn after(layout: Layout, needs: Needs, fruitless: u32, since_new: u32) -> Self {
        if since_new >= layout.region_count {
            return Self { most_units: 0, kept_units: 0, unlimited: false };
        }
        let most_units = layout.units_per_region() * MOST_KEPT_EIGHTHS / 8;
        let unlimited = needs.items && fruitless < layout.region_count;
        Self { most_units, kept_units: 0, unlimited }
    }

    /// Reserves units for an item to reinsert. Returns whether they fit the budget.
    pub(super) fn take(&mut self, units: u32) -> bool {
        let fits = self.unlimited || self.kept_units + u64::from(units) <= self.most_units;
        self.kept_units += if fits { u64::from(units) } else { 0 };
        fits
    }

    /// Whether the reclaim gains almost no space.
    pub(super) fn is_fruitless(&self) -> bool {
        self.kept_units > self.most_units
    }

    /// Counts the reclaim as fruitless, or resets that count.
    fn note(&self, store: &RegionStore) {
        if self.is_fruitless() {
            store.fruitless.fetch_add(1, Ordering::Relaxed);
        } else {
            store.fruitless.store(0, Ordering::Relaxed);
        }
    }
}

/// One read that covers adjacent items.
struct Run {
    blocks: Range<usize>,
    items: Range<usize>,
}

/// A region that is being reclaimed. Returns it to the clean regions at the end, or to the policy if the reclaim is dropped.
struct Victim<'a> {
    store: &'a RegionStore,
    region: RegionId,
    point: InsertionPoint,
    is_empty: bool,
}

impl Drop for Victim<'_> {
    fn drop(&mut self) {
        if self.is_empty {
            self.store.free_region(self.region);
        } else {
            self.store.policy.lock().returned(self.region, self.point);
        }
    }
}

impl RegionStore {
    /// Calls `on_eviction` with every item evicted with its region, expired or not; not with items that were removed, replaced or lost to
    /// a failing device. Reclaim then has to read every live item.
    #[must_use]
    pub fn with_eviction_callback(mut self, on_eviction: OnEviction) -> Self {
        self.on_eviction = Some(on_eviction);
        self
    }

    /// Reports only keys with the selected hashes. Reclaim does not read other items for the callback.
    #[must_use]
    pub fn with_eviction_callback_for(mut self, is_reported: HashFilter) -> Self {
        self.is_reported = Some(is_reported);
        self
    }

    fn is_reported(&self, hash: KeyHash) -> bool {
        self.on_eviction.is_some() && self.is_reported.as_ref().is_none_or(|is_reported| is_reported(hash))
    }

    /// Reclaims the policy's victim. Returns `false` if there is none.
    pub(super) async fn reclaim_one(&self, waiting: Waiting) -> bool {
        let Some(region) = self.policy.lock().victim() else { return false };
        let Content::Flash { filling, entries, point } = self.region(region).content.lock().clone() else {
            unreachable!("the policy holds regions on flash only")
        };
        let mut victim = Victim { store: self, region, point, is_empty: false };
        self.record_emptied(region, filling.sequence);
        match self.read_table(region, entries, filling, waiting).await {
            Some(records) => self.clear_out(region, filling, &records, waiting).await,
            None => {
                Counters::add(&self.counters.items_lost, self.take_out_all(region));
            }
        }
        // The index no longer refers to the region, so no forgotten item is added to its list.
        self.destroy_pending_in(&self.layout.addresses(region), waiting).await;
        victim.is_empty = true;
        Counters::one(&self.counters.regions_reclaimed);
        true
    }

    /// The region's table; `None` if it cannot be read or is damaged.
    pub(super) async fn read_table(
        &self,
        region: RegionId,
        entries: u32,
        filling: Filling,
        waiting: Waiting,
    ) -> Option<Vec<Record>> {
        let entries = entries as usize;
        let end = self.layout.region_bytes as usize;
        let start = end.checked_sub(table::table_bytes(entries))?;
        let blocks = self.layout.covering_blocks(&(start..end));
        Counters::add(&self.counters.reclaim_read_bytes, blocks.len());
        let Ok(bytes) = self.read_blocks(region, blocks, waiting).await else {
            Counters::one(&self.counters.read_errors);
            return None;
        };
        table::decode(&bytes, entries, filling)
            .inspect_err(|_| Counters::one(&self.counters.table_checksum_errors))
            .ok()
    }

    /// Evicts or reinserts every item that readers can still find.
    async fn clear_out(&self, region: RegionId, filling: Filling, records: &[Record], waiting: Waiting) {
        let wanted = self.plan(region, filling, records);
        for runs in self.runs(&wanted).chunks(self.at_once(RUNS_AT_ONCE)) {
            let reads = runs.iter().map(|run| self.read_blocks(region, run.blocks.clone(), waiting));
            for (run, read) in runs.iter().zip(join_all(reads).await) {
                Counters::add(&self.counters.reclaim_read_bytes, run.blocks.len());
                if read.is_err() {
                    Counters::one(&self.counters.read_errors);
                }
                for leaving in &wanted[run.items.clone()] {
                    let bytes = read.as_ref().ok().map(|bytes| &bytes[leaving.start - run.blocks.start..]);
                    self.reinsert_or_evict(
                        leaving,
                        bytes,
                        Seal::of(filling.store, filling.sequence),
                        waiting,
                    )
                    .await;
                }
            }
        }
    }

    /// Removes all items of a region whose table is lost from the index.
    fn take_out_all(&self, region: RegionId) -> usize {
        let mut policy = self.policy.lock();
        self.index.remove_range(&self.layout.addresses(region), |found| {
            if self.needs.items {
                policy.left(&self.resident(found));
            }
        })
    }

    /// Decides which items are reinserted. Items that no callback receives are removed immediately; the others, whose bytes are needed, are
    /// returned in the order of their offsets.
    fn plan(&self, region: RegionId, filling: Filling, records: &[Record]) -> Vec<Leaving> {
        let now_seconds = self.clock.unix_seconds();
        let mut room = ReinsertionBudget::new(self);
        let mut wanted = Vec::new();
        for &record in records.iter().filter(|record| record.live) {
            let address = self.layout.address(region, record.unit);
            let is_expired = expired(record.expiry_seconds, now_seconds);
            let is_reported = self.is_reported(record.hash);
            // One lock for the decision and the removal: a hit arrives before both, or finds the item removed.
            let mut policy = self.policy.lock();
            let Some(found) = self.index.get_at(record.hash, address) else { continue };
            let draw = filling.sequence.rotate_left(32);
            let mut keep = policy.survives(&self.resident(found), record.hash, draw);
            keep = keep.filter(|_| !is_expired && self.may_keep(&mut room, &record));
            let start = record.unit as usize * self.layout.unit_bytes as usize;
            let leaving = Leaving { record, found, start, keep, is_expired };
            if keep.is_some() || is_reported {
                wanted.push(leaving);
            } else if self.index.remove_at(record.hash, address).is_some() {
                if self.needs.items {
                    policy.left(&self.resident(found));
                }
                self.count_evicted(&leaving);
            }
        }
        room.note(self);
        wanted
    }

    fn may_keep(&self, room: &mut ReinsertionBudget, record: &Record) -> bool {
        let fits = room.take(record.units);
        Counters::add(&self.counters.reinsertions_failed, usize::from(!fits));
        fits
    }

    /// The reads that fetch all of `wanted`; one read covers adjacent items.
    fn runs(&self, wanted: &[Leaving]) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (at, leaving) in wanted.iter().enumerate() {
            let bytes = leaving.record.units as usize * self.layout.unit_bytes as usize;
            let blocks = self.layout.covering_blocks(&(leaving.start..leaving.start + bytes));
            match runs.last_mut() {
                Some(run)
                    if blocks.start <= run.blocks.end
                        && blocks.end - run.blocks.start <= self.layout.max_read_bytes as usize =>
                {
                    run.blocks.end = run.blocks.end.max(blocks.end);
                    run.items.end = at + 1;
                }
                _ => runs.push(Run { blocks, items: at..at + 1 }),
            }
        }
        runs
    }

    /// Reinserts or evicts an item. `bytes` begin with its entry; `None` if the read failed.
    async fn reinsert_or_evict(&self, leaving: &Leaving, bytes: Option<&[u8]>, seal: Seal, waiting: Waiting) {
        let entry = bytes.and_then(|bytes| {
            let entry =
                Entry::decode(bytes, seal).and_then(|entry| entry.verify_value(bytes).map(|()| entry));
            entry.inspect_err(|&damage| drop(self.damaged(damage))).ok().map(|entry| (bytes, entry))
        });
        let Some((bytes, entry)) = entry else {
            Counters::add(&self.counters.reinsertions_failed, usize::from(leaving.keep.is_some()));
            return self.lose_item(leaving.record.hash, leaving.found.address);
        };
        let item = FlashItem {
            key: &bytes[entry.key],
            hash: entry.hash,
            value: &[&bytes[entry.value]],
            expiry_seconds: entry.expiry_seconds,
            tag: entry.tag,
        };
        if let Some(placing) = leaving.keep {
            if self.reinsert(leaving, placing, &item, waiting).await {
                return;
            }
            Counters::one(&self.counters.reinsertions_failed);
        }
        match &self.on_eviction {
            Some(on_eviction) => on_eviction(&item, &mut || self.evict(leaving)),
            None => _ = self.evict(leaving),
        }
    }

    /// Removes an unreadable item from the index, if the index still refers to it.
    pub(super) fn lose_item(&self, hash: KeyHash, address: Address) {
        if self.take_out(|index| index.remove_at(hash, address)).is_some() {
            Counters::one(&self.counters.items_lost);
            self.record_removal(address);
        }
    }

    /// Removes the item from the index; `false` if it was removed or replaced concurrently.
    fn evict(&self, leaving: &Leaving) -> bool {
        let (hash, address) = (leaving.record.hash, leaving.found.address);
        let there_was = self.take_out(|index| index.remove_at(hash, address)).is_some();
        if there_was {
            self.count_evicted(leaving);
        }
        there_was
    }

    fn count_evicted(&self, leaving: &Leaving) {
        Counters::one(&self.counters.evictions);
        Counters::add(&self.counters.evicted_expired, usize::from(leaving.is_expired));
    }

    /// Reinserts the item, unless it was removed or replaced concurrently. `false` if it is still there and was not reinserted.
    async fn reinsert(
        &self,
        leaving: &Leaving,
        placing: Placing,
        item: &FlashItem<'_>,
        waiting: Waiting,
    ) -> bool {
        let Some(staged) = self.stage_again(item, placing, waiting).await else { return false };
        let Staged { reservation, placing, payload_bytes, .. } = staged;
        let (region, point) = (reservation.buffer().region, reservation.buffer().point);
        let moved = self.found(&reservation);
        if reservation.commit(|| self.move_to(leaving, moved, region, point, placing)) {
            Counters::one(&self.counters.reinsertions);
            Counters::add(&self.counters.reinserted_bytes, payload_bytes);
        }
        true
    }

    /// Moves an item in the index and notifies the policy; `false` if it was removed.
    fn move_to(
        &self,
        leaving: &Leaving,
        moved: Found,
        region: RegionId,
        point: InsertionPoint,
        placing: Placing,
    ) -> bool {
        let (hash, address) = (leaving.record.hash, leaving.found.address);
        if !self.needs.items {
            return self.index.replace_at(hash, address, moved).is_some();
        }
        let mut policy = self.policy.lock();
        let rank = policy.enter(region, point, placing, moved.size.units());
        let moved = Found { rank, hits: leaving.found.hits, ..moved };
        let before = self.index.replace_at(hash, address, moved);
        policy.left(&self.resident(before.unwrap_or(moved)));
        before.is_some()
    }

    /// Stages a reinsertion. If buffers are short, it helps to flush instead of waiting, since another task may be waiting for this one.
    async fn stage_again(&self, item: &FlashItem<'_>, placing: Placing, waiting: Waiting) -> Option<Staged> {
        loop {
            if let Ok(staged) = self.stage_at(item, placing, Claim::Reinserted) {
                return Some(staged);
            }
            let region_returned = self.supply.region_returned.listen();
            let now_ns = self.clock.monotonic_ns();
            if let Some(sealed) = self.supply.next_sealed(now_ns) {
                self.flush(sealed, waiting, Persistence::Retry).await;
            } else if !self.needs.items {
                return None;
            } else if let Some(staged) = self.stage_anywhere(item, placing) {
                return Some(staged);
            } else if self.supply.is_flushing() {
                region_returned.await;
            } else if !self.supply.has_sealed(now_ns) {
                return None;
            }
        }
    }
}
