//! Tencent's block traces (CBS, 2018): `Timestamp,Offset,Size,IOType,VolumeID`, seconds, sectors of 512 bytes, 0 for a read and 1
//! for a write; no header.
//!
//! Zhang, Huang, Zhou, Wang, Hu, Ji, Cheng: "OSCA: An Online-Model Based Cache Allocation Scheme in Cloud Block Storage
//! Systems", ATC'20.

use super::fields::{commas, event, lines, lossy, number, sectors};
use super::{Device, Found, LineDecoder, RowProblem};
use crate::block::BlockKind;

/// Five columns of numbers belong to this format only if the first is a time after September 2001.
const EARLIEST_NS: u64 = 1_000_000_000 * 1_000_000_000;

pub(super) fn matches_head(head: &[u8]) -> bool {
    let is_row = |line| matches!(Tencent.line(line), Ok(Found::Event(event)) if event.time_ns >= EARLIEST_NS);
    lines(head).take(2).any(is_row)
}

pub(super) struct Tencent;

impl LineDecoder for Tencent {
    fn line(&mut self, line: &[u8]) -> Result<Found, RowProblem> {
        let fields = commas(line);
        if fields[0].eq_ignore_ascii_case(b"Timestamp") {
            return Ok(Found::Other);
        }
        let [time, offset, size, kind, volume] = fields[..] else {
            return Err(RowProblem::Missing("VolumeID"));
        };
        let kind = match kind {
            b"0" => BlockKind::Read,
            b"1" => BlockKind::Write,
            b"" => return Err(RowProblem::Missing("IOType")),
            other => return Err(RowProblem::Operation(lossy(other))),
        };
        let device = Device::Named(number(volume, "VolumeID")?.to_string());
        let time_ns = number(time, "Timestamp")?.saturating_mul(1_000_000_000);
        let (first_byte, bytes) = (sectors(number(offset, "Offset")?)?, sectors(number(size, "Size")?)?);
        event(time_ns, kind, first_byte, bytes, device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::block::Event;

    #[test]
    fn row_is_read_with_and_without_header() {
        let event = Event {
            time_ns: 1_538_323_200_000_000_000,
            kind: BlockKind::Write,
            first_byte: 12_910_952 * 512,
            bytes: 65_536,
            device: Device::Named("1063".into()),
        };
        let row = b"1538323200,12910952,128,1,1063";
        assert_eq!(Tencent.line(row), Ok(Found::Event(event)));
        assert!(matches_head(row));
        assert!(matches_head(&[b"Timestamp,Offset,Size,IOType,VolumeID\n", &row[..]].concat()));
        assert!(!matches_head(b"5,12910952,128,1,1063"), "five arbitrary numbers");
    }

    #[test]
    fn invalid_row_reports_the_reason() {
        for (line, message) in [
            ("1538323200,0,8,0", "`VolumeID` is missing"),
            ("1538323200,0,8,,7", "`IOType` is missing"),
            ("1538323200,0,8,2,7", "`2` is not a known operation"),
            ("1538323200,0,0,1,7", "the request is 0 bytes long"),
        ] {
            assert_eq!(Tencent.line(line.as_bytes()).unwrap_err().to_string(), message, "{line}");
        }
    }
}
