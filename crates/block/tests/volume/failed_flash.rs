//! A volume after a failed write of its flash.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

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

    /// Makes all writes of the flash fail, and triggers one by a read miss.
    fn fail(&self) {
        self.flash.fail(|request| matches!(request, Request::Write { .. }));
        pollster::block_on(self.volume.read(1000 * BLOCK, BLOCK as usize)).unwrap();
        assert_eq!(self.volume.stats().health, Health::FlashFailed);
    }
}

/// Flushes without dirty data on flash must succeed, or a file system would become read-only.
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
            // The clean state can no longer be recorded and does not have to be.
            pair.volume.clean().await.unwrap();
            assert!(!pair.disk.places_of(&[5; 16]).is_empty());
            pair.volume.flush().await.unwrap();
        });
        assert!(pair.disk.counters().flushes >= flushes + 2, "{mode:?}");
        pair.disk.fail(|request| matches!(request, Request::Flush));
        let error = pollster::block_on(pair.volume.write(7 * BLOCK, data(9), true)).unwrap_err();
        assert_eq!(error.kind(), VolumeErrorKind::Disk, "{mode:?}");
    }
}

/// Uncommitted blocks must not prevent the cleaning of committed ones in the same run.
#[test]
fn blocks_committed_before_flash_failed_are_cleaned() {
    let pair = Pair::new(&config());
    pollster::block_on(pair.volume.write(5 * BLOCK, data(5), true)).unwrap();
    pollster::block_on(pair.volume.write(6 * BLOCK, data(6), false)).unwrap();
    pair.fail();
    let error = pollster::block_on(pair.volume.clean()).unwrap_err();
    assert_eq!(error.kind(), VolumeErrorKind::Flash);
    let has = |byte: u8| !pair.disk.places_of(&[byte; 16]).is_empty();
    assert_eq!((has(5), has(6), pair.volume.stats().dirty_blocks), (true, false, 1));
}

/// Flash has acknowledged data that cannot be made durable.
#[test]
fn flushes_that_need_a_failed_flash_fail() {
    let pair = Pair::new(&config());
    pollster::block_on(pair.volume.write(5 * BLOCK, data(5), false)).unwrap();
    pair.fail();
    for _ in 0..3 {
        let error = pollster::block_on(pair.volume.flush()).unwrap_err();
        assert_eq!(error.kind(), VolumeErrorKind::Flash);
    }
    // The removal of a block cannot be recorded either.
    let pair = Pair::new(&config());
    pollster::block_on(pair.volume.write(5 * BLOCK, data(5), true)).unwrap();
    pair.fail();
    let error = pollster::block_on(pair.volume.trim(5 * BLOCK, BLOCK)).unwrap_err();
    assert_eq!(error.kind(), VolumeErrorKind::Flash);
}

/// An older dirty block would have to reach the disk first, and its cleaning cannot be recorded.
#[test]
fn ordered_volume_with_failed_flash_accepts_writes_if_nothing_older_is_dirty() {
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
        let error = pair.volume.write(7 * BLOCK, data(7), false).await.unwrap_err();
        assert_eq!(error.kind(), VolumeErrorKind::Flash);
        let has = |byte: u8| !pair.disk.places_of(&[byte; 16]).is_empty();
        assert_eq!((has(5), has(7)), (false, false));
    });
}

/// The disk has all data in these modes.
#[test]
fn failed_flash_permits_writes_of_cached_blocks_in_modes_without_dirty_blocks() {
    for mode in [Mode::WriteThrough, Mode::WriteAround] {
        let tuning = Tuning { mode, ..config().tuning };
        let pair = Pair::new(&VolumeConfig { tuning, ..config() });
        pollster::block_on(async {
            let volume = &pair.volume;
            for block in 5..8 {
                volume.write(block * BLOCK, data(1), false).await.unwrap();
                volume.read(block * BLOCK, BLOCK as usize).await.unwrap();
            }
            volume.flush().await.unwrap();
            pair.flash.fail(|request| !matches!(request, Request::Read { .. }));
            for byte in [2, 3] {
                volume.write(5 * BLOCK, data(byte), false).await.unwrap();
                // Part of a block, and a trim.
                volume.write(6 * BLOCK + 512, IoBuffer::copy_of(&[byte; 512]).into(), true).await.unwrap();
                volume.trim(7 * BLOCK, BLOCK).await.unwrap();
                volume.flush().await.unwrap();
            }
            // In write-around mode only an insertion writes the flash.
            volume.read(9 * BLOCK, BLOCK as usize).await.unwrap();
            assert_eq!(volume.stats().health, Health::FlashFailed);
            assert_eq!(volume.set_tuning(config().tuning).await.unwrap_err().kind(), VolumeErrorKind::Flash);
        });
        let is_new = |volume: &Volume| {
            let read = |offset| pollster::block_on(volume.read(offset, 512)).unwrap();
            assert_eq!(read(5 * BLOCK)[..], [3; 512], "{mode:?}");
            assert_eq!(read(6 * BLOCK)[..], [1; 512], "{mode:?}");
            assert_eq!(read(6 * BLOCK + 512)[..], [3; 512], "{mode:?}");
        };
        is_new(&pair.volume);
        let Pair { flash, disk, volume } = pair;
        pollster::block_on(volume.close()).unwrap_err();
        flash.fail(|_| false);
        let opened = Volume::open(flash, disk, Arc::new(SystemTimer::default()));
        is_new(&pollster::block_on(opened).unwrap().0);
    }
}

/// It is unknown which superblock is in force, and so whether recovery restores clean blocks.
#[test]
fn flash_failure_during_mode_change_restores_no_outdated_blocks() {
    let modes = [
        [Mode::WriteBack, Mode::WriteThrough],
        [Mode::WriteThrough, Mode::WriteBack],
        [Mode::WriteAround, Mode::WriteBack],
        [Mode::WriteOnly, Mode::WriteAround],
    ];
    for (modes, permanent) in modes.iter().flat_map(|modes| [(modes, false), (modes, true)]) {
        let mut first = 0;
        while fails_while_modes_change(*modes, first, permanent) {
            first += 1;
        }
        assert!(first > 10, "{modes:?}: failed at none of the changes of mode");
    }
}

/// Fails change number `first` of the flash, and all later ones if `permanent`. Returns whether there was a change of that number.
fn fails_while_modes_change(modes: [Mode; 2], first: u64, permanent: bool) -> bool {
    let what = format!("{modes:?}, change {first}, permanent: {permanent}");
    let tuning = |mode| Tuning { mode, ..config().tuning };
    let Pair { flash, disk, volume } = Pair::new(&VolumeConfig { tuning: tuning(modes[0]), ..config() });
    let requested = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&requested);
    // Permitted contents of a block: the last acknowledged write, or a later failed one.
    let mut may_be = [const { Vec::<u8>::new() }; 5];
    let is_one_of = |volume: &Volume, may_be: &[Vec<u8>; 5], when: &str| {
        for (block, values) in (0..).zip(may_be) {
            let read = pollster::block_on(volume.read(block * BLOCK, 512)).unwrap();
            assert!(values.contains(&read[0]), "{what}: block {block} is {} {when}, not {values:?}", read[0]);
        }
    };
    pollster::block_on(async {
        for block in 0..5 {
            volume.write(block * BLOCK, data(1), block % 2 == 0).await.unwrap();
            may_be[block as usize] = vec![1];
        }
        volume.flush().await.unwrap();
        volume.clean().await.unwrap();
        volume.read(0, 5 * BLOCK as usize).await.unwrap();
        flash.fail(move |request| {
            let is_change = !matches!(request, Request::Read { .. });
            let number = if is_change { counted.fetch_add(1, SeqCst) } else { u64::MAX };
            is_change && (number == first || (permanent && number > first))
        });
        for (round, mode) in [modes[1], modes[0], modes[1]].into_iter().enumerate() {
            let _told = volume.set_tuning(tuning(mode)).await;
            for block in 0..4_u64 {
                let byte = 10 * (round as u8 + 1) + block as u8;
                let values = &mut may_be[block as usize];
                match volume.write(block * BLOCK, data(byte), block == 3).await {
                    Ok(()) => *values = vec![byte],
                    Err(_) => values.push(byte),
                }
            }
            is_one_of(&volume, &may_be, "immediately");
            let _told = volume.flush().await;
        }
    });
    drop(volume);
    flash.fail(|_| false);
    let opened = Volume::open(flash, disk, Arc::new(SystemTimer::default()));
    is_one_of(&pollster::block_on(opened).unwrap().0, &may_be, "after a crash");
    requested.load(SeqCst) > first
}

/// Committed epochs are destaged although uncommitted blocks remain.
#[test]
fn committed_epochs_of_a_failed_flash_are_destaged() {
    let pair = Pair::new(&VolumeConfig { ordered: true, ..config() });
    pollster::block_on(async {
        for byte in 1..4_u8 {
            pair.volume.write(u64::from(byte) * BLOCK, data(byte), true).await.unwrap();
        }
        pair.volume.write(9 * BLOCK, data(9), false).await.unwrap();
    });
    pair.fail();
    pollster::block_on(async {
        assert_eq!(pair.volume.clean().await.unwrap_err().kind(), VolumeErrorKind::Flash);
    });
    let on_disk = |byte: u8| pair.disk.places_of(&[byte; 16]);
    assert_eq!([1, 2, 3, 9].map(on_disk), [vec![BLOCK], vec![2 * BLOCK], vec![3 * BLOCK], vec![]]);
}

/// The write is repeated without the flash.
#[test]
fn write_during_flash_failure_goes_to_the_disk() {
    for flushed in [false, true] {
        let Pair { flash, disk, volume } = Pair::new(&config());
        pollster::block_on(async {
            volume.write(5 * BLOCK, data(5), true).await.unwrap();
            flash.fail(|request| matches!(request, Request::Write { .. }));
            let eight = |byte: u8| IoBuffer::copy_of(&[byte; 8 * BLOCK as usize]).into();
            volume.write(10 * BLOCK, eight(1), flushed).await.unwrap();
            assert_eq!(volume.stats().health, Health::FlashFailed);
            assert_eq!(disk.places_of(&[1; 16]).len(), 8);
            // Blocks that are only on flash, from where recovery would restore them.
            let error = volume.write(4 * BLOCK, eight(2), false).await.unwrap_err();
            assert_eq!(error.kind(), VolumeErrorKind::Flash);
            volume.flush().await.unwrap();
            let stats = volume.stats();
            assert_eq!((stats.counters.writes, stats.counters.uncached_writes), (9, 8));
        });
        drop(volume);
        flash.fail(|_| false);
        let volume =
            pollster::block_on(Volume::open(flash, disk, Arc::new(SystemTimer::default()))).unwrap().0;
        let read = |block: u64| pollster::block_on(volume.read(block * BLOCK, 512)).unwrap()[0];
        assert_eq!([5, 10, 17, 18].map(read), [5, 1, 1, 0]);
    }
}

/// A commit with a failed flush may still take effect after a crash, so blocks in it count as recorded on flash.
#[test]
fn blocks_recorded_by_a_commit_with_a_failed_flush_do_not_overwrite_newer_writes() {
    for (block, is_dirty) in [(5, true), (1000, false)] {
        let Pair { flash, disk, volume } = Pair::new(&config());
        disk.memory.execute(Request::write(1000 * BLOCK, data(1))).unwrap();
        let (offset, kind) = (block * BLOCK, VolumeErrorKind::Flash);
        pollster::block_on(async {
            volume.read(1000 * BLOCK, BLOCK as usize).await.unwrap();
            flash.fail(|request| matches!(request, Request::Flush));
            // Committed together with the other one.
            assert_eq!(volume.write(5 * BLOCK, data(1), true).await.unwrap_err().kind(), kind);
            let trimmed = volume.trim(offset, BLOCK).await.is_ok();
            let written = volume.write(offset, data(2), false).await.and(volume.flush().await).is_ok();
            drop(volume);
            flash.fail(|_| false);
            if written {
                let (volume, _) = Volume::open(flash, disk, Arc::new(SystemTimer::default())).await.unwrap();
                assert_eq!(volume.read(offset, 512).await.unwrap()[0], 2, "dirty: {is_dirty}");
            }
            assert!(!trimmed, "the removal of the block cannot be recorded");
        });
    }
}
