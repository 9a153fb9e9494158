//! Moving slabs between the classes of a pool, from where they do little to where they would do more.
//!
//! The rules are CacheLib's (`LruTailAgeStrategy`, `HitsPerSlabStrategy`, `RandomStrategy`, `FreeMemStrategy`): a pool
//! that still has slabs to hand out is left alone, a donor keeps a least number of slabs, and a slab moves only where
//! the difference is worth it, in absolute terms and as a share. Where we differ: a class's tail age is that of the
//! one item its policy would evict next, and not projected by a slab; and a class whose items are all gone gives first.

use super::evict::Spill;
use super::sync::Mutex;
use super::{Class, Dram, PoolId, ReleaseStats};

/// Which class gives and which receives. By tail age and by hits, a class without items gives first, and to the pool.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Strategy {
    /// From the class whose next victim is oldest to the one whose is youngest.
    TailAge {
        /// Least difference of the ages, as a share of the older.
        min_difference_ratio: f64,
        /// Least difference of the ages, seconds.
        min_difference_seconds: u32,
    },
    /// From the class with the fewest hits a slab since the last step to the one with the most.
    Hits {
        /// Least difference, as a share of the donor's hits a slab.
        min_difference_ratio: f64,
        /// Least difference, hits a slab.
        min_difference: u64,
    },
    /// From any class to any other.
    Random {
        /// A random number, new for every step.
        drawn: u64,
    },
    /// From the class with the most free chunks, if they come to that many slabs, back to the pool.
    FreeMemory {
        /// Free chunks, in slabs.
        min_free_slabs: u32,
    },
}

/// How to rebalance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rebalance {
    /// Who gives, who receives.
    pub strategy: Strategy,
    /// Slabs that a donor keeps.
    pub min_slabs: u32,
    /// Whether items of the released slab move to free chunks of their class, as far as there are any.
    pub move_on_release: bool,
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Released {
    /// Chunk size of the class that gave, bytes.
    pub from_chunk_bytes: u32,
    /// Chunk size of the class that received; `None` where the pool itself got the slab.
    pub to_chunk_bytes: Option<u32>,
    /// Whether the slab was emptied; if items in it were in use, it stayed.
    pub completed: bool,
    /// What became of its items.
    pub items: ReleaseStats,
}

/// What was known at the last step.
pub(super) struct Rebalancer {
    last_hits: Mutex<Vec<u64>>,
}

impl Rebalancer {
    pub(super) fn new(classes: usize) -> Self {
        Self { last_hits: Mutex::new(vec![0; classes]) }
    }
}

/// Who gives and who receives.
type Pair<'a> = (&'a Class, Option<&'a Class>);

impl Dram {
    /// Moves at most one slab within `pool`. `None` where there is nothing worth moving.
    pub fn rebalance_step<S: Spill>(&self, pool: PoolId, how: &Rebalance, spill: &S) -> Option<Released> {
        let _one_at_a_time = self.pools.one_release(pool);
        let has_slabs_left = self.pools.slabs_used(pool) < self.pools.quota(pool);
        let pair = match how.strategy {
            Strategy::FreeMemory { min_free_slabs } => self.pick_by_free_memory(pool, how, min_free_slabs),
            _ if has_slabs_left => None,
            Strategy::TailAge { min_difference_ratio, min_difference_seconds } => {
                let by_age =
                    || self.pick_by_tail_age(pool, how, min_difference_ratio, min_difference_seconds);
                self.pick_empty(pool, how).or_else(by_age)
            }
            Strategy::Hits { min_difference_ratio, min_difference } => {
                let by_hits = || self.pick_by_hits(pool, how, min_difference_ratio, min_difference);
                self.pick_empty(pool, how).or_else(by_hits)
            }
            Strategy::Random { drawn } => self.pick_at_random(pool, how, drawn),
        };
        let (donor, receiver) = pair?;
        let (slab, items) = self.release_slab(donor, how.move_on_release, spill);
        if let Ok(slab) = slab {
            match receiver {
                Some(class) => class.lock().adopt(&self.pools, class, slab),
                None => self.pools.give_back(pool, slab),
            }
        }
        Some(Released {
            from_chunk_bytes: donor.chunk_bytes,
            to_chunk_bytes: receiver.map(|class| class.chunk_bytes),
            completed: slab.is_ok(),
            items,
        })
    }

    /// The classes of a pool that have slabs.
    fn active(&self, pool: PoolId) -> impl Iterator<Item = &Class> {
        self.pools.classes_of(pool).iter().filter(|class| class.lock().counters.slabs > 0)
    }

    fn donors(&self, pool: PoolId, how: &Rebalance) -> impl Iterator<Item = &Class> {
        let least = how.min_slabs;
        self.active(pool).filter(move |class| class.lock().counters.slabs > least)
    }

    /// A class without items has neither a next victim nor hits to be judged by: it gives first, back to the pool.
    fn pick_empty(&self, pool: PoolId, how: &Rebalance) -> Option<Pair<'_>> {
        let donor = self.donors(pool, how).find(|class| class.lock().counters.items == 0)?;
        Some((donor, None))
    }

    fn pick_by_tail_age(&self, pool: PoolId, how: &Rebalance, ratio: f64, seconds: u32) -> Option<Pair<'_>> {
        let age = |class: &&Class| self.class_stats(class).tail_age_seconds;
        let (donor_age, donor) = self
            .donors(pool, how)
            .filter_map(|class| Some((age(&class)?, class)))
            .max_by_key(|&(age, _)| age)?;
        let (receiver_age, receiver) =
            self.active(pool).filter_map(|class| Some((age(&class)?, class))).min_by_key(|&(age, _)| age)?;
        let difference = donor_age.saturating_sub(receiver_age);
        let worth_it = difference > 0
            && difference >= seconds
            && f64::from(difference) >= ratio * f64::from(donor_age)
            && donor.index != receiver.index;
        worth_it.then_some((donor, Some(receiver)))
    }

    fn pick_by_hits(&self, pool: PoolId, how: &Rebalance, ratio: f64, least: u64) -> Option<Pair<'_>> {
        let mut last = self.rebalancer.last_hits.lock();
        let per_slab: Vec<_> = self
            .active(pool)
            .map(|class| {
                let stats = self.class_stats(class);
                let before = std::mem::replace(&mut last[usize::from(class.index)], stats.hits);
                ((stats.hits - before) / u64::from(stats.slabs.max(1)), stats.slabs, class)
            })
            .collect();
        let donors = per_slab.iter().filter(|&&(_, slabs, _)| slabs > how.min_slabs);
        let &(donor_hits, _, donor) = donors.min_by_key(|&&(hits, ..)| hits)?;
        let &(receiver_hits, _, receiver) = per_slab.iter().max_by_key(|&&(hits, ..)| hits)?;
        let difference = receiver_hits.saturating_sub(donor_hits);
        let worth_it = difference > 0
            && difference >= least
            && difference as f64 >= ratio * donor_hits as f64
            && donor.index != receiver.index;
        worth_it.then_some((donor, Some(receiver)))
    }

    fn pick_at_random(&self, pool: PoolId, how: &Rebalance, drawn: u64) -> Option<Pair<'_>> {
        let donors: Vec<_> = self.donors(pool, how).collect();
        let donor = *donors.get(drawn as usize % donors.len().max(1))?;
        let receivers: Vec<_> = self.active(pool).filter(|class| class.index != donor.index).collect();
        let receiver = *receivers.get((drawn >> 32) as usize % receivers.len().max(1))?;
        Some((donor, Some(receiver)))
    }

    fn pick_by_free_memory(&self, pool: PoolId, how: &Rebalance, min_free_slabs: u32) -> Option<Pair<'_>> {
        let free_slabs = |class: &Class| class.lock().free_chunks(class) / u64::from(class.chunks_per_slab);
        let enough = |class: &&Class| free_slabs(class) >= u64::from(min_free_slabs.max(1));
        let donor = self.donors(pool, how).filter(enough).max_by_key(|class| free_slabs(class))?;
        Some((donor, None))
    }
}
