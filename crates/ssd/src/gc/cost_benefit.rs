//! Cost-benefit: the unit for which age × (1 − u) / 2u is largest, u being the share of its pages that live.
//!
//! Reading a unit and writing its live pages back costs 1 + u; Kawaguchi, Nishioka and Motoda ("A Flash-Memory Based File System",
//! USENIX 1995, §2.3) use 2u. The benefit is 1 − u for as long as the unit has been quiet. Age is the time since the last page of the
//! unit was invalidated, counted in pages that the host wrote.
//!
//! A list of [`Buckets`] is in the order in which units came to their count, which is the order of age: the first of
//! each list is the best of its list, and only these are compared.

use super::buckets::Buckets;

pub(crate) struct CostBenefit {
    buckets: Buckets,
    changed_at: Box<[u64]>,
    unit_pages: u32,
}

impl CostBenefit {
    pub(super) fn new(units: u32, unit_pages: u32) -> Self {
        let changed_at = vec![0; units as usize].into();
        Self { buckets: Buckets::new(units, unit_pages), changed_at, unit_pages }
    }

    pub(super) fn close(&mut self, unit: u32, live: u32, now: u64) {
        self.changed_at[unit as usize] = now;
        self.buckets.insert(unit, live);
    }

    #[inline]
    pub(super) fn invalidate(&mut self, unit: u32, live: u32, now: u64) {
        self.changed_at[unit as usize] = now;
        self.buckets.update(unit, live);
    }

    pub(super) fn choose(&mut self, now: u64) -> Option<u32> {
        let emptiest = self.buckets.emptiest()?;
        if self.buckets.live(emptiest) == Some(0) {
            return Some(emptiest);
        }
        let mut best = (f64::NEG_INFINITY, emptiest);
        for unit in self.buckets.heads() {
            let worth = self.worth(unit, now);
            if worth > best.0 {
                best = (worth, unit);
            }
        }
        Some(best.1)
    }

    fn worth(&self, unit: u32, now: u64) -> f64 {
        let live = self.buckets.live(unit).unwrap_or(self.unit_pages);
        let u = f64::from(live) / f64::from(self.unit_pages);
        // A unit closed within this very page of the host still has an age, or all new units would be worth nothing.
        let age = (now - self.changed_at[unit as usize] + 1) as f64;
        age * (1.0 - u) / (2.0 * u)
    }

    pub(super) fn remove(&mut self, unit: u32) {
        self.buckets.remove(unit);
    }

    pub(super) fn believes(&self, unit: u32) -> Option<u32> {
        self.buckets.live(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_unit_may_go_before_an_emptier_young_one() {
        let mut benefit = CostBenefit::new(3, 10);
        benefit.close(0, 10, 0);
        benefit.close(1, 10, 0);
        benefit.invalidate(0, 6, 10); // at 100: age 91 × 0.4 / 1.2 = 30.3
        benefit.invalidate(1, 4, 95); // at 100: age  6 × 0.6 / 0.8 =  4.5
        assert_eq!(benefit.choose(100), Some(0));
        // Later their ages are nearly equal, and the emptier one is worth more.
        assert_eq!(benefit.choose(161), Some(0)); // 152 / 3 = 50.7, 67 × 3 / 4 = 50.3
        assert_eq!(benefit.choose(163), Some(1)); // 154 / 3 = 51.3, 69 × 3 / 4 = 51.8
        assert_eq!(benefit.choose(1_000), Some(1));
        benefit.close(2, 0, 1_000);
        assert_eq!(benefit.choose(1_000), Some(2), "what costs nothing goes first");
    }
}
