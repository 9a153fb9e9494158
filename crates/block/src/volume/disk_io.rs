//! Reads, writes, trims and flushes of the disk.
//!
//! Before the disk is written directly, the removal of the blocks is committed (rule 4 in the [parent module](super)); and before the first
//! write since opening, flash records that the checksums of the disk are no longer valid.

use std::ops::Range;
use std::sync::Arc;

use device::{Device, ErrorKind, IoBuffer, IoSlice, Pending, Request};

use super::disk::DiskTask;
use super::error::{Result, VolumeError};
use super::identity::ends_crc;
use super::journal::Committer;
use super::ranges::{RangeGuard, RangeLock};
use super::shared::Shared;
use super::work::Work;

/// The purpose of a disk write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskWrite {
    /// A client's write: the next commit flushes the disk.
    Direct,
    /// Cleaning: the cleaner flushes the disk before it records the block as clean.
    Cleaning,
}

/// Reads one block of the disk, padded with zeros at the end of the disk.
pub(super) async fn read_disk_block(shared: &Shared, block: u64) -> Result<IoBuffer> {
    shared.state.lock().sets.counters_mut().disk_reads += 1;
    let offset = block * u64::from(shared.layout.block_bytes);
    let read = shared.disk.read(offset, shared.grid.bytes_of(block)).await;
    let data = read.map_err(|error| shared.disk.failed(DiskTask::Read, error))?;
    if data.len() == shared.layout.block_bytes as usize {
        return Ok(data);
    }
    let mut padded = IoBuffer::zeroed(shared.layout.block_bytes as usize);
    padded[..data.len()].copy_from_slice(&data);
    Ok(padded)
}

/// Requests to the disk.
pub(super) struct DiskIo {
    shared: Arc<Shared>,
    committer: Arc<Committer>,
    /// Locks blocks that are being written.
    writers: Arc<RangeLock>,
}

impl DiskIo {
    pub(super) fn new(shared: Arc<Shared>, committer: Arc<Committer>) -> Self {
        Self { shared, committer, writers: Arc::default() }
    }

    /// Locks blocks for writes.
    pub(super) async fn lock(&self, blocks: Range<u64>) -> RangeGuard {
        self.writers.lock(blocks).await
    }

    /// Records checksums and time of the disk for the next opening.
    pub(super) async fn record_disk_state(&self) -> Result<()> {
        self.shared.disk.flush().await.map_err(|error| VolumeError::disk("flushing the disk", error))?;
        self.shared.identity.record_disk(ends_crc(&*self.shared.disk).await?);
        Ok(())
    }

    /// Waits for a read of the disk.
    pub(super) async fn data(&self, pending: Pending) -> Result<IoSlice> {
        let data = pending.await.map_err(|error| self.shared.disk.failed(DiskTask::Read, error))?;
        Ok(data.into())
    }

    /// Commits before the disk is written directly, if recovery could restore one of `blocks` from flash (rule 4). Modes that write
    /// to the disk directly do not restore clean blocks, only blocks that are dirty from an earlier mode.
    pub(super) async fn commit_before_write(
        &self,
        blocks: impl IntoIterator<Item = Range<u64>> + Clone,
    ) -> Result<()> {
        let Some(change) = self.shared.state.lock().journal.removal_of(blocks.clone()) else { return Ok(()) };
        self.committer.commit(change).await?;
        // If the flash failed meanwhile, the commit did not include these changes.
        let state = self.shared.state.lock();
        match state.journal.removal_of(blocks) {
            Some(_) if state.health.has_failed() => Err(state.health.error()),
            _ => Ok(()),
        }
    }

    /// Writes bytes to the disk, whose blocks may be larger than 512 bytes. The caller holds the range.
    pub(super) async fn write(
        &self,
        work: &Arc<Work>,
        why: DiskWrite,
        offset: u64,
        bytes: IoSlice,
    ) -> Result<()> {
        let (from, data) = self.in_whole_units(work, offset, bytes).await?;
        self.invalidate_disk_checksums().await;
        for part in self.shared.disk.geometry().transfers(0..data.len() as u64) {
            let bytes = data.part(part.start as usize..part.end as usize);
            let request = Request::write(from + part.start, bytes);
            self.shared.state.lock().sets.counters_mut().disk_writes += 1;
            let written = match why {
                DiskWrite::Direct => work.start_on_disk(request),
                DiskWrite::Cleaning => work.start(&*self.shared.disk, request),
            };
            written.await.map_err(|error| self.shared.disk.failed(DiskTask::Write, error))?;
        }
        Ok(())
    }

    /// Extends the bytes to whole blocks of the disk, with the disk's data around them. Returns the offset of the first block too.
    async fn in_whole_units(&self, work: &Arc<Work>, offset: u64, bytes: IoSlice) -> Result<(u64, IoSlice)> {
        let unit = u64::from(self.shared.disk.geometry().block_bytes);
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
            self.shared.state.lock().sets.counters_mut().disk_reads += 1;
            let read = work.start(&*self.shared.disk, Request::read(edge, unit as usize)).await;
            let read = read.map_err(|error| self.shared.disk.failed(DiskTask::Read, error))?;
            whole[(edge - from) as usize..][..unit as usize].copy_from_slice(&read);
        }
        whole[(offset - from) as usize..][..bytes.len()].copy_from_slice(&bytes);
        Ok((from, whole.into()))
    }

    /// Trims blocks of the disk. Returns false if it does not support that.
    pub(super) async fn trim(&self, work: &Arc<Work>, blocks: &Range<u64>) -> Result<bool> {
        let (unit, block) =
            (u64::from(self.shared.disk.geometry().block_bytes), u64::from(self.shared.layout.block_bytes));
        let (from, to) =
            (blocks.start * block, (blocks.end * block).min(self.shared.disk.bytes()) / unit * unit);
        if from.next_multiple_of(unit) >= to {
            return Ok(false);
        }
        let from = from.next_multiple_of(unit);
        self.invalidate_disk_checksums().await;
        let trimmed = work.start_on_disk(Request::Trim { offset: from, len: to - from }).await;
        match trimmed {
            Ok(_) => Ok(true),
            // The disk does not support trims, so its contents stay.
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(false),
            Err(error) => Err(self.shared.disk.failed(DiskTask::Trim, error)),
        }
    }

    /// Flushes the disk. Fails if another flush has failed since there were `failed_before` failed ones.
    pub(super) async fn flush_since(&self, failed_before: u64) -> Result<()> {
        self.shared.disk.flush_since(failed_before).await?;
        self.shared.state.lock().io.disk_flushes += 1;
        Ok(())
    }

    /// Before the first write to the disk since opening, records on flash that the checksums of the disk are no longer valid. If the
    /// flash fails, records it in the file's attributes.
    async fn invalidate_disk_checksums(&self) {
        if !self.shared.identity.is_disk_current() {
            return;
        }
        let work = Work::new(&self.shared, Some(self.committer.lock_metadata().await));
        let mut superblock = self.shared.identity.superblock();
        if superblock.disk.is_current {
            superblock.disk.is_current = false;
            // The failed flash is reported to the next request that needs it.
            let written = self.committer.write_superblock(&work, superblock).await;
            self.shared.identity.disk_changes(written.is_ok());
        }
    }
}
