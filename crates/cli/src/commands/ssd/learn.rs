//! `flashwright ssd learn`: fits a drive card to logs of a drive's write counters.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bench::drive::learn::{Fit, Observed, Settings, learn};
use bench::jobs::mixed::Mixed;
use bench::jobs::{self, JobFile};
use bench::study::Progress;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use ssd::{Card, VictimPolicy};

use super::read_log;
use crate::files::Files;
use crate::output::{Common, Finding, name_of, names_of, write_file};
use crate::quantity;

/// The command line of `ssd learn`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Logs of one drive's counters, each from an empty drive on: nvme fdp stats, nvme smart-log with nvme ocp smart-add-log (text or
    /// JSON, appended), or CSV
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// Card to start from, a name from `ssd cards` or a TOML file: all but the learned figures are taken from it
    #[arg(long, value_name = "CARD")]
    from: String,
    /// fio job file that ran during the log: one for all logs, or one per log in their order
    #[arg(long, value_name = "FILE", required_unless_present = "pattern", conflicts_with = "pattern")]
    job: Vec<PathBuf>,
    /// Write pattern of all logs, instead of a job file
    #[arg(long, value_enum)]
    pattern: Option<PatternName>,
    /// mixed: share of the space that is written at random
    #[arg(long, value_name = "SHARE", value_parser = quantity::part, required_if_eq("pattern", "mixed"))]
    random_space: Option<f64>,
    /// mixed: share of the writes that go to the random space; the others cycle through the rest
    #[arg(long, value_name = "SHARE", value_parser = quantity::part, required_if_eq("pattern", "mixed"))]
    random_writes: Option<f64>,
    /// mixed: the drive used data placement, with a handle for each part
    #[arg(long, conflicts_with = "job")]
    placement: bool,
    /// Series of a CSV that has several: one per log in their order, or several of a single log
    #[arg(long, value_name = "NAME")]
    series: Vec<String>,
    /// Capacity of the drive, instead of the card's
    #[arg(long, value_name = "SIZE", value_parser = device::size::parse_size)]
    capacity: Option<u64>,
    /// Write the card to FILE as TOML, for `ssd run FILE` and `--device sim:FILE`
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum PatternName {
    /// Random 4 KiB writes over the whole drive
    Uniform,
    /// One sequential stream after the other
    Sequential,
    /// Random writes to a part of the drive beside a sequential stream through the rest
    Mixed,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> ExitCode {
    let config = json!({
        "logs": names_of(&arguments.logs),
        "series": arguments.series,
        "from": arguments.from,
        "jobs": names_of(&arguments.job),
        "capacity_bytes": arguments.capacity,
    });
    arguments.common.conclude("ssd learn", &config, found(arguments))
}

fn found(arguments: &Arguments) -> Result<Finding, String> {
    let inputs = [&arguments.logs[..], &arguments.job[..]].concat();
    let outputs = [arguments.common.result_file(), arguments.out.as_deref()];
    Files::reading(&inputs).writing(outputs).check()?;
    let base = base(arguments)?;
    let observed = observed(arguments)?;
    let stop = arguments.common.stop()?;
    let settings = Settings { base: &base, policies: VictimPolicy::ALL, seed: arguments.common.seed() };
    let progress = Progress::new(arguments.common.quiet);
    let mut fit = learn(&observed, &settings, &stop, &progress).map_err(|error| error.to_string())?;
    if let Some(name) = arguments.out.as_deref().and_then(Path::file_stem) {
        fit.card.name = name.to_string_lossy().into_owned();
    }
    fit.warnings.iter().for_each(|warning| arguments.common.warn(warning));
    if let Some(file) = &arguments.out {
        write_file(file, fit.card.to_toml().as_bytes())?;
    }
    Ok(Finding::new(result(&fit), text_of(&fit)))
}

fn base(arguments: &Arguments) -> Result<Card, String> {
    let mut card = Card::load(&arguments.from).map_err(|error| format!("--from: {error}"))?;
    if let Some(capacity) = arguments.capacity {
        let page_bytes = u64::from(card.space.page_bytes);
        if capacity < 100 * card.space.unit_bytes {
            let least = 100 * card.space.unit_bytes;
            return Err(format!(
                "--capacity: {capacity} bytes are less than 100 reclaim units of {}, {least} bytes; use another --from card",
                card.name
            ));
        }
        card.space.usable_bytes = capacity / page_bytes * page_bytes;
        card.sources.insert("space.usable_bytes".into(), "given with --capacity".into());
    }
    Ok(card)
}

/// The logs with their jobs.
fn observed(arguments: &Arguments) -> Result<Vec<Observed>, String> {
    let (logs, series) = (&arguments.logs, &arguments.series);
    let count = if logs.len() == 1 { series.len().max(1) } else { logs.len() };
    if !series.is_empty() && series.len() != count {
        return Err(format!("--series: {} names for {} logs; give one per log", series.len(), logs.len()));
    }
    if arguments.job.len() > 1 && arguments.job.len() != count {
        return Err(format!(
            "--job: {} files for {count} logs; give one, or one per log",
            arguments.job.len()
        ));
    }
    let observe = |number: usize| {
        let path = logs.get(number).unwrap_or(&logs[0]);
        let series = series.get(number).map(String::as_str);
        let log = read_log(path, series, &arguments.common)?;
        let file = file_of(arguments, number)?;
        Ok(Observed { name: series.map_or_else(|| name_of(path), str::to_owned), log, file })
    };
    (0..count).map(observe).collect()
}

fn file_of(arguments: &Arguments, number: usize) -> Result<JobFile, String> {
    match arguments.job.get(number).or(arguments.job.first()) {
        Some(path) => jobs::load(path),
        None => pattern_jobs(arguments),
    }
}

/// The pattern as fio jobs that write until the log ends. A ring or random writes alone are a mix with one empty part.
fn pattern_jobs(arguments: &Arguments) -> Result<JobFile, String> {
    let (random_space, random_writes) = match arguments.pattern {
        Some(PatternName::Sequential) => (0.0, 0.0),
        Some(PatternName::Mixed) => {
            (arguments.random_space.unwrap_or_default(), arguments.random_writes.unwrap_or_default())
        }
        _ => (1.0, 1.0),
    };
    let mixed = Mixed { used: 1.0, random_space, random_writes, has_placement: arguments.placement };
    mixed.file().map_err(|error| format!("--pattern: {error}"))
}

fn result(fit: &Fit) -> Value {
    let learned = fit.card.learned;
    let policies = fit
        .policies
        .iter()
        .map(|it| json!({ "gc": it.victims.to_string(), "op_ratio": it.op_ratio, "residual": it.residual }));
    let logs = fit.logs.iter().map(|it| {
        json!({
            "name": it.name,
            "capacities": it.capacities,
            "dlwa_last_tenth": it.logged,
            "dlwa_last_tenth_modelled": it.modelled,
            "residual": it.residual,
        })
    });
    json!({
        "op_ratio": {
            "value": fit.card.shape(false).op_ratio(),
            "low": learned.map(|it| it.op_low),
            "high": learned.map(|it| it.op_high),
        },
        "gc": fit.policies[0].victims.to_string(),
        "residual": learned.map(|it| it.residual),
        "dlwa_error": learned.map(|it| it.dlwa_error),
        "policies": policies.collect::<Vec<_>>(),
        "logs": logs.collect::<Vec<_>>(),
        "card": fit.card,
    })
}

/// Residuals that differ by less than this share do not distinguish two policies.
const SAME_RESIDUAL: f64 = 1.2;

fn text_of(fit: &Fit) -> String {
    let number = |value: Option<f64>| value.unwrap_or(f64::NAN) * 100.0;
    let learned = fit.card.learned;
    let mut text = format!(
        "over-provisioning    {:.1} % ({:.1} to {:.1} %)\n",
        fit.card.shape(false).op_ratio() * 100.0,
        number(learned.map(|it| it.op_low)),
        number(learned.map(|it| it.op_high))
    );
    let best = fit.policies[0];
    let also = fit.policies[1..].iter().filter(|it| it.residual <= SAME_RESIDUAL * best.residual);
    let also: Vec<String> = also.map(|it| it.victims.to_string()).collect();
    let also = if also.is_empty() { String::new() } else { format!("; {} fits as well", also.join(", ")) };
    let _ = writeln!(text, "victim policy        {}{also}", best.victims);
    let _ = writeln!(text, "residual             {:.1} %", best.residual * 100.0);
    for log in &fit.logs {
        let _ = writeln!(
            text,
            "  {}: {:.3} in the last tenth of {:.1} capacities, model {:.3}; curve {:.1} % apart",
            log.name,
            log.logged,
            log.capacities,
            log.modelled,
            log.residual * 100.0
        );
    }
    let _ = writeln!(
        text,
        "other workloads      write amplification of the model ± {:.0} % (80 % interval)",
        number(learned.map(|it| it.dlwa_error))
    );
    text
}
