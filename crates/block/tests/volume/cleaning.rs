//! Cleaning of unreadable or unwritable blocks, and with concurrent writes.

use std::sync::Arc;

use device::sim::LatencyModel;
use device::timer::SystemTimer;
use device::{Clock, Device, IoBuffer, MemoryDevice, Request, SimulatedDevice, Simulation};
use flashwright_block::sets::{Mode, Tuning};
use flashwright_block::volume::{Volume, VolumeConfig, VolumeErrorKind};

use crate::faulty::{Faulty, opened};
use crate::world::{Shape, World, config, smallest_journal};

const BLOCK: u64 = 4096;

/// Cleans only on request.
fn lazy() -> VolumeConfig {
    let tuning = Tuning { dirty_percent: 100, lazy_depth: 0, ..config().tuning };
    VolumeConfig { ways: 512, tuning, ..config() }
}

/// Different bytes for each block.
fn block_of(number: u64) -> Vec<u8> {
    [b"block", &number.to_le_bytes()[..], &[0xee; 3]].concat().repeat(BLOCK as usize / 16)
}

async fn write(volume: &Volume, number: u64) {
    volume.write(number * BLOCK, IoBuffer::copy_of(&block_of(number)).into(), false).await.unwrap();
}

/// Block numbers: 16 adjacent blocks, and 59 blocks without a neighbour.
fn dirty_blocks() -> Vec<u64> {
    (0..16).chain((1..60).map(|number| number * 20)).collect()
}

struct Pair {
    flash: Arc<Faulty>,
    disk: Arc<Faulty>,
    volume: Volume,
}

impl Pair {
    fn with_dirty_blocks() -> Self {
        let (flash, disk) = (Faulty::new(8 << 20), Faulty::new(8 << 20));
        let (one, other): (Arc<dyn Device>, Arc<dyn Device>) = (flash.clone(), disk.clone());
        let volume = pollster::block_on(async {
            Volume::create(&one, &other, &lazy(), 5).await.unwrap();
            let (volume, _) = Volume::open(one, other, Arc::new(SystemTimer::default())).await.unwrap();
            for number in dirty_blocks() {
                write(&volume, number).await;
            }
            volume.flush().await.unwrap();
            volume
        });
        assert_eq!(volume.stats().dirty_blocks, 75);
        Self { flash, disk, volume }
    }

    /// Which of the blocks the disk has.
    fn on_disk(&self) -> Vec<u64> {
        let has = |number: &u64| self.disk.places_of(&block_of(*number)[..16]) == [number * BLOCK];
        dirty_blocks().into_iter().filter(has).collect()
    }
}

/// Other blocks of the same run are written nevertheless.
#[test]
fn unreadable_dirty_block_does_not_stop_cleaning_of_others() {
    let pair = Pair::with_dirty_blocks();
    let bad: Vec<u64> =
        [5, 400].into_iter().flat_map(|number| pair.flash.places_of(&block_of(number)[..16])).collect();
    assert_eq!(bad.len(), 2);
    pair.flash.fail(move |request| match request {
        Request::Read { offset, buffer } => {
            bad.iter().any(|place| (*offset..*offset + buffer.len() as u64).contains(place))
        }
        _ => false,
    });
    let error = pollster::block_on(pair.volume.clean()).unwrap_err();
    assert_eq!(error.kind(), VolumeErrorKind::Flash);
    let expected: Vec<u64> = dirty_blocks().into_iter().filter(|number| ![5, 400].contains(number)).collect();
    assert_eq!(pair.on_disk(), expected);
    assert_eq!(pair.volume.stats().dirty_blocks, 2);
    pair.flash.fail(|_| false);
    pollster::block_on(pair.volume.clean()).unwrap();
    assert_eq!(pair.on_disk(), dirty_blocks());
}

#[test]
fn unwritable_disk_block_does_not_stop_cleaning_of_others() {
    let pair = Pair::with_dirty_blocks();
    pair.disk.fail(|request| matches!(request, Request::Write { offset, .. } if *offset == 20 * BLOCK));
    let error = pollster::block_on(pair.volume.clean()).unwrap_err();
    assert_eq!(error.kind(), VolumeErrorKind::Disk);
    let expected: Vec<u64> = dirty_blocks().into_iter().filter(|number| *number != 20).collect();
    assert_eq!((pair.on_disk(), pair.volume.stats().dirty_blocks), (expected, 1));
}

/// `clean` must not wait for blocks that are written after its start.
#[test]
fn clean_ends_despite_concurrent_writes() {
    for ordered in [false, true] {
        let world = World::new(1, Shape { flash_bytes: 16 << 20, disk_bytes: 64 << 20, ..Shape::default() });
        let volume = world.volume(&VolumeConfig { ordered, ..lazy() });
        let filled = volume.clone();
        world.run(async move {
            for number in 0..50 {
                write(&filled, number * 30).await;
            }
        });
        let (writer, sleeper) = (volume.clone(), world.simulation.world());
        world.simulation.spawn(async move {
            for number in 0.. {
                write(&writer, 2000 + number * 7 % 1000).await;
                writer.flush().await.unwrap();
                sleeper.sleep(2_000_000).await;
            }
        });
        let cleaner = volume.clone();
        let cleaned = world.simulation.spawn(async move { cleaner.clean().await });
        world.simulation.run_until(120_000_000_000);
        assert!(cleaned.result().is_some_and(|ended| ended.is_ok()), "it goes on, ordered: {ordered}");
        assert!(volume.stats().dirty_blocks > 100, "later writes accumulate");
        for number in 0..50 {
            let read = world.disk.execute(Request::read(number * 30 * BLOCK, BLOCK as usize));
            assert_eq!(read.unwrap()[..], block_of(number * 30), "block {number}");
        }
    }
}

/// A commit must have space for the records of the run.
#[test]
fn flush_after_a_run_longer_than_the_journal_succeeds() {
    const BLOCKS: u64 = 4500;
    let world = World::new(1, Shape { flash_bytes: 64 << 20, disk_bytes: 64 << 20, ..Shape::default() });
    let tuning = Tuning { clean_run_blocks: u32::MAX, ..smallest_journal().tuning };
    let volume = world.volume(&VolumeConfig { tuning, ..smallest_journal() });
    world.run(async move {
        for number in 0..BLOCKS {
            write(&volume, number).await;
        }
        volume.flush().await.unwrap();
        volume.clean().await.unwrap();
        assert_eq!(volume.stats().dirty_blocks, 0);
        write(&volume, 1).await;
        volume.flush().await.unwrap();
    });
    let volume = world.open();
    world.run(async move { assert_eq!(volume.read(BLOCK, 4096).await.unwrap()[..], block_of(1)) });
}

/// Blocks that are destaged in order are checked for idleness too.
#[test]
fn idle_blocks_of_an_ordered_volume_are_cleaned() {
    let world = World::new(1, Shape { flash_bytes: 16 << 20, disk_bytes: 64 << 20, ..Shape::default() });
    let tuning = Tuning { idle_seconds: 10, ..lazy().tuning };
    let volume = world.volume(&VolumeConfig { ordered: true, tuning, ..lazy() });
    let (upkeep, writer, sleeper) = (volume.clone(), volume.clone(), world.simulation.world());
    world.simulation.spawn(async move { upkeep.run_upkeep().await });
    world.simulation.spawn(async move {
        // Blocks 30 and 60 are flushed, each in an epoch of its own; block 90 is never flushed.
        for (number, flushed) in [(30, true), (60, true), (90, false)] {
            write(&writer, number).await;
            if flushed {
                writer.flush().await.unwrap();
            }
        }
        // A block in use, with a new epoch each second.
        for _ in 0..60 {
            write(&writer, 2000).await;
            writer.flush().await.unwrap();
            sleeper.sleep(1_000_000_000).await;
        }
    });
    let on_disk = |number: u64| {
        let read = world.disk.execute(Request::read(number * BLOCK, BLOCK as usize));
        read.unwrap()[..] == block_of(number)
    };
    world.simulation.run_until(9_000_000_000);
    assert!(![30, 60, 90].into_iter().any(on_disk), "none is idle yet");
    world.simulation.run_until(30_000_000_000);
    assert!([30, 60, 90].into_iter().all(on_disk), "they were not cleaned");
    let stats = volume.stats();
    assert_eq!(stats.dirty_blocks, 1, "blocks in use stay dirty");
    assert!(stats.counters.fallow_cleanings >= 3 && stats.counters.fallow_cleanings <= 6, "{stats:?}");
    world.simulation.run_until(59_000_000_000);
    assert_eq!(volume.stats().counters.fallow_cleanings, stats.counters.fallow_cleanings);
    world.simulation.run_until(100_000_000_000);
    assert!(on_disk(2000) && volume.stats().dirty_blocks == 0, "in use no more");
}

#[test]
fn ordered_volume_above_the_dirty_threshold_is_cleaned_down_to_it() {
    let world = World::new(1, Shape { flash_bytes: 16 << 20, disk_bytes: 64 << 20, ..Shape::default() });
    let tuning = Tuning { dirty_percent: 10, idle_seconds: 0, ..lazy().tuning };
    let volume = world.volume(&VolumeConfig { ordered: true, tuning, ..lazy() });
    let (upkeep, writer) = (volume.clone(), volume.clone());
    world.simulation.spawn(async move { upkeep.run_upkeep().await });
    let most = volume.stats().capacity_blocks / 10;
    world.simulation.spawn(async move {
        // One epoch per ten blocks.
        for number in 0..2 * most {
            write(&writer, number).await;
            if number % 10 == 9 {
                writer.flush().await.unwrap();
            }
        }
    });
    world.simulation.run_until(60_000_000_000);
    let dirty = volume.stats().dirty_blocks;
    assert!((most - 10..=most).contains(&dirty), "{dirty} dirty blocks, threshold {most}");
}

/// An epoch is cleaned as a whole; its excess over the rate is deducted from the following seconds.
#[test]
fn idle_epochs_respect_the_rate_limit() {
    let world = World::new(1, Shape { flash_bytes: 16 << 20, disk_bytes: 64 << 20, ..Shape::default() });
    let tuning = Tuning { idle_seconds: 10, idle_blocks_per_second: 2, ..lazy().tuning };
    let volume = world.volume(&VolumeConfig { ordered: true, tuning, ..lazy() });
    let (upkeep, writer) = (volume.clone(), volume.clone());
    world.simulation.spawn(async move { upkeep.run_upkeep().await });
    world.simulation.spawn(async move {
        for epoch in 0..5 {
            for number in 0..20 {
                write(&writer, epoch * 100 + number).await;
            }
            writer.flush().await.unwrap();
        }
    });
    let mut dirty = Vec::new();
    for second in 21..=61 {
        world.simulation.run_until(second * 1_000_000_000);
        dirty.push(volume.stats().dirty_blocks);
    }
    for (second, window) in dirty.windows(11).enumerate() {
        assert!(
            window[0] - window[10] <= 40,
            "more than 20 and an epoch in ten seconds from {second}: {dirty:?}"
        );
    }
    assert_eq!(dirty.last(), Some(&0), "{dirty:?}");
}

const DISK_WRITE_NS: u64 = 1_000_000;

/// A volume over a disk that serves many requests in parallel, each in [`DISK_WRITE_NS`].
fn over_a_disk_of_many_channels(simulation: &Simulation, tuning: Tuning) -> Volume {
    let model = LatencyModel {
        write_ns: DISK_WRITE_NS,
        flush_ns: 0,
        jitter_ns: 0,
        channels: 32,
        ..LatencyModel::default()
    };
    let device = |bytes: u64, model: LatencyModel| -> Arc<dyn Device> {
        Arc::new(SimulatedDevice::new(simulation.world(), Arc::new(MemoryDevice::new(bytes)), model))
    };
    let devices = (device(8 << 20, LatencyModel::default()), device(64 << 20, model));
    let timer = Arc::new(simulation.world());
    simulation.block_on(async move { opened(devices, &VolumeConfig { tuning, ..lazy() }, timer).await })
}

/// Background runs are sequential instead.
#[test]
fn requested_cleaning_sends_runs_to_the_disk_in_parallel() {
    let simulation = Simulation::new(1);
    let volume = over_a_disk_of_many_channels(&simulation, lazy().tuning);
    let clock = simulation.clock();
    let (by_upkeep_ns, asked_for_ns) = simulation.block_on(async move {
        let mut took_ns = [0; 2];
        for (is_requested, took_ns) in [false, true].into_iter().zip(&mut took_ns) {
            for number in 0..64 {
                write(&volume, number * 2).await;
            }
            volume.flush().await.unwrap();
            let dirty_percent = if is_requested { 100 } else { 0 };
            volume.set_tuning(Tuning { dirty_percent, ..lazy().tuning }).await.unwrap();
            let begun_ns = clock.monotonic_ns();
            match is_requested {
                true => volume.clean().await.unwrap(),
                false => while volume.upkeep().await.unwrap() {},
            }
            *took_ns = clock.monotonic_ns() - begun_ns;
            assert_eq!(volume.stats().dirty_blocks, 0);
        }
        (took_ns[0], took_ns[1])
    });
    assert!(by_upkeep_ns >= 64 * DISK_WRITE_NS, "{by_upkeep_ns} ns");
    // `cleanings_total` permits four runs in flight.
    assert!((16 * DISK_WRITE_NS..32 * DISK_WRITE_NS).contains(&asked_for_ns), "{asked_for_ns} ns");
}

/// Parts that go to the disk are written concurrently.
#[test]
fn parts_of_a_direct_write_are_written_concurrently() {
    let simulation = Simulation::new(1);
    let volume = over_a_disk_of_many_channels(&simulation, lazy().tuning);
    let clock = simulation.clock();
    let took_ns = simulation.block_on(async move {
        for number in 0..8 {
            write(&volume, number * 2).await;
        }
        volume.set_tuning(Tuning { mode: Mode::WriteThrough, ..lazy().tuning }).await.unwrap();
        let begun_ns = clock.monotonic_ns();
        // Dirty blocks stay on flash; the eight between them are not adjacent.
        volume.write(0, IoBuffer::zeroed(16 * BLOCK as usize).into(), false).await.unwrap();
        assert_eq!(volume.stats().dirty_blocks, 8);
        clock.monotonic_ns() - begun_ns
    });
    assert!((DISK_WRITE_NS..3 * DISK_WRITE_NS).contains(&took_ns), "{took_ns} ns");
}
