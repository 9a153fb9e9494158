//! MSR Cambridge: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`. Times are Windows ticks of 100 ns, or in some copies dates
//! (`2007-02-22 17:00:03.061629`).
//!
//! Narayanan, Donnelly, Rowstron: "Write Off-Loading", FAST'08.

use super::fields::{commas, event, lines, lossy, named, number};
use super::{Found, LineDecoder, RowProblem};
use crate::block::BlockKind;
use crate::trace::calendar::iso_time_ns;

const TICK_NS: u64 = 100;
/// Names of the first column in headers. The published files have no header.
const HEADERS: [&[u8]; 4] = [b"Timestamp", b"datetime", b"date", b"time"];

pub(super) fn matches_head(head: &[u8]) -> bool {
    let of_two: Vec<_> = lines(head).take(2).map(|line| Msr.line(line)).collect();
    matches!(of_two[..], [Ok(Found::Event(_)), ..] | [Ok(Found::Other), Ok(Found::Event(_))])
}

pub(super) struct Msr;

impl LineDecoder for Msr {
    fn line(&mut self, line: &[u8]) -> Result<Found, RowProblem> {
        let fields = commas(line);
        if HEADERS.iter().any(|name| fields[0].eq_ignore_ascii_case(name)) {
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
        // Absolute times: nanoseconds since 1601 need all 64 bits.
        let ticks = number(time, "Timestamp").map(|ticks| ticks.saturating_mul(TICK_NS));
        let time_ns = ticks.or_else(|reason| iso_time_ns(time).ok_or(reason))?;
        let device = named(&[host, disk].join(&b'_'));
        event(time_ns, kind, number(offset, "Offset")?, number(size, "Size")?, device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::block::{Device, Event};

    #[test]
    fn published_row_is_read() {
        let event = Event {
            time_ns: 12_816_637_200_306_162_900,
            kind: BlockKind::Read,
            first_byte: 7_014_609_920,
            bytes: 24_576,
            device: Device::Named("hm_1".into()),
        };
        let row = b"128166372003061629,hm,1,Read,7014609920,24576,41286";
        assert_eq!(Msr.line(row), Ok(Found::Event(event)));
        assert!(matches_head(row));
        let dated =
            b"datetime,host,disk,type,offset,size,latency\n2007-02-22 17:00:03.5,hm,1,Read,512,4096,1\n";
        assert!(matches_head(dated));
        let Ok(Found::Event(Event { time_ns, .. })) = Msr.line(b"2007-02-22 17:00:03.5,hm,1,Read,512,4096,1")
        else {
            panic!("a date is a valid time")
        };
        assert_eq!(time_ns, 1_172_163_603_500_000_000);
        assert!(!matches_head(b"128166372003061629,hm,1,Steal,7014609920,24576,41286"));
    }
}
