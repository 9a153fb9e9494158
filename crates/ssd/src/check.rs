//! Invariants of the whole state between two operations. The check examines every page; tests call it after each step.

use crate::ftl::{Ftl, Unit, UnitState};
use crate::gc::Select as _;
use crate::geometry::{LogicalPage, PhysicalPage};

impl Ftl {
    /// Checks every invariant.
    ///
    /// # Errors
    /// A description of the first violated invariant.
    pub fn check(&self) -> Result<(), String> {
        self.check_mapping()?;
        self.check_units()?;
        self.check_frontiers()?;
        self.check_groups()?;
        self.check_counts()
    }

    /// Each mapped logical page is the owner of its physical page, and units count their live pages correctly. With both sums equal, no
    /// two logical pages share a physical page, and no page is live without an owner.
    fn check_mapping(&self) -> Result<(), String> {
        let mut live = vec![0_u32; self.units.len()];
        for page in (0..self.mapping.logical_pages()).map(LogicalPage) {
            let Some(at) = self.mapping.locate(page) else { continue };
            let resident = self.mapping.resident(at);
            ensure(resident == Some(page), || {
                format!("{page:?} is mapped to {at:?}, which belongs to {resident:?}")
            })?;
            live[self.mapping.unit_of(at.0) as usize] += 1;
        }
        for (unit, (counted, state)) in live.iter().zip(&self.units).enumerate() {
            let recorded = state.live;
            ensure(*counted == recorded, || {
                format!("unit {unit} has {counted} live pages, but counts {recorded}")
            })?;
        }
        Ok(())
    }

    /// Each unit is in exactly one list, the one of its state.
    fn check_units(&self) -> Result<(), String> {
        let mut free = vec![0; self.units.len()];
        for unit in self.groups.iter().flat_map(|group| group.free.iter()) {
            free[unit as usize] += 1;
        }
        for (number, &Unit { live, group, state, .. }) in self.units.iter().enumerate() {
            let at = &self.groups[usize::from(group)];
            let recorded = at.victims.recorded_live(number as u32 - at.first_unit);
            let is_closed = state == UnitState::Closed;
            ensure(free[number] == i32::from(state == UnitState::Free), || {
                format!("unit {number} is {state:?}, but occurs {} times in the free list", free[number])
            })?;
            ensure(recorded.is_some() == is_closed, || {
                format!("unit {number} is {state:?}; the victim policy has {recorded:?}")
            })?;
            ensure(recorded.flatten().is_none_or(|recorded| recorded == live), || {
                format!("unit {number} has {live} live pages, but the victim policy counts {recorded:?}")
            })?;
            ensure(state != UnitState::Free || live == 0, || {
                format!("unit {number} is free, but has {live} live pages")
            })?;
        }
        Ok(())
    }

    /// Open units belong to exactly one frontier each, and its pages that are not yet written hold no data.
    fn check_frontiers(&self) -> Result<(), String> {
        let unit_pages = self.layout.shape().unit_pages;
        let mut open = vec![false; self.units.len()];
        for (number, frontier) in
            self.frontiers.iter().enumerate().filter(|(_, frontier)| frontier.room() > 0)
        {
            let unit = self.mapping.unit_of(frontier.next) as usize;
            ensure(!open[unit], || format!("unit {unit} belongs to two frontiers"))?;
            open[unit] = true;
            let end = (unit as u32 + 1) * unit_pages;
            ensure(frontier.end == end, || format!("frontier {number} ends at {}, not {end}", frontier.end))?;
            let alive =
                (frontier.next..end).find(|&page| self.mapping.resident(PhysicalPage(page)).is_some());
            ensure(alive.is_none(), || format!("page {alive:?} is live, but not yet written"))?;
        }
        for (unit, is_open) in open.iter().enumerate() {
            let state = self.units[unit].state;
            ensure(*is_open == (state == UnitState::Open), || {
                format!("unit {unit} is {state:?}, open: {is_open}")
            })?;
        }
        Ok(())
    }

    /// The number of closed units of each group is within its limit, except for units filled since the last collection.
    fn check_groups(&self) -> Result<(), String> {
        for (number, group) in self.groups.iter().enumerate() {
            let units = self.units.iter().filter(|unit| usize::from(unit.group) == number);
            let closed = units.filter(|unit| unit.state == UnitState::Closed).count() as u32;
            ensure(closed == group.closed, || {
                format!("group {number} has {closed} closed units, but counts {}", group.closed)
            })?;
            let frontiers = self.frontiers.len() as u32;
            ensure(closed <= group.limit + frontiers, || {
                format!("group {number} has {closed} closed units; the limit is {}", group.limit)
            })?;
            ensure(group.free.len() > 0, || format!("group {number} has no free unit"))?;
        }
        Ok(())
    }

    /// Sums agree with their parts.
    fn check_counts(&self) -> Result<(), String> {
        let stats = &self.stats;
        let host: u64 = stats.streams.iter().map(|stream| stream.host_pages).sum();
        ensure(host == stats.host_pages, || {
            format!("the streams count {host} host pages, the drive {}", stats.host_pages)
        })?;
        let moved: u64 = stats.streams.iter().map(|stream| stream.relocated_pages).sum();
        let all = stats.relocated_pages + stats.levelled_pages;
        ensure(moved == all, || format!("the streams count {moved} moved pages, the drive {all}"))?;
        ensure(stats.gc_events <= stats.erases, || {
            format!("{} collections exceed {} erases", stats.gc_events, stats.erases)
        })
    }
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}
