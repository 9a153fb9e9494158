//! Compares the classes of a pool, and selects the donor and the receiver of a slab.
//!
//! CacheLib compares the ages of next victims. Here a policy may differ from LRU, where the next victim's age is the eviction age:
//! S3-FIFO's next victim is sometimes a new item without hits, sometimes an old one.
//! * The age is computed: the time in which the class reassigns each of its chunks, at its recent rate.
//! * A slab moves only if the donor's items would still be older without it than the receiver's with it.
//! * Only a class that evicts for lack of chunks receives a slab.
//! * Emptying a slab evicts its content. So slabs in use move once per [`CHURN_PER_MOVE`] slabs that evictions have turned over,
//!   independent of how often the rebalancer runs; unused slabs without hits move immediately.

use crate::sync::Mutex;

/// Evicted items, in slabs, that permit one slab to be emptied.
const CHURN_PER_MOVE: f64 = 8.0;
/// Share of earlier activity that is kept at each step, so that activity is averaged over a few steps.
const KEPT: f64 = 0.5;

/// How donor and receiver are selected. By tail age and by hits, classes without items first return their slabs to the pool.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Strategy {
    /// From the class whose items are oldest at eviction to the one whose items are youngest.
    TailAge {
        /// Smallest difference of the ages, as a share of the older.
        min_difference_ratio: f64,
    },
    /// From the class with the fewest recent hits per slab to the one with the most.
    Hits {
        /// Smallest difference, as a share of the donor's hits per slab.
        min_difference_ratio: f64,
        /// Smallest difference in hits per slab.
        min_difference: u64,
    },
    /// From any class to any other.
    Random {
        /// A random number, new for every step.
        drawn: u64,
    },
    /// From the class with the most free chunks, if they amount to this many slabs, back to the pool.
    FreeMemory {
        /// Free chunks, in slabs.
        min_free_slabs: u32,
    },
}

/// Parameters of a rebalancing step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rebalance {
    /// How donor and receiver are selected.
    pub strategy: Strategy,
    /// Slabs that a donor keeps.
    pub min_slabs: u32,
    /// Whether the released slab's items are moved into chunks freed by evicting the coldest items of the class; otherwise all items of
    /// the slab are evicted.
    pub move_on_release: bool,
}

/// State that is kept between steps.
pub(super) struct Rebalancer {
    pub(super) classes: Mutex<Vec<LastStep>>,
    /// By pool.
    pub(super) churn: Mutex<Vec<Churn>>,
}

impl Rebalancer {
    pub(super) fn new(classes: usize, pools: usize) -> Self {
        Self {
            classes: Mutex::new(vec![LastStep::default(); classes]),
            churn: Mutex::new(vec![Churn::default(); pools]),
        }
    }
}

/// Counters of a class at the last step.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LastStep {
    pub hits: u64,
    pub allocations: u64,
    pub evictions: u64,
    pub items: u64,
    pub recent: Recent,
}

/// Recent activity of a class.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Recent {
    pub hits: f64,
    pub allocations: f64,
    pub evictions: f64,
    /// Growth of the number of items.
    pub growth: f64,
}

impl Recent {
    /// The moving average after a step with `latest` activity.
    pub(super) fn and_then(&self, latest: &Self) -> Self {
        Self {
            hits: KEPT * self.hits + latest.hits,
            allocations: KEPT * self.allocations + latest.allocations,
            evictions: KEPT * self.evictions + latest.evictions,
            growth: KEPT * self.growth + latest.growth,
        }
    }
}

/// Evicted items of a pool, in slabs, minus those used up by moves.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Churn(f64);

impl Churn {
    /// Adds the churn of a step. Unused churn of earlier steps expires.
    pub(super) fn add(&mut self, slabs: f64) {
        self.0 = self.0.min(CHURN_PER_MOVE) + slabs;
    }

    /// Subtracts the churn that one move of a slab needs; returns `false` if there is not enough.
    pub(super) fn consume(&mut self) -> bool {
        let is_enough = self.0 >= CHURN_PER_MOVE;
        if is_enough {
            self.0 -= CHURN_PER_MOVE;
        }
        is_enough
    }
}

/// The state of a class in a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClassState {
    pub chunks_per_slab: u32,
    pub slabs: u32,
    pub items: u64,
    pub recent: Recent,
}

impl ClassState {
    /// Steps until every chunk has been reassigned, if the class had `slabs` slabs more (or fewer, if negative).
    fn age(&self, slabs: f64) -> f64 {
        // Without allocations there is no rate, and a class that would lose its last slab must not divide 0 by 0.
        if self.recent.allocations < 1.0 {
            return f64::INFINITY;
        }
        (f64::from(self.slabs) + slabs) * f64::from(self.chunks_per_slab) / self.recent.allocations
    }

    /// As [`age`](Self::age) with one slab less; infinite if the class has a spare slab.
    fn age_without_one(&self) -> f64 {
        if self.has_spare() { f64::INFINITY } else { self.age(-1.0) }
    }

    fn hits_per_slab(&self) -> f64 {
        self.recent.hits / f64::from(self.slabs.max(1))
    }

    /// Number of whole slabs that its free chunks amount to.
    fn free_slabs(&self) -> u64 {
        let chunks_per_slab = u64::from(self.chunks_per_slab);
        (u64::from(self.slabs) * chunks_per_slab).saturating_sub(self.items) / chunks_per_slab
    }

    /// Whether it has a free slab and is not growing.
    fn has_spare(&self) -> bool {
        self.free_slabs() > 0 && self.recent.growth < 1.0
    }

    /// Whether it evicts more than its free chunks can hold. Activity before the loss of its last slab does not count.
    fn lacks_room(&self) -> bool {
        let evicted_slabs = self.recent.evictions / f64::from(self.chunks_per_slab);
        let evicts = self.slabs > 0 && self.recent.evictions >= 1.0;
        evicts && self.free_slabs() as f64 <= evicted_slabs.floor()
    }

    /// A class without evictions may still have many hits, so those are compared too.
    fn can_spare_a_slab_for(&self, receiver: &Self) -> bool {
        self.recent.evictions >= 1.0 || self.has_spare() || self.hits_per_slab() <= receiver.hits_per_slab()
    }
}

/// The donor and the receiver, as indexes into the states of all classes of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    pub donor: usize,
    /// `None` means the pool.
    pub receiver: Option<usize>,
}

impl Pair {
    /// The pair for the next move, if a move gains enough. `has_slabs_left`: the pool has unassigned slabs.
    pub(super) fn pick(states: &[ClassState], how: &Rebalance, has_slabs_left: bool) -> Option<Self> {
        let min_slabs = how.min_slabs;
        match how.strategy {
            Strategy::FreeMemory { min_free_slabs } => pick_by_free_memory(states, min_slabs, min_free_slabs),
            _ if has_slabs_left => None,
            Strategy::Random { drawn } => pick_at_random(states, min_slabs, drawn),
            Strategy::TailAge { min_difference_ratio } => {
                pick_empty(states, min_slabs).or_else(|| pick_by_age(states, min_slabs, min_difference_ratio))
            }
            Strategy::Hits { min_difference_ratio, min_difference } => pick_empty(states, min_slabs)
                .or_else(|| pick_by_hits(states, min_slabs, min_difference_ratio, min_difference)),
        }
    }

    /// Whether the donor loses no hits, or few compared with the receiver's hits per slab.
    pub(super) fn costs_few_hits(&self, states: &[ClassState]) -> bool {
        let hits = |at: usize| states[at].hits_per_slab();
        states[self.donor].has_spare()
            || self.receiver.is_none_or(|receiver| hits(self.donor) * CHURN_PER_MOVE <= hits(receiver))
    }
}

/// Indexes of the classes with more slabs than a donor must keep.
fn donors<'a>(states: &'a [ClassState], min_slabs: u32) -> impl Iterator<Item = usize> + 'a {
    (0..states.len()).filter(move |&at| states[at].slabs > min_slabs)
}

/// Classes without items return their slabs to the pool first.
fn pick_empty(states: &[ClassState], min_slabs: u32) -> Option<Pair> {
    let donor = donors(states, min_slabs).find(|&at| states[at].items == 0)?;
    Some(Pair { donor, receiver: None })
}

fn pick_by_age(states: &[ClassState], min_slabs: u32, ratio: f64) -> Option<Pair> {
    let lacking = (0..states.len()).filter(|&at| states[at].lacks_room());
    let receiver = lacking.min_by(|&a, &b| states[a].age(0.0).total_cmp(&states[b].age(0.0)))?;
    let is_worth_it = |&donor: &usize| {
        let [from, to] = [donor, receiver].map(|at| &states[at]);
        donor != receiver
            && from.age_without_one() * (1.0 - ratio) > to.age(1.0)
            && from.can_spare_a_slab_for(to)
    };
    let age_then_room = |&a: &usize, &b: &usize| {
        let by_age = states[a].age_without_one().total_cmp(&states[b].age_without_one());
        by_age.then(states[a].free_slabs().cmp(&states[b].free_slabs()))
    };
    let donor = donors(states, min_slabs).filter(is_worth_it).max_by(age_then_room)?;
    Some(Pair { donor, receiver: Some(receiver) })
}

fn pick_by_hits(states: &[ClassState], min_slabs: u32, ratio: f64, least: u64) -> Option<Pair> {
    let hits = |at: usize| states[at].hits_per_slab();
    let lacking = (0..states.len()).filter(|&at| states[at].lacks_room());
    let receiver = lacking.max_by(|&a, &b| hits(a).total_cmp(&hits(b)))?;
    let donor = donors(states, min_slabs).min_by(|&a, &b| hits(a).total_cmp(&hits(b)))?;
    let difference = hits(receiver) - hits(donor);
    let is_worth_it = difference > 0.0
        && difference >= least as f64
        && difference >= ratio * hits(donor)
        && donor != receiver;
    is_worth_it.then_some(Pair { donor, receiver: Some(receiver) })
}

fn pick_at_random(states: &[ClassState], min_slabs: u32, drawn: u64) -> Option<Pair> {
    let donors: Vec<_> = donors(states, min_slabs).collect();
    let donor = *donors.get(drawn as usize % donors.len().max(1))?;
    let receivers: Vec<_> = (0..states.len()).filter(|&at| at != donor && states[at].slabs > 0).collect();
    let receiver = *receivers.get((drawn >> 32) as usize % receivers.len().max(1))?;
    Some(Pair { donor, receiver: Some(receiver) })
}

fn pick_by_free_memory(states: &[ClassState], min_slabs: u32, min_free_slabs: u32) -> Option<Pair> {
    let enough = |&at: &usize| states[at].free_slabs() >= u64::from(min_free_slabs.max(1));
    let donor = donors(states, min_slabs).filter(enough).max_by_key(|&at| states[at].free_slabs())?;
    Some(Pair { donor, receiver: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKS_PER_SLAB: u32 = 10;

    /// A full class that evicts one item per allocation, with `allocations` per step.
    fn full(slabs: u32, allocations: f64) -> ClassState {
        let recent = Recent { allocations, evictions: allocations, ..Recent::default() };
        let items = u64::from(slabs * CHUNKS_PER_SLAB);
        ClassState { chunks_per_slab: CHUNKS_PER_SLAB, slabs, items, recent }
    }

    /// Whether the first class gives the second a slab.
    fn gives(donor: ClassState, receiver: ClassState, ratio: f64) -> bool {
        let strategy = Strategy::TailAge { min_difference_ratio: ratio };
        let how = Rebalance { strategy, min_slabs: 0, move_on_release: false };
        let pair = Pair::pick(&[donor, receiver], &how, false);
        assert!(pair.is_none_or(|pair| pair == Pair { donor: 0, receiver: Some(1) }), "{pair:?}");
        pair.is_some()
    }

    /// A class with an age of 1, and of 1.5 with one slab more.
    fn needy() -> ClassState {
        full(2, 20.0)
    }

    #[test]
    fn slab_move_that_the_next_step_would_undo_is_skipped() {
        assert!(gives(full(4, 10.0), needy(), 0.25), "3 without the slab, against 1.5 with it");
        assert!(!gives(full(2, 10.0), needy(), 0.0), "2 with the slab, but 1 without it");
        assert!(
            !gives(full(3, 15.0), needy(), 0.0),
            "1.33 without the slab, which is above 1, but not above 1.5"
        );
        assert!(!gives(full(4, 10.0), needy(), 0.6), "too small a difference");
    }

    #[test]
    fn class_with_space_for_its_recent_evictions_receives_no_slab() {
        let roomy = |free_slabs: u64| {
            let mut class = full(4, 20.0);
            class.items -= free_slabs * u64::from(CHUNKS_PER_SLAB);
            // It is filling a slab that it received.
            class.recent.growth = 5.0;
            class
        };
        assert!(gives(full(8, 10.0), roomy(2), 0.0), "it evicts two slabs a step");
        assert!(!gives(full(8, 10.0), roomy(3), 0.0));
        let gone = ClassState { slabs: 0, items: 0, ..needy() };
        assert!(!gives(full(8, 10.0), gone, 0.0), "it has lost its last slab");
    }

    #[test]
    fn free_chunks_are_spare_unless_they_are_being_filled() {
        let half_empty = |growth: f64| {
            let mut class = full(2, 10.0);
            (class.items, class.recent.growth) = (9, growth);
            class
        };
        assert!(gives(half_empty(0.0), needy(), 0.25));
        assert!(!gives(half_empty(1.0), needy(), 0.25));
        let pair = Pair { donor: 0, receiver: Some(1) };
        let popular = |growth| ClassState {
            recent: Recent { hits: 1e6, ..half_empty(growth).recent },
            ..half_empty(growth)
        };
        assert!(pair.costs_few_hits(&[popular(0.0), needy()]));
        assert!(!pair.costs_few_hits(&[popular(1.0), needy()]));
    }

    #[test]
    fn slab_of_a_class_with_few_hits_has_no_cost() {
        let with_hits = |hits_per_slab: f64| {
            let mut class = full(2, 10.0);
            class.recent.hits = 2.0 * hits_per_slab;
            class
        };
        let pair = Pair { donor: 0, receiver: Some(1) };
        assert!(pair.costs_few_hits(&[with_hits(1.0), with_hits(8.0)]));
        assert!(!pair.costs_few_hits(&[with_hits(1.0), with_hits(7.9)]));
        assert!(Pair { donor: 0, receiver: None }.costs_few_hits(&[with_hits(1.0)]), "the donor is empty");
    }

    #[test]
    fn unused_churn_permits_one_slab_move() {
        let mut churn = Churn::default();
        (0..100).for_each(|_| churn.add(7.0));
        let mut moves = || (0..10).take_while(|_| churn.consume()).count();
        assert_eq!(moves(), 1, "15 slabs: 8 kept from earlier steps, and 7");
        churn.add(33.0);
        let moves = (0..10).take_while(|_| churn.consume()).count();
        assert_eq!(moves, 5, "7 kept from earlier steps, and 33");
    }
}
