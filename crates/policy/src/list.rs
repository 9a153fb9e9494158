//! Doubly linked lists over slots.
//!
//! A link is two adjacent numbers, so that it costs one cache line: 8 bytes per slot, or 4 if slots are numbered within a set of fewer than
//! 65,534. Several lists share one table of links (a slot is in at most one list), and moving an entry between lists allocates nothing.
//! Lists run from the front, the newest, to the back, the oldest.

use crate::Slot;
use crate::prefetch::prefetch;

/// The number type in links: `u32` in general, `u16` within small sets.
pub trait Number: Copy + Eq + private::Sealed {
    /// End of a list.
    const END: Self;
    /// Mark of a slot in no list.
    const LOOSE: Self;

    /// The number of a slot, which must be below both marks.
    fn of(slot: Slot) -> Self;

    /// The slot with this number.
    fn slot(self) -> Slot;
}

mod private {
    pub trait Sealed {}
    impl Sealed for u16 {}
    impl Sealed for u32 {}
}

/// Both marks are above every slot: 2^32 slots of 64 bytes are 256 GiB, the limit of a pool.
impl Number for u32 {
    const END: Self = Self::MAX;
    const LOOSE: Self = Self::MAX - 1;

    #[inline]
    fn of(slot: Slot) -> Self {
        slot.0
    }

    #[inline]
    fn slot(self) -> Slot {
        Slot(self)
    }
}

/// For sets of few slots. The creator of the link table checks that both marks exceed every slot.
impl Number for u16 {
    const END: Self = Self::MAX;
    const LOOSE: Self = Self::MAX - 1;

    #[inline]
    fn of(slot: Slot) -> Self {
        slot.0 as Self
    }

    #[inline]
    fn slot(self) -> Slot {
        Slot(self.into())
    }
}

/// The neighbours of one slot.
#[derive(Clone, Copy)]
pub struct Link<N = u32> {
    newer: N,
    older: N,
}

impl<N: Number> Link<N> {
    /// The link of a slot in no list.
    pub const LOOSE: Self = Self { newer: N::LOOSE, older: N::LOOSE };

    /// Whether the slot is in a list.
    #[must_use]
    pub fn is_linked(self) -> bool {
        self.newer != N::LOOSE
    }

    /// The neighbour towards the front.
    #[must_use]
    #[inline]
    pub fn newer(self) -> Option<Slot> {
        linked(self.newer)
    }

    /// The neighbour towards the back.
    #[must_use]
    #[inline]
    pub fn older(self) -> Option<Slot> {
        linked(self.older)
    }
}

/// The links of all slots; grows with the highest slot seen.
#[derive(Default)]
pub struct Nodes {
    links: Vec<Link>,
}

impl Nodes {
    /// No slots yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the slot is in a list.
    #[must_use]
    pub fn is_linked(&self, slot: Slot) -> bool {
        self.links.get(slot.0 as usize).is_some_and(|link| link.is_linked())
    }

    /// The neighbour towards the front.
    #[must_use]
    pub fn newer(&self, slot: Slot) -> Option<Slot> {
        self.links[slot.0 as usize].newer()
    }

    /// The neighbour towards the back.
    #[must_use]
    pub fn older(&self, slot: Slot) -> Option<Slot> {
        self.links[slot.0 as usize].older()
    }

    /// Prefetches the links of a slot.
    #[inline]
    pub fn prefetch(&self, slot: Slot) {
        if let Some(link) = self.links.get(slot.0 as usize) {
            prefetch(std::ptr::from_ref(link).cast());
        }
    }

    /// Prefetches the links of the given slots and of their neighbours: see
    /// [`Eviction::look_ahead`](crate::Eviction::look_ahead).
    pub fn look_ahead(&self, slots: &[Slot]) {
        let link = |slot: u32| self.links.get(slot as usize).copied().unwrap_or(Link::LOOSE);
        // Two loops: all first links are in flight before one is waited for.
        let read = slots.iter().fold(0, |read, slot| read ^ link(slot.0).newer);
        let neighbours = slots.iter().map(|slot| link(slot.0));
        let read = neighbours.fold(read, |read, near| read ^ link(near.newer).older ^ link(near.older).newer);
        std::hint::black_box(read);
    }

    /// Extends the table for a slot that is about to be linked.
    #[inline]
    fn cover(&mut self, slot: Slot) {
        if slot.0 as usize >= self.links.len() {
            self.grow(slot);
        }
    }

    #[cold]
    fn grow(&mut self, slot: Slot) {
        assert!(slot.0 < u32::LOOSE, "slot {} is one of the two list marks", slot.0);
        self.links.resize(slot.0 as usize + 1, Link::LOOSE);
    }
}

fn linked<N: Number>(link: N) -> Option<Slot> {
    debug_assert!(link != N::LOOSE, "the slot is in no list");
    (link != N::END).then(|| link.slot())
}

/// One list. All its methods must be given the same links.
#[derive(Clone, Copy)]
pub struct List<N = u32> {
    front: N,
    back: N,
    len: u32,
}

impl<N: Number> Default for List<N> {
    fn default() -> Self {
        Self { front: N::END, back: N::END, len: 0 }
    }
}

impl List {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an unlinked slot as the newest.
    #[inline]
    pub fn push_front(&mut self, nodes: &mut Nodes, slot: Slot) {
        nodes.cover(slot);
        self.link_front(&mut nodes.links, slot);
    }

    /// Adds an unlinked slot as the oldest.
    #[inline]
    pub fn push_back(&mut self, nodes: &mut Nodes, slot: Slot) {
        nodes.cover(slot);
        self.link_back(&mut nodes.links, slot);
    }

    /// Removes a slot from this list.
    #[inline]
    pub fn unlink(&mut self, nodes: &mut Nodes, slot: Slot) {
        self.cut(&mut nodes.links, slot);
    }

    /// Removes the oldest slot.
    #[inline]
    pub fn pop_back(&mut self, nodes: &mut Nodes) -> Option<Slot> {
        let back = self.back()?;
        self.unlink(nodes, back);
        Some(back)
    }

    /// Makes a slot of this list the newest.
    #[inline]
    pub fn move_to_front(&mut self, nodes: &mut Nodes, slot: Slot) {
        self.lift(&mut nodes.links, slot);
    }
}

/// Operations on a link table that the caller owns.
impl<N: Number> List<N> {
    /// Slots in the list.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the list holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The newest.
    #[must_use]
    pub fn front(&self) -> Option<Slot> {
        linked(self.front)
    }

    /// The oldest.
    #[must_use]
    pub fn back(&self) -> Option<Slot> {
        linked(self.back)
    }

    /// Adds an unlinked slot as the newest.
    #[inline]
    pub fn link_front(&mut self, links: &mut [Link<N>], slot: Slot) {
        debug_assert!(!links[slot.0 as usize].is_linked(), "slot {} is already in a list", slot.0);
        links[slot.0 as usize] = Link { newer: N::END, older: self.front };
        match self.front() {
            None => self.back = N::of(slot),
            Some(front) => links[front.0 as usize].newer = N::of(slot),
        }
        self.front = N::of(slot);
        self.len += 1;
    }

    /// Adds an unlinked slot as the oldest.
    #[inline]
    pub fn link_back(&mut self, links: &mut [Link<N>], slot: Slot) {
        debug_assert!(!links[slot.0 as usize].is_linked(), "slot {} is already in a list", slot.0);
        links[slot.0 as usize] = Link { newer: self.back, older: N::END };
        match self.back() {
            None => self.front = N::of(slot),
            Some(back) => links[back.0 as usize].older = N::of(slot),
        }
        self.back = N::of(slot);
        self.len += 1;
    }

    /// Removes a slot from this list.
    #[inline]
    pub fn cut(&mut self, links: &mut [Link<N>], slot: Slot) {
        let link = std::mem::replace(&mut links[slot.0 as usize], Link::LOOSE);
        assert!(link.is_linked(), "slot {} is in no list", slot.0);
        match link.newer() {
            None => self.front = link.older,
            Some(newer) => links[newer.0 as usize].older = link.older,
        }
        match link.older() {
            None => self.back = link.newer,
            Some(older) => links[older.0 as usize].newer = link.newer,
        }
        self.len -= 1;
    }

    /// Makes a slot of this list the newest.
    #[inline]
    pub fn lift(&mut self, links: &mut [Link<N>], slot: Slot) {
        if self.front != N::of(slot) {
            self.cut(links, slot);
            self.link_front(links, slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;

    /// The slots from the front and from the back, which must agree.
    fn both_ways(list: &List, nodes: &Nodes) -> VecDeque<u32> {
        let down: VecDeque<u32> =
            std::iter::successors(list.front(), |&slot| nodes.older(slot)).map(|s| s.0).collect();
        let up: Vec<u32> =
            std::iter::successors(list.back(), |&slot| nodes.newer(slot)).map(|s| s.0).collect();
        assert!(up.iter().rev().eq(down.iter()), "{down:?} from the front, {up:?} from the back");
        assert_eq!(down.len(), list.len());
        down
    }

    #[test]
    fn two_lists_on_the_same_nodes_equal_two_deques() {
        for seed in 0..20 {
            let mut rng = StdRng::seed_from_u64(seed);
            let mut nodes = Nodes::new();
            let mut lists = [List::new(), List::new()];
            let mut twins = [VecDeque::new(), VecDeque::new()];
            for _ in 0..500 {
                let slot = rng.random_range(0..40_u32);
                let which = rng.random_range(0..2_usize);
                match twins.iter().position(|twin| twin.contains(&slot)) {
                    Some(holder) => {
                        lists[holder].unlink(&mut nodes, Slot(slot));
                        twins[holder].retain(|&other| other != slot);
                    }
                    None if rng.random() => {
                        lists[which].push_front(&mut nodes, Slot(slot));
                        twins[which].push_front(slot);
                    }
                    None => {
                        lists[which].push_back(&mut nodes, Slot(slot));
                        twins[which].push_back(slot);
                    }
                }
                if rng.random_range(0..8) == 0 {
                    let popped = lists[which].pop_back(&mut nodes).map(|slot| slot.0);
                    assert_eq!(popped, twins[which].pop_back(), "seed {seed}");
                }
                for (list, twin) in lists.iter().zip(&twins) {
                    assert_eq!(both_ways(list, &nodes), *twin, "seed {seed}");
                }
                let held = twins.iter().any(|twin| twin.contains(&slot));
                assert_eq!(nodes.is_linked(Slot(slot)), held, "seed {seed}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "slot 3 is in no list")]
    fn unlinking_a_loose_slot_is_refused() {
        let (mut nodes, mut list) = (Nodes::new(), List::new());
        list.push_front(&mut nodes, Slot(5));
        list.unlink(&mut nodes, Slot(3));
    }
}
