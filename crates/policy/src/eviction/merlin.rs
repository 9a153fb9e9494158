//! Merlin: new entries wait in a filter, entries that were requested often enter the core, and doubtful ones are tried in a staging queue.
//! How often is enough follows from the frequencies of all entries and ghosts: as many of them should qualify as the core holds.
//!
//! "Merlin: an efficient adaptive cache eviction algorithm via fine-grained characterization", OSDI'26, as in the authors' artifact for
//! libCacheSim, with its default sizes. All queues are FIFO:
//!
//! * The filter (a tenth of the cache) has entries without a ghost. An evicted one leaves a ghost with its frequency.
//! * The core has entries whose frequency reached the guard. The oldest ones move to the staging queue when it is too large.
//! * The staging queue (a twentieth) also has entries that returned too early for the core. Those that were hit there enter the core; the
//!   oldest other one is evicted without a ghost, unless the filter's oldest one was seen more often and replaces it.
//!
//! Deviations: the artifact counts how often a key was seen in a Bloom filter with 14 counters per unit of capacity. We count exactly. For
//! sizes in bytes that is the same; if objects are counted, the artifact's filter is overloaded and often overestimates. A request whose
//! ghost is found before the first eviction does not take the artifact's path for a cold cache.

use hashbrown::HashTable;

use crate::ghost_queue::GhostQueue;
use crate::segments::{Queue, Segments};
use crate::{Entry, Eviction, HitRule, Slot};

const FILTER: Queue = 0;
const STAGING: Queue = 1;
const CORE: Queue = 2;

/// Shares of the capacity, computed as floating-point numbers by the artifact.
const FILTER_SHARE: f64 = 0.1;
const STAGING_SHARE: f64 = 0.05;
/// A frequency has three bits.
const FREQUENCY_AT_MOST: u8 = 7;
/// Epochs after which sightings are halved. An epoch has as many evictions as there are entries.
const EPOCHS: u32 = 32;

/// The queues, ghosts and frequencies.
pub struct Merlin {
    queues: Segments,
    /// Entries of each queue.
    lens: [usize; 3],
    filter_capacity: u64,
    core_capacity: u64,
    /// Keys of entries that left the filter, and of some in the staging queue, with their frequencies.
    ghosts: GhostQueue,
    entries: Vec<State>,
    /// Number of entries and ghosts with at least this frequency.
    population: [i64; FREQUENCY_AT_MOST as usize + 1],
    /// The frequency from which an entry qualifies for the core.
    guard: u8,
    sightings: Sightings,
    evictions: usize,
    epochs: u32,
    /// Frequency of the announced entry's ghost, if it had one.
    announced: Option<(Entry, Option<u8>)>,
    /// The queue of the last restored entry.
    restored_to: Queue,
}

/// State of an entry.
#[derive(Clone, Copy, Default)]
struct State {
    hash: u64,
    frequency: u8,
    /// An entry of the staging queue that may also have a ghost.
    has_ghost: bool,
}

/// How often a key left the filter or entered the staging queue or the core; halved every [`EPOCHS`].
#[derive(Default)]
struct Sightings(HashTable<(u64, u32)>);

impl Sightings {
    fn count(&mut self, hash: u64) {
        let found = self.0.entry(hash, |held| held.0 == hash, |held| held.0);
        found.or_insert((hash, 0)).get_mut().1 += 1;
    }

    fn get(&self, hash: u64) -> u32 {
        self.0.find(hash, |held| held.0 == hash).map_or(0, |held| held.1)
    }

    fn halve(&mut self) {
        self.0.retain(|held| {
            held.1 /= 2;
            held.1 > 0
        });
    }
}

impl Merlin {
    /// The filter's share of the capacity, percent.
    pub const WAITING_PERCENT: u8 = 10;

    /// Empty queues that share `capacity_weight`.
    #[must_use]
    pub fn new(capacity_weight: u64) -> Self {
        let mut policy = Self {
            queues: Segments::new(3),
            lens: [0; 3],
            filter_capacity: 0,
            core_capacity: 0,
            ghosts: GhostQueue::default(),
            entries: Vec::new(),
            population: [0; FREQUENCY_AT_MOST as usize + 1],
            guard: 2,
            sightings: Sightings::default(),
            evictions: 0,
            epochs: 0,
            announced: None,
            restored_to: CORE,
        };
        policy.set_capacity(capacity_weight);
        policy
    }

    /// Weight of the heaviest entry that the artifact admits.
    #[must_use]
    pub fn weight_at_most(capacity_weight: u64) -> u64 {
        ((capacity_weight as f64 * FILTER_SHARE) as u64).max(1)
    }

    fn state(&mut self, slot: Slot) -> &mut State {
        &mut self.entries[slot.0 as usize]
    }

    /// Records that an entry or ghost now has frequency `to` instead of `from`; `None` is no entry.
    fn count_frequency(&mut self, from: Option<u8>, to: Option<u8>) {
        let bounds = |frequency: Option<u8>| 0..frequency.map_or(0, |frequency| usize::from(frequency) + 1);
        self.population[bounds(from)].iter_mut().for_each(|count| *count -= 1);
        self.population[bounds(to)].iter_mut().for_each(|count| *count += 1);
    }

    /// Looks up a missed entry's ghost, which counts the request.
    fn recall(&mut self, entry: Entry) -> Option<u8> {
        let frequency = self.ghosts.time_of(entry.hash)? as u8;
        let now = (frequency + 1).min(FREQUENCY_AT_MOST);
        self.count_frequency(Some(frequency), Some(now));
        self.ghosts.set_time(entry.hash, now.into());
        Some(now)
    }

    fn forget_ghost(&mut self, hash: u64) -> bool {
        let Some(frequency) = self.ghosts.take_time(hash) else { return false };
        self.count_frequency(Some(frequency as u8), None);
        true
    }

    /// Leaves a ghost, whose frequency is already counted.
    fn leave_ghost(&mut self, hash: u64, weight: u32, frequency: u8) {
        if !self.ghosts.insert_at(hash, weight, frequency.into()) {
            self.count_frequency(Some(frequency), None);
        }
    }

    fn trim_ghosts(&mut self, capacity_weight: u64) {
        while self.ghosts.weight() > capacity_weight
            && let Some(frequency) = self.ghosts.pop()
        {
            self.count_frequency(Some(frequency as u8), None);
        }
    }

    fn enter(&mut self, queue: Queue, slot: Slot, entry: Entry, state: State) {
        if slot.0 as usize >= self.entries.len() {
            self.entries.resize(slot.0 as usize + 1, State::default());
        }
        self.entries[slot.0 as usize] = State { hash: entry.hash, ..state };
        self.queues.push_front(queue, slot, entry.weight);
        self.lens[usize::from(queue)] += 1;
        self.count_frequency(None, Some(state.frequency));
    }

    fn move_to(&mut self, queue: Queue, slot: Slot) {
        self.lens[usize::from(self.queues.queue_of(slot))] -= 1;
        self.lens[usize::from(queue)] += 1;
        self.queues.move_to_front(queue, slot);
    }

    fn set_frequency(&mut self, slot: Slot, frequency: u8) {
        let before = std::mem::replace(&mut self.state(slot).frequency, frequency);
        self.count_frequency(Some(before), Some(frequency));
    }

    /// Removes an entry. Its frequency stays counted if it leaves a ghost.
    fn unlink(&mut self, slot: Slot) -> State {
        self.lens[usize::from(self.queues.queue_of(slot))] -= 1;
        self.queues.remove(slot);
        *self.state(slot)
    }

    /// Removes an entry without a ghost.
    fn drop_entry(&mut self, slot: Slot) -> Slot {
        let state = self.unlink(slot);
        self.count_frequency(Some(state.frequency), None);
        slot
    }

    /// Sets the guard to the lowest frequency that is reached by at most as many entries and ghosts as the core has entries.
    fn adjust_guard(&mut self) {
        let core = self.lens[usize::from(CORE)] as i64;
        let population = |guard: u8| self.population[usize::from(guard)];
        let mut guard = self.guard;
        if population(guard) > core {
            while guard < FREQUENCY_AT_MOST && population(guard) > core {
                guard += 1;
            }
        } else {
            while guard > 1 && population(guard - 1) < core {
                guard -= 1;
            }
        }
        self.guard = guard;
    }

    fn count_eviction(&mut self) {
        self.evictions += 1;
        if self.evictions >= self.queues.len().max(1) {
            self.evictions = 0;
            self.epochs += 1;
            if self.epochs >= EPOCHS {
                self.epochs = 0;
                self.sightings.halve();
            }
        }
    }

    /// Evicts from the filter, after its oldest entries that qualify moved to the core. `None` if all did.
    fn evict_filter(&mut self) -> Option<Slot> {
        while let Some(oldest) = self.queues.back(FILTER) {
            let State { hash, frequency, .. } = *self.state(oldest);
            if frequency < self.guard {
                if self.try_in_staging() {
                    let loser = self.queues.back(STAGING).expect("it has the entry that was tried");
                    return Some(self.drop_entry(loser));
                }
                let weight = self.queues.weight_of(oldest) as u32;
                self.unlink(oldest);
                self.leave_ghost(hash, weight, frequency);
                self.sightings.count(hash);
                return Some(oldest);
            }
            self.move_to(CORE, oldest);
            self.set_frequency(oldest, 0);
            self.sightings.count(hash);
        }
        None
    }

    /// Moves the filter's oldest entry to the staging queue, if it was seen more often than the next victim there.
    fn try_in_staging(&mut self) -> bool {
        let (Some(candidate), Some(victim)) = (self.queues.back(FILTER), self.queues.back(STAGING)) else {
            return false;
        };
        let State { hash, frequency, .. } = *self.state(candidate);
        let State { hash: victim_hash, frequency: victim_frequency, .. } = *self.state(victim);
        let seen = self.sightings.get(hash);
        if victim_frequency > 0 || seen > EPOCHS || seen <= self.sightings.get(victim_hash) {
            return false;
        }
        self.sightings.count(hash);
        let weight = self.queues.weight_of(candidate) as u32;
        self.move_to(STAGING, candidate);
        self.leave_ghost(hash, weight, frequency);
        self.count_frequency(None, Some(0));
        *self.state(candidate) = State { hash, frequency: 0, has_ghost: true };
        true
    }

    /// Moves entries between core and staging queue until the oldest one there has no hits; `None` if the queue is empty.
    fn settle_staging(&mut self) -> Option<Slot> {
        loop {
            while self.queues.weight(CORE) > self.core_capacity {
                let Some(oldest) = self.queues.back(CORE) else { break };
                self.move_to(STAGING, oldest);
                self.state(oldest).has_ghost = false;
            }
            while let Some(oldest) = self.queues.back(STAGING) {
                let State { hash, frequency, has_ghost } = *self.state(oldest);
                if frequency == 0 {
                    return Some(oldest);
                }
                if has_ghost {
                    self.forget_ghost(hash);
                }
                self.sightings.count(hash);
                self.move_to(CORE, oldest);
                self.set_frequency(oldest, frequency - 1);
            }
            if self.queues.weight(CORE) <= self.core_capacity {
                return None;
            }
        }
    }

    fn evict_staging(&mut self) -> Option<Slot> {
        let Some(victim) = self.settle_staging() else {
            let oldest = self.queues.back(CORE);
            return oldest.map(|oldest| self.drop_entry(oldest)).or_else(|| self.evict_filter());
        };
        self.try_in_staging();
        Some(self.drop_entry(victim))
    }
}

impl Eviction for Merlin {
    fn announce(&mut self, entry: Entry) {
        self.announced = Some((entry, self.recall(entry)));
    }

    fn refuse(&mut self, entry: Entry) {
        self.recall(entry);
    }

    fn insert(&mut self, slot: Slot, entry: Entry, _now_seconds: u32) {
        let ghost_frequency = match self.announced.take() {
            Some((announced, frequency)) if announced == entry => frequency,
            _ => self.recall(entry),
        };
        let state = State::default();
        match ghost_frequency {
            None if self.lens[usize::from(FILTER)] + self.lens[usize::from(STAGING)] == 0 => {
                self.enter(CORE, slot, entry, state);
            }
            None => self.enter(FILTER, slot, entry, state),
            Some(frequency) if frequency >= self.guard => {
                self.forget_ghost(entry.hash);
                self.enter(CORE, slot, entry, State { frequency, ..state });
            }
            Some(_) => {
                self.sightings.count(entry.hash);
                self.enter(STAGING, slot, entry, State { has_ghost: true, ..state });
            }
        }
    }

    fn hit(&mut self, slot: Slot, _now_seconds: u32) {
        let frequency = self.state(slot).frequency;
        self.set_frequency(slot, (frequency + 1).min(FREQUENCY_AT_MOST));
    }

    fn evict(&mut self, _now_seconds: u32) -> Option<Slot> {
        let incoming = self.announced.map_or(1, |(entry, _)| u64::from(entry.weight));
        while self.queues.len() > 0 {
            self.count_eviction();
            self.adjust_guard();
            let filter_is_next = self.queues.weight(FILTER) + incoming > self.filter_capacity;
            let victim = match filter_is_next && self.queues.back(FILTER).is_some() {
                true => self.evict_filter(),
                false => self.evict_staging(),
            };
            self.trim_ghosts(self.ghosts.capacity());
            if victim.is_some() {
                return victim;
            }
        }
        None
    }

    fn remove(&mut self, slot: Slot) {
        let hash = self.state(slot).hash;
        self.drop_entry(slot);
        self.forget_ghost(hash);
    }

    /// Alternates between filter and core: if one held all pinned entries, every victim would be sought there.
    fn restore(&mut self, slot: Slot, entry: Entry, _now_seconds: u32) {
        self.forget_ghost(entry.hash);
        self.restored_to = FILTER + CORE - self.restored_to;
        self.enter(self.restored_to, slot, entry, State::default());
    }

    fn set_capacity(&mut self, capacity_weight: u64) {
        let share = |share: f64| ((capacity_weight as f64 * share) as u64).max(1);
        self.filter_capacity = share(FILTER_SHARE).min(capacity_weight);
        let staging_capacity = share(STAGING_SHARE).min(capacity_weight - self.filter_capacity);
        self.core_capacity = capacity_weight - self.filter_capacity - staging_capacity;
        self.trim_ghosts(capacity_weight);
        self.ghosts.set_capacity(capacity_weight);
    }

    fn len(&self) -> usize {
        self.queues.len()
    }

    fn oldest(&self) -> Option<Slot> {
        [FILTER, STAGING, CORE].into_iter().find_map(|queue| self.queues.back(queue))
    }

    fn hit_rule(&self) -> HitRule {
        HitRule::Every
    }

    /// Links, queue and weight, the state, a ghost, and the sightings of the keys of 32 epochs (16 bytes each, up to half empty).
    fn bytes_per_slot(&self) -> u32 {
        13 + size_of::<State>() as u32 + GhostQueue::BYTES_PER_GHOST + EPOCHS * 34
    }

    fn reweigh(&mut self, slot: Slot, weight: u32) {
        self.queues.reweigh(slot, weight);
    }

    fn look_ahead(&self, slots: &[Slot]) {
        self.queues.look_ahead(slots);
    }
}
