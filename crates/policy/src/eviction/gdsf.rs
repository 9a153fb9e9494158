//! Greedy-Dual-Size-Frequency: evicts the entry of the lowest value per byte. An entry's priority is `L + frequency * cost / size`, where
//! L is the priority of the last evicted entry. Entries therefore age by evictions of others, not by hits.
//!
//! Cherkasova: "Improving WWW proxies performance with Greedy-Dual-Size-Frequency caching policy", HP Labs report
//! HPL-98-69 R.1, 1998, section 2. With a cost of 1 it maximises hits. With the size as the cost it is LFU with dynamic
//! ageing: Arlitt, Cherkasova, Dilley, Friedrich, Jin: "Evaluating content management techniques for web proxy
//! caches", ACM SIGMETRICS PER 27(4), 2000. Among equal priorities, the least recently used entry is evicted.
//!
//! A hit rarely lowers a priority, so it is recorded without moving the heap node: the heap holds old priorities, and a node that reaches
//! the top with an old priority is reinserted with the new one. A hit then costs two memory accesses.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use crate::{Entry, Eviction, HitRule, Slot};

/// The cost of a miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cost {
    /// Equal for all entries, so small ones are kept: GDSF.
    Equal,
    /// The fetched bytes, so that sizes cancel out: LFU with dynamic ageing.
    Size,
}

/// Equal cost of a miss: a million, as in libCacheSim, so that rounding is equal too.
const EQUAL_COST: f64 = 1.0e6;

/// Entries by their priority.
pub struct Gdsf {
    cost: Cost,
    /// Whether evictions raise L.
    ages: bool,
    /// L: the priority of the last victim.
    inflation: f64,
    /// Insertions and hits so far.
    events: u64,
    entries: Vec<EntryState>,
    heap: BinaryHeap<Queued>,
    len: usize,
}

/// State of an entry.
#[derive(Clone, Copy)]
struct EntryState {
    rank: Rank,
    /// The event of its valid heap node; other nodes of the slot are stale. 0 if the slot has no entry.
    queued: u64,
    weight: u32,
    frequency: u32,
}

const GONE: EntryState =
    EntryState { rank: Rank { priority: 0.0, event: 0 }, queued: 0, weight: 0, frequency: 0 };

/// Eviction order: the lowest priority, then the oldest event.
#[derive(Clone, Copy)]
struct Rank {
    priority: f64,
    event: u64,
}

/// A heap node. The greatest node is evicted next.
struct Queued {
    rank: Rank,
    slot: Slot,
}

impl Gdsf {
    /// Creates an empty policy.
    #[must_use]
    pub fn new(cost: Cost) -> Self {
        let (entries, heap) = (Vec::new(), BinaryHeap::new());
        Self { cost, ages: true, inflation: 0.0, events: 0, entries, heap, len: 0 }
    }

    /// LFU: priorities are hit counts and never age. An evicted entry's count is lost.
    #[must_use]
    pub fn lfu() -> Self {
        Self { ages: false, ..Self::new(Cost::Size) }
    }

    /// Rank of an entry that is used now.
    fn rank_now(&mut self, weight: u32, frequency: u32) -> Rank {
        self.events += 1;
        let earns = match self.cost {
            Cost::Equal => f64::from(frequency) * EQUAL_COST / f64::from(weight.max(1)),
            Cost::Size => f64::from(frequency),
        };
        Rank { priority: self.inflation + earns, event: self.events }
    }

    /// Updates the top of the heap until it is an entry with its current rank, or the heap is empty.
    fn settle(&mut self) {
        while let Some(mut top) = self.heap.peek_mut() {
            let state = &mut self.entries[top.slot.0 as usize];
            if top.rank.event != state.queued {
                PeekMut::pop(top);
            } else if top.rank.event != state.rank.event {
                state.queued = state.rank.event;
                top.rank = state.rank;
            } else {
                return;
            }
        }
    }

    /// Removes stale heap nodes when they outnumber the valid ones; until then they stay in the heap.
    fn sweep(&mut self) {
        if self.heap.len() > 2 * self.len + 64 {
            let entries = &self.entries;
            self.heap.retain(|place| place.rank.event == entries[place.slot.0 as usize].queued);
        }
    }
}

impl Eviction for Gdsf {
    fn insert(&mut self, slot: Slot, entry: Entry, _now_seconds: u32) {
        if slot.0 as usize >= self.entries.len() {
            self.entries.resize(slot.0 as usize + 1, GONE);
        }
        let rank = self.rank_now(entry.weight, 1);
        let state = EntryState { rank, queued: rank.event, weight: entry.weight, frequency: 1 };
        self.entries[slot.0 as usize] = state;
        self.heap.push(Queued { rank, slot });
        self.len += 1;
        self.settle();
    }

    fn hit(&mut self, slot: Slot, _now_seconds: u32) {
        let EntryState { weight, frequency, .. } = self.entries[slot.0 as usize];
        let frequency = frequency.saturating_add(1);
        let rank = self.rank_now(weight, frequency);
        let state = &mut self.entries[slot.0 as usize];
        if rank.priority < state.rank.priority {
            // The entry has grown: its heap position can be too high, so it gets a new node.
            state.queued = rank.event;
            self.heap.push(Queued { rank, slot });
        }
        (state.rank, state.frequency) = (rank, frequency);
        self.settle();
        self.sweep();
    }

    fn evict(&mut self, _now_seconds: u32) -> Option<Slot> {
        let Queued { rank, slot } = self.heap.pop()?;
        if self.ages {
            self.inflation = rank.priority;
        }
        self.entries[slot.0 as usize] = GONE;
        self.len -= 1;
        self.settle();
        Some(slot)
    }

    fn remove(&mut self, slot: Slot) {
        assert_ne!(self.entries[slot.0 as usize].queued, 0, "slot {} is not held", slot.0);
        self.entries[slot.0 as usize] = GONE;
        self.len -= 1;
        self.settle();
        self.sweep();
    }

    fn restore(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        self.insert(slot, entry, now_seconds);
        self.hit(slot, now_seconds);
    }

    fn len(&self) -> usize {
        self.len
    }

    fn oldest(&self) -> Option<Slot> {
        self.heap.peek().map(|place| place.slot)
    }

    fn hit_rule(&self) -> HitRule {
        HitRule::Every
    }

    /// State of the entry, and at most two heap nodes, stale ones included.
    fn bytes_per_slot(&self) -> u32 {
        (size_of::<EntryState>() + 2 * size_of::<Queued>()) as u32
    }

    /// Keeps the priority until the next hit, because lowering it would require a heap update now.
    fn reweigh(&mut self, slot: Slot, weight: u32) {
        self.entries[slot.0 as usize].weight = weight;
    }

    fn look_ahead(&self, slots: &[Slot]) {
        let events = slots.iter().map(|slot| self.entries.get(slot.0 as usize).map_or(0, |it| it.queued));
        std::hint::black_box(events.fold(0, |read, event| read ^ event));
    }
}

impl Ord for Queued {
    fn cmp(&self, other: &Self) -> Ordering {
        let (ours, theirs) = (&self.rank, &other.rank);
        theirs.priority.total_cmp(&ours.priority).then(theirs.event.cmp(&ours.event))
    }
}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Queued {}
