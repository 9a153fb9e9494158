use std::mem::offset_of;

use zerocopy::FromBytes;

use super::encoding::COUNTER_LIMIT;
use super::*;
use crate::sets::{Mode, Preset, SetPolicy};

fn superblock() -> Superblock {
    Superblock {
        format: 1,
        sequence: 3,
        uuid: 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff,
        clean: true,
        checksums: true,
        layout: Layout::with_sets(4096, 17, 512, None, false),
        placement: Placement::Permuted { run_bytes: 65536 },
        placement_key: 99,
        tuning: Preset::V3.tuning(),
        ordered: true,
        checkpoint: Checkpoint {
            table: 1,
            number: 4,
            table_blocks: 5,
            journal_sequence: 6,
            journal_chain: 7,
            next_commit: 9,
            confirmed_commit: 8,
        },
        disk: DiskIdentity {
            bytes: 1 << 40,
            ends_crc: [1, 2],
            label: "wwn-0x5000".into(),
            is_marked: true,
            device_id: 10,
            changed_ns: 11,
            is_current: true,
            sector_bytes: 4096,
        },
        has_initial_blocks: true,
    }
}

#[test]
fn invalid_sector_size_is_damage() {
    let of = |sector_bytes| {
        let disk = DiskIdentity { sector_bytes, ..superblock().disk };
        Superblock::decode(&Superblock { disk, ..superblock() }.encode()).map(|read| read.disk.sector_bytes)
    };
    assert_eq!([0, 512, 65536].map(of), [Ok(0), Ok(512), Ok(65536)]);
    assert_eq!([1, 256, 520, 131_072].map(of), [Err(Unreadable::Damaged); 4]);
}

#[test]
fn encoded_superblock_decodes_to_the_same() {
    for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround, Mode::WriteOnly] {
        for placement in [Placement::Linear, Placement::Hashed { run_bytes: 4096 }] {
            let tuning = Tuning { mode, policy: SetPolicy::Lru, latency_gate_ms: 8, ..Preset::V2.tuning() };
            let tuning = Tuning { read_bypass_bytes: 7, write_bypass_bytes: 0, ..tuning };
            for format in OLDEST_FORMAT..=FORMAT_VERSION {
                let superblock = Superblock { format, placement, tuning, ..superblock() };
                assert_eq!(Superblock::decode(&superblock.encode()).unwrap(), superblock);
            }
        }
    }
}

#[test]
fn flipped_bit_is_detected() {
    let mut bytes = superblock().encode();
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        let expected = if bit < 64 { Unreadable::NotOurs } else { Unreadable::Damaged };
        assert_eq!(Superblock::decode(&bytes).unwrap_err(), expected, "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn newer_format_is_reported_and_format_0_is_damage() {
    for (format, reason) in [
        (FORMAT_VERSION + 1, Unreadable::Newer(FORMAT_VERSION + 1)),
        (u32::MAX, Unreadable::Newer(u32::MAX)),
        (0, Unreadable::Damaged),
    ] {
        let bytes = Superblock { format, ..superblock() }.encode();
        assert_eq!(Superblock::decode(&bytes).unwrap_err(), reason);
    }
}

#[test]
fn counters_near_overflow_are_damage() {
    let of = |change: fn(&mut Superblock, u64)| {
        [COUNTER_LIMIT - 1, COUNTER_LIMIT, u64::MAX].map(|count| {
            let mut superblock = superblock();
            change(&mut superblock, count);
            Superblock::decode(&superblock.encode()).map(|read| assert_eq!(read, superblock))
        })
    };
    let expected = [Ok(()), Err(Unreadable::Damaged), Err(Unreadable::Damaged)];
    assert_eq!(of(|superblock, count| superblock.sequence = count), expected);
    assert_eq!(of(|superblock, count| superblock.checkpoint.number = count), expected);
    assert_eq!(of(|superblock, count| superblock.checkpoint.journal_sequence = count), expected);
    assert_eq!(of(|superblock, count| superblock.checkpoint.next_commit = count), expected);
    assert_eq!(of(|superblock, count| superblock.checkpoint.confirmed_commit = count), expected);
}

#[test]
fn encoding_is_the_same_in_every_version() {
    let bytes = superblock().encode();
    let newest = Superblock { format: FORMAT_VERSION, ..superblock() }.encode();
    assert_eq!(newest[..16], [b"FWBLKVOL\x02\0\0\0", &newest[12..16]].concat());
    assert_eq!(newest[16..], bytes[16..]);
    assert_eq!(bytes[..12], *b"FWBLKVOL\x01\0\0\0");
    assert_eq!(bytes[16..24], [3, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[24..40], 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff_u128.to_le_bytes());
    assert_eq!(bytes[328..][..10], *b"wwn-0x5000");
    assert_eq!(bytes[456..480].iter().step_by(8).collect::<Vec<_>>(), [&7, &10, &11]);
    let of_older_program = Superblock { has_initial_blocks: false, ..superblock() }.encode();
    assert_eq!(of_older_program[456], 3);
}

#[test]
fn missing_write_bypass_equals_read_bypass() {
    for (read_bypass_bytes, write_bypass_bytes, word) in
        [(7, 7, 0), (7, 0, 1), (0, 9, 10), (0, u64::MAX - 1, u64::MAX)]
    {
        let tuning = Tuning { read_bypass_bytes, write_bypass_bytes, ..superblock().tuning };
        let bytes = Superblock { tuning, ..superblock() }.encode();
        assert_eq!(bytes[offset_of!(Block, write_bypass)..][..8], u64::to_le_bytes(word));
        assert_eq!(Superblock::decode(&bytes).unwrap().tuning, tuning);
        let read = Superblock::decode(&zeroed_from(offset_of!(Block, write_bypass), bytes)).unwrap().tuning;
        assert_eq!((read.read_bypass_bytes, read.write_bypass_bytes), (read_bypass_bytes, read_bypass_bytes));
    }
}

#[test]
fn missing_os_identity_decodes_as_unknown() {
    let bytes = zeroed_from(offset_of!(Block, flags), superblock().encode());
    let disk = Superblock::decode(&bytes).unwrap().disk;
    assert_eq!((disk.is_marked, disk.device_id, disk.changed_ns, disk.is_current), (false, 0, 0, false));
    assert_eq!(disk.label, superblock().disk.label);
}

/// As encoded by a program that does not know the fields from `offset` on.
fn zeroed_from(offset: usize, mut bytes: [u8; SUPERBLOCK_BYTES]) -> [u8; SUPERBLOCK_BYTES] {
    bytes[offset..].fill(0);
    let mut block = Block::read_from_bytes(&bytes).unwrap();
    block.seal();
    zerocopy::transmute!(block)
}
