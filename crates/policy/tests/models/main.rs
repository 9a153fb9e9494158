//! Compares simulated caches with simple models of the same rules, whose queues are searched from end to end. The twins model an eviction
//! policy alone; these models are whole caches, with admission.

mod cacheus;
mod merlin;
mod s4_fifo;

use std::collections::VecDeque;

use flashwright_policy::eviction::{Kind, S4FifoSettings};
use flashwright_policy::simulate::{Access, Policy, Settings, Simulator};
use proptest::prelude::*;

/// A cache of known capacity.
trait Model {
    /// Requests an object; returns whether it hit.
    fn get(&mut self, key: u32, size: u64) -> bool;
}

/// An object or ghost in a queue.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Item {
    key: u32,
    size: u64,
    hits: u32,
}

impl Item {
    fn new(key: u32, size: u64, hits: u32) -> Self {
        Self { key, size, hits }
    }
}

/// The oldest item is at the front.
type Queue = VecDeque<Item>;

fn weight(queue: &Queue) -> u64 {
    queue.iter().map(|item| item.size).sum()
}

fn find(queue: &mut Queue, key: u32) -> Option<&mut Item> {
    queue.iter_mut().find(|item| item.key == key)
}

fn take(queue: &mut Queue, key: u32) -> Option<Item> {
    let place = queue.iter().position(|item| item.key == key)?;
    queue.remove(place)
}

/// Requests: skewed keys, each with a fixed size.
fn requests() -> impl Strategy<Value = Vec<(u32, u64)>> {
    let sizes = prop_oneof![Just(vec![1; 64]), prop::collection::vec(1_u64..40, 64)];
    let keys = prop::collection::vec((0_u32..64, 0_u32..64), 1..600);
    (keys, sizes).prop_map(|(keys, sizes)| {
        keys.into_iter().map(|(a, b)| a.min(b)).map(|key| (key, sizes[key as usize])).collect()
    })
}

/// Both must hit for the same requests.
fn compare(kind: Kind, model: &mut dyn Model, capacity: u64, requests: &[(u32, u64)]) {
    let settings = Settings { seed: 1, ..Settings::default() };
    let mut policy: Box<dyn Simulator> = Policy::Eviction(kind).simulator(capacity, &settings);
    for (number, &(key, size)) in requests.iter().enumerate() {
        let access =
            Access { object: key, weight: size as u32, now_seconds: 0, is_removal: false, is_set: false };
        let hits_before = policy.counts().hits;
        policy.run(&[access], &[]);
        let is_hit = policy.counts().hits > hits_before;
        assert_eq!(is_hit, model.get(key, size), "{kind}, capacity {capacity}, request {number}: key {key}");
    }
}

fn settings() -> impl Strategy<Value = S4FifoSettings> {
    let numbers = (1_u8..100, 0_u16..400, 0_u8..=100, 1_u8..4, any::<bool>());
    numbers.prop_map(|(small_percent, ghost_percent, skip_percent, promote_hits, ghosts_return_to_main)| {
        S4FifoSettings { small_percent, ghost_percent, skip_percent, promote_hits, ghosts_return_to_main }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn s3_fifo_equals_its_model(capacity in 1_u64..300, requests in requests()) {
        let mut model = s4_fifo::S4Fifo::new(capacity, S4FifoSettings::S3_FIFO);
        compare(Kind::S3Fifo, &mut model, capacity, &requests);
    }

    #[test]
    fn s4_fifo_equals_its_model(capacity in 1_u64..300, settings in settings(), requests in requests()) {
        compare(Kind::S4Fifo(settings), &mut s4_fifo::S4Fifo::new(capacity, settings), capacity, &requests);
    }

    #[test]
    fn merlin_equals_its_model(capacity in 1_u64..300, requests in requests()) {
        compare(Kind::Merlin, &mut merlin::Merlin::new(capacity), capacity, &requests);
    }

    #[test]
    fn cacheus_equals_its_model(capacity in 1_u64..300, requests in requests()) {
        compare(Kind::Cacheus, &mut cacheus::Cacheus::new(capacity), capacity, &requests);
    }
}
