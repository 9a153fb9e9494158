//! The intervals of a run, in the result file and in a separate file that grows during the run.

use std::fs::File;
use std::io::{Error, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};

use super::figures::Reading;
use super::series::Span;
use super::tails::Layer;
use crate::run::{Observable, Watcher};
use cache::stats::FlashStats;

/// A column of an interval: its name, and its value.
type Column = (&'static str, fn(&Span) -> Option<Reading>);

/// All columns, in order. They count within the interval, so that their sum is the run's, except `until_seconds` and
/// `flash_bytes_waiting`, which describe its end.
pub const COLUMNS: &[Column] = &[
    ("until_seconds", |span| Some(Reading::Real(to_the_nanosecond(span.until_seconds)))),
    ("seconds", |span| Some(Reading::Real(to_the_nanosecond(span.seconds)))),
    ("ops", |span| whole(span.counts.ops)),
    ("gets", |span| whole(span.counts.gets)),
    ("get_misses", |span| whole(span.counts.get_misses)),
    ("get_hits_dram", |span| whole(span.counts.get_hits_dram)),
    ("get_hits_flash", |span| whole(span.counts.get_hits_flash)),
    ("sets", |span| whole(span.counts.sets)),
    ("set_failures", |span| whole(span.counts.set_failures)),
    ("deletes", |span| whole(span.counts.deletes)),
    ("inconsistencies", |span| whole(span.counts.inconsistencies)),
    ("flash_bytes_logical", |span| of_flash(span, |flash| Some(flash.accepted_bytes()))),
    ("flash_bytes_waiting", |span| of_flash(span, |flash| Some(flash.waiting_bytes()))),
    ("flash_bytes_host", |span| of_flash(span, |flash| Some(flash.device.written_bytes))),
    ("flash_bytes_media", |span| of_flash(span, |flash| flash.device.media_written_bytes)),
    ("get_p50_ns", |span| latency(span, Layer::Get, 0.5)),
    ("get_p99_ns", |span| latency(span, Layer::Get, 0.99)),
    ("set_p50_ns", |span| latency(span, Layer::Set, 0.5)),
    ("set_p99_ns", |span| latency(span, Layer::Set, 0.99)),
    ("device_read_p50_ns", |span| latency(span, Layer::DeviceRead, 0.5)),
    ("device_read_p99_ns", |span| latency(span, Layer::DeviceRead, 0.99)),
    ("device_write_p50_ns", |span| latency(span, Layer::DeviceWrite, 0.5)),
    ("device_write_p99_ns", |span| latency(span, Layer::DeviceWrite, 0.99)),
    ("flash_bytes_settled", |span| of_flash(span, |flash| Some(flash.settled_bytes().0))),
    ("flash_bytes_settled_host", |span| of_flash(span, |flash| Some(flash.settled_bytes().1))),
];

fn whole(count: u64) -> Option<Reading> {
    Some(Reading::Whole(count))
}

/// Unknown if nothing was timed.
fn latency(span: &Span, layer: Layer, share: f64) -> Option<Reading> {
    span.tails.quantile_ns(layer, share).map(Reading::Whole)
}

/// 0 without flash, unknown if flash does not report it, as in the figures.
fn of_flash(span: &Span, read: fn(&FlashStats) -> Option<u64>) -> Option<Reading> {
    span.flash.as_ref().map_or(Some(0), read).map(Reading::Whole)
}

/// Clocks have nanosecond resolution; finer digits are rounding errors of the subtraction.
fn to_the_nanosecond(seconds: f64) -> f64 {
    (seconds * 1e9).round() / 1e9
}

fn cell(column: &Column, span: &Span) -> Value {
    (column.1)(span).map_or(Value::Null, Reading::to_json)
}

/// An interval for the result file.
#[must_use]
pub fn to_json(span: &Span) -> Value {
    let cells = COLUMNS.iter().map(|column| (column.0.to_owned(), cell(column, span)));
    Value::Object(cells.collect::<Map<_, _>>())
}

/// Format of a file of intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntervalFormat {
    /// Comma-separated values with a header; unknown values are empty.
    Csv,
    /// One JSON object per line.
    JsonLines,
}

impl IntervalFormat {
    /// The format for the file name extension of `file`; `None` if it is another one.
    #[must_use]
    pub fn of(file: &Path) -> Option<Self> {
        match file.extension()?.to_str()?.to_lowercase().as_str() {
            "csv" => Some(Self::Csv),
            "jsonl" => Some(Self::JsonLines),
            _ => None,
        }
    }

    fn header(self) -> String {
        match self {
            Self::Csv => COLUMNS.iter().map(|column| column.0).collect::<Vec<_>>().join(",") + "\n",
            Self::JsonLines => String::new(),
        }
    }

    fn line(self, span: &Span) -> String {
        let text = |cell: Value| if cell.is_null() { String::new() } else { cell.to_string() };
        match self {
            Self::Csv => COLUMNS.iter().map(|column| text(cell(column, span))).collect::<Vec<_>>().join(","),
            Self::JsonLines => to_json(span).to_string(),
        }
    }
}

/// Writes each interval to a file as it ends, in front of another watcher.
pub struct IntervalFile<'a> {
    watcher: &'a mut dyn Watcher,
    file: File,
    path: PathBuf,
    format: IntervalFormat,
    failed: Option<Error>,
}

impl<'a> IntervalFile<'a> {
    /// Creates the file and writes its header.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(
        path: &Path,
        format: IntervalFormat,
        watcher: &'a mut dyn Watcher,
    ) -> std::io::Result<Self> {
        let written = File::create(path).and_then(|mut file| {
            file.write_all(format.header().as_bytes())?;
            Ok(file)
        });
        let file = written.map_err(|error| named(path, &error))?;
        Ok(Self { watcher, file, path: path.to_owned(), format, failed: None })
    }

    /// Returns the write error, if there was one.
    ///
    /// # Errors
    /// An interval could not be written; the file ends before it.
    pub fn finish(self) -> std::io::Result<()> {
        self.failed.map_or(Ok(()), |error| Err(named(&self.path, &error)))
    }
}

impl Watcher for IntervalFile<'_> {
    fn refresh(&mut self, instances: &[&dyn Observable], elapsed: Duration) {
        self.watcher.refresh(instances, elapsed);
    }

    fn sample(&mut self, instances: &[&dyn Observable], elapsed: Duration) {
        self.watcher.sample(instances, elapsed);
    }

    fn needs_intervals(&self) -> bool {
        self.failed.is_none()
    }

    /// A write error, for example a full disk, does not end the run. A line is written in full or not at all.
    fn interval(&mut self, span: &Span) {
        let line = self.format.line(span) + "\n";
        if let Err(error) = write_whole(&mut self.file, line.as_bytes()) {
            self.watcher.warn(&format!("{}: no further intervals are written", named(&self.path, &error)));
            self.failed = Some(error);
        }
    }

    fn warn(&mut self, text: &str) {
        self.watcher.warn(text);
    }
}

/// Appends all of `bytes` to `file`, or restores its length.
///
/// # Errors
/// The write error.
pub fn write_whole(file: &mut File, bytes: &[u8]) -> std::io::Result<()> {
    let before = file.metadata().map(|it| it.len());
    file.write_all(bytes).inspect_err(|_| {
        if let Ok(length) = before {
            let _ = file.set_len(length);
        }
    })
}

fn named(path: &Path, error: &Error) -> Error {
    Error::new(error.kind(), format!("writing {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::super::tails::Tails;
    use super::*;
    use crate::run::counts::Counts;
    use cache::stats::RegionStats;

    fn span() -> Span {
        let regions = RegionStats {
            waiting_bytes: 5,
            settled_bytes: 800,
            settled_written_bytes: 1000,
            ..RegionStats::default()
        };
        let mut flash = FlashStats { regions: Some(regions), ..FlashStats::default() };
        (flash.puts.logical_bytes, flash.device.written_bytes) = (900, 4096);
        let counts = Counts { ops: 7, gets: 5, get_misses: 2, ..Counts::default() };
        let tails = Tails::default();
        Span { until_seconds: 0.4, seconds: 0.4 - 0.2, counts, flash: Some(flash), tails }
    }

    #[test]
    fn csv_and_json_lines_agree_and_unknown_is_not_zero() {
        let line = IntervalFormat::Csv.line(&span());
        assert_eq!(line, "0.4,0.2,7,5,2,0,0,0,0,0,0,900,5,4096,,,,,,,,,,800,1000");
        let object: Value = serde_json::from_str(&IntervalFormat::JsonLines.line(&span())).unwrap();
        for (name, cell) in IntervalFormat::Csv.header().trim_end().split(',').zip(line.split(',')) {
            let expected = if cell.is_empty() { Value::Null } else { serde_json::from_str(cell).unwrap() };
            assert_eq!(object[name], expected, "{name}");
        }
        let without = Span { flash: None, ..span() };
        assert!(
            IntervalFormat::Csv.line(&without).ends_with(",0,0,0,0,,,,,,,,,0,0"),
            "without flash nothing was written to it"
        );
    }

    #[test]
    fn extension_determines_the_format() {
        assert_eq!(IntervalFormat::of(Path::new("a/b.CSV")), Some(IntervalFormat::Csv));
        assert_eq!(IntervalFormat::of(Path::new("b.jsonl")), Some(IntervalFormat::JsonLines));
        assert!(
            ["b.json", "csv", "b", ".csv", "b.csv.gz"]
                .iter()
                .all(|name| IntervalFormat::of(Path::new(name)).is_none())
        );
    }
}
