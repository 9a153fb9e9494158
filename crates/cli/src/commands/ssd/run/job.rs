//! `ssd run --job`: the jobs of a fio job file on the model drive.

use std::path::PathBuf;

use bench::bar::{Bar, Unit};
use bench::jobs::plan::{Plan, Target};
use bench::jobs::{self, curve, plot, report};
use bench::picture::Format;
use clap::Args;
use serde_json::json;
use ssd::{Card, Drive, Shape};

use super::Arguments;
use crate::files::Files;
use crate::output::{Finding, write_file, write_parquet, write_plot};
use crate::quantity;

/// Help heading of the job flags.
const JOBS: &str = "fio jobs";

/// Flags that come with a job file.
#[derive(Debug, Args)]
pub(super) struct JobFlags {
    /// fio job file to run in virtual time, instead of a pattern
    #[arg(long, help_heading = JOBS, value_name = "FILE", conflicts_with_all = ["pattern", "random_space", "random_writes", "zipf_exponent", "warm_up", "measure", "timed"])]
    pub(super) job: Option<PathBuf>,
    /// job: fill the drive and then write N times its capacity at random before the jobs begin [default: an empty drive]
    #[arg(long, help_heading = JOBS, value_name = "N", requires = "job", value_parser = quantity::amount)]
    precondition: Option<f64>,
    /// job: host writes per interval of the curve, as a share of the drive
    #[arg(long, alias = "intervals", help_heading = JOBS, value_name = "SHARE", requires = "job", value_parser = quantity::share, default_value = "2%")]
    interval: f64,
    /// job: write the curve (write amplification, rates, latencies over host writes) to FILE as CSV
    #[arg(long, help_heading = JOBS, value_name = "FILE", requires = "job")]
    csv: Option<PathBuf>,
    /// job: write the curve to FILE as Parquet
    #[arg(long, help_heading = JOBS, value_name = "FILE", requires = "job")]
    parquet: Option<PathBuf>,
    /// job: plot write amplification over host writes to FILE (.svg or .png)
    #[arg(long, help_heading = JOBS, value_name = "FILE", requires = "job")]
    plot: Option<PathBuf>,
}

impl JobFlags {
    /// Checks the files before a long run.
    fn check(&self, arguments: &Arguments) -> Result<(), String> {
        if self.interval <= 0.0 {
            return Err("--interval: must be above 0%".into());
        }
        if let Some(file) = &self.plot {
            Format::of(file).map_err(|error| format!("--plot: {error}"))?;
        }
        let outputs = [
            arguments.common.result_file(),
            self.csv.as_deref(),
            self.parquet.as_deref(),
            self.plot.as_deref(),
        ];
        Files::reading(self.job.as_slice()).writing(outputs).check()
    }
}

/// Runs the job file on the drive of `card` and `shape`.
pub(super) fn execute(arguments: &Arguments, card: &Card, shape: &Shape) -> Result<Finding, String> {
    let flags = &arguments.job;
    let Some(path) = &flags.job else { return Err("--job: no file".into()) };
    flags.check(arguments)?;
    let file = jobs::load(path)?;
    let layout = shape.clone().layout().map_err(|error| super::by_its_flag(&error))?;
    let capacity_bytes = layout.capacity_bytes();
    let target = Target { capacity_bytes, handles: layout.handles().len() as u16, scale: arguments.scale };
    let plan = Plan::new(&file, target, arguments.common.seed())
        .map_err(|error| format!("{}, {error}", path.display()))?;
    for warning in file.warnings.iter().chain(&plan.warnings) {
        arguments.common.warn(format_args!("{}, {warning}", path.display()));
    }
    let stop = arguments.common.stop()?;
    let upkeep = arguments.upkeep(card);
    let mut drive = Drive::new(card, shape, upkeep).map_err(|error| error.to_string())?;
    let bar = Bar::new(Unit::Custom, arguments.common.quiet);
    let is_ready = flags.precondition.is_none_or(|capacities| {
        ssd::run::precondition(&mut drive, capacities, arguments.common.seed(), |done, total| {
            bar.set(done, total, "preconditioning");
            !stop.is_set()
        })
    });
    if !is_ready {
        return Err("interrupted: the jobs have not begun".into());
    }
    let interval_bytes = (flags.interval * capacity_bytes as f64) as u64;
    let outcome =
        jobs::run::run(plan, &mut drive, (interval_bytes, arguments.common.seed()), &stop, |host_bytes| {
            bar.set(
                0,
                0,
                format!("{:.2} drive capacities written", host_bytes as f64 / capacity_bytes as f64),
            );
        });
    bar.finish();
    if let Some(csv) = &flags.csv {
        write_file(csv, curve::csv(&outcome.intervals).as_bytes())?;
    }
    if let Some(picture) = &flags.plot {
        let title = format!("{} on {}", path.display(), card.name);
        let svg = plot::svg(&title, &outcome.intervals, capacity_bytes).map_err(|error| error.to_string())?;
        write_plot(picture, svg)?;
    }
    let state = drive.ftl().check().err();
    let mut result = report::json(&outcome, shape.page_bytes);
    result["op_ratio"] = json!(shape.op_ratio());
    result["gc"] = json!(upkeep.victims.to_string());
    super::result::add_interval(&mut result, "dlwa_last_tenth", card);
    write_parquet(flags.parquet.as_ref(), &result, "intervals")?;
    let text = report::text(&result) + &super::result::interval_text(&result);
    let failures = state.into_iter().map(|error| format!("the model's state: {error}")).collect();
    Ok(Finding { result, text, failures })
}

/// Whether any job of the file uses placement, so that the drive should have it.
pub(super) fn uses_placement(arguments: &Arguments) -> Result<bool, String> {
    let Some(path) = &arguments.job.job else { return Ok(false) };
    Ok(jobs::load(path)?.jobs.iter().any(|job| job.has_placement))
}
