//! Eviction of the oldest region, and readmission of its items that were read.
//!
//! A region is read back only if items can be readmitted or a listener wants them. All others are evicted without I/O: their entries are dead
//! as soon as the region leaves the [live](super::index::Live) ones.

use std::sync::atomic::Ordering;

use device::{IoBuffer, Request};

use super::lookup::is_expired;
use super::page::{Entry, Page};
use super::table::Buffered;
use super::{HashLog, Region};
use crate::KeyHash;
use crate::flash::{FlashItem, Waiting};

impl HashLog {
    /// Evicts region `sequence`, the oldest.
    pub(super) async fn evict(&self, sequence: u64, waiting: Waiting, now_seconds: u32) {
        if let Some(region) = self.region(sequence).filter(|_| self.reads_evicted_regions()) {
            self.read_evicted(&region, waiting, now_seconds).await;
        }
        self.oldest.fetch_max(sequence + 1, Ordering::AcqRel);
        let place = (sequence % u64::from(self.shape.regions)) as usize;
        let mut regions = self.regions.write();
        if regions[place].as_ref().is_some_and(|region| region.sequence == sequence) {
            regions[place] = None;
            let evicted = self.live_items[place].swap(0, Ordering::Relaxed).max(0);
            self.shards[0].lock().stats.evictions += evicted.cast_unsigned();
        }
    }

    fn reads_evicted_regions(&self) -> bool {
        self.config.readmission_share > 0.0 || self.on_eviction.is_some()
    }

    async fn read_evicted(&self, region: &Region, waiting: Waiting, now_seconds: u32) {
        let mut budget_bytes = (self.shape.region_bytes() as f64 * self.config.readmission_share) as usize;
        let mut evict = |entry: &Entry<'_>| {
            self.evict_item(region.sequence, entry, &mut budget_bytes, now_seconds);
        };
        self.for_each_entry(region, waiting, &mut evict).await;
    }

    /// Reads a region, and calls `visit` with the items of each page that can be verified.
    pub(super) async fn for_each_entry(
        &self,
        region: &Region,
        waiting: Waiting,
        visit: &mut impl FnMut(&Entry<'_>),
    ) {
        let page_bytes = self.shape.page_bytes as usize;
        let read_bytes = self.config.max_write_bytes.min(self.device.geometry().max_io_bytes) as usize;
        let pages_per_read = (read_bytes / page_bytes).max(1) as u32;
        let pages = region.fences.deviations().len() as u32;
        let mut first = 0;
        while first < pages {
            let count = pages_per_read.min(pages - first);
            let buffer = IoBuffer::zeroed(count as usize * page_bytes);
            let request = Request::Read { offset: self.page_offset(region.sequence, first), buffer };
            if let Ok(Some(buffer)) = waiting.start(&*self.device, request).await {
                for (number, bytes) in (first..).zip(buffer.chunks_exact(page_bytes)) {
                    let Ok(page) = Page::open(bytes, self.identity(region.sequence, number)) else {
                        continue;
                    };
                    page.entries().for_each(|entry| visit(&entry));
                }
            }
            first += count;
        }
    }

    /// Readmits an item that was read and fits the budget; reports any other live item as evicted.
    fn evict_item(&self, sequence: u64, entry: &Entry<'_>, budget_bytes: &mut usize, now_seconds: u32) {
        let hash = self.hash_of(entry.key);
        let address = self.address(hash);
        {
            let mut shard = self.shard(hash).lock();
            let live = self.live();
            let Some(hits) = shard.lines.hits(&address, sequence, live) else { return };
            let is_newest = shard.lines.candidates(&address, live).as_slice().first() == Some(&sequence)
                && shard.tables.find(hash, entry.key).is_none();
            if !is_newest {
                return;
            }
            if is_expired(entry.expiry_seconds, now_seconds) {
                shard.stats.evictions_expired += 1;
                return;
            }
            let item = buffered(hash, entry);
            if hits > 0 && item.page_bytes() <= *budget_bytes {
                *budget_bytes -= item.page_bytes();
                shard.stats.readmitted_items += 1;
                shard.stats.readmitted_bytes += item.bytes.len() as u64;
                self.live_items_of(sequence).fetch_sub(1, Ordering::Relaxed);
                self.buffer(&mut shard, item);
                return;
            }
        }
        self.report_eviction(sequence, hash, entry);
    }

    fn report_eviction(&self, sequence: u64, hash: KeyHash, entry: &Entry<'_>) {
        let Some(on_eviction) = &self.on_eviction else { return };
        if self.wants_eviction.as_ref().is_none_or(|wants| wants(hash)) {
            let item = FlashItem {
                key: entry.key,
                hash,
                value: &[entry.value],
                expiry_seconds: entry.expiry_seconds,
                tag: entry.tag,
            };
            on_eviction(&item, &mut || self.take_out(sequence, hash));
        }
    }

    /// Removes the entry of an item of an evicted region. Returns false if the item was removed or replaced in between.
    fn take_out(&self, sequence: u64, hash: KeyHash) -> bool {
        let mut shard = self.shard(hash).lock();
        let is_removed = shard.lines.remove_one(&self.address(hash), sequence, self.live());
        if is_removed {
            shard.stats.evictions += 1;
            self.live_items_of(sequence).fetch_sub(1, Ordering::Relaxed);
        }
        is_removed
    }

    pub(super) fn hash_of(&self, key: &[u8]) -> KeyHash {
        KeyHash::seeded(key, self.config.hash_seed)
    }
}

fn buffered(hash: KeyHash, entry: &Entry<'_>) -> Buffered {
    Buffered {
        hash,
        bytes: [entry.key, entry.value].concat().into(),
        key_len: entry.key.len() as u8,
        tag: entry.tag,
        expiry_seconds: entry.expiry_seconds,
    }
}
