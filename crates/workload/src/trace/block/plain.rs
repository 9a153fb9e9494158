//! CSV with a header that names the columns, for traces made by scripts.
//!
//! | column | names |
//! |---|---|
//! | time | `time_ns`, `time_us` or `usec`, `time_ms`, `time_s` or `ts`; decimals are allowed; without one, rows are a microsecond apart; `time` or `timestamp` without a unit is an error |
//! | operation | `op` or `operation`: `R`, `W`, `D`, `F` or a word that begins with one (also `T`rim, `G`et, `S`et); or `flags_hex`: the upper half of blktrace's action |
//! | position | `offset` in bytes, or `sector` or `lba` in sectors of 512 bytes |
//! | length | `bytes`, `size`, `length` or `len`, or `sectors` |
//! | device | `device` or `disk`, if there are several |

use super::fields::{commas, event, hexadecimal, lines, lossy, named, number, scaled, sectors};
use super::{Device, Found, LineDecoder, RowProblem};
use crate::block::BlockKind;

pub(super) fn matches_head(head: &[u8]) -> bool {
    let header = lines(head).next().map(Columns::of);
    matches!(header, Some(Ok(_) | Err(RowProblem::TimeUnit(_))))
}

#[derive(Default)]
pub(super) struct Plain {
    columns: Option<Columns>,
    rows: u64,
}

/// The columns and their units.
struct Columns {
    /// The column, and the number of decimals to nanoseconds.
    time: Option<(Column, usize)>,
    /// The column, and whether it contains flags.
    operation: (Column, bool),
    /// The column, and whether it counts sectors.
    place: (Column, bool),
    length: (Column, bool),
    device: Option<Column>,
}

/// A column: its number and its name in the header.
#[derive(Clone, Copy)]
struct Column {
    at: usize,
    name: &'static str,
}

impl Columns {
    fn of(header: &[u8]) -> Result<Self, RowProblem> {
        let names: Vec<Vec<u8>> =
            commas(header).iter().map(|name| name.trim_ascii().to_ascii_lowercase()).collect();
        let column = |name: &'static str| {
            let at = names.iter().position(|found| found == name.as_bytes());
            at.map(|at| Column { at, name })
        };
        let first = |names: &[&'static str]| names.iter().find_map(|name| column(name));
        let time =
            [(&["time_ns"][..], 0), (&["time_us", "usec"], 3), (&["time_ms"], 6), (&["time_s", "ts"], 9)];
        let either = |plain: &[&'static str], other: &[&'static str], what| {
            let found = first(plain).map(|at| (at, false)).or_else(|| first(other).map(|at| (at, true)));
            found.ok_or(RowProblem::Header(what))
        };
        let columns = Self {
            time: time.iter().find_map(|(names, decimals)| first(names).map(|at| (at, *decimals))),
            operation: either(
                &["op", "operation"],
                &["flags_hex"],
                "operation (`op`, `operation` or `flags_hex`)",
            )?,
            place: either(&["offset"], &["sector", "lba"], "place (`offset`, `sector` or `lba`)")?,
            length: either(
                &["bytes", "size", "length", "len"],
                &["sectors"],
                "length (`bytes`, `size`, `length`, `len` or `sectors`)",
            )?,
            device: first(&["device", "disk"]),
        };
        // If the column were ignored, rows would have invented times.
        let of_any_unit = |name: &&Vec<u8>| *name == b"time" || name.starts_with(b"timestamp");
        match names.iter().find(of_any_unit).filter(|_| columns.time.is_none()) {
            Some(name) => Err(RowProblem::TimeUnit(lossy(name))),
            None => Ok(columns),
        }
    }
}

impl LineDecoder for Plain {
    fn accept_header(&mut self, line: &[u8]) -> Result<bool, RowProblem> {
        self.columns = Some(Columns::of(line)?);
        Ok(true)
    }

    fn line(&mut self, line: &[u8]) -> Result<Found, RowProblem> {
        let Some(columns) = &self.columns else {
            self.columns = Some(Columns::of(line)?);
            return Ok(Found::Other);
        };
        let fields = commas(line);
        let field = |column: Column| fields.get(column.at).copied().ok_or(RowProblem::Missing(column.name));
        let time_ns = match columns.time {
            Some((time, decimals)) => scaled(field(time)?, time.name, decimals)?,
            None => self.rows * 1000,
        };
        self.rows += 1;
        let operation = field(columns.operation.0)?;
        let kind = if columns.operation.1 { of_flags(operation)? } else { of_word(operation)? };
        let device = match columns.device {
            Some(device) => named(field(device)?),
            None => Device::Only,
        };
        if kind == BlockKind::Flush {
            return event(time_ns, kind, 0, 0, device);
        }
        let measure = |(column, in_sectors): (Column, bool)| {
            let value = number(field(column)?, column.name)?;
            if in_sectors { sectors(value) } else { Ok(value) }
        };
        let (place, length) = (measure(columns.place)?, measure(columns.length)?);
        let kind = if length == 0 && columns.operation.1 { BlockKind::Flush } else { kind };
        event(time_ns, kind, place, length, device)
    }
}

fn of_word(word: &[u8]) -> Result<BlockKind, RowProblem> {
    match word.trim_ascii().first().map(u8::to_ascii_uppercase) {
        Some(b'R' | b'G') => Ok(BlockKind::Read),
        Some(b'W' | b'S') => Ok(BlockKind::Write),
        Some(b'D' | b'T') => Ok(BlockKind::Discard),
        Some(b'F') => Ok(BlockKind::Flush),
        _ => Err(RowProblem::Operation(lossy(word))),
    }
}

/// blktrace's categories.
fn of_flags(word: &[u8]) -> Result<BlockKind, RowProblem> {
    let flags = hexadecimal(word, "flags_hex")?;
    match flags {
        flags if flags & 0x2000 != 0 => Ok(BlockKind::Discard),
        flags if flags & 2 != 0 => Ok(BlockKind::Write),
        flags if flags & 1 != 0 => Ok(BlockKind::Read),
        flags if flags & 4 != 0 => Ok(BlockKind::Flush),
        _ => Err(RowProblem::Operation(lossy(word))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::block::Event;

    fn all(text: &str) -> Vec<Result<(u64, BlockKind, u64, u64), RowProblem>> {
        let mut decoder = Plain::default();
        let found = text.lines().map(|line| decoder.line(line.as_bytes()));
        found
            .filter_map(|found| match found {
                Ok(Found::Event(Event { time_ns, kind, first_byte, bytes, .. })) => {
                    Some(Ok((time_ns, kind, first_byte, bytes)))
                }
                Ok(_) => None,
                Err(problem) => Some(Err(problem)),
            })
            .collect()
    }

    #[test]
    fn units_follow_the_header() {
        let expected = [Ok((1_500_000, BlockKind::Write, 5120, 4096))];
        for text in [
            "time_ms,op,offset,bytes\n1.5,W,5120,4096",
            "op,sector,sectors,usec\nwrite,10,8,1500",
            "ts,flags_hex,lba,size\n0.0015,2a,10,4096",
            "time_us, operation, offset, length\n1500, write, 5120, 4096",
        ] {
            assert_eq!(all(text), expected, "{text}");
            assert!(matches_head(text.as_bytes()));
        }
    }

    #[test]
    fn flags_without_length_mean_a_flush() {
        assert_eq!(all("usec,flags_hex,sector,bytes\n7,1e,0,0"), [Ok((7000, BlockKind::Flush, 0, 0))]);
    }

    #[test]
    fn flush_without_position_is_accepted() {
        for flush in ["7,F,,", "7,flush", "7,F,nan,nan", "7,F,0,0"] {
            let found = all(&format!("usec,op,offset,bytes\n{flush}"));
            assert_eq!(found, [Ok((7000, BlockKind::Flush, 0, 0))], "{flush}");
        }
        assert_eq!(all("usec,op,offset,bytes\n7,R,,512"), [Err(RowProblem::Missing("offset"))]);
    }

    #[test]
    fn invalid_field_is_reported_by_its_header_name() {
        for (row, column) in [("x,R,0,1", "time_us"), ("1,R,x,1", "lba"), ("1,R,0,x", "len")] {
            let found = all(&format!("time_us,operation,lba,len\n{row}"));
            let is_named = |problem: &RowProblem| matches!(problem, RowProblem::Number { field, .. } if *field == column);
            assert!(matches!(&found[..], [Err(problem)] if is_named(problem)), "{row}: {found:?}");
        }
        assert_eq!(all("time_us,operation,lba,len\n1"), [Err(RowProblem::Missing("operation"))]);
    }

    #[test]
    fn header_without_a_column_reports_which() {
        assert_eq!(all("ts,op,bytes"), [Err(RowProblem::Header("place (`offset`, `sector` or `lba`)"))]);
        assert!(!matches_head(b"ts,key,op,size"));
    }

    #[test]
    fn time_without_a_unit_is_an_error() {
        for name in ["time", "timestamp", "Timestamp_us"] {
            let header = format!("{name},op,offset,bytes");
            let problem = RowProblem::TimeUnit(name.to_lowercase());
            assert_eq!(all(&format!("{header}\n")), [Err(problem)]);
            assert!(matches_head(header.as_bytes()));
        }
        let beside = "timestamp,time_us,op,offset,bytes\nnoon,3,R,0,512";
        assert_eq!(all(beside), [Ok((3000, BlockKind::Read, 0, 512))]);
    }
}
