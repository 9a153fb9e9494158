//! The number of flash flushes, by counting, not timing.

use std::sync::Arc;

use device::IoBuffer;
use flashwright_block::sets::Tuning;
use flashwright_block::volume::{Volume, VolumeConfig};

use crate::world::{Shape, World, config};

/// Number of flash flushes, and of acknowledged client flushes.
fn count(clients: u64, flush_ns: u64) -> (u64, u64) {
    // No client waits for the disk, so all of them wait for the flash together.
    let world = World::new(clients, Shape { flush_ns, flash_bytes: 16 << 20, ..Shape::default() });
    let volume = world.volume(&config());
    let before = world.flash.counters().flushes;
    for client in 0..clients {
        let volume = volume.clone();
        world.simulation.spawn(async move {
            for round in 0..40 {
                let data = IoBuffer::copy_of(&[client as u8; 4096]);
                let offset = (client * 64 + round % 16) * 4096;
                // FUA and FLUSH in turn.
                volume.write(offset, data.into(), round % 2 == 0).await.unwrap();
                if round % 2 == 1 {
                    volume.flush().await.unwrap();
                }
            }
        });
    }
    world.simulation.run_until_idle();
    (world.flash.counters().flushes - before, volume.stats().io.client_flushes)
}

#[test]
fn concurrent_client_flushes_share_flash_flushes() {
    for flush_ns in [500_000, 3_000_000] {
        assert_eq!(count(1, flush_ns), (40, 40));
        for clients in [2, 8, 32] {
            let (flash, acknowledged) = count(clients, flush_ns);
            assert_eq!(acknowledged, 40 * clients);
            // While one flush is in flight, the others wait for the next.
            assert!(
                flash * clients <= 4 * acknowledged,
                "{clients} clients: {flash} flushes for {acknowledged}"
            );
            assert!(flash <= acknowledged);
        }
    }
}

#[test]
fn writes_flush_rarely_and_empty_flushes_never() {
    let world = World::new(3, Shape::default());
    let volume = world.volume(&config());
    let before = world.flash.counters().flushes;
    let work = |volume: Volume| async move {
        for block in 0..100 {
            volume.write(block * 4096, IoBuffer::zeroed(4096).into(), false).await.unwrap();
        }
    };
    world.run(work(volume.clone()));
    // Each write takes a block of the intent log, which is emptied when three quarters of it are used.
    let most = 100 * 4 / (3 * volume.superblock().layout.intent_log_blocks());
    assert!(world.flash.counters().flushes - before <= most, "more than {most}");
    let before = world.flash.counters().flushes;
    let flush = |volume: Volume| async move { volume.flush().await.unwrap() };
    world.run(flush(volume.clone()));
    world.run(flush(volume));
    assert_eq!(world.flash.counters().flushes, before + 1);
}

/// Commits free pages; a client that never flushes must not cause one per write.
#[test]
fn client_without_flushes_causes_one_flush_per_many_writes() {
    let world = World::new(4, Shape::default());
    let volume = world.volume(&config());
    let before = world.flash.counters().flushes;
    let work = |volume: Volume| async move {
        for write in 0..4000_u64 {
            let offset = write * 7919 % 500 * 4096;
            volume.write(offset, IoBuffer::zeroed(4096).into(), false).await.unwrap();
        }
    };
    world.run(work(volume));
    let flushes = world.flash.counters().flushes - before;
    assert!(flushes * 32 <= 4000, "{flushes} flushes for 4000 writes");
}

/// Cleaning waits for client commits that are expected soon, instead of committing itself.
#[test]
fn cleaning_uses_commits_of_clients_that_flush_often() {
    // With 0, new dirty blocks are cleaned immediately.
    for (writes_per_flush, dirty_percent) in [(4, 20), (16, 20), (64, 20), (4, 0), (16, 0)] {
        let world = World::new(5, Shape { flash_bytes: 16 << 20, disk_bytes: 64 << 20, ..Shape::default() });
        let tuning = Tuning { dirty_percent, lazy_depth: 0, ..config().tuning };
        let volume = world.volume(&VolumeConfig { tuning, ..config() });
        let (upkeep, client, clock) = (volume.clone(), volume.clone(), world.simulation.world());
        world.simulation.spawn(async move { upkeep.run_upkeep().await });
        let before = world.flash.counters().flushes;
        let flash = Arc::clone(&world.flash);
        let (flushes, stats) = world.run(async move {
            for write in 0..6400_u64 {
                let offset = write * 7919 % 12_000 * 4096;
                client.write(offset, IoBuffer::zeroed(4096).into(), false).await.unwrap();
                if write % writes_per_flush == 0 {
                    client.flush().await.unwrap();
                    clock.sleep(writes_per_flush * 10_000_000).await;
                }
            }
            let counts = (flash.counters().flushes - before, client.stats());
            client.close().await.unwrap();
            counts
        });
        assert!(stats.counters.cleanings > 3000, "{:?}", stats.counters);
        // A table takes three.
        let most = stats.io.client_flushes + 3 * stats.io.checkpoints;
        assert!(flushes <= most, "{flushes} flushes of flash for {most}");
    }
}

/// Cleaning them together would need an additional flush of the flash.
#[test]
fn committed_block_is_cleaned_without_uncommitted_neighbours() {
    let world = World::new(6, Shape::default());
    let tuning = Tuning { dirty_percent: 20, lazy_depth: 0, cleanings_total: 1, ..config().tuning };
    let volume = world.volume(&VolumeConfig { tuning, ..config() });
    let (flash, clock) = (Arc::clone(&world.flash), world.simulation.world());
    world.run(async move {
        let write = async |block: u64| {
            volume.write(block * 4096, IoBuffer::zeroed(4096).into(), false).await.unwrap();
        };
        for block in 0..8 {
            write(block).await;
        }
        volume.flush().await.unwrap();
        for block in 8..16 {
            write(block).await;
        }
        // No further client flush is expected.
        clock.sleep(2_000_000_000).await;
        let before = flash.counters().flushes;
        assert!(volume.upkeep().await.unwrap());
        assert_eq!((volume.stats().counters.cleanings, flash.counters().flushes - before), (8, 0));
        // The other blocks require a commit, so the cleaning makes one.
        while volume.upkeep().await.unwrap() {}
        assert_eq!((volume.stats().dirty_blocks, flash.counters().flushes - before), (0, 1));
    });
}
