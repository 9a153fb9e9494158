//! Eviction and removal callbacks: from both together, a listener can derive the content of the cache.

use std::collections::HashMap;
use std::sync::Arc;

use flashwright_cache::config::{Removal, RemoveCallback};
use parking_lot::Mutex;
use policy::admission::{Chance, Probability};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::setup::{key, seeds, value, version_of};
use crate::stage::{HERO, Stage, version};

const KEYS: u64 = 900;
const STEPS: usize = 12_000;

type Told = Arc<Mutex<Vec<(Vec<u8>, Vec<u8>, Removal)>>>;

fn listen(told: &Told) -> Option<RemoveCallback> {
    let told = Arc::clone(told);
    Some(Arc::new(move |key: &[u8], value: &[u8], why| told.lock().push((key.into(), value.into(), why))))
}

/// A model that is updated by the callbacks only.
struct Listener {
    told: Told,
    /// The version of each key in the cache.
    held: HashMap<u64, u64>,
    /// How often each reason was heard.
    heard: HashMap<&'static str, usize>,
}

impl Listener {
    /// Records items that left. An item replaced or removed while on flash has no callback.
    fn hear(&mut self, seed: u64) {
        for (key, value, why) in std::mem::take(&mut *self.told.lock()) {
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
            *self.heard.entry(reason).or_default() += 1;
        }
    }
}

#[test]
fn listener_model_equals_the_cache_content() {
    let mut heard = HashMap::<&str, usize>::new();
    for seed in seeds(6) {
        let told = Told::default();
        let stage = Stage::new(|config| {
            (config.on_remove, config.on_evict) = (listen(&told), listen(&told));
            let flash = config.flash.as_mut().unwrap();
            flash.admission = Arc::new(Probability::new(0.8, Chance::EachTime { seed }));
        });
        let mut listener = Listener { told, held: HashMap::new(), heard: HashMap::new() };
        let mut random = StdRng::seed_from_u64(seed);
        for next_version in 0..STEPS as u64 {
            let number = random.random_range(0..KEYS);
            match random.random_range(0..10) {
                0 => {
                    stage.cache.remove(&key(number));
                    listener.hear(seed);
                    listener.held.remove(&number);
                }
                1..4 => {
                    let found = stage.get(&key(number)).map(|item| version_of(number, &item));
                    assert_eq!(found, listener.held.get(&number).copied(), "seed {seed}: key {number}");
                }
                _ => {
                    stage.put(&key(number), &value(number, next_version));
                    listener.hear(seed);
                    listener.held.insert(number, next_version);
                }
            }
            if random.random_bool(0.3) {
                stage.step();
            }
            listener.hear(seed);
        }
        for number in 0..KEYS {
            let found = stage.get(&key(number)).map(|item| version_of(number, &item));
            assert_eq!(found, listener.held.get(&number).copied(), "seed {seed}: key {number} at the end");
            listener.hear(seed);
        }
        listener.heard.into_iter().for_each(|(why, count)| *heard.entry(why).or_default() += count);
    }
    for why in ["removed", "replaced", "evicted from DRAM", "evicted from flash"] {
        assert!(heard.get(why).is_some_and(|count| *count > 100), "{why} was never heard: {heard:?}");
    }
}

#[test]
fn eviction_of_a_chain_reports_the_parents_value() {
    let told = Told::default();
    let stage = Stage::new(|config| config.on_evict = listen(&told));
    stage.put(HERO, &version(1, 150));
    stage.cache.add_chained_blocking(HERO, 3000, |link| link.fill(9)).unwrap();
    while told.lock().is_empty() {
        stage.push_out(3000);
        let of_hero = |(key, ..): &(Vec<u8>, Vec<u8>, Removal)| key == HERO;
        told.lock().retain(of_hero);
    }
    let told = std::mem::take(&mut *told.lock());
    assert_eq!(told, [(HERO.to_vec(), version(1, 150), Removal::EvictedFromFlash)]);
}

#[test]
fn item_losing_its_flash_copy_while_read_is_written_again() {
    // Without filters every bucket may contain everything, the copy that has gone too.
    let stage = Stage::new(|config| config.flash.as_mut().unwrap().filter_bytes_per_bucket = 0);
    stage.put(HERO, &version(1, 150));
    stage.push_out(150);
    let cache = Arc::clone(&stage.cache);
    let hero = stage.get(HERO).unwrap();
    // Of all that flash can hold several times.
    (0..8).for_each(|_| stage.push_out(150));
    drop(hero);
    drop(cache);
    stage.assert_hero_is(Some(&version(1, 150)), 150);
}

/// The clean check used to ask the buckets too, and their answer for a large item is random.
#[test]
fn large_item_losing_its_flash_copy_is_not_dropped_by_a_bucket_filter() {
    let stage = Stage::new(|config| config.flash.as_mut().unwrap().filter_bytes_per_bucket = 0);
    stage.put(HERO, &version(1, 3000));
    stage.push_out(3000);
    // Every bucket is written.
    (0..4).for_each(|_| stage.push_out(150));
    let cache = Arc::clone(&stage.cache);
    let hero = stage.get(HERO).unwrap();
    // Of all that the regions can hold several times.
    (0..8).for_each(|_| stage.push_out(3000));
    drop(hero);
    drop(cache);
    stage.assert_hero_is(Some(&version(1, 3000)), 3000);
}
