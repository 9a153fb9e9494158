//! FIFO: the victim is the unit that closed first, regardless of its live pages.
//!
//! This is the policy of the closed form in [`model::dlwa`](crate::model::dlwa): each unit has the same time in which
//! its pages are invalidated. Desnoyers, "Analytic modeling of SSD write performance", SYSTOR 2012, calls it LRU
//! cleaning.

use std::collections::VecDeque;

use super::{Select, Setup};

#[derive(Default)]
pub(crate) struct Fifo {
    closed: VecDeque<u32>,
}

impl Fifo {
    pub(super) fn new(_: &Setup) -> Self {
        Self::default()
    }
}

impl Select for Fifo {
    fn close(&mut self, unit: u32, _live: u32, _now: u64) {
        self.closed.push_back(unit);
    }

    #[inline]
    fn invalidate(&mut self, _unit: u32, _live: u32) {}

    fn choose(&mut self, _now: u64) -> Option<u32> {
        self.closed.front().copied()
    }

    fn remove(&mut self, unit: u32) {
        let at = self.closed.iter().position(|&closed| closed == unit);
        self.closed.remove(at.expect("only closed units are removed"));
    }

    fn recorded_live(&self, unit: u32) -> Option<Option<u32>> {
        self.closed.contains(&unit).then_some(None)
    }
}
