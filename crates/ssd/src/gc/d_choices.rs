//! d-choices: of d units drawn at random, the one with the fewest live pages.
//!
//! Van Houdt, "A mean field model for a class of garbage collection algorithms in flash-based solid state drives",
//! SIGMETRICS 2013: one choice is random cleaning, and ten are within a percent of greedy, at constant cost and without
//! sorting.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::{Select, Setup};

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
    pub(super) fn new(choices: u8, setup: &Setup) -> Self {
        let units = setup.units as usize;
        let (position, live) = (vec![ABSENT; units].into(), vec![0; units].into());
        Self { choices, closed: Vec::new(), position, live, random: SmallRng::seed_from_u64(setup.seed) }
    }
}

impl Select for DChoices {
    fn close(&mut self, unit: u32, live: u32, _now: u64) {
        self.position[unit as usize] = self.closed.len() as u32;
        self.live[unit as usize] = live;
        self.closed.push(unit);
    }

    #[inline]
    fn invalidate(&mut self, unit: u32, live: u32) {
        self.live[unit as usize] = live;
    }

    /// Draws with replacement, as in the paper.
    fn choose(&mut self, _now: u64) -> Option<u32> {
        if self.closed.is_empty() {
            return None;
        }
        let drawn = (0..self.choices).map(|_| self.closed[self.random.random_range(0..self.closed.len())]);
        drawn.min_by_key(|&unit| self.live[unit as usize])
    }

    fn remove(&mut self, unit: u32) {
        let at = std::mem::replace(&mut self.position[unit as usize], ABSENT);
        self.closed.swap_remove(at as usize);
        if let Some(&moved) = self.closed.get(at as usize) {
            self.position[moved as usize] = at;
        }
    }

    fn recorded_live(&self, unit: u32) -> Option<Option<u32>> {
        (self.position[unit as usize] != ABSENT).then(|| Some(self.live[unit as usize]))
    }
}
