//! S3-FIFO: most entries are never used again, so a small queue filters them before the main one. New entries enter the small queue; those
//! hit often enough there move to the main queue, all others are evicted and leave a ghost. An entry that returns while its ghost exists
//! enters the main queue directly.
//!
//! Yang, Zhang, Qiu, Yue, Vigfusson: "FIFO queues are all you need for cache eviction", SOSP'23, section 4, algorithm 1.
//!
//! Deviation: victims come from the main queue when it exceeds its share (as in the authors' simulator), not when the small one is below
//! its own. In a full cache of equal entries that is the same; with weights a single large new entry does not decide. An entry heavier than
//! the small queue is not rejected: this policy does not decide on admission.
//!
//! The authors' simulator, the source of published figures, differs further: [`S3FifoRules::Reference`].

use std::sync::Arc;

use crate::ghost::Ghost;
use crate::ghost_queue::GhostQueue;
use crate::list::{List, Nodes};
use crate::prefetch::prefetch;
use crate::segments::share;
use crate::weights::Weights;
use crate::{Entry, Eviction, HitMarks, HitRule, Marks, Slot};

/// Hits are counted up to 3: two bits.
const FREQUENCY_AT_MOST: u8 = 3;
/// Hits in the small queue required for the main one.
const MOVE_TO_MAIN_AT: u8 = 2;
/// The small queue's share of the capacity, percent.
const SMALL_PERCENT: u8 = 10;

/// Number of entries examined to predict the next victim.
const FORESEEN_STEPS: usize = 8;

/// Where implementations differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum S3FifoRules {
    /// New entries without a ghost enter the small queue. Ghosts take four bytes each.
    #[default]
    Paper,
    /// libCacheSim 0.3.5: before the first eviction, new entries enter the main queue if the small one is full; ghosts are an exact queue,
    /// and a ghost whose key returned no longer counts. (libCacheSim also rejects objects larger than the small queue; this policy does not
    /// decide on admission.)
    Reference,
}

/// The queues S, M and G.
pub struct S3Fifo {
    nodes: Nodes,
    small: Segment,
    main: Segment,
    ghost: Memory,
    small_capacity: u64,
    main_capacity: u64,
    /// With the reference's rules: whether nothing was evicted yet.
    is_filling: bool,
    /// With the reference's rules: whether the announced entry had a ghost. It was removed before the evictions for the entry.
    announced_had_ghost: bool,
    /// The queue of the last restored entry.
    restores_to_main: bool,
    weights: Weights,
    hashes: Vec<Origin>,
    frequency: Arc<dyn HitMarks>,
}

/// The ghost queue G: a table with the paper's rules, an exact queue with the reference's.
enum Memory {
    Table(Ghost),
    Queue(GhostQueue),
}

#[derive(Default)]
struct Segment {
    list: List,
    weight: u64,
}

/// The hash for the ghost (31 bits) and, in the lowest bit, whether the entry is in the main queue.
type Origin = u32;
const IN_MAIN: Origin = 1;

impl S3Fifo {
    /// The small queue's share of the capacity.
    pub const WAITING_PERCENT: u8 = SMALL_PERCENT;

    /// Empty queues that share `capacity_weight`.
    #[must_use]
    pub fn new(capacity_weight: u64) -> Self {
        Self::with_rules(capacity_weight, S3FifoRules::Paper)
    }

    /// As [`new`](Self::new), with the given rules.
    #[must_use]
    pub fn with_rules(capacity_weight: u64, rules: S3FifoRules) -> Self {
        let is_reference = rules == S3FifoRules::Reference;
        let mut policy = Self {
            nodes: Nodes::new(),
            small: Segment::default(),
            main: Segment::default(),
            ghost: if is_reference {
                Memory::Queue(GhostQueue::default())
            } else {
                Memory::Table(Ghost::new(0))
            },
            small_capacity: 0,
            main_capacity: 0,
            is_filling: is_reference,
            announced_had_ghost: false,
            restores_to_main: false,
            weights: Weights::new(),
            hashes: Vec::new(),
            frequency: Arc::new(Marks::default()),
        };
        policy.set_capacity(capacity_weight);
        policy
    }

    #[cold]
    fn set_first_hash(&mut self, slot: Slot, origin: Origin) {
        self.hashes.resize(slot.0 as usize, 0);
        self.hashes.push(origin);
    }

    #[inline(always)]
    fn enter(&mut self, slot: Slot, entry: Entry, to_main: bool) {
        let origin = (entry.hash >> 32) as u32 & !IN_MAIN | u32::from(to_main);
        match self.hashes.get_mut(slot.0 as usize) {
            Some(hash) => *hash = origin,
            None => self.set_first_hash(slot, origin),
        }
        self.weights.set(slot, entry.weight);
        let queue = if to_main { &mut self.main } else { &mut self.small };
        queue.list.push_front(&mut self.nodes, slot);
        queue.weight += u64::from(entry.weight);
    }

    fn evict_small(&mut self) -> Option<Slot> {
        while let Some(slot) = self.small.list.pop_back(&mut self.nodes) {
            let weight = self.weights.get(slot);
            self.small.weight -= weight;
            if self.frequency.get(slot) < MOVE_TO_MAIN_AT {
                self.ghost.insert(ghost_hash(self.hashes[slot.0 as usize]), weight as u32);
                return Some(slot);
            }
            self.frequency.set(slot, 0);
            self.hashes[slot.0 as usize] |= IN_MAIN;
            self.main.list.push_front(&mut self.nodes, slot);
            self.main.weight += weight;
        }
        None
    }

    fn evict_main(&mut self) -> Option<Slot> {
        // Terminates: each round decrements the entries' hit counts, unless readers increment them faster; so the number of rounds is
        // limited.
        let most_rounds = self.main.list.len() * (usize::from(FREQUENCY_AT_MOST) + 1);
        for _ in 0..most_rounds {
            let slot = self.main.list.back()?;
            let frequency = self.frequency.get(slot);
            if frequency == 0 {
                break;
            }
            self.frequency.set(slot, frequency - 1);
            self.main.list.move_to_front(&mut self.nodes, slot);
        }
        let slot = self.main.list.pop_back(&mut self.nodes)?;
        self.main.weight -= self.weights.get(slot);
        Some(slot)
    }

    /// Prefetches the ghost's line for the eviction of `next`, and the entry `behind` it.
    #[inline]
    fn prefetch_eviction(&self, next: Slot, behind: Option<Slot>, main_is_next: bool) {
        if let Some(behind) = behind {
            self.nodes.prefetch(behind);
            self.frequency.prefetch(behind);
            prefetch(std::ptr::from_ref(&self.hashes[behind.0 as usize]).cast());
        }
        if !main_is_next {
            self.ghost.prefetch(ghost_hash(self.hashes[next.0 as usize]));
        }
    }

    #[inline]
    fn main_is_next(&self) -> bool {
        self.main.weight > self.main_capacity || self.small.list.is_empty()
    }
}

impl Memory {
    fn insert(&mut self, hash: u64, weight: u32) {
        match self {
            Self::Table(ghost) => ghost.insert(hash, weight),
            Self::Queue(ghost) => ghost.insert(hash, weight),
        }
    }

    fn take(&mut self, hash: u64) -> bool {
        match self {
            Self::Table(ghost) => ghost.take(hash),
            Self::Queue(ghost) => ghost.take(hash),
        }
    }

    fn prefetch(&self, hash: u64) {
        match self {
            Self::Table(ghost) => ghost.prefetch(hash),
            Self::Queue(_) => {}
        }
    }
}

/// Spreads the stored bits over 64, from which a ghost's line and fingerprint are taken.
fn ghost_hash(origin: Origin) -> u64 {
    u64::from(origin | IN_MAIN).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32)
}

impl Eviction for S3Fifo {
    // Inlined into `insert_and_foresee`, as is `likely_victim`, and `evict` into `evict_for`: each is one call through the vtable.
    #[inline(always)]
    fn insert(&mut self, slot: Slot, entry: Entry, _now_seconds: u32) {
        let spills = self.is_filling && self.small.weight >= self.small_capacity;
        let has_ghost = self.ghost.take(ghost_hash((entry.hash >> 32) as u32));
        let was_known = std::mem::take(&mut self.announced_had_ghost) || has_ghost;
        self.frequency.begin(slot);
        self.enter(slot, entry, was_known || spills);
    }

    /// libCacheSim removes the ghost before it evicts for the entry.
    fn announce(&mut self, entry: Entry) {
        if let Memory::Queue(ghost) = &mut self.ghost {
            ghost.trim();
            self.announced_had_ghost = ghost.take(ghost_hash((entry.hash >> 32) as u32));
        }
    }

    fn had_ghost(&self) -> bool {
        self.announced_had_ghost
    }

    /// libCacheSim looks up and removes ghosts before it decides on admission.
    fn refuse(&mut self, entry: Entry) {
        if let Memory::Queue(ghost) = &mut self.ghost {
            ghost.trim();
            ghost.take(ghost_hash((entry.hash >> 32) as u32));
        }
    }

    fn hit(&mut self, slot: Slot, _now_seconds: u32) {
        self.frequency.bump(slot, FREQUENCY_AT_MOST);
    }

    #[inline(always)]
    fn evict(&mut self, _now_seconds: u32) -> Option<Slot> {
        self.is_filling = false;
        if let Memory::Table(ghost) = &mut self.ghost {
            ghost.reserve(self.small.list.len() + self.main.list.len());
        }
        if self.main_is_next() {
            self.evict_main()
        } else {
            // All entries of the small queue can have moved to the main one.
            self.evict_small().or_else(|| self.evict_main())
        }
    }

    fn remove(&mut self, slot: Slot) {
        let in_main = self.hashes[slot.0 as usize] & IN_MAIN == IN_MAIN;
        let queue = if in_main { &mut self.main } else { &mut self.small };
        queue.list.unlink(&mut self.nodes, slot);
        queue.weight -= self.weights.get(slot);
    }

    /// Alternates between the main and the small queue. If one of them received all pinned entries, every victim would be sought there.
    fn restore(&mut self, slot: Slot, entry: Entry, _now_seconds: u32) {
        self.ghost.take(ghost_hash((entry.hash >> 32) as u32));
        self.frequency.set(slot, 0);
        self.restores_to_main ^= true;
        self.enter(slot, entry, self.restores_to_main);
    }

    fn set_capacity(&mut self, capacity_weight: u64) {
        self.small_capacity = share(capacity_weight, SMALL_PERCENT);
        self.main_capacity = capacity_weight - self.small_capacity;
        match &mut self.ghost {
            Memory::Table(ghost) => ghost.set_window(self.main_capacity),
            Memory::Queue(ghost) => ghost.set_capacity(share(capacity_weight, 100 - SMALL_PERCENT)),
        }
    }

    fn len(&self) -> usize {
        self.small.list.len() + self.main.list.len()
    }

    fn oldest(&self) -> Option<Slot> {
        let (next, other) =
            if self.main_is_next() { (&self.main, &self.small) } else { (&self.small, &self.main) };
        next.list.back().or_else(|| other.list.back())
    }

    /// The first entry that its queue would evict, within a few steps. The examined data was prefetched by the previous step.
    #[inline(always)]
    fn likely_victim(&self) -> Option<Slot> {
        let main_is_next = self.main_is_next();
        let (queue, leaves_at) = if main_is_next { (&self.main, 1) } else { (&self.small, MOVE_TO_MAIN_AT) };
        // A loop: it runs at every eviction, and iterators compile to more instructions.
        let mut next = queue.list.back().or_else(|| self.oldest())?;
        for _ in 0..FORESEEN_STEPS {
            let behind = self.nodes.newer(next);
            if self.frequency.get(next) < leaves_at {
                self.prefetch_eviction(next, behind, main_is_next);
                return Some(next);
            }
            next = behind?;
        }
        None
    }

    fn foresee(&self, entry: Entry) {
        self.ghost.prefetch(ghost_hash((entry.hash >> 32) as u32));
    }

    fn keep_marks_in(&mut self, marks: Arc<dyn HitMarks>) {
        self.frequency = marks;
    }

    fn hit_rule(&self) -> HitRule {
        HitRule::Mark { marks: Arc::clone(&self.frequency), at_most: FREQUENCY_AT_MOST }
    }

    /// Links, hash, and a ghost of four bytes in a table that is at least two thirds full and is copied when it grows.
    fn bytes_per_slot(&self) -> u32 {
        22
    }

    fn reweigh(&mut self, slot: Slot, weight: u32) {
        let in_main = self.hashes[slot.0 as usize] & IN_MAIN == IN_MAIN;
        let queue = if in_main { &mut self.main } else { &mut self.small };
        queue.weight = queue.weight - self.weights.get(slot) + u64::from(weight);
        self.weights.set(slot, weight);
    }
}
