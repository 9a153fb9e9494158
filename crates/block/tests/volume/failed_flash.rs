//! What a volume does after its flash has failed a write.

use std::sync::Arc;

use device::timer::SystemTimer;
use device::{Device, IoBuffer, Request};
use flashwright_block::sets::{Mode, Tuning};
use flashwright_block::volume::{Health, Volume, VolumeConfig, VolumeErrorKind};

use crate::faulty::Faulty;
use crate::world::config;

const BLOCK: u64 = 4096;

fn data(byte: u8) -> device::IoSlice {
    IoBuffer::copy_of(&[byte; BLOCK as usize]).into()
}

struct Pair {
    flash: Arc<Faulty>,
    disk: Arc<Faulty>,
    volume: Volume,
}

impl Pair {
    fn new(config: &VolumeConfig) -> Self {
        let (flash, disk) = (Faulty::new(4 << 20), Faulty::new(8 << 20));
        let (one, other): (Arc<dyn Device>, Arc<dyn Device>) = (flash.clone(), disk.clone());
        let volume = pollster::block_on(async {
            Volume::create(&one, &other, config, 5).await.unwrap();
            Volume::open(one, other, Arc::new(SystemTimer::default())).await.unwrap().0
        });
        Self { flash, disk, volume }
    }

    /// No write of the flash succeeds any more, as a read finds out that brings a block in.
    fn fail(&self) {
        self.flash.fail(|request| matches!(request, Request::Write { .. }));
        pollster::block_on(self.volume.read(1000 * BLOCK, BLOCK as usize)).unwrap();
        assert_eq!(self.volume.stats().health, Health::FlashFailed);
    }
}

/// They failed, though flash had nothing of what they were to make durable: a file system would have gone read-only.
#[test]
fn flushes_that_need_only_the_disk_succeed_after_the_flash_has_failed() {
    for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround] {
        let tuning = Tuning { mode: Mode::WriteBack, ..config().tuning };
        let pair = Pair::new(&VolumeConfig { tuning, ..config() });
        pollster::block_on(async {
            pair.volume.write(5 * BLOCK, data(5), true).await.unwrap();
            pair.volume.set_tuning(Tuning { mode, ..tuning }).await.unwrap();
        });
        pair.fail();
        let flushes = pair.disk.counters().flushes;
        pollster::block_on(async {
            pair.volume.write(7 * BLOCK, data(7), false).await.unwrap();
            pair.volume.flush().await.unwrap();
            pair.volume.write(7 * BLOCK, data(8), true).await.unwrap();
            assert_eq!(pair.volume.read(5 * BLOCK, 1024).await.unwrap()[..], [5; 1024]);
            assert_eq!(pair.volume.read(7 * BLOCK, 1024).await.unwrap()[..], [8; 1024]);
            // That it is clean cannot be told any more, and need not be.
            pair.volume.clean().await.unwrap();
            assert!(!pair.disk.places_of(&[5; 16]).is_empty());
            pair.volume.flush().await.unwrap();
        });
        assert!(pair.disk.counters().flushes >= flushes + 2, "{mode:?}");
        pair.disk.fail(|request| matches!(request, Request::Flush));
        let told = pollster::block_on(pair.volume.write(7 * BLOCK, data(9), true)).unwrap_err();
        assert_eq!(told.kind(), VolumeErrorKind::Disk, "{mode:?}");
    }
}

/// What was not durable when the flash failed kept all that was to be cleaned with it from the disk.
#[test]
fn what_a_failed_flash_has_committed_is_cleaned() {
    let pair = Pair::new(&config());
    pollster::block_on(pair.volume.write(5 * BLOCK, data(5), true)).unwrap();
    pollster::block_on(pair.volume.write(6 * BLOCK, data(6), false)).unwrap();
    pair.fail();
    let told = pollster::block_on(pair.volume.clean()).unwrap_err();
    assert_eq!(told.kind(), VolumeErrorKind::Flash);
    let has = |byte: u8| !pair.disk.places_of(&[byte; 16]).is_empty();
    assert_eq!((has(5), has(6), pair.volume.stats().dirty_blocks), (true, false, 1));
}

/// Flash has what was acknowledged in the meantime, and cannot be made to keep it.
#[test]
fn flushes_that_need_a_failed_flash_fail() {
    let pair = Pair::new(&config());
    pollster::block_on(pair.volume.write(5 * BLOCK, data(5), false)).unwrap();
    pair.fail();
    for _ in 0..3 {
        let told = pollster::block_on(pair.volume.flush()).unwrap_err();
        assert_eq!(told.kind(), VolumeErrorKind::Flash);
    }
    // Nor can it be told that a block left it.
    let pair = Pair::new(&config());
    pollster::block_on(pair.volume.write(5 * BLOCK, data(5), true)).unwrap();
    pair.fail();
    let told = pollster::block_on(pair.volume.trim(5 * BLOCK, BLOCK)).unwrap_err();
    assert_eq!(told.kind(), VolumeErrorKind::Flash);
}

/// It would be cleaned in its turn, and cannot be told to be: nothing may go to the disk before it.
#[test]
fn an_ordered_volume_whose_flash_has_failed_takes_writes_if_nothing_is_before_them() {
    let pair = Pair::new(&VolumeConfig { ordered: true, ..config() });
    pair.fail();
    pollster::block_on(async {
        pair.volume.write(7 * BLOCK, data(7), true).await.unwrap();
        assert_eq!(pair.volume.read(7 * BLOCK, 1024).await.unwrap()[..], [7; 1024]);
    });

    let pair = Pair::new(&VolumeConfig { ordered: true, ..config() });
    pollster::block_on(async {
        pair.volume.write(5 * BLOCK, data(5), true).await.unwrap();
        pair.fail();
        let told = pair.volume.write(7 * BLOCK, data(7), false).await.unwrap_err();
        assert_eq!(told.kind(), VolumeErrorKind::Flash);
        let has = |byte: u8| !pair.disk.places_of(&[byte; 16]).is_empty();
        assert_eq!((has(5), has(7)), (false, false));
    });
}
