//! The volume compared with a vector, under clients that share blocks.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;

use device::{Device, IoBuffer, Request};
use flashwright_block::sets::{Mode, Placement, SetPolicy, Tuning};
use flashwright_block::volume::{Volume, VolumeConfig};
use futures_util::future::{Either, select};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::world::{Shape, World, config};

const CLIENTS: u64 = 5;
/// Length of a stripe in bytes; stripes belong to the clients in turn, so that blocks have several owners.
const STRIPE: u64 = 3 * 512;

/// One client: writes, reads, zeroes and flushes its own stripes, and reads those of all clients.
async fn client(number: u64, volume: Volume, twin: Rc<RefCell<Vec<u8>>>, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let stripes = volume.size_bytes() / STRIPE;
    for _ in 0..150 {
        // Frequent at the front.
        let below = random.random_range(10..stripes / CLIENTS);
        let stripe = random.random_range(0..below) * CLIENTS + number;
        let (from, to) = (random.random_range(0..3), random.random_range(1..=3));
        let (from, to) = (u64::min(from, to - 1), to);
        let (offset, len) = (stripe * STRIPE + from * 512, ((to - from) * 512) as usize);
        let range = offset as usize..offset as usize + len;
        match random.random_range(0..10) {
            0..4 => {
                let byte = random.random();
                volume.write(offset, IoBuffer::copy_of(&vec![byte; len]).into(), false).await.unwrap();
                twin.borrow_mut()[range].fill(byte);
            }
            4 => {
                volume.write_zeroes(offset, len as u64, true).await.unwrap();
                twin.borrow_mut()[range].fill(0);
            }
            5..8 => {
                let bytes = volume.read(offset, len).await.unwrap();
                assert_eq!(bytes[..], twin.borrow()[range], "client {number} at {offset}");
            }
            8 => {
                // Reads of other stripes check nothing, but insert blocks that are being written.
                let len = random.random_range(1..200) * 512;
                let offset = offset.min(volume.size_bytes() - len);
                volume.read(offset, len as usize).await.unwrap();
            }
            _ => volume.flush().await.unwrap(),
        }
    }
}

fn agree(seed: u64, shape: Shape, config: &VolumeConfig) -> (Volume, World) {
    let world = World::new(seed, shape);
    let volume = world.volume(config);
    let twin = Rc::new(RefCell::new(vec![0; shape.disk_bytes as usize]));
    let clients = (0..CLIENTS).map(|number| {
        world.simulation.spawn(client(number, volume.clone(), twin.clone(), seed ^ number << 8))
    });
    let clients: Vec<_> = clients.collect();
    let (upkeep, sleeper) = (volume.clone(), world.simulation.world());
    world.simulation.spawn(async move {
        for _ in 0..400 {
            upkeep.upkeep().await.unwrap();
            sleeper.sleep(2_000_000).await;
        }
    });
    world.simulation.run_until_idle();
    assert!(clients.iter().all(|client| client.result().is_some()), "seed {seed}: a request never completes");
    let finish = |volume: Volume| async move {
        volume.clean().await.unwrap();
        assert_eq!(volume.stats().dirty_blocks, 0);
        volume.close().await.unwrap();
    };
    world.run(finish(volume.clone()));
    let mut at = 0;
    while at < shape.disk_bytes {
        let len = (shape.disk_bytes - at).min(1 << 20);
        let read = Request::read(at, len as usize);
        let bytes = world.disk.execute(read).unwrap();
        assert!(bytes[..] == twin.borrow()[at as usize..][..len as usize], "seed {seed}: the disk at {at}");
        at += len;
    }
    (volume, world)
}

#[test]
fn volume_matches_a_vector_in_every_mode_and_policy() {
    let modes = [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround, Mode::WriteOnly];
    for (seed, mode) in (0_u64..8).zip(modes.into_iter().cycle()) {
        let mut config = config();
        config.checksums = seed % 2 == 0;
        let policy = [SetPolicy::Fifo, SetPolicy::Lru, config.tuning.policy][seed as usize % 3];
        config.tuning = Tuning { mode, policy, dirty_percent: 30, ..config.tuning };
        // The flash is smaller than the disk, so blocks are evicted.
        let shape = Shape { flash_bytes: 5 << 19, disk_bytes: (4 << 20) - 512 * seed, ..Shape::default() };
        agree(seed, shape, &config);
    }
}

#[test]
fn volume_matches_a_vector_with_every_block_size() {
    for (seed, block_bytes) in (20..).zip([4096_u32, 8192, 16384, 65536]) {
        for (flash_block, disk_block) in [(512, 512), (4096, 512), (512, 4096), (4096, 4096)] {
            let placement = Placement::Hashed { run_bytes: 2 * block_bytes };
            let config = VolumeConfig { block_bytes, ways: 8, placement, ..config() };
            let flash_bytes = u64::from(block_bytes) * 300 + (1 << 20);
            let shape =
                Shape { flash_bytes, flash_block, disk_block, disk_bytes: 4 << 20, ..Shape::default() };
            agree(seed, shape, &config);
        }
    }
}

#[test]
fn volume_matches_a_vector_with_any_set_size() {
    let run_bytes = 4096;
    let placements = [Placement::Linear, Placement::Hashed { run_bytes }, Placement::Permuted { run_bytes }];
    for (seed, ways) in (40..).zip([1, 2, 3, 7, 100, 129]) {
        let (placement, ordered) = (placements[seed as usize % 3], seed % 2 == 0);
        let config = VolumeConfig { ways, placement, ordered, ..config() };
        agree(seed, Shape { flash_bytes: 3 << 20, disk_bytes: 4 << 20, ..Shape::default() }, &config);
    }
}

/// A request with more blocks than a set must be split.
#[test]
fn long_write_of_an_ordered_volume_with_small_sets_succeeds() {
    let world = World::new(7, Shape { flash_bytes: 1 << 20, ..Shape::default() });
    let placement = Placement::Hashed { run_bytes: 32 << 10 };
    let journal_bytes = Some(64 << 10);
    let volume = world.volume(&VolumeConfig { ways: 8, ordered: true, placement, journal_bytes, ..config() });
    let sleeper = world.simulation.world();
    let work = |volume: Volume| async move {
        for at in (0..8 << 20).step_by(256 << 10) {
            let write = pin!(volume.write(at, IoBuffer::zeroed(256 << 10).into(), false));
            let timeout = pin!(sleeper.sleep(60_000_000_000));
            let Either::Left((written, _)) = select(write, timeout).await else {
                panic!("the write at {at} does not complete")
            };
            written.unwrap();
        }
    };
    world.run(work(volume));
}

/// In Flashcache a second concurrent request for a block evicts it.
#[test]
fn block_with_many_concurrent_users_stays_cached() {
    let world = World::new(9, Shape::default());
    let volume = world.volume(&config());
    for client in 0..16_u64 {
        let volume = volume.clone();
        world.simulation.spawn(async move {
            for round in 0..20 {
                if (client + round) % 3 == 0 {
                    let data = IoBuffer::copy_of(&[client as u8; 512]);
                    volume.write(4096 + client % 8 * 512, data.into(), false).await.unwrap();
                } else {
                    volume.read(4096, 4096).await.unwrap();
                }
            }
        });
    }
    world.simulation.run_until_idle();
    let stats = volume.stats();
    assert_eq!(stats.counters.disk_reads, 1, "{stats:?}");
    let hits = stats.counters.read_hits + stats.counters.write_hits;
    assert!(hits + 2 >= stats.counters.reads + stats.counters.writes, "{stats:?}");
    assert_eq!((stats.held_blocks, stats.counters.uncached_writes), (1, 0));
}

#[test]
fn read_miss_does_not_wait_for_the_flash() {
    let world = World::new(2, Shape { flush_ns: 0, ..Shape::default() });
    let volume = world.volume(&config());
    let (clock, reader) = (world.simulation.clock(), volume.clone());
    let start_ns = device::Clock::monotonic_ns(&*clock);
    let ended = world.run(async move {
        reader.read(1 << 20, 4096).await.unwrap();
        device::Clock::monotonic_ns(&*clock)
    });
    assert_eq!(ended - start_ns, 7_000_000 + 4096 * 1_000_000_000 / 150_000_000);
    assert_eq!(volume.stats().held_blocks, 1, "and it was brought in behind the reply");
}

#[test]
fn uncached_client_uses_cached_blocks_and_inserts_none() {
    let world = World::new(6, Shape::default());
    let volume = world.volume(&config());
    let work = |volume: Volume| async move {
        let backup = volume.without_caching();
        let filled = |byte: u8| IoBuffer::copy_of(&[byte; 4096]).into();
        volume.write(0, filled(1), false).await.unwrap();
        assert!(backup.read(0, 4096).await.unwrap().iter().all(|&byte| byte == 1));
        backup.write(0, filled(2), false).await.unwrap();
        backup.write(8192, filled(3), true).await.unwrap();
        backup.read(1 << 20, 65536).await.unwrap();
        assert!(volume.read(0, 4096).await.unwrap().iter().all(|&byte| byte == 2));
        assert_eq!(volume.stats().held_blocks, 1);
        assert!(volume.read(8192, 4096).await.unwrap().iter().all(|&byte| byte == 3));
    };
    world.run(work(volume));
}
