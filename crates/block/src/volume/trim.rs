//! Trimming, zeroing, unmapping, and queries for holes and cached extents.

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use device::{Device, IoBuffer, IoSlice};

use super::Volume;
use super::error::Result;
use super::state::State;
use super::work::Work;
use crate::sets::{Slot, Word};

/// Zeros are written in steps of this size.
const ZEROS_BYTES: usize = 256 << 10;

/// A shared buffer of zeros, so that concurrent requests need no memory of their own.
static ZEROS: LazyLock<IoSlice> = LazyLock::new(|| IoBuffer::zeroed(ZEROS_BYTES).into());

/// Blocks or slots examined per hold of the state's lock.
const EXAMINED_PER_STEP: u64 = 4096;

/// A range of blocks with the same cache state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockExtent {
    /// Length in bytes.
    pub len: u64,
    /// Whether flash has the blocks, in whole or in part.
    pub cached: bool,
    /// Whether flash has newer data than the disk.
    pub dirty: bool,
}

impl Volume {
    /// Discards a range: afterwards it reads as zeros or as any earlier contents. Whole blocks leave the cache, dirty or clean, and
    /// the disk is trimmed if it supports that. An ordered volume does neither, because its disk may need the discarded data.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn trim(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.shared.grid.check_range(offset, len)?;
        // The disk may still need the discarded data for an earlier epoch.
        if len == 0 || self.inner.shared.identity.is_ordered() {
            return self.state().health.check_open();
        }
        let range = offset..offset + len;
        let work = self.inner.lock(&range).await;
        self.discard_blocks(&work, &[self.inner.shared.grid.whole_blocks(&range)]).await.map(drop)
    }

    /// Writes zeros to a range.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn write_zeroes(&self, offset: u64, len: u64, durable: bool) -> Result<()> {
        self.inner.shared.grid.check_range(offset, len)?;
        let (mut at, mut is_on_flash_alone) = (offset, false);
        while at < offset + len {
            let bytes = (offset + len - at).min(ZEROS_BYTES as u64);
            is_on_flash_alone |= self.inner.write(at, ZEROS.part(0..bytes as usize), self.may_cache).await?;
            at += bytes;
        }
        self.acknowledge(is_on_flash_alone, durable).await
    }

    /// Whether [`unmap`](Self::unmap) frees space on the disk. Otherwise it writes zeros, as [`write_zeroes`](Self::write_zeroes) does.
    #[must_use]
    pub fn unmaps(&self) -> bool {
        self.inner.shared.disk.trims_to_zeros() && !self.inner.shared.identity.is_ordered()
    }

    /// Zeroes a range and frees its space on the disk if trimmed blocks read as zeros there. Dirty blocks are overwritten with zeros in
    /// the cache instead: if they were dropped, a power cut could expose older data of the disk.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn unmap(&self, offset: u64, len: u64, durable: bool) -> Result<()> {
        self.inner.shared.grid.check_range(offset, len)?;
        if !self.unmaps() || len == 0 {
            return self.write_zeroes(offset, len, durable).await;
        }
        let range = offset..offset + len;
        let block = u64::from(self.inner.shared.layout.block_bytes);
        let mut at = range.start;
        for unmapped in self.unmap_clean(&range).await? {
            let (start, end) = (unmapped.start * block, (unmapped.end * block).min(range.end));
            self.write_zeroes(at, start - at, false).await?;
            at = end;
        }
        self.write_zeroes(at, range.end - at, durable).await
    }

    /// The parts of the `len` bytes at `offset` that are in neither flash nor disk and read as zeros, in order. Depends on what the
    /// disk reports.
    ///
    /// # Errors
    /// [`Invalid`](super::VolumeErrorKind::Invalid) for a range outside the volume.
    pub fn holes(&self, offset: u64, len: u64) -> Result<Vec<Range<u64>>> {
        self.inner.shared.grid.check_range(offset, len)?;
        // Flash is examined before the disk: a block that leaves flash meanwhile is on the disk by then. Locked blocks count as data,
        // because they may be moving from one to the other.
        let range = offset..offset + len;
        let blocks = self.inner.shared.grid.blocks_of(&range);
        let held = {
            let state = self.state();
            let mut held: Vec<u64> =
                self.search_steps(&blocks).flat_map(|step| self.cached_in(&state, &step, |_| true)).collect();
            let claimed = self.inner.blocks.claimed().into_iter();
            let claimed = claimed.map(|claim| claim.start.max(blocks.start)..claim.end.min(blocks.end));
            held.extend(claimed.flatten());
            held
        };
        let block_bytes = u64::from(self.inner.shared.layout.block_bytes);
        let mut holes = Vec::new();
        for on_disk in without(&blocks, held) {
            let start = (on_disk.start * block_bytes).max(range.start);
            let end = (on_disk.end * block_bytes).min(range.end);
            let mut at = start;
            while let Some(hole) = self.inner.shared.disk.hole_in(at..end) {
                at = hole.end;
                holes.push(hole);
            }
        }
        Ok(holes)
    }

    /// The cache state of the `len` bytes at `offset`: from one to `most` extents, in order and without gaps.
    ///
    /// # Errors
    /// [`Invalid`](super::VolumeErrorKind::Invalid) for a range outside the volume.
    pub fn extents(&self, offset: u64, len: u64, most: usize) -> Result<Vec<BlockExtent>> {
        self.inner.shared.grid.check_range(offset, len)?;
        let (range, most) = (offset..offset + len, most.max(1));
        let state = self.state();
        let mut extents: Vec<BlockExtent> = Vec::new();
        for part in self
            .inner
            .shared
            .grid
            .blocks_of(&range)
            .map(|block| self.inner.shared.grid.part_of(&range, block))
        {
            let slot = state.sets.find(part.block).filter(|&slot| state.map.copy(slot).is_some());
            let dirty = slot.is_some_and(|slot| state.sets.word(slot).is_dirty());
            let (len, cached) = (part.within.len() as u64, slot.is_some());
            let full = extents.len() == most;
            match extents.last_mut() {
                Some(last) if (last.cached, last.dirty) == (cached, dirty) => last.len += len,
                _ if full => break,
                _ => extents.push(BlockExtent { len, cached, dirty }),
            }
        }
        Ok(extents)
    }

    /// Trims the whole clean blocks of `range`. Returns those that now read as zeros.
    async fn unmap_clean(&self, range: &Range<u64>) -> Result<Vec<Range<u64>>> {
        let work = self.inner.lock(range).await;
        let whole = self.inner.shared.grid.whole_blocks(range);
        let dirty =
            self.search_steps(&whole).flat_map(|step| self.cached_in(&self.state(), &step, Word::is_dirty));
        let dirty = dirty.collect();
        self.discard_blocks(&work, &without(&whole, dirty)).await
    }

    /// Removes locked runs of blocks from the cache and then trims them on the disk. Returns the runs that the disk trimmed.
    async fn discard_blocks(&self, work: &Arc<Work>, runs: &[Range<u64>]) -> Result<Vec<Range<u64>>> {
        for run in runs {
            self.discard_cached(run).await?;
        }
        let (Some(first), Some(last)) = (runs.first(), runs.last()) else { return Ok(Vec::new()) };
        // Locked only now: cleaning in flight holds this lock, and its blocks cannot be dropped before it ends.
        work.hold_range(self.inner.disk_io.lock(first.start..last.end).await);
        let mut discarded = Vec::new();
        for run in runs.iter().filter(|run| !run.is_empty()) {
            self.inner.disk_io.commit_before_write([run.clone()]).await?;
            if self.inner.disk_io.trim(work, run).await? {
                discarded.push(run.clone());
            }
        }
        Ok(discarded)
    }

    /// Removes locked blocks from the cache. Only blocks that are in use are looked up again, because the lock keeps others from being
    /// inserted.
    async fn discard_cached(&self, blocks: &Range<u64>) -> Result<()> {
        let mut in_use = Vec::new();
        for step in self.search_steps(blocks) {
            let held = self.cached_in(&self.state(), &step, |_| true);
            in_use.extend(self.drop_blocks(held).await?);
        }
        loop {
            let listener = self.inner.shared.changed.listen();
            in_use = self.drop_blocks(in_use).await?;
            if in_use.is_empty() {
                return self.state().health.check_open();
            }
            listener.await;
        }
    }

    /// Drops the given blocks from the cache. Returns those that are in use, for example being cleaned.
    async fn drop_blocks(&self, blocks: Vec<u64>) -> Result<Vec<u64>> {
        let (mut in_use, mut left) = (Vec::new(), &blocks[..]);
        while !left.is_empty() {
            let listener = self.inner.shared.changed.listen();
            let change = {
                let mut state = self.state();
                state.health.check_open()?;
                left = drop_as_journal_allows(&mut state, left, &mut in_use);
                state.journal.space_freeing_change()
            };
            match change {
                _ if left.is_empty() => {}
                Some(change) => self.inner.committer.commit(change).await?,
                // Concurrent requests hold the remaining journal space.
                None => listener.await,
            }
        }
        Ok(in_use)
    }

    /// Splits a search for cached blocks of `blocks` into steps: by block, or by slot if there are fewer slots. Other requests run
    /// between steps.
    fn search_steps(&self, blocks: &Range<u64>) -> impl Iterator<Item = SearchStep> + use<> {
        let slots = u64::from(self.inner.shared.layout.slots());
        let (by_slot, blocks) = (blocks.end - blocks.start > slots, blocks.clone());
        let (start, end) = if by_slot { (0, slots) } else { (blocks.start, blocks.end) };
        (start..end).step_by(EXAMINED_PER_STEP as usize).map(move |from| {
            let part = from..(from + EXAMINED_PER_STEP).min(end);
            if by_slot { SearchStep::Slots(part, blocks.clone()) } else { SearchStep::Blocks(part) }
        })
    }

    /// The cached blocks that a search step finds and whose word satisfies `is_wanted`, unordered.
    fn cached_in(&self, state: &State, step: &SearchStep, is_wanted: impl Fn(Word) -> bool) -> Vec<u64> {
        match step {
            SearchStep::Blocks(blocks) => {
                let is_held =
                    |block| state.sets.find(block).is_some_and(|slot| is_wanted(state.sets.word(slot)));
                examined(blocks).filter(|&block| is_held(block)).collect()
            }
            SearchStep::Slots(slots, blocks) => {
                let words = examined(slots).map(|slot| state.sets.word(Slot(slot as u32)));
                let found = words.filter(|&word| is_wanted(word)).filter_map(Word::block);
                found.filter(|block| blocks.contains(block)).collect()
            }
        }
    }
}

/// A step of a search for cached blocks.
enum SearchStep {
    Blocks(Range<u64>),
    /// A range of slots, and the blocks to find there.
    Slots(Range<u64>, Range<u64>),
}

fn examined(numbers: &Range<u64>) -> Range<u64> {
    #[cfg(test)]
    super::journal::count_examined(numbers.end - numbers.start);
    numbers.clone()
}

/// Drops blocks while the journal has space, and returns the rest. Blocks in use are added to `in_use`.
fn drop_as_journal_allows<'a>(state: &mut State, blocks: &'a [u64], in_use: &mut Vec<u64>) -> &'a [u64] {
    for (number, &block) in blocks.iter().enumerate() {
        let Some(slot) = state.sets.find(block) else { continue };
        if !state.has_space_for_changes(1) {
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

/// The runs of `blocks` without those in `taken`, which is unordered.
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
