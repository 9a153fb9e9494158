//! Growing the disk of a volume, and moving it to another flash: contents afterwards, and power cuts.

use std::sync::Arc;

use device::wrap::{CrashDevice, Power};
use device::{Device, IoBuffer, MemoryDevice, Request};
use flashwright_block::sets::Mode;
use flashwright_block::volume::{OsIdentity, Replaced, Result, Volume, VolumeConfig, VolumeErrorKind};

use crate::history::{Shape, Step, draw, play, read_all};
use crate::ledger::Ledger;
use crate::stage::{DISK_BYTES, FLASH_BYTES, Media, Stage, config, timer};

const SHAPE: Shape = Shape { steps: 40, sectors: 960, longest: 40, with_trims: false };
const GROWN_BYTES: u64 = DISK_BYTES + (64 << 10);

/// Media after a random history, with the permitted contents of each sector. The last block of the disk is short and cached.
fn used(config: &VolumeConfig, seed: u64, last: &[Step]) -> (Media, Ledger) {
    let stage = Stage::new(Media::created(config));
    let mut ledger = Ledger::new(DISK_BYTES);
    let mut steps = draw(&SHAPE, seed);
    steps.push(Step::Write { first: (DISK_BYTES / 512) as usize - 3, count: 3, durable: true });
    steps.extend(last);
    pollster::block_on(play(&stage, &mut ledger, &steps)).unwrap();
    (Media { flash: stage.flash.kill(0), disk: stage.disk.kill(0) }, ledger)
}

/// A larger disk with the same bytes, and zeros up to its end.
fn grown(disk: &MemoryDevice) -> MemoryDevice {
    let grown = MemoryDevice::new(GROWN_BYTES);
    let read = Request::read(0, DISK_BYTES as usize);
    let data = disk.execute(read).unwrap();
    grown.execute(Request::write(0, data)).unwrap();
    grown
}

async fn grow(stage: &Stage) -> Result<(u64, u64)> {
    Volume::grow_disk(stage.flash.clone(), stage.disk.clone(), timer(), OsIdentity::default()).await
}

async fn open(stage: &Stage) -> Result<Volume> {
    Ok(Volume::open(stage.flash.clone(), stage.disk.clone(), timer()).await?.0)
}

/// Checks the contents of the old part, writes to the new part, which is zeros, and checks that everything reaches the disk.
async fn check_grown(stage: &Stage, ledger: &Ledger) {
    let volume = open(stage).await.unwrap();
    assert_eq!(volume.size_bytes(), GROWN_BYTES);
    let bytes = volume.read(0, GROWN_BYTES as usize).await.unwrap();
    ledger.check_recovered(0, &bytes[..DISK_BYTES as usize]).unwrap();
    assert!(bytes[DISK_BYTES as usize..].iter().all(|&byte| byte == 0), "the gained sectors are the disk's");
    let data: device::IoSlice = IoBuffer::copy_of(&[9; 8192]).into();
    volume.write(DISK_BYTES, data, true).await.unwrap();
    let mut expected = bytes.to_vec();
    expected[DISK_BYTES as usize..][..8192].fill(9);
    volume.clean().await.unwrap();
    volume.close().await.unwrap();
    let disk = stage.disk.kill(1);
    let on_disk = disk.execute(Request::read(0, GROWN_BYTES as usize));
    assert!(on_disk.unwrap()[..] == expected[..]);
}

fn ends() -> [Vec<Step>; 4] {
    [vec![], vec![Step::Close], vec![Step::Clean, Step::Close], vec![Step::Clean]]
}

#[test]
fn grown_disk_keeps_its_blocks_and_gains_sectors() {
    for (seed, mode) in (0..).zip([Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround, Mode::WriteOnly]) {
        for last in ends() {
            let config = VolumeConfig { checksums: seed % 2 == 0, ..config(mode) };
            let (media, ledger) = used(&config, seed, &last);
            let stage = Stage::new(Media { disk: grown(&media.disk), flash: media.flash });
            pollster::block_on(async {
                assert_eq!(open(&stage).await.map(drop).unwrap_err().kind(), VolumeErrorKind::WrongDisk);
                assert_eq!(grow(&stage).await.unwrap(), (DISK_BYTES, GROWN_BYTES));
                let again = grow(&stage).await.unwrap_err();
                assert!(again.to_string().contains("the disk has not grown"), "{again}");
                check_grown(&stage, &ledger).await;
            });
        }
    }
}

#[test]
fn shrunk_or_changed_disk_is_not_grown() {
    let (media, _) = used(&config(Mode::WriteBack), 1, &[Step::Close]);
    let smaller =
        Stage::new(Media { disk: MemoryDevice::new(DISK_BYTES - 512), flash: media.flash.duplicate() });
    let refused = pollster::block_on(grow(&smaller)).unwrap_err();
    assert_eq!(refused.kind(), VolumeErrorKind::WrongDisk);
    assert!(refused.to_string().contains("it has only"), "{refused}");
    let other = Stage::new(Media { disk: MemoryDevice::new(GROWN_BYTES), flash: media.flash });
    assert_eq!(pollster::block_on(grow(&other)).unwrap_err().kind(), VolumeErrorKind::WrongDisk);
    assert_eq!(other.flash.counters().writes, 0);
}

#[test]
fn power_cut_during_growth_leaves_old_or_new_size() {
    for (seed, last) in (10..).zip(ends()) {
        let (media, ledger) = used(&config(Mode::WriteBack), seed, &last);
        let media = Media { disk: grown(&media.disk), flash: media.flash };
        let (mut old, mut new) = (0, 0);
        for cut in 0.. {
            let stage = Stage::new(media.duplicate());
            stage.power.cut_after(cut);
            let done = pollster::block_on(grow(&stage)).is_ok();
            for image in 0..2 {
                let after = Stage::new(stage.crash(image));
                pollster::block_on(async {
                    if let Err(error) = open(&after).await {
                        assert!(!done && error.kind() == VolumeErrorKind::WrongDisk, "cut {cut}: {error}");
                        grow(&after).await.unwrap();
                        old += 1;
                    } else {
                        new += 1;
                    }
                    check_grown(&after, &ledger).await;
                });
            }
            if !stage.power.is_cut() {
                break;
            }
        }
        assert!(old > 0 && new > 0, "{old} of the old size, {new} of the new one");
    }
}

/// A new flash of this size on the old one's power supply.
fn new_flash(bytes: u64, power: &Arc<Power>) -> Arc<CrashDevice> {
    Arc::new(CrashDevice::new(MemoryDevice::new(bytes)).powered_by(power))
}

async fn replace(stage: &Stage, new: &Arc<CrashDevice>, accepts_loss: bool) -> Result<Replaced> {
    let [old, new]: [Arc<dyn Device>; 2] = [stage.flash.clone(), new.clone()];
    Volume::replace_flash(&old, &new, stage.disk.clone(), timer(), OsIdentity::default(), None, accepts_loss)
        .await
}

async fn open_on(flash: &Arc<CrashDevice>, disk: &Arc<CrashDevice>) -> Volume {
    Volume::open(flash.clone(), disk.clone(), timer()).await.unwrap().0
}

#[test]
fn move_to_larger_flash_keeps_all_blocks_and_hits() {
    for (seed, mode) in (20..).zip([Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround, Mode::WriteOnly])
    {
        for last in ends() {
            let config = VolumeConfig { checksums: seed % 2 == 0, ..config(mode) };
            let (media, ledger) = used(&config, seed, &last);
            let stage = Stage::new(media.duplicate());
            let new = new_flash(3 * FLASH_BYTES, &stage.power);
            pollster::block_on(async {
                let before = open_on(&Stage::new(media.duplicate()).flash, &stage.disk).await.stats();
                let replaced = replace(&stage, &new, false).await.unwrap();
                let counts = (replaced.blocks, replaced.dirty_blocks, replaced.lost_blocks);
                assert_eq!(counts, (before.held_blocks, before.dirty_blocks, 0), "{mode:?}, {last:?}");
                assert!(replaced.superblock.layout.slots() > before.capacity_blocks as u32);
                assert_eq!(stage.flash.counters().writes, 0, "the old flash is only read");
                let volume = open_on(&new, &stage.disk).await;
                assert_eq!(volume.stats().held_blocks, before.held_blocks);
                let bytes = read_all(&volume).await.unwrap();
                ledger.check_recovered(0, &bytes).unwrap();
                volume.clean().await.unwrap();
                volume.close().await.unwrap();
                assert!(crate::short::read_raw(&stage.disk.kill(1)) == bytes);
            });
        }
    }
}

/// Writes blocks in turn.
struct Writer {
    number: u64,
    /// The byte of each block.
    expected: Vec<u8>,
}

impl Writer {
    async fn write(&mut self, volume: &Volume, count: u64) {
        let blocks = self.expected.len() as u64;
        for _ in 0..count {
            self.number += 1;
            let (block, byte) = (self.number * 7 % blocks, (self.number % 251) as u8);
            let data = IoBuffer::copy_of(&[byte; 4096]).into();
            volume.write(block * 4096, data, self.number.is_multiple_of(9)).await.unwrap();
            self.expected[block as usize] = byte;
        }
    }
}

/// 3000 writes are enough that every page is allocated again.
#[test]
fn move_after_copying_ahead_copies_later_changes_only() {
    for (later, most_writes) in [(3, 20), (3000, 200)] {
        let stage = Stage::new(Media::created(&config(Mode::WriteBack)));
        let mut writer = Writer { number: 0, expected: vec![0; (DISK_BYTES / 4096) as usize] };
        pollster::block_on(async {
            let volume = open(&stage).await.unwrap();
            writer.write(&volume, 100).await;
            let crash = new_flash(3 * FLASH_BYTES, &stage.power);
            let [old, new]: [Arc<dyn Device>; 2] = [stage.flash.clone(), crash.clone()];
            drop(volume.copy_ahead(&new).await.unwrap());
            writer.write(&volume, 3000).await;
            let ahead = volume.copy_ahead(&new).await.unwrap();
            writer.write(&volume, later).await;
            let held = volume.stats().held_blocks;
            volume.close().await.unwrap();
            let (before, disk) = (crash.counters().writes, stage.disk.clone());
            let replaced =
                Volume::replace_flash(&old, &new, disk, timer(), OsIdentity::default(), Some(ahead), false);
            let replaced = replaced.await.unwrap();
            assert_eq!((replaced.blocks, replaced.left_out_blocks), (held, 0));
            let writes = crash.counters().writes - before;
            assert!(writes < most_writes, "{writes} writes after {later} changes");
            check_blocks(&crash, &stage, &writer.expected).await;
        });
    }
}

async fn check_blocks(new: &Arc<CrashDevice>, stage: &Stage, expected: &[u8]) {
    let volume = open_on(new, &stage.disk).await;
    for (block, &byte) in (0..).zip(expected) {
        assert_eq!(volume.read(block * 4096, 4096).await.unwrap()[..], [byte; 4096], "block {block}");
    }
    volume.clean().await.unwrap();
    volume.close().await.unwrap();
}

/// If not all blocks fit, the dirty ones and the newest clean ones are moved.
#[test]
fn move_to_smaller_flash_keeps_dirty_blocks_or_fails() {
    let config = VolumeConfig { ways: 8, journal_bytes: None, ..config(Mode::WriteBack) };
    let stage = Stage::new(Media { flash: MemoryDevice::new(4 << 20), disk: MemoryDevice::new(DISK_BYTES) });
    pollster::block_on(async {
        stage.create(&config).await.unwrap();
        let volume = open(&stage).await.unwrap();
        for block in 0..100_u64 {
            volume.read(block * 4096, 4096).await.unwrap();
        }
        let data = |byte: u8| IoBuffer::copy_of(&[byte; 4096]).into();
        volume.write(5 * 4096, data(5), true).await.unwrap();
        volume.close().await.unwrap();
        let (small, tiny) = (new_flash(1000 << 10, &stage.power), new_flash(64 << 10, &stage.power));
        let replaced = replace(&stage, &small, false).await.unwrap();
        assert_eq!((replaced.dirty_blocks, replaced.lost_blocks), (1, 0));
        assert!(replaced.left_out_blocks > 0 && replaced.blocks + replaced.left_out_blocks == 100);
        let volume = open_on(&small, &stage.disk).await;
        assert_eq!(volume.read(5 * 4096, 4096).await.unwrap()[..], [5; 4096]);
        let refused = replace(&stage, &tiny, false).await.unwrap_err();
        assert_eq!(refused.kind(), VolumeErrorKind::Config, "{refused}");
        let volume = open(&stage).await.unwrap();
        for block in 0..100_u64 {
            volume.write(block * 4096, data(7), false).await.unwrap();
        }
        volume.close().await.unwrap();
        let refused = replace(&stage, &new_flash(1000 << 10, &stage.power), false).await.unwrap_err();
        assert!(refused.to_string().contains("too small for the dirty blocks"), "{refused}");
    });
}

/// If a page cannot be read, a clean block is on the disk, and a lost dirty block is reported.
#[test]
fn unreadable_blocks_are_omitted_from_a_move_or_fail_it() {
    let config = VolumeConfig { checksums: true, ..config(Mode::WriteBack) };
    let stage = Stage::new(Media::created(&config));
    pollster::block_on(async {
        let volume = open(&stage).await.unwrap();
        let data = |byte: u8| IoBuffer::copy_of(&[byte; 4096]).into();
        for (block, byte) in [(1, 11), (2, 12)] {
            volume.write(block * 4096, data(byte), true).await.unwrap();
        }
        volume.clean().await.unwrap();
        for (block, byte) in [(3, 13), (4, 14)] {
            volume.write(block * 4096, data(byte), true).await.unwrap();
        }
        volume.close().await.unwrap();
        for byte in [11, 13] {
            damage(&stage.flash, byte);
        }
        let new = new_flash(2 * FLASH_BYTES, &stage.power);
        let refused = replace(&stage, &new, false).await.unwrap_err();
        assert_eq!(refused.kind(), VolumeErrorKind::Flash);
        assert!(refused.to_string().contains("dirty block 3 on page"), "{refused}");
        let there = Volume::identify(&(new.clone() as Arc<dyn Device>)).await;
        assert_eq!(there.unwrap_err().kind(), VolumeErrorKind::Foreign);
        let replaced = replace(&stage, &new, true).await.unwrap();
        assert_eq!((replaced.lost_blocks, replaced.left_out_blocks, replaced.dirty_blocks), (1, 1, 1));
        let volume = open_on(&new, &stage.disk).await;
        for (block, byte) in [(1, 11), (2, 12), (3, 0), (4, 14)] {
            assert_eq!(volume.read(block * 4096, 4096).await.unwrap()[..], [byte; 4096], "block {block}");
        }
    });
}

/// Flips a bit of the page full of this byte.
fn damage(flash: &Arc<CrashDevice>, byte: u8) {
    let flash: Arc<dyn Device> = flash.clone();
    for offset in (0..FLASH_BYTES).step_by(4096) {
        let read = Request::read(offset, 4096);
        let mut page = pollster::block_on(flash.start(read)).unwrap();
        if page[..] == [byte; 4096] {
            page[7] ^= 1;
            pollster::block_on(flash.write(offset, page)).unwrap();
        }
    }
}

#[test]
fn power_cut_during_move_keeps_old_flash_and_new_one_is_empty_or_complete() {
    for (seed, last) in (30..).zip(ends()) {
        let (media, ledger) = used(&config(Mode::WriteBack), seed, &last);
        let (mut empty, mut whole) = (0, 0);
        for cut in 0.. {
            let stage = Stage::new(media.duplicate());
            let new = new_flash(2 * FLASH_BYTES, &stage.power);
            stage.power.cut_after(cut);
            let done = pollster::block_on(replace(&stage, &new, false)).is_ok();
            let is_cut = stage.power.is_cut();
            for image in 0..2 {
                let Media { flash, disk } = stage.crash(image);
                let new: Arc<dyn Device> = Arc::new(new.crash(image));
                pollster::block_on(async {
                    match Volume::identify(&new).await {
                        Ok(_) => {
                            let disk = Arc::new(disk.duplicate());
                            let (volume, recovery) = Volume::open(new, disk, timer()).await.unwrap();
                            assert!(recovery.was_clean);
                            ledger.check_recovered(0, &read_all(&volume).await.unwrap()).unwrap();
                            whole += 1;
                        }
                        Err(error) => {
                            assert!(!done && error.kind() == VolumeErrorKind::Foreign, "cut {cut}: {error}");
                            empty += 1;
                        }
                    }
                    let volume = open(&Stage::new(Media { flash, disk })).await.unwrap();
                    ledger.check_recovered(0, &read_all(&volume).await.unwrap()).unwrap();
                });
            }
            if !is_cut {
                break;
            }
        }
        assert!(empty > 0 && whole > 0, "{empty} empty, {whole} whole");
    }
}
