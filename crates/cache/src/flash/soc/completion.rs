//! A write in flight, and what happens to its buckets when it completes.
//!
//! The device completes a submitted write even if the step that waits for it is dropped. A dropped step leaves its writes to the next step.
//! Until a write completes, its entries stay visible as pending ones, and no other write may touch its buckets.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{IoError, IoSlice, Request};

use super::bucket::{Bucket, BucketId};
use super::change::Change;
use super::pending::{Group, Waiter};
use super::write::{Outcome, Progress, Single, Write};
use super::{Soc, SocStats};
use crate::flash::Waiting;
use crate::flash::outage::Verdict;

impl Soc {
    /// The writes in flight that dropped steps left.
    pub(super) fn take_over(&self) -> impl Iterator<Item = WriteInFlight<'_>> {
        let left_over = std::mem::take(&mut *self.left_over.lock());
        left_over.into_iter().map(|write| WriteInFlight { soc: self, write: Some(write) })
    }

    /// Whether a dropped step left a write in flight.
    pub(super) fn has_left_over(&self) -> bool {
        !self.left_over.lock().is_empty()
    }
}

/// A write that the current step waits for. If it is dropped, the next step takes the write over.
pub(super) struct WriteInFlight<'soc> {
    soc: &'soc Soc,
    write: Option<Write>,
}

impl Drop for WriteInFlight<'_> {
    fn drop(&mut self) {
        if let Some(write) = self.write.take() {
            self.soc.left_over.lock().push(write);
            self.soc.wake();
        }
    }
}

impl<'soc> WriteInFlight<'soc> {
    pub(super) fn of(soc: &'soc Soc, write: Write) -> Self {
        Self { soc, write: Some(write) }
    }

    /// Waits for the write, then settles its buckets.
    pub(super) async fn end(mut self, waiting: Waiting) -> Progress {
        let mut is_written = false;
        if let Some(write) = &mut self.write {
            while let Some(transfer) = &mut write.in_flight {
                is_written = true;
                let ended = transfer.await;
                write.transfer_ended(self.soc, &ended.map(drop), waiting);
            }
        }
        let Some(mut write) = self.write.take() else { return Progress::default() };
        write.hold_failed(self.soc);
        write.settle(self.soc, is_written)
    }
}

impl Write {
    /// Counts the completed transfer, and starts the next one if the write needs another.
    fn transfer_ended(&mut self, soc: &Soc, ended: &Result<(), IoError>, waiting: Waiting) {
        self.in_flight = None;
        count_transfer(soc, self.group.first, ended);
        // If the buckets of a group fail one by one, the first failure shows the state of the device.
        let is_first = match &self.outcome {
            Outcome::Whole => true,
            Outcome::Singly(singles) => !singles.contains(&Single::Failed),
        };
        if ended.is_ok() || is_first {
            soc.note_write(ended);
        }
        match &mut self.outcome {
            Outcome::Whole if ended.is_ok() => return,
            Outcome::Whole if self.changes.len() == 1 => {
                self.outcome = Outcome::Singly(vec![Single::Failed]);
                return;
            }
            Outcome::Whole => self.outcome = Outcome::Singly(vec![Single::Waits; self.changes.len()]),
            Outcome::Singly(singles) => {
                let written = singles.iter_mut().find(|single| **single == Single::Waits);
                *written.expect("a bucket was written") =
                    if ended.is_ok() { Single::Written } else { Single::Failed };
            }
        }
        self.write_next(soc, waiting);
    }

    /// Keeps each failed bucket in memory as a separate write, unless it is lost.
    fn hold_failed(&mut self, soc: &Soc) {
        let Outcome::Singly(singles) = &mut self.outcome else { return };
        if soc.is_settling() || !singles.contains(&Single::Failed) {
            return;
        }
        let due_ns = match soc.pauses.verdict(&mut self.failures) {
            Some(Verdict::Retry { due_ns, alone: false }) => due_ns,
            Some(Verdict::Retry { alone: true, .. } | Verdict::GiveUp) | None => return,
        };
        let failed = singles.iter_mut().enumerate().filter(|(_, single)| **single == Single::Failed);
        for (at, single) in failed {
            *single = Single::Held;
            let group = Group {
                first: BucketId(self.group.first.0 + at as u32),
                frozen: vec![Arc::clone(&self.group.frozen[at])],
                write_number: self.group.write_number,
            };
            let write = Write {
                group,
                buffer: Arc::clone(&self.buffer),
                start: self.start + at * soc.config.bucket_bytes as usize,
                changes: vec![std::mem::take(&mut self.changes[at])],
                in_flight: None,
                outcome: Outcome::Singly(vec![Single::Failed]),
                failures: self.failures,
            };
            soc.held.add(due_ns, write);
        }
    }

    /// Retries the failed buckets.
    pub fn retry(&mut self, soc: &Soc, waiting: Waiting) {
        if let Outcome::Singly(singles) = &mut self.outcome {
            let failed = singles.iter_mut().filter(|single| **single == Single::Failed);
            failed.for_each(|single| *single = Single::Waits);
        }
        self.write_next(soc, waiting);
    }

    /// Starts the write of the next bucket by itself, except those that become empty.
    fn write_next(&mut self, soc: &Soc, waiting: Waiting) {
        let Outcome::Singly(singles) = &mut self.outcome else { return };
        let is_empty =
            |change: &Change| change.items_after == 0 && !change.must_be_written(soc.journal.is_some());
        let empty = singles.iter_mut().zip(&self.changes).filter(|(_, change)| is_empty(change));
        empty.for_each(|(single, _)| *single = Single::Written);
        // The device fails, so the remaining buckets would fail too: they are retried together.
        if singles.contains(&Single::Failed) && soc.is_failing() && !soc.is_settling() {
            let waiting = singles.iter_mut().filter(|single| **single == Single::Waits);
            waiting.for_each(|single| *single = Single::Failed);
        }
        if let Some(at) = singles.iter().position(|single| *single == Single::Waits) {
            let bucket_bytes = soc.config.bucket_bytes as usize;
            let start = self.start + at * bucket_bytes;
            let request = Request::Write {
                offset: soc.offset(self.group.first) + (at * bucket_bytes) as u64,
                data: IoSlice::new(Arc::clone(&self.buffer), start..start + bucket_bytes),
                placement: soc.placement,
            };
            self.in_flight = Some(waiting.start(&*soc.device, request));
        }
    }

    /// Whether the bucket at this index in the group will be retried as a separate write.
    fn is_held(&self, at: usize) -> bool {
        matches!(&self.outcome, Outcome::Singly(singles) if singles[at] == Single::Held)
    }

    /// Whether the bucket at this index in the group could not be written.
    fn is_lost(&self, at: usize) -> bool {
        matches!(&self.outcome, Outcome::Singly(singles) if singles[at] == Single::Failed)
    }

    /// Settles the buckets after the write. The filters are updated before the table, so that a key is always found in one of them.
    fn settle(mut self, soc: &Soc, is_written: bool) -> Progress {
        let bucket_bytes = soc.config.bucket_bytes as usize;
        let mut progress = Progress::default();
        let _report = soc.reports.begin(&soc.room);
        let is_whole = matches!(self.outcome, Outcome::Whole);
        let fates = |write: &Self, at| (write.is_lost(at), write.is_held(at));
        let fates: Vec<(bool, bool)> = (0..self.changes.len()).map(|at| fates(&self, at)).collect();
        let buckets = self.buffer[self.start..].chunks_exact(bucket_bytes);
        for (((bytes, change), (id, waiters)), (is_lost, is_held)) in
            buckets.zip(&mut self.changes).zip(self.group.members()).zip(fates)
        {
            if is_held {
                continue;
            }
            let bucket = Bucket::sealed_here(bytes);
            // One critical section: a concurrent clear runs before it, or finds the bucket in its new state.
            let mut shard = soc.shard(id).lock();
            if shard.is_cleared(id) {
                change.clear();
            }
            let kept = !is_lost && change.items_after > 0;
            if kept {
                soc.filters.rebuild(id, &bucket.fingerprints());
                soc.written.set(id, true);
            } else {
                soc.mark_empty(id);
            }
            change.count(&mut shard.stats);
            // An empty bucket is usually not written by itself.
            let is_here = is_written
                && (is_whole || change.items_after > 0 || change.must_be_written(soc.journal.is_some()));
            if is_lost {
                soc.record_lost(id);
            } else if is_here {
                soc.note_written(id);
            }
            if is_lost {
                change.keep_pending_destructors();
            } else if soc.on_destructor.is_some() {
                let undecided = change.left.iter().filter(|left| left.destructor_reason.is_none());
                undecided.for_each(|left| shard.begin_leaving(id, left.fingerprint));
            }
            if is_lost {
                count_lost(&mut shard.stats, change, waiters);
            } else {
                count_settled(&mut shard.stats, change, waiters, if is_here { bucket_bytes } else { 0 });
            }
            let freed = shard.release(id);
            // Under the lock: a caller that sees no pending entry also sees its memory as free.
            soc.pending_bytes.fetch_sub(freed, Ordering::AcqRel);
            progress.buckets += 1;
            progress.entries += waiters.len();
        }
        soc.room.notify(usize::MAX);
        // Other steps can now take newer entries of the group's buckets.
        soc.announce_work();
        let changes = self.changes.iter().zip(self.group.members());
        changes.for_each(|(change, (id, _))| soc.report_left(id, &change.left));
        progress
    }
}

fn count_transfer(soc: &Soc, first: BucketId, ended: &Result<(), IoError>) {
    let mut shard = soc.shard(first).lock();
    match ended {
        Ok(()) => shard.stats.device_writes += 1,
        Err(_) => shard.stats.write_errors += 1,
    }
}

fn count_settled(stats: &mut SocStats, change: &Change, waiters: &[Waiter], written_bytes: usize) {
    stats.items += signed(change.items_after) - signed(change.items_before);
    stats.written_entries += waiters.len() as u64;
    stats.bucket_writes += u64::from(written_bytes > 0);
    stats.physical_written_bytes += written_bytes as u64;
    let items = waiters.iter().filter_map(|waiter| waiter.bytes.as_ref());
    stats.settled_bytes += items.map(|bytes| bytes.len() as u64).sum::<u64>();
}

fn count_lost(stats: &mut SocStats, change: &Change, waiters: &[Waiter]) {
    stats.items -= signed(change.items_before);
    stats.lost_items += change.items_after as u64;
    for bytes in waiters.iter().filter_map(|waiter| waiter.bytes.as_ref()) {
        stats.unwritten_bytes += bytes.len() as u64;
        stats.unwritten_items += 1;
    }
}

fn signed(items: usize) -> i64 {
    i64::try_from(items).expect("a bucket's items are few")
}
