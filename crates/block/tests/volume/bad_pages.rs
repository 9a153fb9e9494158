//! Unreadable pages of clean blocks, which are on the disk too.

use std::sync::Arc;

use device::timer::SystemTimer;
use device::{Device, IoBuffer, MemoryDevice, Request};
use flashwright_block::volume::{Volume, VolumeConfig, VolumeErrorKind};

use crate::faulty::Faulty;
use crate::world::config;

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 64;

/// A volume with corrupt pages that it has not read yet, and its flash.
struct BadPages {
    flash: Arc<MemoryDevice>,
    disk: Arc<dyn Device>,
    volume: Volume,
}

impl BadPages {
    /// A volume over a disk whose block `n` is full of `n + 1`.
    fn new() -> Self {
        let flash = Arc::new(MemoryDevice::new(4 << 20));
        let (any_flash, disk): (Arc<dyn Device>, Arc<dyn Device>) =
            (flash.clone(), Arc::new(MemoryDevice::new(8 << 20)));
        for block in 0..BLOCKS {
            let data = IoBuffer::copy_of(&[block as u8 + 1; BLOCK as usize]);
            disk.write(block * BLOCK, data).wait().unwrap();
        }
        let config = VolumeConfig { ways: 64, checksums: true, ..config() };
        let volume = pollster::block_on(async {
            Volume::create(&any_flash, &disk, &config, 5).await.unwrap();
            Volume::open(any_flash, disk.clone(), Arc::new(SystemTimer::default())).await.unwrap().0
        });
        Self { flash, disk, volume }
    }

    /// Writes the first sector of `block` and cleans it: flash has only this sector.
    fn with_a_sector_of(self, block: u64) -> Self {
        pollster::block_on(async {
            let data = IoBuffer::copy_of(&[0xaa; 512]).into();
            self.volume.write(block * BLOCK, data, false).await.unwrap();
            self.volume.clean().await.unwrap();
        });
        self
    }

    /// Flips a bit of every page.
    fn damage(&self) {
        let layout = self.volume.superblock().layout;
        for page in 0..layout.pages() {
            let offset = layout.page_offset(page);
            let read = self.flash.execute(Request::read(offset, 512)).unwrap();
            let mut bytes = read;
            bytes[7] ^= 1;
            self.flash.execute(Request::write(offset, bytes)).unwrap();
        }
    }

    fn read(&self, block: u64, blocks: u64) -> Vec<u8> {
        let read = self.volume.read(block * BLOCK, (blocks * BLOCK) as usize);
        pollster::block_on(read).unwrap().to_vec()
    }
}

/// All corrupt pages are found in one attempt, because attempts are limited.
#[test]
fn read_of_many_blocks_with_corrupt_pages_is_served_from_the_disk() {
    let case = BadPages::new();
    let expected = case.read(0, BLOCKS);
    assert_eq!(case.volume.stats().held_blocks, BLOCKS);
    case.damage();
    assert_eq!(case.read(0, BLOCKS), expected);
    assert_eq!(case.volume.stats().io.checksum_errors, BLOCKS);
}

#[test]
fn blocks_dropped_for_damaged_pages_are_counted() {
    let case = BadPages::new();
    case.read(0, BLOCKS);
    case.damage();
    case.read(0, BLOCKS / 2);
    assert_eq!(case.volume.stats().counters.read_invalidates, BLOCKS / 2);
}

/// The read that finds the corrupt page is itself using the block.
#[test]
fn partial_block_with_a_corrupt_page_is_read_from_the_disk() {
    let case = BadPages::new().with_a_sector_of(5);
    case.damage();
    let block = case.read(5, 1);
    assert_eq!((&block[..512], &block[512..]), (&[0xaa; 512][..], &[6; 3584][..]));
}

#[test]
fn partial_write_of_a_clean_block_with_damaged_page_succeeds() {
    let write = |case: &BadPages, offset: u64, len: usize| {
        let data = IoBuffer::copy_of(&vec![0xbb; len]).into();
        pollster::block_on(case.volume.write(offset, data, false)).unwrap();
    };
    // The end of block 4, all of block 5, and the beginning of block 6.
    let case = BadPages::new();
    let mut expected = case.read(4, 3);
    case.damage();
    write(&case, 5 * BLOCK - 512, 5120);
    expected[3584..8704].fill(0xbb);
    assert_eq!(case.read(4, 3), expected);

    let case = BadPages::new().with_a_sector_of(5);
    case.damage();
    write(&case, 5 * BLOCK + 1024, 512);
    let mut expected = vec![6; BLOCK as usize];
    expected[..512].fill(0xaa);
    expected[1024..1536].fill(0xbb);
    assert_eq!(case.read(5, 1), expected);
}

/// Only the attempt with the final result counts.
#[test]
fn read_repeated_after_a_damaged_page_is_counted_once() {
    let case = BadPages::new();
    case.read(0, BLOCKS / 2);
    case.damage();
    // First no block is complete on flash, then all are.
    for (first, reads, hits) in [(BLOCKS / 4, BLOCKS, 0), (0, BLOCKS * 3 / 2, BLOCKS / 4)] {
        case.read(first, BLOCKS / 2);
        let counters = case.volume.stats().counters;
        assert_eq!((counters.reads, counters.read_hits), (reads, hits));
        assert_eq!((counters.uncached_reads, counters.no_room, counters.replacement), (0, 0, 0));
    }
    assert_eq!(case.volume.stats().io.checksum_errors, BLOCKS / 2);
}

#[test]
fn write_repeated_after_a_damaged_page_is_counted_once() {
    let case = BadPages::new();
    case.read(4, 3);
    case.damage();
    let data = IoBuffer::copy_of(&[0xbb; 5120]).into();
    pollster::block_on(case.volume.write(5 * BLOCK - 512, data, false)).unwrap();
    let stats = case.volume.stats();
    let counters = stats.counters;
    assert_eq!(stats.io.checksum_errors, 2, "both ends of the write met one");
    assert_eq!((counters.writes, counters.write_hits, counters.dirty_write_hits), (3, 1, 0));
    assert_eq!((counters.uncached_writes, counters.write_replacement), (0, 0));
}

/// Opening compares some clean blocks with the disk. An unreadable one must not prevent it.
#[test]
fn unreadable_clean_page_does_not_prevent_opening() {
    let case = BadPages::new();
    let expected = case.read(0, BLOCKS);
    let layout = case.volume.superblock().layout;
    pollster::block_on(async {
        let data = IoBuffer::copy_of(&[0xcc; BLOCK as usize]).into();
        case.volume.write(BLOCKS * BLOCK, data, false).await.unwrap();
        case.volume.close().await.unwrap();
        let (flash, from) = (Faulty::over(case.flash), layout.pages_offset());
        flash.fail(move |request| matches!(request, Request::Read { offset, .. } if *offset >= from));
        let timer = Arc::new(SystemTimer::default());
        let (volume, recovery) = Volume::open(flash, case.disk, timer).await.unwrap();
        assert_eq!((recovery.blocks, recovery.dirty_blocks), (BLOCKS + 1, 1));
        assert!(volume.read(0, expected.len()).await.unwrap()[..] == expected);
        let dirty = volume.read(BLOCKS * BLOCK, BLOCK as usize).await.unwrap_err();
        assert_eq!(dirty.kind(), VolumeErrorKind::Flash);
    });
}
