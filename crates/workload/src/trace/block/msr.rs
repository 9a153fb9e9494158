//! MSR Cambridge: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`, times in Windows' tenths of a microsecond.
//!
//! Narayanan, Donnelly, Rowstron: "Write Off-Loading", FAST'08.

use super::fields::{commas, event, lines, lossy, named, number};
use super::{Found, LineDecoder, RowProblem};
use crate::block::BlockKind;

const TICK_NS: u64 = 100;

pub(super) fn knows(head: &[u8]) -> bool {
    let of_two: Vec<_> = lines(head).take(2).map(|line| Msr.line(line)).collect();
    matches!(of_two[..], [Ok(Found::Event(_)), ..] | [Ok(Found::Other), Ok(Found::Event(_))])
}

pub(super) struct Msr;

impl LineDecoder for Msr {
    fn line(&mut self, line: &[u8]) -> Result<Found, RowProblem> {
        let fields = commas(line);
        if fields[0].eq_ignore_ascii_case(b"Timestamp") {
            return Ok(Found::Other);
        }
        let [time, host, disk, kind, offset, size, ..] = fields[..] else {
            return Err(RowProblem::Missing("Size"));
        };
        let kind = match kind.trim_ascii() {
            kind if kind.eq_ignore_ascii_case(b"Read") => BlockKind::Read,
            kind if kind.eq_ignore_ascii_case(b"Write") => BlockKind::Write,
            other => return Err(RowProblem::Operation(lossy(other))),
        };
        // Absolute times: nanoseconds since 1601 need 64 bits, whole.
        let time_ns = number(time, "Timestamp")?.saturating_mul(TICK_NS);
        let device = named(&[host, disk].join(&b'_'));
        event(time_ns, kind, number(offset, "Offset")?, number(size, "Size")?, device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::block::{Device, Event};

    #[test]
    fn a_row_of_the_paper() {
        let event = Event {
            time_ns: 12_816_637_200_306_162_900,
            kind: BlockKind::Read,
            first_byte: 7_014_609_920,
            bytes: 24_576,
            device: Device::Named("hm_1".into()),
        };
        let row = b"128166372003061629,hm,1,Read,7014609920,24576,41286";
        assert_eq!(Msr.line(row), Ok(Found::Event(event)));
        assert!(knows(row));
        assert!(!knows(b"128166372003061629,hm,1,Steal,7014609920,24576,41286"));
    }
}
