//! The slots of a policy in an array, from which candidates for eviction are drawn.

use crate::Slot;
use crate::lehmer::Lehmer64;

/// Slots in order of insertion, except that the last one replaces one that is removed.
#[derive(Default)]
pub(crate) struct Pool {
    slots: Vec<Slot>,
    /// Index in `slots`, by slot.
    places: Vec<u32>,
    /// Number of restored slots. They are at the end, and are drawn only when there are no others, so that a caller whose entries are
    /// pinned finds one that is not.
    restored: usize,
}

impl Pool {
    /// Two numbers of 4 bytes, twice: a vector that grows leaves holes in the heap as large as the vector was.
    pub(crate) const BYTES_PER_SLOT: u32 = 16;

    /// Adds a slot. Restored slots can be drawn again.
    pub(crate) fn insert(&mut self, slot: Slot) {
        self.push(slot);
        self.restored = 0;
    }

    /// Adds a slot that was drawn but could not be evicted.
    pub(crate) fn restore(&mut self, slot: Slot) {
        self.push(slot);
        self.restored += 1;
    }

    fn push(&mut self, slot: Slot) {
        if slot.0 as usize >= self.places.len() {
            self.places.resize(slot.0 as usize + 1, 0);
        }
        self.places[slot.0 as usize] = self.slots.len() as u32;
        self.slots.push(slot);
    }

    /// Removes a slot of the pool.
    pub(crate) fn remove(&mut self, slot: Slot) {
        let mut hole = self.places[slot.0 as usize] as usize;
        let drawable = self.slots.len() - self.restored;
        if hole < drawable {
            hole = self.fill(hole, drawable - 1);
        } else {
            self.restored -= 1;
        }
        self.fill(hole, self.slots.len() - 1);
        self.slots.pop();
    }

    /// Moves the slot at `from` to `hole`. Returns the new hole.
    fn fill(&mut self, hole: usize, from: usize) -> usize {
        if hole != from {
            let moved = self.slots[from];
            self.slots[hole] = moved;
            self.places[moved.0 as usize] = hole as u32;
        }
        from
    }

    /// Draws a slot, which stays in the pool; `None` if there is none.
    #[inline]
    pub(crate) fn draw(&mut self, random: &mut Lehmer64) -> Option<Slot> {
        if self.restored == self.slots.len() {
            self.restored = 0;
        }
        let drawable = self.slots.len() - self.restored;
        (drawable > 0).then(|| self.slots[random.below(drawable as u64) as usize])
    }

    /// Whether [`draw`](Self::draw) can return the slot.
    pub(crate) fn is_drawable(&self, slot: Slot) -> bool {
        let place = self.places.get(slot.0 as usize).map_or(usize::MAX, |place| *place as usize);
        place < self.slots.len() - self.restored && self.slots[place] == slot
    }

    /// The first slot, usually an old one.
    pub(crate) fn first(&self) -> Option<Slot> {
        self.slots.first().copied()
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.slots.iter().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }
}

/// The methods of [`Eviction`](crate::Eviction) that are the same for all policies that draw victims from a field `pool`.
macro_rules! pool_methods {
    () => {
        fn len(&self) -> usize {
            self.pool.len()
        }

        fn oldest(&self) -> Option<Slot> {
            self.pool.first()
        }

        /// The sample is not drawn yet.
        fn likely_victim(&self) -> Option<Slot> {
            None
        }
    };
}
pub(crate) use pool_methods;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_slot_replaces_a_removed_one() {
        let mut pool = Pool::default();
        (0..5).for_each(|slot| pool.insert(Slot(slot)));
        pool.remove(Slot(1));
        assert_eq!(pool.slots, [0, 4, 2, 3].map(Slot));
        pool.remove(Slot(3));
        assert_eq!(pool.slots, [0, 4, 2].map(Slot));
        assert!(pool.is_drawable(Slot(4)) && !pool.is_drawable(Slot(3)) && !pool.is_drawable(Slot(99)));
    }

    #[test]
    fn restored_slots_are_drawn_when_there_are_no_others() {
        let (mut pool, mut random) = (Pool::default(), Lehmer64::new(1));
        (0..10).for_each(|slot| pool.insert(Slot(slot)));
        let mut seen = Vec::new();
        for _ in 0..10 {
            let slot = pool.draw(&mut random).unwrap();
            pool.remove(slot);
            pool.restore(slot);
            assert!(!pool.is_drawable(slot));
            seen.push(slot.0);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..10).collect::<Vec<_>>(), "each was drawn once");
        assert!(pool.draw(&mut random).is_some() && pool.is_drawable(Slot(0)));
        pool.remove(Slot(4));
        pool.restore(Slot(4));
        pool.remove(Slot(2));
        assert!(!pool.is_drawable(Slot(4)) && pool.len() == 9);
        pool.insert(Slot(11));
        assert!(pool.is_drawable(Slot(4)), "an insertion ends the search");
    }
}
