//! Wear: the erase count of each unit, the choice of the next free unit, and static wear levelling.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Distribution of erases over the units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Levelling {
    /// Free units are used in turn.
    Off,
    /// The least worn free unit is used first.
    Dynamic,
    /// Additionally, a closed unit that lags the mean erase count by this number is emptied and reused (static wear levelling).
    /// Otherwise cold data would keep its units from being erased.
    Static {
        /// Erases behind the mean.
        behind: u32,
    },
}

/// Summary of the erase counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WearReport {
    /// Erases of the least worn unit.
    pub least: u32,
    /// Erases of the most worn unit.
    pub most: u32,
    /// Mean erases of all units.
    pub mean: f64,
}

impl WearReport {
    /// Remaining share of the endurance if a unit withstands `rated` erases: 1 when new, 0 when the mean unit is worn
    /// out.
    #[must_use]
    pub fn endurance_left(&self, rated: u32) -> f64 {
        (1.0 - self.mean / f64::from(rated)).max(0.0)
    }
}

/// Erase counts of all units.
pub(crate) struct Wear {
    erases: Box<[u32]>,
    total: u64,
    levelling: Levelling,
}

impl Wear {
    pub(crate) fn new(units: u32, levelling: Levelling) -> Self {
        Self { erases: vec![0; units as usize].into(), total: 0, levelling }
    }

    pub(crate) fn erased(&mut self, unit: u32) {
        self.erases[unit as usize] += 1;
        self.total += 1;
    }

    pub(crate) fn erases(&self, unit: u32) -> u32 {
        self.erases[unit as usize]
    }

    /// The closed unit that lags behind the mean erase count by more than the limit, if there is one.
    pub(crate) fn left_behind(&self, closed: impl Iterator<Item = u32>) -> Option<u32> {
        let Levelling::Static { behind } = self.levelling else { return None };
        let mean = self.total / self.erases.len() as u64;
        let coldest = closed.min_by_key(|&unit| self.erases(unit))?;
        (u64::from(self.erases(coldest)) + u64::from(behind) < mean).then_some(coldest)
    }

    pub(crate) fn report(&self) -> WearReport {
        let least = self.erases.iter().copied().min().unwrap_or(0);
        let most = self.erases.iter().copied().max().unwrap_or(0);
        WearReport { least, most, mean: self.total as f64 / self.erases.len() as f64 }
    }

    /// The rank of a free unit in the order of use: by wear, or in turn.
    pub(crate) fn rank(&self, unit: u32, turn: u64) -> u64 {
        if self.levelling == Levelling::Off { turn } else { u64::from(self.erases(unit)) }
    }
}

/// Free units, the next one to take first.
#[derive(Default)]
pub(crate) struct FreeUnits {
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    turn: u64,
}

impl FreeUnits {
    pub(crate) fn add(&mut self, unit: u32, wear: &Wear) {
        self.turn += 1;
        self.heap.push(Reverse((wear.rank(unit, self.turn), unit)));
    }

    pub(crate) fn take(&mut self) -> Option<u32> {
        self.heap.pop().map(|Reverse((_, unit))| unit)
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.heap.iter().map(|Reverse((_, unit))| *unit)
    }
}
