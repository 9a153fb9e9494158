//! What a volume does while its disk fails flushes.

use std::sync::Arc;

use device::timer::SystemTimer;
use device::{Device, IoBuffer, Request};
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
        assert_eq!(volume.stats().health, Health::Healthy);
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
