//! A region is given up: its table says what is in it, the items worth keeping are written again, the rest leaves.

use device::{IoError, Request};

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
        for record in records.iter().filter(|record| record.live) {
            let address = self.layout.address(region, record.unit);
            let Some(found) = self.index.get_at(record.hash, address) else { continue };
            let is_expired = expired(record.expiry_seconds, self.clock.unix_seconds());
            if !is_expired && self.is_kept(record, found, filling) {
                if self.reinsert(region, filling, record, found, waiting).await {
                    continue;
                }
                Counters::one(&self.counters.reinsertions_failed);
            }
            if self.index.remove_at(record.hash, address).is_some() {
                Counters::one(&self.counters.evictions);
                Counters::add(&self.counters.evicted_expired, usize::from(is_expired));
            }
        }
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
    async fn reinsert(
        &self,
        region: RegionId,
        filling: Filling,
        record: &Record,
        found: Found,
        waiting: Waiting,
    ) -> bool {
        let unit_bytes = self.layout.unit_bytes as usize;
        let start = record.unit as usize * unit_bytes;
        let blocks = self.layout.covering_blocks(&(start..start + record.units as usize * unit_bytes));
        let within = start - blocks.start;
        Counters::add(&self.counters.reclaim_read_bytes, blocks.len());
        let Ok(bytes) = self.read_blocks(region, blocks, waiting).await else {
            Counters::one(&self.counters.read_errors);
            return false;
        };
        let bytes = &bytes[within..];
        let seal = Seal::of(filling.store, filling.sequence);
        let decoded = Entry::decode(bytes, seal).and_then(|entry| entry.verify_value(bytes).map(|()| entry));
        let entry = match decoded {
            Ok(entry) => entry,
            Err(damage) => {
                self.damaged(damage);
                return false;
            }
        };
        let item = FlashItem {
            key: &bytes[entry.key],
            hash: entry.hash,
            value: &[&bytes[entry.value]],
            expiry_seconds: entry.expiry_seconds,
            tag: entry.tag,
        };
        let Some(staged) = self.stage_again(&item, found.hits, waiting).await else { return false };
        let item = self.found(&staged.reservation);
        let payload_bytes = staged.payload_bytes;
        if staged.reservation.commit(|| self.index.replace_at(record.hash, found.address, item)) {
            Counters::one(&self.counters.reinsertions);
            Counters::add(&self.counters.reinserted_bytes, payload_bytes);
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
