//! A formatted flash with some bytes changed and its checksums corrected: fields must be bounds-checked even if the checksum is right.
//!
//! The input is a sequence of patches: offset (3 bytes), length (1), data.

use std::sync::{Arc, OnceLock};

use block::sets::Mode;
use block::volume::{Volume, VolumeConfig};
use device::timer::SystemTimer;
use device::{Device, IoBuffer, MemoryDevice};

const FLASH_BYTES: u64 = 4 << 20;
const DISK_BYTES: u64 = 16 << 20;
const SUPERBLOCK_BYTES: usize = 512;
const SUPERBLOCKS: [usize; 2] = [0, 64 << 10];
const BLOCK_BYTES: usize = 4096;
const PIECE_BYTES: usize = 256 << 10;

struct Image {
    flash: Vec<u8>,
    /// Bytes before the first page.
    metadata_bytes: usize,
}

/// Opens the patched volume; reads, writes, checks and closes it, and opens it again.
pub fn check(data: &[u8]) {
    let image = image();
    let mut flash = image.flash.clone();
    let mut rest = data;
    while let Some((&[a, b, c, len], tail)) = rest.split_first_chunk::<4>() {
        let at = u32::from_le_bytes([a, b, c, 0]) as usize % image.metadata_bytes;
        let (patch, tail) = tail.split_at(usize::from(len).min(tail.len()));
        let end = (at + patch.len()).min(flash.len());
        flash[at..end].copy_from_slice(&patch[..end - at]);
        rest = tail;
    }
    seal(&image.flash, &mut flash, image.metadata_bytes);
    pollster::block_on(use_volume(&flash));
}

async fn use_volume(bytes: &[u8]) {
    let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new(FLASH_BYTES));
    for (offset, piece) in (0..).step_by(PIECE_BYTES).zip(bytes.chunks(PIECE_BYTES)) {
        flash.write(offset, IoBuffer::copy_of(piece)).await.unwrap();
    }
    let disk: Arc<dyn Device> = Arc::new(MemoryDevice::new(DISK_BYTES));
    for _ in 0..2 {
        let opened =
            Volume::open(Arc::clone(&flash), Arc::clone(&disk), Arc::new(SystemTimer::default())).await;
        let Ok((volume, _)) = opened else { return };
        for offset in (0..DISK_BYTES).step_by(DISK_BYTES as usize / 16) {
            let _ = volume.read(offset, 8192).await;
            let _ = volume.write(offset, IoBuffer::copy_of(&[9; 4096]).into(), false).await;
        }
        let _ = volume.flush().await;
        let _ = volume.clean().await;
        let _ = volume.close().await;
    }
}

/// A volume with data that was not closed: tables, a journal, notes.
fn image() -> &'static Image {
    static IMAGE: OnceLock<Image> = OnceLock::new();
    IMAGE.get_or_init(|| pollster::block_on(make()))
}

async fn make() -> Image {
    let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new(FLASH_BYTES));
    let disk: Arc<dyn Device> = Arc::new(MemoryDevice::new(DISK_BYTES));
    let mut config = VolumeConfig { ways: 64, ..VolumeConfig::default() };
    config.tuning.mode = Mode::WriteBack;
    let superblock = Volume::create(&flash, &disk, &config, 77).await.unwrap();
    let timer = || Arc::new(SystemTimer::default());
    let (volume, _) = Volume::open(Arc::clone(&flash), Arc::clone(&disk), timer()).await.unwrap();
    for round in 0..3u64 {
        for block in 0..20u64 {
            let (offset, len) = (block * 40_960 + round * 512, 512 << (block % 5));
            volume.write(offset, IoBuffer::copy_of(&vec![block as u8; len]).into(), false).await.unwrap();
        }
        volume.flush().await.unwrap();
    }
    volume.close().await.unwrap();
    let (volume, _) = Volume::open(Arc::clone(&flash), disk, timer()).await.unwrap();
    for block in 0..5u64 {
        let data = IoBuffer::copy_of(&[block as u8; 4096]).into();
        volume.write(block * 81_920, data, block == 3).await.unwrap();
    }
    let mut bytes = Vec::new();
    for offset in (0..FLASH_BYTES).step_by(PIECE_BYTES) {
        let piece = flash.read(offset, PIECE_BYTES).await.unwrap();
        bytes.extend_from_slice(&piece);
    }
    Image { flash: bytes, metadata_bytes: superblock.layout.pages_offset() as usize }
}

/// Corrects the checksums of all changed parts, and the chain of blocks that follow.
fn seal(before: &[u8], flash: &mut [u8], metadata_bytes: usize) {
    for at in SUPERBLOCKS {
        let changed = flash[at..at + SUPERBLOCK_BYTES] != before[at..at + SUPERBLOCK_BYTES];
        if changed {
            seal_at(&mut flash[at..at + SUPERBLOCK_BYTES], 12);
        }
    }
    let mut renewed = Vec::new();
    for at in (2 * SUPERBLOCKS[1]..metadata_bytes).step_by(BLOCK_BYTES) {
        let block = &mut flash[at..at + BLOCK_BYTES];
        let chain = u32::from_le_bytes(block[24..28].try_into().unwrap());
        if let Some((_, new)) = renewed.iter().find(|(old, _)| *old == chain) {
            block[24..28].copy_from_slice(&u32::to_le_bytes(*new));
        }
        if block[..2] == *b"FW" && *block != before[at..at + BLOCK_BYTES] {
            let old = u32::from_le_bytes(before[at + 4..at + 8].try_into().unwrap());
            renewed.push((old, seal_at(block, 4)));
        }
    }
}

fn seal_at(bytes: &mut [u8], at: usize) -> u32 {
    bytes[at..at + 4].fill(0);
    let crc = device::checksum::crc32c(bytes);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    crc
}
