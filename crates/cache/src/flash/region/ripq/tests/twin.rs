//! Compares the queue with a simple model that stores no counts and searches linearly.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

const SECTIONS: u8 = 4;
const REGIONS: u32 = 24;

/// A caching policy whose level for hits is set by the test.
struct FixedLevel(Arc<AtomicU8>);

impl CachingPolicy for FixedLevel {
    fn insert(&self, object: &Object, queue: &QueueState) -> Priority {
        self.hit(object, queue)
    }

    fn hit(&self, _object: &Object, _queue: &QueueState) -> Priority {
        Priority::Relative(f64::from(self.0.load(Ordering::Relaxed) + 1) / f64::from(SECTIONS))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    Region(RegionId),
    Virtual(Rank),
}

/// The model: lists of blocks, the nearest to the end first, and a list of items.
#[derive(Default)]
struct Twin {
    sections: Vec<Vec<Block>>,
    active: HashMap<usize, Rank>,
    /// For each item: its region, its virtual block if it has one, and its units.
    items: HashMap<u32, (RegionId, Rank, u32)>,
    /// For each region being filled: its section.
    open: HashMap<RegionId, usize>,
}

impl Twin {
    fn sum(&self, counts: impl Fn(RegionId, Rank) -> bool) -> u64 {
        let items = self.items.values().filter(|(region, rank, _)| counts(*region, *rank));
        items.map(|(_, _, units)| u64::from(*units)).sum()
    }

    fn weight(&self, block: Block) -> u64 {
        match block {
            Block::Virtual(of) => self.sum(|_, rank| rank == of),
            Block::Region(of) => u64::from(UNITS) - self.sum(|region, rank| region == of && !rank.is_none()),
        }
    }

    fn section_weight(&self, section: usize) -> u64 {
        let line: u64 = self.sections[section].iter().map(|&block| self.weight(block)).sum();
        let active = self.active.get(&section).map_or(0, |&rank| self.weight(Block::Virtual(rank)));
        let is_open_here = |region| self.open.get(&region) == Some(&section);
        line + active + self.sum(|region, rank| rank.is_none() && is_open_here(region))
    }

    fn balance(&mut self) {
        let total: u64 = (0..self.sections.len()).map(|section| self.section_weight(section)).sum();
        let share = total / self.sections.len() as u64;
        for section in (1..self.sections.len()).rev() {
            while let Some(&first) = self.sections[section].first()
                && self.section_weight(section) - self.weight(first) >= share
            {
                self.sections[section].remove(0);
                self.sections[section - 1].push(first);
            }
        }
    }

    fn seal(&mut self, section: usize) {
        let rank = self.active.remove(&section);
        self.sections[section].extend(rank.map(Block::Virtual));
    }

    fn place(&self, region: RegionId, rank: Rank) -> Option<usize> {
        let block = if rank.is_none() { Block::Region(region) } else { Block::Virtual(rank) };
        let in_line = self.sections.iter().position(|line| line.contains(&block));
        let active = || self.active.iter().find(|(_, active)| !rank.is_none() && **active == rank);
        let open = || if rank.is_none() { self.open.get(&region).copied() } else { None };
        in_line.or_else(|| active().map(|(section, _)| *section)).or_else(open)
    }

    fn is_at_head(&self, region: RegionId, rank: Rank) -> bool {
        if rank.is_none() {
            self.open.contains_key(&region)
        } else {
            self.active.values().any(|it| *it == rank)
        }
    }

    fn victim(&mut self) -> Option<RegionId> {
        for section in 0..self.sections.len() {
            while !self.sections[section].is_empty() {
                if let Block::Region(region) = self.sections[section].remove(0) {
                    self.balance();
                    return Some(region);
                }
            }
        }
        None
    }
}

/// The queue and its model, with the steps that the store would make between calls.
struct Pair {
    queue: Ripq,
    twin: Twin,
    wish: Arc<AtomicU8>,
    open: [Option<(RegionId, u32)>; SECTIONS as usize],
    clean: Vec<RegionId>,
    next_item: u32,
    reinserted: u32,
}

impl Pair {
    fn new() -> Self {
        let wish = Arc::new(AtomicU8::new(0));
        let config = RipqConfig { sections: SECTIONS, ..RipqConfig::plain(Caching::Lru) };
        let mut queue = Ripq::new(&config, &layout(REGIONS));
        queue.caching = Box::new(FixedLevel(Arc::clone(&wish)));
        let twin = Twin { sections: vec![Vec::new(); usize::from(SECTIONS)], ..Twin::default() };
        let clean = (0..REGIONS).map(RegionId).collect();
        Self { queue, twin, wish, open: [None; 4], clean, next_item: 0, reinserted: 0 }
    }

    fn room(&mut self, level: u8, units: u32) -> RegionId {
        let at = usize::from(level);
        if let Some((region, used)) = self.open[at] {
            if used + units <= UNITS {
                self.open[at] = Some((region, used + units));
                return region;
            }
            self.open[at] = None;
            self.queue.written(region, InsertionPoint(level));
            self.twin.open.remove(&region);
            if self
                .twin
                .active
                .get(&at)
                .is_some_and(|&rank| self.twin.weight(Block::Virtual(rank)) >= u64::from(UNITS / 8))
            {
                self.twin.seal(at);
            }
            self.twin.sections[at].push(Block::Region(region));
            self.twin.balance();
        }
        let region = self.clean.pop().expect("regions are reclaimed in time");
        self.open[at] = Some((region, units));
        self.twin.open.insert(region, at);
        region
    }

    fn enter(&mut self, item: u32, level: u8, units: u32) {
        let region = self.room(level, units);
        let rank = self.queue.enter(region, InsertionPoint(level), Placing { level, worth: 0.0 }, units);
        assert!(rank.is_none(), "a point for each section");
        self.twin.items.insert(item, (region, rank, units));
    }

    fn resident(&self, item: u32) -> Option<Resident> {
        let &(region, rank, units) = self.twin.items.get(&item)?;
        Some(Resident { region, rank, hits: 1, units })
    }

    fn hit(&mut self, item: u32, level: u8) {
        let Some(resident) = self.resident(item) else { return };
        self.wish.store(level, Ordering::Relaxed);
        let place = self.twin.place(resident.region, resident.rank).unwrap_or(0);
        let stays = usize::from(level) < place
            || usize::from(level) == place && self.twin.is_at_head(resident.region, resident.rank);
        let raise = self.queue.hit(&resident);
        assert_eq!(raise.is_none(), stays, "{resident:?} at {place} wishes for {level}");
        let Some(raise) = raise else { return };
        self.queue.raised(&resident, raise);
        let section = usize::from(level);
        let new = !self.twin.active.contains_key(&section);
        assert!(
            !new || self.twin.sum(|_, rank| rank == raise.rank) == 0,
            "a rank is used for one block at a time"
        );
        assert_eq!(*self.twin.active.entry(section).or_insert(raise.rank), raise.rank);
        self.twin.items.insert(item, (resident.region, raise.rank, resident.units));
        if self.twin.weight(Block::Virtual(raise.rank)) >= u64::from(UNITS) {
            self.twin.seal(section);
            self.twin.balance();
        }
    }

    fn remove(&mut self, item: u32) {
        if let Some(resident) = self.resident(item) {
            self.queue.left(&resident);
            self.twin.items.remove(&item);
        }
    }

    fn reclaim(&mut self) {
        let victim = self.queue.victim();
        assert_eq!(victim, self.twin.victim());
        let Some(victim) = victim else { return };
        let mut inside: Vec<u32> =
            self.twin.items.iter().filter(|(_, item)| item.0 == victim).map(|(&number, _)| number).collect();
        inside.sort_unstable();
        for item in inside {
            let resident = self.resident(item).expect("it is inside");
            let survives = self.queue.survives(&resident, KeyHash(0), 0).map(|placing| placing.level);
            let protected =
                (!resident.rank.is_none()).then(|| self.twin.place(victim, resident.rank)).flatten();
            assert_eq!(
                survives.map(usize::from),
                protected,
                "a virtual block in line protects, nothing else does"
            );
            match survives {
                Some(level) => {
                    // The item leaves its old block after it entered the new one, as in the store.
                    self.enter(item, level, resident.units);
                    self.queue.left(&resident);
                    self.reinserted += 1;
                }
                None => self.remove(item),
            }
        }
        self.clean.insert(0, victim);
    }

    fn compare(&mut self) {
        for section in 0..usize::from(SECTIONS) {
            assert_eq!(self.queue.queue.section_units(section), self.twin.section_weight(section));
        }
        let in_line = |block: &Block| match block {
            Block::Region(region) => Some(*region),
            Block::Virtual(_) => None,
        };
        let expected: Vec<_> = self.twin.sections.iter().flatten().filter_map(in_line).collect();
        let order: Vec<_> = self.queue.in_order().into_iter().map(|(region, _)| region).collect();
        assert_eq!(order, expected);
    }
}

#[test]
fn queue_agrees_with_a_simple_model() {
    for seed in 0..6 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut pair = Pair::new();
        for _ in 0..3_000 {
            let known = pair.next_item.max(1);
            let item = known - 1 - random.random_range(0..known.min(120));
            match random.random_range(0..10) {
                0..4 => {
                    pair.next_item += 1;
                    pair.enter(pair.next_item, random.random_range(0..SECTIONS), random.random_range(1..6));
                }
                4..9 => pair.hit(item, random.random_range(0..SECTIONS)),
                _ => pair.remove(item),
            }
            while pair.clean.len() < 6 {
                pair.reclaim();
            }
            pair.compare();
        }
        assert!(pair.reinserted > 50, "seed {seed}: {} written again", pair.reinserted);
    }
}
