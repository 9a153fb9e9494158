//! Blocks that were inserted clean, and when a crash no longer drops them from the cache.

use std::sync::Arc;

use device::timer::SystemTimer;
use device::wrap::GateDevice;
use device::{Device, IoBuffer, MemoryDevice, RequestKind};
use flashwright_block::volume::{Recovery, Volume};

use crate::world::{Shape, World, config};

const BLOCK: u64 = 4096;

/// The result of opening the volume after a kill.
fn recovered(flash: &MemoryDevice, disk: &Arc<dyn Device>) -> Recovery {
    let flash: Arc<dyn Device> = Arc::new(flash.duplicate());
    let opened = Volume::open(flash, Arc::clone(disk), Arc::new(SystemTimer::default()));
    pollster::block_on(opened).unwrap().1
}

/// A block counts as held as soon as it has a slot. A flush does not wait for the pages of blocks that were read.
#[test]
fn block_being_inserted_is_counted_as_uncommitted_and_dropped_by_a_kill() {
    let memory = Arc::new(MemoryDevice::new(4 << 20));
    let gate = Arc::new(GateDevice::new(memory.clone()));
    let (flash, disk): (Arc<dyn Device>, Arc<dyn Device>) =
        (gate.clone(), Arc::new(MemoryDevice::new(8 << 20)));
    pollster::block_on(async {
        Volume::create(&flash, &disk, &config(), 5).await.unwrap();
        let (volume, _) =
            Volume::open(flash.clone(), disk.clone(), Arc::new(SystemTimer::default())).await.unwrap();
        volume.write(0, IoBuffer::zeroed(4096).into(), true).await.unwrap();
        gate.close(RequestKind::Write);
        for block in 1..=10 {
            volume.read(block * BLOCK, BLOCK as usize).await.unwrap();
        }
        let blocks = |volume: &Volume| {
            let stats = volume.stats();
            (stats.held_blocks, stats.uncommitted_blocks)
        };
        assert_eq!(blocks(&volume), (11, 10));
        volume.flush().await.unwrap();
        assert_eq!(blocks(&volume), (11, 10), "the flush made no block of them durable");
        assert_eq!(recovered(&memory, &disk).blocks, 1);
        assert_eq!(gate.open(), 10);
        assert_eq!(blocks(&volume), (11, 10), "no commit has them");
        volume.clean().await.unwrap();
        assert_eq!(blocks(&volume), (11, 0));
        assert_eq!(recovered(&memory, &disk).blocks, 11);
    });
}

/// With and without a client that writes and flushes, which the intent log alone makes durable.
#[test]
fn inserted_blocks_are_committed_within_seconds() {
    for writes in [false, true] {
        let world = World::new(8, Shape::default());
        let volume = world.volume(&config());
        let (upkeep, clock) = (volume.clone(), world.simulation.world());
        world.simulation.spawn(async move { upkeep.run_upkeep().await });
        world.run(async move {
            for round in 0..3 {
                for block in 0..10 {
                    volume.read((100 + round * 10 + block) * BLOCK, BLOCK as usize).await.unwrap();
                }
                for step in 0..22 {
                    if writes {
                        volume.write(step % 5 * BLOCK, IoBuffer::zeroed(4096).into(), true).await.unwrap();
                    }
                    clock.sleep(100_000_000).await;
                }
                let stats = volume.stats();
                assert_eq!(stats.uncommitted_blocks, 0, "round {round}, writes {writes}");
                let most = 2 * (round + 1);
                assert!(
                    stats.io.commits <= most,
                    "round {round}, writes {writes}: {} commits",
                    stats.io.commits
                );
            }
            volume.close().await.unwrap();
        });
    }
}
