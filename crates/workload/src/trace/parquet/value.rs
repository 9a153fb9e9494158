//! Parquet's values as cells of a table.

use std::io::{self, Write as _};

use parquet::basic::{ConvertedType, LogicalType, TimeUnit};
use parquet::data_type::Int96;
use parquet::schema::types::ColumnDescriptor;

use crate::trace::calendar::push_iso_time;

/// The form of a column's cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Printer {
    Plain,
    Unsigned,
    /// A time with this number of units per second, written as date and time.
    Time(i64),
    /// A number with this number of decimals.
    Decimal(u32),
    /// Bytes that are text.
    Text,
}

impl Printer {
    pub(super) fn of(column: &ColumnDescriptor) -> Self {
        match column.logical_type_ref() {
            Some(LogicalType::Integer(integer)) if !integer.is_signed => return Self::Unsigned,
            Some(LogicalType::Timestamp(time)) => {
                return Self::Time(match time.unit {
                    TimeUnit::MILLIS => 1_000,
                    TimeUnit::MICROS => 1_000_000,
                    TimeUnit::NANOS => 1_000_000_000,
                });
            }
            Some(LogicalType::Decimal(decimal)) => return Self::Decimal(decimal.scale.unsigned_abs()),
            Some(LogicalType::String | LogicalType::Enum | LogicalType::Json) => return Self::Text,
            _ => {}
        }
        match column.converted_type() {
            ConvertedType::UINT_8
            | ConvertedType::UINT_16
            | ConvertedType::UINT_32
            | ConvertedType::UINT_64 => Self::Unsigned,
            ConvertedType::TIMESTAMP_MILLIS => Self::Time(1_000),
            ConvertedType::TIMESTAMP_MICROS => Self::Time(1_000_000),
            ConvertedType::DECIMAL => Self::Decimal(column.type_scale().unsigned_abs()),
            ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON => Self::Text,
            _ => Self::Plain,
        }
    }

    pub(super) fn bool(self, value: bool, out: &mut Vec<u8>) -> io::Result<()> {
        write!(out, "{value}")
    }

    pub(super) fn integer(self, value: i64, bits: u32, out: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::Unsigned if bits == 32 => write!(out, "{}", value as u32),
            Self::Unsigned => write!(out, "{}", value as u64),
            Self::Time(units) => push_time(i128::from(value) * i128::from(1_000_000_000 / units), out),
            Self::Decimal(decimals) => push_decimal(value, decimals, out),
            Self::Plain | Self::Text => write!(out, "{value}"),
        }
    }

    /// A time of Impala and old Spark: a Julian day and the nanoseconds of it.
    pub(super) fn int96(self, value: &Int96, out: &mut Vec<u8>) -> io::Result<()> {
        const JULIAN_DAY_OF_1970: i128 = 2_440_588;
        const DAY_NS: i128 = 86_400_000_000_000;
        let [low, high, day] = *value.data() else { unreachable!("it has three words") };
        let below_ns = i128::from(u64::from(high) << 32 | u64::from(low));
        push_time((i128::from(day) - JULIAN_DAY_OF_1970) * DAY_NS + below_ns, out)
    }

    /// A whole number has no decimals. No number is an empty cell.
    pub(super) fn float(self, value: f64, out: &mut Vec<u8>) -> io::Result<()> {
        if value.is_nan() { Ok(()) } else { write!(out, "{value}") }
    }

    /// Text as it is, and other bytes as hexadecimal digits.
    pub(super) fn bytes(self, value: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        if self == Self::Text || is_plain_text(value) {
            return push_text(value, out);
        }
        value.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// Libraries write text without saying so.
fn is_plain_text(value: &[u8]) -> bool {
    value.iter().all(|byte| (b' '..=b'~').contains(byte))
}

/// A cell of text, in quotes if needed.
pub(super) fn push_text(text: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    if text.iter().any(|byte| b"\r\n".contains(byte)) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a value has a line break, which no key can have",
        ));
    }
    let needs_quotes = text.contains(&b',') || matches!(text, [b' ' | b'"' | b'#', ..] | [.., b' ' | b'"']);
    if needs_quotes {
        out.push(b'"');
        for byte in text {
            if *byte == b'"' {
                out.push(b'"');
            }
            out.push(*byte);
        }
        out.push(b'"');
    } else {
        out.extend_from_slice(text);
    }
    Ok(())
}

fn push_time(time_ns: i128, out: &mut Vec<u8>) -> io::Result<()> {
    let Ok(time_ns) = u64::try_from(time_ns) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a time is before 1970 or after 2553"));
    };
    push_iso_time(time_ns, out);
    Ok(())
}

fn push_decimal(value: i64, decimals: u32, out: &mut Vec<u8>) -> io::Result<()> {
    let unit = 10_u64.checked_pow(decimals).unwrap_or(u64::MAX);
    let sign = if value < 0 { "-" } else { "" };
    let (whole, below) = (value.unsigned_abs() / unit, value.unsigned_abs() % unit);
    match decimals as usize {
        0 => write!(out, "{value}"),
        decimals => write!(out, "{sign}{whole}.{below:0decimals$}"),
    }
}
