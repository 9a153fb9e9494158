//! Cacheus as libCacheSim 0.3.5 has it.

use super::{Item, Model, Queue, find, take, weight};

pub struct Cacheus {
    capacity: u64,
    sr: Queue,
    r: Queue,
    sr_target: u64,
    r_target: u64,
    /// Evicted objects, `hits` are their frequencies.
    history: Queue,
    /// Objects of SR that came from R, objects of SR that were never in the cache before, and ghosts that were such objects.
    demoted: Vec<u32>,
    new: Vec<u32>,
    was_new: Vec<u32>,
    demoted_count: u64,
    new_count: u64,
    /// The least recently used first.
    recency: Vec<u32>,
    ghosts: [Queue; 2],
    weights: [f64; 2],
    rate: f64,
    rate_before: f64,
    hit_rate_before: f64,
    unlearned: u32,
    requests: u64,
    hits: u64,
    random: u128,
}

impl Cacheus {
    pub fn new(capacity: u64) -> Self {
        let mut cache = Self {
            capacity,
            sr: Queue::new(),
            r: Queue::new(),
            sr_target: capacity / 2,
            r_target: capacity / 2,
            history: Queue::new(),
            demoted: Vec::new(),
            new: Vec::new(),
            was_new: Vec::new(),
            demoted_count: 0,
            new_count: 0,
            recency: Vec::new(),
            ghosts: [Queue::new(), Queue::new()],
            weights: [0.5; 2],
            rate: 0.0,
            rate_before: 0.0,
            hit_rate_before: 0.0,
            unlearned: 0,
            requests: 0,
            hits: 0,
            random: 0xDEAD_BEEF,
        };
        cache.rate = cache.drawn_rate();
        cache
    }

    fn draw(&mut self, end: u64) -> f64 {
        self.random = self.random.wrapping_mul(0xDA94_2042_E4DD_58B5);
        ((self.random >> 64) as u64 % end) as f64 / end as f64
    }

    fn drawn_rate(&mut self) -> f64 {
        0.001 + self.draw(1000)
    }

    fn touch(&mut self, key: u32) {
        self.recency.retain(|held| *held != key);
        self.recency.push(key);
    }

    fn total(&self) -> u64 {
        weight(&self.sr) + weight(&self.r)
    }

    fn demote(&mut self, incoming: u64) {
        while weight(&self.r) + incoming > self.r_target {
            let Some(oldest) = self.r.pop_front() else { return };
            self.demoted.push(oldest.key);
            self.demoted_count += 1;
            self.sr.push_back(oldest);
        }
    }

    /// Removes an object, which enters the history.
    fn evict(&mut self, key: u32) -> Item {
        let item = take(&mut self.sr, key).or_else(|| take(&mut self.r, key)).expect("it is cached");
        if self.new.contains(&key) {
            self.new_count += 1;
            self.was_new.push(key);
        }
        self.demoted_count -= u64::from(self.demoted.contains(&key));
        for flags in [&mut self.new, &mut self.demoted, &mut self.recency] {
            flags.retain(|held| *held != key);
        }
        self.history.push_back(item);
        while weight(&self.history) >= self.capacity {
            let gone = self.history.pop_front().expect("it has weight");
            self.was_new.retain(|held| *held != gone.key);
        }
        item
    }

    fn evict_by_expert(&mut self) {
        let chance = self.draw(100);
        let by_lru = self.sr.front().or(self.r.front()).expect("the cache is full").key;
        let frequency = |key: &u32| {
            let held = self.sr.iter().chain(&self.r).find(|item| item.key == *key);
            held.expect("it is cached").hits
        };
        // The last of the least frequent ones.
        let by_lfu = *self.recency.iter().rev().min_by_key(|key| frequency(key)).expect("the cache is full");
        let expert = usize::from(chance >= self.weights[0]);
        let item = self.evict([by_lru, by_lfu][expert]);
        if by_lru != by_lfu && item.size <= self.capacity / 2 {
            self.ghosts[expert].push_back(item);
            while weight(&self.ghosts[expert]) > self.capacity / 2 {
                self.ghosts[expert].pop_front();
            }
        }
    }

    fn insert(&mut self, key: u32, size: u64) {
        let remembered = find(&mut self.history, key).map(|item| item.hits);
        if size > if remembered.is_some() { self.r_target } else { self.sr_target } {
            return;
        }
        self.touch(key);
        if let Some(frequency) = remembered {
            take(&mut self.history, key);
            self.demote(size);
            self.r.push_back(Item::new(key, size, frequency + 1));
            if self.was_new.contains(&key) {
                self.was_new.retain(|held| *held != key);
                self.grow_sr();
            }
        } else {
            self.sr.push_back(Item::new(key, size, 1));
            self.new.push(key);
        }
        while weight(&self.sr) > self.sr_target {
            self.evict(self.sr[0].key);
        }
    }

    fn grow_sr(&mut self) {
        let ratio = self.demoted_count / self.new_count;
        let step = if ratio == 0 { 1.0 } else { ratio as f64 + 0.5 };
        let at_most = self.total() - 1;
        let sum = self.sr_target as f64 + step;
        self.sr_target = if sum > at_most as f64 { at_most } else { sum as u64 };
        self.r_target = self.capacity - self.sr_target;
    }

    fn learn(&mut self) {
        let hit_rate = (self.hits / self.capacity) as f64;
        let (gained, change) = (hit_rate - self.hit_rate_before, self.rate - self.rate_before);
        (self.rate_before, self.hit_rate_before, self.hits) = (self.rate, hit_rate, 0);
        if change != 0.0 {
            let sign = if gained / change > 0.0 { 1.0 } else { -1.0 };
            let next = self.rate + sign * (self.rate * change).abs();
            self.rate = if next > 0.001 { next } else { 0.0001 };
            self.unlearned = 0;
        } else if hit_rate == 0.0 || gained <= 0.0 {
            self.unlearned += 1;
        } else if self.unlearned >= 10 {
            self.unlearned = 0;
            self.rate = self.drawn_rate();
        }
    }

    fn request(&mut self, key: u32, size: u64) -> bool {
        if let Some(item) = take(&mut self.r, key) {
            self.hits += 1;
            self.touch(key);
            self.r.push_back(Item { hits: item.hits + 1, ..item });
            return true;
        }
        if let Some(item) = take(&mut self.sr, key) {
            self.hits += 1;
            for flags in [&mut self.new, &mut self.demoted] {
                flags.retain(|held| *held != key);
            }
            self.touch(key);
            self.r.push_back(Item { hits: item.hits + 1, ..item });
            self.demote(0);
            return true;
        }
        for (ghosts, weight) in self.ghosts.iter_mut().zip(&mut self.weights) {
            if take(ghosts, key).is_some() {
                *weight *= (-self.rate).exp();
            }
        }
        self.weights[0] /= self.weights[0] + self.weights[1];
        self.weights[1] = 1.0 - self.weights[0];
        if size <= self.capacity {
            while self.total() + size > self.capacity {
                self.evict_by_expert();
            }
            self.insert(key, size);
        }
        false
    }
}

impl Model for Cacheus {
    fn get(&mut self, key: u32, size: u64) -> bool {
        let is_hit = self.request(key, size);
        self.requests += 1;
        if self.requests.is_multiple_of(self.capacity) {
            self.learn();
        }
        is_hit
    }
}
