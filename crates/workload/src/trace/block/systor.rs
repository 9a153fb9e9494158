//! SYSTOR '17: `Timestamp,Response,IOType,LUN,Offset,Size`, times in seconds.
//!
//! Lee, Kumano, Matsuki, Endo, Fukumoto, Sugawara: "Understanding Storage Traffic Characteristics on Enterprise Virtual
//! Desktop Infrastructure", SYSTOR'17.

use super::fields::{commas, event, lines, lossy, number, seconds};
use super::{Device, Found, LineDecoder, RowProblem};
use crate::block::BlockKind;

pub(super) fn knows(head: &[u8]) -> bool {
    let of_two: Vec<_> = lines(head).take(2).map(|line| Systor.line(line)).collect();
    matches!(of_two[..], [Ok(Found::Event(_)), ..] | [Ok(Found::Other), Ok(Found::Event(_))])
}

pub(super) struct Systor;

impl LineDecoder for Systor {
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
            other => return Err(RowProblem::Operation(lossy(other))),
        };
        let device = Device::Named(lossy(lun));
        event(seconds(time, "Timestamp")?, kind, number(offset, "Offset")?, number(size, "Size")?, device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::block::Event;

    #[test]
    fn a_row_with_and_without_header() {
        let event = Event {
            time_ns: 1_455_592_081_131_264_000,
            kind: BlockKind::Write,
            first_byte: 42_949_672,
            bytes: 4096,
            device: Device::Named("3".into()),
        };
        let row = b"1455592081.131264,0.000299,W,3,42949672,4096";
        assert_eq!(Systor.line(row), Ok(Found::Event(event)));
        assert!(knows(row));
        assert!(knows(&[b"Timestamp,Response,IOType,LUN,Offset,Size\n", &row[..]].concat()));
    }
}
