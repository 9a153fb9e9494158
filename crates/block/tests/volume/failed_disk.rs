//! What a volume does while its disk fails, and what it says of that.

use std::sync::Arc;

use device::timer::SystemTimer;
use device::{Device, IoBuffer, Request, Simulation};
use flashwright_block::volume::{Health, Volume, VolumeErrorKind};

use crate::faulty::Faulty;
use crate::world::config;

const BLOCK: u64 = 4096;

fn data(byte: u8) -> device::IoSlice {
    IoBuffer::copy_of(&[byte; BLOCK as usize]).into()
}

/// One flush of the disk failed, and each write after it needed a commit, which needed the disk's flush.
#[test]
fn a_disk_that_could_not_be_flushed_made_writes_to_sound_flash_fail() {
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
        // This one is told of by nothing but the commit that fails.
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

/// It was called healthy, whatever the disk did.
#[test]
fn a_disk_that_failed_was_not_seen_in_the_health_of_its_volume() {
    const SECOND: u64 = 1_000_000_000;
    let simulation = Simulation::new(1);
    let world = simulation.world();
    let (flash, disk) = (Faulty::new(4 << 20), Faulty::new(8 << 20));
    simulation.block_on(async move {
        let (one, other): (Arc<dyn Device>, Arc<dyn Device>) = (flash.clone(), disk.clone());
        Volume::create(&one, &other, &config(), 5).await.unwrap();
        let (volume, _) = Volume::open(one, other, Arc::new(world.clone())).await.unwrap();
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

        // It is not well because nobody asks it, nor because it takes writes.
        disk.fail(|_| false);
        world.sleep(100 * SECOND).await;
        volume.without_caching().write(1 << 20, data(1), true).await.unwrap();
        assert_eq!(health(), is(Health::DiskErrors));
        volume.read(0, 4096).await.unwrap();
        assert_eq!((health(), volume.condition().disk), (is(Health::Healthy), None));

        // What is cleaned fails and nothing else does. One success is not enough.
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
