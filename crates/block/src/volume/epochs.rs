//! The epochs of an ordered volume that are not on the disk yet. [`order`](super::order) destages them.

use std::collections::{BTreeMap, HashMap};

use super::record::{PageContents, Record, Sectors};
use crate::sets::PolicyState;

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
pub(super) struct Epochs {
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
                policy_state: PolicyState::default(),
            }),
        }
    }
}

impl Epochs {
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

    pub(super) fn add_waiting(&mut self) {
        self.waiting_writes += 1;
    }

    pub(super) fn end_waiting(&mut self) {
        self.waiting_writes -= 1;
    }

    /// Pages that wait for destaging.
    pub(super) fn len(&self) -> usize {
        self.epoch_of.len()
    }

    pub(super) fn oldest_number(&self) -> Option<u64> {
        self.epochs.first_key_value().map(|(&epoch, _)| epoch)
    }

    pub(super) fn oldest(&self) -> Option<(u64, Vec<Version>)> {
        self.epochs.first_key_value().map(|(&epoch, versions)| (epoch, versions.clone()))
    }

    /// Marks the page's block as idle: its epoch and those before it are to be destaged.
    pub(super) fn found_idle(&mut self, page: u32) {
        self.idle_until = self.idle_until.max(self.epoch_of(page));
    }

    /// Whether the oldest epoch must be destaged for an idle block.
    pub(super) fn idle_waits(&self) -> bool {
        self.epochs.first_key_value().is_some_and(|(&epoch, _)| epoch <= self.idle_until)
    }

    /// Removes an epoch and returns its versions.
    pub(super) fn end(&mut self, epoch: u64) -> Vec<Version> {
        let versions = self.epochs.remove(&epoch).unwrap_or_default();
        for version in &versions {
            self.epoch_of.remove(&version.page);
        }
        versions
    }
}
