//! Compares every eviction policy with a naive model: the paper implemented with vectors and maps, without regard to speed. Both receive the
//! same random calls and must return the same results.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod queues;
mod ranked;
mod sketched;

use std::collections::HashMap;
use std::sync::Arc;

use flashwright_policy::contract::{self, Draw};
use flashwright_policy::eviction::{
    self, Clairvoyant, ClairvoyantSized, EvictionConfig, Kind, Lru, Lru2q, Lru2qConfig, LruConfig, Refresh,
    S3Fifo, S3FifoRules, Slru, SlruRules, clairvoyant, gdsf::Cost,
};
use flashwright_policy::simulate::hash_of;
use flashwright_policy::{Entry, Eviction, HitMarks as _, HitRule, Marks, Slot};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};

const SEEDS: std::ops::Range<u64> = 0..60;

fn compare<P: Eviction, T: Eviction>(policy: impl Fn(u64) -> P, twin: impl Fn(u64) -> T) {
    for seed in SEEDS {
        let draw = Draw::from_seed(seed);
        contract::same_steps(&mut policy(draw.capacity_weight), &mut twin(draw.capacity_weight), draw);
    }
}

const REFRESHES: [Refresh; 3] = [
    Refresh { seconds: 0, ratio: 0.1, tune_every_seconds: 60 },
    Refresh { seconds: 60, ratio: 0.0, tune_every_seconds: 60 },
    Refresh { seconds: 60, ratio: 0.1, tune_every_seconds: 60 },
];

#[test]
fn fifo_equals_its_naive_model() {
    compare(|_| eviction::Fifo::new(), |_| queues::Fifo::default());
}

#[test]
fn lru_equals_its_naive_model_for_every_refresh_and_insertion_point() {
    for refresh in REFRESHES {
        for insertion_point in [0, 1, 2, 5, 64] {
            let config = LruConfig { refresh, insertion_point };
            compare(|_| Lru::new(config), |_| queues::Lru::new(config));
        }
    }
}

#[test]
fn lru_2q_equals_its_naive_model_for_every_share() {
    for refresh in REFRESHES {
        for (hot_percent, cold_percent) in [(20, 20), (30, 30), (0, 100), (100, 0), (0, 0), (50, 50)] {
            let config = Lru2qConfig { refresh, hot_percent, cold_percent };
            compare(|_| Lru2q::new(config), |_| queues::Lru2q::new(config));
        }
    }
}

#[test]
fn slru_equals_its_naive_model_for_one_to_eight_segments() {
    for segments in [1, 2, 4, 8] {
        for rules in [SlruRules::Paper, SlruRules::Reference] {
            compare(
                |capacity| Slru::with_rules(segments, capacity, rules),
                |_| queues::Slru::new(segments, rules),
            );
        }
    }
}

#[test]
fn slru_of_one_segment_is_exact_lru() {
    compare(|capacity| Slru::new(1, capacity), |_| Lru::exact());
}

#[test]
fn sieve_equals_its_naive_model() {
    compare(|_| eviction::Sieve::new(), |_| queues::Sieve::default());
}

#[test]
fn s3_fifo_equals_its_naive_model() {
    for rules in [S3FifoRules::Paper, S3FifoRules::Reference] {
        compare(|capacity| S3Fifo::with_rules(capacity, rules), |_| queues::S3Fifo::new(rules));
    }
}

#[test]
fn caller_owned_marks_change_no_result() {
    for kind in [Kind::Sieve, Kind::S3Fifo] {
        let own = |capacity| eviction::build(&EvictionConfig::new(kind), capacity);
        let kept = |capacity| {
            let mut policy = own(capacity);
            let marks = Arc::new(Marks::default());
            policy.keep_marks_in(Arc::clone(&marks) as _);
            let HitRule::Mark { marks: policy_marks, .. } = policy.hit_rule() else {
                panic!("{kind} counts in marks")
            };
            policy_marks.set(Slot(0), 1);
            assert_eq!(marks.get(Slot(0)), 1, "{kind} names the marks that it reads");
            policy
        };
        compare(own, kept);
    }
}

#[test]
fn gdsf_equals_its_naive_model() {
    for cost in [Cost::Equal, Cost::Size] {
        compare(|_| eviction::Gdsf::new(cost), |_| ranked::Gdsf::new(cost));
    }
}

#[test]
fn tiny_lfu_equals_its_naive_model() {
    for refresh in REFRESHES {
        compare(|_| eviction::TinyLfu::new(refresh), |_| sketched::TinyLfu::new(refresh));
    }
}

#[test]
fn w_tiny_lfu_equals_its_naive_model() {
    compare(eviction::WTinyLfu::new, |_| sketched::WTinyLfu::default());
}

#[test]
fn every_policy_fulfils_the_contract_with_changing_capacity() {
    for kind in eviction::Kind::ALL {
        for seed in SEEDS {
            let draw = Draw { grows: true, ..Draw::from_seed(seed) };
            let mut policy = eviction::build(&eviction::EvictionConfig::new(kind), draw.capacity_weight);
            contract::check(policy.as_mut(), draw);
        }
    }
}

/// S3-FIFO once put every pinned entry into its main queue and then searched only there; LRU-2Q did the same with its warm queue.
#[test]
fn evictable_entry_is_found_among_many_pinned_ones() {
    let mut rng = StdRng::seed_from_u64(11);
    for kind in eviction::Kind::ALL {
        for entries in [1, 7, 200] {
            for pinned in [0, entries / 2, entries * 9 / 10, entries - 1] {
                let build = |is_pinned: Vec<bool>| {
                    let mut policy = eviction::build(&EvictionConfig::new(kind), entries as u64);
                    contract::check_with_pinned(policy.as_mut(), &is_pinned);
                };
                // The oldest, the newest or random entries are pinned.
                build((0..entries).map(|at| at < pinned).collect());
                build((0..entries).map(|at| at >= entries - pinned).collect());
                let mut any: Vec<bool> = (0..entries).map(|at| at < pinned).collect();
                any.shuffle(&mut rng);
                build(any);
            }
        }
    }
}

#[test]
fn likely_victim_is_usually_known_and_evicted_next() {
    const ENTRIES: usize = 400;
    for kind in [Kind::Fifo, Kind::ExactLru, Kind::S3Fifo, Kind::Sieve] {
        let mut policy = eviction::build(&EvictionConfig::new(kind), ENTRIES as u64);
        let mut rng = StdRng::seed_from_u64(7);
        let mut held: HashMap<u64, Slot> = HashMap::new();
        let (mut evicted, mut foreseen) = (0, 0);
        for now_seconds in 0..40_000 {
            // A few keys are requested repeatedly, many once or twice.
            let key = (rng.random::<f64>().powi(4) * 4000.0) as u64;
            if let Some(&slot) = held.get(&key) {
                match policy.hit_rule() {
                    HitRule::Mark { marks, at_most } => marks.bump(slot, at_most),
                    _ => policy.hit(slot, now_seconds),
                }
                continue;
            }
            let mut slot = Slot(held.len() as u32);
            if held.len() == ENTRIES {
                let likely = policy.likely_victim();
                slot = policy.evict(now_seconds).expect("it is full");
                held.retain(|_, other| *other != slot);
                evicted += 1;
                foreseen += u32::from(likely.is_some());
                assert_eq!(likely.unwrap_or(slot), slot, "{kind:?}");
            }
            held.insert(key, slot);
            policy.insert(slot, Entry { hash: hash_of(key), weight: 1 }, now_seconds);
        }
        assert!(evicted > 5000 && foreseen > evicted * 9 / 10, "{kind:?}: {foreseen} of {evicted}");
    }
}

#[test]
fn clairvoyant_fulfils_the_contract() {
    for seed in SEEDS {
        let (mut policy, next_use) = Clairvoyant::new();
        next_use.set(0, seed);
        contract::check(&mut policy, Draw::from_seed(seed));
        let (mut policy, next_use) = ClairvoyantSized::new(seed);
        next_use.set(0, if seed % 2 == 0 { clairvoyant::NEVER } else { seed });
        contract::check(&mut policy, Draw::from_seed(seed));
    }
}

/// A policy that loses an entry or invents one: the suite must detect both.
struct Broken {
    inner: eviction::Fifo,
    loses: bool,
}

impl Eviction for Broken {
    fn insert(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        self.inner.insert(slot, entry, now_seconds);
    }
    fn evict(&mut self, now_seconds: u32) -> Option<Slot> {
        let victim = self.inner.evict(now_seconds)?;
        let invented = Slot(victim.0 + 1000);
        Some(if self.loses { self.inner.evict(now_seconds).unwrap_or(victim) } else { invented })
    }
    fn remove(&mut self, slot: Slot) {
        self.inner.remove(slot);
    }
    fn len(&self) -> usize {
        self.inner.len()
    }
    fn oldest(&self) -> Option<Slot> {
        self.inner.oldest()
    }
    fn hit_rule(&self) -> HitRule {
        HitRule::Ignore
    }
}

#[test]
#[should_panic(expected = "entries held")]
fn contract_detects_a_policy_that_loses_entries() {
    contract::check(&mut Broken { inner: eviction::Fifo::new(), loses: true }, Draw::from_seed(1));
}

#[test]
#[should_panic(expected = "which has no entry")]
fn contract_detects_a_policy_that_evicts_an_absent_slot() {
    let draw = Draw { capacity_weight: 3, keys: 100, weight_at_most: 1, ..Draw::from_seed(1) };
    contract::check(&mut Broken { inner: eviction::Fifo::new(), loses: false }, draw);
}

#[test]
#[should_panic(expected = "the victims of two policies differ")]
fn comparison_distinguishes_fifo_and_lru() {
    let draw = Draw { capacity_weight: 20, keys: 60, weight_at_most: 1, ..Draw::from_seed(1) };
    contract::same_steps(&mut eviction::Fifo::new(), &mut Lru::exact(), draw);
}
