//! Random operations on small drives of every kind. After each one, all invariants are checked, and the mapped pages
//! are compared with a simple model.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use flashwright_ssd::medium::Cause;
use flashwright_ssd::{
    Ftl, HandleKind, Isolation, Levelling, LogicalPage, Medium, PhysicalPage, Placement, Shape, UnitId,
    Untimed, Upkeep, VictimPolicy,
};
use proptest::prelude::*;

/// All policies, and a further number of draws.
fn policies() -> Vec<VictimPolicy> {
    VictimPolicy::ALL.iter().copied().chain([VictimPolicy::DChoices(3)]).collect()
}

fn isolations() -> [Isolation; 5] {
    use HandleKind::{InitiallyIsolated, PersistentlyIsolated};
    [
        Isolation::CONVENTIONAL,
        Isolation::Conventional { collection_apart: false },
        Isolation::initially_isolated(3),
        Isolation::persistently_isolated(3),
        Isolation::Handles(vec![InitiallyIsolated, PersistentlyIsolated, InitiallyIsolated]),
    ]
}

fn shape(isolation: Isolation, groups: u16, unit_pages: u32) -> Shape {
    let units = 12;
    Shape {
        block_bytes: 4096,
        page_bytes: 16384,
        unit_pages,
        units,
        reserve_units: 0,
        logical_pages: (units - u32::from(groups)) * unit_pages * 9 / 10,
        groups,
        isolation,
    }
}

/// The medium as seen from outside: pages programmed since the erase of their unit.
struct Cells {
    unit_pages: u32,
    programmed: BTreeMap<u32, ()>,
    programs: u64,
    erases: u64,
}

impl Medium for Cells {
    fn program(&mut self, first: PhysicalPage, count: u32, _: Cause) {
        assert_eq!(first.0 / self.unit_pages, (first.0 + count - 1) / self.unit_pages, "within a unit");
        for page in first.0..first.0 + count {
            assert!(self.programmed.insert(page, ()).is_none(), "page {page} is programmed twice");
            let is_next = page.is_multiple_of(self.unit_pages) || self.programmed.contains_key(&(page - 1));
            assert!(is_next, "page {page} is programmed before the one below it");
        }
        self.programs += u64::from(count);
    }

    fn read(&mut self, page: PhysicalPage, _: Cause) {
        assert!(self.programmed.contains_key(&page.0), "page {page:?} is read unwritten");
    }

    fn erase(&mut self, unit: UnitId) {
        let first = unit.0 * self.unit_pages;
        (first..first + self.unit_pages).for_each(|page| {
            self.programmed.remove(&page);
        });
        self.erases += 1;
    }
}

#[derive(Debug, Clone)]
enum Step {
    Write { at: u32, count: u32, handle: u16, group: Option<u16> },
    Part { at: u32, handle: u16 },
    Trim { at: u32, count: u32 },
    Update { handle: u16 },
    Background,
}

fn step() -> impl Strategy<Value = Step> {
    let group = prop_oneof![3 => Just(None), 1 => (0_u16..3).prop_map(Some)];
    prop_oneof![
        12 => (0_u32..1000, 1_u32..40, 0_u16..5, group)
            .prop_map(|(at, count, handle, group)| Step::Write { at, count, handle, group }),
        6 => (0_u32..1000, 0_u16..4).prop_map(|(at, handle)| Step::Part { at, handle }),
        2 => (0_u32..1000, 1_u32..60).prop_map(|(at, count)| Step::Trim { at, count }),
        1 => (0_u16..4).prop_map(|handle| Step::Update { handle }),
        1 => Just(Step::Background),
    ]
}

fn apply(ftl: &mut Ftl, cells: &mut Cells, twin: &mut [bool], step: &Step) {
    let pages = twin.len() as u32;
    match *step {
        Step::Write { at, count, handle, group } => {
            let at = at % pages;
            let count = count.min(pages - at);
            ftl.write(LogicalPage(at), count, Placement { handle, group }, cells);
            twin[at as usize..(at + count) as usize].fill(true);
        }
        Step::Part { at, handle } => {
            ftl.write_part(LogicalPage(at % pages), 4096, Placement::handle(handle), cells);
            twin[(at % pages) as usize] = true;
        }
        Step::Trim { at, count } => {
            let at = at % pages;
            let count = count.min(pages - at);
            ftl.trim(LogicalPage(at), count);
            twin[at as usize..(at + count) as usize].fill(false);
        }
        Step::Update { handle } => ftl.update_handle(Placement::handle(handle), cells),
        Step::Background => drop(ftl.collect_in_background(2, cells)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn random_operations_keep_all_invariants(
        steps in prop::collection::vec(step(), 1..150),
        policy in prop::sample::select(policies()),
        isolation in 0..5_usize,
        groups in 1_u16..3,
        levelling in prop_oneof![Just(Levelling::Off), Just(Levelling::Dynamic), Just(Levelling::Static { behind: 2 })],
    ) {
        let layout = shape(isolations()[isolation].clone(), groups, 8).layout().unwrap();
        let mut twin = vec![false; layout.shape().logical_pages as usize];
        let mut ftl = Ftl::new(layout, Upkeep { victims: policy, levelling, seed: 1 });
        let mut cells = Cells { unit_pages: 8, programmed: BTreeMap::new(), programs: 0, erases: 0 };
        for step in &steps {
            apply(&mut ftl, &mut cells, &mut twin, step);
            prop_assert_eq!(ftl.check(), Ok(()), "after {:?}", step);
            for (page, &holds) in twin.iter().enumerate() {
                let at = ftl.locate(LogicalPage(page as u32));
                prop_assert_eq!(at.is_some(), holds, "page {} after {:?}", page, step);
                if let Some(at) = at {
                    prop_assert!(cells.programmed.contains_key(&at.0), "page {} lies on erased cells", page);
                }
            }
            prop_assert_eq!(ftl.stats().media_pages(), cells.programs);
            prop_assert_eq!(ftl.stats().erases, cells.erases);
        }
    }
}

/// A drive in the steady state, for every policy and isolation.
#[test]
fn full_drive_accepts_overwrites_under_every_policy() {
    for policy in policies() {
        for isolation in isolations() {
            for groups in [1, 2, 3] {
                let layout = shape(isolation.clone(), groups, 8).layout().unwrap();
                let pages = layout.shape().logical_pages;
                let upkeep = Upkeep { victims: policy, levelling: Levelling::Static { behind: 3 }, seed: 1 };
                let mut ftl = Ftl::new(layout, upkeep);
                for number in 0..40 * u64::from(pages) {
                    let page = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % u64::from(pages);
                    // Every write names the last group, which cannot hold them all.
                    let placement = Placement { handle: (number % 3) as u16, group: Some(groups - 1) };
                    ftl.write(LogicalPage(page as u32), 1, placement, &mut Untimed);
                }
                ftl.check()
                    .unwrap_or_else(|error| panic!("{policy}, {isolation:?}, {groups} groups: {error}"));
                assert!(ftl.stats().gc_events > 0);
                assert_eq!(ftl.stats().group_overflows > 0, groups > 1, "{groups} groups");
            }
        }
    }
}

/// Catches a regression: random selection stops after as many draws as there are units, and the drive fails.
#[test]
fn random_victims_find_the_only_unit_with_dead_pages() {
    for seed in 0..50 {
        let shape = Shape { units: 40, logical_pages: 39 * 2, ..shape(Isolation::CONVENTIONAL, 1, 2) };
        let upkeep = Upkeep { victims: VictimPolicy::DChoices(1), levelling: Levelling::Dynamic, seed };
        let mut ftl = Ftl::new(shape.layout().unwrap(), upkeep);
        for page in (0..5).flat_map(|_| 0..39 * 2) {
            ftl.write(LogicalPage(page), 1, Placement::DEFAULT, &mut Untimed);
        }
        ftl.check().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// Catches a regression: all policies except greedy move every unit of the full group repeatedly, without freeing a
/// page.
#[test]
fn group_without_dead_pages_is_not_collected() {
    for victims in policies() {
        let layout = shape(Isolation::CONVENTIONAL, 2, 8).layout().unwrap();
        let pages = layout.shape().logical_pages;
        let mut ftl = Ftl::new(layout, Upkeep { victims, ..Upkeep::default() });
        // More pages than the group holds, each written once.
        let placement = Placement { handle: 0, group: Some(0) };
        ftl.write(LogicalPage(0), pages, placement, &mut Untimed);
        assert!(ftl.stats().group_overflows > 0, "{victims}");
        assert!(!ftl.collect_in_background(12, &mut Untimed), "{victims}: no page can be freed");
        assert_eq!((ftl.stats().relocated_pages, ftl.stats().erases), (0, 0), "{victims}");
    }
}
