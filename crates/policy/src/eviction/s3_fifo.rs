//! S3-FIFO: most entries are never used again, so a small queue sorts them out before they reach the main one.
//! New entries enter the small queue; one hit often enough there moves on to the main queue, any other leaves but for a
//! ghost, and an entry whose ghost is still there when it comes back goes to the main queue at once.
//!
//! Yang, Zhang, Qiu, Yue, Vigfusson: "FIFO queues are all you need for cache eviction", SOSP'23, section 4, algorithm 1.
//!
//! Where we deviate: the main queue is evicted from when it is over its share (as the authors' simulator does), not when
//! the small one is under its own; in a full cache of equal entries that is the same, and with weights it does not let
//! one large newcomer decide. An entry heavier than the small queue is not refused: who comes in is not ours to say.
//!
//! The authors' simulator, which published figures come from, differs further: [`S3FifoRules::Reference`].

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
/// Hits in the small queue that earn a place in the main one.
const MOVE_TO_MAIN_AT: u8 = 2;
/// The small queue's share of the capacity, percent.
const SMALL_PERCENT: u8 = 10;

/// How far it is foreseen whom eviction will come to.
const FORESEEN_STEPS: usize = 8;

/// Where there is more than one way to be S3-FIFO.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum S3FifoRules {
    /// Newcomers without a ghost enter the small queue. Ghosts are four bytes each.
    #[default]
    Paper,
    /// libCacheSim 0.3.5: until the first eviction, newcomers that find the small queue full enter the main one; ghosts are
    /// a queue to the letter, in which one that came back no longer counts. (There, an object that would fill the small
    /// queue never enters; who comes in is not ours to say.)
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
    /// By the reference's rules: nothing was evicted yet.
    is_filling: bool,
    /// Where the last victim went that could not leave.
    restores_to_main: bool,
    weights: Weights,
    hashes: Vec<Origin>,
    frequency: Arc<dyn HitMarks>,
}

/// G, by either rules.
enum Memory {
    Table(Ghost),
    Queue(GhostQueue),
}

#[derive(Default)]
struct Segment {
    list: List,
    weight: u64,
}

/// The hash a ghost is made of (31 bits of it are enough) and, lowest, whether the entry is in the main queue.
type Origin = u32;
const IN_MAIN: Origin = 1;

impl S3Fifo {
    /// The share of the capacity in which newcomers wait.
    pub const WAITING_PERCENT: u8 = SMALL_PERCENT;

    /// Empty queues that share `capacity_weight`.
    #[must_use]
    pub fn new(capacity_weight: u64) -> Self {
        Self::with_rules(capacity_weight, S3FifoRules::Paper)
    }

    /// The same under given rules.
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
            restores_to_main: false,
            weights: Weights::new(),
            hashes: Vec::new(),
            frequency: Arc::new(Marks::default()),
        };
        policy.set_capacity(capacity_weight);
        policy
    }

    fn enter(&mut self, slot: Slot, entry: Entry, to_main: bool) {
        if slot.0 as usize >= self.hashes.len() {
            self.hashes.resize(slot.0 as usize + 1, 0);
        }
        self.hashes[slot.0 as usize] = (entry.hash >> 32) as u32 & !IN_MAIN | u32::from(to_main);
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
        // Ends: each round takes a hit from an entry, unless readers add them faster than we go round; a round and a
        // bit per counter value is then enough looking.
        let patience = self.main.list.len() * (usize::from(FREQUENCY_AT_MOST) + 1);
        for _ in 0..patience {
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

/// The stored bits spread over the 64 that a ghost takes its line and its fingerprint from.
fn ghost_hash(origin: Origin) -> u64 {
    u64::from(origin | IN_MAIN).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32)
}

impl Eviction for S3Fifo {
    fn insert(&mut self, slot: Slot, entry: Entry, _now_seconds: u32) {
        let spills = self.is_filling && self.small.weight >= self.small_capacity;
        let was_known = self.ghost.take(ghost_hash((entry.hash >> 32) as u32));
        self.frequency.begin(slot);
        self.enter(slot, entry, was_known || spills);
    }

    /// libCacheSim looks ghosts up, and takes them out, before it decides about admission.
    fn refuse(&mut self, entry: Entry) {
        if let Memory::Queue(ghost) = &mut self.ghost {
            ghost.take(ghost_hash((entry.hash >> 32) as u32));
        }
    }

    fn hit(&mut self, slot: Slot, _now_seconds: u32) {
        self.frequency.bump(slot, FREQUENCY_AT_MOST);
    }

    fn evict(&mut self, _now_seconds: u32) -> Option<Slot> {
        self.is_filling = false;
        if let Memory::Table(ghost) = &mut self.ghost {
            ghost.reserve(self.small.list.len() + self.main.list.len());
        }
        if self.main_is_next() {
            self.evict_main()
        } else {
            // All of the small queue may have moved on.
            self.evict_small().or_else(|| self.evict_main())
        }
    }

    fn remove(&mut self, slot: Slot) {
        let in_main = self.hashes[slot.0 as usize] & IN_MAIN == IN_MAIN;
        let queue = if in_main { &mut self.main } else { &mut self.small };
        queue.list.unlink(&mut self.nodes, slot);
        queue.weight -= self.weights.get(slot);
    }

    /// Into the main queue and the small one by turns. If all went to one of them, it would soon hold nothing but what cannot
    /// leave, and be where every victim is looked for.
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

    /// The first that its queue would not keep, if it does not come late. What is looked at of it was fetched when it was the one
    /// behind the first.
    fn likely_victim(&self) -> Option<Slot> {
        let main_is_next = self.main_is_next();
        let leaves_at = if main_is_next { 1 } else { MOVE_TO_MAIN_AT };
        let ahead = std::iter::successors(self.oldest(), |slot| self.nodes.newer(*slot));
        let next = ahead.take(FORESEEN_STEPS).find(|slot| self.frequency.get(*slot) < leaves_at)?;
        if let Some(behind) = self.nodes.newer(next) {
            self.nodes.prefetch(behind);
            self.frequency.prefetch(behind);
            prefetch(std::ptr::from_ref(&self.hashes[behind.0 as usize]).cast());
        }
        if !main_is_next {
            self.ghost.prefetch(ghost_hash(self.hashes[next.0 as usize]));
        }
        Some(next)
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

    /// Links, hash, and a ghost of four bytes in a table that is two thirds full at least.
    fn bytes_per_slot(&self) -> u32 {
        18
    }

    fn reweigh(&mut self, slot: Slot, weight: u32) {
        let in_main = self.hashes[slot.0 as usize] & IN_MAIN == IN_MAIN;
        let queue = if in_main { &mut self.main } else { &mut self.small };
        queue.weight = queue.weight - self.weights.get(slot) + u64::from(weight);
        self.weights.set(slot, weight);
    }
}
