//! A region is given up: its table says what is in it, the items worth keeping are written again, the rest leaves.

use std::ops::Range;

use device::{IoError, Request};
use futures_util::future::join_all;

use crate::flash::{FlashItem, Waiting};

use super::InsertionPoint;
use super::config::Reinsertion;
use super::entry::{Entry, Seal, expired};
use super::index::Found;
use super::layout::RegionId;
use super::stats::Counters;
use super::store::{Content, RegionStore};
use super::supply::Claim;
use super::table::{self, Filling, Record};

/// Share of a region that may be written again, in eighths. The rest is what a reclaim gains: without it, a store of
/// nothing but popular items would copy them for ever and take in nothing new.
const MOST_KEPT_EIGHTHS: u64 = 7;

/// Reads of a reclaim side by side.
const RUNS_AT_ONCE: usize = 8;

/// An item of a region that is being reclaimed.
struct Leaving {
    record: Record,
    found: Found,
    /// First byte in the region.
    start: usize,
    /// Whether it is to be written again.
    keep: bool,
    is_expired: bool,
}

/// A read for some items that lie beside each other.
struct Run {
    blocks: Range<usize>,
    items: Range<usize>,
}

/// A region between the policy and the clean ones. Where it goes when a reclaim ends, or is dropped half way.
struct Victim<'a> {
    store: &'a RegionStore,
    region: RegionId,
    point: InsertionPoint,
    is_clean: bool,
}

impl Drop for Victim<'_> {
    fn drop(&mut self) {
        if self.is_clean {
            self.store.supply.give_region(self.region);
        } else {
            self.store.order.lock().written(self.region, self.point.0);
        }
    }
}

impl RegionStore {
    /// Reclaims the region that the policy gives up. `false` if it has none.
    pub(super) async fn reclaim_one(&self, waiting: Waiting) -> bool {
        let Some(region) = self.order.lock().victim() else { return false };
        let Content::Flash { filling, entries, point } = self.region(region).content.lock().clone() else {
            unreachable!("the policy holds regions on flash only")
        };
        let mut victim = Victim { store: self, region, point, is_clean: false };
        match self.read_table(region, entries, filling, waiting).await {
            Some(records) => self.clear(region, filling, &records, waiting).await,
            None => {
                let lost = self.index.remove_range(&self.layout.addresses(region));
                Counters::add(&self.counters.items_lost, lost);
            }
        }
        // Readers still on their way to the region learn that it is gone before it is: by the trim here, or by whoever
        // fills it next.
        *self.region(region).content.lock() = Content::Clean;
        victim.is_clean = true;
        if self.config.trim {
            self.trim(region, waiting).await;
        }
        Counters::one(&self.counters.regions_reclaimed);
        true
    }

    /// The region's table, or `None` if it cannot be had.
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

    /// Sees every item out that is still the one readers find.
    async fn clear(&self, region: RegionId, filling: Filling, records: &[Record], waiting: Waiting) {
        let wanted = self.plan(region, filling, records);
        for runs in self.runs(&wanted).chunks(RUNS_AT_ONCE) {
            let reads = runs.iter().map(|run| self.read_blocks(region, run.blocks.clone(), waiting));
            for (run, read) in runs.iter().zip(join_all(reads).await) {
                Counters::add(&self.counters.reclaim_read_bytes, run.blocks.len());
                if read.is_err() {
                    Counters::one(&self.counters.read_errors);
                }
                for leaving in &wanted[run.items.clone()] {
                    let bytes = read.as_ref().ok().map(|bytes| &bytes[leaving.start - run.blocks.start..]);
                    self.see_out(leaving, bytes, Seal::of(filling.store, filling.sequence), waiting).await;
                }
            }
        }
    }

    /// Decides who is written again. Items that nobody wants to see leave at once; the others, whose bytes are needed, are
    /// answered in the order of their places.
    fn plan(&self, region: RegionId, filling: Filling, records: &[Record]) -> Vec<Leaving> {
        let now_seconds = self.clock.unix_seconds();
        let most_kept = self.layout.units_per_region() * MOST_KEPT_EIGHTHS / 8;
        let mut kept = 0;
        let mut wanted = Vec::new();
        for &record in records.iter().filter(|record| record.live) {
            let address = self.layout.address(region, record.unit);
            let Some(found) = self.index.get_at(record.hash, address) else { continue };
            let is_expired = expired(record.expiry_seconds, now_seconds);
            let mut keep = !is_expired && self.is_kept(&record, found, filling);
            if keep && kept + u64::from(record.units) > most_kept {
                Counters::one(&self.counters.reinsertions_failed);
                keep = false;
            }
            kept += if keep { u64::from(record.units) } else { 0 };
            let start = record.unit as usize * self.layout.unit_bytes as usize;
            let leaving = Leaving { record, found, start, keep, is_expired };
            if keep || self.on_eviction.is_some() {
                wanted.push(leaving);
            } else {
                self.evict(&leaving);
            }
        }
        wanted
    }

    /// Reads that fetch all of `wanted`: neighbours in one.
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

    /// Writes an item again or lets it go. `bytes` begin with its entry, if they could be read.
    async fn see_out(&self, leaving: &Leaving, bytes: Option<&[u8]>, seal: Seal, waiting: Waiting) {
        let entry = bytes.and_then(|bytes| {
            let entry =
                Entry::decode(bytes, seal).and_then(|entry| entry.verify_value(bytes).map(|()| entry));
            entry.inspect_err(|&damage| drop(self.damaged(damage))).ok().map(|entry| (bytes, entry))
        });
        let Some((bytes, entry)) = entry else {
            Counters::add(&self.counters.reinsertions_failed, usize::from(leaving.keep));
            self.evict(leaving);
            return;
        };
        let item = FlashItem {
            key: &bytes[entry.key],
            hash: entry.hash,
            value: &[&bytes[entry.value]],
            expiry_seconds: entry.expiry_seconds,
            tag: entry.tag,
        };
        if leaving.keep {
            if self.reinsert(leaving, &item, waiting).await {
                return;
            }
            Counters::one(&self.counters.reinsertions_failed);
        }
        if self.evict(leaving)
            && let Some(on_eviction) = &self.on_eviction
        {
            on_eviction(&item);
        }
    }

    /// Takes the item out of the index; `false` if it was removed or replaced meanwhile.
    fn evict(&self, leaving: &Leaving) -> bool {
        let there_was = self.index.remove_at(leaving.record.hash, leaving.found.address).is_some();
        Counters::add(&self.counters.evictions, usize::from(there_was));
        Counters::add(&self.counters.evicted_expired, usize::from(there_was && leaving.is_expired));
        there_was
    }

    fn is_kept(&self, record: &Record, found: Found, filling: Filling) -> bool {
        match self.config.reinsertion {
            Reinsertion::Never => false,
            Reinsertion::Hits { at_least } => found.hits >= at_least,
            Reinsertion::Percent { percent, seed } => {
                // Drawn from the hash and the region's filling: another draw each time the item comes by, and the same
                // one whatever else runs beside it.
                let draw = crate::KeyHash(record.hash.0 ^ seed ^ filling.sequence.rotate_left(32)).remix();
                draw % 100 < u64::from(percent)
            }
        }
    }

    /// Writes the item again, unless it is removed or replaced meanwhile. `false` if it is still there and could not be.
    async fn reinsert(&self, leaving: &Leaving, item: &FlashItem<'_>, waiting: Waiting) -> bool {
        let Some(staged) = self.stage_again(item, leaving.found.hits, waiting).await else { return false };
        let moved = self.found(&staged.reservation);
        let address = leaving.found.address;
        if staged.reservation.commit(|| self.index.replace_at(leaving.record.hash, address, moved)) {
            Counters::one(&self.counters.reinsertions);
            Counters::add(&self.counters.reinserted_bytes, staged.payload_bytes);
        }
        true
    }

    /// Stages a reinsertion. If buffers are short, helps to flush instead of waiting for somebody who may be waiting
    /// for us.
    async fn stage_again(
        &self,
        item: &FlashItem<'_>,
        hits: u8,
        waiting: Waiting,
    ) -> Option<super::store::Staged> {
        let point = self.point_again(hits);
        loop {
            match self.stage_at(item, point, Claim::Reinserted) {
                Ok(staged) => return Some(staged),
                Err(_) => self.flush(self.supply.next_sealed()?, waiting).await,
            }
        }
    }

    /// Priority of a reinserted item: its hits, up to the highest.
    fn point_again(&self, hits: u8) -> InsertionPoint {
        let last = self.last_point();
        if self.config.order.priorities() > 1 { InsertionPoint(hits).min(last) } else { last }
    }

    /// Tells the device that nobody will read the region any more.
    async fn trim(&self, region: RegionId, waiting: Waiting) {
        let len = u64::from(self.layout.region_bytes);
        let offset = self.layout.region_offset(region);
        let outcome: Result<_, IoError> = waiting.start(&*self.device, Request::Trim { offset, len }).await;
        if outcome.is_err() {
            Counters::one(&self.counters.trim_errors);
        }
    }
}
