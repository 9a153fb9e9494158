//! Decodes arbitrary bytes as entries, tables and snapshots.

use device::checksum::crc32c;

use super::entry::{Entry, HEADER_BYTES, Seal, u16_at};
use super::snapshot;
use super::table::{self, Filling, RECORD_BYTES, TRAILER_BYTES, table_bytes};

const FILLING: Filling = Filling { store: 3, sequence: 4 };

/// An entry with a correct checksum is rejected, or lies within its bytes.
pub(in crate::flash) fn check_entry(content: &[u8]) {
    let (mut bytes, seal) = (content.to_vec(), Seal::of(FILLING.store, FILLING.sequence));
    if bytes.len() >= HEADER_BYTES {
        bytes[HEADER_BYTES - 4..HEADER_BYTES - 2].copy_from_slice(&0xF1A5_u16.to_le_bytes());
        let key_end = HEADER_BYTES + usize::from(u16_at(&bytes, 24));
        if let Some(covered) = bytes.get(4..key_end) {
            // The checksum of an entry is masked with the seal.
            let masked = crc32c(covered) ^ seal.mask();
            bytes[..4].copy_from_slice(&masked.to_le_bytes());
        }
    }
    if let Ok(entry) = Entry::decode(&bytes, seal) {
        assert!(entry.key.end <= entry.value.start && entry.value.end <= bytes.len());
        let _ = entry.verify_value(&bytes);
    }
}

/// A table with a correct checksum is rejected, or encodes to the same bytes.
pub(in crate::flash) fn check_table(content: &[u8]) {
    let count = content.len().saturating_sub(4) / RECORD_BYTES;
    let mut bytes = vec![0; table_bytes(count)];
    bytes[..count * RECORD_BYTES].copy_from_slice(&content[..count * RECORD_BYTES]);
    let trailer = count * RECORD_BYTES;
    bytes[trailer..][..8].copy_from_slice(b"FWregion");
    bytes[trailer + 8..][..4].copy_from_slice(&1_u32.to_le_bytes());
    bytes[trailer + 12..][..4].copy_from_slice(&(count as u32).to_le_bytes());
    bytes[trailer + 16..][..8].copy_from_slice(&FILLING.store.to_le_bytes());
    bytes[trailer + 24..][..8].copy_from_slice(&FILLING.sequence.to_le_bytes());
    if let Some(units) = content.get(count * RECORD_BYTES..).and_then(<[u8]>::first_chunk::<4>) {
        bytes[trailer + 32..][..4].copy_from_slice(units);
    }
    let end = trailer + TRAILER_BYTES - 4;
    let crc = crc32c(&bytes[..end]);
    bytes[end..].copy_from_slice(&crc.to_le_bytes());
    if let Ok(records) = table::decode(&bytes, count, FILLING) {
        let mut again = vec![0; table_bytes(count)];
        table::encode(&records, FILLING, &mut again);
        assert!(again == bytes, "a table reads back as it was");
    }
}

/// A snapshot with a correct checksum is rejected, or encodes to the same bytes.
pub(in crate::flash) fn check_snapshot(content: &[u8]) {
    let mut bytes = b"FWregsnp".to_vec();
    bytes.extend(content);
    let crc = crc32c(&bytes);
    bytes.extend(crc.to_le_bytes());
    snapshot::check_decoding(&bytes);
}
