//! The background step: writes a sealed region and publishes its items in the index.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{IoError, IoSlice, Request};
use event_listener::Listener;

use super::index::Inserted;
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
    /// Writes the oldest sealed region, if another step is not writing one. A step that is dropped leaves the region sealed, and its items
    /// in memory.
    pub async fn step(&self, waiting: Waiting, now_seconds: u32) -> Progress {
        let Some(_writing) = Writing::begin(self) else { return Progress::default() };
        let is_to_be_settled = self.filling.lock().is_to_be_settled();
        if self.pauses() && !is_to_be_settled {
            return Progress::default();
        }
        let on_failure = if is_to_be_settled { OnFailure::Lose } else { OnFailure::Pause };
        let Some(sequence) = self.next_sealed() else { return Progress::default() };
        self.write_region(sequence, waiting, now_seconds, on_failure).await
    }

    /// Writes all items in memory, waiting for steps of other tasks too. It returns only when inserts pause.
    pub async fn drain(&self, waiting: Waiting, now_seconds: u32) {
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
            match waiting {
                Waiting::Thread => listener.wait(),
                Waiting::Task => listener.await,
            }
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
        if let Some(oldest) = sequence.checked_sub(u64::from(self.shape.regions)) {
            self.evict(oldest, waiting, now_seconds).await;
        }
        let items = self.packed_items(sequence, now_seconds);
        let plan = pack::plan(&items, self.shape.pages_per_region, self.shape.page_bytes as usize);
        self.measure_waste(&items, &plan);
        let Some(failed) = self.write_pages(sequence, &items, &plan, waiting, on_failure).await else {
            return Progress::default();
        };
        let progress = Progress { buckets: plan.pages.len().max(1), entries: items.len() };
        self.publish(sequence, &items, plan, &failed, now_seconds);
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

    /// The items of a sealed region in the order of their hashes, without expired ones.
    fn packed_items(&self, sequence: u64, now_seconds: u32) -> Vec<Buffered> {
        let mut items = Vec::new();
        for shard in &self.shards {
            shard.lock().tables.pack(sequence, |item| {
                if !is_expired(item.expiry_seconds, now_seconds) {
                    items.push(item.clone());
                }
            });
        }
        items.sort_unstable_by_key(|item| item.hash);
        items
    }

    /// Writes the pages front to back, and returns the numbers of those that failed. A failed write is repeated page by page, so
    /// that one bad block does not lose its neighbours. `None` if all pages of a write failed, and the region is to be written again
    /// after a pause.
    async fn write_pages(
        &self,
        sequence: u64,
        items: &[Buffered],
        plan: &Plan,
        waiting: Waiting,
        on_failure: OnFailure,
    ) -> Option<Vec<usize>> {
        let page_bytes = self.shape.page_bytes as usize;
        let write_bytes = self.config.max_write_bytes.min(self.device.geometry().max_io_bytes) as usize;
        let pages_per_write = (write_bytes / page_bytes).max(1);
        let mut failed = Vec::new();
        for (number, pages) in plan.pages.chunks(pages_per_write).enumerate() {
            let first = number * pages_per_write;
            let identity = |page: usize| self.identity(sequence, (first + page) as u32);
            let buffer = Arc::new(pack::encode(items, pages, page_bytes, identity));
            if self.write(sequence, first, IoSlice::whole(Arc::clone(&buffer)), waiting).await {
                continue;
            }
            let before = failed.len();
            for page in 0..pages.len() {
                let bytes = IoSlice::new(Arc::clone(&buffer), page * page_bytes..(page + 1) * page_bytes);
                if !self.write(sequence, first + page, bytes, waiting).await {
                    failed.push(first + page);
                }
            }
            if failed.len() - before == pages.len() && on_failure == OnFailure::Pause && self.clock.is_some()
            {
                return None;
            }
        }
        Some(failed)
    }

    async fn write(&self, sequence: u64, page: usize, data: IoSlice, waiting: Waiting) -> bool {
        let bytes = data.len() as u64;
        let offset = self.page_offset(sequence, page as u32);
        let request = Request::Write { offset, data, placement: self.placement };
        let written = waiting.start(&*self.device, request).await;
        self.note_write(written.as_ref().map(drop));
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

    fn note_write(&self, written: Result<(), &IoError>) {
        let mut outage = self.outage.lock();
        match (written, &self.clock) {
            (Err(error), Some(clock)) => outage.note_failure(error.to_string(), clock.monotonic_ns()),
            (Ok(()), _) => {
                outage.succeeded();
            }
            (Err(_), None) => {}
        }
    }

    /// Moves the items of a written region from the tables to the index.
    fn publish(&self, sequence: u64, items: &[Buffered], plan: Plan, failed: &[usize], now_seconds: u32) {
        let Plan { pages, fences, rest } = plan;
        let place = (sequence % u64::from(self.shape.regions)) as usize;
        let region = (!pages.is_empty()).then(|| Arc::new(Region { sequence, fences }));
        self.regions.write()[place] = region;
        self.live_items[place].store(0, Ordering::Relaxed);
        self.newest.store(sequence, Ordering::Release);
        for (number, page) in pages.iter().enumerate() {
            if failed.binary_search(&number).is_err() {
                items[page.clone()].iter().for_each(|item| self.publish_item(sequence, item));
            }
        }
        items[rest..].iter().for_each(|item| self.carry_over(sequence, item));
        for shard in &self.shards {
            self.finish_shard(sequence, &mut shard.lock(), now_seconds);
        }
        self.filling.lock().sealed.pop_front();
        self.room.notify(usize::MAX);
    }

    fn publish_item(&self, sequence: u64, item: &Buffered) {
        let address = self.address(item.hash);
        let mut shard = self.shard(item.hash).lock();
        let Some(leads_to_removed_key) = shard.tables.take(sequence, item, &address) else { return };
        self.buffered_bytes.fetch_sub(item.memory_bytes(), Ordering::AcqRel);
        let inserted = if leads_to_removed_key {
            Inserted::Full
        } else {
            shard.lines.insert(&address, sequence, self.live())
        };
        match inserted {
            Inserted::Free => {}
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

    /// Moves an item for which the region has no page to the open region.
    fn carry_over(&self, sequence: u64, item: &Buffered) {
        let address = self.address(item.hash);
        let mut shard = self.shard(item.hash).lock();
        if shard.tables.take(sequence, item, &address).is_some() {
            self.buffered_bytes.fetch_sub(item.memory_bytes(), Ordering::AcqRel);
            self.buffer(&mut shard, item.clone());
        }
    }

    /// Drops the items of a shard that are in no written page: expired ones, and those of failed writes. Older versions of their keys must
    /// not be found in their place.
    fn finish_shard(&self, sequence: u64, shard: &mut Shard, now_seconds: u32) {
        for item in shard.tables.drop_region(sequence) {
            self.buffered_bytes.fetch_sub(item.memory_bytes(), Ordering::AcqRel);
            self.remove_entries(shard, &self.address(item.hash));
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
}
