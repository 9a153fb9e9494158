//! Compares the tier with a map after the same random operations, in both directions.

use std::cell::RefCell;
use std::collections::HashMap;

use policy::eviction::{Lru, LruConfig, S3Fifo, Sieve};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

#[derive(Debug, Clone, PartialEq)]
struct Known {
    value: Vec<u8>,
    /// Newest first.
    children: Vec<Vec<u8>>,
    expiry_seconds: u32,
    tag: u16,
}

/// A spill that compares evicted items with the model and removes them from it; it is sometimes full.
struct CheckingSpill {
    model: RefCell<HashMap<Vec<u8>, Known>>,
    rng: RefCell<StdRng>,
    staged: RefCell<u32>,
}

impl Spill for CheckingSpill {
    type Staged = Vec<u8>;

    fn stage(&self, victim: &Victim<'_>) -> Stage<Vec<u8>> {
        assert_eq!(victim.hash(), KeyHash::of(victim.key()));
        let model = self.model.borrow();
        let known = &model[victim.key()];
        assert!(victim.value()[0] == known.value && victim.value()[1..] == known.children);
        assert_eq!((victim.expiry_seconds(), victim.tag()), (known.expiry_seconds, known.tag));
        if self.rng.borrow_mut().random_bool(0.05) {
            return Stage::Busy;
        }
        *self.staged.borrow_mut() += 1;
        Stage::Ready(victim.key().to_vec())
    }

    fn commit(&self, staged: Vec<u8>, victim: &Victim<'_>) {
        assert_eq!(staged, victim.key());
        *self.staged.borrow_mut() -= 1;
        self.model.borrow_mut().remove(&staged).expect("what leaves was there");
    }

    fn abandon(&self, _: Vec<u8>, _: &Victim<'_>) {
        *self.staged.borrow_mut() -= 1;
    }
}

fn policies() -> Vec<PolicyFactory> {
    vec![
        queue(HitRule::Ignore),
        queue(HitRule::Every),
        queue(HitRule::Refresh { refresh_seconds: 3 }),
        Arc::new(|| Box::new(S3Fifo::new(0))),
        Arc::new(|| Box::new(Sieve::new())),
        Arc::new(|| Box::new(Lru::new(LruConfig::default()))),
    ]
}

fn tier(policy: PolicyFactory) -> (Dram, Arc<VirtualClock>) {
    let mut config = DramConfig::new(if cfg!(miri) { 4 } else { 12 } << 16, policy);
    config.slab_bytes = Some(1 << 16);
    config.alloc_sizes = vec![2 << 10, 5 << 10, 20 << 10];
    config.pools = vec![
        PoolConfig { name: "small".into(), share: 0.25 },
        PoolConfig { name: "large".into(), share: 0.75 },
    ];
    let clock = Arc::new(VirtualClock::default());
    (Dram::new(&config, clock.clone()).unwrap(), clock)
}

#[test]
fn tier_and_spill_together_equal_a_map() {
    let (seeds, ops) = if cfg!(miri) { (1, 40) } else { (6, 3000) };
    // Miri runs a thousand times slower: one policy there.
    for policy in policies().into_iter().take(if cfg!(miri) { 1 } else { usize::MAX }) {
        for seed in 0..seeds {
            println!("seed {seed}");
            run(policy.clone(), seed, ops);
        }
    }
}

fn run(policy: PolicyFactory, seed: u64, ops: u32) {
    let (dram, clock) = tier(policy);
    let mut rng = StdRng::seed_from_u64(seed);
    let spill = CheckingSpill {
        model: RefCell::default(),
        rng: RefCell::new(StdRng::seed_from_u64(seed + 1000)),
        staged: RefCell::new(0),
    };
    let mut pins: Vec<(Handle<'_>, Vec<u8>)> = Vec::new();
    for _ in 0..ops {
        let key = rng.random_range(0..400_u32).to_le_bytes().to_vec();
        match rng.random_range(0..100) {
            0..45 => put_random(&dram, &spill, &clock, &mut rng, &key),
            45..70 => {
                let known = live(&spill, &clock, &key);
                let found = get(&dram, &key);
                assert!(
                    found.as_deref() == known.as_ref().map(|known| &*known.value),
                    "found something else"
                );
                if known.is_none() {
                    spill.model.borrow_mut().remove(&key);
                }
                if let Some(found) = found.filter(|_| pins.len() < 8) {
                    let value = found.to_vec();
                    pins.push((found, value));
                }
            }
            70..80 => {
                let known = live(&spill, &clock, &key);
                spill.model.borrow_mut().remove(&key);
                assert!(remove(&dram, &key) || known.is_none(), "the tier has all keys of the map");
            }
            80..90 if !pins.is_empty() => {
                let (pin, value) = pins.swap_remove(rng.random_range(0..pins.len()));
                assert!(*pin == *value, "a pinned value never changes");
            }
            90..92 => clock.advance_by(1_000_000_000),
            97 | 98 => add_child(&dram, &spill, &clock, &mut rng, &key),
            92..94 => {
                let now_seconds = clock.unix_seconds();
                while !dram.reap_step(50).ended_round {}
                let is_live = |known: &Known| known.expiry_seconds == 0 || known.expiry_seconds > now_seconds;
                spill.model.borrow_mut().retain(|_, known| is_live(known));
            }
            94..97 => rebalance(&dram, &spill, &mut rng),
            _ => assert_same(&dram, &spill, &clock),
        }
        assert_eq!(*spill.staged.borrow(), 0, "every staged item was committed or abandoned");
        assert_accounted(&dram);
    }
    assert_same(&dram, &spill, &clock);
    drop(pins);
    while !dram.reap_step(50).ended_round {}
    assert_all_memory_is_freed(&dram);
}

fn put_random(dram: &Dram, spill: &CheckingSpill, clock: &VirtualClock, rng: &mut StdRng, key: &[u8]) {
    let value_len = [100, 3000, 15_000][rng.random_range(0..3)] + rng.random_range(0..1500);
    let known = Known {
        children: Vec::new(),
        value: (0..value_len).map(|at| at as u8 ^ key[0]).collect(),
        expiry_seconds: if rng.random_bool(0.3) { clock.unix_seconds() + rng.random_range(1..6) } else { 0 },
        tag: rng.random(),
    };
    let hash = KeyHash::of(key);
    let pool = PoolId(rng.random_range(0..2));
    match dram.allocate(pool, key, hash, known.value.len(), known.expiry_seconds, spill) {
        Ok(mut draft) => {
            draft.copy_from_slice(&known.value);
            let replaced = dram.lock(hash).link(draft.tagged(known.tag));
            // An expired item may have been removed without a report; a live one must be reported.
            let before = live(spill, clock, key);
            let was_live = replaced.as_deref().filter(|_| before.is_some());
            assert!(
                was_live == before.as_ref().map(|before| &*before.value),
                "the replaced item differs from the model"
            );
            spill.model.borrow_mut().insert(key.to_vec(), known);
        }
        Err(error) => assert!(matches!(error, AllocateError::Busy | AllocateError::NoMemory)),
    }
}

fn add_child(dram: &Dram, spill: &CheckingSpill, clock: &VirtualClock, rng: &mut StdRng, key: &[u8]) {
    let hash = KeyHash::of(key);
    let value = vec![rng.random::<u8>(); rng.random_range(0..4000)];
    let Ok(mut draft) = dram.allocate_child(POOL, hash, value.len(), spill) else { return };
    draft.copy_from_slice(&value);
    let added = dram.lock(hash).add_child(key, draft).is_ok();
    assert_eq!(added, live(spill, clock, key).is_some());
    if added {
        spill.model.borrow_mut().get_mut(key).unwrap().children.insert(0, value);
    }
}

fn rebalance(dram: &Dram, spill: &CheckingSpill, rng: &mut StdRng) {
    let strategy = match rng.random_range(0..4) {
        0 => Strategy::TailAge { min_difference_ratio: 0.1 },
        1 => Strategy::Hits { min_difference_ratio: 0.1, min_difference: 1 },
        2 => Strategy::FreeMemory { min_free_slabs: 1 },
        _ => Strategy::Random { drawn: rng.random() },
    };
    let how = Rebalance { strategy, min_slabs: 1, move_on_release: rng.random() };
    dram.rebalance_step(PoolId(rng.random_range(0..2)), &how, spill);
}

fn live(spill: &CheckingSpill, clock: &VirtualClock, key: &[u8]) -> Option<Known> {
    let now_seconds = clock.unix_seconds();
    let known = spill.model.borrow().get(key).cloned();
    known.filter(|known| known.expiry_seconds == 0 || known.expiry_seconds > now_seconds)
}

fn assert_same(dram: &Dram, spill: &CheckingSpill, clock: &VirtualClock) {
    let keys: Vec<_> = spill.model.borrow().keys().cloned().collect();
    let expected: Vec<_> = keys.iter().filter_map(|key| Some((key, live(spill, clock, key)?))).collect();
    for (key, known) in &expected {
        let found = dram.peek(key, KeyHash::of(key)).expect("the tier has all keys of the map");
        assert!(*found == *known.value && found.tag() == known.tag);
        assert!(found.chain().eq(known.children.iter()));
    }
    let mut seen = 0;
    let mut cursor = Some(Cursor::default());
    while let Some(from) = cursor {
        cursor = dram.scan(from, 10, &mut |item| {
            assert!(live(spill, clock, item.key()).is_some(), "the map has all keys of the tier");
            seen += 1;
        });
    }
    assert_eq!(seen, expected.len());
}
