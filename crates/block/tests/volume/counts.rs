//! Statistics that clients and operators rely on.

use device::IoBuffer;
use flashwright_block::volume::{IoCounts, VolumeConfig};

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

/// A table entry has the slot (4 bytes) and its sectors (16); alignment and spare capacity may quadruple that.
#[test]
fn memory_bytes_of_partial_blocks_is_counted() {
    const BLOCKS: u64 = 100;
    let growth_of_writes_of = |bytes: usize| {
        let world = World::new(1, Shape { flash_bytes: 32 << 20, ..Shape::default() });
        let volume = world.volume(&config());
        world.run(async move {
            let before = volume.stats().memory_bytes;
            for block in 0..BLOCKS {
                let data = IoBuffer::copy_of(&vec![1; bytes]).into();
                volume.write(block * 4096, data, false).await.unwrap();
            }
            assert_eq!(volume.stats().dirty_blocks, BLOCKS);
            volume.stats().memory_bytes - before
        })
    };
    let of_partial = growth_of_writes_of(512) - growth_of_writes_of(4096);
    assert!(
        (20 * BLOCKS..=80 * BLOCKS).contains(&of_partial),
        "{of_partial} bytes for {BLOCKS} partial blocks"
    );
}

#[test]
fn zeroed_statistics_count_from_0() {
    let world = World::new(1, Shape::default());
    let volume = world.volume(&config());
    world.run(async move {
        volume.write(0, IoBuffer::copy_of(&[1; 4096]).into(), true).await.unwrap();
        let stats = volume.stats();
        assert_eq!((stats.counters.writes, stats.io.client_flushes), (1, 1));
        volume.zero_stats();
        let stats = volume.stats();
        assert_eq!((stats.counters.writes, stats.io), (0, IoCounts::default()));
    });
}
