//! Large sequential requests are as fast as on the disk alone, in virtual time.

use std::cell::Cell;
use std::sync::Arc;

use device::sim;
use device::{Clock, Device, IoBuffer, Request};
use flashwright_block::sets::{Mode, Tuning};
use flashwright_block::volume::{Volume, VolumeConfig};

use futures_util::future::join_all;

use crate::world::{Shape, World};

const MIB: u64 = 1 << 20;

const MODES: [Mode; 4] = [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround, Mode::WriteOnly];

/// Requests of a client, from the beginning of the disk on.
#[derive(Debug, Clone, Copy)]
struct Stream {
    writes: bool,
    request_bytes: u64,
    /// Requests in flight.
    depth: usize,
    total_bytes: u64,
}

const READS: Stream = Stream { writes: false, request_bytes: MIB, depth: 4, total_bytes: 24 * MIB };
const WRITES: Stream = Stream { writes: true, ..READS };

fn world(flash_bytes: u64) -> World {
    World::new(1, Shape { flash_bytes, disk_bytes: 224 * MIB, ..Shape::default() })
}

fn volume(world: &World, mode: Mode) -> Volume {
    let usual = VolumeConfig::default();
    world.volume(&VolumeConfig { tuning: Tuning { mode, ..usual.tuning }, ..usual })
}

/// Virtual nanoseconds that `stream` takes.
async fn elapsed_ns<F: Future<Output = ()>>(
    clock: sim::World,
    disk: Arc<dyn Device>,
    stream: Stream,
    request: impl Fn(u64) -> F,
) -> u64 {
    // The head starts elsewhere.
    let elsewhere = Request::read(223 * MIB, 4096);
    disk.start(elsewhere).await.unwrap();
    let begun_ns = clock.monotonic_ns();
    let (next, request) = (Cell::new(0), &request);
    let worker = |_| async {
        while next.get() < stream.total_bytes {
            let offset = next.replace(next.get() + stream.request_bytes);
            request(offset).await;
        }
    };
    join_all((0..stream.depth).map(worker)).await;
    clock.monotonic_ns() - begun_ns
}

/// Virtual nanoseconds that `stream` takes in each of `passes` on `volume`, which has upkeep and is closed at the end: the simulation
/// runs until the upkeep ends.
fn cached_ns(world: &World, volume: &Volume, stream: Stream, passes: u32) -> Vec<u64> {
    let (volume, upkeep) = (volume.clone(), volume.clone());
    let (disk, simulation): (Arc<dyn Device>, _) = (world.disk.clone(), world.simulation.world());
    world.simulation.spawn(async move { upkeep.run_upkeep().await });
    world.run(async move {
        let mut elapsed = Vec::new();
        for _ in 0..passes {
            let request = async |offset| {
                if stream.writes {
                    let data = IoBuffer::zeroed(stream.request_bytes as usize).into();
                    volume.write(offset, data, false).await.unwrap();
                } else {
                    volume.read(offset, stream.request_bytes as usize).await.unwrap();
                }
            };
            elapsed.push(elapsed_ns(simulation.clone(), disk.clone(), stream, request).await);
        }
        volume.close().await.unwrap();
        elapsed
    })
}

/// Time of the same stream on the disk alone.
fn alone_ns(stream: Stream) -> u64 {
    let world = world(4 * MIB);
    let (disk, simulation): (Arc<dyn Device>, _) = (world.disk.clone(), world.simulation.world());
    world.run(async move {
        let request = async |offset| {
            let buffer = IoBuffer::zeroed(stream.request_bytes as usize);
            let request = match stream.writes {
                true => Request::write(offset, buffer),
                false => Request::Read { offset, buffer },
            };
            disk.start(request).await.unwrap();
        };
        elapsed_ns(simulation, disk.clone(), stream, request).await
    })
}

/// Throughput relative to the disk alone.
fn relative(alone_ns: u64, cached_ns: u64) -> f64 {
    alone_ns as f64 / cached_ns as f64
}

#[test]
fn sequential_reads_in_every_mode_are_as_fast_as_the_disk() {
    let streams = [
        READS,
        // The requests of `qemu-img convert`.
        Stream { request_bytes: 2 * MIB, depth: 8, total_bytes: 24 * MIB, ..READS },
        Stream { request_bytes: 64 << 10, ..READS },
    ];
    for stream in streams {
        let alone = alone_ns(stream);
        for mode in MODES {
            for flash_bytes in [5 * MIB, 40 * MIB] {
                let world = world(flash_bytes);
                let volume = volume(&world, mode);
                let relative = relative(alone, cached_ns(&world, &volume, stream, 1)[0]);
                println!("{mode:?}, {flash_bytes} of flash, {stream:?}: {relative:.2}");
                assert!(relative >= 0.95, "{mode:?}, {flash_bytes} of flash, {stream:?}: {relative:.2}");
            }
        }
    }
}

/// Cases in which `stream` is slower than on the disk alone in one of `modes`.
fn slower_writes(modes: &[Mode], flash_bytes: u64, stream: Stream, passes: u32) -> Vec<String> {
    let alone = alone_ns(stream);
    let mut slow = Vec::new();
    for &mode in modes {
        let world = world(flash_bytes);
        let volume = volume(&world, mode);
        // A second pass overwrites blocks that the first one left in the cache.
        for (pass, elapsed_ns) in (1..).zip(cached_ns(&world, &volume, stream, passes)) {
            let relative = relative(alone, elapsed_ns);
            let case = format!("{mode:?}, {flash_bytes} of flash, pass {pass}, {stream:?}: {relative:.2}");
            if relative < 0.95 {
                slow.push(case);
            }
        }
    }
    slow
}

#[test]
fn sequential_writes_in_every_mode_are_as_fast_as_the_disk() {
    let many_and_large = Stream { request_bytes: 2 * MIB, depth: 8, ..WRITES };
    let small = Stream { request_bytes: 64 << 10, ..WRITES };
    let slow: Vec<String> = [WRITES, many_and_large, small]
        .into_iter()
        .flat_map(|stream| slower_writes(&MODES, 320 * MIB, stream, 2))
        .collect();
    assert!(slow.is_empty(), "{slow:#?}");
}

/// The stream does not wait for the cache to be cleaned or for commits.
#[test]
fn sequential_writes_longer_than_the_cache_are_as_fast_as_the_disk() {
    let long = Stream { total_bytes: 192 * MIB, ..WRITES };
    let mut slow = slower_writes(&MODES, 64 * MIB, long, 1);
    // The second pass finds blocks of the first one.
    for stream in [WRITES, Stream { request_bytes: 64 << 10, ..WRITES }] {
        for flash_bytes in [5 * MIB, 40 * MIB] {
            slow.extend(slower_writes(&[Mode::WriteThrough, Mode::WriteAround], flash_bytes, stream, 2));
        }
    }
    assert!(slow.is_empty(), "{slow:#?}");
}

/// Writes that bypass the cache wait neither for cleaning, nor one by one for the removal of clean blocks.
#[test]
fn sequential_writes_past_a_small_write_back_cache_are_as_fast_as_the_disk() {
    let small = Stream { request_bytes: 64 << 10, ..WRITES };
    let mut slow = Vec::new();
    for stream in [WRITES, small, Stream { total_bytes: 192 * MIB, ..WRITES }] {
        let alone = alone_ns(stream);
        for (flash_bytes, mode) in [(5, Mode::WriteBack), (40, Mode::WriteBack), (5, Mode::WriteOnly)] {
            for is_full_of_clean_blocks in [false, true] {
                let world = world(flash_bytes * MIB);
                let volume = volume(&world, mode);
                if is_full_of_clean_blocks {
                    read_all(&world, &volume);
                }
                for (pass, elapsed_ns) in (1..).zip(cached_ns(&world, &volume, stream, 2)) {
                    let relative = relative(alone, elapsed_ns);
                    let case = format!(
                        "{mode:?}, {flash_bytes} MiB of flash, full: {is_full_of_clean_blocks}, pass {pass}, {stream:?}: {relative:.2}"
                    );
                    println!("{case}");
                    slow.extend((relative < 0.95).then_some(case));
                }
                assert_eq!(volume.stats().counters.cleanings, 0, "the stream shares the disk with cleaning");
            }
        }
    }
    assert!(slow.is_empty(), "{slow:#?}");
}

fn read_all(world: &World, volume: &Volume) {
    let volume = volume.clone();
    world.run(async move {
        for number in 0..24 {
            volume.read(number * MIB, MIB as usize).await.unwrap();
        }
    });
}

/// Flash records no clean blocks in these modes, so the writes wait for no commit.
#[test]
fn sequential_writes_over_clean_blocks_in_write_through_modes_are_as_fast_as_the_disk() {
    for mode in [Mode::WriteThrough, Mode::WriteAround] {
        for flash_bytes in [5 * MIB, 40 * MIB] {
            for stream in [WRITES, Stream { request_bytes: 64 << 10, ..WRITES }] {
                let world = world(flash_bytes);
                let volume = volume(&world, mode);
                read_all(&world, &volume);
                let relative = relative(alone_ns(stream), cached_ns(&world, &volume, stream, 1)[0]);
                assert!(relative >= 0.95, "{mode:?}, {flash_bytes} of flash, {stream:?}: {relative:.2}");
            }
        }
    }
}

#[test]
fn large_reads_of_blocks_scattered_by_random_writes_are_nearly_as_fast_as_the_disk() {
    let alone = alone_ns(READS);
    for percent in [1, 10, 50, 90, 100] {
        let world = world(40 * MIB);
        let volume = volume(&world, Mode::WriteBack);
        let writer = volume.clone();
        world.run(async move {
            let blocks = READS.total_bytes / 4096;
            for number in 0..blocks {
                let block = number * 7919 % blocks;
                if block * 7907 % 100 < percent {
                    writer.write(block * 4096, IoBuffer::zeroed(4096).into(), false).await.unwrap();
                }
            }
        });
        let relative = relative(alone, cached_ns(&world, &volume, READS, 1)[0]);
        println!("{percent} % written: {relative:.2}");
        assert!(relative >= 0.8, "{percent} % written: {relative:.2}");
    }
}

#[test]
fn long_writes_past_the_cache_are_read_back_and_kept() {
    for mode in MODES {
        let world = world(5 * MIB);
        let volume = volume(&world, mode);
        world.run(async move {
            for round in 1..=2_u8 {
                for number in 0..12_u64 {
                    let data = IoBuffer::copy_of(&vec![round ^ number as u8; MIB as usize]).into();
                    volume.write(number * MIB, data, false).await.unwrap();
                    if number % 3 == 0 {
                        volume.read(number * MIB + 4096, 64 << 10).await.unwrap();
                    }
                }
            }
            volume.flush().await.unwrap();
            for number in 0..12_u64 {
                let bytes = volume.read(number * MIB, MIB as usize).await.unwrap();
                assert!(bytes.iter().all(|&byte| byte == 2 ^ number as u8), "{mode:?}, MiB {number}");
            }
            volume.clean().await.unwrap();
            volume.close().await.unwrap();
        });
        for number in 0..12_u64 {
            let disk: Arc<dyn Device> = world.disk.clone();
            let bytes = world.run(async move { disk.read(number * MIB, MIB as usize).await });
            let bytes = bytes.unwrap();
            assert!(bytes.iter().all(|&byte| byte == 2 ^ number as u8), "{mode:?}, MiB {number} of the disk");
        }
    }
}
