//! The parts of a volume.

use std::ops::Range;
use std::sync::Arc;

use super::cleaning::Cleaner;
use super::disk_io::DiskIo;
use super::journal::Committer;
use super::ranges::RangeLock;
use super::shared::Shared;
use super::work::Work;

pub(super) struct Inner {
    pub(super) shared: Arc<Shared>,
    pub(super) committer: Arc<Committer>,
    pub(super) disk_io: Arc<DiskIo>,
    pub(super) cleaner: Arc<Cleaner>,
    /// A mutex (the range 0..1) held by a sequential write that bypasses the cache, until the write is submitted to the disk.
    pub(super) bypass_turn: Arc<RangeLock>,
    /// Locks blocks of the cache for requests other than plain hits.
    pub(super) blocks: Arc<RangeLock>,
}

impl Inner {
    pub(super) fn new(shared: Shared) -> Arc<Self> {
        let shared = Arc::new(shared);
        let committer = Committer::new(Arc::clone(&shared));
        let disk_io = Arc::new(DiskIo::new(Arc::clone(&shared), Arc::clone(&committer)));
        let cleaner = Cleaner::new(Arc::clone(&shared), Arc::clone(&committer), Arc::clone(&disk_io));
        let (bypass_turn, blocks) = <(Arc<RangeLock>, Arc<RangeLock>)>::default();
        Arc::new(Self { shared, committer, disk_io, cleaner, bypass_turn, blocks })
    }

    /// Locks the blocks that overlap `bytes` until the operation ends.
    pub(super) async fn lock(&self, bytes: &Range<u64>) -> Arc<Work> {
        Work::new(&self.shared, Some(self.blocks.lock(self.shared.grid.blocks_of(bytes)).await))
    }
}
