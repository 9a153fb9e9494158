//! The flash translation layer's operations for the host: write, trim, locate. Collection is in [`collect`](crate::collect).

use crate::gc::{Select as _, VictimPolicy, Victims};
use crate::geometry::{Layout, LogicalPage, PhysicalPage, UnitId};
use crate::mapping::{Mapping, NOWHERE};
use crate::medium::{Cause, Medium};
use crate::placement::{Frontier, Placement, Plan};
use crate::stats::{Event, EventKind, EventLog, Origins, Stats, StreamStats};
use crate::wear::{FreeUnits, Levelling, Wear, WearReport};

/// Policies of a drive's garbage collection and wear levelling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upkeep {
    /// Choice of victims.
    pub victims: VictimPolicy,
    /// Wear levelling.
    pub levelling: Levelling,
    /// Seed of the policies' random draws.
    pub seed: u64,
}

impl Default for Upkeep {
    fn default() -> Self {
        Self { victims: VictimPolicy::Greedy, levelling: Levelling::Dynamic, seed: 1 }
    }
}

/// A page-mapped flash translation layer. It stores no payload and takes no time: it reports each operation to a [`Medium`].
pub struct Ftl {
    pub(crate) layout: Layout,
    pub(crate) mapping: Mapping,
    pub(crate) units: Box<[Unit]>,
    pub(crate) groups: Box<[Group]>,
    pub(crate) plan: Plan,
    pub(crate) frontiers: Box<[Frontier]>,
    pub(crate) origins: Origins,
    pub(crate) wear: Wear,
    pub(crate) stats: Stats,
    pub(crate) events: EventLog,
    /// Pages written by the host since the drive was created. It serves as the clock of ages and events, and is never
    /// reset.
    pub(crate) now: u64,
}

/// A reclaim unit.
#[derive(Clone, Copy)]
pub(crate) struct Unit {
    pub(crate) live: u32,
    /// Collection class of the unit's data.
    pub(crate) class: u16,
    pub(crate) group: u8,
    pub(crate) state: UnitState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnitState {
    Free,
    Open,
    Closed,
}

/// A reclaim group.
pub(crate) struct Group {
    pub(crate) first_unit: u32,
    pub(crate) free: FreeUnits,
    pub(crate) victims: Victims,
    pub(crate) closed: u32,
    /// Units that may be closed before collection begins.
    pub(crate) limit: u32,
}

impl Ftl {
    /// An empty drive.
    #[must_use]
    pub fn new(layout: Layout, upkeep: Upkeep) -> Self {
        let shape = layout.shape();
        let wear = Wear::new(layout.total_units(), upkeep.levelling);
        let groups: Box<[Group]> =
            (0..shape.groups).map(|number| Group::new(&layout, number, upkeep, &wear)).collect();
        let units = (0..layout.total_units()).map(|unit| {
            let group = (unit / layout.group_units()) as u8;
            Unit { live: 0, class: 0, group, state: UnitState::Free }
        });
        let plan = Plan::new(&shape.isolation, shape.groups);
        let physical_pages = layout.total_units() * shape.unit_pages;
        Self {
            mapping: Mapping::new(shape.logical_pages, physical_pages, shape.unit_pages),
            units: units.collect(),
            groups,
            frontiers: vec![Frontier::default(); plan.len()].into(),
            plan,
            origins: Origins::new(shape.logical_pages),
            wear,
            stats: Stats {
                streams: vec![StreamStats::default(); layout.handles().len()],
                ..Stats::default()
            },
            events: EventLog::default(),
            now: 0,
            layout,
        }
    }

    /// Writes `count` whole pages from `first` on.
    ///
    /// # Panics
    /// If the range reaches past the drive.
    #[inline]
    pub fn write<M: Medium>(&mut self, first: LogicalPage, count: u32, placement: Placement, medium: &mut M) {
        self.stats.host_bytes += u64::from(count) * u64::from(self.layout.shape().page_bytes);
        self.program_for_host(first, count, placement, medium);
    }

    /// Writes `bytes` bytes, less than a page, somewhere inside `page`. The rest of the page is read and written again.
    ///
    /// # Panics
    /// If the page is past the end of the drive.
    pub fn write_part<M: Medium>(
        &mut self,
        page: LogicalPage,
        bytes: u32,
        placement: Placement,
        medium: &mut M,
    ) {
        self.stats.host_bytes += u64::from(bytes);
        self.stats.partial_pages += 1;
        if let Some(at) = self.locate(page) {
            medium.read(at, Cause::Host);
        }
        self.program_for_host(page, 1, placement, medium);
    }

    /// Trims `count` pages from `first` on.
    ///
    /// # Panics
    /// If the range reaches past the drive.
    pub fn trim(&mut self, first: LogicalPage, count: u32) {
        let Self { mapping, units, groups, stats, .. } = self;
        mapping.forget_run(first.0, count, |unit, dead| {
            stats.trimmed_pages += u64::from(dead);
            invalidate(units, groups, unit, dead);
        });
    }

    /// The location of `page`; `None` if it was never written or was trimmed.
    ///
    /// # Panics
    /// If the page is past the end of the drive.
    #[must_use]
    pub fn locate(&self, page: LogicalPage) -> Option<PhysicalPage> {
        assert!(page.0 < self.mapping.logical_pages(), "page {} is past the end", page.0);
        self.mapping.locate(page)
    }

    /// Moves a handle to a new unit (NVMe "reclaim unit handle update"). The rest of its open unit is padded.
    pub fn update_handle<M: Medium>(&mut self, placement: Placement, medium: &mut M) {
        let Some(frontier) = self.plan.host(placement) else { return };
        let Frontier { next, end } = self.frontiers[frontier];
        if next == end {
            return;
        }
        let unit = self.mapping.unit_of(next);
        let pages = end - next;
        medium.program(PhysicalPage(next), pages, Cause::Host);
        self.stats.padded_pages += u64::from(pages);
        let handle = placement.handle;
        self.events.add(self.now, EventKind::UnitNotFullyWritten { handle, unit: UnitId(unit), pages });
        self.frontiers[frontier] = Frontier::default();
        self.close(unit);
    }

    /// Pages that can still be written through `placement` before its unit is full. `None` if there is no such placement.
    #[must_use]
    pub fn room(&self, placement: Placement) -> Option<u32> {
        self.plan.host(placement).map(|frontier| self.frontiers[frontier].room())
    }

    /// The next page of each open unit.
    pub(crate) fn open_pages(&self) -> impl Iterator<Item = PhysicalPage> {
        next_pages(&self.frontiers)
    }

    /// The next page of each open unit that the host writes.
    pub(crate) fn open_host_pages(&self) -> impl Iterator<Item = PhysicalPage> {
        next_pages(&self.frontiers[..self.plan.host_frontiers()])
    }

    /// The layout of the drive.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Counts so far.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Sets the counters to zero at the end of a warm-up; the drive's data stays.
    pub fn reset_stats(&mut self) {
        let streams = vec![StreamStats::default(); self.stats.streams.len()];
        self.stats = Stats { streams, ..Stats::default() };
    }

    /// The last events, oldest first.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }

    /// Erase counts of the units.
    #[must_use]
    pub fn wear(&self) -> WearReport {
        self.wear.report()
    }

    /// Bytes of the tables that grow with the drive.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.mapping.memory_bytes() + self.origins.memory_bytes()
    }

    #[inline]
    fn program_for_host<M: Medium>(
        &mut self,
        first: LogicalPage,
        count: u32,
        placement: Placement,
        medium: &mut M,
    ) {
        let end = u64::from(first.0) + u64::from(count);
        assert!(end <= u64::from(self.mapping.logical_pages()), "pages up to {end} are past the end");
        if count == 0 {
            return;
        }
        let (frontier, stream) = match self.plan.host(placement) {
            Some(frontier) if usize::from(placement.handle) < crate::placement::MAX_HANDLES => {
                (frontier, placement.handle as u8)
            }
            _ => (self.refuse_placement(placement), 0),
        };
        self.count_host(first, count, stream);
        let (mut first, mut left) = (first.0, count);
        while left > 0 {
            let Frontier { next, end } = self.frontiers[frontier];
            if next == end {
                self.open_for_host(frontier, medium);
                continue;
            }
            let run = left.min(end - next);
            self.frontiers[frontier].next += run;
            medium.program(PhysicalPage(next), run, Cause::Host);
            self.place(first, next, run);
            if next + run == end {
                self.close(self.mapping.unit_of(next));
            }
            (first, left) = (first + run, left - run);
        }
    }

    #[inline]
    fn count_host(&mut self, first: LogicalPage, count: u32, stream: u8) {
        self.now += u64::from(count);
        self.stats.host_pages += u64::from(count);
        let streams = &mut self.stats.streams;
        if usize::from(stream) >= streams.len() {
            streams.resize(usize::from(stream) + 1, StreamStats::default());
        }
        streams[usize::from(stream)].host_pages += u64::from(count);
        self.origins.wrote(first, count, stream);
    }

    #[inline]
    fn place(&mut self, logical: u32, physical: u32, count: u32) {
        let Self { mapping, units, groups, .. } = self;
        let unit = mapping.unit_of(physical);
        units[unit as usize].live += count;
        if count > 1 {
            mapping.place_run(logical, physical, count, |old, dead| invalidate(units, groups, old, dead));
            return;
        }
        let old = mapping.place(logical, physical);
        if old != NOWHERE {
            invalidate(units, groups, mapping.unit_of(old), 1);
        }
    }

    #[cold]
    fn refuse_placement(&mut self, placement: Placement) -> usize {
        self.log_invalid_placement(placement.handle);
        self.plan.host(Placement::DEFAULT).expect("every drive has a default handle")
    }

    /// Logs a write with a handle that the drive does not have.
    pub(crate) fn log_invalid_placement(&mut self, handle: u16) {
        self.stats.invalid_placements += 1;
        self.events.add(self.now, EventKind::InvalidPlacement { handle });
    }

    pub(crate) fn close(&mut self, unit: u32) {
        let Unit { live, group, .. } = self.units[unit as usize];
        self.units[unit as usize].state = UnitState::Closed;
        let group = &mut self.groups[usize::from(group)];
        group.closed += 1;
        group.victims.close(unit - group.first_unit, live, self.now);
    }
}

impl Group {
    fn new(layout: &Layout, number: u16, upkeep: Upkeep, wear: &Wear) -> Self {
        let units = layout.group_units();
        let first_unit = u32::from(number) * units;
        let mut free = FreeUnits::default();
        (first_unit..first_unit + units).for_each(|unit| free.add(unit, wear));
        let seed = upkeep.seed.wrapping_add(u64::from(number));
        let victims = Victims::new(upkeep.victims, units, layout.shape().unit_pages, seed);
        Self { first_unit, free, victims, closed: 0, limit: layout.group_limit() }
    }

    /// Whether collection must free a unit before another is opened for the host.
    pub(crate) fn is_over_full(&self) -> bool {
        self.closed >= self.limit
    }
}

/// The next page of each frontier with free pages.
fn next_pages(frontiers: &[Frontier]) -> impl Iterator<Item = PhysicalPage> {
    frontiers.iter().filter(|frontier| frontier.room() > 0).map(|frontier| PhysicalPage(frontier.next))
}

/// Records that `dead` pages of `unit` were invalidated.
#[inline]
fn invalidate(units: &mut [Unit], groups: &mut [Group], unit: u32, dead: u32) {
    let at = &mut units[unit as usize];
    at.live -= dead;
    if at.state == UnitState::Closed {
        let group = &mut groups[usize::from(at.group)];
        group.victims.invalidate(unit - group.first_unit, at.live);
    }
}
