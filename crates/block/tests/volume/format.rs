//! Decoders with arbitrary input.

use std::sync::Arc;

use device::timer::SystemTimer;
use device::{Device, IoBuffer, MemoryDevice, Request};
use flashwright_block::sets::PolicyState;
use flashwright_block::volume::journal::block::{
    BlockHeader, BlockKind, JOURNAL_BLOCK_BYTES, UNITS_PER_BLOCK, decode, encode,
};
use flashwright_block::volume::record::{PageContents, Record, Sectors, UNIT_BYTES};
use flashwright_block::volume::superblock::{Checkpoint, FORMAT_VERSION, OLDEST_FORMAT};
use flashwright_block::volume::{Superblock, Volume, VolumeConfig, VolumeErrorKind};
use proptest::prelude::*;

use crate::world::config;

/// Arbitrary records, many with existing pages and blocks.
fn records() -> impl Strategy<Value = Vec<Record>> {
    let page = prop_oneof![9 => 0..200_u32, 1 => any::<u32>()];
    let block = prop_oneof![9 => 0..1024_u64, 1 => 0..1_u64 << 48];
    let partial = proptest::option::weighted(0.2, any::<u128>().prop_map(Sectors));
    let epoch = prop_oneof![3 => Just(0), 1 => any::<u64>()];
    let policy_state = prop_oneof![Just(0), any::<u8>()].prop_map(PolicyState);
    let held = (block, any::<bool>(), partial, any::<u32>(), any::<bool>(), epoch, policy_state);
    let held = held.prop_map(|(block, dirty, partial, crc, fresh, epoch, policy_state)| PageContents {
        block,
        dirty,
        partial,
        crc,
        fresh,
        epoch,
        policy_state,
    });
    let record = (page, proptest::option::weighted(0.9, held)).prop_map(|(page, held)| Record { page, held });
    proptest::collection::vec(record, 0..60)
}

fn units_of(records: &[Record]) -> Vec<u8> {
    let mut units = Vec::new();
    for record in records {
        record.append_to(&mut units);
    }
    units.truncate(UNITS_PER_BLOCK * UNIT_BYTES);
    units
}

/// A closed volume whose only table block has these units.
fn with_table(format: u32, ordered: bool, units: &[u8]) -> (Arc<dyn Device>, Arc<dyn Device>) {
    let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 20));
    let disk: Arc<dyn Device> = Arc::new(MemoryDevice::new(4 << 20));
    let config = VolumeConfig { format, ordered, journal_bytes: Some(64 << 10), ..config() };
    let made = pollster::block_on(Volume::create(&flash, &disk, &config, 9)).unwrap();
    let checkpoint = Checkpoint { table_blocks: 1, number: 7, ..made.checkpoint };
    let mut block = IoBuffer::zeroed(JOURNAL_BLOCK_BYTES);
    let header =
        BlockHeader { sequence: 0, commit: 7, chain: 0, ends_commit: true, confirmed: 0, flushed: 0 };
    encode(BlockKind::Table, made.uuid, &header, units, &mut block);
    flash.execute(Request::write(made.layout.table_offset(0), block)).unwrap();
    let superblock = Superblock { checkpoint, ..made };
    for offset in [0, 64 << 10] {
        flash.execute(Request::write(offset, IoBuffer::copy_of(&superblock.encode()))).unwrap();
    }
    (flash, disk)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn encoded_records_decode_unchanged_for_any_content(records in records()) {
        let mut units = Vec::new();
        for record in &records {
            record.append_to(&mut units);
        }
        let mut left = &units[..];
        let back: Vec<_> = std::iter::from_fn(|| Record::take_from(&mut left)).collect();
        prop_assert_eq!(back, records);
        prop_assert!(left.is_empty());
    }

    #[test]
    fn random_bytes_decode_to_records_that_encode_equally_or_to_none(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut left = &bytes[..];
        while let Some(record) = Record::take_from(&mut left) {
            let mut again = Vec::new();
            record.append_to(&mut again);
            prop_assert_eq!(again.len(), record.units() * UNIT_BYTES);
            prop_assert_eq!(Record::take_from(&mut &again[..]), Some(record));
        }
    }

    /// A superblock with a correct checksum and arbitrary contents is decoded to contents that encode to it, or refused with a reason.
    #[test]
    fn random_superblock_with_a_valid_checksum_is_read_or_refused(words in proptest::collection::vec((0..62_usize, any::<u64>()), 0..6), small in any::<bool>()) {
        let (flash, _) = with_table(FORMAT_VERSION, false, &[]);
        let mut bytes = pollster::block_on(Volume::identify(&flash)).unwrap().encode();
        for (at, word) in words {
            let word = if small { word % 4 } else { word };
            bytes[16 + at * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        bytes[12..16].fill(0);
        let crc = device::checksum::crc32c(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        if let Ok(superblock) = Superblock::decode(&bytes) {
            prop_assert_eq!(Superblock::decode(&superblock.encode()).unwrap(), superblock);
        }
    }

    /// A table with correct checksums and arbitrary contents is loaded or refused as damaged, and never accepted with entries that its
    /// format cannot express.
    #[test]
    fn random_table_is_opened_or_refused(records in records(), ordered in any::<bool>(), raw in any::<bool>()) {
        for format in OLDEST_FORMAT..=FORMAT_VERSION {
            let units = units_of(&records);
            let (flash, disk) = with_table(format, ordered, &units);
            let opened = pollster::block_on(Volume::open(Arc::clone(&flash), disk, Arc::new(SystemTimer::default())));
            let has_policy_state = records.iter().any(|record| record.held.is_some_and(|held| held.policy_state != PolicyState(0)));
            match opened {
                Ok((volume, _)) => {
                    prop_assert!(format == FORMAT_VERSION || !has_policy_state || units.is_empty());
                    if raw {
                        pollster::block_on(volume.close()).unwrap();
                    }
                }
                Err(error) => prop_assert!(
                    [VolumeErrorKind::Damaged, VolumeErrorKind::WrongDisk].contains(&error.kind()),
                    "{}", error
                ),
            }
        }
    }

    #[test]
    fn arbitrary_bytes_are_not_decoded_as_a_block(bytes in proptest::collection::vec(any::<u8>(), JOURNAL_BLOCK_BYTES), kind in 0..3_usize) {
        let kind = [BlockKind::Journal, BlockKind::IntentLog, BlockKind::Table][kind];
        prop_assert!(decode(kind, 9, &bytes).is_none());
    }
}
