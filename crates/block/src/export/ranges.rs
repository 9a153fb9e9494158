//! Locks on byte ranges, shared or exclusive, with callbacks.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

/// How a range is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// For writes of whole blocks, which can run concurrently.
    Shared,
    /// For an operation that reads, changes and writes a block.
    Exclusive,
}

/// Locked and waiting ranges. A lock never overtakes an earlier conflicting one.
#[derive(Default)]
pub(super) struct RangeLocks {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last_number: u64,
    held: Vec<Lock>,
    waiting: VecDeque<(Lock, Granted)>,
}

#[derive(Debug, Clone)]
struct Lock {
    number: u64,
    range: Range<u64>,
    access: Access,
}

type Granted = Box<dyn FnOnce(RangeGuard) + Send>;

/// A locked range, unlocked on drop.
pub(super) struct RangeGuard {
    ranges: Arc<RangeLocks>,
    number: u64,
}

impl RangeLocks {
    /// Runs `then` when `range` is locked: immediately, or later on the thread that unlocks the conflicting range.
    pub fn lock(
        self: &Arc<Self>,
        range: Range<u64>,
        access: Access,
        then: impl FnOnce(RangeGuard) + Send + 'static,
    ) {
        let mut state = self.state.lock();
        state.last_number += 1;
        let lock = Lock { number: state.last_number, range, access };
        let mut others = state.held.iter().chain(state.waiting.iter().map(|(lock, _)| lock));
        if others.any(|other| other.conflicts_with(&lock)) {
            state.waiting.push_back((lock, Box::new(then)));
            return;
        }
        let guard = RangeGuard { ranges: Arc::clone(self), number: lock.number };
        state.held.push(lock);
        drop(state);
        then(guard);
    }

    fn unlock(self: &Arc<Self>, number: u64) {
        let mut state = self.state.lock();
        state.held.retain(|held| held.number != number);
        let mut granted = Vec::new();
        for (lock, then) in std::mem::take(&mut state.waiting) {
            let mut others = state.held.iter().chain(state.waiting.iter().map(|(lock, _)| lock));
            if others.any(|other| other.conflicts_with(&lock)) {
                state.waiting.push_back((lock, then));
            } else {
                granted.push((lock.number, then));
                state.held.push(lock);
            }
        }
        drop(state);
        for (number, then) in granted {
            then(RangeGuard { ranges: Arc::clone(self), number });
        }
    }
}

impl Lock {
    fn conflicts_with(&self, other: &Self) -> bool {
        let overlap = self.range.start < other.range.end && other.range.start < self.range.end;
        overlap && (self.access == Access::Exclusive || other.access == Access::Exclusive)
    }
}

impl Drop for RangeGuard {
    fn drop(&mut self) {
        self.ranges.unlock(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The current holders of locks, in the order in which they got them.
    #[derive(Clone, Default)]
    struct Holders(Arc<Mutex<Vec<(char, RangeGuard)>>>);

    impl Holders {
        fn lock(&self, ranges: &Arc<RangeLocks>, who: char, range: Range<u64>, access: Access) {
            let holders = self.clone();
            ranges.lock(range, access, move |guard| holders.0.lock().push((who, guard)));
        }

        fn unlock(&self, who: char) {
            let mut held = self.0.lock();
            let at = held.iter().position(|(held, _)| *held == who).expect("held");
            let guard = held.remove(at);
            drop(held);
            drop(guard);
        }

        fn held(&self) -> String {
            self.0.lock().iter().map(|(who, _)| who).collect()
        }
    }

    #[test]
    fn shared_locks_overlap_and_exclusive_locks_wait() {
        let (ranges, holders) = (Arc::new(RangeLocks::default()), Holders::default());
        holders.lock(&ranges, 'a', 0..8, Access::Shared);
        holders.lock(&ranges, 'b', 4..12, Access::Shared);
        holders.lock(&ranges, 'c', 7..8, Access::Exclusive);
        holders.lock(&ranges, 'd', 8..9, Access::Exclusive);
        holders.lock(&ranges, 'e', 20..30, Access::Exclusive);
        assert_eq!(holders.held(), "abe", "disjoint locks do not wait");
        holders.unlock('a');
        assert_eq!(holders.held(), "be", "c still overlaps b");
        holders.unlock('b');
        assert_eq!(holders.held(), "ecd");
    }

    #[test]
    fn later_lock_does_not_overtake_a_conflicting_waiter() {
        let (ranges, holders) = (Arc::new(RangeLocks::default()), Holders::default());
        holders.lock(&ranges, 'a', 0..8, Access::Shared);
        holders.lock(&ranges, 'b', 0..8, Access::Exclusive);
        holders.lock(&ranges, 'c', 0..8, Access::Shared);
        holders.lock(&ranges, 'd', 0..8, Access::Shared);
        assert_eq!(holders.held(), "a", "later shared locks would starve b");
        holders.unlock('a');
        assert_eq!(holders.held(), "b");
        holders.unlock('b');
        assert_eq!(holders.held(), "cd");
    }
}
