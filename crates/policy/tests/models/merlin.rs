//! Merlin as in its artifact, except that sightings are counted exactly.

use std::collections::BTreeMap;

use super::{Item, Model, Queue, find, take, weight};

pub struct Merlin {
    capacity: u64,
    filter: Queue,
    staging: Queue,
    core: Queue,
    ghosts: Queue,
    /// Keys that entered the staging queue with a ghost.
    tried: Vec<u32>,
    sightings: BTreeMap<u32, u32>,
    guard: u32,
    evictions: usize,
    epochs: u32,
}

impl Merlin {
    pub fn new(capacity: u64) -> Self {
        Self {
            capacity,
            filter: Queue::new(),
            staging: Queue::new(),
            core: Queue::new(),
            ghosts: Queue::new(),
            tried: Vec::new(),
            sightings: BTreeMap::new(),
            guard: 2,
            evictions: 0,
            epochs: 0,
        }
    }

    fn filter_capacity(&self) -> u64 {
        ((self.capacity as f64 * 0.1) as u64).max(1).min(self.capacity)
    }

    fn core_capacity(&self) -> u64 {
        let rest = self.capacity - self.filter_capacity();
        rest - ((self.capacity as f64 * 0.05) as u64).max(1).min(rest)
    }

    /// Entries and ghosts with at least this frequency.
    fn population(&self, frequency: u32) -> usize {
        let queues = [&self.filter, &self.staging, &self.core, &self.ghosts];
        queues.into_iter().flatten().filter(|item| item.hits >= frequency).count()
    }

    fn len(&self) -> usize {
        self.filter.len() + self.staging.len() + self.core.len()
    }

    fn see(&mut self, key: u32) {
        *self.sightings.entry(key).or_default() += 1;
    }

    fn seen(&self, key: u32) -> u32 {
        self.sightings.get(&key).copied().unwrap_or(0)
    }

    fn evict(&mut self, incoming: u64) {
        self.evictions += 1;
        if self.evictions >= self.len() {
            self.evictions = 0;
            self.epochs += 1;
            if self.epochs == 32 {
                self.epochs = 0;
                self.sightings.values_mut().for_each(|count| *count /= 2);
            }
        }
        if self.population(self.guard) > self.core.len() {
            while self.guard < 7 && self.population(self.guard) > self.core.len() {
                self.guard += 1;
            }
        } else {
            while self.guard > 1 && self.population(self.guard - 1) < self.core.len() {
                self.guard -= 1;
            }
        }
        if !self.filter.is_empty() && weight(&self.filter) + incoming > self.filter_capacity() {
            self.evict_filter();
        } else {
            self.evict_staging();
        }
        while weight(&self.ghosts) > self.capacity {
            self.ghosts.pop_front();
        }
    }

    fn evict_filter(&mut self) {
        while let Some(oldest) = self.filter.front().copied() {
            if oldest.hits < self.guard {
                if self.try_in_staging() {
                    self.staging.pop_front();
                    return;
                }
                self.filter.pop_front();
                self.see(oldest.key);
                self.ghosts.push_back(oldest);
                return;
            }
            self.filter.pop_front();
            self.see(oldest.key);
            self.core.push_back(Item { hits: 0, ..oldest });
        }
    }

    fn try_in_staging(&mut self) -> bool {
        let (Some(candidate), Some(victim)) = (self.filter.front().copied(), self.staging.front()) else {
            return false;
        };
        let seen = self.seen(candidate.key);
        if victim.hits > 0 || seen > 32 || seen <= self.seen(victim.key) {
            return false;
        }
        self.see(candidate.key);
        self.filter.pop_front();
        self.staging.push_back(Item { hits: 0, ..candidate });
        self.tried.push(candidate.key);
        self.ghosts.push_back(candidate);
        true
    }

    fn evict_staging(&mut self) {
        loop {
            while weight(&self.core) > self.core_capacity() {
                let oldest = self.core.pop_front().expect("it has weight");
                self.tried.retain(|key| *key != oldest.key);
                self.staging.push_back(oldest);
            }
            while let Some(oldest) = self.staging.front().copied() {
                if oldest.hits == 0 {
                    self.try_in_staging();
                    self.staging.pop_front();
                    return;
                }
                if self.tried.contains(&oldest.key) {
                    take(&mut self.ghosts, oldest.key);
                }
                self.see(oldest.key);
                self.staging.pop_front();
                self.core.push_back(Item { hits: oldest.hits - 1, ..oldest });
            }
            if weight(&self.core) <= self.core_capacity() {
                if self.core.pop_front().is_none() {
                    self.evict_filter();
                }
                return;
            }
        }
    }
}

impl Model for Merlin {
    fn get(&mut self, key: u32, size: u64) -> bool {
        for queue in [&mut self.filter, &mut self.staging, &mut self.core] {
            if let Some(item) = find(queue, key) {
                item.hits = (item.hits + 1).min(7);
                return true;
            }
        }
        let ghost_hits = find(&mut self.ghosts, key).map(|ghost| {
            ghost.hits = (ghost.hits + 1).min(7);
            ghost.hits
        });
        if size > self.filter_capacity() {
            return false;
        }
        while weight(&self.filter) + weight(&self.staging) + weight(&self.core) + size > self.capacity {
            self.evict(size);
        }
        match ghost_hits {
            None if self.filter.is_empty() && self.staging.is_empty() => {
                self.core.push_back(Item::new(key, size, 0));
            }
            None => self.filter.push_back(Item::new(key, size, 0)),
            Some(hits) if hits >= self.guard => {
                take(&mut self.ghosts, key);
                self.core.push_back(Item::new(key, size, hits));
            }
            Some(_) => {
                self.see(key);
                self.staging.push_back(Item::new(key, size, 0));
                self.tried.push(key);
            }
        }
        false
    }
}
