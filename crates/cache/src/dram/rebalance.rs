//! Moves slabs between the classes of a pool, to where they serve more hits.
//!
//! The strategies are CacheLib's by name (`LruTailAgeStrategy`, `HitsPerSlabStrategy`, `RandomStrategy`, `FreeMemStrategy`), and so is the
//! rule that a pool with unassigned slabs is left alone. Donor and receiver are selected from the
//! [recent activity of the classes](super::class_state).

use super::class_state::{ClassState, LastStep, Pair, Rebalance, Recent, Strategy};
use super::evict::Spill;
use super::{Class, Dram, PoolId, ReleaseStats};

/// The result of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Released {
    /// Chunk size of the donor.
    pub from_chunk_bytes: u32,
    /// Chunk size of the receiver; `None` if the pool received the slab.
    pub to_chunk_bytes: Option<u32>,
    /// Whether the slab was emptied; if items in it were in use, it stayed.
    pub completed: bool,
    /// Counts of the slab's items.
    pub items: ReleaseStats,
}

/// One in this many slabs of a pool moves per step, but at least one.
const SLABS_PER_MOVE: u32 = 64;

impl Dram {
    /// Moves slabs within `pool` while a move gains enough: by age and by hits at most one slab in 64, otherwise one.
    pub fn rebalance_step<S: Spill>(&self, pool: PoolId, how: &Rebalance, spill: &S) -> Vec<Released> {
        let _one_at_a_time = self.pools.one_release(pool);
        let mut states = self.class_states(pool);
        let is_selective = matches!(how.strategy, Strategy::TailAge { .. } | Strategy::Hits { .. });
        let most = if is_selective { (self.pools.quota(pool) / SLABS_PER_MOVE).max(1) } else { 1 };
        let mut moves = Vec::new();
        for _ in 0..most {
            let has_slabs_left = self.pools.slabs_used(pool) < self.pools.quota(pool);
            let Some(pair) = Pair::pick(&states, how, has_slabs_left) else { break };
            let costs = is_selective && !pair.costs_few_hits(&states);
            if costs && !self.rebalancer.churn.lock()[usize::from(pool.0)].consume() {
                break;
            }
            let released = self.move_slab(pool, how, &pair, spill);
            moves.push(released);
            if !released.completed {
                break;
            }
            self.update_after_move(pool, &mut states, &pair);
        }
        moves
    }

    fn move_slab<S: Spill>(&self, pool: PoolId, how: &Rebalance, pair: &Pair, spill: &S) -> Released {
        let classes = self.pools.classes_of(pool);
        let (donor, receiver) = (&classes[pair.donor], pair.receiver.map(|at| &classes[at]));
        let (slab, items) = self.release_slab(donor, how.move_on_release, spill);
        if let Ok(slab) = slab {
            match receiver {
                Some(class) => class.lock().assign_slab(&self.pools, class, slab),
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

    /// Reads the state of all classes of a pool, with their activity since the last step.
    fn class_states(&self, pool: PoolId) -> Vec<ClassState> {
        let mut last_step = self.rebalancer.classes.lock();
        let mut evicted_slabs = 0.0;
        let state = |class: &Class| {
            let (stats, last_step) = (self.class_stats(class), &mut last_step[usize::from(class.index)]);
            // An unsuccessful eviction is subtracted from the counter, so the difference may be negative.
            let since = |now: u64, then: u64| now.saturating_sub(then) as f64;
            let latest = Recent {
                hits: since(stats.hits, last_step.hits),
                allocations: since(stats.allocation_attempts, last_step.allocations),
                evictions: since(stats.evictions, last_step.evictions),
                growth: stats.items as f64 - last_step.items as f64,
            };
            evicted_slabs += latest.evictions / f64::from(class.chunks_per_slab);
            *last_step = LastStep {
                hits: stats.hits,
                allocations: stats.allocation_attempts,
                evictions: stats.evictions,
                items: stats.items,
                recent: last_step.recent.and_then(&latest),
            };
            ClassState {
                chunks_per_slab: class.chunks_per_slab,
                slabs: stats.slabs,
                items: stats.items,
                recent: last_step.recent,
            }
        };
        let states = self.pools.classes_of(pool).iter().map(state).collect();
        self.rebalancer.churn.lock()[usize::from(pool.0)].add(evicted_slabs);
        states
    }

    /// Updates the state after a move. The received slab is empty, but must not count as spare.
    fn update_after_move(&self, pool: PoolId, states: &mut [ClassState], pair: &Pair) {
        let classes = self.pools.classes_of(pool);
        for at in [Some(pair.donor), pair.receiver].into_iter().flatten() {
            let counters = classes[at].lock().counters;
            (states[at].slabs, states[at].items) = (counters.slabs, counters.items);
        }
        if let Some(receiver) = pair.receiver {
            states[receiver].recent.growth += f64::from(states[receiver].chunks_per_slab);
            let mut last_step = self.rebalancer.classes.lock();
            last_step[usize::from(classes[receiver].index)].recent = states[receiver].recent;
        }
    }
}
