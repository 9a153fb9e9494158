//! A write under way, and what becomes of its buckets when it ends.
//!
//! A device carries out what was begun, though the step that waited for it be dropped; it lands when it likes. So a dropped
//! step leaves its writes to the next one. Until a write has ended, what it contains stays visible as what waits, and its
//! buckets belong to it: no other write of them can meet it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{IoBuffer, IoError, Pending};

use super::bucket::{Bucket, BucketId};
use super::pending::{Group, Waiter};
use super::write_back::{Change, Progress};
use super::{Soc, SocStats};

/// A write under way: the buckets it settles, their new content, and what happened to each.
pub struct Write {
    pub group: Group,
    pub buffer: Arc<IoBuffer>,
    pub changes: Vec<Change>,
    /// `None` if nothing has to be written.
    pub written: Option<Pending>,
}

impl Soc {
    /// The writes that dropped steps left, for this one to see their end.
    pub(super) fn take_over(&self) -> impl Iterator<Item = Landing<'_>> {
        let left_over = std::mem::take(&mut *self.left_over.lock());
        left_over.into_iter().map(|write| Landing { soc: self, write: Some(write) })
    }

    /// Whether a dropped step left a write that nobody waits for.
    pub(super) fn has_left_over(&self) -> bool {
        !self.left_over.lock().is_empty()
    }
}

/// Waiting for a write to end. Leaves it to the next step if it is dropped before.
pub(super) struct Landing<'soc> {
    soc: &'soc Soc,
    write: Option<Write>,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        if let Some(write) = self.write.take() {
            self.soc.left_over.lock().push(write);
            self.soc.wake();
        }
    }
}

impl<'soc> Landing<'soc> {
    pub(super) fn of(soc: &'soc Soc, write: Write) -> Self {
        Self { soc, write: Some(write) }
    }

    /// Waits for the write, then settles its buckets.
    pub(super) async fn end(mut self) -> Progress {
        let outcome = match self.write.as_mut().and_then(|write| write.written.as_mut()) {
            Some(written) => Some(written.await),
            None => None,
        };
        let Some(write) = self.write.take() else { return Progress::default() };
        let outcome = outcome.map_or(Ok(0), |outcome| outcome.map(|_| write.buffer.len()));
        write.settle(self.soc, &outcome)
    }
}

impl Write {
    /// The write has ended. Filters first, then the table: a key must be found in one of them all the time.
    fn settle(mut self, soc: &Soc, outcome: &Result<usize, IoError>) -> Progress {
        let bucket_bytes = soc.config.bucket_bytes as usize;
        let mut progress = Progress::default();
        for ((bytes, change), (id, waiters)) in
            self.buffer.chunks_exact(bucket_bytes).zip(&mut self.changes).zip(self.group.members())
        {
            let bucket = Bucket::sealed_here(bytes);
            // Under one lock until the end: whoever clears the cache came before, or finds the bucket as it is then.
            let mut shard = soc.shard(id).lock();
            if shard.is_cleared(id) {
                change.clear();
            }
            let kept = outcome.is_ok() && change.items_after > 0;
            if kept {
                soc.filters.rebuild(id, &bucket.fingerprints());
                soc.written.set(id, true);
            } else {
                soc.disown(id);
            }
            change.count(&mut shard.stats);
            count_outcome(&mut shard.stats, change, waiters, outcome, bucket_bytes);
            let freed = shard.release(id);
            // Under the lock: whoever sees that nothing waits any more finds its memory given back.
            soc.pending_bytes.fetch_sub(freed, Ordering::AcqRel);
            progress.buckets += 1;
            progress.entries += waiters.len();
        }
        count_write(soc, self.group.first, outcome);
        soc.room.notify(usize::MAX);
        // What came to its buckets since can be taken by others too.
        soc.announce_work();
        if outcome.is_ok() {
            let settled = self.changes.iter().zip(self.group.members());
            settled.for_each(|(change, (id, _))| soc.tell(id, &change.left));
        }
        progress
    }
}

fn count_write(soc: &Soc, first: BucketId, outcome: &Result<usize, IoError>) {
    let mut shard = soc.shard(first).lock();
    match outcome {
        Ok(0) => {}
        Ok(_) => shard.stats.device_writes += 1,
        Err(_) => shard.stats.write_errors += 1,
    }
}

fn count_outcome(
    stats: &mut SocStats,
    change: &Change,
    waiters: &[Waiter],
    outcome: &Result<usize, IoError>,
    bucket_bytes: usize,
) {
    let before = i64::try_from(change.items_before).expect("a bucket's items are few");
    let after = i64::try_from(change.items_after).expect("a bucket's items are few");
    match outcome {
        Ok(written) => {
            stats.items += after - before;
            stats.written_entries += waiters.len() as u64;
            stats.bucket_writes += u64::from(*written > 0);
            stats.physical_written_bytes += if *written > 0 { bucket_bytes as u64 } else { 0 };
        }
        Err(_) => {
            stats.items -= before;
            stats.lost_items += change.items_after as u64;
        }
    }
}
