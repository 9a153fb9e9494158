//! Binary blktrace, as written by the kernel (linux/blktrace_api.h, version 7).
//!
//! ```text
//! magic 4 | sequence 4 | time ns 8 | sector 8 | bytes 4 | action 4 | pid 4 | device 4 | cpu 4 | error 2 | pdu_len 2 | pdu
//! action: low half the event (bit 8: the pdu contains a cgroup), high half the category
//! ```
//! In the byte order of the traced machine, which the magic reveals.

use std::io::{self, BufRead, Read as _};

use super::fields::event;
use super::{Device, Events, Found, RecordDecoder, RowProblem};
use crate::block::{BlockKind, SECTOR_BYTES};

const MAGIC: u32 = 0x6561_7407;
const HEADER_BYTES: usize = 48;
const QUEUE: u32 = 1;
const ISSUE: u32 = 7;
const COMPLETE: u32 = 8;
const HAS_CGROUP: u32 = 1 << 8;

const READ: u32 = 1 << 16;
const WRITE: u32 = 1 << 17;
const FLUSH: u32 = 1 << 18;
const PACKET: u32 = 1 << 25;
const NOTIFY: u32 = 1 << 26;
const DISCARD: u32 = 1 << 29;

pub(super) fn matches_head(head: &[u8]) -> bool {
    head.first_chunk().is_some_and(|magic| [MAGIC, MAGIC.swap_bytes()].contains(&u32::from_le_bytes(*magic)))
}

#[derive(Default)]
pub(super) struct Blktrace {
    header: Vec<u8>,
}

impl RecordDecoder for Blktrace {
    fn is_marked(&self, head: &[u8]) -> bool {
        matches_head(head)
    }

    fn record(&mut self, input: &mut dyn BufRead) -> io::Result<Option<Result<Found, RowProblem>>> {
        self.header.clear();
        input.take(HEADER_BYTES as u64).read_to_end(&mut self.header)?;
        if self.header.is_empty() {
            return Ok(None);
        }
        let Ok(header) = <&[u8; HEADER_BYTES]>::try_from(&self.header[..]) else {
            return Ok(Some(Err(cut(self.header.len(), HEADER_BYTES))));
        };
        let header = match Header::decode(header) {
            Ok(header) => header,
            Err(problem) => return Ok(Some(Err(problem))),
        };
        let skipped = io::copy(&mut input.take(header.pdu_bytes.into()), &mut io::sink())?;
        if skipped < header.pdu_bytes.into() {
            let problem = cut(HEADER_BYTES + skipped as usize, HEADER_BYTES + usize::from(header.pdu_bytes));
            return Ok(Some(Err(problem)));
        }
        Ok(Some(header.found()))
    }
}

fn cut(has_bytes: usize, needs_bytes: usize) -> RowProblem {
    RowProblem::Cut { has_bytes, needs_bytes }
}

struct Header {
    time_ns: u64,
    sector: u64,
    bytes: u32,
    action: u32,
    device: u32,
    pdu_bytes: u16,
}

impl Header {
    fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, RowProblem> {
        let magic = u32::from_le_bytes(part(bytes, 0));
        let little = magic == MAGIC;
        if !little && magic.swap_bytes() != MAGIC {
            return Err(RowProblem::Magic(magic));
        }
        let long = |at| {
            if little { u64::from_le_bytes(part(bytes, at)) } else { u64::from_be_bytes(part(bytes, at)) }
        };
        let word = |at| {
            if little { u32::from_le_bytes(part(bytes, at)) } else { u32::from_be_bytes(part(bytes, at)) }
        };
        let half = |at| {
            if little { u16::from_le_bytes(part(bytes, at)) } else { u16::from_be_bytes(part(bytes, at)) }
        };
        Ok(Self {
            time_ns: long(8),
            sector: long(16),
            bytes: word(24),
            action: word(28),
            device: word(36),
            pdu_bytes: half(46),
        })
    }

    fn found(&self) -> Result<Found, RowProblem> {
        let events = match self.action & 0xffff & !HAS_CGROUP {
            QUEUE => Events::Queue,
            ISSUE => Events::Issue,
            COMPLETE => Events::Complete,
            _ => return Ok(Found::Other),
        };
        if self.action & (NOTIFY | PACKET) != 0 {
            return Ok(Found::Other);
        }
        let kind = match self.action {
            action if action & DISCARD != 0 => BlockKind::Discard,
            _ if self.bytes == 0 => BlockKind::Flush,
            action if action & WRITE != 0 => BlockKind::Write,
            action if action & READ != 0 => BlockKind::Read,
            action if action & FLUSH != 0 => BlockKind::Flush,
            _ => return Ok(Found::Other),
        };
        let first_byte = self.sector.saturating_mul(SECTOR_BYTES);
        // The kernel's dev_t in this structure: 12 bits of major above 20 of minor.
        let device = Device::Numbered(self.device >> 20, self.device & 0xf_ffff);
        Ok(event(self.time_ns, kind, first_byte, self.bytes.into(), device)?.at(events))
    }
}

fn part<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("fields lie within the header")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::block::Event;

    fn record(action: u32, sector: u64, bytes: u32, pdu: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(MAGIC.to_le_bytes());
        out.extend(7_u32.to_le_bytes());
        out.extend(1_000_u64.to_le_bytes());
        out.extend(sector.to_le_bytes());
        out.extend(bytes.to_le_bytes());
        out.extend(action.to_le_bytes());
        out.extend(4242_u32.to_le_bytes());
        out.extend((8_u32 << 20 | 17).to_le_bytes());
        out.extend([0; 6]);
        out.extend((pdu.len() as u16).to_le_bytes());
        out.extend(pdu);
        out
    }

    fn all(mut bytes: &[u8]) -> Vec<Result<Found, RowProblem>> {
        let mut decoder = Blktrace::default();
        std::iter::from_fn(|| decoder.record(&mut bytes).expect("memory can be read")).collect()
    }

    #[test]
    fn queued_requests_are_read_and_other_events_skipped() {
        let bytes = [
            record(NOTIFY, 0, 0, b"mysqld\0\0"),
            record(READ | QUEUE, 100, 4096, &[]),
            record(READ | 4, 100, 4096, &[]),
            record(READ | COMPLETE, 100, 4096, &[]),
            record(WRITE | QUEUE | HAS_CGROUP, 200, 512, &[0; 8]),
            record(DISCARD | WRITE | QUEUE, 0, 8192, &[]),
            record(FLUSH | WRITE | QUEUE, 0, 0, &[]),
        ]
        .concat();
        let events: Vec<(BlockKind, u64, u64)> = all(&bytes)
            .into_iter()
            .filter_map(|found| match found {
                Ok(Found::Event(Event { kind, first_byte, bytes, device, time_ns })) => {
                    assert_eq!((device, time_ns), (Device::Numbered(8, 17), 1000));
                    Some((kind, first_byte, bytes))
                }
                Ok(Found::Later(Events::Complete, event)) => {
                    assert_eq!((event.kind, event.first_byte), (BlockKind::Read, 51_200));
                    None
                }
                other => {
                    assert_eq!(other, Ok(Found::Other));
                    None
                }
            })
            .collect();
        let expected = [
            (BlockKind::Read, 51_200, 4096),
            (BlockKind::Write, 102_400, 512),
            (BlockKind::Discard, 0, 8192),
            (BlockKind::Flush, 0, 0),
        ];
        assert_eq!(events, expected);
    }

    #[test]
    fn other_byte_order_is_read() {
        let mut bytes = record(READ | QUEUE, 100, 4096, &[]);
        for (at, length) in
            [(0, 4), (4, 4), (8, 8), (16, 8), (24, 4), (28, 4), (32, 4), (36, 4), (40, 4), (44, 2), (46, 2)]
        {
            bytes[at..at + length].reverse();
        }
        assert_eq!(all(&bytes), all(&record(READ | QUEUE, 100, 4096, &[])));
    }

    #[test]
    fn cut_and_unknown_records_are_errors() {
        let bytes = record(READ | QUEUE, 100, 4096, &[1, 2, 3]);
        assert_eq!(all(&bytes[..50]), [Err(cut(50, 51))]);
        assert_eq!(all(&bytes[..20]), [Err(cut(20, 48))]);
        let mut strange = bytes;
        strange[1] ^= 1;
        assert!(matches!(all(&strange)[0], Err(RowProblem::Magic(_))));
    }
}
