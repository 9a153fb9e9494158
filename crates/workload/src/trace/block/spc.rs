//! Traces of the Storage Performance Council, as in the University of Massachusetts' repository (Financial1, WebSearch1 and
//! others): `ASU,LBA,Size,Opcode,Timestamp`.
//!
//! The columns: application storage unit (a device here), block of 512 bytes, bytes, `r` or `w`, seconds. Further columns are ignored.
//! There is no header.

use super::fields::{commas, event, lines, lossy, number, seconds, sectors};
use super::{Device, Found, LineDecoder, RowProblem};
use crate::block::{BlockKind, SECTOR_BYTES};

/// Rows checked to detect the format.
const TRIED_ROWS: usize = 32;

/// Whether the first rows have whole sectors and ordered times, at least one with decimals: any table can have four numbers and a letter.
/// The last line can be cut off, unless it is the only one.
pub(super) fn matches_head(head: &[u8]) -> bool {
    let whole = head.iter().rposition(|byte| *byte == b'\n').map_or(head, |last| &head[..last]);
    let (mut last_ns, mut has_decimals) = (0, false);
    for line in lines(whole).take(TRIED_ROWS) {
        let Ok(Found::Event(event)) = Spc.line(line) else { return false };
        if event.bytes % SECTOR_BYTES != 0 || event.time_ns < last_ns {
            return false;
        }
        last_ns = event.time_ns;
        has_decimals |= commas(line).get(4).is_some_and(|time| time.contains(&b'.'));
    }
    has_decimals
}

/// Whether the first row can be read, for a file whose name has this format's ending.
pub(super) fn reads(head: &[u8]) -> bool {
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
        // Parsed as a number, so that all spellings of a unit are equal.
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
    fn row_is_read() {
        let event = Event {
            time_ns: 551_706_000,
            kind: BlockKind::Write,
            first_byte: 20_941_264 * 512,
            bytes: 8192,
            device: Device::Named("0".into()),
        };
        assert_eq!(Spc.line(b"0,20941264,8192,W,0.551706,x"), Ok(Found::Event(event)));
        assert!(Spc.line(b"0, 1, 512, r, 0").is_ok(), "some files have spaces after the commas");
        assert!(matches_head(b"0,20941264,8192,W,0.551706\r\n1,2,") && !matches_head(b"0,20941264,8192,W"));
    }

    #[test]
    fn table_of_numbers_and_a_letter_is_not_detected_as_spc() {
        assert!(!matches_head(b"0,7,2549,W,0\n1,8,100,R,1\n"), "neither whole sectors nor decimals");
        assert!(!matches_head(b"0,7,512,W,5.0\n1,8,512,R,1.0\n"), "times go back");
        assert!(!matches_head(b"0,7,512,W,0\n"));
    }

    #[test]
    fn invalid_row_reports_the_reason() {
        for (line, message) in [
            ("0,1,512,x,0", "`x` is not a known operation"),
            ("0,1,512,r,", "`Timestamp` is missing"),
            ("0,,512,r,0", "`LBA` is missing"),
            ("0,1,512", "`Opcode` is missing"),
            ("0,1,0,r,0", "the request is 0 bytes long"),
        ] {
            assert_eq!(Spc.line(line.as_bytes()).unwrap_err().to_string(), message, "{line}");
        }
    }
}
