//! Twins that are queues: a `Vec` per queue, the newest first, every share recomputed.

use std::sync::Arc;

use flashwright_policy::eviction::{Lru2qConfig, LruConfig, Refresh, S3FifoRules, SlruRules};
use flashwright_policy::{Entry, Eviction, HitMarks, HitRule, Marks, Slot};

#[derive(Clone, Copy)]
pub struct Item {
    pub slot: Slot,
    pub entry: Entry,
    pub used_seconds: u32,
}

impl Item {
    pub fn new(slot: Slot, entry: Entry, used_seconds: u32) -> Self {
        Self { slot, entry, used_seconds }
    }
}

pub fn weight(queue: &[Item]) -> u64 {
    queue.iter().map(|item| u64::from(item.entry.weight)).sum()
}

pub fn reweigh(queue: &mut [Item], slot: Slot, weight: u32) {
    queue.iter_mut().filter(|item| item.slot == slot).for_each(|item| item.entry.weight = weight);
}

pub fn take(queue: &mut Vec<Item>, slot: Slot) -> Option<Item> {
    let place = queue.iter().position(|item| item.slot == slot)?;
    Some(queue.remove(place))
}

/// The refresh time as in CacheLib's documentation: checked on hits and evictions.
pub struct Refreshing {
    config: Refresh,
    now: u32,
    next: u32,
}

impl Refreshing {
    pub fn new(config: Refresh) -> Self {
        Self { config, now: config.seconds, next: 0 }
    }

    pub fn tune(&mut self, oldest: Option<&Item>, now_seconds: u32) {
        if self.config.seconds == 0 || self.config.ratio == 0.0 || now_seconds < self.next {
            return;
        }
        self.next = now_seconds + self.config.tune_every_seconds;
        let age = oldest.map_or(0, |item| now_seconds - item.used_seconds);
        self.now = ((f64::from(age) * self.config.ratio) as u32).max(self.config.seconds).min(900);
    }

    pub fn rule(&self) -> HitRule {
        if self.now == 0 { HitRule::Every } else { HitRule::Refresh { refresh_seconds: self.now } }
    }
}

/// The methods that all twins share; twins differ in their decisions, not in their interface.
#[macro_export]
macro_rules! plain_counts {
    ($($queue:ident),+) => {
        fn len(&self) -> usize {
            0 $(+ self.$queue.len())+
        }
        fn oldest(&self) -> Option<Slot> {
            None $(.or(self.$queue.last()))+.map(|item| item.slot)
        }
    };
}

#[derive(Default)]
pub struct Fifo {
    queue: Vec<Item>,
}

impl Eviction for Fifo {
    fn insert(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        self.queue.insert(0, Item::new(slot, entry, now_seconds));
    }
    fn evict(&mut self, _: u32) -> Option<Slot> {
        self.queue.pop().map(|item| item.slot)
    }
    fn remove(&mut self, slot: Slot) {
        take(&mut self.queue, slot).unwrap();
    }
    plain_counts!(queue);
    fn hit_rule(&self) -> HitRule {
        HitRule::Ignore
    }
}

/// One queue and the number of entries behind the insertion point.
pub struct Lru {
    queue: Vec<Item>,
    behind: usize,
    config: LruConfig,
    refreshing: Refreshing,
}

impl Lru {
    pub fn new(config: LruConfig) -> Self {
        Self { queue: Vec::new(), behind: 0, config, refreshing: Refreshing::new(config.refresh) }
    }

    fn settle(&mut self) {
        let len = self.queue.len() as u128;
        let share = len.checked_shr(self.config.insertion_point.into()).unwrap_or(0) as usize;
        self.behind = share.max(1).min(self.queue.len());
    }
}

impl Eviction for Lru {
    fn insert(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        let place = if self.config.insertion_point == 0 { 0 } else { self.queue.len() - self.behind };
        self.queue.insert(place, Item::new(slot, entry, now_seconds));
        self.settle();
    }
    fn hit(&mut self, slot: Slot, now_seconds: u32) {
        let item = take(&mut self.queue, slot).unwrap();
        self.queue.insert(0, Item { used_seconds: now_seconds, ..item });
        self.refreshing.tune(self.queue.last(), now_seconds);
        self.settle();
    }
    fn evict(&mut self, now_seconds: u32) -> Option<Slot> {
        self.refreshing.tune(self.queue.last(), now_seconds);
        let victim = self.queue.pop();
        self.settle();
        victim.map(|item| item.slot)
    }
    fn remove(&mut self, slot: Slot) {
        take(&mut self.queue, slot).unwrap();
        self.settle();
    }
    fn restore(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        self.queue.insert(0, Item::new(slot, entry, now_seconds));
        self.settle();
    }
    plain_counts!(queue);
    fn hit_rule(&self) -> HitRule {
        self.refreshing.rule()
    }
}

pub struct Lru2q {
    hot: Vec<Item>,
    warm: Vec<Item>,
    cold: Vec<Item>,
    config: Lru2qConfig,
    refreshing: Refreshing,
    restores: u64,
}

impl Lru2q {
    pub fn new(config: Lru2qConfig) -> Self {
        let refreshing = Refreshing::new(config.refresh);
        Self { hot: Vec::new(), warm: Vec::new(), cold: Vec::new(), config, refreshing, restores: 0 }
    }

    fn settle(&mut self) {
        let held = weight(&self.hot) + weight(&self.warm) + weight(&self.cold);
        let (hot, cold) = (u64::from(self.config.hot_percent), u64::from(self.config.cold_percent));
        while weight(&self.warm) > held * (100 - hot - cold) / 100 {
            self.cold.insert(0, self.warm.pop().unwrap());
        }
        while weight(&self.hot) > held * hot / 100 {
            self.cold.insert(0, self.hot.pop().unwrap());
        }
    }

    fn tune(&mut self, now_seconds: u32) {
        let oldest = self.cold.last().or(self.hot.last()).or(self.warm.last());
        self.refreshing.tune(oldest, now_seconds);
    }
}

impl Eviction for Lru2q {
    fn insert(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        self.hot.insert(0, Item::new(slot, entry, now_seconds));
        self.settle();
    }
    fn hit(&mut self, slot: Slot, now_seconds: u32) {
        if let Some(item) = take(&mut self.hot, slot) {
            self.hot.insert(0, Item { used_seconds: now_seconds, ..item });
        } else if let Some(item) = take(&mut self.warm, slot) {
            self.warm.insert(0, Item { used_seconds: now_seconds, ..item });
        } else {
            let item = take(&mut self.cold, slot).unwrap();
            self.warm.insert(0, Item { used_seconds: now_seconds, ..item });
            self.settle();
        }
        self.tune(now_seconds);
    }
    fn evict(&mut self, now_seconds: u32) -> Option<Slot> {
        self.settle();
        self.tune(now_seconds);
        let victim = self.cold.pop().or_else(|| self.hot.pop()).or_else(|| self.warm.pop());
        victim.map(|item| item.slot)
    }
    fn remove(&mut self, slot: Slot) {
        let queues = [&mut self.hot, &mut self.warm, &mut self.cold];
        queues.into_iter().find_map(|queue| take(queue, slot)).unwrap();
        self.settle();
    }
    fn restore(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        self.restores += 1;
        let queue = if self.restores % 2 == 1 { &mut self.warm } else { &mut self.hot };
        queue.insert(0, Item::new(slot, entry, now_seconds));
        self.settle();
    }
    plain_counts!(cold, hot, warm);
    fn hit_rule(&self) -> HitRule {
        self.refreshing.rule()
    }
    fn reweigh(&mut self, slot: Slot, weight: u32) {
        [&mut self.hot, &mut self.warm, &mut self.cold]
            .into_iter()
            .for_each(|queue| reweigh(queue, slot, weight));
        self.settle();
    }
}

pub struct Slru {
    segments: Vec<Vec<Item>>,
    capacity: u64,
    rules: SlruRules,
    is_overfull: bool,
}

impl Slru {
    pub fn new(segments: u8, rules: SlruRules) -> Self {
        Self { segments: vec![Vec::new(); segments.into()], capacity: 0, rules, is_overfull: false }
    }

    fn each(&self) -> u64 {
        self.capacity / self.segments.len() as u64
    }

    fn settle(&mut self) {
        for segment in (1..self.segments.len()).rev() {
            while weight(&self.segments[segment]) > self.each() {
                let falls = self.segments[segment].pop().unwrap();
                self.segments[segment - 1].insert(0, falls);
                self.is_overfull |= segment == 1 && self.rules == SlruRules::Reference;
            }
        }
    }
}

impl Eviction for Slru {
    fn insert(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        let has_room = |items: &Vec<Item>| weight(items) + u64::from(entry.weight) <= self.each();
        let segment = self.segments.iter().position(has_room).filter(|_| self.rules == SlruRules::Reference);
        self.segments[segment.unwrap_or(0)].insert(0, Item::new(slot, entry, now_seconds));
        self.is_overfull = false;
    }
    fn hit(&mut self, slot: Slot, _: u32) {
        self.is_overfull = false;
        let holder =
            self.segments.iter().position(|segment| segment.iter().any(|item| item.slot == slot)).unwrap();
        let item = take(&mut self.segments[holder], slot).unwrap();
        let above = (holder + 1).min(self.segments.len() - 1);
        self.segments[above].insert(0, item);
        self.settle();
    }
    fn evict(&mut self, _: u32) -> Option<Slot> {
        self.segments.iter_mut().find_map(Vec::pop).map(|item| item.slot)
    }
    fn remove(&mut self, slot: Slot) {
        self.segments.iter_mut().find_map(|segment| take(segment, slot)).unwrap();
    }
    fn restore(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        self.insert(slot, entry, now_seconds);
        self.hit(slot, now_seconds);
    }
    fn set_capacity(&mut self, capacity_weight: u64) {
        self.capacity = capacity_weight;
        self.settle();
    }
    fn len(&self) -> usize {
        self.segments.iter().map(Vec::len).sum()
    }
    fn oldest(&self) -> Option<Slot> {
        self.segments.iter().find_map(|segment| segment.last()).map(|item| item.slot)
    }
    fn hit_rule(&self) -> HitRule {
        HitRule::Every
    }
    fn is_overfull(&self) -> bool {
        self.is_overfull && weight(&self.segments[0]) > self.each()
    }
    fn reweigh(&mut self, slot: Slot, weight: u32) {
        self.segments.iter_mut().for_each(|segment| reweigh(segment, slot, weight));
        self.settle();
    }
}

/// Algorithm 1 of the SIEVE paper; the hand is a place in the queue, counted from the old end.
pub struct Sieve {
    queue: Vec<Item>,
    hand_from_back: usize,
    visited: Arc<Marks>,
}

impl Default for Sieve {
    fn default() -> Self {
        Self { queue: Vec::new(), hand_from_back: 0, visited: Arc::new(Marks::default()) }
    }
}

impl Sieve {
    fn place(&self) -> usize {
        self.queue.len() - 1 - self.hand_from_back
    }

    fn wrap(&mut self) {
        if self.hand_from_back >= self.queue.len() {
            self.hand_from_back = 0;
        }
    }
}

impl Eviction for Sieve {
    fn insert(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        self.visited.set(slot, 0);
        self.queue.insert(0, Item::new(slot, entry, now_seconds));
    }
    fn evict(&mut self, _: u32) -> Option<Slot> {
        if self.queue.is_empty() {
            return None;
        }
        while self.visited.get(self.queue[self.place()].slot) == 1 {
            self.visited.set(self.queue[self.place()].slot, 0);
            self.hand_from_back += 1;
            self.wrap();
        }
        // The next newer entry moves to the victim's place, where the hand is.
        let victim = self.queue.remove(self.place());
        self.wrap();
        Some(victim.slot)
    }
    fn remove(&mut self, slot: Slot) {
        let place = self.queue.iter().position(|item| item.slot == slot).unwrap();
        let from_back = self.queue.len() - 1 - place;
        self.queue.remove(place);
        if from_back < self.hand_from_back {
            self.hand_from_back -= 1;
        }
        self.wrap();
    }
    fn restore(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        self.insert(slot, entry, now_seconds);
        self.visited.set(slot, 1);
    }
    plain_counts!(queue);
    fn hit_rule(&self) -> HitRule {
        HitRule::Mark { marks: Arc::clone(&self.visited) as _, at_most: 1 }
    }
}

/// Algorithm 1 of the S3-FIFO paper, with the ghost queue as a list of all that ever left the small queue.
pub struct S3Fifo {
    small: Vec<Item>,
    main: Vec<Item>,
    ghosts: Vec<Entry>,
    capacity: u64,
    frequency: Arc<Marks>,
    rules: S3FifoRules,
    has_evicted: bool,
    announced_had_ghost: bool,
    restores: u64,
}

impl S3Fifo {
    pub fn new(rules: S3FifoRules) -> Self {
        let frequency = Arc::new(Marks::default());
        let (small, main, ghosts) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            small,
            main,
            ghosts,
            capacity: 0,
            frequency,
            rules,
            has_evicted: false,
            announced_had_ghost: false,
            restores: 0,
        }
    }

    fn main_share(&self) -> u64 {
        self.capacity - self.capacity * 10 / 100
    }

    /// A ghost exists while less than the main queue's share was inserted after it. A ghost whose key returned is
    /// marked by weight 0 under a hash that no key has, because its weight still displaces older ones.
    fn take_ghost(&mut self, hash: u64) -> bool {
        if self.rules == S3FifoRules::Reference {
            let held = self.ghosts.len();
            self.ghosts.retain(|ghost| ghost.hash != hash);
            let was_there = self.ghosts.len() < held;
            self.trim_ghosts();
            return was_there;
        }
        let Some(place) = self.ghosts.iter().rposition(|ghost| ghost.hash == hash) else { return false };
        let after: u64 = self.ghosts[place + 1..].iter().map(|ghost| u64::from(ghost.weight)).sum();
        self.ghosts[place].hash = 0;
        after < self.main_share()
    }

    /// The reference's ghosts are a queue of their own, of nine tenths of the cache.
    fn trim_ghosts(&mut self) {
        let weight = |ghosts: &[Entry]| ghosts.iter().map(|ghost| u64::from(ghost.weight)).sum::<u64>();
        while self.rules == S3FifoRules::Reference && weight(&self.ghosts) > self.capacity * 90 / 100 {
            self.ghosts.remove(0);
        }
    }

    fn evict_small(&mut self) -> Option<Slot> {
        while let Some(item) = self.small.pop() {
            if self.frequency.get(item.slot) > 1 {
                self.frequency.set(item.slot, 0);
                self.main.insert(0, item);
            } else {
                let fits = u64::from(item.entry.weight) <= self.capacity * 90 / 100;
                if fits || self.rules == S3FifoRules::Paper {
                    self.ghosts.push(item.entry);
                }
                return Some(item.slot);
            }
        }
        None
    }

    fn evict_main(&mut self) -> Option<Slot> {
        while let Some(item) = self.main.pop() {
            match self.frequency.get(item.slot) {
                0 => return Some(item.slot),
                frequency => self.frequency.set(item.slot, frequency - 1),
            }
            self.main.insert(0, item);
        }
        None
    }
}

impl Eviction for S3Fifo {
    fn insert(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        self.frequency.set(slot, 0);
        let spills = self.rules == S3FifoRules::Reference
            && !self.has_evicted
            && weight(&self.small) >= self.capacity * 10 / 100;
        let has_ghost = std::mem::take(&mut self.announced_had_ghost) || self.take_ghost(entry.hash);
        let to_main = has_ghost || spills;
        let queue = if to_main { &mut self.main } else { &mut self.small };
        queue.insert(0, Item::new(slot, entry, now_seconds));
    }
    fn announce(&mut self, entry: Entry) {
        if self.rules == S3FifoRules::Reference {
            self.trim_ghosts();
            self.announced_had_ghost = self.take_ghost(entry.hash);
        }
    }
    fn had_ghost(&self) -> bool {
        self.announced_had_ghost
    }
    fn evict(&mut self, _: u32) -> Option<Slot> {
        self.has_evicted = true;
        if weight(&self.main) > self.main_share() || self.small.is_empty() {
            self.evict_main()
        } else {
            self.evict_small().or_else(|| self.evict_main())
        }
    }
    fn remove(&mut self, slot: Slot) {
        take(&mut self.small, slot).or_else(|| take(&mut self.main, slot)).unwrap();
    }
    fn restore(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        self.take_ghost(entry.hash);
        self.frequency.set(slot, 0);
        self.restores += 1;
        let queue = if self.restores % 2 == 1 { &mut self.main } else { &mut self.small };
        queue.insert(0, Item::new(slot, entry, now_seconds));
    }
    fn set_capacity(&mut self, capacity_weight: u64) {
        self.capacity = capacity_weight;
        self.trim_ghosts();
    }
    plain_counts!(small, main);
    fn hit_rule(&self) -> HitRule {
        HitRule::Mark { marks: Arc::clone(&self.frequency) as _, at_most: 3 }
    }
    fn reweigh(&mut self, slot: Slot, weight: u32) {
        reweigh(&mut self.small, slot, weight);
        reweigh(&mut self.main, slot, weight);
    }
}
