//! Compares the store with [`DryStore`](super::super::DryStore): both must hit and miss the same requests.

use ::policy::simulate::{Access, Simulator};
use device::MemoryDevice;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

const KEY_BYTES: usize = 8;

fn assert_twins(config: &RegionConfig) {
    let device = Arc::new(MemoryDevice::with_block_bytes(config.capacity_bytes, 4096));
    let store = open(device, config.clone());
    let mut twin = DryStore::new(config, Packing::Entries).unwrap();
    let mut random = StdRng::seed_from_u64(5);
    let mut hits = 0;
    for step in 0..12_000 {
        let key =
            u64::from(random.random_range(0..1_000_u32)).min(u64::from(random.random_range(0..1_000_u32)));
        let bytes = value(key, 0);
        let weight = (KEY_BYTES + bytes.len()) as u32;
        match random.random_range(0..20) {
            0 => {
                twin.remove(key as u32);
                forget(&store, key);
            }
            1 => {
                twin.insert(key as u32, weight);
                put(&store, &key.to_le_bytes(), &bytes, 0);
            }
            _ => {
                let found = get(&store, key).found().is_some();
                assert_eq!(twin.request(key as u32, weight), found, "step {step} key {key}");
                hits += u32::from(found);
                if !found {
                    put(&store, &key.to_le_bytes(), &bytes, 0);
                }
            }
        }
        work_until_idle(&store);
    }
    assert!(hits > 3_000, "{hits} hits");
    let stats = store.stats();
    let moved = stats.reinserted_bytes + stats.inserted_bytes;
    assert_eq!(written_bytes(&twin), moved, "written, {stats:?}");
    let policy_counts = twin.policy_counts();
    assert_eq!((stats.raises, stats.regions_deferred), (policy_counts.raises, policy_counts.deferrals));
    assert_eq!(
        (stats.cold_victims, stats.compactions),
        (policy_counts.cold_victims, policy_counts.compactions)
    );
}

fn written_bytes(twin: &DryStore) -> u64 {
    twin.counts().written_weight
}

/// Three items of 28 % of a region leave 16 % unused. Reinserted, they fill the region that they came from, although
/// reclaim expects to gain an eighth of a region.
#[test]
fn full_item_queue_with_holes_of_raised_items_accepts_new_items() {
    for single_point in [false, true] {
        let ripq = RipqConfig { single_point, sections: 2, ..RipqConfig::new(Caching::LfuDa) };
        let config = RegionConfig {
            order: OrderConfig::Ripq(ripq),
            buffers: 9,
            capacity_bytes: 4 * small().capacity_bytes,
            ..small()
        };
        let store =
            open(Arc::new(MemoryDevice::with_block_bytes(config.capacity_bytes, 4096)), config.clone());
        let mut twin = DryStore::new(&config, Packing::Entries).unwrap();
        let bytes = vec![1; config.region_bytes as usize * 28 / 100];
        let weight = (KEY_BYTES + bytes.len()) as u32;
        let is_held = |key: u64, twin: &mut DryStore| {
            let held = get(&store, key).found().is_some();
            assert_eq!(twin.read(key as u32), held, "{key}");
            held
        };
        for newest in 0..400_u64 {
            twin.insert(newest as u32, weight);
            put(&store, &newest.to_le_bytes(), &bytes, 0);
            work_until_idle(&store);
            for key in 0..=newest {
                is_held(key, &mut twin);
                work_until_idle(&store);
            }
        }
        assert!(is_held(399, &mut twin), "the newest is there");
        let held = (0..400).filter(|&key| is_held(key, &mut twin)).count();
        assert!(held > 10, "{held} of 400");
    }
}

#[test]
fn region_store_has_the_hits_of_its_model() {
    assert_twins(&small());
    assert_twins(&RegionConfig { order: OrderConfig::Lru, ..small() });
    assert_twins(&blockcache());
}

#[test]
fn reinsertion_has_the_hits_of_its_model() {
    let reinsertion = Reinsertion::Hits { at_least: 1 };
    assert_twins(&RegionConfig { reinsertion, ..small() });
    let shares = vec![2, 1, 1];
    let order = OrderConfig::SegmentedFifo { shares };
    assert_twins(&RegionConfig { order, reinsertion, buffers: 8, ..small() });
}

#[test]
fn item_queue_has_the_hits_of_its_model() {
    let roomy = |config: RegionConfig| RegionConfig { buffers: 20, ..config };
    assert_twins(&roomy(ripq(|_| {})));
    assert_twins(&roomy(ripq(|config| {
        *config = RipqConfig { sections: 3, ..RipqConfig::plain(Caching::Lru) }
    })));
    assert_twins(&roomy(ripq(|config| config.caching = Caching::GDSF)));
    assert_twins(&roomy(ripq(|config| config.single_point = true)));
}

#[test]
fn model_holds_neither_removed_nor_expired_objects() {
    let mut twin = DryStore::new(&small(), Packing::Entries).unwrap();
    let access =
        |object, is_removal| Access { object, weight: 100, now_seconds: 0, is_removal, is_set: false };
    let accesses =
        [(1, false), (2, false), (3, false), (1, true), (3, false)].map(|(object, is)| access(object, is));
    twin.run(&accesses, &[]);
    twin.expire(2);
    assert_eq!([0, 1, 2, 3].map(|object| twin.holds(object)), [false, false, false, true]);
    let counts = twin.counts();
    assert_eq!((counts.requests, counts.hits, counts.inserts), (4, 1, 3));
}

#[test]
fn model_lists_each_written_region_once() {
    let mut twin = DryStore::new(&small(), Packing::Bare).unwrap();
    let half = small().region_bytes / 2;
    let insert = |twin: &mut DryStore, objects: std::ops::Range<u32>| {
        objects.for_each(|object| twin.insert(object, half));
        twin.take_written().iter().map(|region| region.0).collect::<Vec<_>>()
    };
    assert_eq!(insert(&mut twin, 0..3), [], "the recording starts now");
    assert_eq!(insert(&mut twin, 3..7), [1, 2]);
    assert_eq!(insert(&mut twin, 7..8), []);
}
