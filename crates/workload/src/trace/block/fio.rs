//! fio's iolog: `file action offset bytes`, in version 3 preceded by microseconds.
//!
//! In version 2 only `wait` lines advance the time, in microseconds. Lines that add, open and close files are not requests.

use super::fields::{event, lines, lossy, named, number};
use super::{Found, LineDecoder, RowProblem};
use crate::block::BlockKind;

const VERSION_2: &[u8] = b"fio version 2 iolog";
const VERSION_3: &[u8] = b"fio version 3 iolog";

pub(super) fn matches_head(head: &[u8]) -> bool {
    lines(head).next().is_some_and(|line| line.starts_with(b"fio version ") && line.ends_with(b" iolog"))
}

/// Reads both versions; the first line contains the version.
#[derive(Default)]
pub(super) struct Iolog {
    timed: bool,
    /// Version 2: sum of the waits so far.
    waited_us: u64,
}

impl LineDecoder for Iolog {
    fn accept_header(&mut self, line: &[u8]) -> Result<bool, RowProblem> {
        let is_header = matches_head(line);
        if is_header {
            self.line(line)?;
        }
        Ok(is_header)
    }

    fn line(&mut self, line: &[u8]) -> Result<Found, RowProblem> {
        if line.starts_with(b"fio version ") {
            self.timed = line == VERSION_3;
            let known = self.timed || line == VERSION_2;
            return if known { Ok(Found::Other) } else { Err(RowProblem::Operation(lossy(line))) };
        }
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let mut next = |field| words.next().ok_or(RowProblem::Missing(field));
        let time_us = if self.timed { number(next("timestamp")?, "timestamp")? } else { self.waited_us };
        let (file, action) = (next("file")?, next("action")?);
        let kind = match action {
            b"read" => BlockKind::Read,
            b"write" => BlockKind::Write,
            b"trim" => BlockKind::Discard,
            b"sync" | b"datasync" | b"sync_file_range" => BlockKind::Flush,
            b"wait" => {
                self.waited_us = self.waited_us.saturating_add(number(next("offset")?, "offset")?);
                return Ok(Found::Other);
            }
            b"add" | b"open" | b"close" => return Ok(Found::Other),
            other => return Err(RowProblem::Operation(lossy(other))),
        };
        let device = named(file);
        let time_ns = time_us.saturating_mul(1000);
        if kind == BlockKind::Flush {
            return event(time_ns, kind, 0, 0, device);
        }
        let (offset, bytes) = (number(next("offset")?, "offset")?, number(next("length")?, "length")?);
        event(time_ns, kind, offset, bytes, device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::block::Event;

    fn all(text: &str) -> Vec<(u64, BlockKind, u64, u64)> {
        let mut decoder = Iolog::default();
        text.lines()
            .filter_map(|line| match decoder.line(line.as_bytes()).expect(line) {
                Found::Event(Event { time_ns, kind, first_byte, bytes, .. }) => {
                    Some((time_ns, kind, first_byte, bytes))
                }
                _ => None,
            })
            .collect()
    }

    #[test]
    fn version_2_wait_lines_advance_the_time() {
        let text = "fio version 2 iolog\n/dev/sdb add\n/dev/sdb open\n/dev/sdb read 4096 8192\n/dev/sdb wait 15 0\n\
                    /dev/sdb write 0 512\n/dev/sdb sync 0 0\n/dev/sdb close";
        let expected = [
            (0, BlockKind::Read, 4096, 8192),
            (15_000, BlockKind::Write, 0, 512),
            (15_000, BlockKind::Flush, 0, 0),
        ];
        assert_eq!(all(text), expected);
    }

    #[test]
    fn version_3_lines_have_timestamps() {
        let text = "fio version 3 iolog\n1 f add\n2 f open\n20 f trim 4096 8192\n31 f datasync 0 0";
        assert_eq!(all(text), [(20_000, BlockKind::Discard, 4096, 8192), (31_000, BlockKind::Flush, 0, 0)]);
    }

    #[test]
    fn unknown_version_and_unknown_action_are_errors() {
        assert!(Iolog::default().line(b"fio version 4 iolog").is_err());
        assert_eq!(Iolog::default().line(b"f eat 0 1"), Err(RowProblem::Operation("eat".into())));
    }
}
