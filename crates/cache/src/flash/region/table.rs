//! The table at the end of a region: its items, without their values.
//!
//! Reclaim and recovery need hashes and locations, not values. The table takes 16 bytes per entry, so reading it instead of the region
//! saves 99.9 % of the bytes.
//!
//! ```text
//!             record, 16 bytes an entry, in the order of the entries
//!             0          8            12       16
//!        … |  | key hash | length     | expiry | … | trailer | end of the region
//!                          units; top
//!                          bit: dead
//!
//! trailer  0       8        12       16      24         32      36       40
//!          | magic | format | count  | store | sequence | units | crc32c |
//! ```
//! Entries follow each other without gaps, so each entry's offset is the sum of the lengths before it. The checksum covers the records
//! and the preceding fields of the trailer.

use device::checksum::crc32c;

use crate::KeyHash;

use super::entry::{u32_at, u64_at};

const FORMAT: usize = 8;
const COUNT: usize = FORMAT + 4;
const STORE: usize = COUNT + 4;
const SEQUENCE: usize = STORE + 8;
const UNITS: usize = SEQUENCE + 8;
const CRC: usize = UNITS + 4;
/// Size of the trailer.
pub(crate) const TRAILER_BYTES: usize = CRC + 4;
/// Size of a record.
pub(crate) const RECORD_BYTES: usize = 16;

const MAGIC_VALUE: [u8; 8] = *b"FWregion";
const FORMAT_VALUE: u32 = 1;
const DEAD: u32 = 1 << 31;

/// Size of the table of `count` entries.
pub(crate) fn table_bytes(count: usize) -> usize {
    count * RECORD_BYTES + TRAILER_BYTES
}

/// The table's record of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub hash: KeyHash,
    /// The entry's offset in its region. Computed, not stored.
    pub unit: u32,
    pub units: u32,
    pub expiry_seconds: u32,
    /// False for space that was reserved and abandoned.
    pub live: bool,
}

/// Identifies the store and the content of a region to which a table must belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Filling {
    pub store: u64,
    pub sequence: u64,
}

/// Why a table is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TableDamage {
    #[error("its checksum does not match")]
    Checksum,
    #[error("it is of another format")]
    Format,
    #[error("it belongs to another store or an earlier filling")]
    Foreign,
    #[error("its entries do not add up")]
    Inconsistent,
}

/// Writes the table into `into`, which is exactly [`table_bytes`] long.
pub(crate) fn encode(records: &[Record], filling: Filling, into: &mut [u8]) {
    assert_eq!(into.len(), table_bytes(records.len()), "a table fills its space");
    let (body, trailer) = into.split_at_mut(records.len() * RECORD_BYTES);
    for (record, bytes) in records.iter().zip(body.chunks_exact_mut(RECORD_BYTES)) {
        let length = record.units | if record.live { 0 } else { DEAD };
        bytes[..8].copy_from_slice(&record.hash.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        bytes[12..].copy_from_slice(&record.expiry_seconds.to_le_bytes());
    }
    let count = u32::try_from(records.len()).expect("a region has less than 2^32 entries");
    let units = records.last().map_or(0, |last| last.unit + last.units);
    trailer[..FORMAT].copy_from_slice(&MAGIC_VALUE);
    trailer[FORMAT..COUNT].copy_from_slice(&FORMAT_VALUE.to_le_bytes());
    trailer[COUNT..STORE].copy_from_slice(&count.to_le_bytes());
    trailer[STORE..SEQUENCE].copy_from_slice(&filling.store.to_le_bytes());
    trailer[SEQUENCE..UNITS].copy_from_slice(&filling.sequence.to_le_bytes());
    trailer[UNITS..CRC].copy_from_slice(&units.to_le_bytes());
    let crc_at = into.len() - 4;
    let crc = crc32c(&into[..crc_at]);
    into[crc_at..].copy_from_slice(&crc.to_le_bytes());
}

/// Reads a table of `count` entries at the end of `bytes`. Earlier bytes are ignored.
pub(crate) fn decode(bytes: &[u8], count: usize, filling: Filling) -> Result<Vec<Record>, TableDamage> {
    let start = bytes.len().checked_sub(table_bytes(count)).ok_or(TableDamage::Inconsistent)?;
    let table = &bytes[start..];
    let trailer = &table[count * RECORD_BYTES..];
    if trailer[..FORMAT] != MAGIC_VALUE || u32_at(trailer, FORMAT) != FORMAT_VALUE {
        return Err(TableDamage::Format);
    }
    if crc32c(&table[..table.len() - 4]) != u32_at(trailer, CRC) {
        return Err(TableDamage::Checksum);
    }
    // A lost write leaves the intact table of an earlier filling.
    if u64_at(trailer, STORE) != filling.store || u64_at(trailer, SEQUENCE) != filling.sequence {
        return Err(TableDamage::Foreign);
    }
    let mut unit = 0_u32;
    let mut record = |bytes: &[u8]| {
        let length = u32_at(bytes, 8);
        let record = Record {
            hash: KeyHash(u64_at(bytes, 0)),
            unit,
            units: length & !DEAD,
            expiry_seconds: u32_at(bytes, 12),
            live: length & DEAD == 0,
        };
        // A sum of lengths that overflows would give offsets outside the region.
        unit = unit.checked_add(record.units).ok_or(TableDamage::Inconsistent)?;
        Ok(record)
    };
    let records = table[..count * RECORD_BYTES].chunks_exact(RECORD_BYTES);
    let records = records.map(&mut record).collect::<Result<Vec<_>, _>>()?;
    // The checksum verifies the content; these checks verify that the writer used the same layout.
    if u32_at(trailer, COUNT) as usize != count || u32_at(trailer, UNITS) != unit {
        return Err(TableDamage::Inconsistent);
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILLING: Filling = Filling { store: 0xAABB, sequence: 5 };

    fn records() -> Vec<Record> {
        let record = |hash, unit, units, live| Record {
            hash: KeyHash(hash),
            unit,
            units,
            expiry_seconds: units * 10,
            live,
        };
        vec![record(1, 0, 3, true), record(u64::MAX, 3, 1, false), record(7, 4, 1 << 20, true)]
    }

    fn encoded() -> Vec<u8> {
        let mut bytes = vec![0; table_bytes(3)];
        encode(&records(), FILLING, &mut bytes);
        bytes
    }

    #[test]
    fn written_table_is_read_back() {
        let mut bytes = vec![0xEE; 100];
        bytes.extend(encoded());
        assert_eq!(decode(&bytes, 3, FILLING), Ok(records()));
        let mut empty = vec![0; table_bytes(0)];
        encode(&[], FILLING, &mut empty);
        assert_eq!(decode(&empty, 0, FILLING), Ok(vec![]));
    }

    #[test]
    fn table_has_its_golden_bytes() {
        let mut bytes = vec![0; table_bytes(1)];
        encode(&records()[..1], FILLING, &mut bytes);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let golden = "0100000000000000030000001e000000\
                      4657726567696f6e0100000001000000bbaa0000000000000500000000000000030000\
                      00";
        assert_eq!(hex[..golden.len()], *golden);
        assert_eq!(hex[golden.len()..], *"e208ee1e");
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let good = encoded();
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bytes, 3, FILLING).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn intact_table_of_another_generation_is_foreign() {
        let bytes = encoded();
        let older = Filling { sequence: 4, ..FILLING };
        assert_eq!(decode(&bytes, 3, older), Err(TableDamage::Foreign));
        let other = Filling { store: 1, ..FILLING };
        assert_eq!(decode(&bytes, 3, other), Err(TableDamage::Foreign));
    }

    #[test]
    fn table_with_lengths_that_overflow_to_the_right_sum_is_refused() {
        let mut bytes = encoded();
        let longest = DEAD - 1;
        for (at, length) in [longest, longest, 4 + (1 << 20) + 2].into_iter().enumerate() {
            bytes[at * RECORD_BYTES + 8..][..4].copy_from_slice(&u32::to_le_bytes(length));
        }
        let crc_at = bytes.len() - 4;
        let crc = crc32c(&bytes[..crc_at]);
        bytes[crc_at..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(decode(&bytes, 3, FILLING), Err(TableDamage::Inconsistent));
    }

    #[test]
    fn table_with_a_wrong_count_is_refused() {
        let bytes = encoded();
        for count in [0, 1, 2, 4, 1000] {
            assert!(decode(&bytes, count, FILLING).is_err(), "count {count}");
        }
    }
}
