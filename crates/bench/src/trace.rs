//! Commands for trace files: information, conversion and generation.
//!
//! Formats, counting and writing are in [`workload::trace`], generators in [`workload::generate`]. This module adds progress
//! bars and JSON.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
pub use workload::generate::cdn::{Ageing, Cdn, CdnConfig};
pub use workload::generate::zipf::{ZipfAccesses, ZipfConfig};
pub use workload::trace::block::Events;
pub use workload::trace::survey::TenantSurvey;
pub use workload::trace::{
    Accesses, FORMATS, Format, OnBadRow, OpenOptions, PageSize, ReadReport, Survey, Target, TenantNames,
    TenantsFrom, TraceError, Unreadable, Written, ZeroSize, open,
};
use workload::trace::{CopyError, WriteError, Writer};

use crate::bar::{Bar, Unit};
use crate::run::stop::Stop;
use crate::tenants::{ByTenant, Sums};
use device::names::noun;

/// Error of a command on traces.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The trace cannot be read.
    #[error(transparent)]
    Read(#[from] TraceError),
    /// The new trace cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The command was stopped, and nothing was written.
    #[error("interrupted: nothing was written")]
    Interrupted,
    /// The command was stopped before any access was counted.
    #[error("interrupted: nothing was counted yet")]
    NothingCounted,
}

impl From<CopyError> for Error {
    fn from(error: CopyError) -> Self {
        match error {
            CopyError::Read(error) => Self::Read(error),
            CopyError::Write(error) => Self::Write(error),
        }
    }
}

/// A trace and its reader options.
#[derive(Debug, Clone)]
pub struct Input {
    /// Files, in order.
    pub paths: Vec<PathBuf>,
    /// Name of the format, or `auto`.
    pub format: String,
    /// Other options.
    pub options: OpenOptions,
}

impl Input {
    /// Opens the trace.
    ///
    /// # Errors
    /// As [`open`].
    pub fn open(&self) -> Result<Box<dyn Accesses>, TraceError> {
        open(&self.paths, Some(&self.format), &self.options)
    }

    /// Names of the files, for messages.
    #[must_use]
    pub fn names(&self) -> String {
        let files: Vec<_> = self.paths.iter().map(|path| path.display().to_string()).collect();
        files.join(", ")
    }
}

/// Counts the content of a trace, up to the point at which `stop` was set.
///
/// # Errors
/// The trace cannot be read, or `stop` was set before any access was counted.
pub fn survey(
    trace: &mut dyn Accesses,
    stop: &Stop,
    quiet: bool,
) -> Result<(Survey, TenantNames, ReadReport), Error> {
    let mut survey = Survey::default();
    let report = pass(trace, None, quiet, |accesses, report| {
        survey.leave_untimed(report.untimed);
        survey.add(accesses);
        Ok(!stop.is_set())
    })?;
    if stop.is_set() && survey.requests() == 0 {
        return Err(Error::NothingCounted);
    }
    Ok((survey, trace.tenants(), report))
}

/// Writes accesses to a new file, which appears under its name when it is complete. `total` is their number, if known.
///
/// # Errors
/// The accesses cannot be read, the file cannot be written, or `stop` was set. There is no new file then.
pub fn write(
    from: &mut dyn Accesses,
    total: Option<u64>,
    to: &Path,
    target: Target,
    stop: &Stop,
    quiet: bool,
) -> Result<(Written, ReadReport), Error> {
    let mut writer = Writer::create(to, target)?.with_tenants(from.tenants());
    let report = pass(from, total, quiet, |accesses, _| match stop.is_set() {
        true => Err(Error::Interrupted),
        false => writer.write(accesses).map(|()| true).map_err(Error::from),
    })?;
    // An interrupt may also have ended the program that feeds a pipe, so the input may be incomplete.
    if stop.is_set() {
        return Err(Error::Interrupted);
    }
    Ok((writer.finish()?, report))
}

/// Copies a trace in its binary form; see [`write()`].
///
/// # Errors
/// As [`write()`].
pub fn copy(input: &Input, to: &Path, stop: &Stop, quiet: bool) -> Result<(Written, ReadReport), Error> {
    let mut from = workload::trace::copy(&input.paths, Some(&input.format), &input.options)?;
    let mut writer = Writer::create(to, Target::Binary)?.with_tenants(from.tenants());
    let bar = Bar::new(Unit::Custom, quiet);
    while from.step(&mut writer)? {
        if stop.is_set() {
            break;
        }
        let done = from.report().accesses;
        bar.set(done, done, format!("{:.1} M accesses  ", done as f64 / 1e6));
    }
    bar.finish();
    if stop.is_set() {
        return Err(Error::Interrupted);
    }
    Ok((writer.finish()?, from.report().clone()))
}

/// Batches between two updates of the bar.
const BAR_BATCHES: u64 = 64;

/// Reads all accesses with a progress bar, until `each` returns false.
fn pass(
    from: &mut dyn Accesses,
    total: Option<u64>,
    quiet: bool,
    mut each: impl FnMut(&[workload::trace::Access], &ReadReport) -> Result<bool, Error>,
) -> Result<ReadReport, Error> {
    let bar = Bar::new(if total.is_some() { Unit::Steps } else { Unit::Custom }, quiet);
    let mut batch = Vec::new();
    let mut batches = 0u64;
    while from.next_batch(&mut batch)? {
        if !each(&batch, from.report())? {
            break;
        }
        batches += 1;
        if batches.is_multiple_of(BAR_BATCHES) {
            let done = from.report().accesses;
            bar.set(done, total.unwrap_or(done), format!("{:.1} M accesses  ", done as f64 / 1e6));
        }
    }
    bar.finish();
    Ok(from.report().clone())
}

/// A survey for the result file.
#[must_use]
pub fn survey_json(survey: &Survey) -> Value {
    let range = survey.size_range_bytes.unzip();
    json!({
        "requests": survey.requests(),
        "gets": survey.gets,
        "sets": survey.sets,
        "deletes": survey.deletes,
        "objects": survey.objects(),
        "footprint_bytes": survey.footprint_bytes,
        "requested_bytes": survey.requested_bytes,
        "mean_size_bytes": survey.mean_size_bytes(),
        "smallest_bytes": range.0,
        "largest_bytes": range.1,
        "one_hit_wonder_ratio": survey.one_hit_wonder_ratio(),
        "compulsory_miss_ratio": survey.compulsory_miss_ratio(),
        "span_seconds": survey.span_ns() as f64 / 1e9,
        "size_changes": survey.size_changes,
        "zipf_exponent": survey.zipf_exponent(),
    })
}

/// Maximum number of tenants by name in the result file.
pub const TENANTS_IN_FILE: usize = 1000;

/// Tenants of a survey; `None` if the trace has none.
#[must_use]
pub fn tenants(survey: &Survey, names: &TenantNames) -> Option<ByTenant<TenantSurvey>> {
    ByTenant::of(survey.tenants(), &names.all())
}

/// Tenants for the result file, those with the most requests first; null without tenants.
#[must_use]
pub fn tenants_json(tenants: Option<&ByTenant<TenantSurvey>>) -> Value {
    let Some(tenants) = tenants else { return Value::Null };
    let row = |it: &TenantSurvey| {
        json!({
            "requests": it.requests(),
            "gets": it.gets,
            "sets": it.sets,
            "deletes": it.deletes,
            "requested_bytes": it.requested_bytes,
            "objects": it.objects,
            "footprint_bytes": it.footprint_bytes,
        })
    };
    tenants.json(TENANTS_IN_FILE, row)
}

impl Sums for TenantSurvey {
    fn requests(&self) -> u64 {
        self.requests()
    }

    fn add(&mut self, other: &Self) {
        self.add(other);
    }
}

/// Report of the trace reader for the result file.
#[must_use]
pub fn report_json(report: &ReadReport) -> Value {
    json!({
        "format": report.format,
        "columns": report.columns,
        "rows": report.rows,
        "accesses": report.accesses,
        "bad_rows": report.bad_rows,
        "zero_sizes": report.zero_sizes,
        "backward_times": report.backward_times,
        "has_time": report.has_time,
        "messages": report.messages,
        "notes": report.notes,
        "unreadable": unreadable_json(&report.unreadable),
    })
}

/// Unreadable values of optional columns for the result file.
#[must_use]
pub fn unreadable_json(unreadable: &[Unreadable]) -> Value {
    let each = |it: &Unreadable| json!({ "column": it.column, "rows_left_out": it.is_row_left_out, "values": it.values, "first": it.first });
    unreadable.iter().map(each).collect()
}

/// Information that a new trace lacks, a line for each kind.
#[must_use]
pub fn losses(written: &Written) -> Vec<String> {
    let all = [
        (written.deletes_left_out, "delete", "were left out: the format has none"),
        (written.sets_as_gets, "set", "became gets: the format has no operations"),
        (written.ttls_left_out, "access", "lost their time to live"),
        (written.tenants_left_out, "access", "lost their tenant"),
        (written.times_cut, "timestamp", "were cut to whole seconds"),
        (
            written.seconds_taken_off,
            "second",
            "were subtracted from every timestamp: the trace's clock does not fit into 32 bits",
        ),
    ];
    let happened = all.into_iter().filter(|(count, ..)| *count > 0);
    happened.map(|(count, word, what)| count_text(count, word, what)).collect()
}

/// Formats a count with a noun and a phrase, which is given in the plural.
#[must_use]
pub fn count_text(count: u64, word: &str, what: &str) -> String {
    let several = format!("{count} {} {what}", noun(count, word));
    if count == 1 { several.replace("were ", "was ").replace("their ", "its ") } else { several }
}

/// Counters of a written trace for the result file.
#[must_use]
pub fn written_json(written: &Written) -> Value {
    json!({
        "accesses": written.accesses,
        "deletes_left_out": written.deletes_left_out,
        "sets_as_gets": written.sets_as_gets,
        "ttls_left_out": written.ttls_left_out,
        "tenants_left_out": written.tenants_left_out,
        "times_cut": written.times_cut,
        "seconds_taken_off": written.seconds_taken_off,
    })
}
