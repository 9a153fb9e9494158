//! Collection: frees units and opens them.
//!
//! Foreground collection runs when the host needs a new unit and more units are closed than the drive can hold without
//! its reserve. Background collection is a [step](Ftl::collect_in_background) that the caller runs when the drive is
//! idle. A victim is collected completely in one step; [`timing`](crate::timing) spreads the work over time.

use crate::ftl::{Ftl, Group, Unit, UnitState};
use crate::gc::Select as _;
use crate::geometry::{PhysicalPage, UnitId};
use crate::medium::{Cause, Medium};
use crate::placement::Frontier;
use crate::stats::EventKind;

/// The reason for emptying a unit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    Space,
    Levelling,
}

impl Ftl {
    /// Collects one unit if a group has less than `headroom_units` left before foreground collection would start, and
    /// if that frees space. Returns `false` if no unit was collected.
    pub fn collect_in_background<M: Medium>(&mut self, headroom_units: u32, medium: &mut M) -> bool {
        for group in 0..self.groups.len() as u16 {
            let at = &self.groups[usize::from(group)];
            if at.closed + headroom_units >= at.limit && self.reclaim_one(group, medium) {
                return true;
            }
        }
        false
    }

    /// Opens a unit for a host frontier whose unit is full.
    #[cold]
    #[inline(never)]
    pub(crate) fn open_for_host<M: Medium>(&mut self, frontier: usize, medium: &mut M) {
        let group = self.group_with_room(frontier, medium);
        if self.frontiers[frontier].room() > 0 {
            // On a conventional drive, collection has already opened the unit in which the host continues.
            return;
        }
        let unit = self.open(frontier, group, self.plan.class_of(frontier));
        self.stats.unit_switches += 1;
        let handle = (frontier % self.layout.handles().len()) as u16;
        self.events.add(self.now, EventKind::UnitSwitched { handle, unit: UnitId(unit) });
    }

    /// The group in which a host frontier continues: the one it is bound to, otherwise the one with the most free units. If that group is
    /// full of live data, the next best.
    fn group_with_room<M: Medium>(&mut self, frontier: usize, medium: &mut M) -> u16 {
        let bound = self.plan.bound_group(frontier);
        let mut groups: Vec<u16> = (0..self.groups.len() as u16).collect();
        groups.sort_by_key(|&group| (bound != Some(group), self.groups[usize::from(group)].closed));
        let found = groups.into_iter().find(|&group| self.make_room(group, medium));
        let group = found
            .expect("some group has a dead page, because the live pages are fewer than the groups may hold");
        self.stats.group_overflows += u64::from(bound.is_some_and(|bound| bound != group));
        group
    }

    /// Collects in `group` until the number of closed units is below its limit. False if no collection can free space there.
    fn make_room<M: Medium>(&mut self, group: u16, medium: &mut M) -> bool {
        self.level_wear(group, medium);
        while self.groups[usize::from(group)].is_over_full() {
            if !self.reclaim_one(group, medium) {
                return false;
            }
        }
        true
    }

    /// Collects victims until one frees at least a page. False if all are full of live data.
    fn reclaim_one<M: Medium>(&mut self, group: u16, medium: &mut M) -> bool {
        let unit_pages = self.layout.shape().unit_pages;
        let at = usize::from(group);
        // FIFO and random selection may choose units without dead pages. After `closed` attempts, FIFO has chosen each
        // unit once.
        for _ in 0..=self.groups[at].closed {
            let Group { first_unit, victims, .. } = &mut self.groups[at];
            let Some(victim) = victims.choose(self.now) else { return false };
            let victim = *first_unit + victim;
            let is_full = self.units[victim as usize].live == unit_pages;
            if is_full && !self.has_dead_page(group) {
                return false;
            }
            self.collect(victim, Reason::Space, medium);
            if !is_full {
                return true;
            }
        }
        self.reclaim_emptiest(group, medium)
    }

    /// Random selection may choose full units repeatedly although another unit has dead pages.
    #[cold]
    fn reclaim_emptiest<M: Medium>(&mut self, group: u16, medium: &mut M) -> bool {
        let emptiest = self.closed_in(group).min_by_key(|&unit| self.units[unit as usize].live);
        let unit_pages = self.layout.shape().unit_pages;
        let Some(victim) = emptiest.filter(|&unit| self.units[unit as usize].live < unit_pages) else {
            return false;
        };
        self.collect(victim, Reason::Space, medium);
        true
    }

    /// Whether any closed unit of the group has a dead page, although the chosen one has none.
    #[cold]
    fn has_dead_page(&self, group: u16) -> bool {
        let unit_pages = self.layout.shape().unit_pages;
        !self.groups[usize::from(group)].victims.spares_full_units()
            && self.closed_in(group).any(|unit| self.units[unit as usize].live < unit_pages)
    }

    fn closed_in(&self, group: u16) -> impl Iterator<Item = u32> {
        let first = self.groups[usize::from(group)].first_unit;
        let all = first..first + self.layout.group_units();
        all.filter(|&unit| self.units[unit as usize].state == UnitState::Closed)
    }

    /// Empties the unit with the fewest erases, if levelling requires it.
    fn level_wear<M: Medium>(&mut self, group: u16, medium: &mut M) {
        if let Some(unit) = self.wear.left_behind(self.closed_in(group)) {
            self.collect(unit, Reason::Levelling, medium);
        }
    }

    /// Moves the live pages of `victim` to the frontier of its class, and erases it.
    fn collect<M: Medium>(&mut self, victim: u32, reason: Reason, medium: &mut M) {
        let Unit { live, class, group, .. } = self.units[victim as usize];
        let at = &mut self.groups[usize::from(group)];
        at.victims.remove(victim - at.first_unit);
        at.closed -= 1;
        self.units[victim as usize].state = UnitState::Open;
        if live > 0 {
            self.relocate(victim, class, u16::from(group), medium);
            self.stats.gc_events += u64::from(reason == Reason::Space);
            self.events.add(self.now, EventKind::MediaReallocated { unit: UnitId(victim), pages: live });
        }
        match reason {
            Reason::Space => self.stats.relocated_pages += u64::from(live),
            Reason::Levelling => self.stats.levelled_pages += u64::from(live),
        }
        medium.erase(UnitId(victim));
        self.stats.erases += 1;
        self.wear.erased(victim);
        self.units[victim as usize].state = UnitState::Free;
        self.groups[usize::from(group)].free.add(victim, &self.wear);
    }

    fn relocate<M: Medium>(&mut self, victim: u32, class: u16, group: u16, medium: &mut M) {
        let frontier = self.plan.collection(group, class);
        let unit_pages = self.layout.shape().unit_pages;
        let (mut from, end) = (victim * unit_pages, (victim + 1) * unit_pages);
        let mut left = self.units[victim as usize].live;
        while left > 0 {
            let Frontier { next, end: to_end } = self.frontiers[frontier];
            if next == to_end {
                self.open(frontier, group, class);
                continue;
            }
            let (reached, filled) = self.move_pages((from, end), (next, to_end), medium);
            let moved = filled - next;
            if moved > 0 {
                medium.program(PhysicalPage(next), moved, Cause::Collection);
            }
            from = reached;
            left -= moved;
            let into = self.mapping.unit_of(next);
            self.units[into as usize].live += moved;
            self.frontiers[frontier].next = filled;
            if filled == to_end {
                self.close(into);
            }
        }
        self.units[victim as usize].live = 0;
    }

    /// Moves pages and counts them for their streams.
    fn move_pages<M: Medium>(&mut self, from: (u32, u32), to: (u32, u32), medium: &mut M) -> (u32, u32) {
        let streams = &mut self.stats.streams;
        match self.origins.table() {
            Err(only) => {
                let done = self.mapping.move_live(from, to, |_, page, lives| {
                    if lives {
                        medium.read(PhysicalPage(page), Cause::Collection);
                    }
                });
                streams[usize::from(only)].relocated_pages += u64::from(done.1 - to.0);
                done
            }
            Ok((table, shift)) => {
                let mut counts = [0_u32; 256];
                let done = self.mapping.move_live(from, to, |logical, page, lives| {
                    counts[usize::from(table[(logical >> shift) as usize])] += u32::from(lives);
                    if lives {
                        medium.read(PhysicalPage(page), Cause::Collection);
                    }
                });
                for (stream, count) in streams.iter_mut().zip(counts) {
                    stream.relocated_pages += u64::from(count);
                }
                done
            }
        }
    }

    /// Takes a free unit of `group` for `frontier`.
    fn open(&mut self, frontier: usize, group: u16, class: u16) -> u32 {
        let taken = self.groups[usize::from(group)].free.take();
        let unit = taken.expect("the reserve has a unit for every frontier and one for collection");
        let unit_pages = self.layout.shape().unit_pages;
        self.frontiers[frontier] = Frontier { next: unit * unit_pages, end: (unit + 1) * unit_pages };
        let at = &mut self.units[unit as usize];
        at.state = UnitState::Open;
        at.class = class;
        unit
    }
}
