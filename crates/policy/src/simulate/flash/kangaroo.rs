//! Kangaroo: a small log in front of sets. McAllister et al.: "Kangaroo: caching billions of tiny objects on flash", SOSP'21, section 4.
//!
//! When the oldest block of the log is evicted, the objects of the log that belong to one set move there together, and the set is written
//! once for them. If they are fewer than a threshold, an object that was hit goes to the log again, and another one is dropped. Sets
//! evict by RRIP predictions of 3 bits with one bit of hits per object ("RRIParoo").

use std::collections::{HashMap, VecDeque};

use super::blocks::{Block, Blocks};
use super::{FlashCache, WeightedObject};
use crate::simulate::hash_of_object;

/// The prediction of an object that enters the log.
const LONG: u8 = 6;
/// The prediction of an object that is evicted next.
const FAR: u8 = 7;

/// The sizes of a [`Kangaroo`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KangarooRules {
    /// The share of flash for the log.
    pub log_share: f64,
    /// Weight of a block of the log.
    pub block_weight: u64,
    /// Weight of a set.
    pub set_weight: u64,
    /// Minimum number of objects that are moved from the log to a set together.
    pub threshold: usize,
}

impl Default for KangarooRules {
    /// The settings of the paper.
    fn default() -> Self {
        Self { log_share: 0.05, block_weight: 256 << 10, set_weight: 4096, threshold: 2 }
    }
}

/// The cache.
pub struct Kangaroo {
    rules: KangarooRules,
    blocks: Blocks,
    open: Block,
    /// The oldest at the back.
    sealed: VecDeque<Block>,
    max_sealed: usize,
    /// The objects of the log, by set.
    in_log: HashMap<u64, Vec<WeightedObject>>,
    set_count: u64,
    sets: HashMap<u64, Vec<WeightedObject>>,
    is_in_set: Vec<bool>,
    is_hit: Vec<bool>,
    predictions: Vec<u8>,
    written_weight: u64,
}

impl Kangaroo {
    /// A cache with at least two blocks of log and one set.
    #[must_use]
    pub fn new(capacity_weight: u64, mut rules: KangarooRules) -> Self {
        let log_weight = (capacity_weight as f64 * rules.log_share) as u64;
        rules.block_weight = rules.block_weight.clamp(1, (log_weight / 2).max(1));
        rules.set_weight = rules.set_weight.clamp(1, (capacity_weight - log_weight).max(1));
        let mut blocks = Blocks::new(rules.block_weight);
        Self {
            open: blocks.open(),
            max_sealed: (log_weight / rules.block_weight).max(2) as usize - 1,
            set_count: ((capacity_weight - log_weight) / rules.set_weight).max(1),
            rules,
            blocks,
            sealed: VecDeque::new(),
            in_log: HashMap::new(),
            sets: HashMap::new(),
            is_in_set: Vec::new(),
            is_hit: Vec::new(),
            predictions: Vec::new(),
            written_weight: 0,
        }
    }

    fn set_of(&self, object: u32) -> u64 {
        ((u128::from(hash_of_object(object)) * u128::from(self.set_count)) >> 64) as u64
    }

    fn seal(&mut self) {
        self.sealed.push_front(self.open);
        self.open = self.blocks.open();
    }

    fn append(&mut self, item: WeightedObject) {
        if !self.blocks.has_room(self.open, item.weight) {
            self.seal();
        }
        self.blocks.append(self.open, item.object, item.weight);
        self.is_hit[item.object as usize] = false;
        self.written_weight += u64::from(item.weight);
    }

    fn evict_blocks(&mut self) {
        while self.sealed.len() > self.max_sealed
            && let Some(oldest) = self.sealed.pop_back()
        {
            let mut evicted = Vec::new();
            self.blocks.erase(oldest, &mut evicted);
            for (object, weight) in evicted {
                self.evict_from_log(WeightedObject { object, weight });
            }
        }
    }

    fn evict_from_log(&mut self, item: WeightedObject) {
        let number = self.set_of(item.object);
        let Some(members) = self.in_log.get_mut(&number) else { return };
        let Some(at) = members.iter().position(|member| member.object == item.object) else { return };
        if members.len() >= self.rules.threshold {
            let members = self.in_log.remove(&number).unwrap_or_default();
            members.iter().for_each(|member| self.blocks.forget(member.object));
            self.write_set(number, members);
        } else if self.is_hit[item.object as usize] {
            self.append(item);
        } else {
            members.swap_remove(at);
        }
    }

    /// Merges objects into a set. The nearest predictions stay, and of equal ones those that were there.
    fn write_set(&mut self, number: u64, arriving: Vec<WeightedObject>) {
        self.written_weight += self.rules.set_weight;
        let mut objects = self.sets.remove(&number).unwrap_or_default();
        for held in &objects {
            if std::mem::take(&mut self.is_hit[held.object as usize]) {
                self.predictions[held.object as usize] = 0;
            }
        }
        let farthest = objects.iter().map(|held| self.predictions[held.object as usize]).max();
        let ageing = FAR - farthest.unwrap_or(FAR);
        objects.iter().for_each(|held| self.predictions[held.object as usize] += ageing);
        objects.extend(arriving);
        objects.sort_by_key(|object| self.predictions[object.object as usize]);
        let mut weight = 0;
        objects.retain(|object| {
            let fits = weight + u64::from(object.weight) <= self.rules.set_weight;
            weight += if fits { u64::from(object.weight) } else { 0 };
            self.is_in_set[object.object as usize] = fits;
            self.is_hit[object.object as usize] = false;
            fits
        });
        self.sets.insert(number, objects);
    }
}

impl FlashCache for Kangaroo {
    fn holds(&self, object: u32) -> bool {
        self.blocks.home(object).is_some() || self.is_in_set.get(object as usize).copied().unwrap_or(false)
    }

    fn hit(&mut self, object: u32) {
        self.is_hit[object as usize] = true;
        if self.blocks.home(object).is_some() {
            self.predictions[object as usize] = 0;
        }
    }

    fn insert(&mut self, objects: &[WeightedObject]) {
        for &object in objects {
            let at = object.object as usize;
            if at >= self.predictions.len() {
                self.predictions.resize(at + 1, LONG);
                self.is_hit.resize(at + 1, false);
                self.is_in_set.resize(at + 1, false);
            }
            while !self.blocks.has_room(self.open, object.weight) {
                self.seal();
                self.evict_blocks();
            }
            self.predictions[at] = LONG;
            self.append(object);
            let number = self.set_of(object.object);
            self.in_log.entry(number).or_default().push(object);
        }
    }

    fn remove(&mut self, object: u32) {
        self.expire(object);
    }

    fn expire(&mut self, object: u32) {
        let number = self.set_of(object);
        if self.blocks.home(object).is_some() {
            self.blocks.forget(object);
            if let Some(members) = self.in_log.get_mut(&number) {
                members.retain(|member| member.object != object);
            }
        } else if let Some(set) = self.sets.get_mut(&number) {
            set.retain(|held| held.object != object);
            self.is_in_set[object as usize] = false;
        }
    }

    fn written_weight(&self) -> u64 {
        self.written_weight
    }

    fn weight_at_most(&self) -> u64 {
        self.rules.set_weight.min(self.rules.block_weight)
    }
}
