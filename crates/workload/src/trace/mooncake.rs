//! Mooncake's traces of prefix caches for language models (Qin et al., FAST '25): one JSON object per line.
//!
//! `timestamp` is in milliseconds; every number in `hash_ids` is a block of 512 tokens of the prompt; the blocks are looked up in that
//! order. The size of a block depends on the model: half a MiB unless a page size is set.

use memchr::memmem;

use super::columns::{RowError, lossy, nanoseconds, whole_number};
use super::format::{FileOrder, Format, Pages, TimeUnits};
use super::rows::{Object, ReaderOptions, Row, RowReader, Rows};
use crate::RequestKind;

pub(super) static FORMAT: Format = Format {
    name: "mooncake",
    about: "Mooncake's JSON lines: timestamp and hash_ids of prefix blocks",
    extensions: &["jsonl"],
    pages: Pages::Of(512 << 10),
    time_units: TimeUnits::Default(1000),
    files: FileOrder::InTurn,
    plausible: |head| head.first_line().is_some_and(|line| line.starts_with(b"{")),
    reader,
};

fn reader(options: &ReaderOptions) -> Box<dyn RowReader> {
    Box::new(Reader {
        units_per_second: options.time_units_per_second,
        block_bytes: options.page_bytes.unwrap_or(512 << 10),
    })
}

struct Reader {
    units_per_second: u64,
    block_bytes: u64,
}

impl RowReader for Reader {
    fn read(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        let blocks = array(line, "hash_ids")?;
        let time = number(line, "timestamp")?;
        let time_ns = Some(nanoseconds(time, self.units_per_second));
        if blocks.is_empty() {
            return Ok(());
        }
        for text in blocks.split(|byte| *byte == b',') {
            let wrong = || RowError::Number { column: "hash_ids", text: lossy(text), max: u64::MAX };
            let block = whole_number(text.trim_ascii()).ok_or_else(wrong)?;
            let row = Row::new(RequestKind::Get, Object::number(block), self.block_bytes);
            rows.push(Row { time_ns, ..row });
        }
        Ok(())
    }
}

/// The value of a field, up to the end of the line. No text in these traces contains a quoted field name, so searching for one suffices.
fn value<'a>(line: &'a [u8], name: &'static str) -> Result<&'a [u8], RowError> {
    let places = memmem::find_iter(line, name);
    let mut values = places.filter_map(|at| {
        let (before, after) = (&line[..at], &line[at + name.len()..]);
        let after = after.strip_prefix(b"\"")?.trim_ascii_start();
        before.ends_with(b"\"").then_some(after.strip_prefix(b":")?.trim_ascii_start())
    });
    values.next().ok_or(RowError::Missing(name))
}

/// A number; decimals are dropped.
fn number(line: &[u8], name: &'static str) -> Result<u64, RowError> {
    let value = value(line, name)?;
    let length = value.iter().position(|byte| b",} \t".contains(byte)).unwrap_or(value.len());
    let whole = value[..length].split(|byte| *byte == b'.').next().unwrap_or_default();
    whole_number(whole).ok_or_else(|| RowError::Number {
        column: name,
        text: lossy(&value[..length]),
        max: u64::MAX,
    })
}

fn array<'a>(line: &'a [u8], name: &'static str) -> Result<&'a [u8], RowError> {
    let inside = value(line, name)?.strip_prefix(b"[").ok_or(RowError::Missing(name))?;
    let end = memchr::memchr(b']', inside).ok_or(RowError::Missing(name))?;
    Ok(inside[..end].trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Vec<(Object, Option<u64>)>, RowError> {
        let mut rows = Rows::default();
        let options =
            ReaderOptions { time_units_per_second: 1000, page_bytes: None, ..ReaderOptions::default() };
        reader(&options).read(line.as_bytes(), &mut rows)?;
        Ok((0..rows.len()).map(|row| (rows.row(row).object.clone(), rows.row(row).time_ns)).collect())
    }

    #[test]
    fn line_is_a_list_of_blocks() {
        let line =
            r#"{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 2353]}"#;
        let time = Some(27_482_000_000);
        assert_eq!(read(line), Ok(vec![(Object::number(46), time), (Object::number(2353), time)]));
        assert_eq!(
            read(r#"{"hash_ids":[7],"timestamp":1.5}"#),
            Ok(vec![(Object::number(7), Some(1_000_000))])
        );
        assert_eq!(read(r#"{"hash_ids":[],"timestamp":1}"#), Ok(vec![]));
    }

    #[test]
    fn invalid_line_reports_the_reason() {
        for (line, message) in [
            (r#"{"timestamp": 1}"#, "column `hash_ids` is missing"),
            (r#"{"timestamp": 1, "hash_ids": [1, 2"#, "column `hash_ids` is missing"),
            (r#"{"hash_ids": [1]}"#, "column `timestamp` is missing"),
            (
                r#"{"timestamp": 1, "hash_ids": [1, "x"]}"#,
                "column `hash_ids` is ` \"x\"`, which is not a whole number from 0 to 18446744073709551615",
            ),
        ] {
            assert_eq!(read(line).unwrap_err().to_string(), message, "{line}");
        }
    }
}
