//! Per-set queues for Flashcache's three policies: FIFO, LRU, and LRU with mid-point insertion.
//!
//! A set's entries form one eviction order in two lists: the *hot* list, followed by the *warm* list. A new entry enters at the front of
//! the warm list, the mid-point. Entries hit there often enough are promoted to the hot list, whose last entries fall back to the
//! mid-point. Entries read once pass through the warm list and evict nothing hot. With a hot share of 0 this is LRU; FIFO is LRU that
//! ignores hits.
//!
//! After Flashcache 3's "LRU-2Q" (Facebook 2013, `flashcache_reclaim.c`); the mid-point is InnoDB's. Differences:
//! * A slot belongs to no list until it is filled. Flashcache assigns all slots to the two lists in advance, so in a young cache most
//!   entries of the hot list were used once, and remain until promotions replace them. Here the warm list uses the hot list's space
//!   until entries are promoted.
//! * A change of the hot share takes effect immediately, set by set, in one step.
//!
//! 5 bytes per entry: two 16-bit links and one byte of use count. The caller selects the victim: it walks
//! [`oldest_first`](SetQueues::oldest_first) to the first evictable entry.

use crate::Slot;
use crate::list::{Link, List};

/// Eviction order within a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetPolicy {
    /// Order of insertion.
    Fifo,
    /// Order of the last use.
    Lru,
    /// LRU with new entries at a mid-point.
    Lru2q {
        /// The hot list's share of a set in percent: the percentile of the insertion point from the front.
        hot_percent: u8,
        /// Hits in the warm list after which an entry is promoted; at least 1.
        promote_hits: u8,
    },
}

/// An entry's state beside its position: one byte, all of whose values are valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PolicyState(pub u8);

impl PolicyState {
    /// Whether the entry is in the hot list.
    #[must_use]
    pub fn is_hot(self) -> bool {
        self.0 & HOT != 0
    }
}

/// Set in an entry's mark while it is in the hot list; the other bits count its hits in the warm one.
const HOT: u8 = 0x80;

/// Largest number of slots, so that 16-bit links can also store both marks.
pub const MAX_WAYS: u32 = u16::MAX as u32 - 1;

/// The queues of all sets. Set `n` has slots `n * ways .. (n + 1) * ways`.
pub struct SetQueues {
    policy: SetPolicy,
    ways: u32,
    /// The hot list's share of a set, in slots.
    hot_slots: usize,
    links: Vec<Link<u16>>,
    marks: Vec<u8>,
    sets: Vec<Queues>,
    promotions: u64,
    demotions: u64,
}

#[derive(Default, Clone, Copy)]
struct Queues {
    hot: List<u16>,
    warm: List<u16>,
}

impl SetQueues {
    /// Empty queues for `sets` sets of `ways` slots.
    ///
    /// # Panics
    /// If `ways` is 0 or more than [`MAX_WAYS`], or the slots of all sets are more than a [`Slot`] can number.
    #[must_use]
    pub fn new(sets: u32, ways: u32, policy: SetPolicy) -> Self {
        assert!((1..=MAX_WAYS).contains(&ways), "{ways} slots a set");
        let slots = sets.checked_mul(ways).expect("slots are numbered by 32 bits") as usize;
        let mut queues = Self {
            policy,
            ways,
            hot_slots: 0,
            links: vec![Link::LOOSE; slots],
            marks: vec![0; slots],
            sets: vec![Queues::default(); sets as usize],
            promotions: 0,
            demotions: 0,
        };
        queues.set_policy(policy);
        queues
    }

    /// Inserts a new entry in `slot`.
    #[inline]
    pub fn insert(&mut self, slot: Slot) {
        let (set, way) = self.split(slot);
        self.marks[slot.0 as usize] = 0;
        let (queues, links) = self.set_mut(set);
        queues.warm.link_front(links, way);
    }

    /// Records a hit of the entry in `slot`.
    #[inline]
    pub fn hit(&mut self, slot: Slot) {
        let SetPolicy::Lru2q { promote_hits, .. } = self.policy else {
            if self.policy == SetPolicy::Lru {
                self.lift_warm(slot);
            }
            return;
        };
        let mark = self.marks[slot.0 as usize];
        if mark & HOT != 0 {
            let (set, way) = self.split(slot);
            let (queues, links) = self.set_mut(set);
            queues.hot.lift(links, way);
        } else if mark + 1 < promote_hits || self.hot_slots == 0 {
            self.marks[slot.0 as usize] = (mark + 1).min(promote_hits);
            self.lift_warm(slot);
        } else {
            self.promote(slot);
        }
    }

    /// Removes the entry in `slot`.
    #[inline]
    pub fn remove(&mut self, slot: Slot) {
        let (set, way) = self.split(slot);
        let hot = self.marks[slot.0 as usize] & HOT != 0;
        let (queues, links) = self.set_mut(set);
        if hot { &mut queues.hot } else { &mut queues.warm }.cut(links, way);
    }

    /// Skips an entry that cannot be evicted. FIFO moves it to the front, like the hand of a clock; the others leave it next in order.
    #[inline]
    pub fn pass_over(&mut self, slot: Slot) {
        if self.policy == SetPolicy::Fifo {
            self.lift_warm(slot);
        }
    }

    /// The list that holds `slot`, and its hits on the warm list. Persistent users store this together with the order.
    #[must_use]
    pub fn policy_state(&self, slot: Slot) -> PolicyState {
        PolicyState(self.marks[slot.0 as usize])
    }

    /// Makes the entry in `slot` the newest on its side of the mid-point. Calling this for all entries of a set in eviction order restores
    /// that order.
    pub fn restore(&mut self, slot: Slot, policy_state: PolicyState) {
        self.remove(slot);
        let (set, way) = self.split(slot);
        let hot = policy_state.is_hot();
        self.marks[slot.0 as usize] = if hot { HOT } else { policy_state.0 };
        let (queues, links) = self.set_mut(set);
        if hot { &mut queues.hot } else { &mut queues.warm }.link_front(links, way);
        // The share may have been larger when the entry was promoted.
        self.settle(set);
    }

    /// The entries of a set in eviction order.
    pub fn oldest_first(&self, set: u32) -> impl Iterator<Item = Slot> + '_ {
        let queues = self.sets[set as usize];
        let first = set * self.ways;
        let links = &self.links[first as usize..];
        let up =
            move |from: Option<Slot>| std::iter::successors(from, move |way| links[way.0 as usize].newer());
        up(queues.warm.back()).chain(up(queues.hot.back())).map(move |way| Slot(first + way.0))
    }

    /// The current policy.
    #[must_use]
    pub fn policy(&self) -> SetPolicy {
        self.policy
    }

    /// Changes the policy. The eviction order stays; hot entries above the new share fall back to the mid-point.
    ///
    /// # Panics
    /// If a hot share is more than 100 percent or a promotion takes no hits.
    pub fn set_policy(&mut self, policy: SetPolicy) {
        self.hot_slots = match policy {
            SetPolicy::Fifo | SetPolicy::Lru => 0,
            SetPolicy::Lru2q { hot_percent, promote_hits } => {
                assert!(hot_percent <= 100, "a hot share of {hot_percent} percent");
                assert!((1..HOT).contains(&promote_hits), "promotion after {promote_hits} hits");
                self.ways as usize * usize::from(hot_percent) / 100
            }
        };
        self.policy = policy;
        for set in 0..self.sets.len() as u32 {
            self.settle(set);
        }
    }

    /// Entries in the hot lists and in the warm lists.
    #[must_use]
    pub fn hot_and_warm(&self) -> (u64, u64) {
        self.sets
            .iter()
            .fold((0, 0), |(hot, warm), set| (hot + set.hot.len() as u64, warm + set.warm.len() as u64))
    }

    /// Promotions to and demotions from hot lists so far.
    #[must_use]
    pub fn promotions_and_demotions(&self) -> (u64, u64) {
        (self.promotions, self.demotions)
    }

    /// Resets the counts of promotions and demotions.
    pub fn zero_promotions_and_demotions(&mut self) {
        (self.promotions, self.demotions) = (0, 0);
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.links.capacity() * size_of::<Link<u16>>()
            + self.marks.capacity()
            + self.sets.capacity() * size_of::<Queues>()
    }

    fn promote(&mut self, slot: Slot) {
        let (set, way) = self.split(slot);
        self.marks[slot.0 as usize] = HOT;
        self.promotions += 1;
        let (queues, links) = self.set_mut(set);
        queues.warm.cut(links, way);
        queues.hot.link_front(links, way);
        self.settle(set);
    }

    /// Demotes entries above the hot list's share to the mid-point.
    fn settle(&mut self, set: u32) {
        let hot_slots = self.hot_slots;
        while self.sets[set as usize].hot.len() > hot_slots {
            let first = set * self.ways;
            let (queues, links) = self.set_mut(set);
            let way = queues.hot.back().expect("a list longer than its share is not empty");
            queues.hot.cut(links, way);
            queues.warm.link_front(links, way);
            self.marks[(first + way.0) as usize] = 0;
            self.demotions += 1;
        }
    }

    #[inline]
    fn lift_warm(&mut self, slot: Slot) {
        let (set, way) = self.split(slot);
        let (queues, links) = self.set_mut(set);
        queues.warm.lift(links, way);
    }

    #[inline]
    fn split(&self, slot: Slot) -> (u32, Slot) {
        (slot.0 / self.ways, Slot(slot.0 % self.ways))
    }

    #[inline]
    fn set_mut(&mut self, set: u32) -> (&mut Queues, &mut [Link<u16>]) {
        let (first, ways) = (set as usize * self.ways as usize, self.ways as usize);
        (&mut self.sets[set as usize], &mut self.links[first..first + ways])
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;

    const MID_POINT_50: SetPolicy = SetPolicy::Lru2q { hot_percent: 50, promote_hits: 1 };

    fn order(queues: &SetQueues, set: u32) -> Vec<u32> {
        queues.oldest_first(set).map(|slot| slot.0).collect()
    }

    fn filled(policy: SetPolicy) -> SetQueues {
        let mut queues = SetQueues::new(2, 4, policy);
        for slot in 0..8 {
            queues.insert(Slot(slot));
        }
        queues
    }

    #[test]
    fn fifo_orders_by_insertion_and_lru_by_use() {
        let mut fifo = filled(SetPolicy::Fifo);
        fifo.hit(Slot(5));
        assert_eq!((order(&fifo, 0), order(&fifo, 1)), (vec![0, 1, 2, 3], vec![4, 5, 6, 7]));
        let mut lru = filled(SetPolicy::Lru);
        lru.hit(Slot(5));
        lru.hit(Slot(4));
        assert_eq!((order(&lru, 0), order(&lru, 1)), (vec![0, 1, 2, 3], vec![6, 7, 5, 4]));
    }

    #[test]
    fn only_fifo_moves_skipped_entries_to_the_front() {
        let mut fifo = filled(SetPolicy::Fifo);
        fifo.pass_over(Slot(0));
        assert_eq!(order(&fifo, 0), [1, 2, 3, 0]);
        let mut lru = filled(SetPolicy::Lru);
        lru.pass_over(Slot(0));
        assert_eq!(order(&lru, 0), [0, 1, 2, 3]);
    }

    #[test]
    fn new_entries_are_inserted_at_the_mid_point() {
        let mut queues = filled(MID_POINT_50);
        queues.hit(Slot(0));
        queues.hit(Slot(1));
        assert_eq!(order(&queues, 0), [2, 3, 0, 1], "0 and 1 are hot, 1 the newer");
        queues.remove(Slot(2));
        queues.insert(Slot(2));
        assert_eq!(order(&queues, 0), [3, 2, 0, 1], "2 stands in front of the warm list, behind the hot one");
        assert_eq!(queues.hot_and_warm(), (2, 6));
    }

    #[test]
    fn promotion_into_a_full_hot_list_demotes_its_last() {
        let mut queues = filled(MID_POINT_50);
        for slot in [0, 1, 2] {
            queues.hit(Slot(slot));
        }
        assert_eq!(order(&queues, 0), [3, 0, 1, 2], "0 fell to the front of the warm list");
        assert_eq!(queues.promotions_and_demotions(), (3, 1));
    }

    #[test]
    fn promotion_requires_the_configured_hits() {
        let mut queues = filled(SetPolicy::Lru2q { hot_percent: 50, promote_hits: 2 });
        queues.hit(Slot(0));
        assert_eq!(queues.hot_and_warm(), (0, 8), "one hit makes it the newest of the warm");
        assert_eq!(order(&queues, 0), [1, 2, 3, 0]);
        queues.hit(Slot(0));
        assert_eq!(queues.hot_and_warm(), (1, 7));
    }

    #[test]
    fn hot_share_of_zero_is_lru() {
        let mut none = filled(SetPolicy::Lru2q { hot_percent: 0, promote_hits: 1 });
        let mut lru = filled(SetPolicy::Lru);
        for slot in [3, 0, 3, 5, 1, 3, 7] {
            none.hit(Slot(slot));
            lru.hit(Slot(slot));
        }
        assert_eq!((order(&none, 0), order(&none, 1)), (order(&lru, 0), order(&lru, 1)));
    }

    #[test]
    fn policy_change_keeps_the_eviction_order() {
        let mut queues = filled(MID_POINT_50);
        for slot in [0, 1] {
            queues.hit(Slot(slot));
        }
        let before = order(&queues, 0);
        for policy in [SetPolicy::Lru2q { hot_percent: 25, promote_hits: 1 }, SetPolicy::Lru, SetPolicy::Fifo]
        {
            queues.set_policy(policy);
            assert_eq!(order(&queues, 0), before, "{policy:?}");
        }
        assert_eq!(queues.hot_and_warm(), (0, 8));
    }

    /// The restored queues also behave equally later: hit counts and the free space of the hot list are restored.
    #[test]
    fn queues_restored_from_order_and_policy_state_are_equal() {
        for policy in [SetPolicy::Fifo, SetPolicy::Lru, SetPolicy::Lru2q { hot_percent: 50, promote_hits: 3 }]
        {
            let mut before = SetQueues::new(2, 4, policy);
            for slot in [4, 2, 7, 0, 3, 5, 6] {
                before.insert(Slot(slot));
            }
            let use_some = |queues: &mut SetQueues, from: u32| {
                for step in 0..40 {
                    queues.hit(Slot([5, 0, 3, 7, 2, 5, 0, 4][(from + step * step) as usize % 8]));
                }
            };
            use_some(&mut before, 0);
            let mut after = SetQueues::new(2, 4, policy);
            for slot in [0, 2, 3, 4, 5, 6, 7] {
                after.insert(Slot(slot));
            }
            for slot in (0..2).flat_map(|set| before.oldest_first(set)) {
                after.restore(slot, before.policy_state(slot));
            }
            for step in 0..20 {
                for set in 0..2 {
                    assert_eq!(order(&after, set), order(&before, set), "{policy:?}, step {step}");
                }
                assert_eq!(after.hot_and_warm(), before.hot_and_warm());
                use_some(&mut before, step);
                use_some(&mut after, step);
            }
        }
    }

    #[test]
    fn sets_are_independent() {
        let policy = SetPolicy::Lru2q { hot_percent: 50, promote_hits: 2 };
        let mut rng = StdRng::seed_from_u64(1);
        let mut together = SetQueues::new(3, 4, policy);
        let mut alone = [0; 3].map(|_| SetQueues::new(1, 4, policy));
        for slot in 0..12 {
            together.insert(Slot(slot));
            alone[slot as usize / 4].insert(Slot(slot % 4));
        }
        for step in 0..2000 {
            let slot = rng.random_range(0..12);
            let set = &mut alone[slot as usize / 4];
            if rng.random_bool(0.2) {
                together.remove(Slot(slot));
                together.insert(Slot(slot));
                set.remove(Slot(slot % 4));
                set.insert(Slot(slot % 4));
            } else {
                together.hit(Slot(slot));
                set.hit(Slot(slot % 4));
            }
            for (set, alone) in (0..).zip(&alone) {
                let theirs: Vec<_> = order(alone, 0).iter().map(|way| set * 4 + way).collect();
                assert_eq!(order(&together, set), theirs, "set {set}, step {step}");
            }
        }
        let (rose, fell) = together.promotions_and_demotions();
        assert!(rose > 100 && fell > 100, "{rose} rose, {fell} fell");
    }

    #[test]
    fn restore_into_a_smaller_hot_list_demotes_the_excess() {
        let mut before = filled(SetPolicy::Lru2q { hot_percent: 100, promote_hits: 1 });
        for slot in [0, 1, 2, 3] {
            before.hit(Slot(slot));
        }
        for (policy, hot) in [(MID_POINT_50, 2), (SetPolicy::Lru, 0), (SetPolicy::Fifo, 0)] {
            let mut after = filled(policy);
            for slot in before.oldest_first(0) {
                after.restore(slot, before.policy_state(slot));
            }
            assert_eq!(order(&after, 0), order(&before, 0), "{policy:?}");
            assert_eq!(after.hot_and_warm().0, hot);
        }
    }

    #[test]
    fn queues_take_five_bytes_per_entry() {
        let queues = SetQueues::new(64, 512, SetPolicy::Lru);
        let slots = 64 * 512;
        assert!(queues.memory_bytes() < slots * 5 + 64 * 24, "{} bytes", queues.memory_bytes());
    }
}
