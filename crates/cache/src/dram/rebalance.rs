//! Moving slabs between the classes of a pool, from where they do little to where they would do more.
//!
//! The strategies are CacheLib's by name (`LruTailAgeStrategy`, `HitsPerSlabStrategy`, `RandomStrategy`,
//! `FreeMemStrategy`), and so is the rule that a pool that still has slabs to hand out is left alone. What differs is how
//! a class is judged, because its policy need not be an LRU, whose next victim tells the age at which items leave: that
//! of S3-FIFO is now a new item that nobody asked for, now an old one.
//! * The age is counted: how long the class takes to give each of its chunks to a new item, at the rate of late.
//! * A slab moves only if the donor's items would still be older without it than the receiver's with it.
//! * Only who evicts and has no room receives.
//! * Emptying a slab costs what is in it. So slabs in use move once for [`CHURN_PER_MOVE`] slabs that evictions have
//!   turned over, however often the rebalancer is called; slabs that nobody needs or asks for move at once.

use super::evict::Spill;
use super::sync::Mutex;
use super::{Class, Dram, PoolId, ReleaseStats};

/// Which class gives and which receives. By tail age and by hits, a class without items gives first, and to the pool.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Strategy {
    /// From the class whose items are oldest when they leave to the one whose are youngest.
    TailAge {
        /// Least difference of the ages, as a share of the older.
        min_difference_ratio: f64,
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

/// Slabs' worth of items that are evicted anyway for one that is emptied.
const CHURN_PER_MOVE: f64 = 8.0;
/// Of a pool, one slab in so many moves in a step, but at least one.
const SLABS_PER_MOVE: u32 = 64;
/// What counts of a step in the next: a rate of late is that of a few steps.
const KEPT: f64 = 0.5;

/// What was known at the last step.
pub(super) struct Rebalancer {
    classes: Mutex<Vec<Past>>,
    /// Of each pool, slabs that evictions have turned over and that no move has used up.
    churn_slabs: Mutex<Vec<f64>>,
}

impl Rebalancer {
    pub(super) fn new(classes: usize, pools: usize) -> Self {
        Self {
            classes: Mutex::new(vec![Past::default(); classes]),
            churn_slabs: Mutex::new(vec![0.0; pools]),
        }
    }
}

/// What a class had done by the last step.
#[derive(Debug, Clone, Copy, Default)]
struct Past {
    hits: u64,
    allocations: u64,
    evictions: u64,
    items: u64,
    recent: Recent,
}

/// What a class has done of late.
#[derive(Debug, Clone, Copy, Default)]
struct Recent {
    hits: f64,
    allocations: f64,
    evictions: f64,
    /// Items that it has more than before.
    growth: f64,
}

/// A class as a step sees it.
struct Judged<'a> {
    class: &'a Class,
    slabs: u32,
    items: u64,
    recent: Recent,
}

impl Judged<'_> {
    /// Steps until every chunk has been given to a new item, if the class had `slabs` slabs more, or fewer.
    fn age(&self, slabs: f64) -> f64 {
        // Of nothing there is no rate; it would be a zero to divide by where the last slab goes.
        if self.recent.allocations < 1.0 {
            return f64::INFINITY;
        }
        (f64::from(self.slabs) + slabs) * f64::from(self.class.chunks_per_slab) / self.recent.allocations
    }

    /// The same without a slab, where one is given that it needs.
    fn age_without_one(&self) -> f64 {
        if self.has_spare() { f64::INFINITY } else { self.age(-1.0) }
    }

    fn hits_per_slab(&self) -> f64 {
        self.recent.hits / f64::from(self.slabs)
    }

    /// Whole slabs' worth of free chunks.
    fn free_slabs(&self) -> u64 {
        let chunks_per_slab = u64::from(self.class.chunks_per_slab);
        (u64::from(self.slabs) * chunks_per_slab).saturating_sub(self.items) / chunks_per_slab
    }

    /// Whether it has a slab that it does not need, and is not about to fill.
    fn has_spare(&self) -> bool {
        self.free_slabs() > 0 && self.recent.growth < 1.0
    }

    /// Whether it evicts for want of room: more than what it has room for.
    fn lacks_room(&self) -> bool {
        let evicted_slabs = self.recent.evictions / f64::from(self.class.chunks_per_slab);
        self.recent.evictions >= 1.0 && self.free_slabs() as f64 <= evicted_slabs.floor()
    }

    /// What nobody evicts may still be what everybody asks for.
    fn can_spare_a_slab_for(&self, receiver: &Self) -> bool {
        self.recent.evictions >= 1.0 || self.has_spare() || self.hits_per_slab() <= receiver.hits_per_slab()
    }
}

/// Who gives and who receives: by their places among the judged.
struct Pair {
    donor: usize,
    receiver: Option<usize>,
}

impl Pair {
    /// Whether what the donor loses is nothing, or next to nothing beside what the receiver has of a slab.
    fn costs_nothing(&self, judged: &[Judged<'_>]) -> bool {
        let hits = |at: usize| judged[at].hits_per_slab();
        judged[self.donor].has_spare()
            || self.receiver.is_none_or(|receiver| hits(self.donor) * CHURN_PER_MOVE <= hits(receiver))
    }
}

impl Dram {
    /// Moves slabs within `pool`, as far as it is worth it: by age and by hits one in 64 at most, else one.
    pub fn rebalance_step<S: Spill>(&self, pool: PoolId, how: &Rebalance, spill: &S) -> Vec<Released> {
        let _one_at_a_time = self.pools.one_release(pool);
        let mut judged = self.judge(pool);
        let judges = matches!(how.strategy, Strategy::TailAge { .. } | Strategy::Hits { .. });
        let most = if judges { (self.pools.quota(pool) / SLABS_PER_MOVE).max(1) } else { 1 };
        let mut moves = Vec::new();
        for _ in 0..most {
            let Some(pair) = self.pick(pool, how, &judged) else { break };
            let costs = judges && !pair.costs_nothing(&judged);
            if costs && !self.pay_for_a_move(pool) {
                break;
            }
            let released = self.move_slab(pool, how, &judged, &pair, spill);
            moves.push(released);
            if !released.completed {
                break;
            }
            for at in [Some(pair.donor), pair.receiver].into_iter().flatten() {
                let counters = judged[at].class.lock().counters;
                (judged[at].slabs, judged[at].items) = (counters.slabs, counters.items);
            }
            if let Some(receiver) = pair.receiver {
                self.expect_growth(&mut judged[receiver]);
            }
            // Those without any have no share in what follows.
            judged.retain(|class| class.slabs > 0);
        }
        moves
    }

    fn move_slab<S: Spill>(
        &self,
        pool: PoolId,
        how: &Rebalance,
        judged: &[Judged<'_>],
        pair: &Pair,
        spill: &S,
    ) -> Released {
        let (donor, receiver) = (judged[pair.donor].class, pair.receiver.map(|at| judged[at].class));
        let (slab, items) = self.release_slab(donor, how.move_on_release, spill);
        if let Ok(slab) = slab {
            match receiver {
                Some(class) => class.lock().adopt(&self.pools, class, slab),
                None => self.pools.give_back(pool, slab),
            }
        }
        Released {
            from_chunk_bytes: donor.chunk_bytes,
            to_chunk_bytes: receiver.map(|class| class.chunk_bytes),
            completed: slab.is_ok(),
            items,
        }
    }

    /// The classes of a pool that have slabs, and what they have done since the last step.
    fn judge(&self, pool: PoolId) -> Vec<Judged<'_>> {
        let mut past = self.rebalancer.classes.lock();
        let mut evicted_slabs = 0.0;
        let judge = |class| {
            let (stats, past) = (self.class_stats(class), &mut past[usize::from(class.index)]);
            // An eviction that did not succeed is taken back.
            let since = |now: u64, then: u64| now.saturating_sub(then) as f64;
            let evictions = since(stats.evictions, past.evictions);
            evicted_slabs += evictions / f64::from(class.chunks_per_slab);
            let recent = Recent {
                hits: KEPT * past.recent.hits + since(stats.hits, past.hits),
                allocations: KEPT * past.recent.allocations
                    + since(stats.allocation_attempts, past.allocations),
                evictions: KEPT * past.recent.evictions + evictions,
                growth: KEPT * past.recent.growth + (stats.items as f64 - past.items as f64),
            };
            *past = Past {
                hits: stats.hits,
                allocations: stats.allocation_attempts,
                evictions: stats.evictions,
                items: stats.items,
                recent,
            };
            Judged { class, slabs: stats.slabs, items: stats.items, recent }
        };
        let judged: Vec<_> = self.pools.classes_of(pool).iter().map(judge).collect();
        let churn = &mut self.rebalancer.churn_slabs.lock()[usize::from(pool.0)];
        // What a step has not used up is of no use long after.
        *churn = churn.min(CHURN_PER_MOVE) + evicted_slabs;
        judged.into_iter().filter(|class| class.slabs > 0).collect()
    }

    /// What was just received is empty, but not to spare.
    fn expect_growth(&self, receiver: &mut Judged<'_>) {
        receiver.recent.growth += f64::from(receiver.class.chunks_per_slab);
        self.rebalancer.classes.lock()[usize::from(receiver.class.index)].recent = receiver.recent;
    }

    fn pay_for_a_move(&self, pool: PoolId) -> bool {
        let churn = &mut self.rebalancer.churn_slabs.lock()[usize::from(pool.0)];
        let can_pay = *churn >= CHURN_PER_MOVE;
        if can_pay {
            *churn -= CHURN_PER_MOVE;
        }
        can_pay
    }

    fn pick(&self, pool: PoolId, how: &Rebalance, judged: &[Judged<'_>]) -> Option<Pair> {
        let has_slabs_left = self.pools.slabs_used(pool) < self.pools.quota(pool);
        match how.strategy {
            Strategy::FreeMemory { min_free_slabs } => {
                pick_by_free_memory(judged, how.min_slabs, min_free_slabs)
            }
            _ if has_slabs_left => None,
            Strategy::Random { drawn } => pick_at_random(judged, how.min_slabs, drawn),
            Strategy::TailAge { min_difference_ratio } => pick_empty(judged, how.min_slabs)
                .or_else(|| pick_by_age(judged, how.min_slabs, min_difference_ratio)),
            Strategy::Hits { min_difference_ratio, min_difference } => pick_empty(judged, how.min_slabs)
                .or_else(|| pick_by_hits(judged, how.min_slabs, min_difference_ratio, min_difference)),
        }
    }
}

/// The places of classes that have more than the slabs which a donor keeps.
fn donors<'a>(judged: &'a [Judged<'_>], min_slabs: u32) -> impl Iterator<Item = usize> + 'a {
    (0..judged.len()).filter(move |&at| judged[at].slabs > min_slabs)
}

/// A class without items has nothing to be judged by: it gives first, back to the pool.
fn pick_empty(judged: &[Judged<'_>], min_slabs: u32) -> Option<Pair> {
    let donor = donors(judged, min_slabs).find(|&at| judged[at].items == 0)?;
    Some(Pair { donor, receiver: None })
}

fn pick_by_age(judged: &[Judged<'_>], min_slabs: u32, ratio: f64) -> Option<Pair> {
    let lacking = (0..judged.len()).filter(|&at| judged[at].lacks_room());
    let receiver = lacking.min_by(|&a, &b| judged[a].age(0.0).total_cmp(&judged[b].age(0.0)))?;
    let is_worth_it = |&donor: &usize| {
        let [from, to] = [donor, receiver].map(|at| &judged[at]);
        donor != receiver
            && from.age_without_one() * (1.0 - ratio) > to.age(1.0)
            && from.can_spare_a_slab_for(to)
    };
    let age_then_room = |&a: &usize, &b: &usize| {
        let by_age = judged[a].age_without_one().total_cmp(&judged[b].age_without_one());
        by_age.then(judged[a].free_slabs().cmp(&judged[b].free_slabs()))
    };
    let donor = donors(judged, min_slabs).filter(is_worth_it).max_by(age_then_room)?;
    Some(Pair { donor, receiver: Some(receiver) })
}

fn pick_by_hits(judged: &[Judged<'_>], min_slabs: u32, ratio: f64, least: u64) -> Option<Pair> {
    let hits = |at: usize| judged[at].hits_per_slab();
    let lacking = (0..judged.len()).filter(|&at| judged[at].lacks_room());
    let receiver = lacking.max_by(|&a, &b| hits(a).total_cmp(&hits(b)))?;
    let donor = donors(judged, min_slabs).min_by(|&a, &b| hits(a).total_cmp(&hits(b)))?;
    let difference = hits(receiver) - hits(donor);
    let is_worth_it = difference > 0.0
        && difference >= least as f64
        && difference >= ratio * hits(donor)
        && donor != receiver;
    is_worth_it.then_some(Pair { donor, receiver: Some(receiver) })
}

fn pick_at_random(judged: &[Judged<'_>], min_slabs: u32, drawn: u64) -> Option<Pair> {
    let donors: Vec<_> = donors(judged, min_slabs).collect();
    let donor = *donors.get(drawn as usize % donors.len().max(1))?;
    let receivers: Vec<_> = (0..judged.len()).filter(|&at| at != donor).collect();
    let receiver = *receivers.get((drawn >> 32) as usize % receivers.len().max(1))?;
    Some(Pair { donor, receiver: Some(receiver) })
}

fn pick_by_free_memory(judged: &[Judged<'_>], min_slabs: u32, min_free_slabs: u32) -> Option<Pair> {
    let enough = |&at: &usize| judged[at].free_slabs() >= u64::from(min_free_slabs.max(1));
    let donor = donors(judged, min_slabs).filter(enough).max_by_key(|&at| judged[at].free_slabs())?;
    Some(Pair { donor, receiver: None })
}
