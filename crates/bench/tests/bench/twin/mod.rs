//! A simple target: a map with a lock that evicts its oldest keys, and that can be made faulty.
#![allow(dead_code, reason = "each test file uses its own part")]

pub mod slow;

use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::sync::{Arc, Mutex};

use cache::stats::{ClassStats, PoolStats};
use device::SystemClock;
use flashwright_bench::run::pace::Waiter;
use flashwright_bench::run::stop::Stop;
use flashwright_bench::run::target::{Found, Layer, SetHow, SetOutcome, Snapshot, Target};
use flashwright_bench::run::{InstanceOptions, Watcher};

/// A watcher that does nothing.
pub struct NoWatcher;
impl Watcher for NoWatcher {}

/// Options of a run with a fixed seed and the system clock, with sampled timing.
pub fn options() -> InstanceOptions {
    InstanceOptions {
        seed: 5,
        clock: Arc::new(SystemClock),
        waiter: Waiter::Thread(Arc::new(SystemClock)),
        stop: Stop::default(),
        time_all: false,
        inherits: false,
        chains: false,
        trace: None,
        trace_time: None,
        misses: None,
        destructors: None,
        stressor: None,
        learned: None,
    }
}

#[derive(Default)]
pub struct MapTarget {
    pub state: Mutex<State>,
    pub capacity_items: usize,
    /// Every n-th set is reported as stored but dropped.
    pub lose_every: Option<u64>,
    /// Deletes report success but do nothing.
    pub ignore_deletes: bool,
    /// Every n-th get returns a value with a flipped byte.
    pub flip_every: Option<u64>,
}

#[derive(Default)]
pub struct State {
    items: HashMap<Vec<u8>, Arc<Vec<Vec<u8>>>>,
    order: VecDeque<Vec<u8>>,
    evictions: u64,
    sets: u64,
    gets: u64,
}

pub struct MapItem(Arc<Vec<Vec<u8>>>);

impl Deref for MapItem {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0[0]
    }
}

impl Found for MapItem {
    fn layer(&self) -> Layer {
        Layer::Dram
    }
    fn each_link(&self, show: &mut dyn FnMut(&[u8])) {
        self.0[1..].iter().for_each(|link| show(link));
    }
}

impl Target for MapTarget {
    type Item<'a> = MapItem;

    async fn get(&self, key: &[u8]) -> Option<MapItem> {
        let mut state = self.state.lock().unwrap();
        state.gets += 1;
        let flip = self.flip_every.is_some_and(|every| state.gets.is_multiple_of(every));
        let item = state.items.get(key)?;
        if !flip {
            return Some(MapItem(Arc::clone(item)));
        }
        let mut damaged = item.as_ref().clone();
        *damaged[0].last_mut()? ^= 1;
        Some(MapItem(Arc::new(damaged)))
    }

    async fn set(
        &self,
        key: &[u8],
        value_bytes: usize,
        how: SetHow,
        fill: impl FnOnce(&mut [u8]),
    ) -> SetOutcome {
        let mut value = vec![0; value_bytes];
        fill(&mut value);
        let mut state = self.state.lock().unwrap();
        state.sets += 1;
        if how.only_if_absent && state.items.contains_key(key) {
            return SetOutcome::Kept;
        }
        if self.lose_every.is_some_and(|every| state.sets.is_multiple_of(every)) {
            return SetOutcome::Stored;
        }
        if state.items.insert(key.to_vec(), Arc::new(vec![value])).is_none() {
            state.order.push_back(key.to_vec());
        }
        while state.items.len() > self.capacity_items {
            let oldest = state.order.pop_front().unwrap();
            if state.items.remove(&oldest).is_some() {
                state.evictions += 1;
            }
        }
        SetOutcome::Stored
    }

    async fn chain(&self, key: &[u8], value_bytes: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let mut link = vec![0; value_bytes];
        fill(&mut link);
        let mut state = self.state.lock().unwrap();
        state.items.get_mut(key).map(|item| Arc::make_mut(item).push(link)).is_some()
    }

    fn delete(&self, key: &[u8]) -> bool {
        let mut state = self.state.lock().unwrap();
        if self.ignore_deletes { state.items.contains_key(key) } else { state.items.remove(key).is_some() }
    }

    fn could_exist(&self, key: &[u8]) -> bool {
        self.state.lock().unwrap().items.contains_key(key)
    }

    fn snapshot(&self) -> Snapshot {
        let state = self.state.lock().unwrap();
        let class = ClassStats {
            items: state.items.len() as u64,
            evictions: state.evictions,
            ..ClassStats::default()
        };
        let mut snapshot = Snapshot::default();
        snapshot.stats.pools = vec![PoolStats { classes: vec![class], ..PoolStats::default() }];
        snapshot
    }
}
