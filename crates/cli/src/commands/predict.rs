//! `flashwright predict`: hits, wear, cost and latency of caches on a drive, computed from a trace.

use std::path::PathBuf;
use std::process::ExitCode;

use bench::bar::{Bar, Unit};
use bench::predict::target::Target;
use bench::predict::{self, Dram, Plan, PredictError, Prices, plot, report};
use bench::trace::open;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use ssd::Card;
use ssd::model::carbon::Deployment;

use crate::files::Files;
use crate::output::{Common, Finding, make_folder, write_picture};
use crate::quantity;
use crate::trace_flags::TraceFlags;

/// Heading of the flags that turn years into carbon and money.
const COSTS: &str = "Carbon and cost";

/// The command line of `predict`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Trace files, block traces merged by time, others read one after the other; - is standard input
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Drive card: a name from `ssd cards`, or the path of a TOML file
    #[arg(long, value_name = "CARD")]
    drive: String,
    /// Fraction of the drive's load that the trace represents [default: such that the drive holds a quarter of the trace's
    /// bytes]
    #[arg(long, value_name = "1/N", value_parser = quantity::scale)]
    scale: Option<u32>,
    /// Requests per second of the whole drive's cache [default: the trace's own rate times N if --scale is given, else unknown]
    #[arg(long, value_name = "N", value_parser = quantity::positive)]
    rate: Option<f64>,
    /// DRAM sizes, separated by commas: bytes at full scale (42GiB), or a percentage of the flash (4%)
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', default_value = "1%,4%", value_parser = dram)]
    dram: Vec<Dram>,
    /// Shares of the drive that the cache uses, separated by commas
    #[arg(long, value_name = "N%,...", value_delimiter = ',', default_value = "50%,100%", value_parser = most_of)]
    utilization: Vec<f64>,
    /// Shares of the flash for small objects, separated by commas
    #[arg(long, value_name = "N%,...", value_delimiter = ',', default_value = "4%", value_parser = quantity::share)]
    soc: Vec<f64>,
    /// Probabilities of admission to flash for objects that leave DRAM, separated by commas
    #[arg(long, value_name = "N%,...", value_delimiter = ',', default_value = "100%", value_parser = most_of)]
    admission: Vec<f64>,
    /// Whether small and large objects have a placement handle each [default: both, if the drive has handles]
    #[arg(long, value_enum, value_name = "MODE")]
    placement: Option<PlacementName>,
    /// Share of the accesses that warm up the cache and are not counted
    #[arg(long, alias = "warm-up", value_name = "N%", default_value = "50%", value_parser = quantity::share)]
    warmup: f64,
    /// Conditions on the result, separated by commas, such as "life>=5y,p99<1ms,hits>80%"; the answer is the cheapest point that
    /// meets them (hits, dram-hits, alwa, dlwa, life, kgco2e, price, mean, p99)
    #[arg(long, value_name = "CONDITIONS")]
    target: Option<Target>,
    /// Let no object expire, whatever times to live the trace has
    #[arg(long)]
    ignore_ttl: bool,
    /// Years that the system is in service
    #[arg(long, help_heading = COSTS, value_name = "YEARS", value_parser = quantity::positive, default_value = "5")]
    system_years: f64,
    /// Write amplification that the drive's rating assumes [default: the card's, otherwise 1]
    #[arg(long, help_heading = COSTS, value_name = "X", value_parser = quantity::amplification)]
    rated_dlwa: Option<f64>,
    /// Price of DRAM, in US dollars per GB
    #[arg(long, help_heading = COSTS, value_name = "USD", value_parser = quantity::amount, default_value = "4")]
    dram_usd_per_gb: f64,
    /// Embodied carbon of DRAM, in kg CO2e per GB
    #[arg(long, help_heading = COSTS, value_name = "KG", value_parser = quantity::amount, default_value_t = Deployment::DRAM_KG_PER_GB)]
    dram_kg_per_gb: f64,
    /// Number of threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = quantity::count::<u32>)]
    threads: Option<u32>,
    /// Plot hits against carbon, as SVG and PNG files in DIRECTORY
    #[arg(long, value_name = "DIRECTORY")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    reading: TraceFlags,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum PlacementName {
    Off,
    On,
    Both,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> ExitCode {
    let plan = match plan(arguments) {
        Ok(plan) => plan,
        Err(error) => return arguments.common.refuse(&error),
    };
    arguments.common.conclude("predict", &config(arguments, &plan), predicted(arguments, &plan))
}

fn plan(arguments: &Arguments) -> Result<Plan, String> {
    let card = Card::load(&arguments.drive).map_err(|error| format!("--drive: {error}"))?;
    let placements = match (arguments.placement, &card.placement) {
        (Some(PlacementName::On | PlacementName::Both), None) => {
            return Err(format!("--placement: {} has no placement handles", card.name));
        }
        (Some(PlacementName::On), Some(_)) => vec![true],
        (None | Some(PlacementName::Both), Some(_)) => vec![false, true],
        (None | Some(PlacementName::Off), _) => vec![false],
    };
    if arguments.warmup >= 1.0 {
        return Err("--warmup: must be below 100%, or nothing is counted".into());
    }
    if let Some(share) = arguments.soc.iter().find(|share| **share > 1.0) {
        return Err(format!("--soc: {}% is more than all of the flash", share * 100.0));
    }
    Files::reading(&arguments.traces).writing([arguments.common.result_file()]).check()?;
    if let Some(folder) = &arguments.plot {
        make_folder("--plot", folder)?;
    }
    let rated_dlwa = arguments.rated_dlwa.unwrap_or(card.endurance.dlwa());
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Plan {
        card,
        scale: arguments.scale,
        requests_per_second: arguments.rate,
        dram: arguments.dram.clone(),
        utilizations: arguments.utilization.clone(),
        small_shares: arguments.soc.clone(),
        admissions: arguments.admission.clone(),
        placements,
        warm_up: arguments.warmup,
        ignore_ttl: arguments.ignore_ttl,
        prices: Prices {
            system_years: arguments.system_years,
            rated_dlwa,
            dram_usd_per_gb: arguments.dram_usd_per_gb,
            dram_kg_per_gb: arguments.dram_kg_per_gb,
        },
        threads: arguments.threads.map_or_else(cores, |threads| threads as usize),
        seed: arguments.common.seed,
    })
}

fn config(arguments: &Arguments, plan: &Plan) -> Value {
    let dram = |it: &Dram| match it {
        Dram::Bytes(bytes) => json!(bytes),
        Dram::OfFlash(share) => json!(format!("{}%", share * 100.0)),
    };
    json!({
        "reading": arguments.reading.config(&arguments.traces),
        "drive": plan.card,
        "scale": plan.scale.map(|scale| format!("1/{scale}")),
        "requests_per_second": plan.requests_per_second,
        "dram": plan.dram.iter().map(dram).collect::<Vec<Value>>(),
        "utilization": plan.utilizations,
        "soc_share": plan.small_shares,
        "admission": plan.admissions,
        "placement": plan.placements,
        "warmup": plan.warm_up,
        "ignore_ttl": plan.ignore_ttl,
        "system_years": plan.prices.system_years,
        "rated_dlwa": plan.prices.rated_dlwa,
        "dram_usd_per_gb": plan.prices.dram_usd_per_gb,
        "dram_kg_per_gb": plan.prices.dram_kg_per_gb,
    })
}

fn predicted(arguments: &Arguments, plan: &Plan) -> Result<Finding, String> {
    let input = arguments.reading.input(arguments.traces.clone());
    let trace = open(&input.paths, Some(&input.format), &input.options).map_err(|error| error.to_string())?;
    let stop = arguments.common.new_stop();
    arguments.common.stop_on_signals(&stop).map_err(|error| error.to_string())?;
    let bar = Bar::new(Unit::Custom, arguments.common.quiet);
    let progress = |done, total: Option<u64>| {
        arguments.common.set_progress(done, total);
        bar.set(done, total.unwrap_or(0), format!("{} accesses", bench::report::text::grouped(done)));
        if total == Some(done) {
            bar.finish();
        }
    };
    let outcome = predict::run(plan, trace, &stop, arguments.common.quiet, progress);
    bar.finish();
    let outcome = outcome.map_err(|error| match error {
        PredictError::TooShort { .. } => format!("{}: {error}", input.names()),
        other => other.to_string(),
    })?;
    outcome
        .read
        .remarks()
        .iter()
        .chain(&outcome.read.messages)
        .for_each(|message| arguments.common.warn(message));
    outcome.warning(plan).iter().for_each(|warning| arguments.common.warn(warning));
    if let Some(folder) = &arguments.plot {
        match plot::svg(&outcome).map_err(|error| error.to_string())? {
            Some(svg) => drop(write_picture(folder, "hits-for-carbon", &svg)?),
            None => arguments
                .common
                .warn("--plot: nothing to plot: carbon is unknown without a request rate (--rate)"),
        }
    }
    let (mut result, mut text) = (report::json(&outcome, plan), report::text(&outcome, plan));
    if let Some(target) = &arguments.target {
        result["target"] = target.json(&outcome.points);
        text += &target.text(&outcome.points);
    }
    Ok(Finding { result, text, failures: Vec::new() })
}

fn dram(text: &str) -> Result<Dram, String> {
    match text.trim() {
        share if share.ends_with('%') => quantity::share(share).map(Dram::OfFlash),
        bytes => {
            quantity::bytes(bytes).map(Dram::Bytes).map_err(|error| format!("{error}, or 4% of the flash"))
        }
    }
}

/// A share that is something, and not more than all.
fn most_of(text: &str) -> Result<f64, String> {
    match quantity::share(text)? {
        share if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err(format!("{text}: must be above 0% and at most 100%")),
    }
}
