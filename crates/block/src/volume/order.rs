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

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::Shared;
use super::error::{Result, VolumeErrorKind};
use super::record::{PageContents, Record, Sectors};
use super::state::{FlashCopy, State};
use super::work::Work;
use crate::sets::Standing;

/// The version of a block on a page that is not on the disk yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) block: u64,
    pub(super) page: u32,
    pub(super) crc: u32,
    pub(super) partial: Option<Sectors>,
}

/// The epochs that are not on the disk yet.
#[derive(Default)]
pub(super) struct Order {
    epochs: BTreeMap<u64, Vec<Version>>,
    epoch_of: HashMap<u32, u64>,
    /// The newest epoch with an idle block. It and all epochs before it are to be destaged.
    idle_until: u64,
    /// Writes that wait until an epoch is destaged.
    waiting_writes: u32,
}

impl Version {
    pub(super) fn record(&self, epoch: u64) -> Record {
        let &Self { block, page, crc, partial } = self;
        Record {
            page,
            held: Some(PageContents {
                block,
                dirty: true,
                partial,
                crc,
                fresh: false,
                epoch,
                // The policy state is recorded with the block's newest version.
                standing: Standing::default(),
            }),
        }
    }
}

impl Order {
    /// Whether the page holds a version that must still reach the disk.
    pub(super) fn has(&self, page: u32) -> bool {
        self.epoch_of.contains_key(&page)
    }

    /// The epoch of the page; 0 if it was destaged or is not committed.
    pub(super) fn epoch_of(&self, page: u32) -> u64 {
        self.epoch_of.get(&page).copied().unwrap_or(0)
    }

    /// Makes an epoch of a commit's records. Pages that recovery took from the intent log already have one.
    pub(super) fn enter(&mut self, commit: u64, records: impl Iterator<Item = Record>) {
        for Record { page, held } in records {
            let is_new = |held: &PageContents| held.dirty && held.fresh && !self.has(page);
            if let Some(held) = held.filter(is_new) {
                self.restore(
                    commit,
                    Version { block: held.block, page, crc: held.crc, partial: held.partial },
                );
            }
        }
    }

    /// Adds a recovered version.
    pub(super) fn restore(&mut self, epoch: u64, version: Version) {
        self.epoch_of.insert(version.page, epoch);
        self.epochs.entry(epoch).or_default().push(version);
    }

    /// All versions with their epochs, oldest first.
    pub(super) fn versions(&self) -> impl Iterator<Item = (u64, &Version)> {
        self.epochs.iter().flat_map(|(&epoch, versions)| versions.iter().map(move |version| (epoch, version)))
    }

    pub(super) fn has_waiting_writes(&self) -> bool {
        self.waiting_writes > 0
    }

    /// Pages that wait for destaging.
    pub(super) fn len(&self) -> usize {
        self.epoch_of.len()
    }

    fn oldest(&self) -> Option<(u64, Vec<Version>)> {
        self.epochs.first_key_value().map(|(&epoch, versions)| (epoch, versions.clone()))
    }

    /// Marks the page's block as idle: its epoch and those before it are to be destaged.
    fn found_idle(&mut self, page: u32) {
        self.idle_until = self.idle_until.max(self.epoch_of(page));
    }

    /// Whether the oldest epoch must be destaged for an idle block.
    fn idle_waits(&self) -> bool {
        self.epochs.first_key_value().is_some_and(|(&epoch, _)| epoch <= self.idle_until)
    }

    /// Removes an epoch and returns its versions.
    fn end(&mut self, epoch: u64) -> Vec<Version> {
        let versions = self.epochs.remove(&epoch).unwrap_or_default();
        for version in &versions {
            self.epoch_of.remove(&version.page);
        }
        versions
    }
}

impl State {
    /// Removes the epoch of a commit that failed before any of it was written: the next commit records the same changes. A page
    /// whose block was rewritten meanwhile was kept for this epoch, and is released.
    pub(super) fn undo_epoch(&mut self, epoch: u64) {
        let Some(order) = &mut self.order else { return };
        for version in order.end(epoch) {
            if !self.is_newest(&version) {
                self.release_page(version.page, version.block, true);
            }
        }
    }

    /// Whether the cache has no newer version of the block.
    pub(super) fn is_newest(&self, version: &Version) -> bool {
        let copy = self.sets.find(version.block).and_then(|slot| self.copy(slot));
        copy.is_some_and(|copy| copy.page == version.page)
    }
}

/// Counts a write that waits until an epoch is destaged.
struct WaitingWrite<'a>(&'a Shared);

impl<'a> WaitingWrite<'a> {
    fn new(shared: &'a Shared) -> Self {
        let mut state = shared.state.lock();
        state.io.room_waits += 1;
        state.order.iter_mut().for_each(|order| order.waiting_writes += 1);
        Self(shared)
    }
}

impl Drop for WaitingWrite<'_> {
    fn drop(&mut self) {
        self.0.state.lock().order.iter_mut().for_each(|order| order.waiting_writes -= 1);
    }
}

impl Shared {
    /// Writes the oldest epoch to the disk. Returns the number of blocks; 0 if there was no epoch.
    pub(super) async fn destage_oldest(self: &Arc<Self>) -> Result<usize> {
        let work = Work::new(self, Some(self.destager.lock(0..1).await));
        let oldest = {
            let mut state = self.state.lock();
            // A closed volume has recorded checksums of its disk, which must not change.
            state.health.check_open()?;
            let confirmed = state.journal.confirmed_commit();
            let oldest =
                state.order.as_ref().and_then(Order::oldest).filter(|(epoch, _)| *epoch <= confirmed);
            let Some((epoch, mut versions)) = oldest else { return Ok(0) };
            versions.sort_by_key(|version| version.block);
            let damaged: Vec<_> = versions.iter().map(|version| state.damaged_crc(version.page)).collect();
            for version in &versions {
                work.read_page(&mut state, version.page);
            }
            (epoch, versions, damaged)
        };
        let (epoch, versions, damaged) = oldest;
        let keeps_checksums = self.superblock.lock().checksums;
        let blocks: Vec<(u64, FlashCopy)> = versions
            .iter()
            .zip(damaged)
            .map(|(version, damaged)| {
                let crc = keeps_checksums.then_some(version.crc).or(damaged);
                (version.block, FlashCopy { page: version.page, crc, partial: version.partial })
            })
            .collect();
        let (begun_ns, failed_before) = (self.timer.monotonic_ns(), self.disk.flushes_failed());
        for segment in blocks.chunks(super::segment::SEGMENT_BLOCKS as usize) {
            self.write_copies(&work, segment).await?;
            self.pause().await;
        }
        self.flush_disk(failed_before).await?;
        self.pace.lock().cleaned(versions.len(), self.timer.monotonic_ns().saturating_sub(begun_ns));
        self.commit_for_space(versions.len()).await?;
        let change = self.end_epoch(epoch, &versions);
        // The next epoch begins only when this one is durably recorded as clean: otherwise recovery would write this one
        // over the newer data.
        self.commit(change).await?;
        self.changed.notify(usize::MAX);
        Ok(versions.len())
    }

    /// Writes all epochs of earlier writes to the disk.
    pub(super) async fn destage_all(self: &Arc<Self>) -> Result<()> {
        let change = self.state.lock().journal.last_change();
        // Blocks committed before the flash failed can still be read there and written to the disk.
        let mut result = self.commit(change).await;
        let last = self.state.lock().journal.confirmed_commit();
        let oldest_left = || {
            let state = self.state.lock();
            let oldest = state.order.as_ref().and_then(|order| order.epochs.first_key_value());
            oldest.map(|(&epoch, _)| epoch).filter(|&epoch| epoch <= last)
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
        let mut state = self.state.lock();
        let state = &mut *state;
        if let Some(order) = &mut state.order {
            order.end(epoch);
        }
        for version in versions {
            let slot = state.sets.find(version.block);
            let current = slot.filter(|&slot| state.copy(slot).is_some_and(|copy| copy.page == version.page));
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
    pub(super) async fn destage_for_space(self: &Arc<Self>) -> Result<()> {
        let _waits = WaitingWrite::new(self);
        let change = self.state.lock().journal.last_change();
        self.commit(change).await?;
        if self.destage_oldest().await? == 0 {
            // The pages are in use by requests in flight.
            device::timer::sleep(&*self.timer, 100_000).await;
        }
        Ok(())
    }

    /// Destages if more pages wait than the dirty threshold allows, or for an idle block.
    pub(super) async fn destage_as_needed(self: &Arc<Self>) -> Result<usize> {
        if self.is_above_threshold() {
            return self.destage_oldest().await;
        }
        if !self.is_oldest_due_for_idleness().await? {
            return Ok(0);
        }
        let destaged = self.destage_oldest().await?;
        let mut state = self.state.lock();
        state.sets.spend_on_idle(destaged as u64);
        state.sets.counters_mut().fallow_cleanings += destaged as u64;
        Ok(destaged)
    }

    fn is_above_threshold(&self) -> bool {
        let state = self.state.lock();
        let percent = usize::from(state.sets.tuning().dirty_percent.min(90));
        let most = self.layout.slots() as usize * percent / 100;
        let waiting = state.order.as_ref().map_or(0, Order::len);
        !state.health.is_closed() && waiting > most
    }

    /// Whether the oldest epoch is to be destaged for an idle block. All epochs up to that block's own must be destaged first, with
    /// older versions of blocks in use. The limit on idle cleaning per second counts all of them.
    async fn is_oldest_due_for_idleness(self: &Arc<Self>) -> Result<bool> {
        let is_due = |state: &State| {
            let waits = state.order.as_ref().is_some_and(Order::idle_waits);
            waits && state.sets.may_clean_idle()
        };
        let (page, uncommitted) = {
            let mut state = self.state.lock();
            if is_due(&state) {
                return Ok(true);
            }
            let Some(page) = state.sets.next_idle().and_then(|slot| state.copy(slot)).map(|copy| copy.page)
            else {
                return Ok(false);
            };
            let has_epoch = state.order.as_ref().is_some_and(|order| order.has(page));
            // A failed flash accepts no commit, so uncommitted blocks stay where they are.
            if !has_epoch && !state.health.is_healthy() {
                return Ok(false);
            }
            (page, (!has_epoch).then(|| state.journal.last_change()))
        };
        // A block that no client flushed gets its epoch by this commit.
        if let Some(change) = uncommitted {
            self.commit(change).await?;
        }
        let mut state = self.state.lock();
        if let Some(order) = &mut state.order {
            order.found_idle(page);
        }
        Ok(is_due(&state))
    }
}
