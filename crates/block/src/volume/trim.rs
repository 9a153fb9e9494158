//! Forgetting ranges, making zeros of them, and telling what is known of them.

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use device::{ErrorKind, IoBuffer, IoSlice, Request};

use super::error::Result;
use super::state::State;
use super::trouble::DiskTask;
use super::work::Work;
use super::{Shared, Volume};
use crate::sets::{Slot, Word};

/// Zeros are written in steps of this size.
const ZEROS_BYTES: usize = 256 << 10;

/// The zeros of all requests: however many are under way, they take no memory of their own.
static ZEROS: LazyLock<IoSlice> = LazyLock::new(|| IoBuffer::zeroed(ZEROS_BYTES).into());

/// Blocks or slots looked at while everybody else waits.
const LOOKS_AT_ONCE: u64 = 4096;

#[cfg(test)]
thread_local! {
    /// Blocks and slots that this thread has looked at.
    pub(super) static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Blocks of which flash has the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockExtent {
    /// Bytes.
    pub len: u64,
    /// Flash has them, all or some.
    pub cached: bool,
    /// What flash has is newer than the disk's.
    pub dirty: bool,
}

impl Volume {
    /// Forgets a range: it reads as zeros or as anything it held before. Whole blocks leave the cache, dirty or not, and
    /// the disk is told, if it can be. An ordered volume does neither: its disk may need what is discarded.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn trim(&self, offset: u64, len: u64) -> Result<()> {
        self.shared.trim(offset, len).await
    }

    /// Makes zeros of a range.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn write_zeroes(&self, offset: u64, len: u64, durable: bool) -> Result<()> {
        self.shared.check_range(offset, len)?;
        let (mut at, mut is_on_flash_alone) = (offset, false);
        while at < offset + len {
            let bytes = (offset + len - at).min(ZEROS_BYTES as u64);
            is_on_flash_alone |= self.shared.write(at, ZEROS.part(0..bytes as usize), self.may_cache).await?;
            at += bytes;
        }
        self.acknowledge(is_on_flash_alone, durable).await
    }

    /// Whether [`unmap`](Self::unmap) gives space back; otherwise it writes zeros, as [`write_zeroes`](Self::write_zeroes) does.
    #[must_use]
    pub fn unmaps(&self) -> bool {
        self.shared.disk.trims_to_zeros() && !self.shared.is_ordered()
    }

    /// Makes zeros of a range, and gives its space on the disk back where that leaves zeros. What is dirty is overwritten by zeros in
    /// the cache: were it dropped, a power cut could bring back what the disk had before it.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn unmap(&self, offset: u64, len: u64, durable: bool) -> Result<()> {
        self.shared.check_range(offset, len)?;
        if !self.unmaps() || len == 0 {
            return self.write_zeroes(offset, len, durable).await;
        }
        let range = offset..offset + len;
        let block = u64::from(self.shared.layout.block_bytes);
        let mut at = range.start;
        for unmapped in self.shared.unmap(&range).await? {
            let (start, end) = (unmapped.start * block, (unmapped.end * block).min(range.end));
            self.write_zeroes(at, start - at, false).await?;
            at = end;
        }
        self.write_zeroes(at, range.end - at, durable).await
    }

    /// The parts of `len` bytes from `offset` on that read as zeros because neither flash nor the disk has anything there, as far as
    /// the disk tells; in order.
    ///
    /// # Errors
    /// [`Invalid`](super::VolumeErrorKind::Invalid) for a range that is not there.
    pub fn holes(&self, offset: u64, len: u64) -> Result<Vec<Range<u64>>> {
        self.shared.check_range(offset, len)?;
        Ok(self.shared.holes(&(offset..offset + len)))
    }

    /// What flash has of `len` bytes from `offset` on: at least one extent, at most `most`, in order and without gaps.
    ///
    /// # Errors
    /// [`Invalid`](super::VolumeErrorKind::Invalid) for a range that is not there.
    pub fn extents(&self, offset: u64, len: u64, most: usize) -> Result<Vec<BlockExtent>> {
        self.shared.check_range(offset, len)?;
        Ok(self.shared.extents(offset..offset + len, most.max(1)))
    }
}

impl Shared {
    async fn trim(self: &Arc<Self>, offset: u64, len: u64) -> Result<()> {
        self.check_range(offset, len)?;
        // The disk may be at an earlier flush, and need what is discarded.
        if len == 0 || self.is_ordered() {
            return self.check_open(&self.state.lock());
        }
        let range = offset..offset + len;
        let work = Work::new(self, Some(self.blocks.lock(self.blocks_of(&range)).await));
        self.forget_blocks(&work, &[self.whole_blocks(&range)]).await.map(drop)
    }

    /// Gives back what blocks that lie in `range` whole take, but for those that are dirty; the blocks that read as zeros by it.
    async fn unmap(self: &Arc<Self>, range: &Range<u64>) -> Result<Vec<Range<u64>>> {
        let work = Work::new(self, Some(self.blocks.lock(self.blocks_of(range)).await));
        let whole = self.whole_blocks(range);
        let dirty =
            self.looks(&whole).flat_map(|look| self.held_in(&self.state.lock(), &look, Word::is_dirty));
        let dirty = dirty.collect();
        self.forget_blocks(&work, &without(&whole, dirty)).await
    }

    /// Takes runs of blocks, in order, out of the cache and then off the disk. They are locked. Those of which the disk took notice.
    async fn forget_blocks(
        self: &Arc<Self>,
        work: &Arc<Work>,
        runs: &[Range<u64>],
    ) -> Result<Vec<Range<u64>>> {
        for run in runs {
            self.forget_cached(run).await?;
        }
        let (Some(first), Some(last)) = (runs.first(), runs.last()) else { return Ok(Vec::new()) };
        // Only now: who is writing blocks to the disk needs this to end, and they cannot be dropped before.
        work.hold_range(self.disk_writers.lock(first.start..last.end).await);
        let mut forgotten = Vec::new();
        for run in runs.iter().filter(|run| !run.is_empty()) {
            self.settle_before_disk([run.clone()]).await?;
            if self.trim_disk(work, run).await? {
                forgotten.push(run.clone());
            }
        }
        Ok(forgotten)
    }

    /// Takes blocks, which are locked, out of the cache. What is in use at first is looked for again alone: nobody brings any in
    /// meanwhile.
    async fn forget_cached(self: &Arc<Self>, blocks: &Range<u64>) -> Result<()> {
        let mut in_use = Vec::new();
        for look in self.looks(blocks) {
            let held = self.held_in(&self.state.lock(), &look, |_| true);
            in_use.extend(self.drop_blocks(held).await?);
        }
        loop {
            let listener = self.changed.listen();
            in_use = self.drop_blocks(in_use).await?;
            if in_use.is_empty() {
                return self.check_open(&self.state.lock());
            }
            listener.await;
        }
    }

    /// Blocks that lie in `range` with all that the disk has of them.
    fn whole_blocks(&self, range: &Range<u64>) -> Range<u64> {
        let block = u64::from(self.layout.block_bytes);
        let first = range.start.div_ceil(block);
        let end = if range.end == self.disk_bytes { range.end.div_ceil(block) } else { range.end / block };
        first..end.max(first)
    }

    /// Drops those of `blocks` that flash has from the cache; which are in use, on their way to the disk, say.
    async fn drop_blocks(self: &Arc<Self>, blocks: Vec<u64>) -> Result<Vec<u64>> {
        let (mut in_use, mut left) = (Vec::new(), &blocks[..]);
        while !left.is_empty() {
            let listener = self.changed.listen();
            let change = {
                let mut state = self.state.lock();
                self.check_open(&state)?;
                left = drop_as_journal_allows(&mut state, left, &mut in_use);
                state.makes_room()
            };
            match change {
                _ if left.is_empty() => {}
                Some(change) => self.commit(change).await?,
                // Requests under way may need what room the journal has.
                None => listener.await,
            }
        }
        Ok(in_use)
    }

    /// Where to look for those of `blocks` that flash has: at each of them, or at each slot where those are fewer. In parts, between
    /// which others go on.
    fn looks(&self, blocks: &Range<u64>) -> impl Iterator<Item = Look> + use<> {
        let slots = u64::from(self.layout.slots());
        let (by_slot, blocks) = (blocks.end - blocks.start > slots, blocks.clone());
        let (start, end) = if by_slot { (0, slots) } else { (blocks.start, blocks.end) };
        (start..end).step_by(LOOKS_AT_ONCE as usize).map(move |from| {
            let part = from..(from + LOOKS_AT_ONCE).min(end);
            if by_slot { Look::AtSlots(part, blocks.clone()) } else { Look::AtBlocks(part) }
        })
    }

    /// The blocks that are found so and whose word `is_wanted`, in no order.
    fn held_in(&self, state: &State, look: &Look, is_wanted: impl Fn(Word) -> bool) -> Vec<u64> {
        match look {
            Look::AtBlocks(blocks) => {
                let is_held =
                    |block| state.sets.find(block).is_some_and(|slot| is_wanted(state.sets.word(slot)));
                looked_at(blocks).filter(|&block| is_held(block)).collect()
            }
            Look::AtSlots(slots, blocks) => {
                let words = looked_at(slots).map(|slot| state.sets.word(Slot(slot as u32)));
                let found = words.filter(|&word| is_wanted(word)).filter_map(Word::block);
                found.filter(|block| blocks.contains(block)).collect()
            }
        }
    }

    /// Whether the disk did it: trimming is advice.
    async fn trim_disk(self: &Arc<Self>, work: &Arc<Work>, blocks: &Range<u64>) -> Result<bool> {
        let (unit, block) = (u64::from(self.disk.geometry().block_bytes), u64::from(self.layout.block_bytes));
        let (from, to) = (blocks.start * block, (blocks.end * block).min(self.disk_bytes) / unit * unit);
        if from.next_multiple_of(unit) >= to {
            return Ok(false);
        }
        let from = from.next_multiple_of(unit);
        self.before_disk_changes().await;
        let trimmed = work.start_on_disk(Request::Trim { offset: from, len: to - from }).await;
        match trimmed {
            Ok(_) => Ok(true),
            // What the disk keeps is what it held before.
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(false),
            Err(error) => Err(self.disk_failed(DiskTask::Trim, error)),
        }
    }

    /// Flash is looked at before the disk: what leaves flash meanwhile is on the disk by then. A block that somebody is at may be on
    /// its way from the one to the other.
    fn holes(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let blocks = self.blocks_of(range);
        let held = {
            let state = self.state.lock();
            let mut held: Vec<u64> =
                self.looks(&blocks).flat_map(|look| self.held_in(&state, &look, |_| true)).collect();
            let claimed = self.blocks.claimed().into_iter();
            let claimed = claimed.map(|claim| claim.start.max(blocks.start)..claim.end.min(blocks.end));
            held.extend(claimed.flatten());
            held
        };
        let block_bytes = u64::from(self.layout.block_bytes);
        let mut holes = Vec::new();
        for on_disk in without(&blocks, held) {
            let start = (on_disk.start * block_bytes).max(range.start);
            let end = (on_disk.end * block_bytes).min(range.end);
            let mut at = start;
            while let Some(hole) = self.disk.hole_in(at..end) {
                at = hole.end;
                holes.push(hole);
            }
        }
        holes
    }

    fn extents(&self, range: Range<u64>, most: usize) -> Vec<BlockExtent> {
        let state = self.state.lock();
        let mut extents: Vec<BlockExtent> = Vec::new();
        for part in self.blocks_of(&range).map(|block| self.part_of(&range, block)) {
            let slot = state.sets.find(part.block).filter(|&slot| state.copy(slot).is_some());
            let dirty = slot.is_some_and(|slot| state.sets.word(slot).is_dirty());
            let (len, cached) = (part.within.len() as u64, slot.is_some());
            let full = extents.len() == most;
            match extents.last_mut() {
                Some(last) if (last.cached, last.dirty) == (cached, dirty) => last.len += len,
                _ if full => break,
                _ => extents.push(BlockExtent { len, cached, dirty }),
            }
        }
        extents
    }
}

/// A part of a search for blocks that flash has.
enum Look {
    AtBlocks(Range<u64>),
    /// Slots, and the blocks that are looked for there.
    AtSlots(Range<u64>, Range<u64>),
}

fn looked_at(numbers: &Range<u64>) -> Range<u64> {
    #[cfg(test)]
    count_looks(numbers.end - numbers.start);
    numbers.clone()
}

#[cfg(test)]
pub(super) fn count_looks(looks: u64) {
    LOOKS.set(LOOKS.get() + looks);
}

/// Drops blocks until the journal has no room for more changes; those are left. Which are in use is added to `in_use`.
fn drop_as_journal_allows<'a>(state: &mut State, blocks: &'a [u64], in_use: &mut Vec<u64>) -> &'a [u64] {
    for (number, &block) in blocks.iter().enumerate() {
        let Some(slot) = state.sets.find(block) else { continue };
        if !state.has_room_for_changes(1) {
            return &blocks[number..];
        }
        if state.forget(slot, block) {
            state.sets.counters_mut().trim_blocks += 1;
        } else {
            in_use.push(block);
        }
    }
    &[]
}

/// The runs of `blocks`, in order, that are left without those that are `taken`, which are in no order.
fn without(blocks: &Range<u64>, mut taken: Vec<u64>) -> Vec<Range<u64>> {
    taken.sort_unstable();
    let mut runs = Vec::new();
    let mut at = blocks.start;
    for block in taken.into_iter().chain([blocks.end]) {
        if at < block {
            runs.push(at..block);
        }
        at = at.max(block + 1);
    }
    runs
}
