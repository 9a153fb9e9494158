//! Reads. Hits take no range lock; misses lock their blocks, so concurrent misses of a block read it from the disk once.

use std::ops::Range;
use std::sync::Arc;

use device::checksum::crc32c;
use device::{Device, IoBuffer, IoSlice, Pending};
use futures_util::future::join_all;

use super::error::{Result, VolumeError, VolumeErrorKind};
use super::flash_io::{Hit, overlay};
use super::inner::Inner;
use super::page_map::FlashCopy;
use super::segment::{Grid, Part, runs};
use super::state::{State, Written};
use super::work::Work;
use crate::sets::{Admit, Read};

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

impl Inner {
    pub(super) async fn read(self: &Arc<Self>, offset: u64, len: usize, may_cache: bool) -> Result<IoSlice> {
        self.shared.grid.check_range(offset, len as u64)?;
        let mode = {
            let mut state = self.shared.state.lock();
            state.health.check_open()?;
            let (admit, stream_bytes) =
                state.admit(offset, len, may_cache, |tuning| tuning.read_bypass_bytes);
            ReadMode { admit, is_sequential: self.shared.grid.is_sequential(len, stream_bytes) }
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
        let (parts, admit) = (self.shared.grid.parts(segment), mode.admit);
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
            let plan = self.plan_misses(&parts, self.lock(segment).await, admit);
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
        let sets = &mut self.shared.state.lock().sets;
        for hit in &plan.hits {
            sets.undo_read_hit(hit.part.block);
        }
        for miss in &plan.misses {
            sets.undo_read(miss.part.block, miss.admit, miss.decided);
        }
    }

    /// Plans to read all parts from flash. `None` if flash lacks any of their sectors.
    fn plan_hits(&self, parts: &[Part], admit: Admit) -> Option<Plan> {
        let mut state = self.shared.state.lock();
        let hits: Option<Vec<Hit>> = parts.iter().map(|part| hit(&state, part)).collect();
        let hits = hits?;
        let work = Work::new(&self.shared, None);
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
        let from_disk =
            self.start_disk_reads(&plan.misses, &self.shared.grid.blocks_of(segment), is_sequential);
        let old: Vec<Hit> = plan.misses.iter().filter_map(Miss::old).collect();
        if let [(read, _)] = &from_disk[..]
            && plan.hits.is_empty()
            && old.is_empty()
            && read.blocks == self.shared.grid.blocks_of(segment)
        {
            return self.read_whole(plan, segment, from_disk).await;
        }
        let mut bytes = IoBuffer::zeroed((segment.end - segment.start) as usize);
        // Both complete before an error is returned, so that all damaged pages are found.
        let hit_pages = self.shared.read_pages(&plan.work, &plan.hits).await;
        let old_pages = self.shared.read_pages(&plan.work, &old).await;
        for (hit, page) in hit_pages? {
            bytes[hit.part.place()].copy_from_slice(&page[hit.part.within.clone()]);
        }
        let mut old_pages = old_pages?.into_iter();
        let mut blocks = Vec::with_capacity(plan.misses.len());
        for (read, pending) in from_disk {
            let data = self.disk_io.data(pending).await?;
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
        let data = self.disk_io.data(pending).await?;
        self.start_fill(&plan.work, &plan.misses, &self.blocks_in(&plan.misses, &read, &data));
        let start = (segment.start - read.blocks.start * u64::from(self.shared.layout.block_bytes)) as usize;
        Ok(data.part(start..start + (segment.end - segment.start) as usize))
    }

    fn plan_misses(&self, parts: &[Part], work: Arc<Work>, admit: Admit) -> Plan {
        let mut state = self.shared.state.lock();
        let filling_bytes = state.filling_blocks() as u64 * u64::from(self.shared.layout.block_bytes);
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
            self.committer.commit_in_background();
        }
        Plan { work, hits, misses }
    }

    /// The disk reads for `misses`: one for each run of adjacent blocks, split at the largest transfer. Those of a sequential request
    /// include short gaps, also at the ends of the segment, where the previous request ended and the next one begins.
    fn disk_reads(&self, misses: &[Miss], segment: &Range<u64>, is_sequential: bool) -> Vec<DiskRead> {
        let block_bytes = u64::from(self.shared.layout.block_bytes);
        let most = self.shared.disk.geometry().transfer_units(block_bytes, u64::MAX);
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
        self.shared.state.lock().sets.counters_mut().disk_reads += reads.len() as u64;
        let block_bytes = u64::from(self.shared.layout.block_bytes);
        let start = |read: DiskRead| {
            let offset = read.blocks.start * block_bytes;
            let end = (read.blocks.end * block_bytes).min(self.shared.disk.bytes());
            (read, self.shared.disk.read(offset, (end - offset) as usize))
        };
        reads.into_iter().map(start).collect()
    }

    /// The misses in the data of a read. The disk's last block is padded with zeros.
    fn blocks_in(&self, misses: &[Miss], read: &DiskRead, data: &IoSlice) -> Vec<IoSlice> {
        let block_bytes = self.shared.layout.block_bytes as usize;
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
        let mut pages = self.shared.read_pages(&plan.work, &plan.hits).await?;
        if let [(hit, page)] = &pages[..] {
            return Ok(page.part(hit.part.within.clone()));
        }
        let mut bytes = IoBuffer::zeroed(len);
        for (hit, page) in pages.drain(..) {
            bytes[hit.part.place()].copy_from_slice(&page[hit.part.within]);
        }
        Ok(bytes.into())
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
        let writes = self.shared.page_writes(&filled);
        {
            let mut state = self.shared.state.lock();
            state.sets.counters_mut().ssd_writes += filled.len() as u64;
            state.begin_fill(filled.len());
        }
        let written = filled.into_iter().map(|(written, _)| written).collect();
        let fill = Fill { inner: Arc::clone(self), work: Arc::clone(work), written };
        let fill = Arc::new(fill);
        for request in writes {
            let fill = Arc::clone(&fill);
            let completed = move |outcome: device::Outcome| fill.complete(outcome);
            self.shared.flash.submit(request, device::Completion::new(completed));
        }
    }
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
    let copy = state.map.copy(state.sets.find(part.block)?)?;
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
        Read::Hit(slot) => (slot, state.map.copy(slot)),
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

/// Blocks that are being inserted. They are installed when the last write completes, unless a write failed.
struct Fill {
    inner: Arc<Inner>,
    work: Arc<Work>,
    written: Vec<Written>,
}

impl Fill {
    fn complete(&self, outcome: device::Outcome) {
        if let Err(error) = outcome {
            let error = VolumeError::flash("inserting blocks into the cache after a read", error);
            let shared = &self.inner.shared;
            shared.state.lock().fail_flash(error, shared.timer.monotonic_ns());
        }
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        let mut state = self.inner.shared.state.lock();
        state.end_fill(self.written.len());
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
            self.inner.committer.commit_in_background();
        }
    }
}
