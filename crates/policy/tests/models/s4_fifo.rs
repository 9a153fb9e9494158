//! S4-FIFO as libCacheSim has it: S3-FIFO with its settings.

use flashwright_policy::eviction::S4FifoSettings;

use super::{Item, Model, Queue, find, take, weight};

pub struct S4Fifo {
    capacity: u64,
    settings: S4FifoSettings,
    small: Queue,
    main: Queue,
    ghosts: Queue,
    has_evicted: bool,
}

impl S4Fifo {
    pub fn new(capacity: u64, settings: S4FifoSettings) -> Self {
        let (small, main, ghosts) = (Queue::new(), Queue::new(), Queue::new());
        Self { capacity, settings, small, main, ghosts, has_evicted: false }
    }

    fn share(&self, percent: u32) -> u64 {
        (self.capacity as f64 * (f64::from(percent) / 100.0)) as u64
    }

    fn small_capacity(&self) -> u64 {
        self.share(self.settings.small_percent.into())
    }

    fn evict(&mut self) {
        self.has_evicted = true;
        if weight(&self.main) > self.capacity - self.small_capacity() || self.small.is_empty() {
            self.evict_main();
        } else {
            self.evict_small();
        }
    }

    fn evict_main(&mut self) {
        while let Some(mut oldest) = self.main.pop_front() {
            if oldest.hits == 0 {
                return;
            }
            oldest.hits = oldest.hits.min(3) - 1;
            self.main.push_back(oldest);
        }
    }

    fn evict_small(&mut self) {
        while let Some(oldest) = self.small.pop_front() {
            let item = Item { hits: 0, ..oldest };
            if oldest.hits < self.settings.promote_hits.into() {
                let at_most = self.share(self.settings.ghost_percent.into());
                if item.size <= at_most && find(&mut self.ghosts, item.key).is_none() {
                    self.ghosts.push_back(item);
                    while weight(&self.ghosts) > at_most {
                        self.ghosts.pop_front();
                    }
                }
                return;
            }
            self.main.push_back(item);
        }
    }
}

impl Model for S4Fifo {
    fn get(&mut self, key: u32, size: u64) -> bool {
        let small_len = self.small.len();
        let skipped = (small_len as f64 * (f64::from(self.settings.skip_percent) / 100.0)) as usize;
        if let Some(place) = self.small.iter().position(|item| item.key == key) {
            self.small[place].hits += u32::from(small_len - place >= skipped);
            return true;
        }
        if let Some(item) = find(&mut self.main, key) {
            item.hits += 1;
            return true;
        }
        let returns = self.settings.ghosts_return_to_main && take(&mut self.ghosts, key).is_some();
        if size > self.small_capacity() {
            return false;
        }
        while weight(&self.small) + weight(&self.main) + size > self.capacity {
            self.evict();
        }
        let spills = !self.has_evicted && weight(&self.small) >= self.small_capacity();
        if returns || size < self.small_capacity() {
            let queue = if returns || spills { &mut self.main } else { &mut self.small };
            queue.push_back(Item::new(key, size, 0));
        }
        false
    }
}
