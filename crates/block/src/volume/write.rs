//! Writing: to free pages, to the disk, or to both, as the mode and the sets decide.

use std::ops::Range;
use std::sync::Arc;

use device::{IoBuffer, IoError, IoSlice, PlacementHandle, Request};
use futures_util::future::join_all;

use super::error::{Result, VolumeError, VolumeErrorKind};
use super::journal::notes::why_unhealthy;
use super::piece::{Part, runs};
use super::ranges::Held;
use super::read::{admit, crc32c, overlay};
use super::record::Sectors;
use super::room::{Lack, Place};
use super::state::{Copy, State, Written};
use super::trouble::DiskTask;
use super::work::Work;
use super::{Health, Shared};
use crate::sets::{Admit, Mode, Slot, Word, Write};

/// Where a block's new bytes go.
#[derive(Debug, Clone)]
struct Target {
    part: Part,
    /// The slot and the free page, if it is cached.
    home: Option<(Slot, u32)>,
    /// What flash has of it, if the new bytes are not all of it.
    old: Option<Copy>,
    /// Whether the disk gets the bytes too, or alone.
    to_disk: bool,
    /// What the sets decided, and counted; `None` if they were not asked.
    decided: Option<Decided>,
}

#[derive(Debug, Clone, Copy)]
struct Decided {
    write: Write,
    admit: Admit,
    was_dirty: bool,
}

/// Why the disk is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskWrite {
    /// A client wrote it: the next commit flushes the disk.
    Direct,
    /// Flash has it: whoever cleans flushes the disk, before anything says that it is clean.
    Cleaning,
}

/// How often a piece is begun, at most: of two blocks a part is kept, and each may have a bad copy on flash; and the flash fails
/// once.
const ATTEMPTS: u32 = 4;

impl Shared {
    /// Whether anything of it is on flash alone, so that it is to be [noted](Shared::note) before it is acknowledged.
    pub(super) async fn write(self: &Arc<Self>, offset: u64, data: IoSlice, may_cache: bool) -> Result<bool> {
        self.check_range(offset, data.len() as u64)?;
        let admit = {
            let mut state = self.state.lock();
            self.check_open(&state)?;
            admit(&mut state, offset, data.len(), may_cache, |tuning| tuning.write_bypass_bytes)
        };
        let mut is_on_flash_alone = false;
        for piece in self.pieces(offset, data.len()) {
            let bytes = (piece.start - offset) as usize..(piece.end - offset) as usize;
            is_on_flash_alone |= self.write_piece(&piece, data.part(bytes), admit).await?;
        }
        Ok(is_on_flash_alone)
    }

    async fn write_piece(self: &Arc<Self>, piece: &Range<u64>, data: IoSlice, admit: Admit) -> Result<bool> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let (work, targets) = self.plan_write(piece, &self.parts(piece), admit).await?;
            match self.write_targets(&work, &targets, piece, &data).await {
                // A bad copy of a clean block was dropped, and the disk has the part that is kept. Or the flash failed, and
                // is not needed: if it is, the next attempt says so.
                Err(error) if error.kind() == VolumeErrorKind::Flash && attempts < ATTEMPTS => {
                    take_back(&mut self.state.lock(), &targets);
                }
                written => return written,
            }
        }
    }

    async fn write_targets(
        self: &Arc<Self>,
        work: &Arc<Work>,
        targets: &[Target],
        piece: &Range<u64>,
        data: &IoSlice,
    ) -> Result<bool> {
        let pages = self.prepare_pages(work, targets, piece, data).await?;
        let requests = self.page_writes(&pages);
        self.state.lock().sets.counters_mut().ssd_writes += pages.len() as u64;
        let to_flash: Vec<_> =
            requests.into_iter().map(|request| work.start(&*self.flash, request)).collect();
        let disk_result = self.write_disk(work, targets, data).await;
        let mut flash_result = Ok(());
        for pending in to_flash {
            if let Err(error) = pending.await {
                flash_result = Err(self.flash_write_failed(error));
            }
        }
        let is_on_flash_alone = targets.iter().any(|target| !target.to_disk);
        if !is_on_flash_alone && flash_result.is_err() {
            // The disk has all of it, and flash nothing that counts: older copies left before the disk was written.
            return disk_result.map(|()| false);
        }
        self.finish_write(work, &pages, disk_result, flash_result)?;
        Ok(is_on_flash_alone)
    }

    /// What the flash is to hold, after whatever must come before the disk is written.
    async fn prepare_pages(
        self: &Arc<Self>,
        work: &Arc<Work>,
        targets: &[Target],
        piece: &Range<u64>,
        data: &IoSlice,
    ) -> Result<Vec<(Written, IoSlice)>> {
        if targets.iter().any(|target| target.to_disk) {
            work.hold_range(self.disk_writers.lock(self.blocks_of(piece)).await);
            let direct = targets.iter().filter(|target| target.to_disk);
            self.settle_before_disk(direct.map(|target| target.part.block..target.part.block + 1)).await?;
        }
        let mut pages = Vec::with_capacity(targets.len());
        for target in targets.iter().filter(|target| target.home.is_some()) {
            pages.push(self.page_of_target(work, target, data).await?);
        }
        Ok(pages)
    }

    /// Locks the blocks and takes a slot and a page for each that is to be cached.
    async fn plan_write(
        self: &Arc<Self>,
        piece: &Range<u64>,
        parts: &[Part],
        admit: Admit,
    ) -> Result<(Arc<Work>, Vec<Target>)> {
        let mut place: Option<Place> = None;
        loop {
            let listener = self.changed.listen();
            let range = self.blocks.lock(self.blocks_of(piece)).await;
            match self.decide(range, parts, admit, place.as_ref())? {
                Decision::Ready(work, targets) => return Ok((work, targets)),
                Decision::Wait(WaitFor::Commit(change)) => self.commit(change).await?,
                Decision::Wait(WaitFor::Order) => self.make_room_in_order().await?,
                Decision::Wait(WaitFor::Room(lack)) => {
                    place.get_or_insert_with(|| Place::at_end(self, lack)).wait(lack).await?;
                }
                Decision::Wait(WaitFor::Somebody) => listener.await,
            }
        }
    }

    /// Takes what a piece needs, all of it or nothing.
    fn decide(
        self: &Arc<Self>,
        range: Held,
        parts: &[Part],
        admit: Admit,
        place: Option<&Place>,
    ) -> Result<Decision> {
        // Dropped after the state is given back, which that takes.
        let work;
        let mut state = self.state.lock();
        self.check_open(&state)?;
        if let Some(obstacle) = obstacle(&state, parts) {
            return Ok(Decision::Wait(end_of(&obstacle, &state)));
        }
        // Before anything is taken: whoever waits for room asks again each time there is some.
        if let Some(lack) = lack_of_room(&state, parts, admit, place) {
            return Ok(Decision::Wait(WaitFor::Room(lack)));
        }
        work = Work::new(self, Some(range));
        work.promise_changes(&mut state, parts.len());
        let counted = *state.sets.counters();
        let targets: Result<Vec<Target>> =
            parts.iter().map(|part| self.target(&mut state, &work, part, admit)).collect();
        if targets.is_err() {
            *state.sets.counters_mut() = counted;
        }
        let targets = targets?;
        // Past a flash that failed nothing waits for its turn any more, or it was refused.
        let has_order = state.order.is_some() && state.health == Health::Healthy;
        if has_order && targets.iter().any(|target| target.to_disk) {
            // All of it is asked for again.
            take_back(&mut state, &targets);
            return Ok(Decision::Wait(WaitFor::Order));
        }
        Ok(Decision::Ready(work, targets))
    }

    fn target(&self, state: &mut State, work: &Arc<Work>, part: &Part, admit: Admit) -> Result<Target> {
        let (mode, healthy) = (state.sets.tuning().mode, state.health == Health::Healthy);
        let cached = state.sets.find(part.block);
        if !healthy {
            return self.target_without_flash(state, part, cached);
        }
        let admit = if state.order.is_some() { Admit::Yes } else { admit };
        let was_dirty = cached.is_some_and(|slot| state.sets.word(slot).is_dirty());
        let write = state.sets.write(part.block, admit);
        let decided = Some(Decided { write, admit, was_dirty });
        let slot = match write {
            Write::Around(None) => return Ok(Target::disk_only(part, decided)),
            Write::Around(Some(slot)) => {
                // Nobody uses it: `obstacle` saw to that.
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
        let covers_all = part.sectors().contains(self.whole(part.block));
        let old = if covers_all { None } else { state.copy(slot) };
        if let Some(copy) = old {
            work.read_page(state, copy.page);
        }
        // What is dirty since another mode stays so: the disk lacks the rest of the block too, and what was flushed of it.
        let to_disk = !mode.keeps_dirty() && !state.sets.word(slot).is_dirty();
        // From here on the disk may have the new bytes whether or not this write is ever told to have ended, and a clean
        // copy of the old ones would contradict it.
        if to_disk {
            state.vacate(slot, part.block);
        }
        Ok(Target { part: part.clone(), home: Some((slot, page)), old, to_disk, decided })
    }

    /// What flash holds cannot be replaced there any more, and what it says must not become stale: unless nobody will believe it.
    fn target_without_flash(&self, state: &mut State, part: &Part, cached: Option<Slot>) -> Result<Target> {
        if state.may_come_back(part.block) {
            let why = format!("block {} is on the flash, which failed: it cannot be written", part.block);
            return Err(VolumeError::new(VolumeErrorKind::Flash, why));
        }
        let is_held_up =
            state.order.as_ref().is_some_and(|order| order.len() > 0 || state.sets.dirty_blocks() > 0);
        if is_held_up {
            let why = "the flash failed, and what it holds must reach the disk before anything written now";
            return Err(VolumeError::new(VolumeErrorKind::Flash, why));
        }
        if let Some(slot) = cached {
            // Nobody uses it: `obstacle` saw to that.
            state.forget(slot, part.block);
        }
        state.sets.counters_mut().writes += 1;
        state.sets.counters_mut().uncached_writes += 1;
        Ok(Target::disk_only(part, None))
    }

    /// Blocks that flash may bring back after a crash are not changed on the disk before it cannot any more (rule 4). In the
    /// modes that write to the disk directly what is clean is not brought back; what is dirty since another mode is.
    pub(super) async fn settle_before_disk(
        self: &Arc<Self>,
        blocks: impl IntoIterator<Item = Range<u64>> + Clone,
    ) -> Result<()> {
        let Some(change) = brings_back(&self.state.lock(), blocks.clone()) else { return Ok(()) };
        self.commit(change).await?;
        // A flash that has failed meanwhile was not told.
        let state = self.state.lock();
        match brings_back(&state, blocks) {
            Some(_) if state.health == Health::FlashFailed => Err(why_unhealthy(&state)),
            _ => Ok(()),
        }
    }

    /// The page that a block becomes: its new bytes over what flash has of it, and over the disk's where the rest cannot be
    /// left out.
    async fn page_of_target(
        &self,
        work: &Arc<Work>,
        target: &Target,
        data: &IoSlice,
    ) -> Result<(Written, IoSlice)> {
        let (slot, page) = target.home.expect("asked for targets that have one");
        let part = &target.part;
        let block_bytes = self.layout.block_bytes as usize;
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
            Some(copy) => Some((copy, self.read_copy(work, part, copy).await?)),
            None => None,
        };
        let has = old
            .as_ref()
            .map_or(Sectors::default(), |(copy, _)| copy.partial.unwrap_or(self.whole(part.block)));
        let mut sectors = has.with(part.sectors());
        let mut bytes = IoBuffer::zeroed(block_bytes);
        // In a slot that lacks sectors already it is not one more.
        let is_new = target.to_disk || old.as_ref().is_none_or(|(copy, _)| copy.partial.is_none());
        if !sectors.contains(self.whole(part.block)) && !self.may_be_partial(work, sectors, is_new) {
            bytes = self.read_disk_block(part.block).await?;
            sectors = self.whole(part.block);
        }
        if let Some((copy, old)) = old {
            overlay(&mut bytes, &old, copy);
        }
        bytes[part.within.clone()].copy_from_slice(&new);
        let written = written(&bytes, self.unless_whole(part.block, sectors));
        Ok((written, bytes.into()))
    }

    /// Whether a block may be on flash with these sectors alone: the tables have room for it, and the disk can be written in
    /// just these.
    fn may_be_partial(&self, work: &Work, sectors: Sectors, is_new: bool) -> bool {
        let unit = self.disk.geometry().block_bytes / super::SECTOR_BYTES;
        let aligned =
            sectors.runs().all(|run| run.start.is_multiple_of(unit) && run.end.is_multiple_of(unit));
        aligned && work.may_be_partial(&mut self.state.lock(), is_new)
    }

    /// Writes what goes to the disk, neighbours together.
    async fn write_disk(
        self: &Arc<Self>,
        work: &Arc<Work>,
        targets: &[Target],
        data: &IoSlice,
    ) -> Result<()> {
        let direct: Vec<&Target> = targets.iter().filter(|target| target.to_disk).collect();
        if direct.is_empty() {
            return Ok(());
        }
        let follows = |one: &&Target, next: &&Target| one.part.block + 1 == next.part.block;
        let writes = runs(&direct, follows).into_iter().map(|run| {
            let (first, last) = (&direct[run.start].part, &direct[run.end - 1].part);
            let offset = first.block * u64::from(self.layout.block_bytes) + first.within.start as u64;
            let bytes = data.part(first.at..last.place().end);
            self.write_disk_range(work, DiskWrite::Direct, offset, bytes)
        });
        join_all(writes).await.into_iter().collect()
    }

    /// Writes bytes to the disk, whose blocks may be larger than our sectors. The caller holds the range.
    pub(super) async fn write_disk_range(
        self: &Arc<Self>,
        work: &Arc<Work>,
        why: DiskWrite,
        offset: u64,
        bytes: IoSlice,
    ) -> Result<()> {
        let most = u64::from(self.disk.geometry().max_io_bytes);
        let (from, data) = self.in_whole_units(work, offset, bytes).await?;
        self.before_disk_changes().await;
        let mut at = 0;
        while at < data.len() {
            let end = data.len().min(at + most as usize);
            let request = Request::Write {
                offset: from + at as u64,
                data: data.part(at..end),
                placement: PlacementHandle::DEFAULT,
            };
            self.state.lock().sets.counters_mut().disk_writes += 1;
            let written = match why {
                DiskWrite::Direct => work.start_on_disk(request),
                DiskWrite::Cleaning => work.start(&*self.disk, request),
            };
            written.await.map_err(|error| self.disk_failed(DiskTask::Write, error))?;
            at = end;
        }
        Ok(())
    }

    /// The same bytes in whole blocks of the disk, with what it has around them, and where these begin.
    async fn in_whole_units(&self, work: &Arc<Work>, offset: u64, bytes: IoSlice) -> Result<(u64, IoSlice)> {
        let unit = u64::from(self.disk.geometry().block_bytes);
        let end = offset + bytes.len() as u64;
        let (from, to) = (offset / unit * unit, end.next_multiple_of(unit));
        if (from, to) == (offset, end) {
            let is_aligned = bytes.as_ptr().addr().is_multiple_of(unit as usize);
            return Ok((from, if is_aligned { bytes } else { IoBuffer::copy_of(&bytes).into() }));
        }
        let mut whole = IoBuffer::zeroed((to - from) as usize);
        let mut edges = vec![from, to - unit];
        edges.dedup();
        edges.retain(|&edge| edge < offset || edge + unit > end);
        for edge in edges {
            self.state.lock().sets.counters_mut().disk_reads += 1;
            let buffer = IoBuffer::zeroed(unit as usize);
            let read = work.start(&*self.disk, Request::Read { offset: edge, buffer }).await;
            let read = read.map_err(|error| self.disk_failed(DiskTask::Read, error))?;
            let around = read.expect("a read gives its buffer back");
            whole[(edge - from) as usize..][..unit as usize].copy_from_slice(&around);
        }
        whole[(offset - from) as usize..][..bytes.len()].copy_from_slice(&bytes);
        Ok((from, whole.into()))
    }

    fn finish_write(
        self: &Arc<Self>,
        work: &Arc<Work>,
        pages: &[(Written, IoSlice)],
        disk_result: Result<()>,
        flash_result: Result<()>,
    ) -> Result<()> {
        let mut state = self.state.lock();
        if disk_result.is_ok() && flash_result.is_ok() {
            for (written, _) in pages {
                state.install(written);
            }
            work.keep_pages();
            let commit_soon = pages.first().is_some_and(|(written, _)| state.should_commit(written.block));
            drop(state);
            if commit_soon {
                self.commit_in_background();
            }
            return Ok(());
        }
        disk_result.and(flash_result)
    }

    fn flash_write_failed(&self, error: IoError) -> VolumeError {
        let error = VolumeError::flash("writing the flash", error);
        self.state.lock().fail_flash(error.clone(), self.timer.monotonic_ns());
        error
    }
}

impl Target {
    fn disk_only(part: &Part, decided: Option<Decided>) -> Self {
        Self { part: part.clone(), home: None, old: None, to_disk: true, decided }
    }
}

/// The targets are going to be asked for once more, and were written once.
fn take_back(state: &mut State, targets: &[Target]) {
    let sets = &mut state.sets;
    for Target { part, decided, .. } in targets {
        match *decided {
            Some(Decided { write, admit, was_dirty }) => {
                sets.take_back_write(part.block, admit, write, was_dirty);
            }
            None => sets.take_back_write_past_all(),
        }
    }
}

/// The change to be committed before flash says none of `blocks` any more, if it may say so of any.
fn brings_back(state: &State, blocks: impl IntoIterator<Item = Range<u64>>) -> Option<u64> {
    let changes = &state.changes;
    let comes_back = |blocks| changes.may_come_back(blocks, !state.brings_back_clean);
    blocks.into_iter().any(comes_back).then(|| changes.number())
}

/// What becomes of a piece.
enum Decision {
    Ready(Arc<Work>, Vec<Target>),
    Wait(WaitFor),
}

/// What a piece that cannot be written now waits for.
enum WaitFor {
    /// A commit frees pages or room for records.
    Commit(u64),
    /// An epoch must go to the disk first.
    Order,
    /// Something must be cleaned there first.
    Room(Lack),
    /// Others end what they are at.
    Somebody,
}

/// Why a piece cannot be written now.
enum Obstacle {
    /// Not enough free pages.
    Pages,
    /// So much waits for a commit, or is about to, that more might not fit into the journal.
    Records,
    /// A block that must leave the cache is on its way to the disk.
    Cleaning,
}

/// What ends it.
fn end_of(obstacle: &Obstacle, state: &State) -> WaitFor {
    match obstacle {
        Obstacle::Pages if state.changes.leaving() > 0 => WaitFor::Commit(state.changes.number()),
        Obstacle::Records => state.makes_room().map_or(WaitFor::Somebody, WaitFor::Commit),
        Obstacle::Pages if state.order.as_ref().is_some_and(|order| order.len() > 0) => WaitFor::Order,
        Obstacle::Pages | Obstacle::Cleaning => WaitFor::Somebody,
    }
}

/// Where blocks of a piece find no room though something could be cleaned for them, or only what others wait for who came
/// earlier. The ordered way makes room otherwise.
fn lack_of_room(state: &State, parts: &[Part], admit: Admit, place: Option<&Place>) -> Option<Lack> {
    let comes_in = admit == Admit::Yes && state.sets.tuning().mode.keeps_dirty();
    let may_wait = state.health == Health::Healthy
        && state.order.is_none()
        && !place.is_some_and(|place| place.is_in_vain(state));
    if !comes_in || !may_wait {
        return None;
    }
    let slot_for = |part: &Part| {
        let word = state.sets.find(part.block).map(|slot| state.sets.word(slot));
        // A clean one may be taken for another block of the piece before its turn comes.
        word.is_none_or(Word::may_leave).then(|| (state.sets.set_of(part.block), word.is_none()))
    };
    let mut slots: Vec<(u32, bool)> = parts.iter().filter_map(slot_for).collect();
    slots.sort_unstable();
    let lack = |of_set: &[(u32, bool)]| {
        let lack = Lack { set: of_set[0].0, blocks: of_set.len() as u32 };
        let brings_any = of_set.iter().any(|&(_, is_new)| is_new);
        let has_room =
            || !state.room.is_before(place, lack.set) && state.sets.has_room_for(lack.set, lack.blocks);
        (brings_any && !has_room()).then_some(lack)
    };
    slots.chunk_by(|one, other| one.0 == other.0).find_map(lack)
}

fn obstacle(state: &State, parts: &[Part]) -> Option<Obstacle> {
    let word = |part: &Part| state.sets.find(part.block).map(|slot| state.sets.word(slot));
    let in_use = |word: Word| word.is_cleaning() || word.pins() > 0;
    if state.health != Health::Healthy {
        // What may be written nevertheless leaves the cache.
        let is_to_leave = |part: &&Part| !state.may_come_back(part.block);
        let waits = parts.iter().filter(is_to_leave).any(|part| word(part).is_some_and(in_use));
        return waits.then_some(Obstacle::Cleaning);
    }
    if !state.has_room_for_changes(parts.len()) {
        return Some(Obstacle::Records);
    }
    let goes_around = |part: &Part| {
        state.sets.tuning().mode == Mode::WriteAround && !word(part).is_some_and(Word::is_dirty)
    };
    if parts.iter().any(|part| goes_around(part) && word(part).is_some_and(in_use)) {
        return Some(Obstacle::Cleaning);
    }
    // Blocks of a piece fall into few groups: count by sorting.
    let to_flash = parts.iter().filter(|part| !goes_around(part));
    let mut groups: Vec<u32> = to_flash.map(|part| state.group_of(part.block)).collect();
    groups.sort_unstable();
    let lacks = |group: &[u32]| (state.pages.free_in(group[0]) as usize) < group.len();
    groups.chunk_by(|one, other| one == other).any(lacks).then_some(Obstacle::Pages)
}
