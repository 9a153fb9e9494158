//! Location of each page: the forward table (logical to physical) and the reverse one.
//!
//! The tables take four bytes per page in each direction, so that a 2 TB drive of 4 KiB pages takes 4 GiB. There is no
//! bitmap of valid pages: a physical page is live if its entry in the reverse table names a logical page that is mapped
//! to it. The reverse table is therefore never updated when a page is invalidated or its unit erased.

use crate::geometry::{LogicalPage, PhysicalPage};

/// No page.
pub(crate) const NOWHERE: u32 = u32::MAX;

pub(crate) struct Mapping {
    /// One entry more than there are logical pages. Unwritten physical pages point back to the last entry, which is never mapped; that
    /// saves a branch for each page that collection examines.
    forward: Box<[u32]>,
    reverse: Box<[u32]>,
    unit_of: Divisor,
}

impl Mapping {
    pub(crate) fn new(logical_pages: u32, physical_pages: u32, unit_pages: u32) -> Self {
        Self {
            forward: vec![NOWHERE; logical_pages as usize + 1].into(),
            reverse: vec![logical_pages; physical_pages as usize].into(),
            unit_of: Divisor::new(unit_pages),
        }
    }

    pub(crate) fn logical_pages(&self) -> u32 {
        (self.forward.len() - 1) as u32
    }

    /// Bytes of both tables.
    pub(crate) fn memory_bytes(&self) -> u64 {
        Self::bytes(self.logical_pages(), self.reverse.len() as u64)
    }

    /// Bytes of both tables for a drive that does not exist yet.
    pub(crate) fn bytes(logical_pages: u32, physical_pages: u64) -> u64 {
        size_of::<u32>() as u64 * (u64::from(logical_pages) + 1 + physical_pages)
    }

    #[inline]
    pub(crate) fn unit_of(&self, page: u32) -> u32 {
        self.unit_of.divide(page)
    }

    #[inline]
    pub(crate) fn locate(&self, page: LogicalPage) -> Option<PhysicalPage> {
        match self.forward[page.0 as usize] {
            NOWHERE => None,
            at => Some(PhysicalPage(at)),
        }
    }

    /// The logical page stored in `page`, if it is live.
    pub(crate) fn resident(&self, page: PhysicalPage) -> Option<LogicalPage> {
        let logical = self.reverse[page.0 as usize];
        (self.forward[logical as usize] == page.0).then_some(LogicalPage(logical))
    }

    /// Maps one page; returns its old location, or [`NOWHERE`].
    #[inline]
    pub(crate) fn place(&mut self, logical: u32, physical: u32) -> u32 {
        self.reverse[physical as usize] = logical;
        std::mem::replace(&mut self.forward[logical as usize], physical)
    }

    /// Maps `count` consecutive logical pages to consecutive physical pages. Calls `died` with each unit and its invalidated page count.
    pub(crate) fn place_run(&mut self, logical: u32, physical: u32, count: u32, died: impl FnMut(u32, u32)) {
        for (slot, back) in self.reverse[range(physical, count)].iter_mut().zip(logical..) {
            *slot = back;
        }
        let forward = &mut self.forward[range(logical, count)];
        let old = forward.iter_mut().zip(physical..).map(|(slot, to)| std::mem::replace(slot, to));
        by_unit(old, &self.unit_of, died);
    }

    /// Unmaps `count` consecutive pages. Calls `died` as [`place_run`](Self::place_run) does.
    pub(crate) fn forget_run(&mut self, logical: u32, count: u32, died: impl FnMut(u32, u32)) {
        let forward = &mut self.forward[range(logical, count)];
        let old = forward.iter_mut().map(|slot| std::mem::replace(slot, NOWHERE));
        by_unit(old, &self.unit_of, died);
    }

    /// Moves live pages of `from..end` to `to..to_end` until either range is used up. Returns the position reached in
    /// both, and calls `moved` with the logical page, the old and the new location of each.
    ///
    /// The loop has no branch on whether a page is live: at usual shares of live pages, mispredicted branches would
    /// cost as much as several pages each. A dead page is copied too, and the next live one overwrites it.
    #[inline]
    pub(crate) fn move_live(
        &mut self,
        (mut from, end): (u32, u32),
        (mut to, to_end): (u32, u32),
        mut moved: impl FnMut(u32, u32, bool),
    ) -> (u32, u32) {
        while from < end && to < to_end {
            let logical = self.reverse[from as usize];
            let slot = &mut self.forward[logical as usize];
            let lives = *slot == from;
            *slot = if lives { to } else { *slot };
            self.reverse[to as usize] = logical;
            moved(logical, from, lives);
            to += u32::from(lives);
            from += 1;
        }
        (from, to)
    }
}

fn range(first: u32, count: u32) -> std::ops::Range<usize> {
    first as usize..first as usize + count as usize
}

/// Sums up old locations while they stay in one unit: neighbouring pages were mostly written together.
fn by_unit(old: impl Iterator<Item = u32>, unit_of: &Divisor, mut died: impl FnMut(u32, u32)) {
    let (mut unit, mut count) = (NOWHERE, 0);
    for page in old.filter(|&page| page != NOWHERE) {
        let of = unit_of.divide(page);
        if of != unit {
            if count > 0 {
                died(unit, count);
            }
            (unit, count) = (of, 0);
        }
        count += 1;
    }
    if count > 0 {
        died(unit, count);
    }
}

/// Division by a constant divisor: one multiplication instead of 20 to 40 cycles.
///
/// Lemire, Kaser, Kurz, "Faster remainder by direct computation", 2019, §3: with M = ceil(2^64 / d), n / d is the high
/// word of M * n for all 32-bit n and d > 1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Divisor {
    reciprocal: u64,
}

impl Divisor {
    pub(crate) fn new(divisor: u32) -> Self {
        assert!(divisor > 1, "2^64 / 1 does not fit");
        Self { reciprocal: u64::MAX / u64::from(divisor) + 1 }
    }

    #[inline]
    pub(crate) fn divide(self, dividend: u32) -> u32 {
        ((u128::from(self.reciprocal) * u128::from(dividend)) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn division_by_multiplication_is_exact() {
        let mut random = SmallRng::seed_from_u64(1);
        for divisor in [2, 3, 5, 7, 32, 341, 1_572_864, u32::MAX - 1, u32::MAX] {
            let by = Divisor::new(divisor);
            let edges = [0, 1, divisor - 1, divisor, divisor.wrapping_add(1), u32::MAX - 1, u32::MAX];
            let drawn: Vec<u32> = (0..1000).map(|_| random.next_u32()).collect();
            for n in edges.into_iter().chain(drawn) {
                assert_eq!(by.divide(n), n / divisor, "{n} / {divisor}");
            }
        }
    }

    #[test]
    fn invalidations_are_reported_once_per_unit() {
        let mut mapping = Mapping::new(8, 16, 4);
        mapping.place_run(0, 2, 4, |_, _| panic!("the page was not mapped"));
        assert_eq!(mapping.place(7, 9), NOWHERE);
        let mut died = Vec::new();
        mapping.place_run(0, 12, 4, |unit, count| died.push((unit, count)));
        assert_eq!(died, [(0, 2), (1, 2)]);
        died.clear();
        mapping.forget_run(2, 6, |unit, count| died.push((unit, count)));
        assert_eq!(died, [(3, 2), (2, 1)]);
        assert_eq!(
            (mapping.locate(LogicalPage(1)), mapping.locate(LogicalPage(2))),
            (Some(PhysicalPage(13)), None)
        );
    }

    #[test]
    fn only_live_pages_move() {
        let mut mapping = Mapping::new(8, 16, 4);
        mapping.place_run(0, 0, 4, |_, _| ());
        mapping.place(1, 4);
        mapping.forget_run(3, 1, |_, _| ());
        let (from, to) = mapping.move_live((0, 4), (8, 12), |_, _, _| ());
        assert_eq!((from, to), (4, 10));
        assert_eq!(mapping.resident(PhysicalPage(8)), Some(LogicalPage(0)));
        assert_eq!(mapping.resident(PhysicalPage(9)), Some(LogicalPage(2)));
        assert_eq!(mapping.resident(PhysicalPage(0)), None);
        // Locations to which dead pages were copied hold no live page.
        assert_eq!(mapping.resident(PhysicalPage(10)), None);
    }
}
