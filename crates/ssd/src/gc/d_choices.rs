//! d-choices: of d units drawn at random, the one with the fewest live pages.
//!
//! Van Houdt, "A mean field model for a class of garbage collection algorithms in flash-based solid state drives",
//! SIGMETRICS 2013: one choice is random cleaning, and ten are within a percent of greedy, at constant cost and without
//! sorting.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const ABSENT: u32 = u32::MAX;

pub(crate) struct DChoices {
    choices: u8,
    closed: Vec<u32>,
    /// The index of each unit in `closed`.
    position: Box<[u32]>,
    live: Box<[u32]>,
    random: SmallRng,
}

impl DChoices {
    pub(super) fn new(choices: u8, units: u32, seed: u64) -> Self {
        let position = vec![ABSENT; units as usize].into();
        let live = vec![0; units as usize].into();
        Self { choices, closed: Vec::new(), position, live, random: SmallRng::seed_from_u64(seed) }
    }

    pub(super) fn close(&mut self, unit: u32, live: u32) {
        self.position[unit as usize] = self.closed.len() as u32;
        self.live[unit as usize] = live;
        self.closed.push(unit);
    }

    #[inline]
    pub(super) fn invalidate(&mut self, unit: u32, live: u32) {
        self.live[unit as usize] = live;
    }

    /// Draws with replacement, as in the paper.
    pub(super) fn choose(&mut self) -> Option<u32> {
        if self.closed.is_empty() {
            return None;
        }
        let drawn = (0..self.choices).map(|_| self.closed[self.random.random_range(0..self.closed.len())]);
        drawn.min_by_key(|&unit| self.live[unit as usize])
    }

    pub(super) fn remove(&mut self, unit: u32) {
        let at = std::mem::replace(&mut self.position[unit as usize], ABSENT);
        self.closed.swap_remove(at as usize);
        if let Some(&moved) = self.closed.get(at as usize) {
            self.position[moved as usize] = at;
        }
    }

    pub(super) fn recorded_live(&self, unit: u32) -> Option<u32> {
        (self.position[unit as usize] != ABSENT).then(|| self.live[unit as usize])
    }
}
