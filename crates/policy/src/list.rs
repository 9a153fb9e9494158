//! Doubly linked lists over slots.
//!
//! A link is two `u32` beside each other, 8 bytes a slot, so that a neighbour costs one cache line. Several lists
//! share one [`Nodes`] (a slot is in one list at most), and moving an entry from list to list allocates nothing.
//! Lists run from the front, the newest, to the back, the oldest.

use crate::Slot;

/// End of a list.
const END: u32 = u32::MAX;
/// In no list. Both values are far above any slot: 2^32 slots of 64 bytes are 256 GiB, one pool's limit.
const LOOSE: u32 = u32::MAX - 1;

#[derive(Clone, Copy)]
struct Link {
    newer: u32,
    older: u32,
}

const LOOSE_LINK: Link = Link { newer: LOOSE, older: LOOSE };

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

    /// Whether the slot is in some list.
    #[must_use]
    pub fn is_linked(&self, slot: Slot) -> bool {
        self.links.get(slot.0 as usize).is_some_and(|link| link.newer != LOOSE)
    }

    /// The neighbour towards the front.
    #[must_use]
    pub fn newer(&self, slot: Slot) -> Option<Slot> {
        linked(self.links[slot.0 as usize].newer)
    }

    /// The neighbour towards the back.
    #[must_use]
    pub fn older(&self, slot: Slot) -> Option<Slot> {
        linked(self.links[slot.0 as usize].older)
    }

    /// Reads the links of these slots and of their neighbours, all at the same time: see
    /// [`Eviction::look_ahead`](crate::Eviction::look_ahead).
    pub fn look_ahead(&self, slots: &[Slot]) {
        let link = |slot: u32| self.links.get(slot as usize).copied().unwrap_or(LOOSE_LINK);
        // Two loops: all first links are under way before one is waited for.
        let read = slots.iter().fold(0, |read, slot| read ^ link(slot.0).newer);
        let neighbours = slots.iter().map(|slot| link(slot.0));
        let read = neighbours.fold(read, |read, near| read ^ link(near.newer).older ^ link(near.older).newer);
        std::hint::black_box(read);
    }

    /// Makes room for a slot that is about to be linked.
    #[inline]
    fn cover(&mut self, slot: Slot) {
        if slot.0 as usize >= self.links.len() {
            self.grow(slot);
        }
    }

    #[cold]
    fn grow(&mut self, slot: Slot) {
        assert!(slot.0 < LOOSE, "slot {} is one of the two list marks", slot.0);
        self.links.resize(slot.0 as usize + 1, LOOSE_LINK);
    }
}

fn linked(link: u32) -> Option<Slot> {
    debug_assert_ne!(link, LOOSE, "asked for the neighbour of a slot that is in no list");
    (link != END).then_some(Slot(link))
}

/// One list. All its methods must be given the same [`Nodes`].
pub struct List {
    front: u32,
    back: u32,
    len: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { front: END, back: END, len: 0 }
    }
}

impl List {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

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

    /// Adds a loose slot as the newest.
    #[inline]
    pub fn push_front(&mut self, nodes: &mut Nodes, slot: Slot) {
        nodes.cover(slot);
        debug_assert!(!nodes.is_linked(slot), "slot {} is already in a list", slot.0);
        nodes.links[slot.0 as usize] = Link { newer: END, older: self.front };
        match self.front {
            END => self.back = slot.0,
            front => nodes.links[front as usize].newer = slot.0,
        }
        self.front = slot.0;
        self.len += 1;
    }

    /// Adds a loose slot as the oldest.
    #[inline]
    pub fn push_back(&mut self, nodes: &mut Nodes, slot: Slot) {
        nodes.cover(slot);
        debug_assert!(!nodes.is_linked(slot), "slot {} is already in a list", slot.0);
        nodes.links[slot.0 as usize] = Link { newer: self.back, older: END };
        match self.back {
            END => self.front = slot.0,
            back => nodes.links[back as usize].older = slot.0,
        }
        self.back = slot.0;
        self.len += 1;
    }

    /// Takes out a slot of this list.
    #[inline]
    pub fn unlink(&mut self, nodes: &mut Nodes, slot: Slot) {
        let Link { newer, older } = std::mem::replace(&mut nodes.links[slot.0 as usize], LOOSE_LINK);
        assert_ne!(newer, LOOSE, "slot {} is in no list", slot.0);
        match newer {
            END => self.front = older,
            newer => nodes.links[newer as usize].older = older,
        }
        match older {
            END => self.back = newer,
            older => nodes.links[older as usize].newer = newer,
        }
        self.len -= 1;
    }

    /// Takes out the oldest.
    #[inline]
    pub fn pop_back(&mut self, nodes: &mut Nodes) -> Option<Slot> {
        let back = self.back()?;
        self.unlink(nodes, back);
        Some(back)
    }

    /// Makes a slot of this list the newest.
    #[inline]
    pub fn move_to_front(&mut self, nodes: &mut Nodes, slot: Slot) {
        if self.front != slot.0 {
            self.unlink(nodes, slot);
            self.push_front(nodes, slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;

    /// From the front by `older` and from the back by `newer`: both must tell the same.
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
