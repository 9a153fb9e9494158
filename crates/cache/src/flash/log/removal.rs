//! Removals that lose no other item.
//!
//! An entry of the index does not identify its key: other keys can have the same address. A removal therefore removes every entry of the
//! address, and the items of the other keys are lost, about one in a hundred. That is not allowed if a callback must receive every item
//! that leaves the log. Then a removal is recorded here, which hides the key's older versions from lookups. Background work reads the
//! pages that may hold the key, removes the entry of the page that does, and calls the destructor with the item.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::page::Page;
use super::table::Buffered;
use super::{HashLog, Shard};
use crate::KeyHash;
use crate::config::Removal as Reason;
use crate::flash::{DestructorCallback, Waiting};

/// Recorded removals above which inserts wait.
pub(super) const MAX_PENDING: usize = 16_384;
/// Removals that one step completes concurrently.
const PER_STEP: usize = 32;

/// A removal whose key's entry is still in the index.
#[derive(Debug, Clone)]
pub struct PendingRemoval {
    key: Box<[u8]>,
    /// The removed version is in a region after this one, at most in the region of the map's key.
    after: u64,
    /// The reason for the destructor call, `None` for no call.
    destructor_reason: Option<Reason>,
    /// Ascending in the order of removals.
    number: u64,
}

/// The pending removals of a shard, by hash and newest region at the time.
#[derive(Debug, Default)]
pub struct PendingRemovals(BTreeMap<(KeyHash, u64), PendingRemoval>);

impl PendingRemovals {
    /// Versions of a key with this hash in regions up to this one are removed.
    pub fn removed_through(&self, hash: KeyHash) -> u64 {
        if self.0.is_empty() {
            return 0;
        }
        self.0.range((hash, 0)..=(hash, u64::MAX)).next_back().map_or(0, |((_, through), _)| *through)
    }

    /// Removes and returns the pending removal that covers `key`'s version in region `sequence`.
    fn take_of(&mut self, hash: KeyHash, key: &[u8], sequence: u64) -> Option<PendingRemoval> {
        let mut later = self.0.range((hash, sequence)..=(hash, u64::MAX));
        let place = later.find(|(_, it)| it.after < sequence && *it.key == *key).map(|(place, _)| *place)?;
        self.0.remove(&place)
    }

    /// Removes all. Returns how many there were.
    pub fn clear(&mut self) -> usize {
        let count = self.0.len();
        self.0.clear();
        count
    }
}

impl HashLog {
    /// Calls `on_destructor` with each item that is [removed](Self::forget_with_destructor) for a reason, and the eviction callback
    /// with expired items too.
    #[must_use]
    pub fn with_destructor(mut self, on_destructor: DestructorCallback) -> Self {
        self.on_destructor = Some(on_destructor);
        self
    }

    /// Whether every item that leaves the log is reported.
    pub(super) fn reports_all(&self) -> bool {
        self.on_eviction.is_some() || self.on_destructor.is_some()
    }

    /// Records the removal of `key`, if flash may hold a version of it. Returns whether it may.
    pub(super) fn record_removal(
        &self,
        shard: &mut Shard,
        hash: KeyHash,
        key: &[u8],
        destructor_reason: Option<Reason>,
    ) -> bool {
        let (address, live) = (self.address(hash), self.live());
        let after = shard.removals.removed_through(hash);
        if shard.lines.candidates(&address, live).after(after).as_slice().is_empty() {
            return false;
        }
        let number = self.removals_recorded.fetch_add(1, Ordering::AcqRel);
        let removal = PendingRemoval { key: key.into(), after, destructor_reason, number };
        shard.removals.0.insert((hash, live.max), removal);
        self.removals_pending.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// Completes the removal of an item of region `sequence` that was found in a page, if it is pending: takes its entry out of the index.
    /// Returns the reason for its destructor call.
    pub(super) fn complete_removal(
        &self,
        shard: &mut Shard,
        hash: KeyHash,
        key: &[u8],
        sequence: u64,
    ) -> Option<Option<Reason>> {
        let removal = shard.removals.take_of(hash, key, sequence)?;
        self.remove_entry(shard, hash, sequence);
        self.removals_pending.fetch_sub(1, Ordering::AcqRel);
        self.room.notify(usize::MAX);
        Some(removal.destructor_reason)
    }

    /// Removes the entry of region `sequence`.
    pub(super) fn remove_entry(&self, shard: &mut Shard, hash: KeyHash, sequence: u64) -> bool {
        let is_removed = shard.lines.remove_one(&self.address(hash), sequence, self.live());
        if is_removed {
            self.live_items_of(sequence).fetch_sub(1, Ordering::Relaxed);
        }
        is_removed
    }

    /// Calls the destructor of a removed item. No lock is held.
    pub(super) fn report_removed(&self, item: &Buffered, reason: Reason) {
        if let Some(on_destructor) = &self.on_destructor {
            let _report = self.reports.begin(&self.room);
            item.as_flash_item(|item| on_destructor(item, reason));
        }
    }

    /// Calls the destructors of items that were removed before they were written. The caller holds no key's lock.
    pub(crate) fn destroy_dropped(&self) {
        if self.on_destructor.is_none() {
            return;
        }
        let _report = self.reports.begin(&self.room);
        let dropped = std::mem::take(&mut *self.dropped.lock());
        dropped.iter().for_each(|(item, reason)| self.report_removed(item, *reason));
    }

    /// Calls the destructors of all items removed before, and waits for those that other tasks call.
    pub(crate) async fn destroy_removed(&self, waiting: Waiting) {
        let before = self.removals_recorded.load(Ordering::Acquire);
        while self.complete_removals(before, waiting).await > 0 {}
        self.destroy_dropped();
        loop {
            let reported = self.room.listen();
            if !self.reports.is_any_in_progress() {
                return;
            }
            waiting.notified(reported).await;
        }
    }

    /// Completes some of the removals with numbers below `before`. Returns how many.
    pub(super) async fn complete_removals(&self, before: u64, waiting: Waiting) -> usize {
        if self.removals_pending.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut chosen = Vec::new();
        for (number, shard) in self.shards.iter().enumerate() {
            let shard = shard.lock();
            let earlier = shard.removals.0.iter().filter(|(_, removal)| removal.number < before);
            let left = PER_STEP - chosen.len();
            chosen.extend(earlier.take(left).map(|(place, removal)| (number, *place, removal.clone())));
            if chosen.len() == PER_STEP {
                break;
            }
        }
        let count = chosen.len();
        let completions =
            chosen.into_iter().map(|(shard, place, removal)| self.complete(shard, place, removal, waiting));
        futures_util::future::join_all(completions).await;
        count
    }

    async fn complete(&self, shard: usize, place: (KeyHash, u64), removal: PendingRemoval, waiting: Waiting) {
        let (hash, through) = place;
        let candidates = {
            let shard = self.shards[shard].lock();
            shard.lines.all_after(&self.address(hash), removal.after, self.live())
        };
        let (mut found, mut unreadable) = (None, Vec::new());
        for sequence in candidates.into_iter().filter(|sequence| *sequence <= through) {
            match self.find_in(sequence, hash, &removal.key, waiting).await {
                Ok(Some(item)) => {
                    found = Some((sequence, item));
                    break;
                }
                Ok(None) => {}
                Err(Unreadable) => unreadable.push(sequence),
            }
        }
        let _report = self.reports.begin(&self.room);
        {
            let mut shard = self.shards[shard].lock();
            // Another task may have completed it, or the log was cleared.
            let is_pending = shard.removals.0.get(&place).is_some_and(|it| it.number == removal.number);
            if !is_pending {
                return;
            }
            shard.removals.0.remove(&place);
            // A page that cannot be read may hold the key: its entry must not be found again.
            let entries = found.iter().map(|(sequence, _)| *sequence).chain(unreadable);
            for sequence in entries {
                self.remove_entry(&mut shard, hash, sequence);
            }
        }
        self.removals_pending.fetch_sub(1, Ordering::AcqRel);
        if let (Some((_, item)), Some(reason)) = (found, removal.destructor_reason) {
            self.report_removed(&item, reason);
        }
    }

    /// The item with this key in region `sequence`.
    async fn find_in(
        &self,
        sequence: u64,
        hash: KeyHash,
        key: &[u8],
        waiting: Waiting,
    ) -> Result<Option<Buffered>, Unreadable> {
        let Some(region) = self.region(sequence) else { return Ok(None) };
        let Some(page) = region.fences.page_of(hash) else { return Ok(None) };
        let bytes = self.read_page(&region, page, waiting).await.ok_or(Unreadable)?;
        let found = Page::find(&bytes, self.identity(&region, page), key).map_err(|_| Unreadable)?;
        Ok(found.map(|entry| Buffered::of(hash, &entry)))
    }
}

/// A page that cannot be read or verified.
struct Unreadable;
