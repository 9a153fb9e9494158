//! Writes: to free pages, to the disk, or to both, as the mode and the sets decide.

use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;

use device::checksum::crc32c;
use device::{Device, IoBuffer, IoSlice};
use futures_util::future::{join_all, poll_immediate};

use super::cleaning::QueuedWrite;
use super::disk_io::{DiskWrite, read_disk_block};
use super::error::{Result, VolumeError, VolumeErrorKind};
use super::flash_io::overlay;
use super::inner::Inner;
use super::journal::IncomingWrite;
use super::page_map::FlashCopy;
use super::ranges::RangeGuard;
use super::record::Sectors;
use super::segment::{Part, runs};
use super::state::{State, Written};
use super::work::Work;
use super::write_blocker::{WaitFor, WriteBlocker, changing_blocks, obstacle, slot_shortage, wait_for};
use crate::sets::{Admit, Slot, Write};

/// Where the new bytes of a block are written.
#[derive(Debug, Clone)]
struct Target {
    part: Part,
    /// Slot and allocated page, if the block is cached.
    destination: Option<(Slot, u32)>,
    /// The block's current page, if the write does not cover the whole block.
    old: Option<FlashCopy>,
    /// Whether the disk is written, in addition to flash or alone.
    to_disk: bool,
    /// The decision of the sets, which has been counted; `None` if the flash has failed.
    decided: Option<Decided>,
}

#[derive(Debug, Clone, Copy)]
struct Decided {
    write: Write,
    admit: Admit,
    was_dirty: bool,
}

/// How a request is written.
#[derive(Debug, Clone, Copy)]
struct WriteMode {
    admit: Admit,
    /// Whether the request may bypass the cache where it would have to wait: if it is [sequential](Grid::is_sequential).
    may_bypass: bool,
}

/// Maximum of concurrent segments of a request.
const CONCURRENT_SEGMENTS: usize = 64;

/// Attempts per segment: one retry for each partial block at its two ends, whose flash page may be unreadable, and one after the
/// flash fails.
const ATTEMPTS: u32 = 4;

impl Inner {
    /// Writes `data`. Returns whether some of it is only on flash and must be [recorded](super::journal::Committer::log_changes) before the reply.
    pub(super) async fn write(&self, offset: u64, data: IoSlice, may_cache: bool) -> Result<bool> {
        self.shared.grid.check_range(offset, data.len() as u64)?;
        let blocks = self.shared.grid.blocks_of(&(offset..offset + data.len() as u64));
        let (mode, _cached) = {
            let mut state = self.shared.state.lock();
            state.health.check_open()?;
            let (admit, stream_bytes) =
                state.admit(offset, data.len(), may_cache, |tuning| tuning.write_bypass_bytes);
            // The disk of an ordered volume gets flushed data only.
            let may_bypass = admit == Admit::Yes
                && state.epochs.is_none()
                && self.shared.grid.is_sequential(data.len(), stream_bytes);
            let is_limited = may_bypass && state.sets.tuning().mode.keeps_dirty();
            let cached = is_limited.then(|| self.cache_sequential(&mut state, blocks.clone()));
            let bypasses = matches!(cached, Some(None));
            (WriteMode { admit: if bypasses { Admit::Bypass } else { admit }, may_bypass }, cached)
        };
        let segments: Vec<Range<u64>> = self.shared.grid.segments(offset, data.len()).collect();
        let write = |segment: &Range<u64>| {
            let bytes = (segment.start - offset) as usize..(segment.end - offset) as usize;
            self.write_segment(segment.clone(), data.part(bytes), mode)
        };
        if let [segment] = &segments[..] {
            return write(segment).await;
        }
        let mut is_on_flash_alone = false;
        for segments in segments.chunks(CONCURRENT_SEGMENTS) {
            // All begin before any is awaited. Otherwise other requests would move the disk's head in between.
            let written: Result<Vec<bool>> = join_all(segments.iter().map(write)).await.into_iter().collect();
            is_on_flash_alone |= written?.contains(&true);
        }
        Ok(is_on_flash_alone)
    }

    async fn write_segment(&self, segment: Range<u64>, data: IoSlice, mode: WriteMode) -> Result<bool> {
        let segment = &segment;
        let mut attempts = 0;
        loop {
            attempts += 1;
            // Otherwise a write that waits for a commit would be overtaken, and the disk's head would move back for it.
            let turn = match mode.admit {
                Admit::Bypass => Some(self.bypass_turn.lock(0..1).await),
                _ => None,
            };
            let (work, targets) = self.plan_write(segment, &self.shared.grid.parts(segment), mode).await?;
            match self.write_targets(&work, &targets, segment, &data, turn).await {
                // A clean block with a damaged page was dropped, so the retry reads the kept sectors from the disk. Or the
                // flash failed: the retry succeeds if it can do without the flash.
                Err(error) if error.kind() == VolumeErrorKind::Flash && attempts < ATTEMPTS => {
                    undo_counts(&mut self.shared.state.lock(), &targets);
                }
                written => return written,
            }
        }
    }

    async fn write_targets(
        &self,
        work: &Arc<Work>,
        targets: &[Target],
        segment: &Range<u64>,
        data: &IoSlice,
        turn: Option<RangeGuard>,
    ) -> Result<bool> {
        let pages = self.prepare_pages(work, targets, segment, data).await?;
        let requests = self.shared.page_writes(&pages);
        self.shared.state.lock().sets.counters_mut().ssd_writes += pages.len() as u64;
        let to_flash: Vec<_> =
            requests.into_iter().map(|request| work.start(&*self.shared.flash, request)).collect();
        let is_on_flash_alone = targets.iter().any(|target| !target.to_disk);
        let needs_disk = targets.iter().any(|target| target.to_disk);
        let incoming = (is_on_flash_alone && !needs_disk).then(|| IncomingWrite::new(&self.committer));
        let mut to_disk = pin!(self.write_disk(work, targets, data));
        let completed = poll_immediate(to_disk.as_mut()).await;
        drop(turn);
        let disk_result = match completed {
            Some(result) => result,
            None => to_disk.await,
        };
        let mut flash_result = Ok(());
        for pending in to_flash {
            if let Err(error) = pending.await {
                flash_result = Err(self.shared.flash_write_failed(error));
            }
        }
        drop(incoming);
        if !is_on_flash_alone && flash_result.is_err() {
            // The disk has all data. Older copies on flash were removed before the disk was written.
            return disk_result.map(|()| false);
        }
        self.finish_write(work, &pages, disk_result, flash_result)?;
        Ok(is_on_flash_alone)
    }

    /// Prepares the pages to write on flash, after the commit that must precede a disk write.
    async fn prepare_pages(
        &self,
        work: &Arc<Work>,
        targets: &[Target],
        segment: &Range<u64>,
        data: &IoSlice,
    ) -> Result<Vec<(Written, IoSlice)>> {
        if targets.iter().any(|target| target.to_disk) {
            work.hold_range(self.disk_io.lock(self.shared.grid.blocks_of(segment)).await);
            let direct = targets.iter().filter(|target| target.to_disk);
            self.disk_io
                .commit_before_write(direct.map(|target| target.part.block..target.part.block + 1))
                .await?;
        }
        let mut pages = Vec::with_capacity(targets.len());
        for target in targets.iter().filter(|target| target.destination.is_some()) {
            pages.push(self.page_of_target(work, target, data).await?);
        }
        Ok(pages)
    }

    /// Locks the blocks and allocates a slot and a page for each block that is cached.
    async fn plan_write(
        &self,
        segment: &Range<u64>,
        parts: &[Part],
        mode: WriteMode,
    ) -> Result<(Arc<Work>, Vec<Target>)> {
        let mut queued: Option<QueuedWrite> = None;
        loop {
            let listener = self.shared.changed.listen();
            let range = self.blocks.lock(self.shared.grid.blocks_of(segment)).await;
            match self.decide(range, parts, mode, queued.as_ref().map(QueuedWrite::number))? {
                Decision::Ready(work, targets) => return Ok((work, targets)),
                Decision::Wait(WaitFor::Commit(change)) => self.committer.commit(change).await?,
                Decision::Wait(WaitFor::Order) => self.cleaner.destage_for_space().await?,
                Decision::Wait(WaitFor::Slots(demand)) => {
                    queued
                        .get_or_insert_with(|| QueuedWrite::enqueue(&self.cleaner, demand))
                        .wait(demand)
                        .await?;
                }
                Decision::Wait(WaitFor::Requests) => listener.await,
            }
        }
    }

    /// Allocates everything that a segment needs, or nothing.
    fn decide(
        &self,
        range: RangeGuard,
        parts: &[Part],
        mode: WriteMode,
        queued: Option<u64>,
    ) -> Result<Decision> {
        // Declared before the lock, because dropping it locks the state.
        let work;
        let mut state = self.shared.state.lock();
        state.health.check_open()?;
        let mut admit = mode.admit;
        let mut found = obstacle(&state, parts, admit);
        // A write-back cache waits for a commit instead, which takes less time than the disk.
        let lacks_space = || {
            let is_short = matches!(found, Some(WriteBlocker::Pages | WriteBlocker::Records));
            is_short && !state.sets.tuning().mode.keeps_dirty()
                || slot_shortage(&state, parts, admit, queued).is_some()
        };
        // A wait would reorder the requests, and the disk accepts them as fast as the cache could be cleaned.
        if mode.may_bypass && lacks_space() {
            admit = Admit::Bypass;
            found = obstacle(&state, parts, admit);
        }
        if let Some(obstacle) = found {
            return Ok(Decision::Wait(wait_for(&obstacle, &state)));
        }
        // Before any allocation: a waiting write repeats this check often.
        if let Some(demand) = slot_shortage(&state, parts, admit, queued) {
            return Ok(Decision::Wait(WaitFor::Slots(demand)));
        }
        work = Work::new(&self.shared, Some(range));
        let changing = changing_blocks(&state, parts, admit);
        work.reserve_changes(&mut state, changing);
        let counted = *state.sets.counters();
        let targets: Result<Vec<Target>> =
            parts.iter().map(|part| self.target(&mut state, &work, part, admit)).collect();
        if targets.is_err() {
            *state.sets.counters_mut() = counted;
        }
        let targets = targets?;
        // After the flash has failed, a write that had to wait for an epoch has been refused already.
        let has_order = state.epochs.is_some() && state.health.is_healthy();
        if has_order && targets.iter().any(|target| target.to_disk) {
            // The whole segment is repeated later.
            undo_counts(&mut state, &targets);
            return Ok(Decision::Wait(WaitFor::Order));
        }
        Ok(Decision::Ready(work, targets))
    }

    fn target(&self, state: &mut State, work: &Arc<Work>, part: &Part, admit: Admit) -> Result<Target> {
        let (mode, healthy) = (state.sets.tuning().mode, state.health.is_healthy());
        let cached = state.sets.find(part.block);
        if !healthy {
            return self.target_without_flash(state, part, cached);
        }
        let admit = if state.epochs.is_some() { Admit::Yes } else { admit };
        let was_dirty = cached.is_some_and(|slot| state.sets.word(slot).is_dirty());
        let write = state.sets.write(part.block, admit);
        let decided = Some(Decided { write, admit, was_dirty });
        let slot = match write {
            Write::Around(None) => return Ok(Target::disk_only(part, decided)),
            Write::Around(Some(slot)) => {
                // `obstacle` has checked that the block is not in use.
                state.forget(slot, part.block);
                return Ok(Target::disk_only(part, decided));
            }
            Write::Hit(slot) => slot,
            Write::Taken { slot, evicted } => {
                if let Some(evicted) = evicted {
                    state.vacate(slot, evicted);
                }
                slot
            }
        };
        work.pin(state, slot, part.block);
        let page = work.take_page(state, part.block).expect("`obstacle` saw that there are pages for all");
        let covers_all = part.sectors().contains(self.shared.grid.whole(part.block));
        let old = if covers_all { None } else { state.map.copy(slot) };
        if let Some(copy) = old {
            work.read_page(state, copy.page);
        }
        // A block that is dirty from an earlier mode stays dirty: the disk lacks its other sectors, including flushed ones.
        let to_disk = !mode.keeps_dirty() && !state.sets.word(slot).is_dirty();
        // From here on the disk may get the new bytes even if the write fails or is dropped, so a clean copy of the old bytes
        // must not remain.
        if to_disk {
            state.vacate(slot, part.block);
        }
        Ok(Target { part: part.clone(), destination: Some((slot, page)), old, to_disk, decided })
    }

    /// A write after the flash failed. It is refused if recovery could restore the block from flash.
    fn target_without_flash(&self, state: &mut State, part: &Part, cached: Option<Slot>) -> Result<Target> {
        if state.may_be_recovered(part.block) {
            let why = format!("block {} is on the flash, which failed: it cannot be written", part.block);
            return Err(VolumeError::new(VolumeErrorKind::Flash, why));
        }
        let is_held_up =
            state.epochs.as_ref().is_some_and(|epochs| epochs.len() > 0 || state.sets.dirty_blocks() > 0);
        if is_held_up {
            let why = "the flash failed, and its dirty blocks must reach the disk before new writes";
            return Err(VolumeError::new(VolumeErrorKind::Flash, why));
        }
        if let Some(slot) = cached {
            // `obstacle` has checked that the block is not in use.
            state.forget(slot, part.block);
        }
        state.sets.counters_mut().writes += 1;
        state.sets.counters_mut().uncached_writes += 1;
        Ok(Target::disk_only(part, None))
    }

    /// The page to write for a block: the new bytes over the sectors on flash, and over those of the disk if they cannot be left
    /// out.
    async fn page_of_target(
        &self,
        work: &Arc<Work>,
        target: &Target,
        data: &IoSlice,
    ) -> Result<(Written, IoSlice)> {
        let (slot, page) = target.destination.expect("the target has a destination");
        let part = &target.part;
        let block_bytes = self.shared.layout.block_bytes as usize;
        let written = |page_bytes: &[u8], partial| Written {
            slot,
            block: part.block,
            page,
            crc: crc32c(page_bytes),
            partial,
            dirty: !target.to_disk,
        };
        let new = data.part(part.place());
        if part.within == (0..block_bytes) {
            return Ok((written(&new, None), new));
        }
        let old = match target.old {
            Some(copy) => Some((copy, self.shared.read_copy(work, part, copy).await?)),
            None => None,
        };
        let has = old.as_ref().map_or(Sectors::default(), |(copy, _)| {
            copy.partial.unwrap_or(self.shared.grid.whole(part.block))
        });
        let mut sectors = has.with(part.sectors());
        let mut bytes = IoBuffer::zeroed(block_bytes);
        // A slot that already lacks sectors needs no further entry.
        let is_new = target.to_disk || old.as_ref().is_none_or(|(copy, _)| copy.partial.is_none());
        if !sectors.contains(self.shared.grid.whole(part.block))
            && !self.may_be_partial(work, sectors, is_new)
        {
            bytes = read_disk_block(&self.shared, part.block).await?;
            sectors = self.shared.grid.whole(part.block);
        }
        if let Some((copy, old)) = old {
            overlay(&mut bytes, &old, copy);
        }
        bytes[part.within.clone()].copy_from_slice(&new);
        let written = written(&bytes, self.shared.grid.unless_whole(part.block, sectors));
        Ok((written, bytes.into()))
    }

    /// Whether a block may be stored on flash with these sectors only: the tables have space for it, and the sectors are aligned to
    /// the disk's blocks.
    fn may_be_partial(&self, work: &Work, sectors: Sectors, is_new: bool) -> bool {
        let unit = self.shared.disk.geometry().block_bytes / super::SECTOR_BYTES;
        let aligned =
            sectors.runs().all(|run| run.start.is_multiple_of(unit) && run.end.is_multiple_of(unit));
        aligned && work.may_be_partial(&mut self.shared.state.lock(), is_new)
    }

    /// Writes the direct parts to the disk, adjacent ones together.
    async fn write_disk(&self, work: &Arc<Work>, targets: &[Target], data: &IoSlice) -> Result<()> {
        let direct: Vec<&Target> = targets.iter().filter(|target| target.to_disk).collect();
        if direct.is_empty() {
            return Ok(());
        }
        let follows = |one: &&Target, next: &&Target| one.part.block + 1 == next.part.block;
        let writes = runs(&direct, follows).into_iter().map(|run| {
            let (first, last) = (&direct[run.start].part, &direct[run.end - 1].part);
            let offset = first.block * u64::from(self.shared.layout.block_bytes) + first.within.start as u64;
            let bytes = data.part(first.at..last.place().end);
            self.disk_io.write(work, DiskWrite::Direct, offset, bytes)
        });
        join_all(writes).await.into_iter().collect()
    }

    fn finish_write(
        &self,
        work: &Arc<Work>,
        pages: &[(Written, IoSlice)],
        disk_result: Result<()>,
        flash_result: Result<()>,
    ) -> Result<()> {
        let mut state = self.shared.state.lock();
        if disk_result.is_ok() && flash_result.is_ok() {
            for (written, _) in pages {
                state.install(written);
            }
            work.keep_pages();
            let commit_soon = pages.first().is_some_and(|(written, _)| state.should_commit(written.block));
            drop(state);
            if commit_soon {
                self.committer.commit_in_background();
            }
            return Ok(());
        }
        disk_result.and(flash_result)
    }
}

impl Target {
    fn disk_only(part: &Part, decided: Option<Decided>) -> Self {
        Self { part: part.clone(), destination: None, old: None, to_disk: true, decided }
    }
}

/// Reverses the statistics and policy updates of a segment that is repeated.
fn undo_counts(state: &mut State, targets: &[Target]) {
    let sets = &mut state.sets;
    for Target { part, decided, .. } in targets {
        match *decided {
            Some(Decided { write, admit, was_dirty }) => {
                sets.undo_write(part.block, admit, write, was_dirty);
            }
            None => sets.undo_bypassing_write(),
        }
    }
}

/// Whether a segment can be written.
enum Decision {
    Ready(Arc<Work>, Vec<Target>),
    Wait(WaitFor),
}
