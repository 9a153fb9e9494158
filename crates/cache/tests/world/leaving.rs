//! Eviction and removal callbacks: from both together, a listener can derive the content of the cache.

use std::collections::HashMap;
use std::sync::Arc;

use flashwright_cache::config::{Removal, RemoveCallback};
use parking_lot::Mutex;
use policy::admission::{Chance, Probability};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::setup::{key, seeds, value, version_of};
use crate::stage::{Stage, TARGET, version};

const KEYS: u64 = 900;
const STEPS: usize = 12_000;

type Callbacks = Arc<Mutex<Vec<(Vec<u8>, Vec<u8>, Removal)>>>;

fn listen(callbacks: &Callbacks) -> Option<RemoveCallback> {
    let callbacks = Arc::clone(callbacks);
    Some(Arc::new(move |key: &[u8], value: &[u8], why| {
        callbacks.lock().push((key.into(), value.into(), why));
    }))
}

/// A model of the cache's content that is updated by the callbacks only.
struct Listener {
    callbacks: Callbacks,
    /// The version of each key in the cache.
    held: HashMap<u64, u64>,
    /// Number of callbacks by reason.
    reasons: HashMap<&'static str, usize>,
}

impl Listener {
    /// Removes the items of the callbacks from the model. An item replaced or removed while on flash has no callback.
    fn apply_callbacks(&mut self, seed: u64) {
        for (key, value, why) in std::mem::take(&mut *self.callbacks.lock()) {
            let number = u64::from_le_bytes(key[4..].try_into().unwrap());
            let held = self.held.remove(&number);
            assert_eq!(held, Some(version_of(number, &value)), "seed {seed}: key {number}, {why:?}");
            let reason = match why {
                Removal::Removed => "removed",
                Removal::Replaced => "replaced",
                Removal::Cleared => "cleared",
                Removal::EvictedFromDram => "evicted from DRAM",
                Removal::EvictedFromFlash => "evicted from flash",
                Removal::Expired => "expired",
            };
            *self.reasons.entry(reason).or_default() += 1;
        }
    }
}

#[test]
fn model_updated_by_callbacks_equals_the_cache_content() {
    let mut reasons = HashMap::<&str, usize>::new();
    for seed in seeds(6) {
        let callbacks = Callbacks::default();
        let stage = Stage::new(|config| {
            (config.on_remove, config.on_evict) = (listen(&callbacks), listen(&callbacks));
            let flash = config.flash.as_mut().unwrap();
            flash.admission = Arc::new(Probability::new(0.8, Chance::EachTime { seed }));
        });
        let mut listener = Listener { callbacks, held: HashMap::new(), reasons: HashMap::new() };
        let mut random = StdRng::seed_from_u64(seed);
        for next_version in 0..STEPS as u64 {
            let number = random.random_range(0..KEYS);
            match random.random_range(0..10) {
                0 => {
                    stage.cache.remove(&key(number));
                    listener.apply_callbacks(seed);
                    listener.held.remove(&number);
                }
                1..4 => {
                    let found = stage.get(&key(number)).map(|item| version_of(number, &item));
                    assert_eq!(found, listener.held.get(&number).copied(), "seed {seed}: key {number}");
                }
                _ => {
                    stage.put(&key(number), &value(number, next_version));
                    listener.apply_callbacks(seed);
                    listener.held.insert(number, next_version);
                }
            }
            if random.random_bool(0.3) {
                stage.step();
            }
            listener.apply_callbacks(seed);
        }
        for number in 0..KEYS {
            let found = stage.get(&key(number)).map(|item| version_of(number, &item));
            assert_eq!(found, listener.held.get(&number).copied(), "seed {seed}: key {number} at the end");
            listener.apply_callbacks(seed);
        }
        listener.reasons.into_iter().for_each(|(why, count)| *reasons.entry(why).or_default() += count);
    }
    for why in ["removed", "replaced", "evicted from DRAM", "evicted from flash"] {
        assert!(
            reasons.get(why).is_some_and(|count| *count > 100),
            "too few callbacks for {why}: {reasons:?}"
        );
    }
}

#[test]
fn eviction_of_a_chain_reports_the_value_of_the_parent() {
    let callbacks = Callbacks::default();
    let stage = Stage::new(|config| config.on_evict = listen(&callbacks));
    stage.put(TARGET, &version(1, 150));
    stage.cache.add_chained_blocking(TARGET, 3000, |link| link.fill(9)).unwrap();
    while callbacks.lock().is_empty() {
        stage.evict_to_flash(3000);
        let of_target = |(key, ..): &(Vec<u8>, Vec<u8>, Removal)| key == TARGET;
        callbacks.lock().retain(of_target);
    }
    let callbacks = std::mem::take(&mut *callbacks.lock());
    assert_eq!(callbacks, [(TARGET.to_vec(), version(1, 150), Removal::EvictedFromFlash)]);
}

#[test]
fn item_losing_its_flash_copy_while_read_is_written_again() {
    // Without filters every bucket may contain every item, so a lookup in the filter alone would find the removed copy.
    let stage = Stage::new(|config| config.flash.as_mut().unwrap().filter_bytes_per_bucket = 0);
    stage.put(TARGET, &version(1, 150));
    stage.evict_to_flash(150);
    let cache = Arc::clone(&stage.cache);
    let target = stage.get(TARGET).unwrap();
    // Writes several times the capacity of flash.
    (0..8).for_each(|_| stage.evict_to_flash(150));
    drop(target);
    drop(cache);
    stage.assert_target_is(Some(&version(1, 150)), 150);
}

/// Catches a regression: the clean check also uses the filters of the buckets, whose result for a large item is random.
#[test]
fn large_item_losing_its_flash_copy_is_not_dropped_by_a_bucket_filter() {
    let stage = Stage::new(|config| config.flash.as_mut().unwrap().filter_bytes_per_bucket = 0);
    stage.put(TARGET, &version(1, 3000));
    stage.evict_to_flash(3000);
    // Writes items to every bucket.
    (0..4).for_each(|_| stage.evict_to_flash(150));
    let cache = Arc::clone(&stage.cache);
    let target = stage.get(TARGET).unwrap();
    // Writes several times the capacity of the regions.
    (0..8).for_each(|_| stage.evict_to_flash(3000));
    drop(target);
    drop(cache);
    stage.assert_target_is(Some(&version(1, 3000)), 3000);
}
