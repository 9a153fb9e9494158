//! Ordered destaging: without the flash, the disk has the state of a flush, or one between two flushes.
//!
//! The writes of one commit form an *epoch*. Epochs are written to the disk in order. Each is flushed and committed as clean before
//! the next begins. While one is being written, the disk is like a plain disk after a power cut between two flushes: it has the
//! earlier flush and some later writes. A block that is rewritten before its epoch is on the disk keeps both versions on
//! flash.
//!
//! Ceph's write-back cache of RBD images (`rwl`, `ssd`) and journaling file systems work in the same way. The cost: writes of several
//! epochs are not merged, older versions take pages, and each epoch needs a flush of flash and disk. Epochs are destaged if too many
//! pages wait, when the volume is cleaned, and when a block is idle (then all epochs up to its own). Writes never bypass the cache, and
//! trims are not passed to the disk, which may still need the discarded data.

use std::sync::Arc;

use super::Cleaner;
use crate::volume::epochs::{Epochs, Version};
use crate::volume::error::{Result, VolumeErrorKind};
use crate::volume::page_map::FlashCopy;
use crate::volume::state::State;
use crate::volume::work::Work;

/// Counts a write that waits until an epoch is destaged.
struct WaitingWrite<'a>(&'a Cleaner);

impl<'a> WaitingWrite<'a> {
    fn new(cleaner: &'a Cleaner) -> Self {
        let mut state = cleaner.shared.state.lock();
        state.io.room_waits += 1;
        state.epochs.iter_mut().for_each(|epochs| epochs.add_waiting());
        Self(cleaner)
    }
}

impl Drop for WaitingWrite<'_> {
    fn drop(&mut self) {
        self.0.shared.state.lock().epochs.iter_mut().for_each(|epochs| epochs.end_waiting());
    }
}

impl Cleaner {
    /// Writes the oldest epoch to the disk. Returns the number of blocks; 0 if there was no epoch.
    pub(in crate::volume) async fn destage_oldest(self: &Arc<Self>) -> Result<usize> {
        let work = Work::new(&self.shared, Some(self.destager.lock(0..1).await));
        let oldest = {
            let mut state = self.shared.state.lock();
            // A closed volume has recorded checksums of its disk, which must not change.
            state.health.check_open()?;
            let confirmed = state.journal.confirmed_commit();
            let oldest =
                state.epochs.as_ref().and_then(Epochs::oldest).filter(|(epoch, _)| *epoch <= confirmed);
            let Some((epoch, mut versions)) = oldest else { return Ok(0) };
            versions.sort_by_key(|version| version.block);
            let damaged: Vec<_> =
                versions.iter().map(|version| state.map.damaged_crc(version.page)).collect();
            for version in &versions {
                work.read_page(&mut state, version.page);
            }
            (epoch, versions, damaged)
        };
        let (epoch, versions, damaged) = oldest;
        let keeps_checksums = self.shared.identity.keeps_checksums();
        let blocks: Vec<(u64, FlashCopy)> = versions
            .iter()
            .zip(damaged)
            .map(|(version, damaged)| {
                let crc = keeps_checksums.then_some(version.crc).or(damaged);
                (version.block, FlashCopy { page: version.page, crc, partial: version.partial })
            })
            .collect();
        let (begun_ns, failed_before) = (self.shared.timer.monotonic_ns(), self.shared.disk.flushes_failed());
        for segment in blocks.chunks(crate::volume::segment::SEGMENT_BLOCKS as usize) {
            self.write_copies(&work, segment).await?;
            self.pause().await;
        }
        self.disk_io.flush_since(failed_before).await?;
        self.pace.lock().cleaned(versions.len(), self.shared.timer.monotonic_ns().saturating_sub(begun_ns));
        self.commit_for_space(versions.len()).await?;
        let change = self.end_epoch(epoch, &versions);
        // The next epoch begins only when this one is durably recorded as clean: otherwise recovery would write this one
        // over the newer data.
        self.committer.commit(change).await?;
        self.shared.changed.notify(usize::MAX);
        Ok(versions.len())
    }

    /// Writes all epochs of earlier writes to the disk.
    pub(in crate::volume) async fn destage_all(self: &Arc<Self>) -> Result<()> {
        let change = self.shared.state.lock().journal.last_change();
        // Blocks committed before the flash failed can still be read there and written to the disk.
        let mut result = self.committer.commit(change).await;
        let last = self.shared.state.lock().journal.confirmed_commit();
        let oldest_left = || {
            let state = self.shared.state.lock();
            let oldest = state.epochs.as_ref().and_then(Epochs::oldest_number);
            oldest.filter(|&epoch| epoch <= last)
        };
        while let Some(oldest) = oldest_left() {
            let Err(error) = self.destage_oldest().await else { continue };
            let is_of_flash = error.kind() == VolumeErrorKind::Flash;
            result = result.and(Err(error));
            if !is_of_flash || oldest_left() == Some(oldest) {
                break;
            }
        }
        result
    }

    fn end_epoch(&self, epoch: u64, versions: &[Version]) -> u64 {
        let mut state = self.shared.state.lock();
        let state = &mut *state;
        if let Some(epochs) = &mut state.epochs {
            epochs.end(epoch);
        }
        for version in versions {
            let slot = state.sets.find(version.block);
            let current =
                slot.filter(|&slot| state.map.copy(slot).is_some_and(|copy| copy.page == version.page));
            match current {
                Some(slot) => {
                    state.sets.mark_clean(slot);
                    state.record_clean(slot);
                }
                None => state.release_page(version.page, version.block, true),
            }
        }
        state.sets.counters_mut().cleanings += versions.len() as u64;
        state.journal.last_change()
    }

    /// Waits for space for a write, which must not bypass the cache.
    pub(in crate::volume) async fn destage_for_space(self: &Arc<Self>) -> Result<()> {
        let _waits = WaitingWrite::new(self);
        let change = self.shared.state.lock().journal.last_change();
        self.committer.commit(change).await?;
        if self.destage_oldest().await? == 0 {
            // The pages are in use by requests in flight.
            device::timer::sleep(&*self.shared.timer, 100_000).await;
        }
        Ok(())
    }

    /// Destages if more pages wait than the dirty threshold allows, or for an idle block.
    pub(in crate::volume) async fn destage_as_needed(self: &Arc<Self>) -> Result<usize> {
        if self.is_above_threshold() {
            return self.destage_oldest().await;
        }
        if !self.is_oldest_due_for_idleness().await? {
            return Ok(0);
        }
        let destaged = self.destage_oldest().await?;
        let mut state = self.shared.state.lock();
        state.sets.deduct_idle_cleanings(destaged as u64);
        state.sets.counters_mut().fallow_cleanings += destaged as u64;
        Ok(destaged)
    }

    fn is_above_threshold(&self) -> bool {
        let state = self.shared.state.lock();
        let percent = usize::from(state.sets.tuning().dirty_percent.min(90));
        let most = self.shared.layout.slots() as usize * percent / 100;
        let waiting = state.epochs.as_ref().map_or(0, Epochs::len);
        !state.health.is_closed() && waiting > most
    }

    /// Whether the oldest epoch is to be destaged for an idle block. All epochs up to that block's own must be destaged first, with
    /// older versions of blocks in use. The limit on idle cleaning per second counts all of them.
    async fn is_oldest_due_for_idleness(self: &Arc<Self>) -> Result<bool> {
        let is_due = |state: &State| {
            let waits = state.epochs.as_ref().is_some_and(Epochs::idle_waits);
            waits && state.sets.may_clean_idle()
        };
        let (page, uncommitted) = {
            let mut state = self.shared.state.lock();
            if is_due(&state) {
                return Ok(true);
            }
            let Some(page) =
                state.sets.next_idle().and_then(|slot| state.map.copy(slot)).map(|copy| copy.page)
            else {
                return Ok(false);
            };
            let has_epoch = state.epochs.as_ref().is_some_and(|epochs| epochs.has(page));
            // A failed flash accepts no commit, so uncommitted blocks stay where they are.
            if !has_epoch && !state.health.is_healthy() {
                return Ok(false);
            }
            (page, (!has_epoch).then(|| state.journal.last_change()))
        };
        // A block that no client flushed gets its epoch by this commit.
        if let Some(change) = uncommitted {
            self.committer.commit(change).await?;
        }
        let mut state = self.shared.state.lock();
        if let Some(epochs) = &mut state.epochs {
            epochs.found_idle(page);
        }
        Ok(is_due(&state))
    }
}
