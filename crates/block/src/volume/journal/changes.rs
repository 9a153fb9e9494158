//! What has changed since the last commit.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;

use crate::volume::record::{Held, Record};

/// Changes that are in memory and not yet, or not certainly, on flash.
///
/// Only the last state of each page matters: a record replaces the one before.
#[derive(Default)]
pub(crate) struct Changes {
    records: BTreeMap<u32, Option<Held>>,
    /// Pages that are free once the next commit is on flash.
    leaving: Vec<Leaving>,
    /// Blocks of which flash may still say that it has an older version.
    left: BTreeMap<u64, Left>,
    /// The disk was written to and not flushed since: how many of its flushes had failed when the first such write began.
    disk_written: Option<u64>,
    number: u64,
    /// Pages that changed since the last note.
    to_note: BTreeSet<u32>,
    /// Pages that a note may have told of, or a commit that failed, and no commit yet.
    noted: HashSet<u32>,
    /// Pages that became clean, of which flash may say that they are dirty.
    turned: HashSet<u32>,
    /// Those of the commit under way.
    turning: HashSet<u32>,
    /// Records of the commit under way, which come back if the disk's flush before it fails.
    returning: usize,
}

/// A page that lost its block.
struct Leaving {
    page: u32,
    block: u64,
    /// Whether flash may say that what it held was dirty.
    told_dirty: bool,
}

/// How often flash may still say something of a block.
#[derive(Default)]
struct Left {
    times: u32,
    /// How often of these that it is dirty.
    dirty: u32,
}

/// What a commit makes durable.
#[derive(Default)]
pub(crate) struct Batch {
    records: BTreeMap<u32, Option<Held>>,
    leaving: Vec<Leaving>,
    noted: HashSet<u32>,
    /// What no note had told of.
    to_note: BTreeSet<u32>,
    /// Whether the disk is to be flushed first (a record that says "clean" must not outlive what it says of the disk), and how many
    /// of its flushes may have failed by then.
    pub(crate) flush_disk: Option<u64>,
    /// All changes up to this one are in it.
    pub(crate) number: u64,
}

/// What becomes of a page that loses its block.
pub(crate) enum Gone {
    /// Flash never heard that it held anything: it is free at once.
    AtOnce,
    /// It is free after the next commit.
    AfterCommit,
}

impl Changes {
    /// `page` holds this from now on.
    pub(crate) fn hold(&mut self, page: u32, held: Held) {
        self.number += 1;
        // What was filled from the disk needs no note: nobody was told that it is here.
        if held.fresh && held.dirty {
            self.to_note.insert(page);
        }
        self.records.insert(page, Some(held));
    }

    /// What `page` holds became clean: the disk has it, and was flushed. What was written since the last commit stays fresh.
    pub(crate) fn turn(&mut self, page: u32, held: Held) {
        let known = self.records.get(&page).copied().flatten();
        let fresh = known.filter(|known| known.fresh);
        self.turned.insert(page);
        self.to_note.remove(&page);
        self.hold(
            page,
            Held { fresh: fresh.is_some(), crc: fresh.map_or(held.crc, |known| known.crc), ..held },
        );
    }

    /// `page` holds `block` no more, which was dirty there or not. With `table_in_writing` even what was never committed may have
    /// been told.
    pub(crate) fn leave(&mut self, page: u32, block: u64, dirty: bool, table_in_writing: bool) -> Gone {
        self.number += 1;
        let never_told =
            matches!(self.records.get(&page), Some(Some(held)) if held.fresh) && !table_in_writing;
        let never_told = never_told && !self.noted.contains(&page);
        if never_told {
            self.to_note.remove(&page);
            self.records.remove(&page);
            return Gone::AtOnce;
        }
        self.to_note.insert(page);
        self.records.insert(page, None);
        let told_dirty = dirty || self.turned.contains(&page) || self.turning.contains(&page);
        self.leaving.push(Leaving { page, block, told_dirty });
        let left = self.left.entry(block).or_default();
        left.times += 1;
        left.dirty += u32::from(told_dirty);
        Gone::AfterCommit
    }

    /// The disk was written to, by a request that began when so many of its flushes had failed.
    pub(crate) fn disk_written(&mut self, flushes_failed: u64) {
        self.number += 1;
        self.disk_written = earlier(self.disk_written, Some(flushes_failed));
    }

    /// Number of the last change.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether flash may say after a crash that it holds any of `blocks`, although it does not any more; or only that what it holds is
    /// newer than the disk's.
    pub(crate) fn may_come_back(&self, blocks: Range<u64>, only_dirty: bool) -> bool {
        let matters = |left: &Left| {
            #[cfg(test)]
            crate::volume::trim::count_looks(1);
            !only_dirty || left.dirty > 0
        };
        self.left.range(blocks).any(|(_, left)| matters(left))
    }

    /// Whether what `page` holds was part of a commit begun.
    pub(crate) fn is_told(&self, page: u32) -> bool {
        !self.records.contains_key(&page)
    }

    /// Units that a commit of all would take, at most.
    pub(crate) fn units(&self) -> usize {
        (self.records.len() + self.returning) * 2
    }

    /// Units that a commit of all takes.
    pub(crate) fn exact_units(&self) -> usize {
        self.records.iter().map(|(&page, &held)| Record { page, held }.units()).sum()
    }

    /// Pages that wait for a commit.
    pub(crate) fn leaving(&self) -> usize {
        self.leaving.len()
    }

    /// Units that a note of all that changed since the last one would take, at most.
    pub(crate) fn units_to_note(&self) -> usize {
        self.to_note.len() * 2
    }

    /// What changed since the last note, for the next. It stays to be committed.
    pub(crate) fn take_notes(&mut self) -> Vec<Record> {
        let pages = std::mem::take(&mut self.to_note);
        let record = |page: u32| self.records.get(&page).map(|&held| Record { page, held });
        let records: Vec<Record> = pages.into_iter().filter_map(record).collect();
        self.noted.extend(records.iter().map(|record| record.page));
        records
    }

    /// What recovery found in notes: to be told by its commit.
    pub(crate) fn restore(&mut self, records: impl IntoIterator<Item = Record>) {
        self.number += 1;
        self.records.extend(records.into_iter().map(|record| (record.page, record.held)));
    }

    /// Takes all changes for a commit.
    pub(crate) fn take(&mut self) -> Batch {
        self.turning = std::mem::take(&mut self.turned);
        self.returning = if self.disk_written.is_some() { self.records.len() } else { 0 };
        Batch {
            noted: std::mem::take(&mut self.noted),
            to_note: std::mem::take(&mut self.to_note),
            records: std::mem::take(&mut self.records),
            leaving: std::mem::take(&mut self.leaving),
            flush_disk: self.disk_written.take(),
            number: self.number,
        }
    }

    /// Whether anything is newer on flash than on the disk and was not told of by a commit.
    pub(crate) fn needs_flash(&self) -> bool {
        self.records.values().flatten().any(|held| held.dirty)
    }

    /// Takes for a commit that the disk was written, and nothing else: of a flash that takes no more.
    pub(crate) fn take_disk_written(&mut self) -> Batch {
        let flush_disk = self.disk_written.take();
        Batch { flush_disk, number: self.number, ..Batch::default() }
    }

    /// The disk's flush succeeded, or there was none to do: the commit under way goes on to the flash.
    pub(crate) fn disk_flushed(&mut self) {
        self.returning = 0;
    }

    /// The commit is on flash; the answer is the pages that are free now.
    pub(crate) fn committed(&mut self, batch: Batch) -> impl Iterator<Item = u32> + use<> {
        self.turning.clear();
        for Leaving { block, told_dirty, .. } in &batch.leaving {
            if let Some(left) = self.left.get_mut(block) {
                left.times -= 1;
                left.dirty -= u32::from(*told_dirty);
                if left.times == 0 {
                    self.left.remove(block);
                }
            }
        }
        batch.leaving.into_iter().map(|leaving| leaving.page)
    }

    /// The commit failed when flash may have had all of it: after a crash it may count, though nothing was told to have been done.
    pub(crate) fn put_back_as_told(&mut self, mut batch: Batch) {
        batch.noted.extend(batch.records.keys());
        self.put_back(batch);
    }

    /// The commit failed before flash had any of it: its changes are to be told with the next one.
    pub(crate) fn put_back(&mut self, batch: Batch) {
        self.returning = 0;
        for (page, held) in batch.records {
            let newer = self.records.entry(page).or_insert(held);
            // A page whose writing no commit has confirmed stays fresh, whatever else changed about it.
            if let (Some(newer), Some(held)) = (newer, held)
                && held.fresh
                && newer.block == held.block
            {
                (newer.fresh, newer.crc) = (true, held.crc);
            }
        }
        self.leaving.extend(batch.leaving);
        self.disk_written = earlier(self.disk_written, batch.flush_disk);
        self.noted.extend(batch.noted);
        self.turned.extend(self.turning.drain());
        self.to_note.extend(batch.to_note);
    }
}

/// The smaller of two, where there is any.
fn earlier(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

impl Batch {
    /// Whether the journal has anything to say.
    pub(crate) fn has_records(&self) -> bool {
        !self.records.is_empty() || !self.leaving.is_empty()
    }

    /// What it says of each page.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record> + '_ {
        self.records.iter().map(|(&page, &held)| Record { page, held })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sets::Standing;

    fn held(block: u64, dirty: bool) -> Held {
        Held { block, dirty, partial: None, crc: 1, fresh: true, epoch: 0, standing: Standing::default() }
    }

    fn noted(changes: &mut Changes) -> Vec<(u32, Option<u64>)> {
        let records = changes.take_notes();
        records.iter().map(|record| (record.page, record.held.map(|held| held.block))).collect()
    }

    /// A commit that failed before it told anything has changed nothing.
    #[test]
    fn after_a_failed_commit_that_is_to_be_noted_which_was_before() {
        let mut changes = Changes::default();
        changes.hold(1, held(10, true));
        assert_eq!(noted(&mut changes), [(1, Some(10))]);
        changes.hold(2, held(20, true));
        changes.hold(3, held(30, true));
        changes.hold(4, held(40, false));
        let batch = changes.take();
        // Meanwhile block 20 is written again, and block 50 for the first time.
        assert!(matches!(changes.leave(2, 20, true, false), Gone::AfterCommit));
        changes.hold(5, held(20, true));
        changes.hold(6, held(50, true));
        changes.put_back(batch);
        assert_eq!(noted(&mut changes), [(2, None), (3, Some(30)), (5, Some(20)), (6, Some(50))]);
    }

    /// The disk has been flushed before it became clean, so that it can leave without a commit, which flushes both devices: one
    /// followed on each cleaning.
    #[test]
    fn a_page_that_became_clean_and_left_was_told_of_by_commits_alone() {
        for fails in [false, true] {
            let mut changes = Changes::default();
            changes.hold(1, held(10, true));
            let batch = changes.take();
            let _free = changes.committed(batch);
            changes.turn(1, Held { fresh: false, ..held(10, false) });
            assert_eq!(noted(&mut changes), [], "nothing is lost if it is dirty again");
            if fails {
                let batch = changes.take();
                changes.put_back(batch);
            }
            assert!(matches!(changes.leave(1, 10, false, false), Gone::AfterCommit));
            assert_eq!(noted(&mut changes), [(1, None)]);
            // Until then flash may bring it back, and as dirty.
            assert!(changes.may_come_back(10..11, true));
        }
    }
}
