//! LHD, least hit density: evicts the entry with the fewest expected hits per byte and unit of time. The expectation depends on the entry's
//! age since its last request and on its class, from the ages at its two previous hits. It is measured: hits and evictions are counted by
//! age and class, and every 2^20 requests the hit densities are computed from the counts.
//!
//! Beckmann, Chen, Cidon: "LHD: improving cache hit rate by maximizing hit density", NSDI'18, sections 3 and 4. The victim is the worst of a
//! random sample and of the last entries that looked bad at their insertion. A few entries, the explorers, are spared at random, so that
//! the policy learns about old ages.
//!
//! As in the authors' simulator and libCacheSim 0.3.5: single precision, a sample of 8 entries in the first 51 periods and 32 from then on,
//! and a unit of age of 1024 requests that is adapted twice, after 6 and 26 periods.

use crate::lehmer::Lehmer64;
use crate::pool::{Pool, pool_methods};
use crate::{Entry, Eviction, HitRule, Slot};

mod model;

use model::{MAX_AGE, Model};

const SAMPLES: usize = 32;
const FIRST_SAMPLES: usize = 8;
/// Entries that are remembered because they looked bad at their insertion.
const ADMISSIONS: usize = 8;
/// A request makes its entry an explorer with a probability of 1 in this, if the budget allows.
const EXPLORE_ONE_IN: u64 = 32;
/// Share of the capacity for explorers.
const EXPLORER_SHARE: f32 = 0.01;
/// Periods in which there are explorers and, with one more, few samples.
const LEARNING_PERIODS: u32 = 50;
const DECAY: f32 = 0.9;

/// The entries, and the model of their hit density.
pub struct Lhd {
    pool: Pool,
    random: Lehmer64,
    tags: Vec<Tag>,
    model: Model,
    recently_admitted: [Option<Slot>; ADMISSIONS],
    next_admission: usize,
    /// Moving average of the victims' hit density.
    victim_density: f32,
    explorer_budget: i64,
}

/// The age of an entry that was not hit yet.
const NEVER_HIT: u64 = MAX_AGE as u64;

/// State of an entry.
#[derive(Clone, Copy)]
struct Tag {
    /// Time of the last request.
    timestamp: u64,
    last_hit_age: u64,
    last_last_hit_age: u64,
    size: f32,
    is_explorer: bool,
}

const NEW: Tag =
    Tag { timestamp: 0, last_hit_age: 0, last_last_hit_age: NEVER_HIT, size: 0.0, is_explorer: false };

impl Lhd {
    /// An empty policy.
    #[must_use]
    pub fn new(capacity_weight: u64, seed: u64) -> Self {
        Self {
            pool: Pool::default(),
            random: Lehmer64::new(seed),
            tags: Vec::new(),
            model: Model::new(),
            recently_admitted: [None; ADMISSIONS],
            next_admission: 0,
            victim_density: 0.0,
            explorer_budget: (capacity_weight as f32 * EXPLORER_SHARE) as i64,
        }
    }

    fn density(&self, tag: &Tag) -> f32 {
        let age = self.model.age(tag.timestamp);
        if age == MAX_AGE - 1 {
            return f32::MIN;
        }
        let density = self.model.hit_density(tag.last_hit_age + tag.last_last_hit_age, age) / tag.size;
        if tag.is_explorer { (f64::from(density) + 1.0) as f32 } else { density }
    }

    /// Takes `size` from the explorers' budget, an integer that is computed in single precision.
    fn spend(&mut self, size: f32) {
        self.explorer_budget = (self.explorer_budget as f32 - size) as i64;
    }

    /// A request for an entry, which the clock of the model counts.
    fn request(&mut self, slot: Slot, is_new: bool) {
        let mut tag = self.tags[slot.0 as usize];
        tag.timestamp = self.model.now();
        let explores = self.random.below(EXPLORE_ONE_IN) == 0;
        tag.is_explorer = explores && self.explorer_budget > 0 && self.model.periods() < LEARNING_PERIODS;
        if tag.is_explorer {
            self.spend(tag.size);
        }
        self.tags[slot.0 as usize] = tag;
        if is_new && !explores && self.density(&tag) < self.victim_density {
            self.recently_admitted[self.next_admission % ADMISSIONS] = Some(slot);
            self.next_admission += 1;
        }
        self.model.tick(self.pool.len());
    }

    fn end_exploration(&mut self, tag: &Tag) {
        if tag.is_explorer {
            self.spend(-tag.size);
        }
    }

    fn begin(&mut self, slot: Slot, entry: Entry) {
        if slot.0 as usize >= self.tags.len() {
            self.tags.resize(slot.0 as usize + 1, NEW);
        }
        self.tags[slot.0 as usize] = Tag { size: entry.weight as f32, timestamp: self.model.now(), ..NEW };
    }

    /// The entry with the lowest hit density among a random sample and the recently admitted entries.
    fn worst(&mut self) -> Option<(Slot, f32)> {
        let (mut victim, mut lowest) = (None, f32::MAX);
        let samples = if self.model.periods() > LEARNING_PERIODS { SAMPLES } else { FIRST_SAMPLES };
        let mut consider = |slot: Slot, density: f32| {
            if density < lowest || victim.is_none() {
                (victim, lowest) = (Some(slot), density);
            }
        };
        for _ in 0..samples {
            let slot = self.pool.draw(&mut self.random)?;
            consider(slot, self.density(&self.tags[slot.0 as usize]));
        }
        for slot in self.recently_admitted.into_iter().flatten() {
            if self.pool.is_drawable(slot) {
                consider(slot, self.density(&self.tags[slot.0 as usize]));
            }
        }
        Some((victim?, lowest))
    }
}

impl Eviction for Lhd {
    fn insert(&mut self, slot: Slot, entry: Entry, _now_seconds: u32) {
        self.pool.insert(slot);
        self.begin(slot, entry);
        self.request(slot, true);
    }

    fn hit(&mut self, slot: Slot, _now_seconds: u32) {
        let mut tag = self.tags[slot.0 as usize];
        let age = self.model.age(tag.timestamp);
        self.model.count_hit(tag.last_hit_age + tag.last_last_hit_age, age);
        self.end_exploration(&tag);
        (tag.last_last_hit_age, tag.last_hit_age) = (tag.last_hit_age, age as u64);
        self.tags[slot.0 as usize] = tag;
        self.request(slot, false);
    }

    fn evict(&mut self, _now_seconds: u32) -> Option<Slot> {
        let (victim, density) = self.worst()?;
        self.victim_density = DECAY * self.victim_density + (1.0 - DECAY) * density;
        let tag = self.tags[victim.0 as usize];
        let age = self.model.age(tag.timestamp);
        self.model.count_eviction(tag.last_hit_age + tag.last_last_hit_age, age);
        self.end_exploration(&tag);
        self.pool.remove(victim);
        Some(victim)
    }

    fn remove(&mut self, slot: Slot) {
        let tag = self.tags[slot.0 as usize];
        self.end_exploration(&tag);
        self.pool.remove(slot);
    }

    fn restore(&mut self, slot: Slot, entry: Entry, _now_seconds: u32) {
        self.pool.restore(slot);
        self.begin(slot, entry);
    }

    fn set_capacity(&mut self, capacity_weight: u64) {
        let spent: f32 = self.explorers_size();
        self.explorer_budget = (capacity_weight as f32 * EXPLORER_SHARE) as i64;
        self.spend(spent);
    }

    pool_methods!();

    fn hit_rule(&self) -> HitRule {
        HitRule::Every
    }

    /// The tag and the pool; the model takes 4 MB besides.
    fn bytes_per_slot(&self) -> u32 {
        Pool::BYTES_PER_SLOT + 2 * size_of::<Tag>() as u32 + 8
    }

    fn reweigh(&mut self, slot: Slot, weight: u32) {
        self.tags[slot.0 as usize].size = weight as f32;
    }
}

impl Lhd {
    /// The total size of the explorers.
    fn explorers_size(&self) -> f32 {
        let tags = self.pool.slots().map(|slot| &self.tags[slot.0 as usize]);
        tags.filter(|tag| tag.is_explorer).map(|tag| tag.size).sum()
    }
}
