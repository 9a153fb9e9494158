//! A full cache with reads only: read misses are inserted without writes or flushes.

use std::sync::Arc;

use device::timer::SystemTimer;
use device::wrap::GateDevice;
use device::{Device, IoBuffer, MemoryDevice, RequestKind};
use flashwright_block::sets::Mode;
use flashwright_block::volume::{Stats, Volume, VolumeConfig};

use crate::world::{Shape, World, config};

const BLOCK: u64 = 4096;

/// Reads each block of the disk once, one per request, in an order that is not sequential.
async fn read_each(volume: &Volume, blocks: std::ops::Range<u64>) {
    let count = blocks.end - blocks.start;
    for number in 0..count {
        // 389 is odd and `count` a power of two, so each block occurs once.
        let block = blocks.start + number * 389 % count;
        volume.read(block * BLOCK, BLOCK as usize).await.unwrap();
    }
}

fn read_hits_of_a_shifted_working_set(config: &VolumeConfig) -> (u64, Stats) {
    let world = World::new(1, Shape { disk_bytes: 16 << 20, ..Shape::default() });
    let volume = world.volume(config);
    let upkept = volume.clone();
    world.simulation.spawn(async move { upkept.run_upkeep().await });
    world.run(async move {
        // Fills the cache with committed blocks, then reads a working set that fits.
        read_each(&volume, 0..2048).await;
        volume.flush().await.unwrap();
        for _ in 0..4 {
            read_each(&volume, 2048..2304).await;
        }
        let before = volume.stats().counters.read_hits;
        read_each(&volume, 2048..2304).await;
        let stats = volume.stats();
        volume.close().await.unwrap();
        (stats.counters.read_hits - before, stats)
    })
}

/// Insertions must commit when pages run short, and not wait for a client's flush.
#[test]
fn full_cache_adapts_to_a_new_working_set_without_writes() {
    for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround] {
        let tuning = flashwright_block::sets::Tuning { mode, ..config().tuning };
        let (hits, stats) = read_hits_of_a_shifted_working_set(&VolumeConfig { tuning, ..config() });
        assert_eq!(hits, 256, "{mode:?}");
        // One commit per half of the spare pages, not one per miss.
        assert!(stats.io.commits <= stats.counters.replacement / 32, "{mode:?}: {}", stats.io.commits);
    }
}

/// The upkeep writes the table that frees the journal.
#[test]
fn full_cache_adapts_to_a_new_working_set_with_a_full_journal() {
    let smallest = VolumeConfig { journal_bytes: Some(0), ..config() };
    let (hits, stats) = read_hits_of_a_shifted_working_set(&smallest);
    assert_eq!(hits, 256);
    assert!(stats.io.checkpoints > 0, "the journal never filled up");
}

/// Blocks for which no page is free must not evict others.
#[test]
fn blocks_without_a_free_page_are_counted_and_evict_nothing() {
    let world = World::new(1, Shape { flush_ns: 10_000_000_000, ..Shape::default() });
    let volume = world.volume(&config());
    let held = world.run({
        let volume = volume.clone();
        async move {
            read_each(&volume, 0..1024).await;
            volume.flush().await.unwrap();
            volume.stats().held_blocks
        }
    });
    let before = volume.stats().counters;
    // All these reads complete before the first commit.
    let reader = volume.clone();
    world.run(async move { read_each(&reader, 1024..2048).await });
    let stats = volume.stats();
    let (reads, came_in) =
        (stats.counters.reads - before.reads, stats.counters.replacement - before.replacement);
    let kept_out = stats.counters.no_room - before.no_room;
    assert!(kept_out > 500, "{kept_out}");
    assert_eq!(stats.counters.uncached_reads - before.uncached_reads, kept_out);
    assert_eq!((reads, stats.held_blocks), (came_in + kept_out, held));
}

/// A mode that does not insert on reads does not reject blocks for lack of space.
#[test]
fn bypassed_reads_do_not_count_as_rejected_for_space() {
    let world = World::new(1, Shape::default());
    let volume = world.volume(&config());
    world.run(async move {
        for block in 0..1000 {
            volume.write(block * BLOCK, IoBuffer::copy_of(&[1; 4096]).into(), false).await.unwrap();
        }
        let tuning = volume.superblock().tuning;
        let tuning = flashwright_block::sets::Tuning { mode: Mode::WriteOnly, ..tuning };
        volume.set_tuning(tuning).await.unwrap();
        let before = volume.stats().counters.no_room;
        read_each(&volume, 1024..2048).await;
        assert_eq!(volume.stats().counters.no_room, before);
    });
}

/// Read blocks must not accumulate in memory if the flash is slower than the disk.
#[test]
fn read_blocks_waiting_for_the_flash_are_limited() {
    const AT_ONCE: u64 = 256 << 10;
    let flash = Arc::new(GateDevice::new(Arc::new(MemoryDevice::new(160 << 20))));
    let any_flash: Arc<dyn Device> = flash.clone();
    let disk: Arc<dyn Device> = Arc::new(MemoryDevice::new(96 << 20));
    let tuning = flashwright_block::sets::Tuning { read_bypass_bytes: 0, ..config().tuning };
    let config = VolumeConfig { tuning, ways: 512, journal_bytes: Some(16 << 20), ..config() };
    pollster::block_on(async {
        Volume::create(&any_flash, &disk, &config, 5).await.unwrap();
        let (volume, _) = Volume::open(any_flash, disk, Arc::new(SystemTimer::default())).await.unwrap();
        flash.close(RequestKind::Write);
        for number in 0..80 << 20 >> 18 {
            volume.read(number * AT_ONCE, AT_ONCE as usize).await.unwrap();
        }
        let counters = volume.stats().counters;
        assert_eq!(counters.ssd_writes, (64 << 20) / BLOCK);
        assert_eq!(counters.no_room, (16 << 20) / BLOCK);
        flash.open();
        volume.read(88 << 20, AT_ONCE as usize).await.unwrap();
        assert_eq!(volume.stats().held_blocks, (64 << 20) / BLOCK + AT_ONCE / BLOCK);
    });
}

#[test]
fn read_longer_than_a_segment_returns_its_bytes_in_order() {
    const MIB: usize = 1 << 20;
    let world = World::new(1, Shape::default());
    let volume = world.volume(&config());
    world.run(async move {
        for mib in 0..8 {
            let data = IoBuffer::copy_of(&vec![mib as u8 + 1; MIB]).into();
            volume.without_caching().write((mib * MIB) as u64, data, false).await.unwrap();
        }
        let read = volume.read(1536, 7 * MIB).await.unwrap();
        assert!((0..7 * MIB).all(|at| usize::from(read[at]) == (1536 + at) / MIB + 1));
    });
}
