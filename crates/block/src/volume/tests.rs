//! The volume, against its promises.

use std::sync::Arc;

use device::timer::SystemTimer;
use device::{Device, IoBuffer, IoSlice, MemoryDevice};

use super::*;

fn data(len: usize, value: u8) -> IoSlice {
    IoBuffer::copy_of(&vec![value; len]).into()
}

fn config() -> VolumeConfig {
    VolumeConfig { ways: 64, ..VolumeConfig::default() }
}

#[test]
fn what_was_written_and_flushed_is_there_after_a_close() {
    pollster::block_on(async {
        let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new(4 << 20));
        let disk: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
        Volume::create(&flash, &disk, &config(), 1).await.unwrap();
        let open = || Volume::open(Arc::clone(&flash), Arc::clone(&disk), Arc::new(SystemTimer::default()));
        let (volume, recovery) = open().await.unwrap();
        assert!(recovery.was_clean);
        volume.write(4096, data(8192, 7), false).await.unwrap();
        volume.write(512, data(512, 3), true).await.unwrap();
        assert_eq!(volume.read(4096, 8192).await.unwrap()[..], [7; 8192]);
        assert_eq!(volume.read(0, 1024).await.unwrap()[..], [[0; 512], [3; 512]].concat());
        assert_eq!(disk.counters().writes, 0, "write-back");
        volume.close().await.unwrap();
        let (volume, recovery) = open().await.unwrap();
        assert_eq!((recovery.was_clean, recovery.dirty_blocks), (true, 3));
        assert_eq!(volume.read(4096, 8192).await.unwrap()[..], [7; 8192]);
        drop(volume);
        let (volume, recovery) = open().await.unwrap();
        assert_eq!((recovery.was_clean, recovery.dirty_blocks), (false, 3));
        assert_eq!(volume.read(0, 1024).await.unwrap()[..], [[0; 512], [3; 512]].concat());
    });
}
