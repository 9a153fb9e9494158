//! Locks on byte ranges, shared or exclusive, with callbacks.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

/// How a range is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// With other shared locks: writes of whole blocks.
    Shared,
    /// Exclusively: a block is read, changed and written.
    Alone,
}

/// Locked and waiting ranges. A lock never overtakes an earlier conflicting one.
#[derive(Default)]
pub(super) struct Ranges {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    visits: u64,
    inside: Vec<Use>,
    waiting: VecDeque<(Use, Then)>,
}

#[derive(Debug, Clone)]
struct Use {
    number: u64,
    range: Range<u64>,
    access: Access,
}

type Then = Box<dyn FnOnce(Visit) + Send>;

/// A locked range, unlocked on drop.
pub(super) struct Visit {
    ranges: Arc<Ranges>,
    number: u64,
}

impl Ranges {
    /// Runs `then` when `range` is locked: immediately, or later on the thread that unlocks the conflicting range.
    pub fn enter(
        self: &Arc<Self>,
        range: Range<u64>,
        access: Access,
        then: impl FnOnce(Visit) + Send + 'static,
    ) {
        let mut state = self.state.lock();
        state.visits += 1;
        let wanted = Use { number: state.visits, range, access };
        let mut others = state.inside.iter().chain(state.waiting.iter().map(|(wanted, _)| wanted));
        if others.any(|other| other.excludes(&wanted)) {
            state.waiting.push_back((wanted, Box::new(then)));
            return;
        }
        let visit = Visit { ranges: Arc::clone(self), number: wanted.number };
        state.inside.push(wanted);
        drop(state);
        then(visit);
    }

    fn leave(self: &Arc<Self>, number: u64) {
        let mut state = self.state.lock();
        state.inside.retain(|inside| inside.number != number);
        let mut let_in = Vec::new();
        for (wanted, then) in std::mem::take(&mut state.waiting) {
            let mut others = state.inside.iter().chain(state.waiting.iter().map(|(wanted, _)| wanted));
            if others.any(|other| other.excludes(&wanted)) {
                state.waiting.push_back((wanted, then));
            } else {
                let_in.push((wanted.number, then));
                state.inside.push(wanted);
            }
        }
        drop(state);
        for (number, then) in let_in {
            then(Visit { ranges: Arc::clone(self), number });
        }
    }
}

impl Use {
    fn excludes(&self, other: &Self) -> bool {
        let meet = self.range.start < other.range.end && other.range.start < self.range.end;
        meet && (self.access == Access::Alone || other.access == Access::Alone)
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.ranges.leave(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The current holders of locks, in the order in which they got them.
    #[derive(Clone, Default)]
    struct Room(Arc<Mutex<Vec<(char, Visit)>>>);

    impl Room {
        fn enter(&self, ranges: &Arc<Ranges>, who: char, range: Range<u64>, access: Access) {
            let room = self.clone();
            ranges.enter(range, access, move |visit| room.0.lock().push((who, visit)));
        }

        fn leave(&self, who: char) {
            let mut inside = self.0.lock();
            let at = inside.iter().position(|(inside, _)| *inside == who).expect("inside");
            let visit = inside.remove(at);
            drop(inside);
            drop(visit);
        }

        fn inside(&self) -> String {
            self.0.lock().iter().map(|(who, _)| who).collect()
        }
    }

    #[test]
    fn whole_blocks_share_and_a_patch_is_alone() {
        let (ranges, room) = (Arc::new(Ranges::default()), Room::default());
        room.enter(&ranges, 'a', 0..8, Access::Shared);
        room.enter(&ranges, 'b', 4..12, Access::Shared);
        room.enter(&ranges, 'c', 7..8, Access::Alone);
        room.enter(&ranges, 'd', 8..9, Access::Alone);
        room.enter(&ranges, 'e', 20..30, Access::Alone);
        assert_eq!(room.inside(), "abe", "what does not meet does not wait");
        room.leave('a');
        assert_eq!(room.inside(), "be", "c still meets b");
        room.leave('b');
        assert_eq!(room.inside(), "ecd");
    }

    #[test]
    fn nobody_overtakes_whom_he_would_have_to_wait_for() {
        let (ranges, room) = (Arc::new(Ranges::default()), Room::default());
        room.enter(&ranges, 'a', 0..8, Access::Shared);
        room.enter(&ranges, 'b', 0..8, Access::Alone);
        room.enter(&ranges, 'c', 0..8, Access::Shared);
        room.enter(&ranges, 'd', 0..8, Access::Shared);
        assert_eq!(room.inside(), "a", "sharers that keep coming would starve b");
        room.leave('a');
        assert_eq!(room.inside(), "b");
        room.leave('b');
        assert_eq!(room.inside(), "cd");
    }
}
