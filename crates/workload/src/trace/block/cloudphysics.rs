//! CloudPhysics traces as text: `version,time,op,size,lbn`: time, SCSI operation code, bytes, sector.
//!
//! Times are seconds, or microseconds as in PyMimircache's copy: whole numbers that would be beyond the year 5000 as seconds. Codes are
//! hexadecimal (`2a`), or decimal (`42`) if the hexadecimal reading is neither read nor write. Headers use various names.
//!
//! Waldspurger, Park, Garthwaite, Ahmad: "Efficient MRC Construction with SHARDS", FAST'15.

use super::fields::{commas, event, hexadecimal, lines, number, scsi, seconds, sectors};
use super::{Device, Found, LineDecoder, RowProblem};
use crate::block::{BlockKind, SECTOR_BYTES};

/// The names of each column.
const HEADER: [&[&str]; 5] = [
    &["version", "ver"],
    &["time", "ts", "timestamp", "real_time"],
    &["op", "cmd", "command"],
    &["size", "len", "length"],
    &["lbn", "lba", "block", "label"],
];
/// Times of at least this value are microseconds.
const LEAST_MICROSECONDS: u64 = 100_000_000_000;
/// Rows checked to detect the format.
const TRIED_ROWS: usize = 32;

/// Whether there is a header, or the first rows consist of a version, a SCSI code and whole sectors. The last line can be cut off, unless
/// it is the only one.
pub(super) fn matches_head(head: &[u8]) -> bool {
    if lines(head).next().is_some_and(is_header) {
        return true;
    }
    let whole = head.iter().rposition(|byte| *byte == b'\n').map_or(head, |last| &head[..last]);
    let is_row = |line: &[u8]| {
        let is_version = matches!(commas(line)[..], [b"1" | b"2", _, _, _, _]);
        let whole_sectors =
            |found| matches!(found, Ok(Found::Event(event)) if event.bytes % SECTOR_BYTES == 0);
        is_version && whole_sectors(CloudPhysics.line(line))
    };
    let mut rows = lines(whole).take(TRIED_ROWS).peekable();
    rows.peek().is_some() && rows.all(is_row)
}

fn is_header(line: &[u8]) -> bool {
    let fields = commas(line);
    let is_called = |(field, names): (&&[u8], &&[&str])| {
        names.iter().any(|name| field.eq_ignore_ascii_case(name.as_bytes()))
    };
    fields.len() == HEADER.len() && fields.iter().zip(&HEADER).all(is_called)
}

fn kind(code: &[u8]) -> Result<Option<BlockKind>, RowProblem> {
    let decimal = || number(code, "op").ok().and_then(scsi);
    Ok(scsi(hexadecimal(code, "op")?).or_else(decimal))
}

fn time_ns(time: &[u8]) -> Result<u64, RowProblem> {
    match number(time, "time") {
        Ok(microseconds) if microseconds >= LEAST_MICROSECONDS => Ok(microseconds.saturating_mul(1000)),
        _ => seconds(time, "time"),
    }
}

pub(super) struct CloudPhysics;

impl LineDecoder for CloudPhysics {
    fn line(&mut self, line: &[u8]) -> Result<Found, RowProblem> {
        let fields = commas(line);
        let [_version, time, code, size, block] = fields[..] else {
            return Err(RowProblem::Missing("lbn"));
        };
        if is_header(line) {
            return Ok(Found::Other);
        }
        let Some(kind) = kind(code)? else { return Ok(Found::Other) };
        let first_byte = sectors(number(block, "lbn")?)?;
        event(time_ns(time)?, kind, first_byte, number(size, "size")?, Device::Only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BlockKind;
    use crate::trace::block::Event;

    #[test]
    fn reads_and_writes_are_read_and_other_commands_skipped() {
        let event = |kind| {
            let (time_ns, first_byte, bytes) = (33_898_000_000_000, 40_409_911 * 512, 6656);
            Ok(Found::Event(Event { time_ns, kind, first_byte, bytes, device: Device::Only }))
        };
        assert_eq!(CloudPhysics.line(b"1,33898,2a,6656,40409911"), event(BlockKind::Write));
        assert_eq!(CloudPhysics.line(b"1,33898,28,6656,40409911"), event(BlockKind::Read));
        assert_eq!(CloudPhysics.line(b"1,33898,12,6656,40409911"), Ok(Found::Other));
    }

    #[test]
    fn pymimircache_rows_are_read_with_microseconds_and_decimal_codes() {
        let time = |line: &[u8]| match CloudPhysics.line(line) {
            Ok(Found::Event(event)) => (event.time_ns, event.kind),
            other => panic!("{other:?}"),
        };
        assert_eq!(time(b"1,5633898368802,2a,512,42932745"), (5_633_898_368_802_000, BlockKind::Write));
        assert_eq!(time(b"1,5633898368802,40,512,42932745"), (5_633_898_368_802_000, BlockKind::Read));
        assert_eq!(time(b"1,5633898.368802,42,512,42932745"), (5_633_898_368_802_000, BlockKind::Write));
        assert!(matches_head(b"ver,ts,cmd,len,lbn\n") && matches_head(b"1,5633898368802,2a,512,42932745\n"));
        assert!(!matches_head(b"1,5,2a,500,7\n") && !matches_head(b"3,5,2a,512,7\n"));
    }
}
