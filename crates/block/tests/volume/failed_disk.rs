//! A volume with a failing disk, and its health.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use device::timer::SystemTimer;
use device::wrap::GateDevice;
use device::{Device, IoBuffer, Request, RequestKind, Simulation};
use flashwright_block::sets::Tuning;
use flashwright_block::volume::{Health, Volume, VolumeConfig, VolumeErrorKind};
use futures_util::FutureExt as _;

use crate::faulty::{Faulty, opened};
use crate::world::config;

const BLOCK: u64 = 4096;

fn data(byte: u8) -> device::IoSlice {
    IoBuffer::copy_of(&[byte; BLOCK as usize]).into()
}

/// After a failed flush of the disk every commit includes a disk flush, which must not fail writes to flash.
#[test]
fn failed_disk_flush_does_not_fail_writes_to_flash() {
    let (flash, disk) = (Faulty::new(4 << 20), Faulty::new(8 << 20));
    let open = || {
        let opened = Volume::open(flash.clone(), disk.clone(), Arc::new(SystemTimer::default()));
        pollster::block_on(opened).unwrap().0
    };
    pollster::block_on(async {
        let (one, other): (Arc<dyn Device>, Arc<dyn Device>) = (flash.clone(), disk.clone());
        Volume::create(&one, &other, &config(), 5).await.unwrap();
        let volume = open();
        volume.write(BLOCK, data(1), false).await.unwrap();
        volume.without_caching().write(1 << 20, data(9), false).await.unwrap();
        disk.fail(|request| matches!(request, Request::Flush));
        // Only the failing commit records this write.
        assert_eq!(volume.write(2 * BLOCK, data(2), true).await.unwrap_err().kind(), VolumeErrorKind::Disk);
        for byte in 3..20 {
            volume.write(BLOCK, data(byte), false).await.unwrap();
            volume.write(3 * BLOCK, data(byte), false).await.unwrap();
            assert_eq!(volume.flush().await.unwrap_err().kind(), VolumeErrorKind::Disk);
        }
        assert_eq!(volume.stats().health, Health::DiskErrors);
        drop(volume);

        let volume = open();
        let mut first = Vec::new();
        for block in 1..4 {
            first.push(volume.read(block * BLOCK, BLOCK as usize).await.unwrap()[0]);
        }
        assert_eq!(first, [19, 2, 19]);
        disk.fail(|_| false);
        volume.flush().await.unwrap();
        volume.clean().await.unwrap();
        assert!(!disk.places_of(&[19; 16]).is_empty());
    });
}

#[test]
fn disk_errors_show_in_the_health_until_it_recovers() {
    const SECOND: u64 = 1_000_000_000;
    let simulation = Simulation::new(1);
    let world = simulation.world();
    let (flash, disk) = (Faulty::new(4 << 20), Faulty::new(8 << 20));
    simulation.block_on(async move {
        let volume = opened((flash.clone(), disk.clone()), &config(), Arc::new(world.clone())).await;
        let health = || (volume.condition().health, volume.stats().health);
        let is = |health: Health| (health, health);
        assert_eq!((health(), volume.condition().disk), (is(Health::Healthy), None));

        disk.fail(|request| matches!(request, Request::Read { .. }));
        volume.read(0, 4096).await.unwrap_err();
        world.sleep(3 * SECOND).await;
        volume.read(1 << 20, 4096).await.unwrap_err();
        let trouble = volume.condition().disk.unwrap();
        assert_eq!((health(), trouble.errors, trouble.elapsed_ns / SECOND), (is(Health::DiskErrors), 2, 3));
        assert!(!trouble.first_error.is_empty());

        // The health stays bad without requests to the disk, and with writes that the flash accepts.
        disk.fail(|_| false);
        world.sleep(100 * SECOND).await;
        volume.without_caching().write(1 << 20, data(1), true).await.unwrap();
        assert_eq!(health(), is(Health::DiskErrors));
        volume.read(0, 4096).await.unwrap();
        assert_eq!((health(), volume.condition().disk), (is(Health::Healthy), None));

        // Only cleaning fails. One success does not restore the health.
        volume.write(4 * BLOCK, data(4), true).await.unwrap();
        disk.fail(|request| matches!(request, Request::Write { .. }));
        volume.clean().await.unwrap_err();
        assert_eq!(health(), is(Health::DiskErrors));
        disk.fail(|_| false);
        volume.clean().await.unwrap();
        world.sleep(59 * SECOND).await;
        assert_eq!(health(), is(Health::DiskErrors));
        world.sleep(SECOND).await;
        assert_eq!(health(), is(Health::Healthy));

        flash.fail(|request| matches!(request, Request::Write { .. }));
        volume.read(2 << 20, 4096).await.unwrap();
        let condition = volume.condition();
        assert_eq!((health(), condition.disk), (is(Health::FlashFailed), None));
        assert_eq!(condition.flash.unwrap().errors, 1);
    });
}

fn is_flush(request: &Request) -> bool {
    matches!(request, Request::Flush)
}

/// The disk may have dropped the cleaned blocks, although the cleaning's own flush succeeds.
#[test]
fn cleaned_blocks_survive_a_failed_flush_requested_by_a_client() {
    let (flash, disk) = (Faulty::new(4 << 20), Faulty::new(8 << 20));
    let gate = Arc::new(GateDevice::new(disk.clone()));
    pollster::block_on(async {
        let volume = opened((flash, gate.clone()), &config(), Arc::new(SystemTimer::default())).await;
        volume.write(BLOCK, data(1), true).await.unwrap();
        volume.without_caching().write(1 << 20, data(9), false).await.unwrap();
        gate.close(RequestKind::Write);
        let mut clean = volume.clean().boxed_local();
        assert!((&mut clean).now_or_never().is_none() && gate.held() == 1, "it is on its way to the disk");
        disk.fail(is_flush);
        assert_eq!(volume.flush().await.unwrap_err().kind(), VolumeErrorKind::Disk);
        disk.fail(|_| false);
        gate.open();
        assert_eq!(clean.await.unwrap_err().kind(), VolumeErrorKind::Disk);
        assert_eq!(volume.stats().dirty_blocks, 1);
        volume.flush().await.unwrap();
        volume.clean().await.unwrap();
        assert_eq!(volume.stats().dirty_blocks, 0);
    });
}

/// The disk may have dropped the write, although the client's own flush succeeds.
#[test]
fn client_writes_around_the_cache_survive_a_failed_flush_of_the_cleaning() {
    let (flash, disk) = (Faulty::new(4 << 20), Faulty::new(8 << 20));
    pollster::block_on(async {
        let volume = opened((flash, disk.clone()), &config(), Arc::new(SystemTimer::default())).await;
        volume.write(BLOCK, data(1), true).await.unwrap();
        volume.without_caching().write(1 << 20, data(9), false).await.unwrap();
        disk.fail(is_flush);
        volume.clean().await.unwrap_err();
        disk.fail(|_| false);
        assert_eq!(volume.flush().await.unwrap_err().kind(), VolumeErrorKind::Disk);
        // The error was reported, and later writes are not affected.
        volume.flush().await.unwrap();
        disk.fail(is_flush);
        volume.clean().await.unwrap_err();
        disk.fail(|_| false);
        volume.without_caching().write(1 << 20, data(8), true).await.unwrap();
    });
}

/// Refused blocks must not use up the runs that the set may have in flight.
#[test]
fn blocks_refused_by_the_disk_do_not_stop_cleaning_of_their_set() {
    let simulation = Simulation::new(1);
    let world = simulation.world();
    let (flash, disk) = (Faulty::new(5 << 20), Faulty::new(8 << 20));
    simulation.block_on(async move {
        let tuning = Tuning { dirty_percent: 20, lazy_depth: 0, ..config().tuning };
        let one_set = VolumeConfig { ways: 512, tuning, ..config() };
        let volume = opened((flash, disk.clone()), &one_set, Arc::new(world.clone())).await;
        let tries = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&tries);
        disk.fail(move |request| {
            let is_bad = matches!(request, Request::Write { offset, .. } if *offset < 3 * BLOCK);
            counted.fetch_add(u32::from(is_bad), Relaxed);
            is_bad
        });
        for block in 0..200 {
            volume.write(block * 2 * BLOCK, data(1), false).await.unwrap();
        }
        for _ in 0..100 {
            let _ = volume.upkeep().await;
        }
        assert!(volume.stats().dirty_blocks <= 104, "{} are dirty", volume.stats().dirty_blocks);
        assert!(tries.load(Relaxed) <= 4, "they were tried over and over");
        // Failed blocks are retried after a second.
        disk.fail(|_| false);
        world.sleep(1_100_000_000).await;
        for block in 200..210 {
            volume.write(block * 2 * BLOCK, data(1), false).await.unwrap();
        }
        while volume.upkeep().await.unwrap() {}
        assert!(disk.places_of(&[1; 16]).contains(&0));
    });
}
