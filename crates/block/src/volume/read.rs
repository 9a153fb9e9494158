//! Reads. Hits take no range lock; misses lock their blocks, so concurrent misses of a block read it from the disk once.

use std::ops::Range;
use std::sync::Arc;

use device::{Device, IoBuffer, IoError, IoSlice, Pending, Request};
use futures_util::future::join_all;

use super::error::{Result, VolumeError, VolumeErrorKind};
use super::segment::{Grid, Part, runs};
use super::shared::Shared;
use super::state::{FlashCopy, State, Written};
use super::work::Work;
use crate::sets::{Admit, Read, Tuning};

/// A part that is read from its flash page.
#[derive(Debug, Clone)]
struct Hit {
    part: Part,
    copy: FlashCopy,
}

/// A part with sectors that flash lacks.
#[derive(Debug, Clone)]
struct Miss {
    part: Part,
    /// The sectors that flash has.
    copy: Option<FlashCopy>,
    /// Where the block is inserted, if it is admitted.
    destination: Option<Destination>,
    /// The decision of the sets for `admit`, which has been counted.
    decided: Read,
    admit: Admit,
}

#[derive(Debug, Clone, Copy)]
struct Destination {
    slot: crate::sets::Slot,
    page: u32,
    dirty: bool,
}

/// The reads of one segment.
struct Plan {
    work: Arc<Work>,
    hits: Vec<Hit>,
    misses: Vec<Miss>,
}

/// How a request is read.
#[derive(Debug, Clone, Copy)]
struct ReadMode {
    admit: Admit,
    /// See [`Grid::is_sequential`].
    is_sequential: bool,
}

/// One read of the disk: of misses, and of the blocks between them.
struct DiskRead {
    misses: Range<usize>,
    blocks: Range<u64>,
}

/// A sequential read includes gaps between misses up to this length, which flash has: reading them takes less time than a head
/// movement.
const READ_THROUGH_BYTES: u64 = 256 << 10;

/// Attempts per segment. An attempt drops clean blocks with damaged pages, and the next reads them from the disk.
const ATTEMPTS: u32 = 3;

/// Approximate limit of read data that is still being written to flash. Replies do not wait for these writes, so clients that read
/// faster than the flash is written would fill the memory.
const MAX_FILLING_BYTES: u64 = 64 << 20;

impl Shared {
    pub(super) async fn read(self: &Arc<Self>, offset: u64, len: usize, may_cache: bool) -> Result<IoSlice> {
        self.grid.check_range(offset, len as u64)?;
        let mode = {
            let mut state = self.state.lock();
            state.health.check_open()?;
            let (admit, stream_bytes) =
                admit(&mut state, offset, len, may_cache, |tuning| tuning.read_bypass_bytes);
            ReadMode { admit, is_sequential: self.grid.is_sequential(len, stream_bytes) }
        };
        let mut segments = Grid::read_segments(offset, len);
        let Some(first) = segments.next() else { return Ok(IoBuffer::zeroed(0).into()) };
        if first.end == offset + len as u64 {
            return self.read_segment(&first, mode).await;
        }
        // All begin before any is awaited. Otherwise other requests would move the disk's head in between.
        let segments: Vec<Range<u64>> = std::iter::once(first).chain(segments).collect();
        let read = join_all(segments.iter().map(|segment| self.read_segment(segment, mode))).await;
        let mut whole = IoBuffer::zeroed(len);
        for (segment, bytes) in segments.iter().zip(read) {
            let bytes = bytes?;
            whole[(segment.start - offset) as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        Ok(whole.into())
    }

    async fn read_segment(self: &Arc<Self>, segment: &Range<u64>, mode: ReadMode) -> Result<IoSlice> {
        let (parts, admit) = (self.grid.parts(segment), mode.admit);
        if let Some(plan) = self.plan_hits(&parts, admit) {
            match self.read_hits(&plan, segment).await {
                // Clean blocks with damaged pages are dropped with the plan. They are read from the disk below.
                Err(error) if error.kind() == VolumeErrorKind::Flash => self.undo_counts(&plan),
                read => return read,
            }
        }
        let mut attempts = 0;
        loop {
            attempts += 1;
            let range = self.blocks.lock(self.grid.blocks_of(segment)).await;
            let plan = self.plan_misses(&parts, Work::new(self, Some(range)), admit);
            match self.read_locked(&plan, segment, mode.is_sequential).await {
                Err(error) if error.kind() == VolumeErrorKind::Flash && attempts < ATTEMPTS => {
                    self.undo_counts(&plan);
                }
                read => return read,
            }
        }
    }

    /// Reverses the statistics and policy updates of reads that are repeated.
    fn undo_counts(&self, plan: &Plan) {
        let sets = &mut self.state.lock().sets;
        for hit in &plan.hits {
            sets.undo_read_hit(hit.part.block);
        }
        for miss in &plan.misses {
            sets.undo_read(miss.part.block, miss.admit, miss.decided);
        }
    }

    /// Plans to read all parts from flash. `None` if flash lacks any of their sectors.
    fn plan_hits(self: &Arc<Self>, parts: &[Part], admit: Admit) -> Option<Plan> {
        let mut state = self.state.lock();
        let hits: Option<Vec<Hit>> = parts.iter().map(|part| hit(&state, part)).collect();
        let hits = hits?;
        let work = Work::new(self, None);
        for hit in &hits {
            state.sets.read(hit.part.block, admit);
            work.read_page(&mut state, hit.copy.page);
        }
        Some(Plan { work, hits, misses: Vec::new() })
    }

    async fn read_locked(
        self: &Arc<Self>,
        plan: &Plan,
        segment: &Range<u64>,
        is_sequential: bool,
    ) -> Result<IoSlice> {
        if plan.misses.is_empty() {
            return self.read_hits(plan, segment).await;
        }
        let from_disk = self.start_disk_reads(&plan.misses, &self.grid.blocks_of(segment), is_sequential);
        let old: Vec<Hit> = plan.misses.iter().filter_map(Miss::old).collect();
        if let [(read, _)] = &from_disk[..]
            && plan.hits.is_empty()
            && old.is_empty()
            && read.blocks == self.grid.blocks_of(segment)
        {
            return self.read_whole(plan, segment, from_disk).await;
        }
        let mut bytes = IoBuffer::zeroed((segment.end - segment.start) as usize);
        // Both complete before an error is returned, so that all damaged pages are found.
        let hit_pages = self.read_pages(&plan.work, &plan.hits).await;
        let old_pages = self.read_pages(&plan.work, &old).await;
        for (hit, page) in hit_pages? {
            bytes[hit.part.place()].copy_from_slice(&page[hit.part.within.clone()]);
        }
        let mut old_pages = old_pages?.into_iter();
        let mut blocks = Vec::with_capacity(plan.misses.len());
        for (read, pending) in from_disk {
            let data = self.disk_data(pending).await?;
            blocks.extend(self.blocks_in(&plan.misses, &read, &data));
        }
        for (miss, block) in plan.misses.iter().zip(&mut blocks) {
            if let Some(copy) = miss.copy {
                let (_, page) = old_pages.next().expect("a page was read for each copy");
                *block = merged(block, &page, copy);
            }
            bytes[miss.part.place()].copy_from_slice(&block[miss.part.within.clone()]);
        }
        self.start_fill(&plan.work, &plan.misses, &blocks);
        Ok(bytes.into())
    }

    /// One read of the disk is the whole segment, so nothing is copied.
    async fn read_whole(
        self: &Arc<Self>,
        plan: &Plan,
        segment: &Range<u64>,
        from_disk: Vec<(DiskRead, Pending)>,
    ) -> Result<IoSlice> {
        let (read, pending) = from_disk.into_iter().next().expect("there is one");
        let data = self.disk_data(pending).await?;
        self.start_fill(&plan.work, &plan.misses, &self.blocks_in(&plan.misses, &read, &data));
        let start = (segment.start - read.blocks.start * u64::from(self.layout.block_bytes)) as usize;
        Ok(data.part(start..start + (segment.end - segment.start) as usize))
    }

    fn plan_misses(self: &Arc<Self>, parts: &[Part], work: Arc<Work>, admit: Admit) -> Plan {
        let mut state = self.state.lock();
        let filling_bytes = state.filling_blocks as u64 * u64::from(self.layout.block_bytes);
        let may_fill = state.health.is_healthy() && filling_bytes < MAX_FILLING_BYTES;
        let most_filled = if may_fill { state.blocks_that_may_change() } else { 0 };
        let (mut hits, mut misses, mut to_fill) = (Vec::new(), Vec::new(), 0);
        for part in parts {
            let may_change = to_fill < most_filled;
            let admit = admit_now(&state, part.block, admit, may_change);
            let decided = state.sets.read(part.block, admit);
            if let (Read::Hit(_), Some(hit)) = (decided, hit(&state, part)) {
                work.read_page(&mut state, hit.copy.page);
                hits.push(hit);
                continue;
            }
            let miss = miss(&mut state, &work, part, (decided, admit), may_change);
            to_fill += usize::from(miss.destination.is_some());
            misses.push(miss);
        }
        work.reserve_changes(&mut state, to_fill);
        let mut rejected = misses.iter().filter(|miss| miss.admit == Admit::NoSpace);
        let commit_soon = rejected.any(|miss| state.should_commit(miss.part.block));
        drop(state);
        if commit_soon {
            self.commit_in_background();
        }
        Plan { work, hits, misses }
    }

    /// The disk reads for `misses`: one for each run of adjacent blocks, split at the largest transfer. Those of a sequential request
    /// include short gaps, also at the ends of the segment, where the previous request ended and the next one begins.
    fn disk_reads(&self, misses: &[Miss], segment: &Range<u64>, is_sequential: bool) -> Vec<DiskRead> {
        let block_bytes = u64::from(self.layout.block_bytes);
        let most = self.disk.geometry().transfer_units(block_bytes, u64::MAX);
        let gap = if is_sequential { READ_THROUGH_BYTES / block_bytes } else { 0 };
        let runs = runs(misses, |one, next| {
            let (one, next) = (one.part.block, next.part.block);
            next - one <= 1 + gap && one / most == next / most
        });
        let read = |run: Range<usize>| {
            let blocks = misses[run.start].part.block..misses[run.end - 1].part.block + 1;
            DiskRead { misses: run, blocks }
        };
        let mut reads: Vec<DiskRead> = runs.into_iter().map(read).collect();
        if let Some(DiskRead { blocks, .. }) = reads.first_mut()
            && blocks.start - segment.start <= gap
        {
            blocks.start = segment.start.max(blocks.start / most * most);
        }
        if let Some(DiskRead { blocks, .. }) = reads.last_mut()
            && segment.end - blocks.end <= gap
        {
            blocks.end = segment.end.min(blocks.start / most * most + most);
        }
        reads
    }

    fn start_disk_reads(
        &self,
        misses: &[Miss],
        segment: &Range<u64>,
        is_sequential: bool,
    ) -> Vec<(DiskRead, Pending)> {
        let reads = self.disk_reads(misses, segment, is_sequential);
        self.state.lock().sets.counters_mut().disk_reads += reads.len() as u64;
        let block_bytes = u64::from(self.layout.block_bytes);
        let start = |read: DiskRead| {
            let offset = read.blocks.start * block_bytes;
            let end = (read.blocks.end * block_bytes).min(self.disk.bytes());
            (read, self.disk.read(offset, (end - offset) as usize))
        };
        reads.into_iter().map(start).collect()
    }

    /// The misses in the data of a read. The disk's last block is padded with zeros.
    fn blocks_in(&self, misses: &[Miss], read: &DiskRead, data: &IoSlice) -> Vec<IoSlice> {
        let block_bytes = self.layout.block_bytes as usize;
        let block = |miss: &Miss| {
            let start = (miss.part.block - read.blocks.start) as usize * block_bytes;
            if start + block_bytes <= data.len() {
                return data.part(start..start + block_bytes);
            }
            let mut padded = IoBuffer::zeroed(block_bytes);
            padded[..data.len() - start].copy_from_slice(&data[start..]);
            padded.into()
        };
        misses[read.misses.clone()].iter().map(block).collect()
    }

    async fn read_hits(&self, plan: &Plan, segment: &Range<u64>) -> Result<IoSlice> {
        let len = (segment.end - segment.start) as usize;
        let mut pages = self.read_pages(&plan.work, &plan.hits).await?;
        if let [(hit, page)] = &pages[..] {
            return Ok(page.part(hit.part.within.clone()));
        }
        let mut bytes = IoBuffer::zeroed(len);
        for (hit, page) in pages.drain(..) {
            bytes[hit.part.place()].copy_from_slice(&page[hit.part.within]);
        }
        Ok(bytes.into())
    }

    /// Reads whole pages, adjacent ones together, and verifies their checksums if known. Clean blocks with damaged pages are
    /// dropped when `work` ends.
    async fn read_pages(&self, work: &Arc<Work>, hits: &[Hit]) -> Result<Vec<(Hit, IoSlice)>> {
        let block_bytes = self.layout.block_bytes as usize;
        let most = self.flash.geometry().transfer_units(block_bytes as u64, u64::MAX) as u32;
        let runs = runs(hits, |one, next| {
            one.copy.page + 1 == next.copy.page && !next.copy.page.is_multiple_of(most)
        });
        self.state.lock().sets.counters_mut().ssd_reads += hits.len() as u64;
        let start = |run: Range<usize>| {
            let offset = self.layout.page_offset(hits[run.start].copy.page);
            let pending = work.start(&*self.flash, Request::read(offset, run.len() * block_bytes));
            (run, pending)
        };
        let pending: Vec<_> = runs.into_iter().map(start).collect();
        let (mut pages, mut result) = (Vec::with_capacity(hits.len()), Ok(()));
        for (run, pending) in pending {
            let data = match pending.await {
                Ok(data) => IoSlice::from(data),
                Err(error) => {
                    result = result.and(Err(self.flash_read_failed(work, &hits[run], error)));
                    continue;
                }
            };
            for (number, hit) in hits[run].iter().enumerate() {
                let page = data.part(number * block_bytes..(number + 1) * block_bytes);
                if hit.copy.crc.is_some_and(|crc| crc != crc32c(&page)) {
                    result = result.and(Err(self.bad_page(work, hit)));
                }
                pages.push((hit.clone(), page));
            }
        }
        result.map(|()| pages)
    }

    /// Reads one page for a write that keeps some of its sectors.
    pub(super) async fn read_copy(&self, work: &Arc<Work>, part: &Part, copy: FlashCopy) -> Result<IoSlice> {
        let hit = Hit { part: part.clone(), copy };
        Ok(self.read_pages(work, &[hit]).await?.remove(0).1)
    }

    /// Reads the pages of several blocks, in order.
    pub(super) async fn read_copies_of(
        &self,
        work: &Arc<Work>,
        blocks: Vec<(Part, FlashCopy)>,
    ) -> Result<Vec<IoSlice>> {
        let hits: Vec<Hit> = blocks.into_iter().map(|(part, copy)| Hit { part, copy }).collect();
        Ok(self.read_pages(work, &hits).await?.into_iter().map(|(_, page)| page).collect())
    }

    /// Inserts blocks in the background; the reply does not wait.
    fn start_fill(self: &Arc<Self>, work: &Arc<Work>, misses: &[Miss], blocks: &[IoSlice]) {
        let filled: Vec<(Written, IoSlice)> = misses
            .iter()
            .zip(blocks)
            .filter_map(|(miss, data)| {
                let Destination { slot, page, dirty } = miss.destination?;
                let written =
                    Written { slot, block: miss.part.block, page, crc: crc32c(data), partial: None, dirty };
                Some((written, data.clone()))
            })
            .collect();
        if filled.is_empty() {
            return;
        }
        let writes = self.page_writes(&filled);
        {
            let mut state = self.state.lock();
            state.sets.counters_mut().ssd_writes += filled.len() as u64;
            state.filling_blocks += filled.len();
        }
        let written = filled.into_iter().map(|(written, _)| written).collect();
        let fill = Fill { shared: Arc::clone(self), work: Arc::clone(work), written };
        let fill = Arc::new(fill);
        for request in writes {
            let fill = Arc::clone(&fill);
            let completed = move |outcome: device::Outcome| fill.complete(outcome);
            self.flash.submit(request, device::Completion::new(completed));
        }
    }

    /// Write requests for whole pages, one for each run of adjacent pages.
    pub(super) fn page_writes(&self, pages: &[(Written, IoSlice)]) -> Vec<Request> {
        let geometry = self.flash.geometry();
        let block_bytes = self.layout.block_bytes as usize;
        let most = geometry.transfer_units(block_bytes as u64, u64::MAX) as u32;
        let runs =
            runs(pages, |(one, _), (next, _)| one.page + 1 == next.page && !next.page.is_multiple_of(most));
        let request = |run: Range<usize>| {
            let offset = self.layout.page_offset(pages[run.start].0.page);
            let data = match &pages[run] {
                [(_, data)] if data.as_ptr().addr().is_multiple_of(geometry.block_bytes as usize) => {
                    data.clone()
                }
                run => {
                    let mut together = IoBuffer::zeroed(run.len() * block_bytes);
                    for ((_, data), into) in run.iter().zip(together.chunks_exact_mut(block_bytes)) {
                        into.copy_from_slice(data);
                    }
                    together.into()
                }
            };
            Request::write(offset, data)
        };
        runs.into_iter().map(request).collect()
    }

    /// Handles a failed read of pages. Clean blocks are dropped, since the disk has them. Dirty blocks stay: a later read may succeed.
    fn flash_read_failed(&self, work: &Arc<Work>, hits: &[Hit], error: IoError) -> VolumeError {
        self.state.lock().io.ssd_read_errors += 1;
        for hit in hits {
            work.report_damaged(hit.part.block, hit.copy.page);
        }
        VolumeError::flash("reading the flash", error)
    }

    fn bad_page(&self, work: &Arc<Work>, hit: &Hit) -> VolumeError {
        self.state.lock().io.checksum_errors += 1;
        work.report_damaged(hit.part.block, hit.copy.page);
        let why = format!("block {} on flash, page {}: its checksum is wrong", hit.part.block, hit.copy.page);
        VolumeError::new(VolumeErrorKind::Flash, why)
    }
}

/// Adds the request to the sequential streams. Returns whether its blocks may be cached, and the length of its stream; a request of a
/// client that does not use the cache is a stream of its own. `limit` selects the stream length limit.
pub(super) fn admit(
    state: &mut State,
    offset: u64,
    len: usize,
    may_cache: bool,
    limit: fn(&Tuning) -> u64,
) -> (Admit, u64) {
    if !may_cache {
        return (Admit::Refused, len as u64);
    }
    let stream_bytes = state.streams.record(offset, len as u64);
    let limit = limit(state.sets.tuning());
    let is_limited = limit > 0 && stream_bytes > limit;
    (if is_limited { Admit::Sequential } else { Admit::Yes }, stream_bytes)
}

/// Whether a block can be inserted now. An insertion never waits for a commit.
fn admit_now(state: &State, block: u64, admit: Admit, may_change: bool) -> Admit {
    match admit {
        Admit::Yes if !state.health.is_healthy() => Admit::Refused,
        Admit::Yes if !may_change || state.pages.free_in(state.group_of(block)) == 0 => Admit::NoSpace,
        admit => admit,
    }
}

fn hit(state: &State, part: &Part) -> Option<Hit> {
    let copy = state.copy(state.sets.find(part.block)?)?;
    let has_all = copy.partial.is_none_or(|sectors| sectors.contains(part.sectors()));
    has_all.then(|| Hit { part: part.clone(), copy })
}

fn miss(
    state: &mut State,
    work: &Arc<Work>,
    part: &Part,
    (decided, admit): (Read, Admit),
    may_change: bool,
) -> Miss {
    let none = Miss { part: part.clone(), copy: None, destination: None, decided, admit };
    let (slot, copy) = match decided {
        Read::Around => return none,
        Read::Hit(slot) => (slot, state.copy(slot)),
        Read::Fill { slot, evicted } => {
            if let Some(evicted) = evicted {
                state.vacate(slot, evicted);
            }
            (slot, None)
        }
    };
    let dirty = state.sets.word(slot).is_dirty();
    work.pin(state, slot, part.block);
    if let Some(copy) = copy {
        work.read_page(state, copy.page);
    }
    let page = if may_change { work.take_page(state, part.block) } else { None };
    Miss { copy, destination: page.map(|page| Destination { slot, page, dirty }), ..none }
}

impl Miss {
    /// The block's sectors on flash.
    fn old(&self) -> Option<Hit> {
        self.copy.map(|copy| Hit { part: self.part.clone(), copy })
    }
}

/// The block from the disk, overlaid with the sectors on flash.
fn merged(from_disk: &IoSlice, page: &IoSlice, copy: FlashCopy) -> IoSlice {
    let mut block = IoBuffer::copy_of(from_disk);
    overlay(&mut block, page, copy);
    block.into()
}

/// Copies the sectors of a page over a block.
pub(super) fn overlay(block: &mut [u8], page: &[u8], copy: FlashCopy) {
    let sector = super::SECTOR_BYTES as usize;
    let Some(sectors) = copy.partial else { return block.copy_from_slice(page) };
    for run in sectors.runs() {
        let bytes = run.start as usize * sector..(run.end as usize * sector).min(block.len());
        block[bytes.clone()].copy_from_slice(&page[bytes]);
    }
}

pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Blocks that are being inserted. They are installed when the last write completes, unless a write failed.
struct Fill {
    shared: Arc<Shared>,
    work: Arc<Work>,
    written: Vec<Written>,
}

impl Fill {
    fn complete(&self, outcome: device::Outcome) {
        if let Err(error) = outcome {
            let error = VolumeError::flash("inserting blocks into the cache after a read", error);
            self.shared.state.lock().fail_flash(error, self.shared.timer.monotonic_ns());
        }
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.filling_blocks -= self.written.len();
        if !state.health.is_healthy() {
            return;
        }
        for written in &self.written {
            state.install(written);
        }
        self.work.keep_pages();
        let commit_soon = self.written.first().is_some_and(|written| state.should_commit(written.block));
        drop(state);
        if commit_soon {
            self.shared.commit_in_background();
        }
    }
}
