//! A hybrid cache: an LRU in DRAM, and on flash sets for small objects beside a log for large ones.
//!
//! Models CacheLib (Berg et al.: "The CacheLib caching engine", OSDI'20, section 4) and this engine, object by object and without data:
//! hits and writes. Unlike [`Flash`](super::Flash), a hit on flash copies the object to DRAM, from where it is evicted without a write
//! while flash still has it; and a stored object is removed from flash before it enters DRAM.
//!
//! An expired object is a miss, is evicted from DRAM without a write, and is removed from its set at the set's next write. Until then it
//! takes space.

use super::{FlashCache, HashLog, HashLogRules, Log, Sets, WeightedObject};
use crate::Slot;
use crate::admission::coin::{Chance, Coin};
use crate::list::{List, Nodes};
use crate::simulate::{Access, hash_of_object};
use crate::weights::Weights;

/// Parameters of a hybrid cache. Weights are bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HybridRules {
    /// Size of DRAM, including the objects' overheads.
    pub dram_weight: u64,
    /// Overhead of an object in DRAM.
    pub dram_overhead: u32,
    /// Size of the flash for small objects.
    pub small_weight: u64,
    /// Largest weight of a small object.
    pub small_at_most: u32,
    /// Size of a set.
    pub set_weight: u32,
    /// Overhead of a set.
    pub set_header: u32,
    /// Overhead of a small object in a set.
    pub small_overhead: u32,
    /// Sizes of the log of small objects; `None` keeps them in sets.
    pub small_log: Option<HashLogRules>,
    /// Size of the flash for large objects.
    pub large_weight: u64,
    /// Size of a block of large objects, which is written and overwritten as a whole.
    pub block_weight: u64,
    /// Largest size of a large object on flash, for any block size: objects do not shrink with a scaled cache.
    pub large_at_most: u32,
    /// Overhead of a large object on flash.
    pub large_overhead: u32,
    /// Large objects are rounded up to a multiple of this.
    pub large_unit: u32,
    /// Whether a missing object is fetched and stored, as by a cache-aside program.
    pub fills_misses: bool,
    /// Probability that an object evicted from DRAM is admitted to flash, 0 to 1.
    pub admission: f64,
    /// Seed of the admission.
    pub seed: u64,
}

/// Counts of a hybrid cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HybridCounts {
    /// Requests to look an object up.
    pub gets: u64,
    /// Requests to store an object.
    pub sets: u64,
    /// Requests to remove an object.
    pub removals: u64,
    /// Gets found in DRAM.
    pub hits_dram: u64,
    /// Gets found among the small objects on flash.
    pub hits_small: u64,
    /// Gets found in the log.
    pub hits_large: u64,
    /// Weight of the gets found in the log, without overhead.
    pub hit_weight_large: u64,
    /// Weight of the objects written to flash, without overhead.
    pub taken_weight: u64,
    /// Objects evicted from DRAM that flash did not have.
    pub offered: u64,
    /// Offered objects that are too large for flash.
    pub too_large: u64,
    /// Sets written.
    pub sets_written: u64,
    /// Sets that were read before they were written, because they were not empty.
    pub sets_read: u64,
    /// Bytes written to the log of small objects, in whole regions.
    pub small_log_weight: u64,
    /// Bytes written to the log of large objects, in whole units.
    pub log_weight: u64,
}

/// Small objects on flash.
enum Small {
    Sets(Sets),
    Log(HashLog),
}

impl Small {
    fn new(rules: &HybridRules) -> Self {
        let room = u64::from(rules.set_weight - rules.set_header);
        match rules.small_log {
            Some(log) => Self::Log(HashLog::new(rules.small_weight, log)),
            None => Self::Sets(Sets::new(rules.small_weight / u64::from(rules.set_weight) * room, room)),
        }
    }

    fn engine(&self) -> &dyn FlashCache {
        match self {
            Self::Sets(sets) => sets,
            Self::Log(log) => log,
        }
    }

    fn engine_mut(&mut self) -> &mut dyn FlashCache {
        match self {
            Self::Sets(sets) => sets,
            Self::Log(log) => log,
        }
    }
}

/// Expiry second of each object; 0 never expires. Empty if no object expires.
#[derive(Default)]
struct Ends(Vec<u32>);

impl Ends {
    fn has_passed(&self, object: u32, now_seconds: u32) -> bool {
        self.0.get(object as usize).is_some_and(|end| *end != 0 && *end <= now_seconds)
    }

    fn set(&mut self, object: u32, end: u32) {
        let place = object as usize;
        if end != 0 && place >= self.0.len() {
            self.0.resize(place + 1, 0);
        }
        self.0.get_mut(place).into_iter().for_each(|kept| *kept = end);
    }
}

/// The cache.
pub struct Hybrid {
    rules: HybridRules,
    coin: Coin,
    nodes: Nodes,
    dram: List,
    dram_held: u64,
    /// Weight of each object at its last request, without overhead.
    weights: Weights,
    ends: Ends,
    now_seconds: u32,
    small: Small,
    large: Log,
    counts: HybridCounts,
}

impl Hybrid {
    /// Creates an empty cache.
    ///
    /// # Panics
    /// If the probability is out of range, a set has no space, or units have no size.
    #[must_use]
    pub fn new(rules: HybridRules) -> Self {
        assert!((0.0..=1.0).contains(&rules.admission), "no chance: {}", rules.admission);
        assert!(rules.set_weight > rules.set_header && rules.large_unit > 0, "no room: {rules:?}");
        Self {
            coin: Coin::new(Chance::EachTime { seed: rules.seed }),
            nodes: Nodes::new(),
            dram: List::new(),
            dram_held: 0,
            weights: Weights::new(),
            ends: Ends::default(),
            now_seconds: 0,
            small: Small::new(&rules),
            large: Log::scaled(rules.large_weight, rules.block_weight, rules.large_at_most),
            counts: HybridCounts::default(),
            rules,
        }
    }

    /// Runs the requests in order. `ttls` has the TTL in seconds of
    /// each access's object if the access stores it, 0 without expiry; if it is shorter than `accesses`, the rest does not expire.
    pub fn run(&mut self, accesses: &[Access], ttls: &[u32]) {
        for (place, access) in accesses.iter().enumerate() {
            let slot = Slot(access.object);
            self.now_seconds = access.now_seconds;
            if access.is_removal {
                self.counts.removals += 1;
                self.leave(slot);
                continue;
            }
            let end = match ttls.get(place) {
                None | Some(0) => 0,
                Some(ttl_seconds) => access.now_seconds.saturating_add(*ttl_seconds),
            };
            if access.is_set {
                self.counts.sets += 1;
                self.leave(slot);
                self.ends.set(slot.0, end);
                self.enter_dram(slot, access.weight);
            } else {
                self.counts.gets += 1;
                self.get(slot, access.weight, end);
            }
        }
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> HybridCounts {
        let counts = HybridCounts { log_weight: self.large.written_weight(), ..self.counts };
        match &self.small {
            Small::Sets(sets) => {
                let room = u64::from(self.rules.set_weight - self.rules.set_header);
                let (sets_written, sets_read) = (sets.written_weight() / room, sets.read_sets());
                HybridCounts { sets_written, sets_read, ..counts }
            }
            Small::Log(log) => HybridCounts { small_log_weight: log.written_weight(), ..counts },
        }
    }

    fn get(&mut self, slot: Slot, weight: u32, end: u32) {
        if self.has_expired(slot) {
            self.leave(slot);
        }
        if self.nodes.is_linked(slot) {
            self.counts.hits_dram += 1;
            return self.dram.move_to_front(&mut self.nodes, slot);
        }
        let held = self.weights.get(slot) as u32;
        let weight = if self.small.engine().holds(slot.0) {
            self.counts.hits_small += 1;
            self.small.engine_mut().hit(slot.0);
            held
        } else if self.large.holds(slot.0) {
            self.counts.hits_large += 1;
            self.counts.hit_weight_large += u64::from(held);
            held
        } else if !self.rules.fills_misses {
            return;
        } else {
            self.ends.set(slot.0, end);
            weight
        };
        self.enter_dram(slot, weight);
    }

    fn has_expired(&self, slot: Slot) -> bool {
        self.ends.has_passed(slot.0, self.now_seconds)
    }

    /// Removes the object everywhere; if it is in a set, that costs a write of the set.
    fn leave(&mut self, slot: Slot) {
        self.leave_dram(slot);
        self.leave_flash(slot);
    }

    fn in_dram(&self, weight: u32) -> u64 {
        u64::from(weight) + u64::from(self.rules.dram_overhead)
    }

    fn enter_dram(&mut self, slot: Slot, weight: u32) {
        let takes = self.in_dram(weight);
        self.weights.set(slot, weight);
        if takes > self.rules.dram_weight {
            return self.enter_flash(slot);
        }
        while self.dram_held + takes > self.rules.dram_weight {
            let victim = self.dram.back().expect("the weight of a cached object is recorded");
            self.leave_dram(victim);
            self.enter_flash(victim);
        }
        self.dram.push_front(&mut self.nodes, slot);
        self.dram_held += takes;
    }

    fn leave_dram(&mut self, slot: Slot) {
        if self.nodes.is_linked(slot) {
            self.dram.unlink(&mut self.nodes, slot);
            self.dram_held -= self.in_dram(self.weights.get(slot) as u32);
        }
    }

    /// Objects that flash still has are not written again, and expired ones are not written at all.
    fn enter_flash(&mut self, slot: Slot) {
        if self.has_expired(slot) || self.small.engine().holds(slot.0) || self.large.holds(slot.0) {
            return;
        }
        let own = self.weights.get(slot) as u32;
        let is_small = own <= self.rules.small_at_most;
        let weight = if is_small {
            // A log counts the headers of its objects itself.
            let overhead = if self.rules.small_log.is_some() { 0 } else { self.rules.small_overhead };
            own.saturating_add(overhead)
        } else {
            let takes = own.saturating_add(self.rules.large_overhead);
            takes.checked_next_multiple_of(self.rules.large_unit).unwrap_or(u32::MAX)
        };
        self.counts.offered += 1;
        let at_most =
            if is_small { self.small.engine().weight_at_most() } else { self.large.weight_at_most() };
        if u64::from(weight) > at_most {
            self.counts.too_large += 1;
        } else if self.coin.toss(hash_of_object(slot.0), self.rules.admission) {
            if is_small && let Small::Sets(sets) = &mut self.small {
                sets.sweep(slot.0, |held| self.ends.has_passed(held, self.now_seconds));
            }
            let engine = if is_small { self.small.engine_mut() } else { &mut self.large };
            engine.insert(&[WeightedObject { object: slot.0, weight }]);
            self.counts.taken_weight += u64::from(own);
        }
    }

    fn leave_flash(&mut self, slot: Slot) {
        if self.small.engine().holds(slot.0) {
            self.small.engine_mut().remove(slot.0);
        } else if self.large.holds(slot.0) {
            self.large.remove(slot.0);
        }
    }
}

impl HybridCounts {
    /// The counts since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            gets: self.gets - earlier.gets,
            sets: self.sets - earlier.sets,
            removals: self.removals - earlier.removals,
            hits_dram: self.hits_dram - earlier.hits_dram,
            hits_small: self.hits_small - earlier.hits_small,
            hits_large: self.hits_large - earlier.hits_large,
            hit_weight_large: self.hit_weight_large - earlier.hit_weight_large,
            taken_weight: self.taken_weight - earlier.taken_weight,
            offered: self.offered - earlier.offered,
            too_large: self.too_large - earlier.too_large,
            sets_written: self.sets_written - earlier.sets_written,
            sets_read: self.sets_read - earlier.sets_read,
            small_log_weight: self.small_log_weight - earlier.small_log_weight,
            log_weight: self.log_weight - earlier.log_weight,
        }
    }

    /// Gets that found their object.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.hits_dram + self.hits_small + self.hits_large
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DRAM for two objects of 10, four sets of two objects, blocks of two objects of more than 10.
    fn rules() -> HybridRules {
        HybridRules {
            dram_weight: 24,
            dram_overhead: 2,
            small_weight: 4 * 25,
            small_at_most: 10,
            set_weight: 25,
            set_header: 1,
            small_overhead: 2,
            small_log: None,
            large_weight: 96,
            block_weight: 32,
            large_at_most: 32,
            large_overhead: 3,
            large_unit: 16,
            fills_misses: true,
            admission: 1.0,
            seed: 1,
        }
    }

    fn get(object: u32, weight: u32) -> Access {
        Access { object, weight, now_seconds: 0, is_removal: false, is_set: false }
    }

    #[test]
    fn small_objects_cost_a_set_each_and_large_ones_whole_units() {
        let mut hybrid = Hybrid::new(rules());
        // Each object of 10 takes 12 of the 24, one of 13 takes 15: the third evicts the first, the fourth evicts the others.
        hybrid.run(&[get(0, 10), get(1, 10), get(2, 10), get(3, 13)], &[]);
        let counts = hybrid.counts();
        assert_eq!((counts.gets, counts.hits(), counts.taken_weight), (4, 0, 30));
        assert_eq!((counts.sets_written, counts.log_weight), (3, 0));
        // It is found in its set, and the large one is evicted from DRAM: 13 and 3 are one unit.
        hybrid.run(&[get(0, 10)], &[]);
        let counts = hybrid.counts();
        assert_eq!((counts.hits_small, counts.sets_written, counts.log_weight), (1, 3, 16));
        assert_eq!(counts.taken_weight, 43);
    }

    #[test]
    fn small_objects_in_a_log_are_written_once_in_whole_regions() {
        let log = HashLogRules {
            region_weight: 50,
            page_weight: 50,
            page_overhead: 0,
            object_overhead: 0,
            readmission_share: 0.0,
        };
        let mut hybrid = Hybrid::new(HybridRules { small_log: Some(log), ..rules() });
        // Two objects stay in DRAM. A region takes four of the others: half an object is left over at the end of its page.
        hybrid.run(&(0..7).map(|object| get(object, 10)).collect::<Vec<_>>(), &[]);
        let counts = hybrid.counts();
        assert_eq!((counts.small_log_weight, counts.sets_written, counts.taken_weight), (50, 0, 50));
        hybrid.run(&[get(0, 10)], &[]);
        assert_eq!(hybrid.counts().hits_small, 1);
    }

    #[test]
    fn miss_without_fill_stores_nothing() {
        let mut hybrid = Hybrid::new(HybridRules { fills_misses: false, ..rules() });
        let set = Access { is_set: true, ..get(1, 10) };
        hybrid.run(&[get(0, 10), get(0, 10), set, get(1, 10)], &[]);
        assert_eq!((hybrid.counts().gets, hybrid.counts().hits()), (3, 1));
    }

    #[test]
    fn eviction_of_an_object_still_on_flash_is_not_written() {
        let mut hybrid = Hybrid::new(rules());
        hybrid.run(&[get(0, 20), get(1, 20), get(0, 20), get(1, 20), get(0, 20)], &[]);
        let counts = hybrid.counts();
        // 20 and 3 are two units: a whole block. The third get finds the first, the fourth the second.
        assert_eq!((counts.hits_large, counts.hit_weight_large), (3, 60));
        assert_eq!((counts.log_weight, counts.taken_weight), (64, 40));
    }

    #[test]
    fn store_removes_the_flash_copy_and_enters_dram() {
        let mut hybrid = Hybrid::new(rules());
        let set = Access { is_set: true, ..get(0, 10) };
        hybrid.run(&[get(0, 10), get(1, 10), get(2, 10), set], &[]);
        // One write removes the old copy from its set, another adds the evicted object.
        let counts = hybrid.counts();
        assert_eq!((counts.sets, counts.gets, counts.hits()), (1, 3, 0));
        assert_eq!((counts.sets_written, counts.taken_weight), (3, 20));
        hybrid.run(&[get(0, 10), Access { is_removal: true, ..get(0, 10) }, get(0, 10)], &[]);
        let counts = hybrid.counts();
        assert_eq!((counts.hits_dram, counts.removals, counts.gets), (1, 1, 5), "gone from both");
    }

    #[test]
    fn rejected_object_is_not_written() {
        let mut never = Hybrid::new(HybridRules { admission: 0.0, ..rules() });
        let mut half = Hybrid::new(HybridRules { admission: 0.5, ..rules() });
        let accesses: Vec<Access> = (0..10_000).map(|object| get(object, 10)).collect();
        never.run(&accesses, &[]);
        half.run(&accesses, &[]);
        let offered = 10_000 - 2;
        assert_eq!(never.counts(), HybridCounts { gets: 10_000, offered, ..HybridCounts::default() });
        let share = half.counts().sets_written as f64 / 10_000.0;
        assert!((share - 0.5).abs() < 0.02, "{share}");
    }

    #[test]
    fn cache_without_capacity_never_hits() {
        let nothing = HybridRules { dram_weight: 0, small_weight: 0, large_weight: 0, ..rules() };
        let mut hybrid = Hybrid::new(nothing);
        hybrid.run(&[get(0, 10), get(0, 10), get(1, 20), get(1, 20), get(1, u32::MAX)], &[]);
        let none = HybridCounts { gets: 5, offered: 5, too_large: 5, ..HybridCounts::default() };
        assert_eq!(hybrid.counts(), none);
    }

    /// Catches a regression: such objects are silently rejected. A scaled cache has smaller blocks, but objects of full
    /// size.
    #[test]
    fn object_larger_than_a_scaled_block_is_stored() {
        let rules = HybridRules { dram_weight: 0, large_weight: 320, large_at_most: 160, ..rules() };
        let mut hybrid = Hybrid::new(rules);
        // 60 and 3 are four units, two blocks of the ten.
        let round: Vec<Access> = (0..4).map(|object| get(object, 60)).collect();
        hybrid.run(&round, &[]);
        hybrid.run(&round, &[]);
        let counts = hybrid.counts();
        assert_eq!((counts.hits_large, counts.log_weight, counts.too_large), (4, 4 * 64, 0));
        // 34 and 3 are three units, one and a half blocks; no half block stays unused.
        let round: Vec<Access> = (10..15).map(|object| get(object, 34)).collect();
        hybrid.run(&round, &[]);
        hybrid.run(&round, &[]);
        assert_eq!(hybrid.counts().hits_large, 4 + 5);
        hybrid.run(&[get(20, 158), get(20, 158)], &[]);
        assert_eq!((hybrid.counts().too_large, hybrid.counts().hits_large), (2, 9), "161 and more");
    }

    #[test]
    fn expired_object_is_a_miss_and_costs_a_set_write_if_in_a_set() {
        let at = |now_seconds, access: Access| Access { now_seconds, ..access };
        let mut hybrid = Hybrid::new(rules());
        // Object 2 pushes object 0 to flash, which keeps its TTL of 5 seconds.
        hybrid.run(&[get(0, 10), get(1, 10), get(2, 10)], &[5, 5]);
        assert_eq!(hybrid.counts().sets_written, 1);
        hybrid.run(&[at(4, get(2, 10)), at(4, get(1, 10))], &[1, 1]);
        assert_eq!((hybrid.counts().hits_dram, hybrid.counts().sets_written), (2, 1), "a hit begins no time");
        hybrid.run(&[at(5, get(1, 10)), at(5, get(0, 10)), at(5, get(2, 10))], &[0, 1]);
        // 1 was stored again; 0 left its set, was stored again, and evicted 2, which had returned from flash.
        let counts = hybrid.counts();
        assert_eq!((counts.hits_dram, counts.hits_small, counts.gets), (2, 1, 8));
        assert_eq!(
            (counts.sets_written, counts.taken_weight),
            (1 + 1 + 1 + 1, 10 + 10 + 10),
            "1 left DRAM for 2"
        );
        let set = Access { is_set: true, ..get(0, 10) };
        hybrid.run(&[at(6, get(0, 10)), at(6, set), at(90, get(0, 10))], &[0, 7]);
        assert_eq!(hybrid.counts().hits(), 3, "it expired each time");
    }

    #[test]
    fn expired_object_is_evicted_unwritten_and_frees_space_in_its_set() {
        let one_set = HybridRules { small_weight: 25, ..rules() };
        let at = |now_seconds, object| Access { now_seconds, ..get(object, 10) };
        let mut hybrid = Hybrid::new(one_set);
        hybrid.run(&[at(0, 0), at(0, 1), at(9, 2), at(9, 3)], &[9, 9]);
        assert_eq!(
            (hybrid.counts().offered, hybrid.counts().sets_written),
            (0, 0),
            "both were over when they left"
        );
        // The set has 2, without expiry, and 3, which is newer and expires: 3 is removed instead of the oldest.
        let mut hybrid = Hybrid::new(one_set);
        hybrid.run(&[at(0, 2), at(0, 3), at(0, 4), at(0, 5), at(20, 6), at(20, 2)], &[0, 9]);
        assert_eq!((hybrid.counts().hits_small, hybrid.counts().sets_written), (1, 4));
    }
}
