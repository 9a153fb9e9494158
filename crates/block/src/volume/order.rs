//! The ordered way of destaging: without the flash, the disk is as it was at some flush, or between two of them.
//!
//! What a commit brought is an *epoch*. Epochs go to the disk one after the other, each flushed, and committed as clean,
//! before the next begins. While one is on its way, the disk is as a plain disk may be after a power cut between two flushes:
//! everything of the earlier one, and some of what was written since. So a block that is written again before its epoch
//! went down keeps both versions on flash.
//!
//! The idea is that of Ceph's write-back cache of RBD images ("rwl", "ssd"), and of journaling file systems. It costs what
//! merging over flushes would have saved, pages for the older versions, and a flush of flash and of disk for each epoch.
//! Epochs go down when too much waits, when everything is to be cleaned, and when a block is idle: then all up to its own.
//! Writes never go around the cache, and trims are not passed down: the disk may still need what they discard.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::error::{Result, VolumeErrorKind};
use super::record::{Held, Record, Sectors};
use super::state::{Copy, State};
use super::work::Work;
use super::{Health, Shared};
use crate::sets::Standing;

/// What a page holds of a block, and holds until it is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) block: u64,
    pub(super) page: u32,
    pub(super) crc: u32,
    pub(super) partial: Option<Sectors>,
}

/// The epochs that are not on the disk.
#[derive(Default)]
pub(super) struct Order {
    epochs: BTreeMap<u64, Vec<Version>>,
    epoch_of: HashMap<u32, u64>,
    /// The latest epoch that brought a block which has been idle since: with all before it, it is to go to the disk.
    idle_until: u64,
    /// Writes that wait for an epoch to go down.
    waiting_writes: u32,
}

impl Version {
    pub(super) fn record(&self, epoch: u64) -> Record {
        let &Self { block, page, crc, partial } = self;
        Record {
            page,
            held: Some(Held {
                block,
                dirty: true,
                partial,
                crc,
                fresh: false,
                epoch,
                // That of the block's newest version counts.
                standing: Standing::default(),
            }),
        }
    }
}

impl Order {
    /// Whether the page holds something that is to go to the disk in its turn.
    pub(super) fn has(&self, page: u32) -> bool {
        self.epoch_of.contains_key(&page)
    }

    /// The epoch that brought the page; 0 if that is over, or not yet.
    pub(super) fn epoch_of(&self, page: u32) -> u64 {
        self.epoch_of.get(&page).copied().unwrap_or(0)
    }

    /// What a commit brings is an epoch. Recovery knows of what notes told before its commit tells it again.
    pub(super) fn enter(&mut self, commit: u64, records: impl Iterator<Item = Record>) {
        for Record { page, held } in records {
            let is_new = |held: &Held| held.dirty && held.fresh && !self.has(page);
            if let Some(held) = held.filter(is_new) {
                self.restore(
                    commit,
                    Version { block: held.block, page, crc: held.crc, partial: held.partial },
                );
            }
        }
    }

    /// What was found on flash.
    pub(super) fn restore(&mut self, epoch: u64, version: Version) {
        self.epoch_of.insert(version.page, epoch);
        self.epochs.entry(epoch).or_default().push(version);
    }

    /// All of them, by epoch.
    pub(super) fn versions(&self) -> impl Iterator<Item = (u64, &Version)> {
        self.epochs.iter().flat_map(|(&epoch, versions)| versions.iter().map(move |version| (epoch, version)))
    }

    pub(super) fn has_waiting_writes(&self) -> bool {
        self.waiting_writes > 0
    }

    /// Pages that wait.
    pub(super) fn len(&self) -> usize {
        self.epoch_of.len()
    }

    fn oldest(&self) -> Option<(u64, Vec<Version>)> {
        self.epochs.first_key_value().map(|(&epoch, versions)| (epoch, versions.clone()))
    }

    /// The page's block is idle: its epoch is to go down, after those before it.
    fn found_idle(&mut self, page: u32) {
        self.idle_until = self.idle_until.max(self.epoch_of(page));
    }

    /// Whether an idle block waits for the oldest epoch to go down, or is in it.
    fn idle_waits(&self) -> bool {
        self.epochs.first_key_value().is_some_and(|(&epoch, _)| epoch <= self.idle_until)
    }

    /// The epoch waits no more; what it had.
    fn end(&mut self, epoch: u64) -> Vec<Version> {
        let versions = self.epochs.remove(&epoch).unwrap_or_default();
        for version in &versions {
            self.epoch_of.remove(&version.page);
        }
        versions
    }
}

impl State {
    /// The commit that was to make this epoch failed before any of it was told: what it brought, the next one may. What was
    /// written again meanwhile stayed because it had an epoch, and would get that of the newer version.
    pub(super) fn take_back_epoch(&mut self, epoch: u64) {
        let Some(order) = &mut self.order else { return };
        for version in order.end(epoch) {
            if !self.is_newest(&version) {
                self.leave(version.page, version.block, true);
            }
        }
    }

    /// Whether the cache has nothing newer of the version's block.
    pub(super) fn is_newest(&self, version: &Version) -> bool {
        let copy = self.sets.find(version.block).and_then(|slot| self.copy(slot));
        copy.is_some_and(|copy| copy.page == version.page)
    }
}

/// A write that waits for an epoch to go down.
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
    /// Brings the oldest epoch to the disk. Blocks written; 0 if there is none.
    pub(super) async fn destage_oldest(self: &Arc<Self>) -> Result<usize> {
        let work = Work::new(self, Some(self.destager.lock(0..1).await));
        let oldest = {
            let mut state = self.state.lock();
            // A closed volume knows how the ends of its disk are.
            self.check_open(&state)?;
            let confirmed = state.journal.confirmed_commit;
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
        let blocks: Vec<(u64, Copy)> = versions
            .iter()
            .zip(damaged)
            .map(|(version, damaged)| {
                let crc = keeps_checksums.then_some(version.crc).or(damaged);
                (version.block, Copy { page: version.page, crc, partial: version.partial })
            })
            .collect();
        let (begun_ns, failed_before) = (self.timer.monotonic_ns(), self.disk_trouble.flushes_failed());
        for piece in blocks.chunks(super::piece::PIECE_BLOCKS as usize) {
            self.write_copies(&work, piece).await?;
            self.pause().await;
        }
        self.flush_disk(failed_before).await?;
        self.pace.lock().cleaned(versions.len(), self.timer.monotonic_ns().saturating_sub(begun_ns));
        self.make_room_for_changes(versions.len()).await?;
        let change = self.end_epoch(epoch, &versions);
        // The next epoch must not begin before it is certain that this one is over: after a crash it would be written
        // again, over the newer ones.
        self.commit(change).await?;
        self.changed.notify(usize::MAX);
        Ok(versions.len())
    }

    /// Brings to the disk what has been written so far; what is written meanwhile makes epochs of its own.
    pub(super) async fn destage_all(self: &Arc<Self>) -> Result<()> {
        let change = self.state.lock().changes.number();
        // What a failed flash was told of can be read there, and saved, though it takes nothing more.
        let mut result = self.commit(change).await;
        let last = self.state.lock().journal.confirmed_commit;
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
                    state.tell_clean(slot);
                }
                None => state.leave(version.page, version.block, true),
            }
        }
        state.sets.counters_mut().cleanings += versions.len() as u64;
        state.changes.number()
    }

    /// Room for a write that order forbids to go around the cache.
    pub(super) async fn make_room_in_order(self: &Arc<Self>) -> Result<()> {
        let _waits = WaitingWrite::new(self);
        let change = self.state.lock().changes.number();
        self.commit(change).await?;
        if self.destage_oldest().await? == 0 {
            // What is in the way is in use, and soon will not be.
            device::timer::sleep(&*self.timer, 100_000).await;
        }
        Ok(())
    }

    /// Destages while more waits than the dirty threshold allows, or for what has been idle for long.
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
        state.health != Health::Closed && waiting > most
    }

    /// Whether the oldest epoch is to go down because somewhere a block is idle. An idle block cannot go by itself: all epochs
    /// up to its own go first, and with them older versions of blocks that are in use. The limit on idle blocks a second
    /// counts all of them, so that what the order adds takes no more of the disk.
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
            // A flash that has failed takes no commit: what it was not told of stays where it is.
            if !has_epoch && state.health != Health::Healthy {
                return Ok(false);
            }
            (page, (!has_epoch).then(|| state.changes.number()))
        };
        // What nobody flushed becomes an epoch here.
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
