//! Intent log entries that follow a commit which a power cut has lost.

use std::sync::Arc;

use device::checksum::crc32c;
use device::timer::SystemTimer;
use device::wrap::GateDevice;
use device::{Device, IoBuffer, MemoryDevice, Request, RequestKind};
use flashwright_block::volume::journal::block::{self, BlockHeader, BlockKind};
use flashwright_block::volume::{Layout, Recovery, Volume, VolumeConfig};
use futures_util::FutureExt as _;

use crate::world::{config, write_past_cache};

const FLASH_BYTES: u64 = 4 << 20;
const DISK_BYTES: u64 = 8 << 20;

fn open(flash: Arc<dyn Device>, disk: &Arc<dyn Device>) -> (Volume, Recovery) {
    let timer = Arc::new(SystemTimer::default());
    pollster::block_on(Volume::open(flash, Arc::clone(disk), timer)).unwrap()
}

fn write(volume: &Volume, block: u64, byte: u8) {
    let data = IoBuffer::copy_of(&[byte; 4096]).into();
    pollster::block_on(volume.write(block * 4096, data, false)).unwrap();
}

fn read(volume: &Volume, block: u64) -> u8 {
    let bytes = pollster::block_on(volume.read(block * 4096, 4096)).unwrap();
    assert!(bytes.iter().all(|&byte| byte == bytes[0]), "block {block} is torn");
    bytes[0]
}

/// Copies a part of one flash over that of another.
fn copy_part(from: &MemoryDevice, to: &MemoryDevice, offset: u64, len: u64) {
    let read = from.execute(Request::read(offset, len as usize)).unwrap();
    let data = read;
    to.execute(Request::write(offset, data)).unwrap();
}

/// A flash after a power cut: block 1 was written and logged, a commit of it was being flushed while block 2 was written and logged, and
/// everything except the commit is present.
fn flash_without_its_commit(disk: &Arc<dyn Device>) -> MemoryDevice {
    let memory = Arc::new(MemoryDevice::new(FLASH_BYTES));
    let gate = Arc::new(GateDevice::new(memory.clone()));
    let flash: Arc<dyn Device> = gate.clone();
    pollster::block_on(Volume::create(&flash, disk, &VolumeConfig { ways: 64, ..config() }, 5)).unwrap();
    let (volume, _) = open(flash, disk);
    write(&volume, 1, 1);
    pollster::block_on(write_past_cache(&volume)).unwrap();
    let before = memory.duplicate();
    gate.close(RequestKind::Flush);
    assert!(volume.flush().now_or_never().is_none(), "the flash is being flushed");
    write(&volume, 2, 2);
    let after = memory.duplicate();
    let layout = volume.superblock().layout;
    copy_part(&before, &after, layout.journal_offset(), layout.intent_log_offset() - layout.journal_offset());
    after
}

/// Recovery's own commit must differ from the lost one. Otherwise old entries would appear to follow it, and the next recovery would
/// replay them.
#[test]
fn recovery_ignores_log_entries_from_before_the_last_recovery() {
    let disk: Arc<dyn Device> = Arc::new(MemoryDevice::new(DISK_BYTES));
    let memory = flash_without_its_commit(&disk);
    let (volume, recovery) = open(Arc::new(memory.duplicate()), &disk);
    assert_eq!((recovery.commits, recovery.log_entries), (0, 1));
    assert_eq!([1, 2, 3].map(|block| read(&volume, block)), [1, 0, 0]);

    // No write happens before the next power cut.
    let flash = Arc::new(memory.duplicate());
    drop(open(flash.clone(), &disk));
    let (volume, _) = open(flash, &disk);
    assert_eq!([1, 2, 3].map(|block| read(&volume, block)), [1, 0, 0], "it was not there before");

    // A write, and then a kill of the process before the next recovery.
    let flash = Arc::new(memory);
    let (volume, _) = open(flash.clone(), &disk);
    write(&volume, 3, 3);
    drop(volume);
    let (volume, _) = open(flash, &disk);
    assert_eq!([1, 2, 3].map(|block| read(&volume, block)), [1, 0, 3]);
}

/// A block in the intent log must be in the epoch that recovery creates only once.
#[test]
fn ordered_volume_destages_blocks_from_the_intent_log_once() {
    let disk: Arc<dyn Device> = Arc::new(MemoryDevice::new(DISK_BYTES));
    let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new(FLASH_BYTES));
    let config = VolumeConfig { ordered: true, ..config() };
    pollster::block_on(Volume::create(&flash, &disk, &config, 5)).unwrap();
    let (volume, _) = open(flash.clone(), &disk);
    write(&volume, 1, 1);
    drop(volume);
    let (volume, recovery) = open(flash, &disk);
    assert_eq!((recovery.log_entries, recovery.dirty_blocks), (1, 1));
    pollster::block_on(volume.clean()).unwrap();
    let counters = volume.stats().counters;
    assert_eq!((counters.cleanings, counters.disk_writes), (1, 1));
}

/// Makes the checksums of all entries equal and keeps their chain: the last four bytes of each block, which are unused, compensate.
/// Returns the number of blocks changed.
fn equalise_entry_checksums(flash: &MemoryDevice, layout: &Layout, uuid: u128) -> u32 {
    let (mut count, mut chain) = (0, None);
    for place in 0..layout.intent_log_blocks() {
        let offset = layout.intent_log_offset() + place * 4096;
        let read = flash.execute(Request::read(offset, 4096)).unwrap();
        let Some((header, _, units)) = block::decode(BlockKind::IntentLog, uuid, &read) else { break };
        let mut bytes = IoBuffer::zeroed(4096);
        let header = BlockHeader { chain: chain.unwrap_or(header.chain), ..header };
        block::encode(BlockKind::IntentLog, uuid, &header, units, &mut bytes);
        bytes[4..8].fill(0);
        let crc = crc32c(&bytes[..4092]);
        bytes[4092..].copy_from_slice(&crc.to_le_bytes());
        let crc = crc32c(&bytes);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        assert!(block::decode(BlockKind::IntentLog, uuid, &bytes).is_some());
        flash.execute(Request::write(offset, bytes)).unwrap();
        assert!(chain.is_none_or(|chain| chain == crc));
        (count, chain) = (count + 1, Some(crc));
    }
    count
}

/// Entries cannot be found by their predecessor's checksum alone.
#[test]
fn entries_after_one_with_a_duplicate_checksum_are_recovered() {
    let disk: Arc<dyn Device> = Arc::new(MemoryDevice::new(DISK_BYTES));
    let memory = Arc::new(MemoryDevice::new(FLASH_BYTES));
    let flash: Arc<dyn Device> = memory.clone();
    pollster::block_on(Volume::create(&flash, &disk, &config(), 5)).unwrap();
    let (volume, _) = open(flash.clone(), &disk);
    for block in 1..=5 {
        write(&volume, block, block as u8);
    }
    let superblock = volume.superblock();
    drop(volume);
    assert_eq!(equalise_entry_checksums(&memory, &superblock.layout, superblock.uuid), 5);
    let (volume, recovery) = open(flash, &disk);
    assert_eq!(recovery.log_entries, 5);
    assert_eq!([1, 2, 3, 4, 5].map(|block| read(&volume, block)), [1, 2, 3, 4, 5]);
}
