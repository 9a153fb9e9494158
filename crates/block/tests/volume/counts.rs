//! Figures that clients and operators go by.

use device::IoBuffer;
use flashwright_block::volume::VolumeConfig;

use crate::world::{Shape, World, config};

/// Each attempt to find a place for it was counted as a write, and as one around the cache.
#[test]
fn a_write_that_waits_for_its_turn_in_an_ordered_volume_is_counted_once() {
    let world = World::new(1, Shape::default());
    let volume = world.volume(&VolumeConfig { ordered: true, ..config() });
    world.run(async move {
        for number in 0..1500_u64 {
            let data = IoBuffer::copy_of(&[1; 4096]).into();
            volume.write(number * 4096, data, false).await.unwrap();
        }
        let counters = volume.stats().counters;
        assert_eq!((counters.writes, counters.uncached_writes, counters.no_room), (1500, 0, 0));
    });
}
