//! Eviction of the oldest region, and readmission of its items that were read.
//!
//! Of a region, only the pages with items that were read are read back; all pages if a callback receives evicted items. Entries of other
//! items are dead as soon as the region leaves the [live](super::index::Live) ones, without I/O.
//!
//! A region is read while the region before the one that needs its space is written, at the same [pace](super::pace) and with several
//! reads in flight, so that the next write does not wait. It stays live until then: its items are found to the end, but one that is read
//! after its page was examined is not readmitted.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{Outcome, Request};

use super::lookup::is_expired;
use super::page::{Entry, Page};
use super::table::Buffered;
use super::{HashLog, LogConfig, Region, Shape};
use crate::KeyHash;
use crate::config::Removal;
use crate::flash::journal::Journal;
use crate::flash::read_ahead::{ReadAhead, read_all};
use crate::flash::{OnEviction, Waiting};

/// Reads of a region that is evicted or visited in flight, at most. A drive takes up to 500 µs for a read of 64 KiB while it writes, so 32 of
/// them read 4 GB/s.
const READS: usize = 32;
/// Up to this many pages between two hit pages are read with them: a page of flash often has 16 KiB.
const MOST_SKIPPED: u64 = 3;

/// Memory of the reads of an eviction.
pub(super) fn read_bytes(config: &LogConfig, shape: &Shape) -> u64 {
    shape.region_bytes().min(READS as u64 * u64::from(config.max_write_bytes.max(shape.page_bytes)))
}

/// An eviction in progress, of a region that is read for it. The region stays live until its space is needed.
pub(super) struct Eviction {
    region: Arc<Region>,
    /// Whether pages without hits are read too.
    reads_all: bool,
    /// The first page that is not examined.
    next_page: u64,
    reads: ReadAhead<Range<u64>>,
    /// Bytes of items that may still be readmitted.
    budget_bytes: usize,
}

impl Eviction {
    /// Pages that are still to be read.
    pub(super) fn pages_left(&self) -> u64 {
        if self.reads_all {
            self.region.pages() - self.next_page
        } else {
            self.region.hit_pages.count(self.next_page)
        }
    }

    /// The next page to be read from `first` on.
    fn next_from(&self, first: u64) -> Option<u64> {
        if self.reads_all {
            Some(first).filter(|&first| first < self.region.pages())
        } else {
            self.region.hit_pages.next(first)
        }
    }

    /// The next pages to be read. `transfer` returns the longest read from a page on.
    fn next_pages(&self, transfer: impl Fn(u64) -> Range<u64>) -> Option<Range<u64>> {
        let first = self.next_from(self.next_page)?;
        let most = transfer(first).end;
        let mut end = first + 1;
        while let Some(next) = self.next_from(end)
            && next < most
            && next - end <= MOST_SKIPPED
        {
            end = next + 1;
        }
        Some(first..end)
    }

    /// Whether a read can be started.
    pub(super) fn can_read(&self) -> bool {
        self.reads.len() < READS && self.next_from(self.next_page).is_some()
    }

    pub(super) fn has_reads(&self) -> bool {
        self.reads.len() > 0
    }

    fn is_read(&self) -> bool {
        !self.has_reads() && self.next_from(self.next_page).is_none()
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
        let region = self.region(sequence).filter(|region| self.pages_to_read(region) > 0);
        let Some(region) = region else {
            self.end_eviction(sequence);
            return None;
        };
        let reads_all = self.reports_all();
        // A callback that received an item as evicted must not receive it again.
        if reads_all && let Some(journal) = &self.journal {
            journal.raise_floor(sequence + 1);
        }
        let budget_bytes = (self.shape.region_bytes() as f64 * self.config.readmission_share) as usize;
        Some(Eviction { region, reads_all, next_page: 0, reads: ReadAhead::default(), budget_bytes })
    }

    /// Starts to evict the oldest region before its space is needed, if a page of it has to be read.
    pub(super) fn begin_eviction_ahead(&self) -> Option<Eviction> {
        let oldest = self.region(self.live().min)?;
        (self.pages_to_read(&oldest) > 0).then(|| self.begin_eviction()).flatten()
    }

    fn pages_to_read(&self, region: &Region) -> u64 {
        match self.reports_all() {
            true => region.pages(),
            false if self.config.readmission_share > 0.0 => region.hit_pages.count(0),
            false => 0,
        }
    }

    /// Starts the next read of a region that is being evicted. Returns by how many pages fewer are left to be read.
    pub(super) fn start_read(&self, eviction: &mut Eviction, waiting: Waiting) -> u64 {
        let (start_page, pages) = (eviction.region.start_page, eviction.region.pages());
        let limit_bytes = self.config.max_write_bytes.into();
        let Some(read) = eviction.next_pages(|first| self.transfer(start_page, pages, first, limit_bytes))
        else {
            return 0;
        };
        let left_before = eviction.pages_left();
        eviction.next_page = read.end;
        let request = self.read_request(start_page, &read);
        eviction.reads.start(&*self.device, waiting, read, request);
        left_before.saturating_sub(eviction.pages_left())
    }

    /// Evicts the items of the oldest read that was started, if it is complete.
    pub(super) fn evict_complete(&self, eviction: &mut Eviction, now_seconds: u32) {
        if let Some((pages, read)) = eviction.reads.take_complete() {
            self.evict_pages(eviction, pages, &read, now_seconds);
        }
    }

    /// Evicts the items of the oldest read that was started, when it is complete.
    pub(super) async fn evict_next(&self, eviction: &mut Eviction, waiting: Waiting, now_seconds: u32) {
        if let Some((pages, read)) = eviction.reads.next(waiting).await {
            self.evict_pages(eviction, pages, &read, now_seconds);
        }
    }

    fn evict_pages(&self, eviction: &mut Eviction, pages: Range<u64>, read: &Outcome, now_seconds: u32) {
        let Eviction { region, budget_bytes, .. } = eviction;
        let mut evict =
            |entry: &Entry<'_>| self.evict_item(region.sequence, entry, budget_bytes, now_seconds);
        self.visit_entries(region, pages, read, &mut evict);
    }

    /// Ends the eviction if all items of the region were evicted.
    pub(super) fn end_if_read(&self, eviction: &mut Option<Eviction>) {
        if let Some(read) = eviction.take_if(|eviction| eviction.is_read()) {
            self.end_eviction(read.region.sequence);
        }
    }

    /// Evicts the oldest region. `eviction` may have begun.
    pub(super) async fn evict_oldest(
        &self,
        eviction: &mut Option<Eviction>,
        waiting: Waiting,
        now_seconds: u32,
    ) {
        if eviction.is_none() {
            *eviction = self.begin_eviction();
        }
        while let Some(begun) = eviction {
            while begun.can_read() {
                self.start_read(begun, waiting);
            }
            self.evict_next(begun, waiting, now_seconds).await;
            self.end_if_read(eviction);
        }
    }

    fn end_eviction(&self, sequence: u64) {
        // Removals of items of the region are not recorded from now on.
        if let Some(journal) = &self.journal {
            journal.raise_floor(sequence + 1);
        }
        self.oldest.fetch_max(sequence + 1, Ordering::AcqRel);
        let place = self.place(sequence);
        let is_removed = self.regions.write()[place].take_if(|region| region.sequence == sequence).is_some();
        if is_removed {
            let evicted = self.live_items[place].swap(0, Ordering::Relaxed).max(0);
            self.shards[0].lock().stats.evictions += evicted.cast_unsigned();
        }
    }

    /// Reads a region, and calls `visit` with the items of each page that can be verified.
    pub(super) async fn for_each_entry(
        &self,
        region: &Region,
        waiting: Waiting,
        visit: &mut impl FnMut(&Entry<'_>),
    ) {
        let reads = self.reads(region.start_page, region.pages(), self.config.max_write_bytes.into());
        let visit_read =
            |pages: Range<u64>, read: Outcome| self.visit_entries(region, pages, &read, &mut *visit);
        read_all(&*self.device, waiting, READS, reads, visit_read).await;
    }

    fn visit_entries(
        &self,
        region: &Region,
        pages: Range<u64>,
        read: &Outcome,
        visit: &mut impl FnMut(&Entry<'_>),
    ) {
        let Ok(bytes) = read else { return };
        for (number, bytes) in pages.zip(bytes.chunks_exact(self.shape.page_bytes as usize)) {
            let Ok(page) = Page::open(bytes, self.identity(region, number as u32)) else { continue };
            page.entries().for_each(|entry| visit(&entry));
        }
    }

    /// The reads of the pages of a region, each of at most `limit_bytes`.
    pub(super) fn reads(
        &self,
        start_page: u64,
        pages: u64,
        limit_bytes: u64,
    ) -> impl Iterator<Item = (Range<u64>, Request)> {
        let mut first = 0;
        std::iter::from_fn(move || {
            let part = (first < pages).then(|| self.transfer(start_page, pages, first, limit_bytes))?;
            first = part.end;
            let request = self.read_request(start_page, &part);
            Some((part, request))
        })
    }

    fn read_request(&self, start_page: u64, pages: &Range<u64>) -> Request {
        let len = (pages.end - pages.start) as usize * self.shape.page_bytes as usize;
        Request::read(self.page_offset(start_page + pages.start), len)
    }

    /// The transfer of a region's pages from `first` on. It does not cross the end of the ring; empty at the end of the region.
    pub(super) fn transfer(&self, start_page: u64, pages: u64, first: u64, limit_bytes: u64) -> Range<u64> {
        let most = self.device.geometry().transfer_units(self.shape.page_bytes.into(), limit_bytes);
        let to_end = self.shape.log_pages - (start_page + first) % self.shape.log_pages;
        first..pages.min(first + most.min(to_end))
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
                let item = Buffered { is_on_flash: true, ..Buffered::of(hash, entry) };
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
            is_on_flash: false,
        }
    }
}
