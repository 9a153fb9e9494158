//! All objects in the order of their last request, and the total weight in front of each.

use super::sums::Sums;
use crate::prefetch::prefetch;

const NONE: u32 = u32::MAX;
/// Positions of an empty stack.
const FEWEST_POSITIONS: usize = 1 << 12;

/// Each request takes the next position, so the highest is the front. When none is left, the used ones are renumbered.
pub(super) struct Stack {
    /// Position of each object, or [`NONE`].
    positions: Vec<u32>,
    /// Object of each position. [`NONE`] is a position without an object; it can still have a weight.
    objects: Vec<u32>,
    sums: Sums,
}

impl Stack {
    pub(super) fn new() -> Self {
        Self { positions: Vec::new(), objects: Vec::new(), sums: Sums::new(Vec::new(), FEWEST_POSITIONS) }
    }

    #[inline]
    pub(super) fn position(&self, object: u32) -> Option<u32> {
        self.positions.get(object as usize).copied().filter(|position| *position != NONE)
    }

    /// Weight of everything at this position and in front of it.
    #[inline]
    pub(super) fn depth(&self, position: u32) -> u64 {
        self.sums.total() - self.sums.before(position)
    }

    #[inline]
    pub(super) fn weight(&self, position: u32) -> u32 {
        self.sums.weight(position)
    }

    /// Puts an object at the front. The stack must not be [full](Self::is_full).
    #[inline]
    pub(super) fn push(&mut self, object: u32, weight: u32) {
        if object as usize >= self.positions.len() {
            self.positions.resize(object as usize + 1, NONE);
        }
        let front = self.objects.len() as u32;
        self.positions[object as usize] = front;
        self.objects.push(object);
        self.sums.set(front, weight);
    }

    /// Takes the object of a position away. The weight stays.
    pub(super) fn empty(&mut self, position: u32) {
        let object = std::mem::replace(&mut self.objects[position as usize], NONE);
        if object != NONE {
            self.positions[object as usize] = NONE;
        }
    }

    /// Takes the object and the weight of a position away.
    #[inline]
    pub(super) fn clear(&mut self, position: u32) {
        self.empty(position);
        self.sums.set(position, 0);
    }

    pub(super) fn is_full(&self) -> bool {
        self.objects.len() >= self.sums.positions()
    }

    /// Renumbers the positions and drops those deeper than `depth`. Returns the positions that have a weight and no object, in order.
    pub(super) fn renumber(&mut self, depth: u64) -> Vec<u32> {
        let kept: Vec<(u32, u32)> = self.front_to_back(depth).collect();
        self.objects
            .iter()
            .filter(|object| **object != NONE)
            .for_each(|object| self.positions[*object as usize] = NONE);
        self.objects.clear();
        self.objects.extend(kept.iter().rev().map(|(object, _)| *object));
        let mut empty = Vec::new();
        for (position, object) in (0..).zip(&self.objects) {
            match *object {
                NONE => empty.push(position),
                object => self.positions[object as usize] = position,
            }
        }
        let weights: Vec<u32> = kept.iter().rev().map(|(_, weight)| *weight).collect();
        let positions = FEWEST_POSITIONS.max(weights.len() * 2);
        self.sums = Sums::new(weights, positions);
        empty
    }

    /// The objects from the front down to this depth, with their weights. A position without an object, but with a weight, is `NONE`.
    fn front_to_back(&self, depth: u64) -> impl Iterator<Item = (u32, u32)> {
        let mut above = 0;
        let positions = (0..self.objects.len()).rev();
        let entries = positions.map(|position| (self.objects[position], self.sums.weight(position as u32)));
        entries.filter(|(object, weight)| *object != NONE || *weight > 0).take_while(move |(_, weight)| {
            above += u64::from(*weight);
            above <= depth
        })
    }

    /// The objects down to this depth with their weights, the deepest first.
    pub(super) fn within(&self, depth: u64) -> Vec<(u32, u32)> {
        let mut all: Vec<_> = self.front_to_back(depth).filter(|(object, _)| *object != NONE).collect();
        all.reverse();
        all
    }

    /// Prefetches the position of an object.
    #[inline]
    pub(super) fn prefetch_object(&self, object: u32) {
        prefetch(self.positions.as_ptr().wrapping_add(object as usize).cast());
    }

    /// Prefetches the weight at an object's position.
    #[inline]
    pub(super) fn prefetch_weight(&self, object: u32) {
        if let Some(position) = self.position(object) {
            prefetch(self.sums.address(position));
            prefetch(self.objects.as_ptr().wrapping_add(position as usize).cast());
        }
    }
}
