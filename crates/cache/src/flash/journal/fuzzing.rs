//! Decodes arbitrary bytes as journal blocks, and recovers all engines by arbitrary journals.

use std::sync::Arc;

use device::checksum::crc32c;
use device::event_loop::wait_for;
use device::{Device, IoBuffer, MemoryDevice, PlacementHandle, Request, VirtualClock};

use super::block::{self, FIELDS_AT, FORMAT_AT, HEADER_BYTES, WORDS_AT};
use super::{Chain, FLUSHED, JournalOptions, JournalPlace, Position};
use crate::flash::Waiting;
use crate::flash::log::{HashLog, LogConfig};
use crate::flash::region::{RegionConfig, RegionStore, StoreId};
use crate::flash::soc::{self, Soc, SocConfig};

const BLOCK_BYTES: usize = 512;
const GENERATION: u64 = 42;
const OPTIONS: JournalOptions = JournalOptions { flushes: true, boot: None, block_bytes: BLOCK_BYTES as u32 };

/// Checks blocks with valid checksums: each is rejected, or encodes to the same bytes. Their journal is rejected, or recovers an engine.
pub(in crate::flash) fn check(content: &[u8]) {
    let blocks: Vec<Vec<u8>> = content.chunks(BLOCK_BYTES).take(8).map(valid_block).collect();
    blocks.iter().for_each(|bytes| check_block(bytes));
    recover_regions(&blocks);
    recover_log(&blocks);
    recover_sets(&blocks);
}

/// The content as a block of the current generation with a correct checksum. The other fields are arbitrary.
fn valid_block(content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_BYTES];
    bytes[..content.len()].copy_from_slice(content);
    bytes[FORMAT_AT..WORDS_AT].copy_from_slice(&block::FORMAT.to_le_bytes());
    let words = u16::from_le_bytes([bytes[WORDS_AT], bytes[WORDS_AT + 1]]);
    let words = words % (block::words_per_block(BLOCK_BYTES as u32) as u16 + 1);
    bytes[WORDS_AT..FIELDS_AT].copy_from_slice(&words.to_le_bytes());
    bytes[FIELDS_AT..][..8].copy_from_slice(&GENERATION.to_le_bytes());
    bytes[FIELDS_AT + 8..][..8].copy_from_slice(&FLUSHED.to_le_bytes());
    let end = HEADER_BYTES + usize::from(words) * 8;
    bytes[end..].fill(0);
    let checksum = crc32c(&bytes[FORMAT_AT..end]);
    bytes[..FORMAT_AT].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn check_block(bytes: &[u8]) {
    if let Some(decoded) = block::decode(bytes) {
        let mut again = vec![0; BLOCK_BYTES];
        block::encode(&decoded.header, &decoded.words, &mut again);
        assert!(again == bytes, "a block is encoded to the same bytes");
        assert!(decoded.records().count() <= decoded.words.len());
    }
}

fn write_blocks(device: &Arc<dyn Device>, place: &JournalPlace, blocks: &[Vec<u8>]) {
    for (slot, bytes) in (0..).zip(blocks) {
        let (offset, data) =
            (place.offset_bytes + slot * BLOCK_BYTES as u64, IoBuffer::copy_of(bytes).into());
        let request = Request::Write { offset, data, placement: PlacementHandle::DEFAULT };
        device.execute(request).expect("memory does not fail");
    }
}

fn check_position(chain: &Chain, place: &JournalPlace) {
    let position = chain.position();
    let decoded = Position::from_bytes(&position.to_bytes(), place.blocks);
    assert!(decoded.is_none_or(|it| it.to_bytes() == position.to_bytes()));
}

fn recover_regions(blocks: &[Vec<u8>]) {
    let region =
        RegionConfig { region_bytes: 8 << 10, max_write_bytes: 4 << 10, ..RegionConfig::new(16 * (8 << 10)) };
    let config = RegionConfig { journal: Some(OPTIONS), ..region };
    let id = StoreId(GENERATION);
    let device: Arc<dyn Device> =
        Arc::new(MemoryDevice::with_block_bytes(config.capacity_bytes, BLOCK_BYTES as u32));
    let place = config.journal_place(id).expect("the store has a journal");
    write_blocks(&device, &place, blocks);
    if let Ok(chain) = wait_for(Chain::read(&device, &place, Waiting::Thread)) {
        check_position(&chain, &place);
        let clock = Arc::<VirtualClock>::default();
        let store = wait_for(RegionStore::recover(device, clock, config, id, &chain, Waiting::Thread));
        assert!(store.is_ok_and(|store| store.is_empty()), "there are no tables");
    }
}

fn recover_log(blocks: &[Vec<u8>]) {
    let config = LogConfig {
        page_bytes: 512,
        regions: Some(16),
        journal: Some(OPTIONS),
        ..LogConfig::new(0, 64 << 10, GENERATION)
    };
    let device: Arc<dyn Device> =
        Arc::new(MemoryDevice::with_block_bytes(config.log_bytes, BLOCK_BYTES as u32));
    let place = config.journal_place().expect("the log has a journal");
    write_blocks(&device, &place, blocks);
    if let Ok(chain) = wait_for(crate::flash::log::read_journal(&device, &config, Waiting::Thread)) {
        let mut log = HashLog::new(device, config).expect("a valid configuration");
        wait_for(log.recover(&chain, Waiting::Thread));
        assert_eq!(log.stats().items, 0, "there are no pages");
    }
}

fn recover_sets(blocks: &[Vec<u8>]) {
    let config =
        SocConfig { bucket_bytes: 512, journal: Some(OPTIONS), ..SocConfig::new(0, 64 << 10, GENERATION) };
    let device: Arc<dyn Device> =
        Arc::new(MemoryDevice::with_block_bytes(config.soc_bytes, BLOCK_BYTES as u32));
    let place = config.journal_place().expect("the sets have a journal");
    write_blocks(&device, &place, blocks);
    if let Ok(chain) = wait_for(soc::read_journal(&device, &config, Waiting::Thread)) {
        let mut sets = Soc::new(device, config).expect("a valid configuration");
        wait_for(sets.recover(&chain, Waiting::Thread));
        assert_eq!(sets.stats().items, 0, "there are no buckets");
    }
}
