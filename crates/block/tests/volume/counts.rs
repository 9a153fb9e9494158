//! Statistics that clients and operators rely on.

use device::IoBuffer;
use flashwright_block::volume::VolumeConfig;

use crate::world::{Shape, World, config};

/// Each attempt to find space must not count as another write.
#[test]
fn ordered_write_that_waits_is_counted_once() {
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

/// Each cleaning run ends with an internal flush.
#[test]
fn internal_flushes_are_not_counted_as_client_flushes() {
    for ordered in [false, true] {
        let world = World::new(1, Shape::default());
        let volume = world.volume(&VolumeConfig { ordered, ..config() });
        world.run(async move {
            volume.write(0, IoBuffer::copy_of(&[1; 4096]).into(), false).await.unwrap();
            volume.clean().await.unwrap();
            assert_eq!(volume.stats().io.client_flushes, 0);
            volume.write(0, IoBuffer::copy_of(&[1; 4096]).into(), true).await.unwrap();
            assert_eq!(volume.stats().io.client_flushes, 1);
        });
    }
}

/// A group of few sets has fewer spare pages than others; the threshold for commits must take that into account.
#[test]
fn writes_to_the_last_group_cause_no_extra_commits() {
    let shape = Shape { flash_bytes: 270 << 20, disk_bytes: 8 << 30, ..Shape::default() };
    let commits = |set: u64| {
        let world = World::new(1, shape);
        let placement = flashwright_block::sets::Placement::Linear;
        let volume = world.volume(&VolumeConfig { placement, ways: 512, ..config() });
        let sets = u64::from(volume.superblock().layout.sets);
        let per_group = u64::from(volume.superblock().layout.sets_per_group());
        assert!((1..=4).contains(&(sets % per_group)), "a small group is last");
        let first = if set == 0 { 0 } else { (sets - sets % per_group) * 512 };
        let ways = sets % per_group * 512;
        world.run(async move {
            for number in 0..8000 {
                let data = IoBuffer::copy_of(&[1; 4096]).into();
                volume.write((first + number % ways) * 4096, data, false).await.unwrap();
            }
            volume.stats().io.commits
        })
    };
    let (first, last) = (commits(0), commits(1));
    assert!(last <= 2 * first + 30, "{last} commits instead of {first}");
}

/// Each block counts, as in a replay and in Flashcache.
#[test]
fn blocks_in_one_flash_transfer_are_counted_separately() {
    let world = World::new(1, Shape::default());
    let volume = world.volume(&config());
    world.run(async move {
        volume.write(0, IoBuffer::copy_of(&[1; 16 << 10]).into(), false).await.unwrap();
        let of_flash = || {
            let counters = volume.stats().counters;
            (counters.ssd_reads, counters.ssd_writes)
        };
        assert_eq!(of_flash(), (0, 4));
        volume.read(0, 16 << 10).await.unwrap();
        assert_eq!(of_flash(), (4, 4));
        volume.clean().await.unwrap();
        assert_eq!(of_flash(), (8, 4));
        volume.read(64 << 10, 16 << 10).await.unwrap();
        assert_eq!(of_flash(), (8, 8));
    });
}
