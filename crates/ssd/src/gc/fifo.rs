//! FIFO: the victim is the unit that closed first, regardless of its live pages.
//!
//! This is the policy of the closed form in [`model::dlwa`](crate::model::dlwa): each unit has the same time in which
//! its pages are invalidated. Desnoyers, "Analytic modeling of SSD write performance", SYSTOR 2012, calls it LRU
//! cleaning.

use std::collections::VecDeque;

#[derive(Default)]
pub(crate) struct Fifo {
    closed: VecDeque<u32>,
}

impl Fifo {
    pub(super) fn close(&mut self, unit: u32) {
        self.closed.push_back(unit);
    }

    pub(super) fn choose(&self) -> Option<u32> {
        self.closed.front().copied()
    }

    pub(super) fn remove(&mut self, unit: u32) {
        let at = self.closed.iter().position(|&closed| closed == unit);
        self.closed.remove(at.expect("only closed units are removed"));
    }

    pub(super) fn holds(&self, unit: u32) -> bool {
        self.closed.contains(&unit)
    }
}
