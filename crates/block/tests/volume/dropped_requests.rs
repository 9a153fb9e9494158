//! Dropped futures, as when a server's client disconnects.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use device::timer::SystemTimer;
use device::wrap::{CrashDevice, GateDevice};
use device::{Device, IoBuffer, MemoryDevice, RequestKind};
use flashwright_block::sets::{Mode, Tuning};
use flashwright_block::volume::{Volume, VolumeConfig};
use futures_util::FutureExt as _;
use futures_util::future::{Either, select};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::world::{Shape, World, config};

const BLOCKS: u64 = 700;

/// Permitted values of each block: the last one, and those of writes dropped since.
type Legal = Rc<RefCell<Vec<BTreeSet<u8>>>>;

async fn client(number: u64, volume: Volume, legal: Legal, world: device::sim::World) {
    let mut random = StdRng::seed_from_u64(number);
    for _ in 0..200 {
        let block = random.random_range(0..BLOCKS / 4) * 4 + number;
        let timeout_ns = [5_000, 60_000, 5_000_000, u64::MAX / 4][random.random_range(0..4)];
        let timeout = pin!(world.sleep(timeout_ns));
        match random.random_range(0..5) {
            0..3 => {
                let byte = random.random_range(1..255);
                legal.borrow_mut()[block as usize].insert(byte);
                let write = volume.write(block * 4096, IoBuffer::copy_of(&[byte; 4096]).into(), false);
                if let Either::Left((written, _)) = select(pin!(write), timeout).await {
                    written.unwrap();
                    legal.borrow_mut()[block as usize] = [byte].into();
                }
            }
            3 => {
                let read = volume.read(block * 4096, 4096);
                if let Either::Left((bytes, _)) = select(pin!(read), timeout).await {
                    let bytes = bytes.unwrap();
                    let found = bytes[0];
                    assert!(bytes.iter().all(|&byte| byte == found), "block {block} is torn");
                    assert!(legal.borrow()[block as usize].contains(&found), "block {block} holds {found}");
                }
            }
            _ => drop(select(pin!(volume.flush()), timeout).await),
        }
    }
}

#[test]
fn dropped_request_takes_effect_or_not_and_releases_its_locks() {
    let modes = [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround, Mode::WriteOnly];
    for (seed, mode) in (0_u64..8).zip(modes.into_iter().cycle()) {
        let world = World::new(seed, Shape { flash_bytes: 5 << 19, ..Shape::default() });
        let tuning = Tuning { mode, ..config().tuning };
        let volume = world.volume(&VolumeConfig { tuning, ordered: seed == 4, ..config() });
        let legal: Legal = Rc::new(RefCell::new(vec![[0].into(); BLOCKS as usize]));
        let clients = (0..4).map(|number| {
            world.simulation.spawn(client(number, volume.clone(), legal.clone(), world.simulation.world()))
        });
        let clients: Vec<_> = clients.collect();
        world.simulation.run_until_idle();
        assert!(
            clients.iter().all(|client| client.result().is_some()),
            "seed {seed}: a request never completes"
        );
        let reader = volume.clone();
        let before = world.run(async move { reader.read(0, BLOCKS as usize * 4096).await.unwrap() });
        let closer = volume.clone();
        world.run(async move {
            closer.clean().await.unwrap();
            assert_eq!(closer.stats().dirty_blocks, 0);
            closer.close().await.unwrap();
        });
        let volume = world.open();
        let after = world.run(async move { volume.read(0, BLOCKS as usize * 4096).await.unwrap() });
        for (block, legal) in legal.borrow().iter().enumerate() {
            let at = block * 4096;
            assert!(legal.contains(&before[at]), "seed {seed}, {mode:?}: block {block} holds {}", before[at]);
            assert_eq!(
                before[at..at + 4096],
                after[at..at + 4096],
                "seed {seed}, {mode:?}: block {block} changed"
            );
        }
    }
}

/// If data read from the disk were marked clean without a disk flush, flash and disk could differ after a power cut.
#[test]
fn disk_change_of_a_dropped_request_is_durable_before_a_read_of_it_is_marked_clean() {
    for kind in [RequestKind::Write, RequestKind::Trim] {
        let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new(4 << 20));
        let crash = Arc::new(CrashDevice::new(MemoryDevice::new(8 << 20)));
        let gate = Arc::new(GateDevice::new(crash.clone()));
        let disk: Arc<dyn Device> = gate.clone();
        let timer = || Arc::new(SystemTimer::default());
        pollster::block_on(async {
            Volume::create(&flash, &disk, &config(), 5).await.unwrap();
            let (volume, _) = Volume::open(flash.clone(), disk.clone(), timer()).await.unwrap();
            let around = volume.without_caching();
            let write = |byte: u8| around.write(8192, IoBuffer::copy_of(&[byte; 4096]).into(), false);
            write(6).await.unwrap();
            volume.flush().await.unwrap();
            gate.close(kind);
            let is_written = kind == RequestKind::Write;
            let begun =
                if is_written { write(7).now_or_never() } else { around.trim(8192, 4096).now_or_never() };
            assert!(begun.is_none() && gate.held() == 1, "{kind:?}");
            gate.open();
            let expected = if is_written { 7 } else { 0 };
            assert_eq!(volume.read(8192, 512).await.unwrap()[..], [expected; 512], "{kind:?}");
            volume.flush().await.unwrap();
        });
        for seed in 0..16 {
            let disk = Arc::new(crash.crash(seed));
            let opened = pollster::block_on(Volume::open(flash.clone(), disk, timer()));
            if let Err(error) = opened {
                panic!("{kind:?}, seed {seed}: {error}");
            }
        }
    }
}

/// The blocks of a dropped request leave the drain.
#[test]
fn dropped_clean_stops_cleaning() {
    for (others, is_left) in [(0, true), (1, false)] {
        let shape = Shape { flash_bytes: 32 << 20, disk_bytes: 256 << 20, ..Shape::default() };
        let world = World::new(1, shape);
        let tuning = Tuning { dirty_percent: 100, lazy_depth: 0, idle_seconds: 0, ..config().tuning };
        let volume = world.volume(&VolumeConfig { ways: 512, tuning, ..config() });
        let timer = world.simulation.world();
        let (for_ever, cleaner) = (volume.clone(), volume.clone());
        world.simulation.spawn(async move { for_ever.run_upkeep().await });
        let waits: Vec<_> = (0..others)
            .map(|_| {
                let (volume, timer) = (volume.clone(), world.simulation.world());
                world.simulation.spawn(async move {
                    timer.sleep(1_500_000_000).await;
                    volume.clean().await.unwrap();
                })
            })
            .collect();
        world.run(async move {
            for number in 0..1000 {
                cleaner.write(number * 65536, IoBuffer::copy_of(&[1; 4096]).into(), false).await.unwrap();
            }
            let timeout = pin!(timer.sleep(2_000_000_000));
            assert!(matches!(select(pin!(cleaner.clean()), timeout).await, Either::Right(_)));
            let left = cleaner.stats().dirty_blocks;
            assert!((100..1000).contains(&left), "{left} blocks when it was given up");
            timer.sleep(100_000_000_000).await;
            assert_eq!(cleaner.stats().dirty_blocks > 0, is_left);
            cleaner.close().await.unwrap();
        });
        assert!(waits.iter().all(|wait| wait.result().is_some()));
    }
}
