//! Writes to sets in which all blocks are dirty.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use device::wrap::Mechanics;
use device::{Clock, IoBuffer, Request, Simulation};
use flashwright_block::sets::Tuning;
use flashwright_block::volume::{Volume, VolumeConfig};

use crate::faulty::{Faulty, opened};
use crate::world::{Shape, World, config};

const BLOCK: u64 = 4096;

/// Nothing is cleaned before a write needs a slot.
fn lazy() -> VolumeConfig {
    let tuning = Tuning { dirty_percent: 100, lazy_depth: 0, ..config().tuning };
    VolumeConfig { tuning, ..config() }
}

async fn write(volume: &Volume, block: u64, byte: u8) {
    volume.write(block * BLOCK, IoBuffer::copy_of(&[byte; BLOCK as usize]).into(), false).await.unwrap();
}

/// A volume with every block dirty.
fn all_dirty(world: &World) -> Volume {
    let volume = world.volume(&lazy());
    let writer = volume.clone();
    world.run(async move {
        let disk_blocks = writer.size_bytes() / BLOCK;
        for block in 0..disk_blocks {
            if writer.stats().dirty_blocks == writer.stats().capacity_blocks {
                return;
            }
            // Blocks for which there is no slot are left out.
            if writer.stats().io.room_waits == 0 {
                write(&writer, block, 1).await;
            }
        }
    });
    volume
}

/// If such writes bypassed the cache, they would take the disk's time from the cleaning, and the cache would stay full of cold
/// blocks.
#[test]
fn hot_writes_are_cached_in_a_cache_full_of_cold_dirty_blocks() {
    let world = World::new(1, Shape { disk_bytes: 64 << 20, ..Shape::default() });
    let volume = all_dirty(&world);
    let before = volume.stats();
    assert!(before.dirty_blocks * 10 >= before.capacity_blocks * 9, "{before:?}");
    let (clients, rounds, hot) = (8, 500, 256);
    for client in 0..clients {
        let volume = volume.clone();
        world.simulation.spawn(async move {
            for round in 0..rounds {
                write(&volume, 8192 + (client * 7919 + round * 613) % hot, round as u8).await;
            }
        });
    }
    world.simulation.run_until_idle();
    let after = volume.stats();
    let written = after.counters.disk_writes - before.counters.disk_writes;
    assert_eq!(after.counters.writes - before.counters.writes, clients * rounds);
    assert_eq!(after.counters.uncached_writes, 0);
    assert!(after.io.room_waits > 0, "no write waited for a slot");
    // Each hot block replaces a cold one, some of them before their last write.
    assert!(written <= 2 * hot, "{written} writes of the disk");
    world.run(async move {
        volume.clean().await.unwrap();
        assert_eq!(volume.stats().dirty_blocks, 0);
    });
}

/// The latency gate must not pause the cleaning that these writes wait for.
#[test]
fn writes_waiting_for_slots_do_not_pause_cleaning() {
    let world = World::new(1, Shape { disk_bytes: 64 << 20, ..Shape::default() });
    let volume = all_dirty(&world);
    // One block at a time, so that each write waits.
    let tuning = Tuning { latency_gate_ms: 5, clean_run_blocks: 1, ..lazy().tuning };
    let (upkeep, client, clock) = (volume.clone(), volume.clone(), world.simulation.clock());
    world.simulation.spawn(async move { upkeep.run_upkeep().await });
    let took_ns = world.run(async move {
        client.set_tuning(tuning).await.unwrap();
        let begun_ns = clock.monotonic_ns();
        for block in 0..200 {
            write(&client, 8192 + block * 3, 2).await;
        }
        let took_ns = clock.monotonic_ns() - begun_ns;
        client.close().await.unwrap();
        took_ns
    });
    assert!(volume.stats().io.room_waits >= 100, "{:?}", volume.stats().io);
    // One head movement each.
    assert!(took_ns < 200 * 10_000_000, "{} ms", took_ns / 1_000_000);
}

/// A write that waits for this cleaning would wait forever.
#[test]
fn write_does_not_wait_for_a_disk_that_refuses_all_cleaning() {
    let simulation = Simulation::new(1);
    let world = simulation.world();
    let (flash, disk) = (Faulty::new(4 << 20), Faulty::new(64 << 20));
    simulation.block_on(async move {
        let volume = opened((flash, disk.clone()), &lazy(), Arc::new(world)).await;
        let is_low =
            |request: &Request| matches!(request, Request::Write { offset, .. } if *offset < 32 << 20);
        disk.fail(is_low);
        for block in 0..2000 {
            let data = IoBuffer::copy_of(&[7; BLOCK as usize]);
            // Writes without a slot fail with the disk's error.
            drop(volume.write(block * BLOCK, data.into(), false).await);
        }
        let before = volume.stats();
        write(&volume, 8192 + 77, 9).await;
        let after = volume.stats();
        assert_eq!(after.counters.uncached_writes - before.counters.uncached_writes, 1);
        assert_eq!(disk.places_of(&[9; 16]), [(8192 + 77) * BLOCK]);
        // The disk accepts writes again.
        disk.fail(|_| false);
        write(&volume, 8192 + 78, 10).await;
        volume.clean().await.unwrap();
        assert_eq!(volume.stats().dirty_blocks, 0);
        assert_eq!(disk.places_of(&[10; 16]), [(8192 + 78) * BLOCK]);
    });
}

/// The disk must stay busy while a batch is committed or flushed.
#[test]
fn disk_stays_busy_while_writes_wait_for_slots() {
    let flushes = Shape { flush_ns: 5_000_000, disk_flush_ns: 10_000_000, ..Shape::default() };
    let world = World::new(1, Shape { disk_bytes: 64 << 20, ..flushes });
    let volume = all_dirty(&world);
    let (set, tuning) = (volume.clone(), Tuning { clean_run_blocks: 1, ..lazy().tuning });
    world.run(async move { set.set_tuning(tuning).await.unwrap() });
    let (clock, seeks) = (world.simulation.clock(), world.disk.seeks());
    let begun_ns = clock.monotonic_ns();
    for client in 0..8 {
        let volume = volume.clone();
        world.simulation.spawn(async move {
            for round in 0..100 {
                write(&volume, 8192 + (client * 100 + round) * 7, 2).await;
            }
        });
    }
    world.simulation.run_until_idle();
    let moving_ns = (world.disk.seeks() - seeks) * Mechanics::default().seek_ns;
    let took_ns = clock.monotonic_ns() - begun_ns;
    assert!(volume.stats().io.room_waits >= 700, "{:?}", volume.stats().io);
    assert!(moving_ns * 5 >= took_ns * 4, "{} of {} ms", moving_ns / 1_000_000, took_ns / 1_000_000);
}

/// New writes must not take freshly cleaned slots from waiting ones.
#[test]
fn waiting_writes_get_slots_before_later_ones() {
    let world = World::new(1, Shape { disk_bytes: 64 << 20, ..Shape::default() });
    let volume = all_dirty(&world);
    // One head movement for each inserted block.
    let (set, tuning) = (volume.clone(), Tuning { clean_run_blocks: 1, ..lazy().tuning });
    world.run(async move { set.set_tuning(tuning).await.unwrap() });
    let longest_ns = Rc::new(Cell::new(0));
    for client in 0..16 {
        let (volume, longest_ns, clock) = (volume.clone(), Rc::clone(&longest_ns), world.simulation.clock());
        world.simulation.spawn(async move {
            for round in 0..40 {
                let begun_ns = clock.monotonic_ns();
                // Blocks of few sets, each requested once.
                write(&volume, 8192 + (client * 40 + round) * 12, 2).await;
                longest_ns.set(longest_ns.get().max(clock.monotonic_ns() - begun_ns));
            }
        });
    }
    world.simulation.run_until_idle();
    assert!(volume.stats().io.room_waits >= 600, "{:?}", volume.stats().io);
    // 16 wait, so 16 head movements each on average; those of a set that is cleaned two blocks at a time wait longer.
    assert!(longest_ns.get() <= 40 * 7_100_000, "{} ms", longest_ns.get() / 1_000_000);
}

/// The waiting write that cleans for all must not get the error of the cleaning's flush.
#[test]
fn write_waiting_for_a_slot_succeeds_if_the_flush_of_cleaning_fails() {
    let simulation = Simulation::new(1);
    let world = simulation.world();
    let (flash, disk) = (Faulty::new(4 << 20), Faulty::new(64 << 20));
    simulation.block_on(async move {
        let volume = opened((flash, disk.clone()), &lazy(), Arc::new(world)).await;
        disk.fail(|request| matches!(request, Request::Flush));
        for block in 0..2000 {
            write(&volume, block, 7).await;
        }
        assert!(volume.stats().counters.uncached_writes > 0 && volume.stats().io.room_waits > 0);
    });
}

/// Writes that wait for an epoch count as waiting for cleaning too.
#[test]
fn ordered_writes_waiting_for_an_epoch_ignore_the_latency_gate() {
    let world = World::new(1, Shape { disk_bytes: 64 << 20, ..Shape::default() });
    let tuning = Tuning { latency_gate_ms: 5, ..lazy().tuning };
    let volume = world.volume(&VolumeConfig { ordered: true, tuning, ..lazy() });
    let (upkeep, clock) = (volume.clone(), world.simulation.clock());
    world.simulation.spawn(async move { upkeep.run_upkeep().await });
    let (client, reader) = (volume.clone(), volume.clone());
    let sleeper = world.simulation.world();
    world.simulation.spawn(async move {
        // Misses that are all slower than the gate.
        for read in 0..600_u64 {
            sleeper.sleep(50_000_000).await;
            if reader.read(12_000 * BLOCK + read * 5 * BLOCK, 4096).await.is_err() {
                return;
            }
        }
    });
    let took_ns = world.run(async move {
        let begun_ns = clock.monotonic_ns();
        for block in 0..1200 {
            write(&client, block * 3, 2).await;
        }
        let took_ns = clock.monotonic_ns() - begun_ns;
        client.close().await.unwrap();
        took_ns
    });
    assert!(volume.stats().io.room_waits > 0, "{:?}", volume.stats().io);
    assert!(took_ns < 20_000_000_000, "{} ms", took_ns / 1_000_000);
}

/// Repeated attempts must not count as uses of the write's cached blocks.
#[test]
fn write_waiting_for_a_slot_uses_its_cached_blocks_once() {
    let world = World::new(1, Shape { disk_bytes: 64 << 20, ..Shape::default() });
    let volume = world.volume(&lazy());
    world.run(async move {
        // Each set has half of one run of 64 KiB and half of another.
        let sets = volume.stats().capacity_blocks / 16;
        for block in (0..2 * sets * 16).filter(|block| block % 16 < 8) {
            write(&volume, block, 1).await;
        }
        assert_eq!((volume.stats().dirty_blocks, volume.stats().io.room_waits), (sets * 16, 0));
        // One cached block and one uncached block.
        let both = || IoBuffer::copy_of(&[3; 2 * BLOCK as usize]).into();
        volume.write(7 * BLOCK, both(), false).await.unwrap();
        assert!(volume.stats().io.room_waits > 0);
        assert_eq!(volume.stats().promotions, 0, "one write is one use");
        volume.write(7 * BLOCK, both(), false).await.unwrap();
        assert_eq!(volume.stats().promotions, 1);
    });
}
