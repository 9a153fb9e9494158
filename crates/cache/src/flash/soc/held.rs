//! Failed writes whose content stays in memory until they are retried.
//!
//! A get finds the entries of such a write. No other write may change its buckets. While the device fails, at most two writes are held, and
//! no further write starts.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::write::Write;

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
    pub(super) fn take(&self, most: usize, is_due: impl Fn(u64) -> bool) -> Vec<Write> {
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
