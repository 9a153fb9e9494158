//! Reports of a run: a table of figures, and its output formats.

pub mod amount;
mod arrivals;
pub mod compare;
pub mod differences;
pub mod drive;
mod events;
pub mod figures;
pub mod finished;
pub mod html;
pub mod interval;
pub mod intervals;
pub mod json;
pub mod live;
mod losses;
pub mod noise;
pub mod numbers;
pub mod page;
pub mod plot;
pub mod rows;
pub mod series;
mod steadiness;
pub mod sweep;
pub mod tails;
pub mod tenants;
pub mod text;
mod totals;
mod trace;

pub use drive::DriveReport;
pub use steadiness::Steadiness;
pub use totals::totals;

use crate::run::InstanceReport;
use crate::run::destructors::DestructorCheck;
use crate::run::stressors::StressorReport;

/// The data of a report.
#[derive(Debug, Clone)]
pub struct RunReport {
    /// The instances, in the config's order.
    pub instances: Vec<InstanceReport>,
    /// Figures over time, summed over all instances.
    pub series: series::Series,
    /// Warnings given before the run.
    pub warnings: Vec<String>,
    /// Errors after the run: caches that could not be closed.
    pub errors: Vec<String>,
    /// Further output files that could not be written: name and reason.
    pub unwritten: Vec<String>,
    /// The seed of the run.
    pub seed: u64,
    /// The model drive of a simulated run.
    pub drive: Option<DriveReport>,
    /// The config as it ran, after all overrides.
    pub config: serde_json::Value,
    /// The machine and software of the run.
    pub environment: serde_json::Value,
}

impl RunReport {
    /// The sum of all instances. If they are namespaces of one model drive, media writes are known for their sum, though not for each
    /// instance.
    #[must_use]
    pub fn totals(&self) -> InstanceReport {
        let mut all = totals(&self.instances);
        if let Some(drive) = &self.drive {
            drive.apply_to(&mut all);
        }
        all
    }

    /// The failed checks, in CacheBench's wording; empty if all passed.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let mut failures = self.errors.clone();
        let several = self.instances.len() > 1;
        for (number, report) in self.instances.iter().enumerate() {
            let named = |text| if several { format!("Instance {number}: {text}") } else { text };
            failures.extend(failures_of(report).into_iter().map(named));
        }
        failures
    }

    /// Warnings about the figures: no check failed, but the run may not have measured what was intended.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let several = self.instances.len() > 1;
        let named = |(number, remark)| if several { format!("Instance {number}: {remark}") } else { remark };
        let of = |(number, report)| {
            let remarks = [
                warmup_remark(report),
                loss_remark(report),
                trace::rejected_rows_remark(report),
                trace::missing_requests_remark(report),
                arrivals::remark(report),
                steadiness::unfilled_remark(report),
                events::remark(report),
            ];
            let notes = report.trace.iter().flat_map(|trace| trace.notes.clone());
            let all = remarks.into_iter().flatten().chain(notes).chain(losses::remarks(report));
            all.map(move |remark| (number, remark))
        };
        let steadiness = Steadiness::of(self).remark();
        self.instances.iter().enumerate().flat_map(of).map(named).chain(steadiness).collect()
    }

    /// Why the file of events is incomplete, if it is.
    #[must_use]
    pub fn lost_events(&self) -> Option<String> {
        self.instances.iter().find_map(|report| events::unwritten(report.events.as_ref()?))
    }

    /// Whether every check passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.failures().is_empty()
    }
}

/// The warning for a run that ended before its warm-up did.
fn warmup_remark(report: &InstanceReport) -> Option<String> {
    let unended = report.warmup.is_some_and(|warmup| !warmup.ended);
    unended.then(|| "The run ended during warm-up: its figures cover the whole run".to_owned())
}

/// The warning for a persistent cache that could not be recovered.
fn loss_remark(report: &InstanceReport) -> Option<String> {
    let why = report.snapshot.stats.flash.as_ref()?.loss?;
    Some(format!("The cache of the earlier run was not recovered; this run started with an empty one: {why}"))
}

/// The failed checks of one instance.
fn failures_of(report: &InstanceReport) -> Vec<String> {
    let mut failures = Vec::new();
    if report.counts.inconsistencies > 0 {
        failures.push(format!("Found {} inconsistent cases", report.counts.inconsistencies));
    }
    failures.extend(report.stressor.as_ref().and_then(StressorReport::failure));
    let destructors = report.destructors.as_ref().and_then(|destructors| destructors.check.as_ref());
    failures.extend(destructors.into_iter().flat_map(DestructorCheck::failures));
    if let Some(failure) = report.trace.as_ref().and_then(|trace| trace.failure.as_ref()) {
        failures.push(format!("The trace could not be read to its end: {failure}"));
    }
    if let Some(trace) = report.trace.as_ref().filter(|trace| trace.failure.is_none())
        && report.counts.ops == 0
    {
        let (rows, wrong) = (trace.rows, trace.rejected_rows);
        failures.push(if rows > 0 {
            let key = if trace.filtered_rows > 0 {
                "replayOps excluded them"
            } else {
                "fastForwardCount skipped them"
            };
            format!(
                "None of the {rows} requests read from the trace was executed: {key}, or the run ended first"
            )
        } else {
            let first = trace.messages.first().map(|first| format!("; first error: {first}"));
            format!(
                "The trace had no valid request; {wrong} of its rows are invalid{}",
                first.unwrap_or_default()
            )
        });
    }
    failures.extend(losses::failure(&report.snapshot));
    let Some(flash) = &report.snapshot.stats.flash else { return failures };
    let count = flash.device.errors;
    if count > 0 {
        let device = report.snapshot.device.as_ref();
        let first =
            device.and_then(|device| Some(format!("; first error: {}", device.first_error.as_ref()?)));
        failures.push(format!("NVM error. io_errors : {count}{}", first.unwrap_or_default()));
    }
    let count = flash.checksum_errors();
    if count > 0 {
        failures.push(format!("NVM error. checksum_errors : {count}"));
    }
    failures
}
