//! Flash and disk that do not belong together.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::file::{FileDevice, OpenOptions};
use device::timer::SystemTimer;
use device::{Device, IoBuffer, MemoryDevice, Request};
use flashwright_block::volume::{
    OsIdentity, Pairing, Recovery, Superblock, Volume, VolumeConfig, VolumeError, VolumeErrorKind,
};

use crate::world::config;

const DISK_BYTES: u64 = 16 << 20;
const MIDDLE: u64 = 8 << 20;

/// A flash in memory and the file of its disk.
struct Cached {
    flash: Arc<MemoryDevice>,
    directory: tempfile::TempDir,
}

impl Cached {
    /// `None` if the file system has no extended attributes.
    #[expect(clippy::print_stdout, reason = "a skipped test prints a message")]
    fn new(uuid: u128) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let cached = Self { flash: Arc::new(MemoryDevice::new(8 << 20)), directory };
        std::fs::File::create_new(cached.disk()).unwrap().set_len(DISK_BYTES).unwrap();
        let traces = OsIdentity::of(&cached.disk());
        if !traces.set_mark(uuid) {
            println!("SKIPPED: no extended attributes here");
            return None;
        }
        traces.remove_mark(uuid);
        let (flash, disk): (Arc<dyn Device>, _) = (cached.flash.clone(), open_file(&cached.disk()));
        let made = pollster::block_on(Volume::create_for(&flash, &disk, &config(), uuid, &traces));
        assert!(made.unwrap().disk.is_marked);
        Some(cached)
    }

    fn disk(&self) -> PathBuf {
        self.directory.path().join("disk")
    }

    fn open_with(&self, disk: &Path, is_forced: bool) -> Result<(Volume, Recovery), VolumeError> {
        let pairing = Pairing { os_identity: OsIdentity::of(disk), is_forced };
        let timer = Arc::new(SystemTimer::default());
        pollster::block_on(Volume::open_as(self.flash.clone(), open_file(disk), timer, pairing))
    }

    fn open(&self) -> Volume {
        self.open_with(&self.disk(), false).unwrap().0
    }

    fn refusal(&self, disk: &Path) -> String {
        let error = self.open_with(disk, false).err().expect("it is not opened");
        assert_eq!(error.kind(), VolumeErrorKind::WrongDisk, "{error}");
        let timer = Arc::new(SystemTimer::default());
        let check = Volume::check_of(self.flash.clone(), open_file(disk), timer, true, OsIdentity::of(disk));
        let check = pollster::block_on(check).unwrap();
        assert_eq!(check.problems, [error.to_string()], "a check says the same");
        error.to_string()
    }

    fn superblock(&self) -> Superblock {
        let flash: Arc<dyn Device> = self.flash.clone();
        pollster::block_on(Volume::identify(&flash)).unwrap()
    }
}

fn open_file(path: &Path) -> Arc<dyn Device> {
    let options = OpenOptions { buffered: true, ..OpenOptions::default() };
    Arc::new(FileDevice::open(path, &options).unwrap())
}

fn write(volume: &Volume, offset: u64, byte: u8) {
    let data = IoBuffer::copy_of(&[byte; 4096]).into();
    pollster::block_on(volume.write(offset, data, true)).unwrap();
}

fn byte_at(volume: &Volume, offset: u64) -> u8 {
    pollster::block_on(volume.read(offset, 4096)).unwrap()[0]
}

/// Writes as `dd` would, with a modification time different from the last.
fn write_alone(path: &Path, offset: u64, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().write(true).open(path).unwrap();
    let before = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(bytes, offset).unwrap();
    file.set_modified(before + std::time::Duration::from_millis(1)).unwrap();
}

/// The dirty blocks of a cache must not overwrite the disk of another one, after a crash or a close.
#[test]
fn disk_of_another_cache_is_refused() {
    let (Some(one), Some(other)) = (Cached::new(0x11), Cached::new(0x22)) else { return };
    for is_closed in [false, true] {
        let volume = one.open();
        write(&volume, MIDDLE, 1);
        if is_closed {
            pollster::block_on(volume.close()).unwrap();
        }
        drop(volume);
        let said = one.refusal(&other.disk());
        assert!(said.contains("belongs to the cache 00000000000000000000000000000022"), "{said}");
        assert!(said.contains("the flash to the cache 00000000000000000000000000000011"), "{said}");
    }
    assert_eq!(OsIdentity::of(&other.disk()).mark(), Some(0x22));
    assert_eq!(byte_at(&one.open(), MIDDLE), 1);
}

#[test]
fn foreign_disk_of_equal_size_and_ends_is_refused() {
    let Some(cached) = Cached::new(7) else { return };
    let volume = cached.open();
    write(&volume, MIDDLE, 1);
    pollster::block_on(volume.close()).unwrap();
    drop(volume);
    let foreign = cached.directory.path().join("foreign");
    std::fs::File::create_new(&foreign).unwrap().set_len(DISK_BYTES).unwrap();
    let said = cached.refusal(&foreign);
    assert!(said.contains("lacks the mark of the cache"), "{said}");
    // A copy without attributes looks the same, and is accepted with `force`; then it belongs to the cache.
    let (volume, recovery) = cached.open_with(&foreign, true).unwrap();
    assert_eq!((recovery.was_forced, recovery.dirty_blocks, byte_at(&volume, MIDDLE)), (true, 1, 1));
    drop(volume);
    assert!(cached.open_with(&foreign, false).is_ok());
    assert_eq!(OsIdentity::of(&foreign).mark(), Some(7));
}

/// If every cached block is dirty, there are no clean ones to compare.
#[test]
fn disk_written_in_its_middle_after_a_crash_is_refused() {
    let Some(cached) = Cached::new(7) else { return };
    write(&cached.open(), MIDDLE, 1);
    assert!(!cached.superblock().clean && cached.superblock().disk.is_current);
    write_alone(&cached.disk(), MIDDLE + (1 << 20), &[9; 4096]);
    assert!(cached.refusal(&cached.disk()).contains("modified after the cache last wrote to it"));
}

#[test]
fn disk_written_in_its_middle_after_a_close_is_refused() {
    let Some(cached) = Cached::new(7) else { return };
    let volume = cached.open();
    write(&volume, MIDDLE, 1);
    pollster::block_on(volume.clean()).unwrap();
    pollster::block_on(volume.close()).unwrap();
    drop(volume);
    cached.open();
    write_alone(&cached.disk(), MIDDLE + (1 << 20), &[9; 4096]);
    assert!(cached.refusal(&cached.disk()).contains("modified after the cache last wrote to it"));
}

#[test]
fn disk_changed_by_its_own_cache_is_accepted() {
    let Some(cached) = Cached::new(7) else { return };
    let volume = cached.open();
    assert!(cached.superblock().disk.is_current);
    write(&volume, 0, 1);
    pollster::block_on(volume.clean()).unwrap();
    assert!(!cached.superblock().disk.is_current, "the superblock was updated before the disk write");
    drop(volume);
    let volume = cached.open();
    pollster::block_on(volume.trim(MIDDLE, 1 << 20)).unwrap();
    pollster::block_on(volume.close()).unwrap();
    drop(volume);
    assert_eq!(byte_at(&cached.open(), 0), 1);
}

/// The cached copy must not hide the newer block of the disk.
#[test]
fn forced_disk_shows_its_own_writes_and_dirty_blocks() {
    let Some(cached) = Cached::new(7) else { return };
    let volume = cached.open();
    write(&volume, MIDDLE, 1);
    pollster::block_on(volume.clean()).unwrap();
    write(&volume, MIDDLE + 8192, 2);
    pollster::block_on(volume.close()).unwrap();
    drop(volume);
    write_alone(&cached.disk(), MIDDLE, &[9; 4096]);
    cached.refusal(&cached.disk());
    let (volume, recovery) = cached.open_with(&cached.disk(), true).unwrap();
    assert_eq!((recovery.dropped_blocks, recovery.dirty_blocks), (1, 1));
    assert_eq!((byte_at(&volume, MIDDLE), byte_at(&volume, MIDDLE + 8192)), (9, 2));
    drop(volume);
    let volume = cached.open();
    assert_eq!((byte_at(&volume, MIDDLE), byte_at(&volume, MIDDLE + 8192)), (9, 2));
}

/// An older program writes zeros instead of mark and time.
#[test]
fn volume_of_an_older_program_is_paired_at_opening() {
    let Some(cached) = Cached::new(7) else { return };
    let mut superblock = cached.superblock();
    OsIdentity::of(&cached.disk()).remove_mark(7);
    (superblock.disk.is_marked, superblock.disk.changed_ns, superblock.disk.is_current) = (false, 0, false);
    for offset in [0, 64 << 10] {
        let data = IoBuffer::copy_of(&superblock.encode());
        let write = Request::write(offset, data);
        cached.flash.execute(write).unwrap();
    }
    cached.open();
    let disk = cached.superblock().disk;
    assert!(disk.is_marked && disk.changed_ns != 0 && disk.is_current);
    assert_eq!(OsIdentity::of(&cached.disk()).mark(), Some(7));
}

/// Mounting a file system changes its superblock, and some have a copy at the end: all clean blocks at both ends are compared.
#[test]
fn changed_blocks_at_the_ends_of_the_disk_are_detected_after_a_crash() {
    const END: u64 = (64 << 20) / 4096;
    let (flash, disk) = (Arc::new(MemoryDevice::new(32 << 20)), Arc::new(MemoryDevice::new(END * 4096)));
    let timer = || Arc::new(SystemTimer::default());
    pollster::block_on(async {
        let devices: [Arc<dyn Device>; 2] = [flash.clone(), disk.clone()];
        let shape = VolumeConfig { ways: 64, ..config() };
        Volume::create(&devices[0], &devices[1], &shape, 7).await.unwrap();
        let (volume, _) = Volume::open(flash.clone(), disk.clone(), timer()).await.unwrap();
        for block in (0..4096_u64).chain(END - 256..END) {
            let data = IoBuffer::copy_of(&[(block % 251) as u8 + 1; 4096]).into();
            volume.write(block * 4096, data, false).await.unwrap();
        }
        volume.flush().await.unwrap();
        volume.clean().await.unwrap();
    });
    let same = Arc::new(disk.duplicate());
    pollster::block_on(Volume::open(Arc::new(flash.duplicate()), same.clone(), timer())).unwrap();
    let compared = same.counters().read_bytes / 4096;
    assert!(
        (512..512 + 1100).contains(&compared),
        "{compared} of 4352 blocks are compared: both ends and a sample"
    );
    for block in [17, 100, 255, END - 256, END - 200, END - 101, END - 50, END - 3, END - 2] {
        let other = Arc::new(disk.duplicate());
        other.execute(Request::write(block * 4096, IoBuffer::copy_of(&[0xee; 4096]))).unwrap();
        let opened = pollster::block_on(Volume::open(Arc::new(flash.duplicate()), other, timer()));
        let refused = opened.err().map(|error| error.kind());
        assert_eq!(refused, Some(VolumeErrorKind::WrongDisk), "block {block}");
    }
}

/// A drive with free pages wears less.
#[test]
fn creation_trims_all_pages_of_the_flash() {
    let memory = Arc::new(MemoryDevice::new(16 << 20));
    let devices: [Arc<dyn Device>; 2] = [memory.clone(), Arc::new(MemoryDevice::new(64 << 20))];
    let timer = Arc::new(SystemTimer::default());
    let volume = pollster::block_on(async {
        Volume::create(&devices[0], &devices[1], &config(), 7).await.unwrap();
        Volume::open(devices[0].clone(), devices[1].clone(), timer).await.unwrap().0
    });
    let trimmed = memory.counters().trimmed_bytes;
    assert!((volume.stats().capacity_blocks * 4096..16 << 20).contains(&trimmed), "{trimmed} bytes");
}
