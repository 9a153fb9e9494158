//! 2Q: new entries enter a FIFO queue, A1in. An evicted entry of A1in leaves its key in a queue of ghosts, A1out. An entry that returns
//! while its ghost exists enters the LRU queue Am. One scan therefore displaces A1in only.
//!
//! Johnson, Shasha: "2Q: a low overhead high performance buffer management replacement algorithm", VLDB'94, section 3.3 (the full
//! version), with the sizes that it recommends: A1in has a quarter of the cache, A1out the keys of half a cache.
//!
//! [`Lru2q`](super::Lru2q) is another policy: CacheLib's, with three queues and no ghosts.

use crate::ghost_queue::GhostQueue;
use crate::segments::{Queue, Segments, share};
use crate::{Entry, Eviction, HitRule, Slot};

const A1_IN: Queue = 0;
const AM: Queue = 1;
const A1_IN_PERCENT: u8 = 25;
const A1_OUT_PERCENT: u8 = 50;

/// Where implementations differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TwoQRules {
    /// Am takes the space that A1in leaves free.
    #[default]
    Paper,
    /// libCacheSim 0.3.5: Am never has more than three quarters of the cache ([`Eviction::is_overfull`]). (It also rejects objects larger
    /// than A1in; this policy does not decide on admission.)
    Reference,
}

/// A1in, Am and A1out.
pub struct TwoQ {
    segments: Segments,
    hashes: Vec<u64>,
    ghosts: GhostQueue,
    rules: TwoQRules,
    in_capacity: u64,
    main_capacity: u64,
    /// The announced entry's hash, and whether it had a ghost.
    announced: Option<(u64, bool)>,
    /// The queue of the last restored entry.
    restored_to: Queue,
}

impl TwoQ {
    /// Empty queues that share `capacity_weight`.
    #[must_use]
    pub fn new(capacity_weight: u64, rules: TwoQRules) -> Self {
        let mut policy = Self {
            segments: Segments::new(2),
            hashes: Vec::new(),
            ghosts: GhostQueue::default(),
            rules,
            in_capacity: 0,
            main_capacity: 0,
            announced: None,
            restored_to: A1_IN,
        };
        policy.set_capacity(capacity_weight);
        policy
    }

    fn victims_queue(&self) -> Queue {
        let in_is_next = self.segments.weight(A1_IN) > self.in_capacity && !self.is_overfull();
        if in_is_next || self.segments.back(AM).is_none() { A1_IN } else { AM }
    }

    fn push(&mut self, queue: Queue, slot: Slot, entry: Entry) {
        if slot.0 as usize >= self.hashes.len() {
            self.hashes.resize(slot.0 as usize + 1, 0);
        }
        self.hashes[slot.0 as usize] = entry.hash;
        self.segments.push_front(queue, slot, entry.weight);
    }
}

impl Eviction for TwoQ {
    fn announce(&mut self, entry: Entry) {
        self.announced = Some((entry.hash, self.ghosts.take(entry.hash)));
    }

    fn insert(&mut self, slot: Slot, entry: Entry, _now_seconds: u32) {
        let returns = match self.announced.take() {
            Some((hash, had_ghost)) if hash == entry.hash => had_ghost,
            _ => self.ghosts.take(entry.hash),
        };
        self.push(if returns { AM } else { A1_IN }, slot, entry);
    }

    fn refuse(&mut self, entry: Entry) {
        self.ghosts.take(entry.hash);
    }

    /// A hit in A1in changes nothing: it may belong to the same burst of requests as the insertion.
    fn hit(&mut self, slot: Slot, _now_seconds: u32) {
        if self.segments.queue_of(slot) == AM {
            self.segments.move_to_front(AM, slot);
        }
    }

    fn evict(&mut self, _now_seconds: u32) -> Option<Slot> {
        let queue = self.victims_queue();
        let victim = self.segments.back(queue)?;
        if queue == A1_IN {
            self.ghosts.insert(self.hashes[victim.0 as usize], self.segments.weight_of(victim) as u32);
            self.ghosts.trim();
        }
        self.segments.remove(victim);
        Some(victim)
    }

    fn remove(&mut self, slot: Slot) {
        self.segments.remove(slot);
    }

    /// Alternates between the queues: if one held all pinned entries, every victim would be sought there.
    fn restore(&mut self, slot: Slot, entry: Entry, _now_seconds: u32) {
        self.ghosts.take(entry.hash);
        self.restored_to = A1_IN + AM - self.restored_to;
        self.push(self.restored_to, slot, entry);
    }

    fn set_capacity(&mut self, capacity_weight: u64) {
        self.in_capacity = share(capacity_weight, A1_IN_PERCENT);
        self.main_capacity = capacity_weight - self.in_capacity;
        self.ghosts.set_capacity(share(capacity_weight, A1_OUT_PERCENT));
    }

    fn len(&self) -> usize {
        self.segments.len()
    }

    fn oldest(&self) -> Option<Slot> {
        self.segments.back(self.victims_queue())
    }

    fn hit_rule(&self) -> HitRule {
        HitRule::Every
    }

    fn is_overfull(&self) -> bool {
        self.rules == TwoQRules::Reference && self.segments.weight(AM) > self.main_capacity
    }

    /// Links, queue, weight and hash, and a ghost.
    fn bytes_per_slot(&self) -> u32 {
        21 + GhostQueue::BYTES_PER_GHOST
    }

    fn reweigh(&mut self, slot: Slot, weight: u32) {
        self.segments.reweigh(slot, weight);
    }

    fn look_ahead(&self, slots: &[Slot]) {
        self.segments.look_ahead(slots);
    }
}
