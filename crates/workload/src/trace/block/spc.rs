//! Traces of the Storage Performance Council, as in the University of Massachusetts' repository (Financial1, WebSearch1 and
//! others): `ASU,LBA,Size,Opcode,Timestamp`.
//!
//! The number of the application's storage unit, which is a device here, its block of 512 bytes, bytes, `r` or `w`, seconds.
//! What stands behind is not used. There is no header.

use super::fields::{commas, event, lines, lossy, number, seconds, sectors};
use super::{Device, Found, LineDecoder, RowProblem};
use crate::block::BlockKind;

pub(super) fn knows(head: &[u8]) -> bool {
    lines(head).next().is_some_and(|line| Spc.line(line).is_ok())
}

pub(super) struct Spc;

impl LineDecoder for Spc {
    fn line(&mut self, line: &[u8]) -> Result<Found, RowProblem> {
        let fields = commas(line);
        let field = |at: usize, name| fields.get(at).copied().ok_or(RowProblem::Missing(name));
        let kind = match field(3, "Opcode")? {
            b"r" | b"R" => BlockKind::Read,
            b"w" | b"W" => BlockKind::Write,
            b"" => return Err(RowProblem::Missing("Opcode")),
            other => return Err(RowProblem::Operation(lossy(other))),
        };
        // As a number, so that a unit is one however it is written.
        let unit = number(field(0, "ASU")?, "ASU")?;
        let first_byte = sectors(number(field(1, "LBA")?, "LBA")?)?;
        let bytes = number(field(2, "Size")?, "Size")?;
        let time_ns = seconds(field(4, "Timestamp")?, "Timestamp")?;
        event(time_ns, kind, first_byte, bytes, Device::Named(unit.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::block::Event;

    #[test]
    fn rows_are_read() {
        let event = Event {
            time_ns: 551_706_000,
            kind: BlockKind::Write,
            first_byte: 20_941_264 * 512,
            bytes: 8192,
            device: Device::Named("0".into()),
        };
        assert_eq!(Spc.line(b"0,20941264,8192,W,0.551706,x"), Ok(Found::Event(event)));
        assert!(Spc.line(b"0, 1, 512, r, 0").is_ok(), "some of the files have spaces behind the commas");
        assert!(knows(b"0,20941264,8192,W,0.551706\r\n1,2,") && !knows(b"0,20941264,8192,W"));
    }

    #[test]
    fn wrong_rows_say_why() {
        for (line, told) in [
            ("0,1,512,x,0", "`x` is not a known operation"),
            ("0,1,512,r,", "`Timestamp` is missing"),
            ("0,,512,r,0", "`LBA` is missing"),
            ("0,1,512", "`Opcode` is missing"),
            ("0,1,0,r,0", "the request is 0 bytes long"),
        ] {
            assert_eq!(Spc.line(line.as_bytes()).unwrap_err().to_string(), told, "{line}");
        }
    }
}
