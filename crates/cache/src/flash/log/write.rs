//! The background step: writes a sealed region and publishes its items in the index.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{IoSlice, Request};
use hashbrown::HashSet;

use super::index::{Inserted, WhenFull};
use super::lookup::is_expired;
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

/// The items of a sealed region that are not expired.
struct Packed {
    /// In the order of their hashes, with different addresses.
    items: Vec<Buffered>,
    /// Items whose address another one has. They move to the next region.
    colliding: Vec<Buffered>,
}

/// The right to write a region. There is one; dropping it lets another step begin, which writes the region again from its start.
struct Writing<'a>(&'a HashLog);

impl<'a> Writing<'a> {
    fn begin(log: &'a HashLog) -> Option<Self> {
        // Not `then_some`: a value made in vain would be dropped, which ends the other step's right.
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
    /// Completes some removals, then writes the oldest sealed region, if another step is not writing one. A step that is dropped leaves the
    /// region sealed, and its items in memory.
    pub async fn step(&self, waiting: Waiting, now_seconds: u32) -> Progress {
        let completed = self.complete_removals(u64::MAX, waiting).await;
        let written = self.write_next(waiting, now_seconds).await;
        Progress { entries: written.entries + completed, ..written }
    }

    async fn write_next(&self, waiting: Waiting, now_seconds: u32) -> Progress {
        let Some(_writing) = Writing::begin(self) else { return Progress::default() };
        let is_to_be_settled = self.filling.lock().is_to_be_settled();
        if self.pauses.is_pause() && !is_to_be_settled {
            return Progress::default();
        }
        let on_failure = if is_to_be_settled { OnFailure::Lose } else { OnFailure::Pause };
        let Some(sequence) = self.next_sealed() else { return Progress::default() };
        self.write_region(sequence, waiting, now_seconds, on_failure).await
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
        let Some(sequence) = self.next_sealed() else { return Progress::default() };
        self.write_region(sequence, waiting, now_seconds, OnFailure::Lose).await
    }

    fn next_sealed(&self) -> Option<u64> {
        let mut filling = self.filling.lock();
        if filling.sealed.is_empty() && (self.is_full(&filling) || filling.is_to_be_settled()) {
            filling.seal();
        }
        filling.sealed.front().copied()
    }

    async fn write_region(
        &self,
        sequence: u64,
        waiting: Waiting,
        now_seconds: u32,
        on_failure: OnFailure,
    ) -> Progress {
        let Packed { items, colliding } = self.packed_items(sequence, now_seconds);
        let plan = pack::plan(&items, self.shape.pages_per_region, self.shape.page_bytes as usize);
        self.measure_waste(&items, &plan);
        self.make_space(sequence, plan.pages.len() as u64, items.len(), waiting, now_seconds).await;
        let start_page = self.next_page.load(Ordering::Acquire);
        let region = Region { sequence, start_page, fences: plan.fences.clone() };
        let Some(failed) = self.write_pages(&region, &items, &plan, waiting, on_failure).await else {
            return Progress::default();
        };
        let progress = Progress { buckets: plan.pages.len().max(1), entries: items.len() };
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
            self.evict(self.live().min, waiting, now_seconds).await;
        }
        progress
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

    /// The items of a sealed region, without expired ones.
    fn packed_items(&self, sequence: u64, now_seconds: u32) -> Packed {
        let mut packed = Packed { items: Vec::new(), colliding: Vec::new() };
        let mut addresses = HashSet::new();
        for shard in &self.shards {
            addresses.clear();
            for item in shard.lock().tables.items(sequence) {
                if is_expired(item.expiry_seconds, now_seconds) {
                    continue;
                }
                let is_first: bool = addresses.insert(self.address(item.hash));
                if is_first { &mut packed.items } else { &mut packed.colliding }.push(item.clone());
            }
        }
        packed.items.sort_unstable_by_key(|item| item.hash);
        packed
    }

    /// Writes the pages front to back, and returns the numbers of those that failed. A failed write is repeated page by page, so
    /// that one bad block does not lose its neighbours. `None` if all pages of a write failed, and the region is to be written again
    /// after a pause.
    async fn write_pages(
        &self,
        region: &Region,
        items: &[Buffered],
        plan: &Plan,
        waiting: Waiting,
        on_failure: OnFailure,
    ) -> Option<Vec<usize>> {
        let page_bytes = self.shape.page_bytes as usize;
        let mut failed = Vec::new();
        for range in self.transfers(region.start_page, region.pages()) {
            let range = range.start as usize..range.end as usize;
            let pages = &plan.pages[range.clone()];
            let identity = |page: usize| self.identity(region, (range.start + page) as u32);
            let buffer = Arc::new(pack::encode(items, pages, page_bytes, identity));
            let start_page = region.start_page + range.start as u64;
            if self.write(start_page, IoSlice::whole(Arc::clone(&buffer)), waiting).await {
                continue;
            }
            let before = failed.len();
            for page in 0..pages.len() {
                let bytes = IoSlice::new(Arc::clone(&buffer), page * page_bytes..(page + 1) * page_bytes);
                if !self.write(start_page + page as u64, bytes, waiting).await {
                    failed.push(range.start + page);
                }
            }
            let all_failed = failed.len() - before == pages.len();
            if all_failed && on_failure == OnFailure::Pause && self.pauses.is_enabled() {
                return None;
            }
        }
        Some(failed)
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
        let (Some(on_eviction), true) = (&self.on_eviction, self.on_owed.is_some()) else { return };
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
            Inserted::Replaced(oldest) => {
                shard.stats.evictions += 1;
                self.live_items_of(oldest).fetch_sub(1, Ordering::Relaxed);
            }
            Inserted::Full => {
                shard.stats.lost_items += 1;
                self.remove_entries(&mut shard, &address);
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
                    self.remove_entries(shard, &self.address(item.hash));
                }
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
        self.filling.lock().sealed.pop_front();
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
