//! Which album is next: a calendar queue of two levels.
//!
//! A heap of all albums would miss the processor's caches on every step. Here the near future is cut into slots, each a
//! list; only the current slot is a heap, and it is small. What lies beyond the last slot waits in one list until the
//! slots have passed.

use std::collections::BinaryHeap;

use super::object::{Births, Life};
use crate::generate::random::Stream;

/// Slots in an epoch, and epochs in a span.
const SLOTS: usize = 2048;
const EPOCHS: f64 = 8.0;
const SLOT_WIDTH: f64 = 1.0 / (EPOCHS * SLOTS as f64);

pub(super) struct Calendar {
    /// The epoch's slots; those before the current one are empty.
    slots: Vec<Vec<Life>>,
    current: usize,
    heap: BinaryHeap<Life>,
    later: Vec<Life>,
    epoch: u64,
}

impl Calendar {
    /// An empty one.
    pub(super) fn new() -> Self {
        Self {
            slots: std::iter::repeat_with(Vec::new).take(SLOTS).collect(),
            current: 0,
            heap: BinaryHeap::new(),
            later: Vec::new(),
            epoch: 0,
        }
    }

    /// Enters an album at the time of its next visit.
    #[inline]
    pub(super) fn put(&mut self, life: Life) {
        let slot = (life.at / SLOT_WIDTH) as u64;
        let begin = self.epoch * SLOTS as u64;
        match slot.saturating_sub(begin) {
            slot if slot <= self.current as u64 => self.heap.push(life),
            slot if slot < SLOTS as u64 => self.slots[slot as usize].push(life),
            _ => self.later.push(life),
        }
    }

    /// All that are entered.
    #[cfg(test)]
    pub(super) fn into_lives(self) -> Vec<Life> {
        self.slots.into_iter().flatten().chain(self.heap).chain(self.later).collect()
    }

    /// The next visit. Albums go on being born, so there always is one.
    #[inline]
    pub(super) fn next(&mut self, births: &mut Births, random: &mut Stream) -> Life {
        while self.heap.is_empty() {
            self.turn(births, random);
        }
        let life = self.heap.pop().expect("it was just looked at");
        if let Some(next) = births.after(life, random) {
            self.put(next);
        }
        life
    }

    /// Goes on to the next slot, or the next epoch, and lets the albums be born that belong there.
    #[cold]
    fn turn(&mut self, births: &mut Births, random: &mut Stream) {
        self.current += 1;
        if self.current == SLOTS {
            self.current = 0;
            self.epoch += 1;
            for life in std::mem::take(&mut self.later) {
                self.put(life);
            }
        }
        self.begin(births, random);
    }

    /// Begins the current slot: lets the albums be born that belong there.
    pub(super) fn begin(&mut self, births: &mut Births, random: &mut Stream) {
        let slot = self.epoch * SLOTS as u64 + self.current as u64;
        births.until((slot + 1) as f64 * SLOT_WIDTH, self, random);
        self.heap.extend(self.slots[self.current].drain(..));
    }
}
