//! Cacheus: evicts by SR-LRU (scan resistant) or by CR-LFU (churn resistant), chosen at random with learned weights. An expert loses weight
//! when an entry that it evicted returns soon, as in [`LeCaR`](super::LeCaR), but the learning rate adapts.
//!
//! Rodriguez, Yusuf, Lyons, Paz, Rangaswami, Liu, Zhao, Narasimhan: "Learning cache replacement with CACHEUS", FAST'21, sections 4 and 5.
//! SR-LRU has a queue SR of new and demoted entries, a queue R of reused ones, and a history H of evicted keys. CR-LFU evicts the most
//! recently used of the least frequently used entries; frequencies survive in H.
//!
//! Where libCacheSim 0.3.5 departs from the paper we follow libCacheSim:
//! * A demoted entry that is hit does not shrink SR, whose target therefore only grows, and stays counted in C_demoted. C_new counts every
//!   new entry that ever entered H.
//! * The hit rate is 1 if all requests of an interval hit, otherwise 0. An interval has as many requests as the capacity has units of
//!   weight.
//! * An entry larger than the target of its queue is not inserted ([`Eviction::is_overfull`]).

use std::collections::BTreeSet;

use crate::ghost_queue::GhostQueue;
use crate::lehmer::Lehmer64;
use crate::segments::{Queue, Segments};
use crate::{Entry, Eviction, HitRule, Slot};

/// The queues of SR-LRU.
const SR: Queue = 0;
const R: Queue = 1;

/// The indexes of the two experts.
const LRU: usize = 0;
const LFU: usize = 1;

/// The smallest learning rate that is not rounded down to [`LEAST_RATE`].
const SMALL_RATE: f64 = 0.001;
const LEAST_RATE: f64 = 0.0001;
/// Intervals without a higher hit rate after which the learning rate is drawn again.
const UNLEARNED_AT_MOST: u32 = 10;

/// The experts, their histories and weights.
pub struct Cacheus {
    queues: Segments,
    /// Target weights of SR and R.
    targets: [u64; 2],
    /// H, with frequency and flag of each entry: see [`GhostState`].
    history: GhostQueue,
    demoted: u64,
    new: u64,
    /// CR-LFU's order of eviction: frequency, descending event, slot.
    by_frequency: BTreeSet<(u32, u64, u32)>,
    entries: Vec<State>,
    /// Entries evicted by SR-LRU and by CR-LFU.
    ghosts: [GhostQueue; 2],
    weights: [f64; 2],
    rate: LearningRate,
    random: Lehmer64,
    /// Insertions and hits so far.
    events: u64,
    is_announced: bool,
    /// Whether the last call inserted an entry, after which SR is trimmed.
    is_inserting: bool,
    /// The inserted entry, if it is larger than its queue's target.
    rejected: Option<Slot>,
}

/// State of an entry.
#[derive(Clone, Copy)]
struct State {
    hash: u64,
    event: u64,
    frequency: u32,
    origin: Origin,
}

/// How an entry of SR came there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    New,
    Demoted,
    /// The entry is in R, or was removed.
    Other,
}

const GONE: State = State { hash: 0, event: 0, frequency: 0, origin: Origin::Other };

/// What H keeps of an entry, in the 32 bits that a ghost has for a time.
struct GhostState {
    frequency: u32,
    was_new: bool,
}

impl GhostState {
    fn pack(&self) -> u32 {
        self.frequency << 1 | u32::from(self.was_new)
    }

    fn unpack(packed: u32) -> Self {
        Self { frequency: packed >> 1, was_new: packed & 1 == 1 }
    }
}

/// Section 4.2: the learning rate follows the gradient of the hit rate.
struct LearningRate {
    now: f64,
    before: f64,
    hit_rate_before: f64,
    unlearned: u32,
    hits: u64,
    requests: u64,
    interval: u64,
}

impl LearningRate {
    /// Counts a request, and adapts the rate if the last one ended an interval.
    fn count(&mut self, is_hit: bool, random: &mut Lehmer64) {
        if self.requests > 0 && self.requests.is_multiple_of(self.interval) {
            self.adapt(random);
        }
        self.requests += 1;
        self.hits += u64::from(is_hit);
    }

    fn adapt(&mut self, random: &mut Lehmer64) {
        let hit_rate = (self.hits / self.interval) as f64;
        let gained = hit_rate - self.hit_rate_before;
        let change = self.now - self.before;
        (self.before, self.hit_rate_before, self.hits) = (self.now, hit_rate, 0);
        if change != 0.0 {
            let step = (self.now * change).abs().copysign(if gained / change > 0.0 { 1.0 } else { -1.0 });
            self.now = if self.now + step > SMALL_RATE { self.now + step } else { LEAST_RATE };
            self.unlearned = 0;
        } else if hit_rate == 0.0 || gained <= 0.0 {
            self.unlearned += 1;
        } else if self.unlearned >= UNLEARNED_AT_MOST {
            self.unlearned = 0;
            self.now = Self::draw(random);
        }
    }

    fn draw(random: &mut Lehmer64) -> f64 {
        0.001 + random.below(1000) as f64 / 1000.0
    }
}

impl Cacheus {
    /// An empty policy.
    #[must_use]
    pub fn new(capacity_weight: u64, seed: u64) -> Self {
        let mut random = Lehmer64::new(seed);
        let rate = LearningRate {
            now: LearningRate::draw(&mut random),
            before: 0.0,
            hit_rate_before: 0.0,
            unlearned: 0,
            hits: 0,
            requests: 0,
            interval: 1,
        };
        let mut policy = Self {
            queues: Segments::new(2),
            targets: [0; 2],
            history: GhostQueue::default(),
            demoted: 0,
            new: 0,
            by_frequency: BTreeSet::new(),
            entries: Vec::new(),
            ghosts: [GhostQueue::default(), GhostQueue::default()],
            weights: [0.5; 2],
            rate,
            random,
            events: 0,
            is_announced: false,
            is_inserting: false,
            rejected: None,
        };
        policy.set_capacity(capacity_weight);
        policy
    }

    /// Counts a miss. If one of the experts evicted the entry, that expert loses weight.
    fn miss(&mut self, entry: Entry) {
        self.is_inserting = false;
        self.rate.count(false, &mut self.random);
        for expert in [LRU, LFU] {
            if self.ghosts[expert].take(entry.hash) {
                self.weights[expert] *= (-self.rate.now).exp();
            }
        }
        self.weights[LRU] /= self.weights[LRU] + self.weights[LFU];
        self.weights[LFU] = 1.0 - self.weights[LRU];
    }

    /// Sets an entry's frequency and makes it the most recently used.
    fn rank(&mut self, slot: Slot, frequency: u32) {
        self.events += 1;
        let state = &mut self.entries[slot.0 as usize];
        self.by_frequency.remove(&(state.frequency, !state.event, slot.0));
        (state.frequency, state.event) = (frequency, self.events);
        self.by_frequency.insert((frequency, !self.events, slot.0));
    }

    /// Adds an entry to a queue.
    fn enter(&mut self, queue: Queue, slot: Slot, entry: Entry, frequency: u32) {
        if slot.0 as usize >= self.entries.len() {
            self.entries.resize(slot.0 as usize + 1, GONE);
        }
        self.entries[slot.0 as usize] = State { hash: entry.hash, ..GONE };
        self.queues.push_front(queue, slot, entry.weight);
        self.rank(slot, frequency);
    }

    /// Moves the oldest entries of R to SR until `weight` more fit.
    fn demote(&mut self, weight: u64) {
        while self.queues.weight(R) + weight > self.targets[usize::from(R)] {
            let Some(oldest) = self.queues.back(R) else { return };
            self.queues.move_to_front(SR, oldest);
            self.entries[oldest.0 as usize].origin = Origin::Demoted;
            self.demoted += 1;
        }
    }

    /// A new entry returned from H, so SR is too small.
    fn grow_sr(&mut self) {
        let step = (self.demoted / self.new.max(1)).max(1);
        // From a ratio of 1 the reference adds half a unit more, which is cut off, but counts in this comparison.
        let has_half = self.demoted >= self.new.max(1);
        let at_most = self.queues.total_weight().saturating_sub(1);
        let sum = self.targets[usize::from(SR)] + step;
        let is_too_large = if has_half { sum >= at_most } else { sum > at_most };
        self.targets[usize::from(SR)] = if is_too_large { at_most } else { sum };
        self.targets[usize::from(R)] = self.history.capacity() + 1 - self.targets[usize::from(SR)];
    }

    /// Removes an entry and returns its state.
    fn leave(&mut self, slot: Slot) -> State {
        let state = std::mem::replace(&mut self.entries[slot.0 as usize], GONE);
        self.by_frequency.remove(&(state.frequency, !state.event, slot.0));
        self.demoted -= u64::from(state.origin == Origin::Demoted);
        self.queues.remove(slot);
        self.rejected = self.rejected.filter(|rejected| *rejected != slot);
        state
    }

    /// Moves an entry to H, and to the ghosts of the expert that alone chose it.
    fn evict_to_history(&mut self, slot: Slot, chosen_by: Option<usize>) {
        let weight = self.queues.weight_of(slot) as u32;
        let State { hash, frequency, origin, .. } = self.leave(slot);
        let was_new = origin == Origin::New;
        self.new += u64::from(was_new);
        let is_kept = self.history.insert_at(hash, weight, GhostState { frequency, was_new }.pack());
        // An entry as large as H pushes out all others, and itself.
        while !is_kept && self.history.pop().is_some() {}
        self.history.trim();
        if let Some(expert) = chosen_by {
            self.ghosts[expert].insert(hash, weight);
            self.ghosts[expert].trim();
        }
    }

    fn lru_victim(&self) -> Option<Slot> {
        self.queues.back(SR).or_else(|| self.queues.back(R))
    }

    fn lfu_victim(&self) -> Option<Slot> {
        self.by_frequency.first().map(|&(_, _, slot)| Slot(slot))
    }

    /// The victim, and the expert that chose it if the experts differ.
    fn choose(&mut self) -> Option<(Slot, Option<usize>)> {
        let (recency, frequency) = (self.lru_victim()?, self.lfu_victim()?);
        let chance = self.random.below(100) as f64 / 100.0;
        if recency == frequency {
            return Some((recency, None));
        }
        Some(if chance < self.weights[LRU] { (recency, Some(LRU)) } else { (frequency, Some(LFU)) })
    }
}

impl Eviction for Cacheus {
    fn announce(&mut self, entry: Entry) {
        self.miss(entry);
        self.is_announced = true;
    }

    fn refuse(&mut self, entry: Entry) {
        self.miss(entry);
    }

    fn insert(&mut self, slot: Slot, entry: Entry, _now_seconds: u32) {
        if !std::mem::take(&mut self.is_announced) {
            self.miss(entry);
        }
        self.is_inserting = true;
        let weight = u64::from(entry.weight);
        let remembered = self.history.time_of(entry.hash).map(GhostState::unpack);
        let queue = if remembered.is_some() { R } else { SR };
        if weight > self.targets[usize::from(queue)] {
            self.enter(SR, slot, entry, 1);
            self.rejected = Some(slot);
            return;
        }
        let Some(GhostState { frequency, was_new }) = remembered else {
            self.enter(SR, slot, entry, 1);
            self.entries[slot.0 as usize].origin = Origin::New;
            return;
        };
        self.history.take(entry.hash);
        self.demote(weight);
        self.enter(R, slot, entry, frequency + 1);
        if was_new {
            self.grow_sr();
        }
    }

    fn hit(&mut self, slot: Slot, _now_seconds: u32) {
        self.is_inserting = false;
        self.rejected = None;
        self.rate.count(true, &mut self.random);
        let was_in_sr = self.queues.queue_of(slot) == SR;
        self.queues.move_to_front(R, slot);
        self.entries[slot.0 as usize].origin = Origin::Other;
        if was_in_sr {
            self.demote(0);
        }
        self.rank(slot, self.entries[slot.0 as usize].frequency.saturating_add(1) & (u32::MAX >> 1));
    }

    fn evict(&mut self, _now_seconds: u32) -> Option<Slot> {
        if let Some(rejected) = self.rejected.take() {
            self.leave(rejected);
            return Some(rejected);
        }
        let (victim, chosen_by) = match self.is_overfull() {
            true => (self.queues.back(SR)?, None),
            false => self.choose()?,
        };
        self.evict_to_history(victim, chosen_by);
        Some(victim)
    }

    fn remove(&mut self, slot: Slot) {
        self.leave(slot);
    }

    fn restore(&mut self, slot: Slot, entry: Entry, _now_seconds: u32) {
        for ghosts in &mut self.ghosts {
            ghosts.take(entry.hash);
        }
        let frequency =
            self.history.take_time(entry.hash).map_or(0, |packed| GhostState::unpack(packed).frequency);
        self.enter(R, slot, entry, frequency + 1);
    }

    fn set_capacity(&mut self, capacity_weight: u64) {
        self.targets = [capacity_weight / 2; 2];
        self.rate.interval = capacity_weight.max(1);
        // H is less than full: the reference evicts from it when it is exactly full.
        self.history.set_capacity(capacity_weight.saturating_sub(1));
        for ghosts in &mut self.ghosts {
            ghosts.set_capacity(capacity_weight / 2);
        }
    }

    fn len(&self) -> usize {
        self.queues.len()
    }

    fn oldest(&self) -> Option<Slot> {
        self.lru_victim()
    }

    /// Known only if both experts agree.
    fn likely_victim(&self) -> Option<Slot> {
        self.lru_victim().filter(|victim| self.lfu_victim() == Some(*victim))
    }

    fn hit_rule(&self) -> HitRule {
        HitRule::Every
    }

    fn is_overfull(&self) -> bool {
        let is_sr_overfull = self.queues.weight(SR) > self.targets[usize::from(SR)];
        self.is_inserting && (self.rejected.is_some() || is_sr_overfull)
    }

    /// Links, queue and weight, the state, a node of the tree (up to half empty), and two ghosts.
    fn bytes_per_slot(&self) -> u32 {
        13 + (size_of::<State>() + 2 * size_of::<(u32, u64, u32)>()) as u32 + 2 * GhostQueue::BYTES_PER_GHOST
    }

    fn reweigh(&mut self, slot: Slot, weight: u32) {
        self.queues.reweigh(slot, weight);
    }

    fn look_ahead(&self, slots: &[Slot]) {
        self.queues.look_ahead(slots);
    }
}
