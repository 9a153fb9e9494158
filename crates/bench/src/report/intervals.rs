//! The intervals of a run as the result file has them, and as a file of their own that grows while the run lasts.

use std::fs::File;
use std::io::{Error, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};

use super::figures::Reading;
use super::series::Span;
use super::tails::Layer;
use crate::run::target::FlashBytes;
use crate::run::{Observable, Watcher};

/// A number of an interval: its name, and how it is read.
type Column = (&'static str, fn(&Span) -> Option<Reading>);

/// All of them, in order. But for `until_seconds` and `flash_bytes_waiting`, which are of its end, they are what came in the
/// interval, and counts add up to the run.
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
    ("flash_bytes_logical", |span| of_flash(span, |flash| flash.logical)),
    ("flash_bytes_waiting", |span| of_flash(span, |flash| flash.waiting)),
    ("flash_bytes_host", |span| of_flash(span, |flash| flash.host)),
    ("flash_bytes_media", |span| of_flash(span, |flash| flash.media)),
    ("get_p50_ns", |span| latency(span, Layer::Get, 0.5)),
    ("get_p99_ns", |span| latency(span, Layer::Get, 0.99)),
    ("set_p50_ns", |span| latency(span, Layer::Set, 0.5)),
    ("set_p99_ns", |span| latency(span, Layer::Set, 0.99)),
    ("device_read_p50_ns", |span| latency(span, Layer::DeviceRead, 0.5)),
    ("device_read_p99_ns", |span| latency(span, Layer::DeviceRead, 0.99)),
    ("device_write_p50_ns", |span| latency(span, Layer::DeviceWrite, 0.5)),
    ("device_write_p99_ns", |span| latency(span, Layer::DeviceWrite, 0.99)),
    ("flash_bytes_settled", |span| of_flash(span, |flash| Some(flash.settled?.items))),
    ("flash_bytes_settled_host", |span| of_flash(span, |flash| Some(flash.settled?.host))),
];

fn whole(count: u64) -> Option<Reading> {
    Some(Reading::Whole(count))
}

/// Unknown where nothing came.
fn latency(span: &Span, layer: Layer, share: f64) -> Option<Reading> {
    span.tails.quantile_ns(layer, share).map(Reading::Whole)
}

/// 0 where there is no flash, unknown where flash does not tell: as in the figures.
fn of_flash(span: &Span, read: fn(&FlashBytes) -> Option<u64>) -> Option<Reading> {
    span.flash.as_ref().map_or(Some(0), read).map(Reading::Whole)
}

/// Clocks tell nanoseconds: what a subtraction leaves behind them is noise.
fn to_the_nanosecond(seconds: f64) -> f64 {
    (seconds * 1e9).round() / 1e9
}

fn cell(column: &Column, span: &Span) -> Value {
    (column.1)(span).map_or(Value::Null, Reading::to_json)
}

/// An interval of the result file.
#[must_use]
pub fn to_json(span: &Span) -> Value {
    let cells = COLUMNS.iter().map(|column| (column.0.to_owned(), cell(column, span)));
    Value::Object(cells.collect::<Map<_, _>>())
}

/// How a file of intervals is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Comma-separated values with a header; what is unknown is empty.
    Csv,
    /// A JSON object a line.
    JsonLines,
}

impl Form {
    /// The form that the name of `file` asks for; `None` if it asks for another one.
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
        let words = |cell: Value| if cell.is_null() { String::new() } else { cell.to_string() };
        match self {
            Self::Csv => COLUMNS.iter().map(|column| words(cell(column, span))).collect::<Vec<_>>().join(","),
            Self::JsonLines => to_json(span).to_string(),
        }
    }
}

/// Writes each interval into a file as it ends, for somebody who watches too.
pub struct IntervalFile<'a> {
    watcher: &'a mut dyn Watcher,
    file: File,
    path: PathBuf,
    form: Form,
    failed: Option<Error>,
}

impl<'a> IntervalFile<'a> {
    /// Begins the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn create(path: &Path, form: Form, watcher: &'a mut dyn Watcher) -> std::io::Result<Self> {
        let written = File::create(path).and_then(|mut file| {
            file.write_all(form.header().as_bytes())?;
            Ok(file)
        });
        let file = written.map_err(|error| named(path, &error))?;
        Ok(Self { watcher, file, path: path.to_owned(), form, failed: None })
    }

    /// Whether every interval was written.
    ///
    /// # Errors
    /// One was not, and none after it.
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

    /// A full disk must not end the run. A line is written whole or not at all.
    fn interval(&mut self, span: &Span) {
        let line = self.form.line(span) + "\n";
        if let Err(error) = write_whole(&mut self.file, line.as_bytes()) {
            self.watcher.warn(&format!("{}: the file has no more intervals", named(&self.path, &error)));
            self.failed = Some(error);
        }
    }

    fn warn(&mut self, words: &str) {
        self.watcher.warn(words);
    }
}

/// Writes all of `bytes` at the end of `file`, or leaves it as it was.
///
/// # Errors
/// What kept it from being written.
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
    use crate::run::target::Settled;

    fn span() -> Span {
        let flash = FlashBytes {
            logical: Some(900),
            waiting: Some(5),
            host: Some(4096),
            settled: Some(Settled { items: 800, host: 1000 }),
            media: None,
            is_listed: false,
        };
        let counts = Counts { ops: 7, gets: 5, get_misses: 2, ..Counts::default() };
        let tails = Tails::default();
        Span { until_seconds: 0.4, seconds: 0.4 - 0.2, counts, flash: Some(flash), tails }
    }

    #[test]
    fn both_forms_say_the_same_and_what_is_unknown_is_not_zero() {
        let line = Form::Csv.line(&span());
        assert_eq!(line, "0.4,0.2,7,5,2,0,0,0,0,0,0,900,5,4096,,,,,,,,,,800,1000");
        let object: Value = serde_json::from_str(&Form::JsonLines.line(&span())).unwrap();
        for (name, cell) in Form::Csv.header().trim_end().split(',').zip(line.split(',')) {
            let expected = if cell.is_empty() { Value::Null } else { serde_json::from_str(cell).unwrap() };
            assert_eq!(object[name], expected, "{name}");
        }
        let without = Span { flash: None, ..span() };
        assert!(
            Form::Csv.line(&without).ends_with(",0,0,0,0,,,,,,,,,0,0"),
            "without flash nothing was written to it"
        );
    }

    #[test]
    fn the_name_says_the_form() {
        assert_eq!(Form::of(Path::new("a/b.CSV")), Some(Form::Csv));
        assert_eq!(Form::of(Path::new("b.jsonl")), Some(Form::JsonLines));
        assert!(
            ["b.json", "csv", "b", ".csv", "b.csv.gz"].iter().all(|name| Form::of(Path::new(name)).is_none())
        );
    }
}
