//! Forgetting ranges, making zeros of them, and telling what is known of them.

use std::ops::Range;
use std::sync::Arc;

use device::{ErrorKind, IoBuffer, IoSlice, Request};

use super::error::Result;
use super::state::State;
use super::work::Work;
use super::{Shared, Volume};
use crate::sets::Slot;

/// Zeros are written in buffers of this size.
const ZEROS_BYTES: usize = 256 << 10;

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

/// What is left of blocks that are to leave the cache.
enum Left {
    Nothing,
    /// Some are on their way to the disk, or requests under way may need what room the journal has.
    InUse,
    /// The journal has no room for more of them before it is committed up to this change.
    Uncommitted(u64),
}

impl Volume {
    /// Forgets a range: it reads as zeros or as anything it held before. Whole blocks leave the cache, dirty or not, and
    /// the disk is told, if it can be.
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
        let zeros: IoSlice = IoBuffer::zeroed(ZEROS_BYTES.min(len as usize)).into();
        let (mut at, mut is_on_flash_alone) = (offset, false);
        while at < offset + len {
            let bytes = (offset + len - at).min(ZEROS_BYTES as u64);
            is_on_flash_alone |= self.shared.write(at, zeros.part(0..bytes as usize), self.may_cache).await?;
            at += bytes;
        }
        self.acknowledge(is_on_flash_alone, durable).await
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
        let whole = self.whole_blocks(&range);
        let work = Work::new(self, Some(self.blocks.lock(self.blocks_of(&range)).await));
        loop {
            let listener = self.changed.listen();
            let left = {
                let mut state = self.state.lock();
                self.check_open(&state)?;
                self.drop_blocks(&mut state, &whole)
            };
            match left {
                Left::Nothing => break,
                Left::InUse => listener.await,
                Left::Uncommitted(change) => self.commit(change).await?,
            }
        }
        if whole.is_empty() {
            return Ok(());
        }
        work.hold_range(self.disk_writers.lock(whole.clone()).await);
        self.settle_before_disk(whole.clone()).await?;
        self.trim_disk(&work, &whole).await
    }

    /// Blocks that lie in `range` with all that the disk has of them.
    fn whole_blocks(&self, range: &Range<u64>) -> Range<u64> {
        let block = u64::from(self.layout.block_bytes);
        let first = range.start.div_ceil(block);
        let end = if range.end == self.disk_bytes { range.end.div_ceil(block) } else { range.end / block };
        first..end.max(first)
    }

    /// Drops blocks from the cache; what is left of them.
    fn drop_blocks(&self, state: &mut State, blocks: &Range<u64>) -> Left {
        let held: Vec<(Slot, u64)> = if blocks.end - blocks.start > u64::from(self.layout.slots()) {
            let in_range = state.sets.held().filter_map(|(slot, word)| Some((slot, word.block()?)));
            in_range.filter(|(_, block)| blocks.contains(block)).collect()
        } else {
            let find = |block| Some((state.sets.find(block)?, block));
            blocks.clone().filter_map(find).collect()
        };
        let mut left = Left::Nothing;
        for (slot, block) in held {
            if !state.has_room_for_changes(1) {
                return state.makes_room().map_or(Left::InUse, Left::Uncommitted);
            }
            if state.forget(slot, block) {
                state.sets.counters_mut().trim_blocks += 1;
            } else {
                left = Left::InUse;
            }
        }
        left
    }

    async fn trim_disk(self: &Arc<Self>, work: &Arc<Work>, blocks: &Range<u64>) -> Result<()> {
        let (unit, block) = (u64::from(self.disk.geometry().block_bytes), u64::from(self.layout.block_bytes));
        let (from, to) = (blocks.start * block, (blocks.end * block).min(self.disk_bytes) / unit * unit);
        if from.next_multiple_of(unit) >= to {
            return Ok(());
        }
        let from = from.next_multiple_of(unit);
        self.before_disk_changes().await;
        let trimmed = work.start_on_disk(Request::Trim { offset: from, len: to - from }).await;
        match trimmed {
            Ok(_) => Ok(()),
            // Trimming is advice. What the disk keeps is what it held before.
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
            Err(error) => Err(self.disk_failed("trimming the disk", error)),
        }
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
