//! Item destructors (`enableItemDestructor`): counts the calls of the cache's destructor, and checks that each item is destroyed
//! exactly once (`enableItemDestructorCheck`).
//!
//! As in CacheBench, each value that a worker stores is an item of its own, identified by the version in the value's header. The
//! destructor marks the item as destroyed. At the end of the run all keys are removed. Then each stored item must have been destroyed
//! once, and no other item.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cache::config::{Destroyed, ItemDestructor};
use cache::{KeyHash, Layer};
use parking_lot::Mutex;
use workload::payload::Payload;

use super::version::{MARK_SHIFT, THREAD_SHIFT};

const STORED: u8 = 1;
const DESTROYED: u8 = 2;
const KEY_SHARDS: usize = 64;
/// Number of faults that are described in words.
const DESCRIBED: usize = 10;

/// Counts of destructor calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DestructorCounts {
    /// Calls for items in DRAM.
    pub from_dram: u64,
    /// Calls for items on flash only.
    pub from_flash: u64,
    /// Result of the check; `None` if it is disabled.
    pub check: Option<DestructorCheck>,
}

/// Result of checking the destructor calls of an instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DestructorCheck {
    /// Stored items.
    pub items: u64,
    /// Calls for an item that had already been destroyed, that was never stored, or whose value was damaged.
    pub invalid: u64,
    /// Stored items that were not destroyed.
    pub missing: u64,
    /// Descriptions of the first faults.
    pub described: Vec<String>,
}

impl DestructorCounts {
    /// The sum over two instances.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.from_dram += other.from_dram;
        self.from_flash += other.from_flash;
        if let (Some(mine), Some(theirs)) = (&mut self.check, &other.check) {
            mine.items += theirs.items;
            mine.invalid += theirs.invalid;
            mine.missing += theirs.missing;
            mine.described.extend(theirs.described.iter().cloned());
        } else if self.check.is_none() {
            self.check.clone_from(&other.check);
        }
        self
    }
}

/// Observes the destructor calls of one cache.
pub struct Destructors {
    run_mark: u64,
    from_dram: AtomicU64,
    from_flash: AtomicU64,
    items: Option<ItemStates>,
}

type Keys = HashSet<Box<[u8]>>;

/// The state of every item, and all stored keys.
struct ItemStates {
    run_mark: u64,
    /// By thread, then by the number of the thread's set.
    threads: Box<[Mutex<Vec<u8>>]>,
    keys: Box<[Mutex<Keys>]>,
    invalid: AtomicU64,
    described: Mutex<Vec<String>>,
}

impl Destructors {
    /// Creates the checks of a run with `workers` workers, whose values carry `run_mark`.
    #[must_use]
    pub fn new(workers: usize, run_mark: u64, is_checked: bool) -> Self {
        let items = is_checked.then(|| ItemStates {
            run_mark,
            threads: std::iter::repeat_with(Mutex::default).take(workers).collect(),
            keys: std::iter::repeat_with(Mutex::default).take(KEY_SHARDS).collect(),
            invalid: AtomicU64::new(0),
            described: Mutex::default(),
        });
        Self { run_mark, from_dram: AtomicU64::new(0), from_flash: AtomicU64::new(0), items }
    }

    /// The mark of this run in the versions of its values.
    #[must_use]
    pub fn run_mark(&self) -> u64 {
        self.run_mark
    }

    /// Whether the state of each item is checked.
    #[must_use]
    pub fn is_checked(&self) -> bool {
        self.items.is_some()
    }

    /// The destructor to configure in the cache.
    #[must_use]
    pub fn callback(self: &Arc<Self>) -> ItemDestructor {
        let destructors = Arc::clone(self);
        Arc::new(move |destroyed| destructors.destroyed(destroyed))
    }

    /// Records that an item was stored under `key`.
    pub(super) fn stored(&self, key: &[u8], version: u64) {
        let Some(items) = &self.items else { return };
        let shard = KeyHash::of(key).0 as usize % KEY_SHARDS;
        let mut keys = items.keys[shard].lock();
        if !keys.contains(key) {
            keys.insert(key.into());
        }
        drop(keys);
        items.change(version, |state| *state |= STORED);
    }

    fn destroyed(&self, destroyed: &Destroyed<'_>) {
        let by_layer = if destroyed.layer == Layer::Dram { &self.from_dram } else { &self.from_flash };
        by_layer.fetch_add(1, Ordering::Relaxed);
        if let Some(fault) = self.items.as_ref().and_then(|items| items.destroy(destroyed.value)) {
            let Destroyed { key, reason, layer, .. } = destroyed;
            let message = format!("{}: an item that {fault} ({reason:?} in {layer:?})", key.escape_ascii());
            self.items.iter().for_each(|items| items.describe(message.clone()));
        }
    }

    /// Removes every stored key.
    pub(super) fn remove_keys(&self, remove: impl Fn(&[u8])) {
        let shards = self.items.iter().flat_map(|items| &items.keys);
        for shard in shards {
            // The lock is released first: removing a key calls the destructor.
            let keys = std::mem::take(&mut *shard.lock());
            keys.iter().for_each(|key| remove(key));
        }
    }

    /// The calls so far. With the check enabled, items still in the cache count as missing calls.
    #[must_use]
    pub fn counts(&self) -> DestructorCounts {
        DestructorCounts {
            from_dram: self.from_dram.load(Ordering::Relaxed),
            from_flash: self.from_flash.load(Ordering::Relaxed),
            check: self.items.as_ref().map(ItemStates::check),
        }
    }
}

impl ItemStates {
    /// Changes the state of an item; `false` if no thread has such an item.
    fn change(&self, version: u64, change: impl FnOnce(&mut u8)) -> bool {
        let thread = (version >> THREAD_SHIFT) as usize & ((1 << (MARK_SHIFT - THREAD_SHIFT)) - 1);
        let count = version as usize & ((1 << THREAD_SHIFT) - 1);
        let Some(states) = self.threads.get(thread) else { return false };
        let mut states = states.lock();
        if states.len() <= count {
            states.resize(count + 1, 0);
        }
        change(&mut states[count]);
        true
    }

    /// Marks the item with this value as destroyed. Returns a description of the fault, if there is one.
    fn destroy(&self, value: &[u8]) -> Option<&'static str> {
        let fault = self.mark_destroyed(value);
        self.invalid.fetch_add(u64::from(fault.is_some()), Ordering::Relaxed);
        fault
    }

    fn mark_destroyed(&self, value: &[u8]) -> Option<&'static str> {
        let Ok(version) = Payload::version_of(value) else { return Some("is damaged") };
        if version >> MARK_SHIFT != self.run_mark {
            // The item was left in a persistent cache by an earlier run.
            return None;
        }
        let mut before = 0;
        let is_stored = self.change(version, |state| before = std::mem::replace(state, *state | DESTROYED));
        match (is_stored, before & DESTROYED != 0) {
            (false, _) => Some("was never stored"),
            (_, true) => Some("was already destroyed"),
            _ => None,
        }
    }

    fn describe(&self, message: String) {
        let mut described = self.described.lock();
        if described.len() < DESCRIBED {
            described.push(message);
        }
    }

    fn check(&self) -> DestructorCheck {
        let mut check =
            DestructorCheck { invalid: self.invalid.load(Ordering::Relaxed), ..Default::default() };
        for (thread, states) in self.threads.iter().enumerate() {
            for (count, state) in states.lock().iter().enumerate() {
                check.items += u64::from(state & STORED != 0);
                match *state {
                    STORED => {
                        check.missing += 1;
                        self.describe(format!("set {count} of thread {thread} was not destroyed"));
                    }
                    DESTROYED => {
                        check.invalid += 1;
                        self.describe(format!("set {count} of thread {thread} was destroyed and not stored"));
                    }
                    _ => {}
                }
            }
        }
        check.described.clone_from(&self.described.lock());
        check
    }
}

impl DestructorCheck {
    /// The failures, in CacheBench's wording.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        if self.invalid > 0 {
            failures.push(format!("Found {} invalid item destructor cases", self.invalid));
        }
        if self.missing > 0 {
            failures.push(format!("Found {} items missing destructor cases", self.missing));
        }
        if let Some(last) = failures.last_mut().filter(|_| !self.described.is_empty()) {
            let _ = write!(last, "; the first: {}", self.described.join("; "));
        }
        failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: u64 = 5;

    fn version(count: u64) -> u64 {
        MARK << MARK_SHIFT | count
    }

    fn value(version: u64) -> Vec<u8> {
        let mut value = vec![0; 40];
        Payload::new(0).fill(&mut value, 1, version);
        value
    }

    fn checked() -> Arc<Destructors> {
        Arc::new(Destructors::new(1, MARK, true))
    }

    fn failures(destructors: &Destructors) -> Vec<String> {
        destructors.counts().check.unwrap().failures()
    }

    #[test]
    fn item_stored_and_destroyed_once_passes_in_either_order() {
        let destructors = checked();
        destructors.items.as_ref().unwrap().destroy(&value(version(1)));
        destructors.stored(b"key", version(1));
        destructors.stored(b"key", version(2));
        destructors.items.as_ref().unwrap().destroy(&value(version(2)));
        assert_eq!(failures(&destructors), Vec::<String>::new());
        assert_eq!(destructors.counts().check.unwrap().items, 2);
    }

    #[test]
    fn second_missing_and_unknown_destructions_are_reported() {
        let destructors = checked();
        destructors.stored(b"key", version(1));
        destructors.stored(b"key", version(2));
        let items = destructors.items.as_ref().unwrap();
        for destroyed in [value(version(1)), value(version(1)), value(version(3)), vec![0; 40]] {
            items.destroy(&destroyed);
        }
        let check = destructors.counts().check.unwrap();
        assert_eq!((check.items, check.invalid, check.missing), (2, 3, 1), "{:?}", check.described);
    }

    #[test]
    fn item_of_another_run_is_ignored() {
        let destructors = checked();
        destructors.items.as_ref().unwrap().destroy(&value((MARK + 1) << MARK_SHIFT | 1));
        assert_eq!(failures(&destructors), Vec::<String>::new());
    }
}
