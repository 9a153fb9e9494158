//! Alibaba's block traces (2020): `device_id,opcode,offset,length,timestamp`, bytes and microseconds; no header.
//!
//! Li, Wang, Lee, Shi: "An In-Depth Analysis of Cloud Block Storage Workloads in Large-Scale Production", IISWC'20.

use super::fields::{commas, event, lines, lossy, number};
use super::{Device, Found, LineDecoder, RowProblem};
use crate::block::{BlockKind, SECTOR_BYTES};

/// Four numbers and a letter belong to this format only if the time is after September 2001.
const EARLIEST_NS: u64 = 1_000_000_000 * 1_000_000_000;

/// Whether there is a header with a row below it, or the first row has whole sectors and a plausible time.
pub(super) fn matches_head(head: &[u8]) -> bool {
    let mut first = lines(head).take(2).map(|line| Alibaba.line(line));
    match (first.next(), first.next()) {
        (Some(Ok(Found::Other)), Some(Ok(Found::Event(_)))) => true,
        (Some(Ok(Found::Event(event))), _) => {
            let has_sectors = event.first_byte % SECTOR_BYTES == 0 && event.bytes % SECTOR_BYTES == 0;
            has_sectors && event.time_ns >= EARLIEST_NS
        }
        _ => false,
    }
}

pub(super) struct Alibaba;

impl LineDecoder for Alibaba {
    fn line(&mut self, line: &[u8]) -> Result<Found, RowProblem> {
        let fields = commas(line);
        if fields[0].eq_ignore_ascii_case(b"device_id") {
            return Ok(Found::Other);
        }
        let [device, kind, offset, length, time] = fields[..] else {
            return Err(RowProblem::Missing("timestamp"));
        };
        let kind = match kind {
            b"R" => BlockKind::Read,
            b"W" => BlockKind::Write,
            b"" => return Err(RowProblem::Missing("opcode")),
            other => return Err(RowProblem::Operation(lossy(other))),
        };
        let device = Device::Named(number(device, "device_id")?.to_string());
        let time_ns = number(time, "timestamp")?.saturating_mul(1000);
        event(time_ns, kind, number(offset, "offset")?, number(length, "length")?, device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::block::Event;

    #[test]
    fn row_is_read_with_and_without_header() {
        let event = Event {
            time_ns: 1_577_808_000_000_626_000,
            kind: BlockKind::Write,
            first_byte: 126_703_644_672,
            bytes: 4096,
            device: Device::Named("64".into()),
        };
        let row = b"64,W,126703644672,4096,1577808000000626";
        assert_eq!(Alibaba.line(row), Ok(Found::Event(event)));
        assert!(matches_head(row));
        assert!(matches_head(&[b"device_id,opcode,offset,length,timestamp\n", &row[..]].concat()));
    }

    #[test]
    fn invalid_row_reports_the_reason() {
        for (line, message) in [
            ("64,W,0,4096", "`timestamp` is missing"),
            ("64,,0,4096,5", "`opcode` is missing"),
            ("64,X,0,4096,5", "`X` is not a known operation"),
            ("64,R,-1,4096,5", "`offset` is `-1`, which is not a number, or is out of range"),
        ] {
            assert_eq!(Alibaba.line(line.as_bytes()).unwrap_err().to_string(), message, "{line}");
        }
    }
}
