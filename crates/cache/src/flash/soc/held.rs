//! Failed writes whose content stays in memory until they are retried.
//!
//! A get finds the entries of such a write. No other write may change its buckets. While the device fails, at most two writes are held, and
//! no further write starts.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::Soc;
use super::landing::{Write, WriteInFlight};
use crate::flash::Waiting;

/// Maximum number of writes held or in flight while the device fails.
pub(super) const MOST_WHILE_FAILING: usize = 2;

/// The failed writes, oldest first, each with the time of its next attempt.
#[derive(Default)]
pub(super) struct HeldWrites {
    writes: Mutex<Vec<(u64, Write)>>,
    count: AtomicUsize,
}

impl HeldWrites {
    pub(super) fn add(&self, due_ns: u64, write: Write) {
        let mut writes = self.writes.lock();
        writes.push((due_ns, write));
        self.count.store(writes.len(), Ordering::Release);
    }

    /// The number of held writes. Takes no lock.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    pub(super) fn is_any(&self) -> bool {
        self.count() > 0
    }

    /// The time of the next retry.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        if !self.is_any() {
            return None;
        }
        self.writes.lock().iter().map(|(due_ns, _)| *due_ns).min()
    }

    /// Takes the oldest `most` writes that are due.
    fn take(&self, most: usize, is_due: impl Fn(u64) -> bool) -> Vec<Write> {
        if !self.is_any() {
            return Vec::new();
        }
        let mut writes = self.writes.lock();
        let mut taken = Vec::new();
        let mut at = 0;
        while at < writes.len() && taken.len() < most {
            if is_due(writes[at].0) {
                taken.push(writes.remove(at).1);
            } else {
                at += 1;
            }
        }
        self.count.store(writes.len(), Ordering::Release);
        taken
    }
}

impl Soc {
    /// Whether a caller waits until no entry is pending. Failed writes are then not retried.
    pub(super) fn is_settling(&self) -> bool {
        self.settling.load(Ordering::Acquire) > 0
    }

    /// Whether a held write can be retried now.
    pub(super) fn has_held_due(&self) -> bool {
        self.held.next_due_ns().is_some_and(|due_ns| self.is_held_due(due_ns))
    }

    /// While the device fails, its pause determines the time of the next retry.
    fn is_held_due(&self, due_ns: u64) -> bool {
        self.is_settling()
            || if self.is_failing() { !self.pauses.is_pause() } else { self.pauses.is_over(due_ns) }
    }

    /// Retries the held writes that are due: one while the device fails, otherwise all.
    pub(super) fn take_held(&self, waiting: Waiting) -> impl Iterator<Item = WriteInFlight<'_>> {
        let most = if self.is_failing() && !self.is_settling() { 1 } else { usize::MAX };
        let writes = self.held.take(most, |due_ns| self.is_held_due(due_ns));
        writes.into_iter().map(move |mut write| {
            write.retry(self, waiting);
            WriteInFlight::of(self, write)
        })
    }
}
