//! Locks on ranges of blocks, granted in order of arrival.
//!
//! A lock waits for every earlier overlapping one, held or waiting. No lock waits for a later one, so there are no deadlocks
//! between ranges, and narrow requests do not starve a wide one.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use event_listener::Event;
use parking_lot::Mutex;

/// Locks on ranges of blocks.
#[derive(Default)]
pub(super) struct RangeLock {
    /// Held and waiting ranges, by ticket.
    claims: Mutex<BTreeMap<u64, Range<u64>>>,
    tickets: Mutex<u64>,
    released: Event,
}

/// A locked range, unlocked on drop. The completion of each I/O within it shares ownership, so the range stays locked until the
/// I/O ends even if the caller's future is dropped.
pub(super) struct RangeGuard {
    ranges: Arc<RangeLock>,
    ticket: u64,
}

impl RangeLock {
    /// Locks `range`, after all earlier overlapping locks are released.
    pub(super) async fn lock(self: &Arc<Self>, range: Range<u64>) -> RangeGuard {
        let held = self.claim(range);
        loop {
            let listener = self.released.listen();
            if !self.is_blocked(held.ticket) {
                return held;
            }
            listener.await;
        }
    }

    /// The ranges that are held or waited for.
    pub(super) fn claimed(&self) -> Vec<Range<u64>> {
        self.claims.lock().values().cloned().collect()
    }

    fn claim(self: &Arc<Self>, range: Range<u64>) -> RangeGuard {
        let mut claims = self.claims.lock();
        let mut tickets = self.tickets.lock();
        *tickets += 1;
        claims.insert(*tickets, range);
        RangeGuard { ranges: Arc::clone(self), ticket: *tickets }
    }

    fn is_blocked(&self, ticket: u64) -> bool {
        let claims = self.claims.lock();
        let mine = &claims[&ticket];
        claims.range(..ticket).any(|(_, other)| other.start < mine.end && mine.start < other.end)
    }
}

impl Drop for RangeGuard {
    fn drop(&mut self) {
        self.ranges.claims.lock().remove(&self.ticket);
        self.ranges.released.notify(usize::MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn overlapping_lock_waits_and_disjoint_lock_does_not() {
        let ranges = Arc::new(RangeLock::default());
        let mut first = pin!(ranges.lock(0..10));
        let held = poll(first.as_mut()).expect("no earlier lock");
        let mut beside = pin!(ranges.lock(10..12));
        let _beside = poll(beside.as_mut()).expect("it does not overlap");
        let mut second = pin!(ranges.lock(9..11));
        assert!(poll(second.as_mut()).is_none());
        drop(held);
        assert!(poll(second.as_mut()).is_none(), "the second neighbour still holds its lock");
    }

    #[test]
    fn later_lock_does_not_overtake_a_waiting_one() {
        let ranges = Arc::new(RangeLock::default());
        let mut first = pin!(ranges.lock(0..10));
        let held = poll(first.as_mut()).unwrap();
        let mut wide = pin!(ranges.lock(5..20));
        assert!(poll(wide.as_mut()).is_none());
        let mut late = pin!(ranges.lock(15..16));
        assert!(poll(late.as_mut()).is_none(), "it overlaps one that waits");
        drop(held);
        let wide = poll(wide.as_mut()).unwrap();
        assert!(poll(late.as_mut()).is_none());
        drop(wide);
        assert!(poll(late.as_mut()).is_some());
    }

    #[test]
    fn dropped_waiter_no_longer_blocks_later_locks() {
        let ranges = Arc::new(RangeLock::default());
        let mut first = pin!(ranges.lock(0..10));
        let held = poll(first.as_mut()).unwrap();
        {
            let mut wide = pin!(ranges.lock(5..20));
            assert!(poll(wide.as_mut()).is_none());
        }
        let mut late = pin!(ranges.lock(15..16));
        assert!(poll(late.as_mut()).is_some());
        drop(held);
    }
}
