//! blkparse's default output: `major,minor cpu sequence seconds pid action RWBS sector + sectors [command]`.
//!
//! The events follow one line per input file. A leading `F` of RWBS is a flush before the request, a later one is FUA; a flush alone has no
//! sector. A summary begins with a line for a CPU or the total, and ends at the next event, which belongs to another concatenated file.

use super::fields::{event, lines, lossy, number, seconds, sectors};
use super::{Device, Events, Found, LineDecoder, RowProblem};
use crate::block::BlockKind;

pub(super) fn matches_head(head: &[u8]) -> bool {
    let first = lines(head).find(|line| !line.starts_with(b"#") && !names_input_file(line));
    first.is_some_and(|line| {
        let mut words = words(line);
        words.next().is_some_and(|word| device(word).is_some())
            && words.next().is_some_and(|cpu| number(cpu, "cpu").is_ok())
    })
}

#[derive(Default)]
pub(super) struct Blkparse {
    in_summary: bool,
}

impl LineDecoder for Blkparse {
    fn line(&mut self, line: &[u8]) -> Result<Found, RowProblem> {
        let mut words = words(line);
        let Some(first) = words.next().filter(|word| !word.starts_with(b"#")) else {
            return Ok(Found::Other);
        };
        let Some(device) = device(first) else { return self.summary(line, first) };
        self.in_summary = false;
        let mut next = |field| words.next().ok_or(RowProblem::Missing(field));
        let (_cpu, _sequence) = (next("cpu")?, next("sequence")?);
        let time_ns = seconds(next("time")?, "time")?;
        let (_pid, action) = (next("pid")?, next("action")?);
        let events = match action {
            b"Q" => Events::Queue,
            b"D" => Events::Issue,
            b"C" => Events::Complete,
            _ => return Ok(Found::Other),
        };
        let rwbs = next("RWBS")?;
        let kind = kind_of(rwbs)?;
        let place = next("sector")?;
        // A flush alone: the command follows directly.
        if kind == BlockKind::Flush || place.starts_with(b"[") {
            return Ok(event(time_ns, BlockKind::Flush, 0, 0, device)?.at(events));
        }
        let sector = number(place, "sector")?;
        match next("+")? {
            b"+" => {}
            // The completion of a flush: `0 [0]`.
            status if status.starts_with(b"[") => {
                return Ok(event(time_ns, BlockKind::Flush, 0, 0, device)?.at(events));
            }
            // A packet command: command bytes, without a sector.
            _ => return Ok(Found::Other),
        }
        let bytes = sectors(number(next("sectors")?, "sectors")?)?;
        Ok(event(time_ns, kind, sectors(sector)?, bytes, device)?.at(events))
    }
}

impl Blkparse {
    /// A line that is not an event: it must belong to a summary.
    fn summary(&mut self, line: &[u8], first: &[u8]) -> Result<Found, RowProblem> {
        let of_cpu = first.strip_prefix(b"CPU").is_some_and(|cpu| number(cpu, "cpu").is_ok());
        self.in_summary |= of_cpu || first == b"Total";
        if self.in_summary || names_input_file(line) {
            Ok(Found::Other)
        } else {
            Err(RowProblem::Device(lossy(first)))
        }
    }
}

fn names_input_file(line: &[u8]) -> bool {
    line.trim_ascii().starts_with(b"Input file ")
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// `8,16`.
fn device(word: &[u8]) -> Option<Device> {
    let comma = word.iter().position(|byte| *byte == b',')?;
    let part = |bytes| number(bytes, "device").ok().and_then(|number| u32::try_from(number).ok());
    Some(Device::Numbered(part(&word[..comma])?, part(&word[comma + 1..])?))
}

fn kind_of(rwbs: &[u8]) -> Result<BlockKind, RowProblem> {
    let after_flush = rwbs.strip_prefix(b"F").unwrap_or(rwbs);
    match after_flush.first() {
        Some(b'R') => Ok(BlockKind::Read),
        Some(b'W') => Ok(BlockKind::Write),
        Some(b'D') => Ok(BlockKind::Discard),
        Some(b'N' | b'F' | b'S') | None => Ok(BlockKind::Flush),
        Some(_) => Err(RowProblem::Operation(lossy(rwbs))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::block::Event;

    fn read(line: &str) -> Result<Found, RowProblem> {
        Blkparse::default().line(line.as_bytes())
    }

    fn requested(line: &str) -> (BlockKind, u64, u64) {
        let Ok(Found::Event(Event { kind, first_byte, bytes, .. })) = read(line) else { panic!("{line}") };
        (kind, first_byte, bytes)
    }

    #[test]
    fn queued_requests_of_every_kind_are_read() {
        let line =
            |rwbs: &str, tail: &str| format!("  7,0    0        0     0.000036560 23137  Q  {rwbs} {tail}");
        let at = (788_672 * 512, 16_384);
        assert_eq!(requested(&line("RS", "788672 + 32 [mariadbd]")), (BlockKind::Read, at.0, at.1));
        assert_eq!(requested(&line("FWFS", "788672 + 32 [(null)]")), (BlockKind::Write, at.0, at.1));
        assert_eq!(requested(&line("D", "788672 + 32 [fstrim]")), (BlockKind::Discard, at.0, at.1));
        assert_eq!(requested(&line("FWFS", "[mariadbd]")), (BlockKind::Flush, 0, 0));
        assert_eq!(requested(&line("FN", "[jbd2/loop0-8]")), (BlockKind::Flush, 0, 0));
    }

    #[test]
    fn other_events_are_skipped() {
        assert_eq!(read("  8,0 3 1 0.5 697 A R 223490 + 8 <- (8,1) 44"), Ok(Found::Other));
        assert_eq!(read("  8,0 3 0 0.5 0 m N cfq697 put_queue"), Ok(Found::Other));
        assert_eq!(read("  8,0 3 1 0.5 697 Q R 36 (12 00 00 00 24 00) [hald]"), Ok(Found::Other));
        assert_eq!(read("  8,0 3 1 0.5 697 Q R 223490 +"), Err(RowProblem::Missing("sectors")));
        assert_eq!(read("  8,0 3 1 0.5 697 Q XY 223490 + 8 [a]"), Err(RowProblem::Operation("XY".into())));
    }

    #[test]
    fn issue_and_completion_lines_are_decoded_with_their_event() {
        for (line, events, expected) in [
            ("  8,0 3 1 0.5 697 D W 223490 + 8 [a]", Events::Issue, (BlockKind::Write, 223_490 * 512, 4096)),
            (
                "  8,0 3 1 0.5 697 C W 223490 + 8 [0]",
                Events::Complete,
                (BlockKind::Write, 223_490 * 512, 4096),
            ),
            ("  8,0 3 1 0.5 697 C FWS 0 [0]", Events::Complete, (BlockKind::Flush, 0, 0)),
            ("  8,0 3 1 0.5 697 D FN [kworker/0:1H]", Events::Issue, (BlockKind::Flush, 0, 0)),
        ] {
            let Ok(Found::Later(found, event)) = read(line) else { panic!("{line}") };
            assert_eq!((found, (event.kind, event.first_byte, event.bytes)), (events, expected), "{line}");
        }
    }

    #[test]
    fn format_is_detected_behind_input_file_lines() {
        let files = "Input file sda.blktrace.0 added\nInput file sda.blktrace.1 added\n";
        assert!(matches_head(format!("{files}  8,0 3 1 0.5 697 Q R 8 + 8 [a]\n").as_bytes()));
        assert!(!matches_head(files.as_bytes()), "there are no events");
    }

    /// Catches a regression: any line that is not an event counts as the summary, and everything after it is silently
    /// skipped.
    #[test]
    fn summary_is_skipped_and_other_lines_are_errors() {
        let event = "  8,0 3 1 0.5 697 Q R 223490 + 8 [a]";
        assert_eq!(read("Xrubbish"), Err(RowProblem::Device("Xrubbish".into())));
        assert_eq!(read(" Reads Queued:           5,       20KiB"), Err(RowProblem::Device("Reads".into())));
        let mut blkparse = Blkparse::default();
        let mut next = |line: &str| blkparse.line(line.as_bytes());
        for line in
            ["Input file sda.blktrace.0 added", "", "CPU0 (8,0):", " Reads Queued:           5,       20KiB"]
        {
            assert_eq!(next(line), Ok(Found::Other), "{line}");
        }
        for line in [
            "Total (8,0):",
            "Throughput (R/W): 4KiB/s / 0KiB/s",
            "Events (8,0): 9 entries",
            "Skips: 0 forward",
        ] {
            assert_eq!(next(line), Ok(Found::Other), "{line}");
        }
        assert!(matches!(next(event), Ok(Found::Event(_))), "the next file's event");
        assert!(next("Xrubbish").is_err());
    }
}
