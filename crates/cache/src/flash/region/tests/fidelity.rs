//! Compares the hits of an item queue with those of the exact caching policy that it approximates.

use ::policy::eviction::Slru;
use ::policy::eviction::gdsf::{Cost, Gdsf};
use ::policy::simulate::{Access, Counts, Simulation, Simulator};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

/// Zipf-distributed requests for objects that age: one request in eight makes another object the most popular. Sizes
/// are from 128 to 6,128 bytes.
fn photos(requests: usize, objects: u32, seed: u64) -> Vec<Access> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut newest = objects;
    let mut accesses = Vec::with_capacity(requests);
    for _ in 0..requests {
        if random.random_range(0..8) == 0 {
            newest += 1;
        }
        // The inverse of a power law over ranks; 1 is the newest.
        let draw: f64 = random.random();
        let rank = (f64::from(objects).powf(draw)) as u32;
        let object = newest - rank.min(objects - 1);
        let weight = 128 + (KeyHash(u64::from(object)).remix() % 11).pow(2) as u32 * 60;
        accesses.push(Access { object, weight, now_seconds: 0, is_removal: false, is_set: false });
    }
    accesses
}

fn counts(mut simulator: impl Simulator, accesses: &[Access]) -> Counts {
    let (warm, rest) = accesses.split_at(accesses.len() / 3);
    simulator.run(warm, &[]);
    let before = simulator.counts();
    simulator.run(rest, &[]);
    simulator.counts().since(&before)
}

fn hit_ratio(counts: &Counts) -> f64 {
    counts.hits as f64 / counts.requests as f64
}

fn dry(order: OrderConfig, capacity_bytes: u64, regions: u64) -> DryStore {
    let region_bytes = u32::try_from(capacity_bytes / regions).unwrap();
    let config = RegionConfig { order, region_bytes, buffers: 20, ..RegionConfig::new(capacity_bytes) };
    DryStore::new(&config, Packing::Seamless).unwrap()
}

/// Accepted loss of hit ratio by eight insertion points: 0.5 percentage points.
const MOST_LOST: f64 = 0.005;

fn assert_near(caching: Caching, exact: &Counts, capacity_bytes: u64, most_lost: f64, accesses: &[Access]) {
    let order = OrderConfig::Ripq(RipqConfig::plain(caching));
    let near = hit_ratio(&counts(dry(order, capacity_bytes, 1024), accesses));
    let lost = hit_ratio(exact) - near;
    assert!(lost <= most_lost, "{caching} at {capacity_bytes}: {near:.4}, {lost:.4} below exact");
}

#[test]
fn eight_points_cost_segmented_lru_at_most_half_a_percent() {
    let accesses = photos(700_000, 300_000, 1);
    for capacity_bytes in [64 << 20, 256 << 20] {
        let exact = counts(Simulation::new(Slru::new(4, capacity_bytes), capacity_bytes), &accesses);
        assert_near(Caching::Slru { segments: 4 }, &exact, capacity_bytes, MOST_LOST, &accesses);
    }
}

/// New items are rounded up to the boundaries of sections: without an order within sections, the least valuable ones would stay longest.
#[test]
fn eight_points_cost_gdsf_at_most_half_a_percent() {
    let accesses = photos(700_000, 300_000, 1);
    for capacity_bytes in [64 << 20, 256 << 20] {
        let exact = counts(Simulation::new(Gdsf::new(Cost::Equal), capacity_bytes), &accesses);
        assert_near(Caching::GDSF, &exact, capacity_bytes, MOST_LOST, &accesses);
    }
}

#[test]
fn ripq_refinements_save_writes_at_nearly_equal_hits() {
    let accesses = photos(700_000, 300_000, 1);
    let slru = Caching::Slru { segments: 4 };
    let of = |config| counts(dry(OrderConfig::Ripq(config), 64 << 20, 1024), &accesses);
    let (plain, refined) = (of(RipqConfig::plain(slru)), of(RipqConfig::new(slru)));
    assert!(hit_ratio(&plain) - hit_ratio(&refined) < 0.01, "{plain:?} {refined:?}");
    assert!(refined.written_weight * 100 < plain.written_weight * 98, "{plain:?} {refined:?}");
}
