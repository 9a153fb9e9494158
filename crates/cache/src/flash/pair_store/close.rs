//! Operations on an open pair that change its superblock or write its snapshot.

use device::IoError;

use super::{CLOCK_SECTION, CLOCK_SECTION_BYTES, REGIONS_JOURNAL_SECTION, REGIONS_SECTION, SOC_SECTION};
use crate::error::CacheError;
use crate::flash::Waiting;
use crate::flash::pair::Pair;
use crate::flash::region::RegionStore;
use crate::flash::small::SmallEngine;
use crate::flash::superblock::{SnapshotWriter, State};

impl Pair {
    /// Waits until the journals contain all removals before the call.
    pub(crate) fn acknowledge(&self) {
        self.soc.iter().for_each(SmallEngine::acknowledge);
        self.regions.iter().for_each(RegionStore::acknowledge);
    }

    /// Writes all pending items.
    pub(crate) async fn drain(&self, waiting: Waiting, now_seconds: u32) {
        if let Some(regions) = &self.regions {
            regions.drain(waiting).await;
        }
        if let Some(soc) = &self.soc {
            soc.drain(waiting, now_seconds).await;
        }
    }

    /// Unix second at which the cache is to be cleared.
    pub(crate) fn clear_time(&self) -> Option<u32> {
        u32::try_from(self.store.superblock.lock().clear_at_seconds).ok().filter(|seconds| *seconds > 0)
    }

    /// Stores the time at which the cache is to be cleared. Two calls must not overlap.
    pub(crate) async fn set_clear_time(&self, time: Option<u32>, waiting: Waiting) -> Result<(), IoError> {
        let changed = {
            let mut superblock = self.store.superblock.lock();
            superblock.clear_at_seconds = time.unwrap_or(0).into();
            *superblock
        };
        match changed.state {
            State::Open => changed.rewrite(&*self.store.metadata, waiting).await,
            // Closed: the time is not kept.
            State::Clean(_) => Ok(()),
        }
    }

    /// Writes pending items, then the snapshot, then marks the store closed.
    pub(crate) async fn close(&self, now_seconds: u32, waiting: Waiting) -> Result<(), CacheError> {
        self.drain(waiting, now_seconds).await;
        let store = &self.store;
        let mut superblock = *store.superblock.lock();
        let mut writer =
            SnapshotWriter::new(&*store.metadata, &superblock.layout, superblock.next_mark(), waiting);
        if let Some(soc) = &self.soc {
            writer.section(SOC_SECTION, soc.snapshot_bytes(), soc.snapshot()).await?;
        }
        if let Some(regions) = &self.regions {
            let kept_bytes = CLOCK_SECTION_BYTES + regions.journal_section_bytes();
            let room_bytes = writer.room_bytes(REGIONS_SECTION).saturating_sub(kept_bytes);
            let snapshot = regions.snapshot_within(room_bytes);
            writer.section(REGIONS_SECTION, snapshot.bytes(), snapshot.pieces()).await?;
            // Last, so that the journal contains the removals recorded by the snapshot.
            if let Some(position) = regions.journal_position() {
                writer.section(REGIONS_JOURNAL_SECTION, position.len() as u64, [position]).await?;
            }
        }
        // The area may be full if an earlier version divided the device.
        if writer.room_bytes(CLOCK_SECTION) >= 4 {
            writer.section(CLOCK_SECTION, 4, [now_seconds.to_le_bytes()]).await?;
        }
        let place = writer.finish().await?;
        let marked = superblock.mark_clean(place, &*store.metadata, waiting).await;
        marked.map_err(|source| CacheError::Device { context: "marking the cache closed", source })?;
        *store.superblock.lock() = superblock;
        Ok(())
    }
}
