//! The ASCII traces of two simulators, five columns separated by spaces: `time device sector sectors type`.
//!
//! | simulator | time | type |
//! |---|---|---|
//! | DiskSim (Ganger, Bucy and others), `disksim_iotrace.c` | milliseconds, with decimals | hexadecimal flags; bit 0 set is a read |
//! | MQSim (Tavakkol and others, FAST '18), `ASCII_Trace_Definition.h` | nanoseconds | 1 is a read, 0 a write |
//!
//! Detection distinguishes the formats by the decimals of the times.

use super::fields::{event, hexadecimal, lines, lossy, number, scaled, sectors};
use super::{Device, Found, LineDecoder, RowProblem};
use crate::block::BlockKind;
use crate::trace::columns::words;

/// Rows checked to detect the format.
const TRIED_ROWS: usize = 32;

pub(super) fn knows_disksim(head: &[u8]) -> bool {
    looks_like(head, |time| time.contains(&b'.'), &mut DiskSim)
}

pub(super) fn knows_mqsim(head: &[u8]) -> bool {
    looks_like(head, |time| !time.contains(&b'.'), &mut MqSim)
}

/// Whether the first rows are requests in order of time. The last line can be cut off, unless it is the only one.
fn looks_like(head: &[u8], is_time: impl Fn(&[u8]) -> bool, decoder: &mut dyn LineDecoder) -> bool {
    let whole = head.iter().rposition(|byte| *byte == b'\n').map_or(head, |last| &head[..last]);
    let (mut last_ns, mut rows) = (0, 0);
    for line in lines(whole).filter(|line| !line.starts_with(b"#")).take(TRIED_ROWS) {
        let Ok(Found::Event(event)) = decoder.line(line) else { return false };
        let ([time], _) = words::<1>(line);
        if !is_time(time) || event.time_ns < last_ns {
            return false;
        }
        (last_ns, rows) = (event.time_ns, rows + 1);
    }
    rows > 0
}

pub(super) struct DiskSim;

impl LineDecoder for DiskSim {
    fn line(&mut self, line: &[u8]) -> Result<Found, RowProblem> {
        const MILLISECOND_DECIMALS: usize = 6;
        request(line, MILLISECOND_DECIMALS, |flags| {
            let is_read = hexadecimal(flags, "flags")? & 1 == 1;
            Ok(if is_read { BlockKind::Read } else { BlockKind::Write })
        })
    }
}

pub(super) struct MqSim;

impl LineDecoder for MqSim {
    fn line(&mut self, line: &[u8]) -> Result<Found, RowProblem> {
        request(line, 0, |kind| match kind {
            b"0" => Ok(BlockKind::Write),
            b"1" => Ok(BlockKind::Read),
            other => Err(RowProblem::Operation(lossy(other))),
        })
    }
}

fn request(
    line: &[u8],
    time_decimals: usize,
    kind: impl Fn(&[u8]) -> Result<BlockKind, RowProblem>,
) -> Result<Found, RowProblem> {
    let ([time, device, sector, count, flags], found) = words::<5>(line);
    if line.starts_with(b"#") {
        return Ok(Found::Other);
    }
    if found != 5 {
        return Err(RowProblem::Columns { has: found, needs: 5 });
    }
    let time_ns = scaled(time, "time", time_decimals)?;
    let device = Device::Named(number(device, "device")?.to_string());
    let (first_byte, bytes) = (sectors(number(sector, "sector")?)?, sectors(number(count, "sectors")?)?);
    event(time_ns, kind(flags)?, first_byte, bytes, device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::block::Event;

    fn requested(decoder: &mut dyn LineDecoder, line: &str) -> (u64, BlockKind, u64, u64) {
        let Ok(Found::Event(Event { time_ns, kind, first_byte, bytes, .. })) = decoder.line(line.as_bytes())
        else {
            panic!("{line}")
        };
        (time_ns, kind, first_byte, bytes)
    }

    #[test]
    fn rows_of_both_simulators_are_read() {
        let read = (1_500_000, BlockKind::Read, 5120, 4096);
        assert_eq!(requested(&mut DiskSim, "1.5 0 10 8 1"), read);
        assert_eq!(requested(&mut DiskSim, "1.500000 0 10 8 40000001").1, BlockKind::Read);
        assert_eq!(requested(&mut DiskSim, "1.5 0 10 8 0").1, BlockKind::Write);
        assert_eq!(requested(&mut MqSim, "1500000 0 10 8 1"), read);
        assert_eq!(requested(&mut MqSim, "938513000 4 264719034 16 0").1, BlockKind::Write);
        assert_eq!(MqSim.line(b"1 0 10 8 2"), Err(RowProblem::Operation("2".into())));
        assert_eq!(MqSim.line(b"1 0 10 8"), Err(RowProblem::Columns { has: 4, needs: 5 }));
    }

    #[test]
    fn detection_needs_ordered_times_and_decimals_select_disksim() {
        let (disksim, mqsim) = (b"0.1 0 1 8 1\n2.0 0 1 8 0\n", b"100 0 1 8 1\n2000 0 1 8 0\n");
        assert!(knows_disksim(disksim) && !knows_mqsim(disksim));
        assert!(knows_mqsim(mqsim) && !knows_disksim(mqsim));
        assert!(!knows_mqsim(b"2000 0 1 8 1\n100 0 1 8 0\n"));
        assert!(!knows_mqsim(b"1 2 3 4 5\n") && !knows_mqsim(b""));
    }
}
