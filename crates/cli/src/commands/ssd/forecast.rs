//! `flashwright ssd forecast`: the write amplification at the end of a test, from the log of its beginning.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use bench::drive::expected::{Expected, Test};
use bench::drive::forecast::{Forecast, Known, forecast};
use bench::drive::log::DriveLog;
use bench::jobs;
use clap::Args;
use serde_json::{Value, json};
use ssd::Card;

use super::read_log;
use crate::files::Files;
use crate::output::{Common, Finding, name_of};
use crate::quantity;

/// The command line of `ssd forecast`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Log of a drive's counters: nvme fdp stats, nvme smart-log with nvme ocp smart-add-log (text or JSON, appended), or CSV
    log: PathBuf,
    /// Series of a CSV that has several
    #[arg(long, value_name = "NAME")]
    series: Option<String>,
    /// Card of the drive, which gives capacity and over-provisioning
    #[arg(long, value_name = "CARD")]
    card: Option<String>,
    /// Capacity of the drive, instead of the card's
    #[arg(long, value_name = "SIZE", value_parser = device::size::parse_size, required_unless_present = "card")]
    capacity: Option<u64>,
    /// Over-provisioning, (P - S) / S [default: the card's, otherwise from the log]
    #[arg(long, value_name = "SHARE", value_parser = quantity::share)]
    op: Option<f64>,
    /// Share of the space that is rewritten at random beside a ring
    #[arg(long, value_name = "SHARE", value_parser = quantity::part, requires = "random_writes")]
    random_space: Option<f64>,
    /// Share of the writes that go to the random space
    #[arg(long, value_name = "SHARE", value_parser = quantity::part, requires = "random_space")]
    random_writes: Option<f64>,
    /// fio job file of the test: runs it on the model of --card, which narrows the bounds
    #[arg(long, value_name = "FILE", requires = "card", conflicts_with_all = ["capacity", "op"])]
    job: Option<PathBuf>,
    /// job: host writes of the whole test, in capacities of the drive
    #[arg(long, value_name = "X", requires = "job", value_parser = quantity::positive, default_value = "20")]
    capacities: f64,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> ExitCode {
    let config = json!({
        "log": name_of(&arguments.log),
        "series": arguments.series,
        "card": arguments.card,
        "capacity_bytes": arguments.capacity,
        "op_ratio": arguments.op,
        "random_space": arguments.random_space,
        "random_writes": arguments.random_writes,
        "job": arguments.job.as_deref().map(name_of),
        "capacities": arguments.job.is_some().then_some(arguments.capacities),
    });
    arguments.common.conclude("ssd forecast", &config, found(arguments))
}

fn found(arguments: &Arguments) -> Result<Finding, String> {
    let inputs: Vec<PathBuf> = std::iter::once(&arguments.log).chain(&arguments.job).cloned().collect();
    Files::reading(&inputs).writing([arguments.common.result_file()]).check()?;
    let card =
        arguments.card.as_deref().map(Card::load).transpose().map_err(|error| format!("--card: {error}"))?;
    let of_card = card.as_ref().map(|card| card.space.usable_bytes);
    let capacity_bytes = arguments.capacity.or(of_card).unwrap_or(0);
    if capacity_bytes == 0 {
        return Err("--capacity: must be above 0".into());
    }
    let op_ratio = arguments.op.or(card.as_ref().map(|card| card.shape(false).op_ratio()));
    if op_ratio.is_some_and(|op_ratio| op_ratio <= 0.0) {
        return Err("--op: must be above 0%".into());
    }
    let wrap_capacities = wrap(arguments)?;
    let log = read_log(&arguments.log, arguments.series.as_deref(), &arguments.common)?;
    let forecast = forecast(&log, Known { capacity_bytes, op_ratio, wrap_capacities });
    let expected = card.map(|card| expected(arguments, &card, &log)).transpose()?.flatten();
    let text = text_of(&forecast) + &expected.map_or_else(String::new, text_of_expected);
    Ok(Finding::new(result(&forecast, expected), text))
}

/// The end of the test by the model; `None` without a job file.
fn expected(arguments: &Arguments, card: &Card, log: &DriveLog) -> Result<Option<Expected>, String> {
    let Some(path) = &arguments.job else { return Ok(None) };
    let file = jobs::load(path)?;
    let stop = arguments.common.stop()?;
    let test = Test { card, file: &file, capacities: arguments.capacities, seed: arguments.common.seed() };
    let expected = test.expected(log, &stop).map_err(|error| format!("{}: {error}", path.display()))?;
    expected.map(Some).ok_or_else(|| "interrupted: the model run has not ended".into())
}

fn text_of_expected(Expected { value, interval: (low, high), difference }: Expected) -> String {
    format!(
        "by the model               {value:.2} ({low:.2} to {high:.2}); it differs from the log so far by {:.0} %\n",
        difference * 100.0
    )
}

/// Capacities until the ring has gone round the drive once.
fn wrap(arguments: &Arguments) -> Result<Option<f64>, String> {
    let (Some(space), Some(writes)) = (arguments.random_space, arguments.random_writes) else {
        return Ok(None);
    };
    if writes >= 1.0 {
        return Err("--random-writes: must be below 100%: the rest goes to the ring".into());
    }
    Ok(Some((1.0 - space) / (1.0 - writes)))
}

fn result(forecast: &Forecast, expected: Option<Expected>) -> Value {
    json!({
        "is_steady": forecast.is_steady,
        "dlwa": { "value": forecast.value, "low": forecast.interval.0, "high": forecast.interval.1 },
        "dlwa_present": forecast.present,
        "written_capacities": forecast.written_capacities,
        "onset_capacities": forecast.onset_capacities,
        "op_ratio": forecast.op_ratio.0,
        "op_ratio_source": forecast.op_ratio.1,
        "needed_bytes": forecast.needed_bytes,
        "reason": forecast.reason,
        "model": expected.map(|it| json!({
            "dlwa": { "value": it.value, "low": it.interval.0, "high": it.interval.1 },
            "difference": it.difference,
        })),
    })
}

fn text_of(forecast: &Forecast) -> String {
    let (low, high) = forecast.interval;
    let value = forecast.value.map_or_else(|| "not known yet".to_owned(), |value| format!("{value:.2}"));
    let mut text = format!(
        "final write amplification  {value} ({low:.2} to {high:.2})\npresent                    {:.2} after {:.1} drive capacities\n",
        forecast.present, forecast.written_capacities
    );
    let (op_ratio, source) = forecast.op_ratio;
    let _ = writeln!(text, "over-provisioning          {:.1} % ({source})", op_ratio * 100.0);
    if forecast.needed_bytes > 0 {
        let _ = writeln!(text, "host writes still needed   {:.1} GB", forecast.needed_bytes as f64 / 1e9);
    }
    let _ = writeln!(text, "{}", forecast.reason);
    text
}
