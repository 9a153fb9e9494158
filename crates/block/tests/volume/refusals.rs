//! Volumes that are refused, with the reason; the results of a check; the effect of a damaged copy.

use std::sync::Arc;

use device::timer::SystemTimer;
use device::wrap::{FaultDevice, Faults};
use device::{Device, IoBuffer, MemoryDevice, Request};
use flashwright_block::sets::{Mode, Tuning};
use flashwright_block::volume::superblock::{FORMAT_VERSION, OLDEST_FORMAT};
use flashwright_block::volume::{Check, Volume, VolumeConfig, VolumeErrorKind};

use crate::world::{commit, config};

struct Pair {
    flash: Arc<MemoryDevice>,
    disk: Arc<MemoryDevice>,
}

const DISK_BYTES: u64 = 4 << 20;

impl Pair {
    /// A closed volume with clean and dirty blocks.
    fn used(config: &VolumeConfig) -> Self {
        let flash = Arc::new(MemoryDevice::new(3 << 20));
        let pair = Self { flash, disk: Arc::new(MemoryDevice::new(DISK_BYTES)) };
        let (flash, disk): (Arc<dyn Device>, Arc<dyn Device>) = (pair.flash.clone(), pair.disk.clone());
        pollster::block_on(async {
            Volume::create(&flash, &disk, config, 77).await.unwrap();
            let volume = pair.open().await.unwrap();
            for block in 0..60_u64 {
                write(&volume, block * 5 * 4096, block as u8 + 1).await;
            }
            volume.clean().await.unwrap();
            for block in 0..20_u64 {
                write(&volume, block * 7 * 4096, block as u8 + 100).await;
            }
            volume.close().await.unwrap();
        });
        pair
    }

    fn copy(&self) -> Self {
        Self { flash: Arc::new(self.flash.duplicate()), disk: Arc::new(self.disk.duplicate()) }
    }

    async fn open(&self) -> Result<Volume, flashwright_block::volume::VolumeError> {
        let timer = Arc::new(SystemTimer::default());
        Volume::open(self.flash.clone(), self.disk.clone(), timer).await.map(|(volume, _)| volume)
    }

    fn refusal(&self) -> VolumeErrorKind {
        let opened = pollster::block_on(self.open());
        opened.err().expect("it is not opened").kind()
    }

    fn check(&self, full: bool) -> Check {
        let timer = Arc::new(SystemTimer::default());
        let check = Volume::check(self.flash.clone(), self.disk.clone(), timer, full);
        pollster::block_on(check).unwrap()
    }
}

async fn write(volume: &Volume, offset: u64, byte: u8) {
    volume.write(offset, IoBuffer::copy_of(&[byte; 4096]).into(), false).await.unwrap();
}

fn change_on_device(device: &dyn Device, offset: u64, change: impl Fn(&mut [u8])) {
    let read = Request::read(offset, 4096);
    let mut bytes = device.execute(read).unwrap();
    change(&mut bytes);
    let data = bytes;
    device.execute(Request::write(offset, data)).unwrap();
}

#[test]
fn failed_create_keeps_the_existing_volume() {
    let pair = Pair::used(&config());
    let before = pair.check(true);
    let faults = Faults { failed_writes: 1.0, ..Faults::default() };
    let flash: Arc<dyn Device> = Arc::new(FaultDevice::new(pair.flash.clone(), 1, faults));
    let disk: Arc<dyn Device> = pair.disk.clone();
    let made = pollster::block_on(Volume::create(&flash, &disk, &config(), 78));
    assert_eq!(made.err().map(|error| error.kind()), Some(VolumeErrorKind::Flash));
    assert_eq!(format!("{:?}", pair.check(true)), format!("{before:?}"));
}

#[test]
fn flash_without_a_volume_is_refused() {
    let pair =
        Pair { flash: Arc::new(MemoryDevice::new(1 << 20)), disk: Arc::new(MemoryDevice::new(1 << 20)) };
    assert_eq!(pair.refusal(), VolumeErrorKind::Foreign);
}

#[test]
fn disk_of_another_size_is_refused() {
    let mut pair = Pair::used(&config());
    pair.disk = Arc::new(MemoryDevice::new(DISK_BYTES * 2));
    assert_eq!(pair.refusal(), VolumeErrorKind::WrongDisk);
}

#[test]
fn disk_written_without_its_cache_is_refused_by_label() {
    let pair = Pair::used(&config());
    for offset in [0, 1024 / 512 * 512, DISK_BYTES - 4096] {
        let other = pair.copy();
        change_on_device(&*other.disk, offset, |bytes| bytes[600] ^= 1);
        assert_eq!(other.refusal(), VolumeErrorKind::WrongDisk, "at {offset}");
    }
    // In the middle, only clean blocks can be compared.
    let other = pair.copy();
    change_on_device(&*other.disk, 5 * 31 * 4096, |bytes| bytes[0] ^= 1);
    assert_eq!(other.refusal(), VolumeErrorKind::WrongDisk);
}

/// Samples are spread over the whole disk.
#[test]
fn disk_written_in_its_upper_half_is_refused() {
    let pair =
        Pair { flash: Arc::new(MemoryDevice::new(3 << 20)), disk: Arc::new(MemoryDevice::new(DISK_BYTES)) };
    let (flash, disk): (Arc<dyn Device>, Arc<dyn Device>) = (pair.flash.clone(), pair.disk.clone());
    pollster::block_on(async {
        Volume::create(&flash, &disk, &config(), 77).await.unwrap();
        let volume = pair.open().await.unwrap();
        for block in 0..127_u64 {
            write(&volume, block * 7 * 4096, block as u8 + 1).await;
        }
        volume.clean().await.unwrap();
        assert_eq!(volume.stats().held_blocks, 127);
    });
    for block in 64..126 {
        change_on_device(&*pair.disk, block * 7 * 4096, |bytes| bytes.fill(0xee));
    }
    assert_eq!(pair.refusal(), VolumeErrorKind::WrongDisk);
}

#[test]
fn clean_blocks_identify_the_disk_after_a_crash() {
    let pair = Pair::used(&config());
    pollster::block_on(async { drop(pair.open().await.unwrap()) });
    pollster::block_on(async { drop(pair.open().await.unwrap()) });
    change_on_device(&*pair.disk, 5 * 31 * 4096, |bytes| bytes[0] ^= 1);
    assert_eq!(pair.refusal(), VolumeErrorKind::WrongDisk);
}

#[test]
fn check_of_an_intact_volume_finds_and_changes_nothing() {
    for checksums in [false, true] {
        let pair = Pair::used(&VolumeConfig { checksums, ..config() });
        let (writes, disk_writes) = (pair.flash.counters().writes, pair.disk.counters().writes);
        let check = pair.check(true);
        assert_eq!((check.is_sound(), &check.problems), (true, &Vec::new()));
        let found = check.found.unwrap();
        assert_eq!((found.blocks, found.dirty_blocks), (76, 20));
        assert_eq!((check.blocks_read, check.blocks_compared), (76, 56));
        assert_eq!(pair.check(false).blocks_read, 0);
        assert_eq!((pair.flash.counters().writes, pair.disk.counters().writes), (writes, disk_writes));
    }
}

/// A kill during a change of settings leaves superblocks of different age, which is not damage.
#[test]
fn check_accepts_an_interrupted_superblock_update() {
    let pair = Pair::used(&config());
    let (earlier, second) = (pair.copy(), 64 << 10);
    pollster::block_on(async {
        let volume = pair.open().await.unwrap();
        volume.set_tuning(volume.superblock().tuning).await.unwrap();
    });
    let read = |pair: &Pair| pair.flash.execute(Request::read(second, 4096));
    let old = read(&earlier).unwrap();
    change_on_device(&*pair.flash, second, |bytes| bytes.copy_from_slice(&old[..bytes.len()]));
    assert_eq!((pair.check(true).problems, pair.check(true).found.unwrap().was_clean), (Vec::new(), false));
    // The copies are never written in the other order.
    change_on_device(&*pair.flash, 0, |bytes| bytes.copy_from_slice(&old[..bytes.len()]));
    let newer = pair.copy();
    pollster::block_on(async { newer.open().await.unwrap().close().await.unwrap() });
    let new = read(&newer).unwrap();
    change_on_device(&*pair.flash, second, |bytes| bytes.copy_from_slice(&new[..bytes.len()]));
    assert!(pair.check(false).problems[0].contains("one of the two superblocks"));
}

#[test]
fn check_reports_a_wrong_disk_without_block_problems() {
    let pair = Pair::used(&config());
    let mut other = pair.copy();
    other.disk = Arc::new(MemoryDevice::new(DISK_BYTES * 2));
    let written = pair.copy();
    change_on_device(&*written.disk, 5 * 31 * 4096, |bytes| bytes[0] ^= 1);
    for (wrong, message) in [(other, "bytes, not "), (written, "written to without the cache")] {
        let check = wrong.check(false);
        assert_eq!((check.found, check.problem_count), (Err(VolumeErrorKind::WrongDisk), 1));
        assert!(check.problems[0].contains(message), "{:?}", check.problems);
    }
}

#[test]
fn full_check_finds_damaged_pages_and_differing_clean_blocks() {
    let pair = Pair::used(&VolumeConfig { checksums: true, ..config() });
    let layout = pollster::block_on(pair.open()).unwrap().superblock().layout;
    let mut found = 0;
    for page in 0..120 {
        let other = pair.copy();
        change_on_device(&*other.flash, layout.page_offset(page), |bytes| bytes[77] ^= 4);
        found += other.check(true).problem_count;
    }
    assert_eq!(found, 76, "one for each page that holds a block");
    // Block 155 was written once and then cleaned.
    change_on_device(&*pair.disk, 5 * 31 * 4096, |bytes| bytes[77] ^= 4);
    assert_eq!(pair.check(true).problems, ["block 155 is clean on flash, but differs from the disk"]);
}

/// One intact copy of the superblock is enough; damage to both is reported.
#[test]
fn one_damaged_superblock_copy_is_tolerated() {
    let pair = Pair::used(&config());
    for byte in (0..512).step_by(3) {
        for (copy, other) in [(0, 64 << 10), (64 << 10, 0)] {
            let damaged = pair.copy();
            change_on_device(&*damaged.flash, copy, |bytes| bytes[byte] ^= 0x10);
            assert_eq!(damaged.check(false).problem_count, 1, "byte {byte}");
            let volume = pollster::block_on(damaged.open()).unwrap();
            assert_eq!(volume.stats().dirty_blocks, 20);
            change_on_device(&*damaged.flash, other, |bytes| bytes[byte] ^= 0x10);
            change_on_device(&*damaged.flash, copy, |bytes| bytes[byte] ^= 0x10);
        }
        let damaged = pair.copy();
        for copy in [0, 64 << 10] {
            change_on_device(&*damaged.flash, copy, |bytes| bytes[byte] ^= 0x10);
        }
        let expected = if byte < 8 { VolumeErrorKind::Foreign } else { VolumeErrorKind::Damaged };
        assert_eq!(damaged.refusal(), expected, "byte {byte}");
    }
}

/// A flipped bit in the table is refused, also in the eviction order.
#[test]
fn flipped_byte_of_a_table_is_detected() {
    for format in OLDEST_FORMAT..=FORMAT_VERSION {
        let pair = Pair::used(&VolumeConfig { format, ..config() });
        let flash = pair.flash.clone() as Arc<dyn Device>;
        let superblock = pollster::block_on(Volume::identify(&flash)).unwrap();
        assert_eq!((superblock.format, superblock.checkpoint.table_blocks), (format, 1));
        let table = superblock.layout.table_offset(superblock.checkpoint.table);
        for byte in 0..4096 {
            change_on_device(&*pair.flash, table, |bytes| bytes[byte] ^= 0x10);
            assert_eq!(pair.refusal(), VolumeErrorKind::Damaged, "format {format}, byte {byte}");
            change_on_device(&*pair.flash, table, |bytes| bytes[byte] ^= 0x10);
        }
        pollster::block_on(pair.open()).unwrap();
    }
}

/// A flipped bit in the last commit ends the journal before it; the intent log entry before that commit still counts. If an entry
/// confirms the damaged commit, the volume is refused.
#[test]
fn flipped_byte_of_the_journal_is_never_applied() {
    let pair = Pair::used(&config());
    let superblock = pollster::block_on(Volume::identify(&(pair.flash.clone() as Arc<dyn Device>))).unwrap();
    pollster::block_on(async {
        let volume = pair.open().await.unwrap();
        for number in 0..3_u8 {
            write(&volume, 3 * 4096, number + 1).await;
            commit(&volume).await;
        }
    });
    let block = |number| {
        let place = superblock.checkpoint.journal_sequence + number;
        superblock.layout.journal_offset() + place * 4096
    };
    let (second, last) = (block(2), block(3));
    for byte in (0..4096).step_by(7) {
        let damaged = pair.copy();
        change_on_device(&*damaged.flash, last, |bytes| bytes[byte] ^= 0x10);
        let volume = pollster::block_on(damaged.open()).unwrap();
        let bytes = pollster::block_on(volume.read(3 * 4096, 4096)).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 3), "byte {byte}: {:?}", &bytes[..4]);
        let damaged = pair.copy();
        change_on_device(&*damaged.flash, second, |bytes| bytes[byte] ^= 0x10);
        assert_eq!(damaged.refusal(), VolumeErrorKind::Damaged, "byte {byte}");
    }
}

#[test]
fn damaged_clean_page_is_read_from_disk_and_damaged_dirty_page_fails() {
    let pair = Pair::used(&VolumeConfig { checksums: true, ..config() });
    let layout = pollster::block_on(pair.open()).unwrap().superblock().layout;
    let rot = |pair: &Pair| {
        for page in 0..layout.pages() {
            change_on_device(&*pair.flash, layout.page_offset(page), |bytes| bytes[5] ^= 1);
        }
    };
    // Without checksums, the comparison at opening cannot distinguish damaged flash from a changed disk.
    let without = Pair::used(&config());
    rot(&without);
    assert_eq!(without.refusal(), VolumeErrorKind::WrongDisk);
    rot(&pair);
    pollster::block_on(async {
        let volume = pair.open().await.unwrap();
        let clean = volume.read(5 * 4096, 4096).await.unwrap();
        assert!(clean.iter().all(|&byte| byte == 2));
        let dirty = volume.read(7 * 4096, 4096).await.unwrap_err();
        assert_eq!(dirty.kind(), VolumeErrorKind::Flash);
        assert_eq!(volume.stats().dirty_blocks, 20, "it is not forgotten");
        write(&volume, 7 * 4096, 9).await;
        assert!(
            volume.read(7 * 4096, 4096).await.unwrap().iter().all(|&byte| byte == 9),
            "a write makes it good"
        );
    });
}

#[test]
fn unaligned_and_out_of_range_requests_fail() {
    let pair = Pair::used(&config());
    pollster::block_on(async {
        let volume = pair.open().await.unwrap();
        for (offset, len) in
            [(DISK_BYTES, 512), (DISK_BYTES - 512, 1024), (1, 512), (0, 100), (u64::MAX - 511, 512)]
        {
            let error = volume.read(offset, len).await.unwrap_err();
            assert_eq!(error.kind(), VolumeErrorKind::Invalid);
            let data = IoBuffer::zeroed(len).into();
            assert_eq!(volume.write(offset, data, false).await.unwrap_err().kind(), VolumeErrorKind::Invalid);
            assert_eq!(volume.trim(offset, len as u64).await.unwrap_err().kind(), VolumeErrorKind::Invalid);
        }
        volume.close().await.unwrap();
        assert_eq!(volume.read(0, 512).await.unwrap_err().kind(), VolumeErrorKind::Closed);
        assert_eq!(volume.flush().await.unwrap_err().kind(), VolumeErrorKind::Closed);
    });
}

#[test]
fn mode_change_survives_reopening() {
    let pair = Pair::used(&config());
    pollster::block_on(async {
        let volume = pair.open().await.unwrap();
        let tuning = Tuning { mode: Mode::WriteThrough, ..volume.superblock().tuning };
        volume.set_tuning(tuning).await.unwrap();
        write(&volume, 7 * 4096, 200).await;
        volume.flush().await.unwrap();
        assert_eq!(volume.stats().dirty_blocks, 20, "dirty blocks stay dirty until the disk has them");
        while volume.stats().dirty_blocks > 0 {
            assert!(volume.upkeep().await.unwrap(), "a mode without dirty blocks has them cleaned");
        }
        volume.clean().await.unwrap();
        drop(volume);
        let volume = pair.open().await.unwrap();
        assert_eq!(volume.superblock().tuning.mode, Mode::WriteThrough);
        assert_eq!(volume.stats().held_blocks, 0, "clean blocks are dropped after a crash in this mode");
        assert!(volume.read(7 * 4096, 4096).await.unwrap().iter().all(|&byte| byte == 200));
    });
}

#[test]
fn memory_is_at_most_twenty_bytes_per_block() {
    let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new(8 << 30));
    let disk: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 30));
    pollster::block_on(async {
        Volume::create(&flash, &disk, &VolumeConfig::default(), 1).await.unwrap();
        let (volume, _) = Volume::open(flash, disk, Arc::new(SystemTimer::default())).await.unwrap();
        let stats = volume.stats();
        let per_block = stats.memory_bytes as f64 / stats.capacity_blocks as f64;
        assert!(per_block <= 20.0, "{per_block} bytes a block");
        println!("{per_block:.2} bytes a block of {} blocks", stats.capacity_blocks);
    });
}
