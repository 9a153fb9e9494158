//! CloudPhysics as text: `version,time,op,size,lbn`: seconds, a SCSI operation code, bytes, a sector.
//!
//! Waldspurger, Park, Garthwaite, Ahmad: "Efficient MRC Construction with SHARDS", FAST'15.

use super::fields::{commas, event, hexadecimal, lines, number, scsi, seconds, sectors};
use super::{Device, Found, LineDecoder, RowProblem};

const HEADER: [&[u8]; 5] = [b"version", b"time", b"op", b"size", b"lbn"];

pub(super) fn knows(head: &[u8]) -> bool {
    lines(head).next().is_some_and(|line| commas(line) == HEADER)
}

pub(super) struct CloudPhysics;

impl LineDecoder for CloudPhysics {
    fn line(&mut self, line: &[u8]) -> Result<Found, RowProblem> {
        let fields = commas(line);
        if fields == HEADER {
            return Ok(Found::Other);
        }
        let [_version, time, code, size, block] = fields[..] else {
            return Err(RowProblem::Missing("lbn"));
        };
        let Some(kind) = scsi(hexadecimal(code, "op")?) else { return Ok(Found::Other) };
        let first_byte = sectors(number(block, "lbn")?)?;
        event(seconds(time, "time")?, kind, first_byte, number(size, "size")?, Device::Only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BlockKind;
    use crate::trace::block::Event;

    #[test]
    fn reads_writes_and_other_commands() {
        let event = |kind| {
            let (time_ns, first_byte, bytes) = (33_898_000_000_000, 40_409_911 * 512, 6656);
            Ok(Found::Event(Event { time_ns, kind, first_byte, bytes, device: Device::Only }))
        };
        assert_eq!(CloudPhysics.line(b"1,33898,2a,6656,40409911"), event(BlockKind::Write));
        assert_eq!(CloudPhysics.line(b"1,33898,28,6656,40409911"), event(BlockKind::Read));
        assert_eq!(CloudPhysics.line(b"1,33898,12,6656,40409911"), Ok(Found::Other));
    }

    #[test]
    fn a_time_in_microseconds_was_called_no_number() {
        let problem = CloudPhysics.line(b"1,1446336000123456,2a,6656,40409911").unwrap_err();
        let said = "`time` is `1446336000123456`, which is not a number of seconds, or is beyond 584 years";
        assert_eq!(problem.to_string(), said);
    }
}
