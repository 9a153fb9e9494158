//! The queue, with results computed by hand.

mod twin;

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use super::*;

const UNITS: u32 = 16;

fn layout(regions: u32) -> Layout {
    Layout {
        offset_bytes: 0,
        region_bytes: UNITS * 64,
        region_count: regions,
        unit_bytes: 64,
        block_bytes: 512,
        max_read_bytes: 4096,
        max_write_bytes: 4096,
    }
}

/// Two sections, LRU, no refinements.
fn lru(regions: u32) -> Ripq {
    Ripq::new(&RipqConfig { sections: 2, ..RipqConfig::plain(Caching::Lru) }, &layout(regions))
}

/// Fills a region with four items and appends it to the queue.
fn fill(queue: &mut Ripq, region: u32, level: u8) -> [Resident; 4] {
    let placing = Placing { level, worth: 0.0 };
    let point = InsertionPoint(level);
    let items = [0; 4].map(|_| {
        let rank = queue.enter(RegionId(region), point, placing, 4);
        assert!(rank.is_none());
        Resident { region: RegionId(region), rank, hits: 0, units: 4 }
    });
    queue.written(RegionId(region), point);
    items
}

fn hit(queue: &mut Ripq, item: &mut Resident) -> bool {
    item.hits += 1;
    let Some(raise) = queue.hit(item) else { return false };
    queue.raised(item, raise);
    item.rank = raise.rank;
    true
}

#[test]
fn hit_item_survives_and_the_rest_of_its_region_is_evicted() {
    let mut queue = lru(8);
    let mut items: Vec<_> = (0..4).map(|region| fill(&mut queue, region, 1)).collect();
    // Computed by hand: 64 units in two sections are 32 each; the first two regions are demoted.
    assert_eq!(queue.in_order(), [(RegionId(0), 0), (RegionId(1), 0), (RegionId(2), 1), (RegionId(3), 1)]);
    assert!(hit(&mut queue, &mut items[0][2]));
    assert!(!hit(&mut queue, &mut items[0][2]), "at the head there is nothing to gain");
    assert_eq!(queue.victim(), Some(RegionId(0)));
    let survives = items[0].map(|item| queue.survives(&item, KeyHash(0), 0).map(|placing| placing.level));
    assert_eq!(survives, [None, None, Some(1), None]);
    assert_eq!(queue.victim(), Some(RegionId(1)));
}

#[test]
fn sections_of_absolute_priorities_shrink_towards_the_tail() {
    let mut queue = Ripq::new(&RipqConfig { sections: 3, ..RipqConfig::plain(Caching::GDSF) }, &layout(16));
    for region in 0..12 {
        let (point, placing) = (InsertionPoint(2), Placing { level: 2, worth: f64::from(region) });
        queue.enter(RegionId(region), point, placing, UNITS);
        queue.written(RegionId(region), point);
    }
    let levels: Vec<u8> = queue.in_order().into_iter().map(|(_, level)| level).collect();
    assert_eq!(levels, [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2], "one, two and three sixths");
}

#[test]
fn regions_of_a_section_with_absolute_priorities_are_ordered_by_their_means() {
    let mut queue = Ripq::new(&RipqConfig { sections: 1, ..RipqConfig::plain(Caching::GDSF) }, &layout(8));
    let point = InsertionPoint(0);
    // The second mean is (12 * 2 + 4 * 10) / 16 = 4, between the others.
    for (region, items) in [(0, vec![(UNITS, 5.0)]), (1, vec![(12, 2.0), (4, 10.0)]), (2, vec![(UNITS, 3.0)])]
    {
        for (units, worth) in items {
            queue.enter(RegionId(region), point, Placing { level: 0, worth }, units);
        }
        queue.written(RegionId(region), point);
    }
    assert_eq!(queue.in_order(), [(RegionId(2), 0), (RegionId(1), 0), (RegionId(0), 0)]);
}

#[test]
fn lower_priority_does_not_move_an_item() {
    let config = RipqConfig { sections: 4, ..RipqConfig::plain(Caching::Slru { segments: 2 }) };
    let mut queue = Ripq::new(&config, &layout(8));
    let mut low = fill(&mut queue, 0, 1)[0];
    let mut high = fill(&mut queue, 1, 3)[0];
    queue.caching = Caching::Slru { segments: 4 }.build(4);
    // From the middle of the queue, a hit in the second of four segments leads to the third.
    assert!(hit(&mut queue, &mut low));
    assert_eq!(queue.queue.section_of(low.region, low.rank), 2);
    // Now with one segment fewer than sections: the target segment is behind the item's position.
    queue.caching = Box::new(Lowest);
    let before = (low, high);
    assert!(!hit(&mut queue, &mut low) && !hit(&mut queue, &mut high));
    assert_eq!((low.rank, high.rank), (before.0.rank, before.1.rank));
}

/// A policy that inserts every item at the end of the queue.
struct Lowest;

impl CachingPolicy for Lowest {
    fn insert(&self, _object: &Object, _queue: &QueueState) -> Priority {
        Priority::Relative(0.0)
    }

    fn hit(&self, _object: &Object, _queue: &QueueState) -> Priority {
        Priority::Relative(0.0)
    }
}

#[test]
fn priority_maps_to_the_nearest_insertion_point_at_or_above() {
    let queue = Ripq::new(&RipqConfig::plain(Caching::Lru), &layout(16));
    for (share, level) in
        [(0.0, 0), (0.125, 0), (0.126, 1), (0.25, 1), (0.5, 3), (0.51, 4), (0.99, 7), (1.0, 7)]
    {
        assert_eq!(queue.level_of(share), level, "{share}");
    }
}

#[test]
fn idle_ranks_are_used_again_when_none_is_free() {
    let mut queue = lru(1);
    let mut item = fill(&mut queue, 0, 0)[0];
    // One region has 32 ranks. A block is full with an item of a whole region, and idle after the item is raised again.
    for raise in 0..31 {
        queue.left(&item);
        item = Resident { rank: queue.queue.active(1), units: UNITS, ..item };
        assert!(!item.rank.is_none(), "raise {raise}");
        queue.queue.add(item.region, item.rank, Counted { units: UNITS, worth: 0.0 });
    }
    assert!(!queue.queue.active(1).is_none(), "the last rank");
    assert!(!queue.queue.active(0).is_none(), "an idle one");
}

/// Catches a regression: with all ranks in use, each raise searches the whole queue for a free one, and all raised
/// items are inserted into the last block.
#[test]
fn raise_in_a_long_queue_does_not_visit_all_of_it() {
    let regions = 75_000;
    let mut queue = lru(regions + 5_000);
    let mut items: Vec<_> = (0..regions).flat_map(|region| fill(&mut queue, region, 1)).collect();
    let mut random = StdRng::seed_from_u64(0);
    for _ in 0..3 {
        items.shuffle(&mut random);
        items.iter_mut().for_each(|item| {
            hit(&mut queue, item);
        });
    }
    let (sweeps, largest) = (queue.queue.sweeps, queue.queue.largest_virtual());
    assert!(sweeps < 30, "{sweeps} looks at the whole line");
    assert!(largest < 100, "{largest} units in one block");
}
