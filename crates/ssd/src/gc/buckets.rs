//! Closed units by their number of live pages: one list per count, in the order of insertion.

/// No unit, no neighbour.
const NONE: u32 = u32::MAX;
/// Marks a unit that is in no list.
const ABSENT: u32 = u32::MAX;

pub(super) struct Buckets {
    nodes: Box<[Node]>,
    lists: Box<[List]>,
    /// All lists below this one are empty.
    lowest: u32,
    len: u32,
}

#[derive(Clone, Copy)]
struct Node {
    live: u32,
    previous: u32,
    next: u32,
}

#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

impl Buckets {
    pub(super) fn new(units: u32, unit_pages: u32) -> Self {
        Self {
            nodes: vec![Node { live: ABSENT, previous: NONE, next: NONE }; units as usize].into(),
            lists: vec![List { first: NONE, last: NONE }; unit_pages as usize + 1].into(),
            lowest: 0,
            len: 0,
        }
    }

    /// Adds `unit` at the end of the list of `live`.
    #[inline]
    pub(super) fn insert(&mut self, unit: u32, live: u32) {
        self.len += 1;
        self.append(unit, live);
    }

    /// Moves `unit` to the end of the list of `live`.
    #[inline]
    pub(super) fn update(&mut self, unit: u32, live: u32) {
        self.unlink(unit);
        self.append(unit, live);
    }

    pub(super) fn remove(&mut self, unit: u32) {
        self.unlink(unit);
        self.nodes[unit as usize].live = ABSENT;
        self.len -= 1;
    }

    /// The unit with the fewest live pages; among equals, the one that was inserted last.
    pub(super) fn emptiest(&mut self) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        // Amortised: each step up corresponds to a page written since, because counts rise only when a unit closes.
        while self.lists[self.lowest as usize].first == NONE {
            self.lowest += 1;
        }
        Some(self.lists[self.lowest as usize].last)
    }

    pub(super) fn live(&self, unit: u32) -> Option<u32> {
        Some(self.nodes[unit as usize].live).filter(|&live| live != ABSENT)
    }

    #[inline]
    fn append(&mut self, unit: u32, live: u32) {
        let list = &mut self.lists[live as usize];
        let previous = std::mem::replace(&mut list.last, unit);
        if previous == NONE {
            list.first = unit;
        } else {
            self.nodes[previous as usize].next = unit;
        }
        self.nodes[unit as usize] = Node { live, previous, next: NONE };
        self.lowest = self.lowest.min(live);
    }

    #[inline]
    fn unlink(&mut self, unit: u32) {
        let Node { live, previous, next } = self.nodes[unit as usize];
        debug_assert_ne!(live, ABSENT, "unit {unit} is in no list");
        if previous == NONE {
            self.lists[live as usize].first = next;
        } else {
            self.nodes[previous as usize].next = next;
        }
        if next == NONE {
            self.lists[live as usize].last = previous;
        } else {
            self.nodes[next as usize].previous = previous;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emptiest_unit_comes_first_and_the_latest_among_equals() {
        let mut buckets = Buckets::new(4, 8);
        assert_eq!(buckets.emptiest(), None);
        for unit in 0..4 {
            buckets.insert(unit, 8);
        }
        buckets.update(2, 5);
        buckets.update(1, 5);
        assert_eq!(buckets.emptiest(), Some(1));
        buckets.update(2, 4);
        buckets.update(2, 3);
        buckets.remove(2);
        assert_eq!(buckets.emptiest(), Some(1));
        buckets.insert(2, 0);
        assert_eq!((buckets.emptiest(), buckets.live(2), buckets.live(3)), (Some(2), Some(0), Some(8)));
    }
}
