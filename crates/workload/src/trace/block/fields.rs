//! Parses numbers, and checks the lengths of requests.

use super::{Device, Event, Found, RowProblem};
use crate::block::{BlockKind, SECTOR_BYTES};
use crate::trace::columns::{bare, escaped, without_decimals_of_zero};

/// Largest end of a request: 2^44 sectors, where a block cache reserves the last number as a marker.
const MOST_BYTES: u64 = ((1 << 44) - 1) * SECTOR_BYTES;
/// Longest read or write: 1 GiB.
const LONGEST_BYTES: u64 = 1 << 30;

/// A field as quoted in an error.
pub(super) fn lossy(field: &[u8]) -> String {
    const SHOWN: usize = 40;
    escaped(&field[..field.len().min(SHOWN)])
}

/// The device with this name of any length.
pub(super) fn named(device: &[u8]) -> Device {
    Device::Named(escaped(device))
}

/// The whole number in a field.
pub(super) fn number(bytes: &[u8], field: &'static str) -> Result<u64, RowProblem> {
    let wrong = || RowProblem::Number { field, text: lossy(bytes) };
    let text = bytes.trim_ascii();
    if text.is_empty() {
        return Err(RowProblem::Missing(field));
    }
    without_decimals_of_zero(text).iter().try_fold(0_u64, |number, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10).ok_or_else(wrong)?;
        number.checked_mul(10).and_then(|number| number.checked_add(digit.into())).ok_or_else(wrong)
    })
}

/// The hexadecimal number in a field.
pub(super) fn hexadecimal(bytes: &[u8], field: &'static str) -> Result<u64, RowProblem> {
    let text = std::str::from_utf8(bytes.trim_ascii()).ok();
    let text = text.map(|text| text.strip_prefix("0x").unwrap_or(text)).filter(|text| !text.starts_with('+'));
    let value = text.and_then(|text| u64::from_str_radix(text, 16).ok());
    value.ok_or_else(|| RowProblem::Number { field, text: lossy(bytes) })
}

/// Seconds with decimals, in nanoseconds. Decimals beyond the ninth are dropped.
pub(super) fn seconds(bytes: &[u8], field: &'static str) -> Result<u64, RowProblem> {
    scaled(bytes, field, 9).map_err(|problem| match problem {
        RowProblem::Number { field, text } => RowProblem::Seconds { field, text },
        other => other,
    })
}

/// A number with decimals times ten to the `decimals`.
pub(super) fn scaled(bytes: &[u8], field: &'static str, decimals: usize) -> Result<u64, RowProblem> {
    let wrong = || RowProblem::Number { field, text: lossy(bytes) };
    let text = bytes.trim_ascii();
    let point = text.iter().position(|byte| *byte == b'.');
    let (whole, part) = point.map_or((text, &text[..0]), |point| (&text[..point], &text[point + 1..]));
    let mut value = number(whole, field)?;
    for place in 0..decimals {
        let digit = match part.get(place) {
            None => 0,
            Some(digit) => digit.checked_sub(b'0').filter(|digit| *digit < 10).ok_or_else(wrong)?,
        };
        value = value.checked_mul(10).and_then(|value| value.checked_add(digit.into())).ok_or_else(wrong)?;
    }
    Ok(value)
}

/// The comma-separated fields of a line, without surrounding spaces and quotes.
pub(super) fn commas(line: &[u8]) -> Vec<&[u8]> {
    line.split(|byte| *byte == b',').map(bare).collect()
}

/// The non-empty first lines of a text.
pub(super) fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    head.split(|byte| *byte == b'\n').map(|line| line.trim_ascii()).filter(|line| !line.is_empty())
}

/// The bytes of this number of sectors.
pub(super) fn sectors(count: u64) -> Result<u64, RowProblem> {
    count.checked_mul(SECTOR_BYTES).ok_or(RowProblem::TooFar(u64::MAX))
}

/// An event after checking its position and length.
pub(super) fn event(
    time_ns: u64,
    kind: BlockKind,
    first_byte: u64,
    bytes: u64,
    device: Device,
) -> Result<Found, RowProblem> {
    let end = first_byte.saturating_add(bytes);
    let (first_byte, bytes) = match kind {
        BlockKind::Flush => (0, 0),
        _ if bytes == 0 => return Err(RowProblem::Empty),
        _ if end > MOST_BYTES => return Err(RowProblem::TooFar(end)),
        BlockKind::Read | BlockKind::Write if bytes > LONGEST_BYTES => {
            return Err(RowProblem::TooLong(bytes));
        }
        _ => (first_byte, bytes),
    };
    Ok(Found::Event(Event { time_ns, kind, first_byte, bytes, device }))
}

/// The operation of a SCSI code; `None` for a command that moves no data.
pub(super) fn scsi(code: u64) -> Option<BlockKind> {
    match code {
        0x08 | 0x28 | 0xa8 | 0x88 => Some(BlockKind::Read),
        0x0a | 0x2a | 0xaa | 0x8a => Some(BlockKind::Write),
        0x35 | 0x91 => Some(BlockKind::Flush),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_converted_exactly() {
        assert_eq!(seconds(b"0.000036560", "t"), Ok(36_560));
        assert_eq!(seconds(b"12", "t"), Ok(12_000_000_000));
        assert_eq!(seconds(b"1.5000000009", "t"), Ok(1_500_000_000));
        for wrong in [&b"1.x"[..], b"", b".", b"-1", b"99999999999999"] {
            assert!(seconds(wrong, "t").is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn impossible_requests_have_distinct_errors() {
        let of = |kind, first, bytes| event(0, kind, first, bytes, Device::Only).map(drop);
        assert_eq!(of(BlockKind::Read, 0, 0), Err(RowProblem::Empty));
        assert_eq!(of(BlockKind::Read, u64::MAX, 5), Err(RowProblem::TooFar(u64::MAX)));
        let last = (1 << 53) - 512;
        assert!(
            of(BlockKind::Read, last - 512, 512).is_ok(),
            "the last sector that a block cache can number"
        );
        assert_eq!(of(BlockKind::Read, last, 512), Err(RowProblem::TooFar(1 << 53)));
        assert_eq!(of(BlockKind::Write, 0, 2 << 30), Err(RowProblem::TooLong(2 << 30)));
        assert_eq!(of(BlockKind::Discard, 0, 2 << 30), Ok(()), "whole disks are discarded");
        assert_eq!(of(BlockKind::Flush, 77, 0), Ok(()));
    }
}
