//! CloudPhysics traces as binary records of SCSI commands, little-endian, lengths in bytes, times in microseconds.
//!
//! ```text
//! version 1, 32 bytes   serial 4 | length 4 | segments 4 | command 2 | version 2 | sector 8 | time 8
//! version 2, 40 bytes   command 2 | version 2 | serial 4 | length 4 | segments 4 | sector 8 | time 8 | response 8
//! ```
//! The version is the high byte of its field, at a different position in each version: the first record determines it.

use std::io::{self, BufRead, Read as _};

use super::fields::{event, scsi, sectors};
use super::{Device, Found, RecordDecoder, RowProblem};

const BYTES: [usize; 2] = [32, 40];
const VERSION_AT: [usize; 2] = [14, 2];

/// Whether the first records have a version and commands of a disk.
pub(super) fn matches_head(head: &[u8]) -> bool {
    version(head).is_some_and(|version| {
        let records = head.chunks_exact(BYTES[version - 1]).take(8);
        let known = records.clone().filter(|record| {
            self::version(record) == Some(version) && scsi(command(record, version).into()).is_some()
        });
        known.count() * 2 > records.count()
    })
}

/// 1 or 2.
fn version(record: &[u8]) -> Option<usize> {
    (1..=2).find(|&version| {
        record.get(VERSION_AT[version - 1]..BYTES[version - 1]).is_some()
            && usize::from(u16::from_le_bytes(part(record, VERSION_AT[version - 1])) >> 8) == version
    })
}

fn command(record: &[u8], version: usize) -> u16 {
    u16::from_le_bytes(part(record, if version == 1 { 12 } else { 0 }))
}

#[derive(Default)]
pub(super) struct Vscsi {
    version: Option<usize>,
    record: Vec<u8>,
}

impl RecordDecoder for Vscsi {
    fn record(&mut self, input: &mut dyn BufRead) -> io::Result<Option<Result<Found, RowProblem>>> {
        self.record.clear();
        input.take(BYTES[0] as u64).read_to_end(&mut self.record)?;
        if self.record.is_empty() {
            return Ok(None);
        }
        if self.version.is_none() {
            // The version field lies within the first 32 bytes in both.
            let mut first = self.record.clone();
            first.resize(BYTES[1], 0);
            self.version = version(&first);
        }
        let version = self.version.unwrap_or(1);
        let rest = BYTES[version - 1] - BYTES[0];
        input.take(rest as u64).read_to_end(&mut self.record)?;
        let (has_bytes, needs_bytes) = (self.record.len(), BYTES[version - 1]);
        if has_bytes < needs_bytes {
            return Ok(Some(Err(RowProblem::Cut { has_bytes, needs_bytes })));
        }
        Ok(Some(found(&self.record, version)))
    }
}

fn found(record: &[u8], version: usize) -> Result<Found, RowProblem> {
    let Some(kind) = scsi(command(record, version).into()) else { return Ok(Found::Other) };
    let length = u32::from_le_bytes(part(record, if version == 1 { 4 } else { 8 }));
    let sector = u64::from_le_bytes(part(record, 16));
    let time_us = u64::from_le_bytes(part(record, 24));
    event(time_us.saturating_mul(1000), kind, sectors(sector)?, length.into(), Device::Only)
}

fn part<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    record[at..at + N].try_into().expect("the caller checked the length")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BlockKind;
    use crate::trace::block::Event;

    fn version_1(command: u16, sector: u64) -> Vec<u8> {
        let mut out = Vec::new();
        for word in [7_u32, 4096, 1] {
            out.extend(word.to_le_bytes());
        }
        out.extend(command.to_le_bytes());
        out.extend(0x0100_u16.to_le_bytes());
        out.extend(sector.to_le_bytes());
        out.extend(5_u64.to_le_bytes());
        out
    }

    fn version_2(command: u16, sector: u64) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(command.to_le_bytes());
        out.extend(0x0200_u16.to_le_bytes());
        for word in [7_u32, 4096, 1] {
            out.extend(word.to_le_bytes());
        }
        for long in [sector, 5, 99] {
            out.extend(long.to_le_bytes());
        }
        out
    }

    #[test]
    fn both_versions_are_detected_and_read() {
        let expected =
            |kind| Event { time_ns: 5000, kind, first_byte: 5120, bytes: 4096, device: Device::Only };
        for record in [version_1, version_2] {
            let bytes = [record(0x2a, 10), record(0x12, 0), record(0x28, 10)].concat();
            assert!(matches_head(&bytes));
            let (mut decoder, mut input) = (Vscsi::default(), &bytes[..]);
            let mut next = || decoder.record(&mut input).expect("memory can be read");
            assert_eq!(next(), Some(Ok(Found::Event(expected(BlockKind::Write)))));
            assert_eq!(next(), Some(Ok(Found::Other)));
            assert_eq!(next(), Some(Ok(Found::Event(expected(BlockKind::Read)))));
            assert_eq!(next(), None);
        }
    }

    #[test]
    fn cut_record_is_an_error() {
        let bytes = version_1(0x2a, 10);
        let found = Vscsi::default().record(&mut &bytes[..20]).unwrap();
        assert_eq!(found, Some(Err(RowProblem::Cut { has_bytes: 20, needs_bytes: 32 })));
    }
}
