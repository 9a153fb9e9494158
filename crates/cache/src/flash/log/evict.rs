//! Eviction of the oldest region, and readmission of its items that were read.
//!
//! A region is read back only if items can be readmitted or a callback receives evicted items. Otherwise its entries are dead as soon as
//! the region leaves the [live](super::index::Live) ones, without I/O.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::Request;

use super::lookup::is_expired;
use super::page::{Entry, Page};
use super::table::Buffered;
use super::{HashLog, Region};
use crate::KeyHash;
use crate::config::Removal;
use crate::flash::journal::Journal;
use crate::flash::{OnEviction, Waiting};

/// An eviction in progress, of a region that is read for it.
#[derive(Debug)]
pub(super) struct Eviction {
    region: Arc<Region>,
    pages_read: u64,
    /// Bytes of items that may still be readmitted.
    budget_bytes: usize,
}

impl Eviction {
    pub(super) fn pages_left(&self) -> u64 {
        self.region.pages() - self.pages_read
    }
}

impl HashLog {
    /// Whether region `sequence` of `pages` pages and `items` items fits the log and the index, or no region is left to evict.
    pub(super) fn has_space(&self, sequence: u64, pages: u64, items: usize) -> bool {
        let live = self.live();
        let has_space = sequence - live.min < u64::from(self.shape.max_regions)
            && self.used_pages() + pages <= self.shape.log_pages
            && self.live_item_count() + items as u64 <= self.max_items
            && !self.journal.as_ref().is_some_and(Journal::is_nearly_full);
        has_space || live.min > live.max
    }

    /// Starts to evict the oldest region. Returns `None` if the eviction is complete, because no item of the region has to be read.
    pub(super) fn begin_eviction(&self) -> Option<Eviction> {
        let sequence = self.live().min;
        // Readmitted items leave the index of this region first, so their removals are not recorded as removals of its entries.
        if let Some(journal) = &self.journal {
            journal.raise_floor(sequence + 1);
        }
        if let Some(region) = self.region(sequence).filter(|_| self.reads_evicted_regions()) {
            let budget_bytes = (self.shape.region_bytes() as f64 * self.config.readmission_share) as usize;
            return Some(Eviction { region, pages_read: 0, budget_bytes });
        }
        self.end_eviction(sequence);
        None
    }

    /// Reads the next pages of a region that is being evicted. Returns how many, and whether they were the last.
    pub(super) async fn continue_eviction(
        &self,
        eviction: &mut Eviction,
        waiting: Waiting,
        now_seconds: u32,
    ) -> (u64, bool) {
        let Eviction { region, pages_read, budget_bytes } = eviction;
        let pages = self.transfer(region.start_page, region.pages(), *pages_read);
        let mut evict =
            |entry: &Entry<'_>| self.evict_item(region.sequence, entry, budget_bytes, now_seconds);
        self.read_entries(region, pages.clone(), waiting, &mut evict).await;
        *pages_read = pages.end;
        let is_end = pages.end == region.pages();
        if is_end {
            self.end_eviction(region.sequence);
        }
        (pages.end - pages.start, is_end)
    }

    /// Evicts the oldest region.
    pub(super) async fn evict_oldest(&self, waiting: Waiting, now_seconds: u32) {
        if let Some(mut eviction) = self.begin_eviction() {
            while !self.continue_eviction(&mut eviction, waiting, now_seconds).await.1 {}
        }
    }

    fn end_eviction(&self, sequence: u64) {
        self.oldest.fetch_max(sequence + 1, Ordering::AcqRel);
        let place = self.place(sequence);
        let is_removed = self.regions.write()[place].take_if(|region| region.sequence == sequence).is_some();
        if is_removed {
            let evicted = self.live_items[place].swap(0, Ordering::Relaxed).max(0);
            self.shards[0].lock().stats.evictions += evicted.cast_unsigned();
        }
    }

    fn reads_evicted_regions(&self) -> bool {
        self.config.readmission_share > 0.0 || self.reports_all()
    }

    /// Reads a region, and calls `visit` with the items of each page that can be verified.
    pub(super) async fn for_each_entry(
        &self,
        region: &Region,
        waiting: Waiting,
        visit: &mut impl FnMut(&Entry<'_>),
    ) {
        let mut first = 0;
        while first < region.pages() {
            let pages = self.transfer(region.start_page, region.pages(), first);
            first = pages.end;
            self.read_entries(region, pages, waiting, visit).await;
        }
    }

    async fn read_entries(
        &self,
        region: &Region,
        pages: Range<u64>,
        waiting: Waiting,
        visit: &mut impl FnMut(&Entry<'_>),
    ) {
        let page_bytes = self.shape.page_bytes as usize;
        let offset = self.page_offset(region.start_page + pages.start);
        let len = (pages.end - pages.start) as usize * page_bytes;
        if let Ok(buffer) = waiting.start(&*self.device, Request::read(offset, len)).await {
            for (number, bytes) in pages.zip(buffer.chunks_exact(page_bytes)) {
                let Ok(page) = Page::open(bytes, self.identity(region, number as u32)) else { continue };
                page.entries().for_each(|entry| visit(&entry));
            }
        }
    }

    /// Readmits an item that was read and fits the budget; reports any other live item as evicted, and a removed one as removed.
    fn evict_item(&self, sequence: u64, entry: &Entry<'_>, budget_bytes: &mut usize, now_seconds: u32) {
        let hash = self.hash_of(entry.key);
        let address = self.address(hash);
        let is_expired = is_expired(entry.expiry_seconds, now_seconds);
        {
            let mut shard = self.shard(hash).lock();
            let live = self.live();
            // Items of one region have different addresses, so this entry belongs to this item.
            let Some(hits) = shard.lines.hits(&address, sequence, live) else { return };
            if let Some(destructor_reason) = self.complete_removal(&mut shard, hash, entry.key, sequence) {
                drop(shard);
                if let Some(reason) = destructor_reason {
                    self.report_removed(&Buffered::of(hash, entry), reason);
                }
                return;
            }
            // Without callbacks, a newer version does not remove the entry of an older one.
            let is_newest = self.reports_all()
                || shard.lines.candidates(&address, live).as_slice().first() == Some(&sequence)
                    && shard.tables.find(hash, entry.key).is_none();
            if !is_newest {
                return;
            }
            shard.stats.evictions_expired += u64::from(is_expired);
            let item_bytes = entry.page_bytes();
            if !is_expired && hits > 0 && item_bytes <= *budget_bytes {
                *budget_bytes -= item_bytes;
                let item = Buffered::of(hash, entry);
                shard.stats.readmitted_items += 1;
                shard.stats.readmitted_bytes += item.bytes.len() as u64;
                self.remove_entry(&mut shard, hash, sequence);
                self.buffer(&mut shard, item);
                return;
            }
        }
        // Expired items are reported to destructors only.
        let is_reported = !is_expired || self.on_destructor.is_some();
        if is_reported
            && let Some(on_eviction) = &self.on_eviction
            && self.wants_eviction.as_ref().is_none_or(|wants| wants(hash))
        {
            self.report_eviction(sequence, &Buffered::of(hash, entry), on_eviction);
        }
    }

    fn report_eviction(&self, sequence: u64, item: &Buffered, on_eviction: &OnEviction) {
        let mut destructor_reason = None;
        item.as_flash_item(|flash_item| {
            on_eviction(flash_item, &mut || self.take_out(sequence, item, &mut destructor_reason));
        });
        destructor_reason.iter().for_each(|&reason| self.report_removed(item, reason));
    }

    /// Removes the entry of an item of an evicted region. Returns false if the item was removed or replaced in between.
    /// `destructor_reason` is then the reason for its destructor call.
    fn take_out(&self, sequence: u64, item: &Buffered, destructor_reason: &mut Option<Removal>) -> bool {
        let mut shard = self.shard(item.hash).lock();
        if let Some(reason) = self.complete_removal(&mut shard, item.hash, item.key(), sequence) {
            *destructor_reason = reason;
            return false;
        }
        let is_removed = self.remove_entry(&mut shard, item.hash, sequence);
        shard.stats.evictions += u64::from(is_removed);
        is_removed
    }

    pub(super) fn hash_of(&self, key: &[u8]) -> KeyHash {
        KeyHash::seeded(key, self.config.hash_seed)
    }
}

impl Buffered {
    /// A copy of an item in a page.
    pub(super) fn of(hash: KeyHash, entry: &Entry<'_>) -> Self {
        Self {
            hash,
            bytes: [entry.key, entry.value].concat().into(),
            key_len: entry.key.len() as u8,
            tag: entry.tag,
            expiry_seconds: entry.expiry_seconds,
        }
    }
}
