//! The effect of cleaning on client latencies.

use std::cell::RefCell;
use std::rc::Rc;

use device::{Clock, IoBuffer};
use flashwright_block::sets::Tuning;
use flashwright_block::volume::{Volume, VolumeConfig};

use crate::world::{Shape, World, config};

/// Sorted latencies of reads of uncached blocks (`misses`) or of cached ones, while dirty blocks all over the disk are cleaned. Also
/// the seconds to clean 600 blocks, which are not adjacent, and the number of disk writes.
fn reads_while_cleaning(misses: bool, gate_ms: u32, clean: bool) -> (Vec<u64>, u64, u64) {
    let shape = Shape { flash_bytes: 8 << 20, disk_bytes: 64 << 20, ..Shape::default() };
    let world = World::new(1, shape);
    let tuning = Tuning { dirty_percent: 100, lazy_depth: 0, ..config().tuning };
    let volume = world.volume(&VolumeConfig { tuning, ..config() });
    let writer = volume.clone();
    world.run(async move {
        for block in 0..600_u64 {
            writer.write(block * 37 % 8000 * 4096, IoBuffer::zeroed(4096).into(), false).await.unwrap();
        }
        writer.flush().await.unwrap();
    });
    let (set, gated) = (volume.clone(), Tuning { latency_gate_ms: gate_ms, ..tuning });
    world.run(async move { set.set_tuning(gated).await.unwrap() });
    let latencies = Rc::new(RefCell::new(Vec::new()));
    let (clock, sleeper) = (world.simulation.clock(), world.simulation.world());
    let (reader, recorded) = (volume.clone(), latencies.clone());
    world.simulation.spawn(async move {
        for read in 0..2000_u64 {
            sleeper.sleep(30_000_000 + sleeper_jitter(read)).await;
            let block = if misses { 8100 + read * 3 } else { read * 37 % 300 * 37 % 8000 };
            let begun_ns = clock.monotonic_ns();
            reader.read(block * 4096, 4096).await.unwrap();
            recorded.borrow_mut().push(clock.monotonic_ns() - begun_ns);
        }
    });
    let mut seconds = 0;
    if clean {
        let clock = world.simulation.clock();
        let begun_ns = clock.monotonic_ns();
        let cleaner = volume.clone();
        let done = world.simulation.spawn(async move {
            cleaner.clean().await.unwrap();
            assert_eq!(cleaner.stats().dirty_blocks, 0);
            clock.monotonic_ns() - begun_ns
        });
        world.simulation.run_until_idle();
        seconds = done.result().unwrap() / 1_000_000_000;
    } else {
        world.simulation.run_until_idle();
    }
    let mut latencies = latencies.take();
    latencies.sort_unstable();
    (latencies, seconds, volume.stats().counters.disk_writes)
}

/// Random pauses, so that reads are not in step with the cleaning.
fn sleeper_jitter(read: u64) -> u64 {
    read * 7_919_381 % 20_000_000
}

fn p99(sorted: &[u64]) -> u64 {
    sorted[sorted.len() * 99 / 100]
}

#[test]
fn unlimited_cleaning_less_than_doubles_hit_latency() {
    let (quiet, ..) = reads_while_cleaning(false, 0, false);
    let (busy, ..) = reads_while_cleaning(false, 0, true);
    assert!(p99(&busy) <= 2 * p99(&quiet), "{} ns instead of {}", p99(&busy), p99(&quiet));
}

#[test]
fn latency_gate_lowers_miss_latency_and_cleaning_ends() {
    let (quiet, ..) = reads_while_cleaning(true, 0, false);
    let (full, fast, _) = reads_while_cleaning(true, 0, true);
    let (gated, slow, writes) = reads_while_cleaning(true, 8, true);
    let above = |latencies: &[u64]| latencies.iter().filter(|&&latency| latency > 8_000_000).count();
    assert_eq!(above(&quiet), 0);
    let during_full = full.len() as u64 / 60 * fast;
    assert!(above(&full) as u64 * 4 > during_full / 3, "without a gate many are held up: {}", above(&full));
    assert!(
        above(&gated) <= gated.len() / 100 + 3,
        "{} of {} are above the gate",
        above(&gated),
        gated.len()
    );
    assert!(slow > fast && slow < 600, "cleaning took {fast} and {slow} s");
    // Runs in flight when the gate closed were written again.
    assert_eq!(writes, 600);
}

/// The setting is stored in the superblock.
#[test]
fn latency_gate_survives_reopening() {
    let world = World::new(1, Shape::default());
    let volume = world.volume(&config());
    let used = |volume: &Volume| {
        let volume = volume.clone();
        world.run(async move {
            for _ in 0..40 {
                volume.read(0, 4096).await.unwrap();
            }
            volume.stats().latency_ns_p99
        })
    };
    assert_eq!(used(&volume), None);
    let (set, tuning) = (volume.clone(), Tuning { latency_gate_ms: 20, ..config().tuning });
    world.run(async move { set.set_tuning(tuning).await.unwrap() });
    assert!(used(&volume).is_some());
    drop(volume);
    let volume = world.open();
    assert_eq!(volume.superblock().tuning.latency_gate_ms, 20);
    assert!(used(&volume).is_some());
    let set = volume.clone();
    world.run(async move { set.set_tuning(config().tuning).await.unwrap() });
    assert_eq!(used(&volume), None);
}
