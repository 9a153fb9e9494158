//! Waits until all entries that are pending now are written, regardless of later ones.
//!
//! The waiting task writes nothing itself: it may be dropped, and a write that it submitted would wait for the next step. It moves the
//! pending buckets ahead of all others, and steps of other tasks write them.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::Soc;

impl Soc {
    /// Waits until all entries that are pending now are on flash or lost. Another task must be stepping.
    pub async fn settle(&self) {
        let _settling = Settling::begin(&self.settling);
        let settle_numbers: Vec<_> = self.shards.iter().map(|shard| shard.lock().begin_settle()).collect();
        for (shard, number) in self.shards.iter().zip(settle_numbers) {
            loop {
                // Each completed write notifies `room`.
                let written = self.room.listen();
                if !shard.lock().has_older_than(number) {
                    break;
                }
                self.work.notify(usize::MAX);
                written.await;
            }
        }
        self.destroy_dropped();
        loop {
            let reported = self.room.listen();
            if self.on_destructor.is_none() || !self.reports.is_any_in_progress() {
                return;
            }
            reported.await;
        }
    }
}

/// Counts a caller that waits until nothing is pending.
pub(super) struct Settling<'a>(&'a AtomicUsize);

impl<'a> Settling<'a> {
    pub(super) fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
