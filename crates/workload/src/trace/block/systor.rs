//! SYSTOR '17: `Timestamp,Response,IOType,LUN,Offset,Size`, times in seconds.
//!
//! The type is blank if no response was recorded: the operation is unknown, and the row is invalid.
//!
//! Lee, Kumano, Matsuki, Endo, Fukumoto, Sugawara: "Understanding Storage Traffic Characteristics on Enterprise Virtual
//! Desktop Infrastructure", SYSTOR'17.

use super::fields::{commas, event, lines, lossy, named, number, seconds};
use super::{Found, LineDecoder, RowProblem};
use crate::block::{BlockKind, SECTOR_BYTES};

const HEADER: [&[u8]; 6] = [b"timestamp", b"response", b"iotype", b"lun", b"offset", b"size"];
/// First rows checked, since some can be blank.
const LOOKED_AT: usize = 8;

/// Whether there is a header, or one of the first rows has whole sectors and a time with decimals.
pub(super) fn matches_head(head: &[u8]) -> bool {
    let has_decimals = |line: &[u8]| commas(line)[0].contains(&b'.');
    let is_row = |line: &[u8]| match Systor.line(line) {
        Ok(Found::Event(event)) => event.bytes % SECTOR_BYTES == 0 && has_decimals(line),
        _ => false,
    };
    lines(head).take(LOOKED_AT).any(|line| is_header(line) || is_row(line))
}

fn is_header(line: &[u8]) -> bool {
    let fields = commas(line);
    fields.len() == HEADER.len() && fields.iter().zip(HEADER).all(|(name, it)| name.eq_ignore_ascii_case(it))
}

pub(super) struct Systor;

impl LineDecoder for Systor {
    fn accept_header(&mut self, line: &[u8]) -> Result<bool, RowProblem> {
        Ok(is_header(line))
    }

    fn line(&mut self, line: &[u8]) -> Result<Found, RowProblem> {
        let fields = commas(line);
        if fields[0].eq_ignore_ascii_case(b"Timestamp") {
            return Ok(Found::Other);
        }
        let [time, _response, kind, lun, offset, size] = fields[..] else {
            return Err(RowProblem::Missing("Size"));
        };
        let kind = match kind.trim_ascii() {
            b"R" => BlockKind::Read,
            b"W" => BlockKind::Write,
            b"" => return Err(RowProblem::Missing("IOType")),
            other => return Err(RowProblem::Operation(lossy(other))),
        };
        let device = named(lun);
        event(seconds(time, "Timestamp")?, kind, number(offset, "Offset")?, number(size, "Size")?, device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::block::{Device, Event};

    #[test]
    fn row_is_read_with_and_without_header() {
        let event = Event {
            time_ns: 1_455_592_081_131_264_000,
            kind: BlockKind::Write,
            first_byte: 42_949_672,
            bytes: 4096,
            device: Device::Named("3".into()),
        };
        let row = b"1455592081.131264,0.000299,W,3,42949672,4096";
        assert_eq!(Systor.line(row), Ok(Found::Event(event)));
        assert!(matches_head(row));
        assert!(matches_head(&[b"Timestamp,Response,IOType,LUN,Offset,Size\n", &row[..]].concat()));
    }

    #[test]
    fn format_is_detected_behind_a_row_without_type() {
        let (blank, row) = ("1455592081.1,,,3,0,4096\n", "1455592081.2,0.1,R,3,0,4096\n");
        assert_eq!(Systor.line(blank.trim_end().as_bytes()), Err(RowProblem::Missing("IOType")));
        assert!(matches_head(format!("{blank}{row}").as_bytes()));
        assert!(matches_head(format!("Timestamp,Response,IOType,LUN,Offset,Size\n{blank}").as_bytes()));
        assert!(!matches_head(blank.as_bytes()));
    }
}
