//! Compares [`Sets`] with a simple model: lists of block numbers with linear search.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;

/// One set of the model, newest block first.
#[derive(Default, Clone)]
struct ModelSet {
    hot: Vec<u64>,
    warm: Vec<u64>,
}

struct Model {
    ways: usize,
    policy: SetPolicy,
    sets: Vec<ModelSet>,
    hits: HashMap<u64, u8>,
    dirty: HashSet<u64>,
    pinned: HashMap<u64, u32>,
    /// Blocks being cleaned, and whether they were rewritten since.
    cleaning: HashMap<u64, bool>,
}

impl Model {
    fn new(config: &SetsConfig) -> Self {
        Self {
            ways: config.geometry.ways as usize,
            policy: config.tuning.policy,
            sets: vec![ModelSet::default(); config.geometry.sets as usize],
            hits: HashMap::new(),
            dirty: HashSet::new(),
            pinned: HashMap::new(),
            cleaning: HashMap::new(),
        }
    }

    fn holds(&self, set: u32, block: u64) -> bool {
        let ModelSet { hot, warm } = &self.sets[set as usize];
        hot.contains(&block) || warm.contains(&block)
    }

    fn hot_slots(&self) -> usize {
        match self.policy {
            SetPolicy::Lru2q { hot_percent, .. } => self.ways * usize::from(hot_percent) / 100,
            _ => 0,
        }
    }

    fn hit(&mut self, set: u32, block: u64) {
        let hot_slots = self.hot_slots();
        let ModelSet { hot, warm } = &mut self.sets[set as usize];
        if self.policy == SetPolicy::Fifo {
            return;
        }
        if hot.contains(&block) {
            hot.retain(|&other| other != block);
            hot.insert(0, block);
            return;
        }
        warm.retain(|&other| other != block);
        let hits = self.hits.entry(block).or_default();
        *hits = hits.saturating_add(1);
        match self.policy {
            SetPolicy::Lru2q { promote_hits, .. } if *hits >= promote_hits && hot_slots > 0 => {
                hot.insert(0, block);
                if hot.len() > hot_slots {
                    let demoted = hot.pop().expect("not empty");
                    self.hits.remove(&demoted);
                    warm.insert(0, demoted);
                }
            }
            _ => warm.insert(0, block),
        }
    }

    fn can_evict(&self, block: u64) -> bool {
        !self.dirty.contains(&block) && !self.pinned.contains_key(&block)
    }

    /// Inserts a block. Returns the evicted block, or `Err` if none can be evicted.
    fn insert(&mut self, set: u32, block: u64) -> Result<Option<u64>, ()> {
        let ModelSet { hot, warm } = self.sets[set as usize].clone();
        let mut left = None;
        if hot.len() + warm.len() == self.ways {
            let order: Vec<u64> = warm.iter().rev().chain(hot.iter().rev()).copied().collect();
            let place = order.iter().position(|&block| self.can_evict(block)).ok_or(())?;
            left = Some(order[place]);
            if self.policy == SetPolicy::Fifo {
                for &passed in &order[..place] {
                    let warm = &mut self.sets[set as usize].warm;
                    warm.retain(|&other| other != passed);
                    warm.insert(0, passed);
                }
            }
            self.drop_block(set, order[place]);
        }
        self.sets[set as usize].warm.insert(0, block);
        Ok(left)
    }

    fn drop_block(&mut self, set: u32, block: u64) {
        let ModelSet { hot, warm } = &mut self.sets[set as usize];
        hot.retain(|&other| other != block);
        warm.retain(|&other| other != block);
        self.hits.remove(&block);
        self.dirty.remove(&block);
    }

    fn mark_dirty(&mut self, block: u64) {
        self.dirty.insert(block);
        if let Some(rewritten) = self.cleaning.get_mut(&block) {
            *rewritten = true;
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Read(u64),
    Write(u64),
    Pin(u64),
    Unpin,
    Forget(u64),
    BeginCleaning,
    EndCleaning { done: bool },
}

const BLOCKS: u64 = 96;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let block = 0..BLOCKS;
    prop::collection::vec(
        prop_oneof![
            6 => block.clone().prop_map(Step::Read),
            6 => block.clone().prop_map(Step::Write),
            1 => block.clone().prop_map(Step::Pin),
            1 => Just(Step::Unpin),
            1 => block.prop_map(Step::Forget),
            2 => Just(Step::BeginCleaning),
            2 => any::<bool>().prop_map(|done| Step::EndCleaning { done }),
        ],
        0..600,
    )
}

fn configs() -> impl Strategy<Value = SetsConfig> {
    let policy = prop_oneof![
        Just(SetPolicy::Fifo),
        Just(SetPolicy::Lru),
        (0..=100_u8, 1..4_u8)
            .prop_map(|(hot_percent, promote_hits)| SetPolicy::Lru2q { hot_percent, promote_hits }),
    ];
    let shape = prop_oneof![
        (Just(Placement::Linear), 1..9_u32),
        (Just(Placement::Hashed { run_bytes: 8192 }), 2..9_u32),
        (Just(Placement::Permuted { run_bytes: 4096 }), 1..9_u32),
    ];
    (policy, shape, 1..5_u32, 0..=100_u8, 0..3_u32).prop_map(
        |(policy, (placement, ways), sets, dirty_percent, lazy_depth)| {
            let tuning = Tuning { policy, dirty_percent, lazy_depth, ..Preset::V2.tuning() };
            let geometry = Geometry { block_bytes: 4096, sets, ways, placement, placement_key: 7 };
            SetsConfig { geometry, tuning }
        },
    )
}

struct Pair {
    sets: Sets,
    model: Model,
    cleanings: Vec<Cleaning>,
    pinned: Vec<u64>,
}

impl Pair {
    fn new(config: SetsConfig) -> Self {
        let model = Model::new(&config);
        let sets = Sets::new(config).expect("within bounds");
        Self { sets, model, cleanings: Vec::new(), pinned: Vec::new() }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Read(block) => {
                let model = self.use_in_model(block);
                let real = match self.sets.read(block, Admit::Yes) {
                    Read::Hit(_) => Outcome::Hit,
                    Read::Fill { evicted, .. } => Outcome::Taken(evicted),
                    Read::Around => Outcome::NoSpace,
                };
                assert_eq!(real, model);
            }
            Step::Write(block) => self.write(block),
            Step::Pin(block) => {
                if let Some(slot) = self.sets.find(block) {
                    self.sets.pin(slot);
                    *self.model.pinned.entry(block).or_default() += 1;
                    self.pinned.push(block);
                }
            }
            Step::Unpin => self.unpin(),
            Step::Forget(block) => self.forget(block),
            Step::BeginCleaning => {
                if let Some(cleaning) = self.sets.next_cleaning() {
                    self.begin_in_model(cleaning);
                }
            }
            Step::EndCleaning { done } => self.end_cleaning(done),
        }
    }

    fn use_in_model(&mut self, block: u64) -> Outcome {
        let set = self.sets.set_of(block);
        if self.model.holds(set, block) {
            self.model.hit(set, block);
            return Outcome::Hit;
        }
        self.model.insert(set, block).map_or(Outcome::NoSpace, Outcome::Taken)
    }

    fn write(&mut self, block: u64) {
        let model = self.use_in_model(block);
        let (real, slot) = match self.sets.write(block, Admit::Yes) {
            Write::Hit(slot) => (Outcome::Hit, Some(slot)),
            Write::Taken { slot, evicted } => (Outcome::Taken(evicted), Some(slot)),
            Write::Around(none) => (Outcome::NoSpace, none),
        };
        assert_eq!(real, model);
        if let Some(slot) = slot {
            self.sets.mark_dirty(slot);
            self.model.mark_dirty(block);
        }
    }

    fn unpin(&mut self) {
        let Some(block) = self.pinned.pop() else { return };
        self.sets.unpin(self.sets.find(block).expect("pinned blocks stay cached"));
        let pins = self.model.pinned.get_mut(&block).expect("pinned");
        *pins -= 1;
        if *pins == 0 {
            self.model.pinned.remove(&block);
        }
    }

    fn forget(&mut self, block: u64) {
        let Some(slot) = self.sets.find(block) else { return };
        let in_use = self.model.pinned.contains_key(&block) || self.model.cleaning.contains_key(&block);
        assert_eq!(self.sets.forget(slot), !in_use);
        if !in_use {
            self.model.drop_block(self.sets.set_of(block), block);
        }
    }

    /// A run must consist of adjacent dirty, unused blocks that are not being cleaned, and include all adjacent blocks of this
    /// kind.
    fn begin_in_model(&mut self, cleaning: Cleaning) {
        let blocks = cleaning.first_block..cleaning.first_block + cleaning.slots.len() as u64;
        for (block, &slot) in blocks.clone().zip(&cleaning.slots) {
            assert_eq!(self.sets.word(slot).block(), Some(block));
            assert!(self.model.dirty.contains(&block) && !self.model.pinned.contains_key(&block));
            assert_eq!(self.model.cleaning.insert(block, false), None, "block {block} is in two runs");
        }
        for neighbour in [blocks.start.checked_sub(1), Some(blocks.end)].into_iter().flatten() {
            let could = self.model.dirty.contains(&neighbour)
                && !self.model.pinned.contains_key(&neighbour)
                && !self.model.cleaning.contains_key(&neighbour);
            assert!(!could, "block {neighbour} was not included in the run");
        }
        self.cleanings.push(cleaning);
    }

    fn end_cleaning(&mut self, done: bool) {
        let Some(cleaning) = self.cleanings.pop() else { return };
        self.sets.end_cleaning(&cleaning, done);
        for block in cleaning.first_block..cleaning.first_block + cleaning.slots.len() as u64 {
            let rewritten = self.model.cleaning.remove(&block).expect("was being cleaned");
            if done && !rewritten {
                self.model.dirty.remove(&block);
            }
        }
    }

    fn check(&self) {
        for set in 0..self.sets.geometry().sets {
            let block_of = |slot| self.sets.word(slot).block().expect("queued slots hold blocks");
            let order: Vec<u64> = self.sets.oldest_first(set).map(block_of).collect();
            let ModelSet { hot, warm } = &self.model.sets[set as usize];
            let model: Vec<u64> = warm.iter().rev().chain(hot.iter().rev()).copied().collect();
            assert_eq!(order, model, "set {set}");
            let view = self.sets.set(set);
            assert_eq!(view.held as usize, model.len());
            assert_eq!(
                view.dirty as usize,
                model.iter().filter(|block| self.model.dirty.contains(block)).count()
            );
            let cleaning = |block: &&u64| self.model.cleaning.contains_key(block);
            assert_eq!(view.cleaning as usize, model.iter().filter(cleaning).count());
        }
        for (slot, word) in self.sets.held() {
            let block = word.block().expect("held");
            assert_eq!(self.sets.find(block), Some(slot));
            assert_eq!(word.is_dirty(), self.model.dirty.contains(&block));
        }
        assert_eq!(self.sets.dirty_blocks(), self.model.dirty.len() as u64);
        assert_eq!(self.sets.held_blocks(), self.sets.held().count() as u64);
    }
}

#[derive(Debug, PartialEq)]
enum Outcome {
    Hit,
    Taken(Option<u64>),
    NoSpace,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sets_match_the_model_after_random_steps(config in configs(), steps in steps()) {
        let mut pair = Pair::new(config);
        for (number, step) in steps.iter().enumerate() {
            pair.step(step);
            if number % 16 == 0 {
                pair.check();
            }
        }
        pair.check();
    }

    #[test]
    fn drain_cleans_all_dirty_blocks(config in configs(), steps in steps()) {
        let mut pair = Pair::new(config);
        steps.iter().for_each(|step| pair.step(step));
        while !pair.pinned.is_empty() {
            pair.unpin();
        }
        while !pair.cleanings.is_empty() {
            pair.end_cleaning(true);
        }
        pair.sets.start_drain();
        while let Some(cleaning) = pair.sets.next_cleaning() {
            pair.begin_in_model(cleaning);
            pair.end_cleaning(true);
        }
        prop_assert_eq!(pair.sets.dirty_blocks(), 0);
        pair.check();
    }
}
