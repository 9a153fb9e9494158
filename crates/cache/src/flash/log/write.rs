//! The background step: writes a sealed region and publishes its items in the index.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{IoSlice, Request};
use futures_util::future::select;
use hashbrown::HashSet;

use super::evict::Eviction;
use super::index::{Inserted, WhenFull};
use super::lookup::is_expired;
use super::pace::Written;
use super::pack::{self, Plan};
use super::table::Buffered;
use super::{HashLog, Region, Shard};
use crate::flash::Waiting;
use crate::flash::soc::Progress;

/// Pages from which the unused bytes of a page are measured.
const MEASURED_PAGES: usize = 8;

/// The treatment of a write whose pages all fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnFailure {
    /// The region stays in memory, and is written again after a pause.
    Pause,
    /// Its items are lost: a caller waits for the end of the write.
    Lose,
}

/// The write of a sealed region, which steps continue one after another.
pub(super) struct RegionWrite {
    sequence: u64,
    /// Items that had expired at this time are not written.
    now_seconds: u32,
    /// Items to write, in the order of their hashes, with different addresses.
    items: Vec<Buffered>,
    /// Items whose address is also that of another item. They move to the next region.
    colliding: Vec<Buffered>,
    plan: Plan,
    /// `None` until the log has space for it.
    region: Option<Region>,
    /// Pages to be read for an eviction during the write, so that the log has space for the next region.
    pages_to_evict: u64,
    /// Pages written or failed.
    pages_done: u64,
    failed: Vec<usize>,
    progress: Written,
}

impl RegionWrite {
    /// Whether the next read of the region that is evicted meanwhile is due. The last one is due when half of the pages are written, so
    /// that all are complete before the next write begins.
    fn is_read_due(&self, eviction: &Eviction) -> bool {
        let pages = self.plan.pages.len() as u64;
        self.pages_to_evict > 0
            && eviction.pages_left() * pages
                >= pages.saturating_sub(2 * self.pages_done) * self.pages_to_evict
    }
}

/// What steps continue one after another. A dropped step drops it.
#[derive(Default)]
pub(super) struct Work {
    write: Option<RegionWrite>,
    eviction: Option<Eviction>,
}

/// The state of a write after a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transferred {
    More,
    All,
    /// All pages failed: the region is to be written again after a pause.
    Failed,
}

/// The right to write a region. There is one; dropping it lets another step begin.
struct Writing<'a>(&'a HashLog);

impl<'a> Writing<'a> {
    fn begin(log: &'a HashLog) -> Option<Self> {
        // Not `then_some`: it would always create a value, whose drop releases the right of another step.
        (!log.is_writing.swap(true, Ordering::AcqRel)).then(|| Self(log))
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.is_writing.store(false, Ordering::Release);
        self.0.wake();
    }
}

impl HashLog {
    /// Completes some removals, then makes the transfers that are due of the oldest sealed region, if another step is not doing so. A step
    /// that is dropped leaves the region sealed, and its items in memory; it is then written from its start.
    pub async fn step(&self, waiting: Waiting, now_seconds: u32) -> Progress {
        let completed = self.complete_removals(u64::MAX, waiting).await;
        let written = self.write_next(waiting, now_seconds).await;
        Progress { entries: written.entries + completed, ..written }
    }

    async fn write_next(&self, waiting: Waiting, now_seconds: u32) -> Progress {
        let Some(_writing) = Writing::begin(self) else { return Progress::default() };
        let is_to_be_settled = self.filling.lock().is_to_be_settled();
        if self.pauses.is_pause() && !is_to_be_settled {
            return self.finish_reads(waiting, now_seconds).await;
        }
        let on_failure = if is_to_be_settled { OnFailure::Lose } else { OnFailure::Pause };
        self.write_due(waiting, now_seconds, on_failure).await
    }

    /// Writes all items in memory and completes all removals, waiting for steps of other tasks too. It returns only when inserts pause.
    pub async fn drain(&self, waiting: Waiting, now_seconds: u32) {
        self.destroy_removed(waiting).await;
        self.drain_items(waiting, now_seconds).await;
        // Eviction and carried-over items may have recorded more.
        self.destroy_removed(waiting).await;
    }

    async fn drain_items(&self, waiting: Waiting, now_seconds: u32) {
        loop {
            {
                let mut filling = self.filling.lock();
                filling.settle_through = filling.settle_through.max(filling.open);
            }
            let listener = self.room.listen();
            if self.final_step(waiting, now_seconds).await != Progress::default() {
                continue;
            }
            if !self.is_writing.load(Ordering::Acquire) {
                return;
            }
            waiting.notified(listener).await;
        }
    }

    /// A step that loses the items of failed writes.
    async fn final_step(&self, waiting: Waiting, now_seconds: u32) -> Progress {
        let Some(_writing) = Writing::begin(self) else { return Progress::default() };
        self.write_due(waiting, now_seconds, OnFailure::Lose).await
    }

    fn next_sealed(&self) -> Option<u64> {
        let mut filling = self.filling.lock();
        if filling.sealed.is_empty() && (self.is_full(&filling) || filling.is_to_be_settled()) {
            filling.seal();
        }
        filling.sealed.front().copied()
    }

    /// Makes the transfers that are due of the oldest sealed region, and publishes it after the last one.
    async fn write_due(&self, waiting: Waiting, now_seconds: u32, on_failure: OnFailure) -> Progress {
        let mut work = self.take_work();
        let progress = self.continue_work(&mut work, waiting, now_seconds, on_failure).await;
        self.leave_work(work);
        progress
    }

    fn take_work(&self) -> Work {
        self.has_reads.store(false, Ordering::Release);
        std::mem::take(&mut *self.unfinished.lock())
    }

    fn leave_work(&self, work: Work) {
        let has_reads = work.eviction.as_ref().is_some_and(Eviction::has_reads);
        *self.unfinished.lock() = work;
        self.has_reads.store(has_reads, Ordering::Release);
    }

    /// Evicts the items of reads that are in flight.
    async fn finish_reads(&self, waiting: Waiting, now_seconds: u32) -> Progress {
        let mut work = self.take_work();
        let progress = self.take_reads(&mut work.eviction, waiting, now_seconds).await;
        self.leave_work(work);
        progress
    }

    async fn take_reads(
        &self,
        eviction: &mut Option<Eviction>,
        waiting: Waiting,
        now_seconds: u32,
    ) -> Progress {
        let mut progress = Progress::default();
        while let Some(begun) = eviction.as_mut().filter(|begun| begun.has_reads()) {
            self.evict_next(begun, waiting, now_seconds).await;
            progress.entries += 1;
        }
        progress
    }

    async fn continue_work(
        &self,
        Work { write: unfinished, eviction }: &mut Work,
        waiting: Waiting,
        now_seconds: u32,
        on_failure: OnFailure,
    ) -> Progress {
        let next = || self.next_sealed().map(|sequence| self.begin_write(sequence, now_seconds));
        let Some(mut write) = unfinished.take().or_else(next) else {
            return self.take_reads(eviction, waiting, now_seconds).await;
        };
        let mut progress = Progress::default();
        loop {
            if let Some(begun) = eviction.as_mut() {
                self.evict_complete(begun, now_seconds);
            }
            if !self.note_progress(&mut write, eviction.as_ref()) && on_failure == OnFailure::Pause {
                let Some(begun) = eviction.as_mut().filter(|begun| begun.has_reads()) else { break };
                self.evict_next_or_work(begun, waiting, now_seconds).await;
                continue;
            }
            let done_before = write.progress.done;
            match self.transfer_next(&mut write, eviction, waiting, on_failure).await {
                Transferred::More => progress.buckets += (write.progress.done - done_before) as usize,
                Transferred::All => {
                    let items = write.items.len();
                    self.end_write(write, eviction, waiting).await;
                    return Progress { buckets: progress.buckets.max(1), entries: items };
                }
                Transferred::Failed => {
                    self.filling.lock().written = None;
                    return Progress::default();
                }
            }
        }
        *unfinished = Some(write);
        progress
    }

    /// Waits for the next read of an eviction, and evicts its items, unless a transfer becomes due before.
    async fn evict_next_or_work(&self, eviction: &mut Eviction, waiting: Waiting, now_seconds: u32) {
        let work = self.work.listen();
        let next = self.evict_next(eviction, waiting, now_seconds);
        if waiting == Waiting::Thread {
            return next.await;
        }
        if !self.is_write_due(&self.filling.lock()) {
            select(pin!(next), work).await;
        }
    }

    fn begin_write(&self, sequence: u64, now_seconds: u32) -> RegionWrite {
        let (items, colliding) = self.packed_items(sequence, now_seconds);
        let plan = pack::plan(&items, self.shape.pages_per_region, self.shape.page_bytes as usize);
        self.measure_waste(&items, &plan);
        let progress = Written { done: 0, total: plan.pages.len() as u64 };
        let (region, pages_to_evict, pages_done, failed) = (None, 0, 0, Vec::new());
        RegionWrite {
            sequence,
            now_seconds,
            items,
            colliding,
            plan,
            region,
            pages_to_evict,
            pages_done,
            failed,
            progress,
        }
    }

    /// Publishes the progress of the write. Returns whether its next transfer is due.
    fn note_progress(&self, write: &mut RegionWrite, eviction: Option<&Eviction>) -> bool {
        // Computed again each time: an eviction may have begun during an earlier write, and further pages may have hits.
        let pages_left = write.plan.pages.len() as u64 - write.pages_done;
        write.progress.total = write.progress.done + pages_left + eviction.map_or(0, Eviction::pages_left);
        let mut filling = self.filling.lock();
        filling.written = Some(write.progress);
        self.is_write_due(&filling)
    }

    /// Makes the next transfer: a read of a region that is evicted, or a write.
    async fn transfer_next(
        &self,
        write: &mut RegionWrite,
        eviction: &mut Option<Eviction>,
        waiting: Waiting,
        on_failure: OnFailure,
    ) -> Transferred {
        let pages = write.plan.pages.len() as u64;
        if write.region.is_none() {
            if !self.make_space(write, eviction, waiting).await {
                return Transferred::More;
            }
            let start_page = self.next_page.load(Ordering::Acquire);
            let fences = write.plan.fences.clone();
            write.region = Some(Region::new(write.sequence, start_page, fences));
            if on_failure == OnFailure::Pause {
                self.evict_ahead(write, eviction);
            }
        }
        if let Some(begun) = eviction
            && begun.can_read()
            && write.is_read_due(begun)
        {
            write.progress.done += self.start_read(begun, waiting);
            return Transferred::More;
        }
        if write.pages_done < pages && !self.write_pages(write, waiting, on_failure).await {
            return Transferred::Failed;
        }
        if write.pages_done < pages { Transferred::More } else { Transferred::All }
    }

    /// Evicts the next part of the oldest region, unless the log has space. Returns whether it has.
    async fn make_space(
        &self,
        write: &mut RegionWrite,
        eviction: &mut Option<Eviction>,
        waiting: Waiting,
    ) -> bool {
        if self.has_space(write.sequence, write.plan.pages.len() as u64, write.items.len()) {
            return true;
        }
        let Some(begun) = eviction else {
            *eviction = self.begin_eviction();
            return false;
        };
        if begun.can_read() {
            write.progress.done += self.start_read(begun, waiting);
        } else {
            self.evict_next(begun, waiting, write.now_seconds).await;
        }
        self.end_if_read(eviction);
        false
    }

    /// Begins to evict the oldest region if the log will have no space for the region after this one. Its items are read during the write.
    fn evict_ahead(&self, write: &mut RegionWrite, eviction: &mut Option<Eviction>) {
        let pages = write.plan.pages.len() as u64 + u64::from(self.shape.pages_per_region);
        if eviction.is_none() && !self.has_space(write.sequence + 1, pages, write.items.len() * 2) {
            *eviction = self.begin_eviction_ahead();
        }
        write.pages_to_evict = eviction.as_ref().map_or(0, Eviction::pages_left);
    }

    /// Publishes a region whose pages are written.
    async fn end_write(&self, write: RegionWrite, eviction: &mut Option<Eviction>, waiting: Waiting) {
        let RegionWrite { sequence, now_seconds, items, colliding, plan, region, failed, .. } = write;
        let region = region.expect("its pages are written");
        self.report_expired(sequence, now_seconds);
        self.publish(region, &items, &plan, &failed);
        plan.left_over
            .iter()
            .map(|&at| &items[at])
            .chain(&colliding)
            .for_each(|item| self.carry_over(sequence, item));
        if !plan.left_over.is_empty() || !colliding.is_empty() {
            self.filling.lock().note_carry(sequence);
        }
        self.finish(sequence, now_seconds);
        while !self.place_overflow() {
            self.evict_oldest(eviction, waiting, now_seconds).await;
        }
    }

    /// Records the unused bytes per page. The last page does not count, because it ends with the items.
    fn measure_waste(&self, items: &[Buffered], plan: &Plan) {
        let full_pages = &plan.pages[..plan.pages.len().saturating_sub(1)];
        if full_pages.len() >= MEASURED_PAGES {
            let placed = full_pages.iter().flat_map(|page| &items[page.clone()]);
            let used: u64 = placed.map(|item| item.page_bytes() as u64).sum();
            let pages = full_pages.len() as u64;
            let room = pages * (u64::from(self.shape.page_bytes) - super::page::HEADER_BYTES as u64);
            self.filling.lock().waste_per_page = Some((room - used).div_ceil(pages));
        }
    }

    /// The items of a sealed region without expired ones: sorted by hash, and separately those whose address another item has.
    fn packed_items(&self, sequence: u64, now_seconds: u32) -> (Vec<Buffered>, Vec<Buffered>) {
        let (mut items, mut colliding) = (Vec::new(), Vec::new());
        let mut addresses = HashSet::new();
        for shard in &self.shards {
            addresses.clear();
            for item in shard.lock().tables.items(sequence) {
                if is_expired(item.expiry_seconds, now_seconds) {
                    continue;
                }
                let is_first: bool = addresses.insert(self.address(item.hash));
                if is_first { &mut items } else { &mut colliding }.push(item.clone());
            }
        }
        items.sort_unstable_by_key(|item| item.hash);
        (items, colliding)
    }

    /// Writes the next pages, and records those that failed. A failed transfer is repeated page by page, so that one bad block does not
    /// lose its neighbours. Returns false if all pages of it failed, and the region is to be written again after a pause.
    async fn write_pages(&self, write: &mut RegionWrite, waiting: Waiting, on_failure: OnFailure) -> bool {
        let page_bytes = self.shape.page_bytes as usize;
        let RegionWrite { items, plan, region, pages_done, failed, progress, .. } = write;
        let region = region.as_ref().expect("the log has space for it");
        let limit_bytes = self.config.max_write_bytes.into();
        let range = self.transfer(region.start_page, region.pages(), *pages_done, limit_bytes);
        let (first, pages) = (range.start as usize, &plan.pages[range.start as usize..range.end as usize]);
        let identity = |page: usize| self.identity(region, (first + page) as u32);
        let buffer = Arc::new(pack::encode(items, pages, page_bytes, identity));
        let start_page = region.start_page + range.start;
        if !self.write(start_page, IoSlice::whole(Arc::clone(&buffer)), waiting).await {
            let before = failed.len();
            for page in 0..pages.len() {
                let bytes = IoSlice::new(Arc::clone(&buffer), page * page_bytes..(page + 1) * page_bytes);
                if !self.write(start_page + page as u64, bytes, waiting).await {
                    failed.push(first + page);
                }
            }
            let all_failed = failed.len() - before == pages.len();
            if all_failed && on_failure == OnFailure::Pause && self.pauses.is_enabled() {
                return false;
            }
        }
        *pages_done = range.end;
        progress.done += range.end - range.start;
        true
    }

    async fn write(&self, page: u64, data: IoSlice, waiting: Waiting) -> bool {
        let bytes = data.len() as u64;
        let request = Request::Write { offset: self.page_offset(page), data, placement: self.placement };
        let written = waiting.start(&*self.device, request).await;
        self.pauses.note_write(written.as_ref().map(drop));
        let is_written = written.is_ok();
        let counters = &self.counters;
        counters.device_writes.fetch_add(1, Ordering::Relaxed);
        if is_written {
            counters.physical_written_bytes.fetch_add(bytes, Ordering::Relaxed);
            counters.pages_written.fetch_add(bytes / u64::from(self.shape.page_bytes), Ordering::Relaxed);
        } else {
            counters.write_errors.fetch_add(1, Ordering::Relaxed);
        }
        is_written
    }

    /// Reports the expired items of a region that are in no page, if a destructor must be called for them.
    fn report_expired(&self, sequence: u64, now_seconds: u32) {
        let (Some(on_eviction), true) = (&self.on_eviction, self.on_destructor.is_some()) else { return };
        for shard in &self.shards {
            let expired: Vec<Buffered> = {
                let shard = shard.lock();
                let items = shard.tables.items(sequence);
                items.filter(|item| is_expired(item.expiry_seconds, now_seconds)).cloned().collect()
            };
            for item in expired {
                let mut take_out = || {
                    let mut shard = shard.lock();
                    let is_taken = self.take_buffered(&mut shard, sequence, &item);
                    shard.stats.evictions_expired += u64::from(is_taken);
                    is_taken
                };
                item.as_flash_item(|flash_item| on_eviction(flash_item, &mut take_out));
            }
        }
    }

    /// Moves the items of a written region from the tables to the index.
    fn publish(&self, region: Region, items: &[Buffered], plan: &Plan, failed: &[usize]) {
        let sequence = region.sequence;
        self.journal_region(&region);
        self.next_page.store(region.start_page + region.pages(), Ordering::Release);
        let place = self.place(sequence);
        self.live_items[place].store(0, Ordering::Relaxed);
        self.regions.write()[place] = Some(Arc::new(region));
        self.newest.store(sequence, Ordering::Release);
        for (number, page) in plan.pages.iter().enumerate() {
            if failed.binary_search(&number).is_err() {
                items[page.clone()].iter().for_each(|item| self.publish_item(sequence, item));
            }
        }
    }

    fn publish_item(&self, sequence: u64, item: &Buffered) {
        let address = self.address(item.hash);
        let mut shard = self.shard(item.hash).lock();
        if !self.take_buffered(&mut shard, sequence, item) {
            return;
        }
        let when_full = if self.reports_all() { WhenFull::Overflow } else { WhenFull::ReplaceOldest };
        match shard.lines.insert(&address, sequence, self.live(), when_full) {
            Inserted::Kept => {}
            Inserted::Replaced { oldest, address } => {
                shard.stats.evictions += 1;
                self.live_items_of(oldest).fetch_sub(1, Ordering::Relaxed);
                self.journal_removal_of(item.hash, &address, oldest);
            }
            Inserted::Full => {
                shard.stats.lost_items += 1;
                self.remove_entries(&mut shard, item.hash);
                self.journal_removal_of(item.hash, &address, sequence);
                return;
            }
        }
        shard.stats.written_entries += 1;
        self.live_items_of(sequence).fetch_add(1, Ordering::Relaxed);
    }

    /// Takes an item out of its table. Returns false if it was removed or replaced before.
    fn take_buffered(&self, shard: &mut Shard, sequence: u64, item: &Buffered) -> bool {
        let is_taken = shard.tables.take(sequence, item);
        if is_taken {
            self.buffered_bytes.fetch_sub(item.memory_bytes(), Ordering::AcqRel);
        }
        is_taken
    }

    /// Moves an item that is in no page of the region to the open region.
    fn carry_over(&self, sequence: u64, item: &Buffered) {
        let mut shard = self.shard(item.hash).lock();
        if self.take_buffered(&mut shard, sequence, item) {
            self.buffer(&mut shard, item.clone());
        }
    }

    /// Drops the items of a region that are in no written page: expired ones, and those of failed writes. Older versions of their keys must
    /// not be found in their place.
    fn finish(&self, sequence: u64, now_seconds: u32) {
        for shard in &self.shards {
            let shard = &mut *shard.lock();
            for item in shard.tables.drop_region(sequence) {
                self.buffered_bytes.fetch_sub(item.memory_bytes(), Ordering::AcqRel);
                if !self.reports_all() {
                    self.remove_entries(shard, item.hash);
                }
                // A write that failed may have reached the medium.
                self.journal_removal(item.hash);
                shard.stats.unwritten_bytes += item.bytes.len() as u64;
                if is_expired(item.expiry_seconds, now_seconds) {
                    shard.stats.evictions_expired += 1;
                } else {
                    shard.stats.unwritten_items += 1;
                    shard.stats.lost_items += 1;
                }
            }
            shard.lines.sweep(self.shape.sweep_lines, self.live());
        }
        {
            let mut filling = self.filling.lock();
            filling.sealed.pop_front();
            filling.written = None;
        }
        self.room.notify(usize::MAX);
    }

    /// Moves entries of the index that did not fit its lines into slots that have become free. Returns whether all fit.
    fn place_overflow(&self) -> bool {
        let mut is_placed = true;
        for shard in &self.shards {
            is_placed &= shard.lock().lines.place_overflow(self.live());
        }
        is_placed
    }
}
