//! Flags for reading a trace, shared by all commands that read one.

use std::path::PathBuf;

use bench::trace::{
    Events, FORMATS, Format, Input, OnBadRow, OpenOptions, PageSize, TenantsFrom, TraceError, ZeroSize,
};
use clap::Args;
use device::names;
use serde_json::{Value, json};

use crate::choice::{Choice, name_of, one_of};
use crate::output::names_of;
use crate::quantity;

/// Heading of the flags.
const READING: &str = "Reading the trace";

/// Options for reading a trace.
#[derive(Debug, Args)]
#[command(next_help_heading = READING)]
pub struct TraceFlags {
    /// Trace format; auto detects it from the first file's name and contents; for other tables list the columns, as in csv:time,key,-,size
    #[arg(long, value_name = "FORMAT", default_value = "auto", value_parser = format_name)]
    pub format: String,
    /// Size of the pages that byte ranges are split into (whole: do not split), and of objects where the format has no sizes
    #[arg(long, value_name = "BYTES|whole", value_parser = page_size)]
    pub page_size: Option<PageSize>,
    /// What to do with malformed rows, 0-byte objects and timestamps that go back
    #[arg(long, value_name = "ACTION", default_value = "skip", value_parser = one_of(&BAD_ROWS))]
    pub on_bad_row: OnBadRow,
    /// Bad rows to skip before giving up
    #[arg(long, value_name = "N", default_value_t = OpenOptions::default().bad_rows_limit, value_parser = quantity::number::<u64>)]
    pub bad_rows: u64,
    /// What to do with 0-byte objects: skip, keep, or give them this size [default: skip; keep when writing a binary trace]
    #[arg(long, value_name = "skip|keep|BYTES", value_parser = zero_size)]
    pub zero_size: Option<ZeroSize>,
    /// Clock ticks per second, where the format does not define them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub time_units: Option<u64>,
    /// blktrace, blkparse: events that count as requests [default: queue; issue or complete if the recording lacks queue events]
    #[arg(long, value_name = "queue|issue|complete", value_parser = events)]
    pub events: Option<Events>,
    /// Stop after this many accesses
    #[arg(long, value_name = "N", value_parser = quantity::count::<u64>)]
    pub limit: Option<u64>,
}

/// The tenant columns, for commands that distinguish tenants.
#[derive(Debug, Args)]
pub struct TenantColumns {
    /// Header columns that name the tenant, joined by /, instead of the format's own
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',', help_heading = READING)]
    pub tenant_columns: Vec<String>,
}

impl TenantColumns {
    /// The named columns, or the format's own.
    pub fn selection(&self) -> TenantsFrom {
        match self.tenant_columns.as_slice() {
            [] => TenantsFrom::Usual,
            columns => TenantsFrom::Columns(columns.iter().map(|name| name.trim().to_owned()).collect()),
        }
    }
}

/// Handling of malformed rows.
const BAD_ROWS: [Choice<OnBadRow>; 2] = [
    ("skip", Some("Skip and count them"), OnBadRow::Skip),
    ("stop", Some("Stop with an error"), OnBadRow::Stop),
];

impl TraceFlags {
    /// The trace in `paths`.
    pub fn input(&self, paths: Vec<PathBuf>) -> Input {
        let options = OpenOptions {
            page: self.page_size,
            time_units_per_second: self.time_units,
            on_bad_row: self.on_bad_row,
            bad_rows_limit: self.bad_rows,
            zero_size: self.zero_size.unwrap_or(ZeroSize::Skip),
            limit: self.limit,
            tenants: TenantsFrom::Nothing,
            events: self.events,
        };
        Input { paths, format: self.format.clone(), options }
    }

    /// The first flag given that changes how a trace is read.
    pub fn reads_differently(&self) -> Option<&'static str> {
        let given = [
            (self.format != "auto", "--format"),
            (self.page_size.is_some(), "--page-size"),
            (self.zero_size.is_some(), "--zero-size"),
            (self.time_units.is_some(), "--time-units"),
            (self.events.is_some(), "--events"),
        ];
        given.into_iter().find(|(is_given, _)| *is_given).map(|(_, flag)| flag)
    }

    /// The options, for the result.
    pub fn config(&self, paths: &[PathBuf]) -> Value {
        json!({
            "trace": names_of(paths),
            "format": self.format,
            "page_size": self.page_size.map(|page| match page {
                PageSize::Bytes(bytes) => json!(bytes),
                PageSize::Whole => json!("whole"),
            }),
            "on_bad_row": name_of(&BAD_ROWS, &self.on_bad_row),
            "bad_rows": self.bad_rows,
            "zero_size": match self.zero_size.unwrap_or(ZeroSize::Skip) {
                ZeroSize::Skip => json!("skip"),
                ZeroSize::Keep => json!("keep"),
                ZeroSize::As(bytes) => json!(bytes),
            },
            "time_units": self.time_units,
            "events": self.events.map(Events::name),
            "limit": self.limit,
        })
    }
}

fn format_name(text: &str) -> Result<String, String> {
    if text == "auto" {
        return Ok(text.to_owned());
    }
    match Format::with_columns(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(TraceError::UnknownFormat { name, known }) => {
            let hint = names::hint(&name, FORMATS.iter().map(|format| format.name));
            Err(format!("unknown format `{name}`: {hint}the formats are auto, {known}"))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Events of the block layer, by their name.
pub fn events(text: &str) -> Result<Events, String> {
    Events::named(text).ok_or_else(|| {
        let known = Events::ALL.map(Events::name);
        format!(
            "unknown events `{text}`: {}they are {}",
            names::hint(text, known.into_iter()),
            known.join(", ")
        )
    })
}

fn page_size(text: &str) -> Result<PageSize, String> {
    match text {
        "whole" => Ok(PageSize::Whole),
        _ => size(text).map(PageSize::Bytes),
    }
}

fn zero_size(text: &str) -> Result<ZeroSize, String> {
    match text {
        "skip" => Ok(ZeroSize::Skip),
        "keep" => Ok(ZeroSize::Keep),
        _ => size(text).map(ZeroSize::As),
    }
}

fn size(text: &str) -> Result<u64, String> {
    match quantity::bytes(text)? {
        0 => Err("an object has at least one byte".to_owned()),
        bytes => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sizes_are_checked_on_the_command_line() {
        assert!(format_name("auto").is_ok() && format_name("arc").is_ok());
        assert!(format_name("acr").unwrap_err().contains("the formats are auto, plain, "));
        assert_eq!((page_size("whole"), page_size("4096")), (Ok(PageSize::Whole), Ok(PageSize::Bytes(4096))));
        assert_eq!((zero_size("keep"), zero_size("4KiB")), (Ok(ZeroSize::Keep), Ok(ZeroSize::As(4096))));
        for wrong in ["0", "-1", "4q", ""] {
            assert!(page_size(wrong).is_err() && zero_size(wrong).is_err(), "{wrong}");
        }
    }
}
