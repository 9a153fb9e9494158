//! Changes since the last commit.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;

use crate::volume::record::{PageContents, Record};

#[cfg(test)]
thread_local! {
    /// Blocks, slots and records of removed blocks that this thread examined.
    pub(crate) static EXAMINED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
pub(crate) fn count_examined(count: u64) {
    EXAMINED.set(EXAMINED.get() + count);
}

/// Changes in memory that are not known to be on flash.
///
/// Only the last contents of each page are kept: a record replaces the previous one.
#[derive(Default)]
pub(super) struct Changes {
    records: BTreeMap<u32, Pending>,
    /// Pages that become free when the next commit is durable.
    released: Vec<ReleasedPage>,
    /// Blocks that were removed, while recovery may still find records of them.
    stale: BTreeMap<u64, StaleRecords>,
    /// The number of failed disk flushes when the first write since the last disk flush began; `None` without such a write.
    disk_written: Option<u64>,
    number: u64,
    /// All dirty blocks written up to this change are durable by a flush of the intent log.
    log_durable: u64,
    /// Clean blocks among the records that were written since the last commit. The intent log does not record them.
    clean_inserted: usize,
    /// Pages that changed since the last intent log entry.
    to_log: BTreeSet<u32>,
    /// Pages that the intent log or a failed commit may have recorded, and no commit yet.
    logged: HashSet<u32>,
    /// Pages that became clean, which flash may record as dirty.
    cleaned: HashSet<u32>,
    /// Such pages among the changes of the commit in flight.
    cleaned_in_flight: HashSet<u32>,
    /// Pages that recovery compares with the last commit, which wrote them: they must not change before the next one. Only recorded
    /// if recovery restores no clean blocks; otherwise no page is released without a record.
    verified: HashSet<u32>,
    /// Pages that recovery will compare with the commit in flight.
    verified_in_flight: HashSet<u32>,
    /// Records of the commit in flight, which become pending again if the disk's flush before it fails.
    returning: usize,
}

/// The record of a page that no commit has yet.
#[derive(Clone, Copy)]
struct Pending {
    held: Option<PageContents>,
    /// The number of the change.
    number: u64,
}

impl Pending {
    fn is_clean_insert(&self) -> bool {
        self.held.is_some_and(|held| held.fresh && !held.dirty)
    }
}

/// A page that no longer holds a block.
struct ReleasedPage {
    page: u32,
    block: u64,
    /// Whether flash may record its block as dirty.
    may_be_dirty: bool,
}

/// How many records of a removed block recovery may find.
#[derive(Default)]
struct StaleRecords {
    times: u32,
    /// Records among `times` that mark the block as dirty.
    dirty: u32,
}

/// The changes of one commit.
#[derive(Default)]
pub(super) struct Batch {
    records: BTreeMap<u32, Pending>,
    released: Vec<ReleasedPage>,
    logged: HashSet<u32>,
    /// Pages that the intent log has not recorded.
    to_log: BTreeSet<u32>,
    /// `Some` if a record of a clean block requires a disk flush before the commit: the number of failed disk flushes that is acceptable.
    pub(super) flush_disk: Option<u64>,
    /// All changes up to this one are included.
    pub(super) number: u64,
}

/// When a page that no longer holds a block becomes free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageRelease {
    /// Immediately: flash has no record of its block.
    Immediate,
    /// After the next commit.
    AfterCommit,
}

impl Changes {
    /// Records the contents of `page`.
    pub(super) fn hold(&mut self, page: u32, held: PageContents) {
        self.number += 1;
        // Clean blocks need no intent log entry: the disk has them.
        if held.fresh && held.dirty {
            self.to_log.insert(page);
        }
        self.replace(page, Some(held));
    }

    fn replace(&mut self, page: u32, held: Option<PageContents>) {
        let pending = Pending { held, number: self.number };
        self.clean_inserted += usize::from(pending.is_clean_insert());
        let previous = self.records.insert(page, pending);
        self.clean_inserted -= usize::from(previous.is_some_and(|pending| pending.is_clean_insert()));
    }

    /// Records that the contents of `page` became clean; the disk was flushed. A page written since the last commit stays fresh.
    pub(super) fn record_clean(&mut self, page: u32, held: PageContents) {
        let known = self.records.get(&page).and_then(|pending| pending.held);
        let fresh = known.filter(|known| known.fresh);
        self.cleaned.insert(page);
        self.to_log.remove(&page);
        self.hold(
            page,
            PageContents { fresh: fresh.is_some(), crc: fresh.map_or(held.crc, |known| known.crc), ..held },
        );
    }

    /// Whether the release of `page`, whose block was `dirty`, needs no record if recovery restores no clean blocks: flash does not
    /// record the page as dirty.
    pub(super) fn is_recorded_clean(&self, page: u32, dirty: bool) -> bool {
        let may_be_dirty = dirty || self.cleaned.contains(&page) || self.cleaned_in_flight.contains(&page);
        let is_verified = self.verified.contains(&page) || self.verified_in_flight.contains(&page);
        !may_be_dirty && !is_verified && !self.records.contains_key(&page)
    }

    /// Records that `page` lost `block`. With `is_writing_table` even uncommitted contents may be on flash.
    pub(super) fn release(
        &mut self,
        page: u32,
        block: u64,
        dirty: bool,
        is_writing_table: bool,
    ) -> PageRelease {
        self.number += 1;
        let is_unrecorded =
            self.records.get(&page).is_some_and(|pending| pending.held.is_some_and(|held| held.fresh))
                && !is_writing_table;
        let is_unrecorded = is_unrecorded && !self.logged.contains(&page);
        if is_unrecorded {
            self.to_log.remove(&page);
            let previous = self.records.remove(&page);
            self.clean_inserted -= usize::from(previous.is_some_and(|pending| pending.is_clean_insert()));
            return PageRelease::Immediate;
        }
        self.to_log.insert(page);
        self.replace(page, None);
        let may_be_dirty = dirty || self.cleaned.contains(&page) || self.cleaned_in_flight.contains(&page);
        self.released.push(ReleasedPage { page, block, may_be_dirty });
        let stale = self.stale.entry(block).or_default();
        stale.times += 1;
        stale.dirty += u32::from(may_be_dirty);
        PageRelease::AfterCommit
    }

    /// Records a disk write that began when `flushes_failed` flushes had failed.
    pub(super) fn disk_written(&mut self, flushes_failed: u64) {
        self.number += 1;
        self.disk_written = earlier(self.disk_written, Some(flushes_failed));
    }

    /// Number of the last change.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Whether recovery could restore one of `blocks` although it was removed; with `only_dirty`, whether it could restore one
    /// as dirty.
    pub(super) fn may_be_recovered(&self, blocks: Range<u64>, only_dirty: bool) -> bool {
        let matters = |stale: &StaleRecords| {
            #[cfg(test)]
            count_examined(1);
            !only_dirty || stale.dirty > 0
        };
        self.stale.range(blocks).any(|(_, stale)| matters(stale))
    }

    /// Whether the dirty contents of `page` are in a commit that has begun, or durable by the intent log.
    pub(super) fn is_committed(&self, page: u32) -> bool {
        self.records.get(&page).is_none_or(|pending| pending.number <= self.log_durable)
    }

    /// Records that the flash was flushed after an intent log entry with all changes up to `number`.
    pub(super) fn log_flushed(&mut self, number: u64) {
        self.log_durable = self.log_durable.max(number);
    }

    /// All dirty blocks written up to this change are durable by a flush of the intent log.
    pub(super) fn log_durable(&self) -> u64 {
        self.log_durable
    }

    /// Whether the disk was written and not flushed since.
    pub(super) fn is_disk_written(&self) -> bool {
        self.disk_written.is_some()
    }

    /// Clean blocks that were inserted since the last commit.
    pub(super) fn clean_inserted(&self) -> usize {
        self.clean_inserted
    }

    /// Whether blocks became clean since the last commit.
    pub(super) fn has_cleaned(&self) -> bool {
        !self.cleaned.is_empty()
    }

    /// Upper bound of the units in a commit of all changes.
    pub(super) fn units(&self) -> usize {
        (self.records.len() + self.returning) * 2
    }

    /// Exact number of units in a commit of all changes.
    pub(super) fn exact_units(&self) -> usize {
        self.records.iter().map(|(&page, pending)| Record { page, held: pending.held }.units()).sum()
    }

    /// Number of pages that the next commit frees.
    pub(super) fn released_pages(&self) -> usize {
        self.released.len()
    }

    /// Upper bound of the units in an intent log entry of all changes since the last one.
    pub(super) fn units_to_log(&self) -> usize {
        self.to_log.len() * 2
    }

    /// Takes the changes since the last intent log entry for the next one. They stay pending for a commit.
    pub(super) fn take_unlogged(&mut self) -> Vec<Record> {
        let pages = std::mem::take(&mut self.to_log);
        let record = |page: u32| self.records.get(&page).map(|pending| Record { page, held: pending.held });
        let records: Vec<Record> = pages.into_iter().filter_map(record).collect();
        self.logged.extend(records.iter().map(|record| record.page));
        records
    }

    /// Adds the records that recovery found in the intent log, for the commit that ends recovery.
    pub(super) fn restore(&mut self, records: impl IntoIterator<Item = Record>) {
        self.number += 1;
        let number = self.number;
        let pending = |Record { page, held }| (page, Pending { held, number });
        self.records.extend(records.into_iter().map(pending));
    }

    /// Takes all changes for a commit. `recovers_clean`: whether recovery restores clean blocks until the next one.
    pub(super) fn take(&mut self, recovers_clean: bool) -> Batch {
        if !recovers_clean {
            let is_fresh = |pending: &Pending| pending.held.is_some_and(|held| held.fresh);
            let fresh = self.records.iter().filter(|(_, pending)| is_fresh(pending));
            self.verified_in_flight = fresh.map(|(&page, _)| page).collect();
        }
        self.cleaned_in_flight = std::mem::take(&mut self.cleaned);
        self.clean_inserted = 0;
        self.returning = if self.disk_written.is_some() { self.records.len() } else { 0 };
        Batch {
            logged: std::mem::take(&mut self.logged),
            to_log: std::mem::take(&mut self.to_log),
            records: std::mem::take(&mut self.records),
            released: std::mem::take(&mut self.released),
            flush_disk: self.disk_written.take(),
            number: self.number,
        }
    }

    /// Whether dirty blocks have records that are neither in a commit nor durable by the intent log.
    pub(super) fn needs_flash(&self) -> bool {
        let is_dirty = |pending: &Pending| pending.held.is_some_and(|held| held.dirty);
        self.records.values().any(|pending| is_dirty(pending) && pending.number > self.log_durable)
    }

    /// Takes only the pending disk flush, for a commit after the flash has failed.
    pub(super) fn take_disk_written(&mut self) -> Batch {
        let flush_disk = self.disk_written.take();
        Batch { flush_disk, number: self.number, ..Batch::default() }
    }

    /// The disk was flushed, or did not need to be: the commit continues with the flash.
    pub(super) fn disk_flushed(&mut self) {
        self.returning = 0;
    }

    /// The commit is durable. Returns the pages that are free now.
    pub(super) fn committed(&mut self, batch: Batch) -> impl Iterator<Item = u32> + use<> {
        self.cleaned_in_flight.clear();
        self.verified = std::mem::take(&mut self.verified_in_flight);
        for ReleasedPage { block, may_be_dirty, .. } in &batch.released {
            if let Some(stale) = self.stale.get_mut(block) {
                stale.times -= 1;
                stale.dirty -= u32::from(*may_be_dirty);
                if stale.times == 0 {
                    self.stale.remove(block);
                }
            }
        }
        batch.released.into_iter().map(|released| released.page)
    }

    /// Restores the changes of a commit that failed when flash may have all of it: recovery may find it, though it was not acknowledged.
    pub(super) fn put_back_as_written(&mut self, mut batch: Batch) {
        batch.logged.extend(batch.records.keys());
        self.put_back(batch);
    }

    /// Restores the changes of a commit that failed before it was written, for the next commit.
    pub(super) fn put_back(&mut self, batch: Batch) {
        self.returning = 0;
        for (page, pending) in batch.records {
            let newer = self.records.entry(page).or_insert(pending);
            // A page whose write no commit has confirmed stays fresh.
            if let (Some(newer), Some(held)) = (&mut newer.held, pending.held)
                && held.fresh
                && newer.block == held.block
            {
                (newer.fresh, newer.crc) = (true, held.crc);
            }
        }
        self.clean_inserted = self.records.values().filter(|pending| pending.is_clean_insert()).count();
        self.released.extend(batch.released);
        self.disk_written = earlier(self.disk_written, batch.flush_disk);
        self.logged.extend(batch.logged);
        self.cleaned.extend(self.cleaned_in_flight.drain());
        self.verified.extend(self.verified_in_flight.drain());
        self.to_log.extend(batch.to_log);
    }
}

/// The smaller of two optional numbers.
fn earlier(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

impl Batch {
    /// Whether there is anything to write to the journal.
    pub(super) fn has_records(&self) -> bool {
        !self.records.is_empty() || !self.released.is_empty()
    }

    /// The records of the commit.
    pub(super) fn records(&self) -> impl Iterator<Item = Record> + '_ {
        self.records.iter().map(|(&page, pending)| Record { page, held: pending.held })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sets::PolicyState;

    fn held(block: u64, dirty: bool) -> PageContents {
        PageContents {
            block,
            dirty,
            partial: None,
            crc: 1,
            fresh: true,
            epoch: 0,
            policy_state: PolicyState::default(),
        }
    }

    fn logged(changes: &mut Changes) -> Vec<(u32, Option<u64>)> {
        let records = changes.take_unlogged();
        records.iter().map(|record| (record.page, record.held.map(|held| held.block))).collect()
    }

    /// A commit that failed before it wrote anything must not change what the next entry records.
    #[test]
    fn failed_commit_keeps_unlogged_changes() {
        let mut changes = Changes::default();
        changes.hold(1, held(10, true));
        assert_eq!(logged(&mut changes), [(1, Some(10))]);
        changes.hold(2, held(20, true));
        changes.hold(3, held(30, true));
        changes.hold(4, held(40, false));
        let batch = changes.take(true);
        // Meanwhile block 20 is written again, and block 50 for the first time.
        assert!(matches!(changes.release(2, 20, true, false), PageRelease::AfterCommit));
        changes.hold(5, held(20, true));
        changes.hold(6, held(50, true));
        changes.put_back(batch);
        assert_eq!(logged(&mut changes), [(2, None), (3, Some(30)), (5, Some(20)), (6, Some(50))]);
    }

    #[test]
    fn page_that_the_last_commit_wrote_is_not_released_without_a_record() {
        let mut changes = Changes::default();
        changes.hold(1, held(10, true));
        changes.record_clean(1, held(10, false));
        assert!(!changes.is_recorded_clean(1, false), "its record is pending");
        let batch = changes.take(false);
        assert!(!changes.is_recorded_clean(1, false), "its commit is in flight");
        let _free = changes.committed(batch);
        assert!(!changes.is_recorded_clean(1, false), "recovery compares it with the last commit");
        changes.hold(2, held(20, true));
        let batch = changes.take(false);
        let _free = changes.committed(batch);
        assert!(changes.is_recorded_clean(1, false));
        assert!(!changes.is_recorded_clean(1, true));
    }

    /// The disk was flushed before the page became clean, so the intent log may record its removal; a commit, which flushes both
    /// devices, is not needed.
    #[test]
    fn release_of_a_clean_page_is_logged() {
        for fails in [false, true] {
            let mut changes = Changes::default();
            changes.hold(1, held(10, true));
            let batch = changes.take(true);
            let _free = changes.committed(batch);
            changes.record_clean(1, PageContents { fresh: false, ..held(10, false) });
            assert_eq!(logged(&mut changes), [], "a clean page is not logged");
            if fails {
                let batch = changes.take(true);
                changes.put_back(batch);
            }
            assert!(matches!(changes.release(1, 10, false, false), PageRelease::AfterCommit));
            assert_eq!(logged(&mut changes), [(1, None)]);
            // Until a commit, recovery may restore the block as dirty.
            assert!(changes.may_be_recovered(10..11, true));
        }
    }
}
