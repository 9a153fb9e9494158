//! Cost-benefit: selects the unit for which age × (1 − u) / 2u is largest, where u is its share of live pages.
//!
//! The formula is that of Kawaguchi, Nishioka and Motoda ("A Flash-Memory Based File System", USENIX 1995, §2.3): 2u is
//! the cost of reading the live pages and writing them back. The gain is 1 − u for as long as the space stays free,
//! which is estimated by the age of the data: the longer a unit has kept its live pages, the longer it is likely to
//! keep the rest. Age is the time since the unit's youngest data was written, as in Rosenblum and Ousterhout ("The
//! Design and Implementation of a Log-Structured File System", SOSP 1991, §3.5). A unit is filled in order, so that is
//! the time since it closed, counted in pages that the host wrote.
//!
//! The time since the last invalidated page does not work as the age: under uniform writes it prefers units that lost
//! few pages recently, which are the full ones, and collects at a higher cost than FIFO.
//!
//! Ages change with every write, so units are compared when a victim is chosen, that is, once per unit written.

use super::{Select, Setup};

const ABSENT: u32 = u32::MAX;

pub(crate) struct CostBenefit {
    /// Live pages of each closed unit, [`ABSENT`] for others.
    live: Box<[u32]>,
    closed_at: Box<[u64]>,
    unit_pages: u32,
}

impl CostBenefit {
    pub(super) fn new(setup: &Setup) -> Self {
        let units = setup.units as usize;
        let unit_pages = setup.unit_pages;
        Self { live: vec![ABSENT; units].into(), closed_at: vec![0; units].into(), unit_pages }
    }

    fn worth(&self, unit: usize, live: u32, now: u64) -> f64 {
        let u = f64::from(live) / f64::from(self.unit_pages);
        // A unit that closed during the current page has age 1; with age 0 the value of all new units would be 0.
        let age = (now - self.closed_at[unit] + 1) as f64;
        age * (1.0 - u) / (2.0 * u)
    }
}

impl Select for CostBenefit {
    fn close(&mut self, unit: u32, live: u32, now: u64) {
        self.closed_at[unit as usize] = now;
        self.live[unit as usize] = live;
    }

    #[inline]
    fn invalidate(&mut self, unit: u32, live: u32) {
        self.live[unit as usize] = live;
    }

    /// The unit with the highest value; among equals the first. A unit without live pages costs nothing and precedes
    /// all others.
    fn choose(&mut self, now: u64) -> Option<u32> {
        let closed = self.live.iter().enumerate().filter(|(_, live)| **live != ABSENT);
        let mut best = None;
        for (unit, &live) in closed {
            let worth = self.worth(unit, live, now);
            if best.is_none_or(|(most, _)| worth > most) {
                best = Some((worth, unit as u32));
            }
            if live == 0 {
                break;
            }
        }
        best.map(|(_, unit)| unit)
    }

    fn remove(&mut self, unit: u32) {
        self.live[unit as usize] = ABSENT;
    }

    fn recorded_live(&self, unit: u32) -> Option<Option<u32>> {
        Some(self.live[unit as usize]).filter(|live| *live != ABSENT).map(Some)
    }

    /// A unit without dead pages has the value 0, and any other more.
    fn spares_full_units(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(units: u32) -> Setup {
        Setup { units, unit_pages: 10, seed: 1 }
    }

    #[test]
    fn old_unit_is_chosen_before_an_emptier_young_one() {
        let mut benefit = CostBenefit::new(&setup(3));
        benefit.close(0, 10, 0);
        benefit.close(1, 10, 90);
        benefit.invalidate(0, 6); // at 100: age 101 × 0.4 / 1.2 = 33.7
        benefit.invalidate(1, 4); // at 100: age  11 × 0.6 / 0.8 =  8.3
        assert_eq!(benefit.choose(100), Some(0));
        // Later the ages are nearly equal, and the emptier unit has the higher value.
        assert_eq!(benefit.choose(160), Some(0)); // 161 / 3 = 53.7, 71 × 3 / 4 = 53.3
        assert_eq!(benefit.choose(162), Some(1)); // 163 / 3 = 54.3, 73 × 3 / 4 = 54.8
        benefit.close(2, 0, 1_000);
        assert_eq!(benefit.choose(1_000), Some(2), "a unit without live pages costs nothing");
        benefit.remove(2);
        benefit.remove(1);
        assert_eq!(
            (benefit.choose(1_000), benefit.recorded_live(1), benefit.recorded_live(0)),
            (Some(0), None, Some(Some(6)))
        );
        benefit.remove(0);
        assert_eq!(benefit.choose(1_000), None);
    }

    /// Catches a regression: with the age counted from the last invalidated page, a unit becomes younger with each page
    /// that it loses.
    #[test]
    fn invalidating_a_page_does_not_change_the_age() {
        let mut benefit = CostBenefit::new(&setup(2));
        benefit.close(0, 10, 0);
        benefit.close(1, 10, 50);
        benefit.invalidate(1, 5);
        benefit.invalidate(0, 5);
        assert_eq!(benefit.choose(100), Some(0));
    }
}
