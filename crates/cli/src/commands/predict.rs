//! `flashwright predict`: hits, wear, cost and latency of caches on a drive, computed from a trace or a config.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bench::bar::{Bar, Unit};
use bench::config::cachebench::load;
use bench::config::{Loaded, Override};
use bench::predict::configured::{Configured, REQUESTS_AT_MOST};
use bench::predict::target::Target;
use bench::predict::{
    self, Dram, Outcome, Plan, PredictError, Prices, Settings, SmallEngine, WarmUp, plot, report,
};
use bench::trace::{Accesses, open};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use ssd::Card;
use ssd::model::carbon::Deployment;

use crate::choice::{Choice, one_of};
use crate::files::Files;
use crate::output::{Common, Finding, make_folder, write_parquet, write_picture};
use crate::quantity;
use crate::trace_flags::TraceFlags;

/// Heading of the flags that turn years into carbon and money.
const COSTS: &str = "Carbon and cost";

/// The command line of `predict`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Trace files, block traces merged by time, others read one after the other; - is standard input. Or a CacheBench config
    /// (.json): its requests, and the cache that it describes, where no flag says otherwise
    #[arg(required = true, value_name = "TRACE|CONFIG.json")]
    traces: Vec<PathBuf>,
    /// Drive card: a name from `ssd cards`, or the path of a TOML file
    #[arg(long, value_name = "CARD")]
    drive: String,
    /// Fraction of the drive's load that the trace represents [default: such that the drive holds a quarter of the trace's
    /// bytes]. Of a config: as in bench --scale [default: 1/1 for a replay, else by the size of its flash]
    #[arg(long, value_name = "1/N", value_parser = quantity::scale)]
    scale: Option<u32>,
    /// Requests per second of the whole drive's cache [default: the trace's own rate times N if --scale is given, else unknown]
    #[arg(long, value_name = "N", value_parser = quantity::positive)]
    rate: Option<f64>,
    /// DRAM sizes, separated by commas: bytes at full scale (42GiB), or a percentage of the flash (4%) [default: the config's, of a
    /// trace 1%,4%]
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = dram)]
    dram: Option<Vec<Dram>>,
    /// Shares of the drive that the cache uses, separated by commas [default: the config's, of a trace 50%,100%]
    #[arg(long, value_name = "N%,...", value_delimiter = ',', value_parser = most_of)]
    utilization: Option<Vec<f64>>,
    /// Shares of the flash for small objects, separated by commas [default: the config's, of a trace 4%]
    #[arg(long, value_name = "N%,...", value_delimiter = ',', value_parser = quantity::share)]
    soc: Option<Vec<f64>>,
    /// Engines for small objects, separated by commas: sets, or a log with an index in DRAM, which is counted [default: the config's, of a
    /// trace sets]
    #[arg(long, value_name = "ENGINE,...", value_delimiter = ',', value_parser = one_of(&SMALL))]
    small: Option<Vec<SmallEngine>>,
    /// Probabilities of admission to flash for objects that leave DRAM, separated by commas [default: the config's, of a trace 100%]
    #[arg(long, value_name = "N%,...", value_delimiter = ',', value_parser = most_of)]
    admission: Option<Vec<f64>>,
    /// Whether small and large objects have a placement handle each [default: the config's, of a trace both, if the drive has handles]
    #[arg(long, value_enum, value_name = "MODE")]
    placement: Option<PlacementName>,
    /// Share of the accesses that warm up the cache and are not counted [default: the config's warmupOps, else 50%]
    #[arg(long, alias = "warm-up", value_name = "N%", value_parser = quantity::share)]
    warmup: Option<f64>,
    /// Override a key of the config, as in bench: cache_config.cacheSizeMB=64; KEY=null removes it
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<Override>,
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
    /// Write the points to FILE as Parquet
    #[arg(long, value_name = "FILE")]
    parquet: Option<PathBuf>,
    /// Plot hits against carbon, as SVG and PNG files in DIRECTORY
    #[arg(long, value_name = "DIRECTORY")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    reading: TraceFlags,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Share of the accesses that are not counted by default.
const WARM_UP: WarmUp = WarmUp::Share(0.5);

const SMALL: [Choice<SmallEngine>; 2] = [("sets", None, SmallEngine::Sets), ("log", None, SmallEngine::Log)];

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum PlacementName {
    Off,
    On,
    Both,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> ExitCode {
    let made = configured(arguments).and_then(|configured| {
        let plan = plan(arguments, configured.as_ref())?;
        Ok((configured, plan))
    });
    let (configured, plan) = match made {
        Ok(made) => made,
        Err(error) => return arguments.common.refuse(&error),
    };
    let found = predicted(arguments, configured.as_ref(), &plan);
    arguments.common.conclude("predict", &config(arguments, &plan), found)
}

/// The config, if the file is one.
fn configured(arguments: &Arguments) -> Result<Option<Configured>, String> {
    let is_config = |path: &PathBuf| path.extension().is_some_and(|it| it.eq_ignore_ascii_case("json"));
    let Some(file) = arguments.traces.iter().find(|path| is_config(path)) else {
        return match arguments.set.is_empty() {
            true => Ok(None),
            false => Err("--set: is for a config (CONFIG.json), and this is a trace".into()),
        };
    };
    if arguments.traces.len() > 1 {
        return Err(format!("{}: a config is predicted alone, without other files", file.display()));
    }
    if let Some(flag) = arguments.reading.reads_differently() {
        return Err(format!("{flag}: is for a trace; a config has its own keys (--set KEY=VALUE)"));
    }
    configured_of(file, &arguments.set).map(Some)
}

fn configured_of(file: &Path, overrides: &[Override]) -> Result<Configured, String> {
    match load(file, overrides).map_err(|error| error.to_string())? {
        Loaded::Config(config) => Configured::of(&config).map_err(|error| error.to_string()),
        Loaded::Part(kind, _) => {
            Err(format!("{}: is {kind}, not a config with a cache and requests", file.display()))
        }
    }
}

fn plan(arguments: &Arguments, configured: Option<&Configured>) -> Result<Plan, String> {
    let card = Card::load(&arguments.drive).map_err(|error| format!("--drive: {error}"))?;
    if arguments.warmup.is_some_and(|share| share >= 1.0) {
        return Err("--warmup: must be below 100%, or nothing is counted".into());
    }
    let of_config = || configured?.warm_up;
    let warm_up = arguments.warmup.map(WarmUp::Share).or_else(of_config).unwrap_or(WARM_UP);
    if let Some(share) = arguments.soc.iter().flatten().find(|share| **share > 1.0) {
        return Err(format!("--soc: {}% is more than all of the flash", share * 100.0));
    }
    let outputs = [arguments.common.result_file(), arguments.parquet.as_deref()];
    Files::reading(&arguments.traces).writing(outputs).check()?;
    if let Some(folder) = &arguments.plot {
        make_folder("--plot", folder)?;
    }
    let rated_dlwa = arguments.rated_dlwa.unwrap_or(card.endurance.dlwa());
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let or_usual = |given: &Option<Vec<f64>>, of_config: Option<f64>, usual: &[f64]| {
        given.clone().unwrap_or_else(|| of_config.map_or_else(|| usual.to_vec(), |it| vec![it]))
    };
    let of_dram = || match configured {
        Some(it) => vec![Dram::Bytes(it.dram_bytes)],
        None => vec![Dram::OfFlash(0.01), Dram::OfFlash(0.04)],
    };
    let of_small = || vec![configured.map_or(SmallEngine::Sets, |it| it.small)];
    let used = configured.map(|it| share_used(it, &card, arguments.utilization.is_none())).transpose()?;
    Ok(Plan {
        scale: arguments.scale.or_else(|| Some(configured?.usual_scale(&card))),
        requests_per_second: arguments.rate.or_else(|| configured?.requests_per_second),
        dram: arguments.dram.clone().unwrap_or_else(of_dram),
        utilizations: or_usual(&arguments.utilization, used, &[0.5, 1.0]),
        small_shares: or_usual(&arguments.soc, configured.map(|it| it.small_share), &[0.04]),
        small: arguments.small.clone().unwrap_or_else(of_small),
        settings: configured.map_or_else(Settings::default, |it| it.settings),
        admissions: or_usual(&arguments.admission, configured.map(|it| it.admission), &[1.0]),
        placements: placements(arguments, configured, &card)?,
        warm_up,
        ignore_ttl: arguments.ignore_ttl,
        prices: Prices {
            system_years: arguments.system_years,
            rated_dlwa,
            dram_usd_per_gb: arguments.dram_usd_per_gb,
            dram_kg_per_gb: arguments.dram_kg_per_gb,
        },
        threads: arguments.threads.map_or_else(cores, |threads| threads as usize),
        seed: arguments.common.seed(),
        card,
    })
}

/// The share of the drive that the config's flash is.
fn share_used(configured: &Configured, card: &Card, is_needed: bool) -> Result<f64, String> {
    let share = configured.flash_bytes as f64 / card.space.usable_bytes as f64;
    if share > 1.0 && is_needed {
        return Err(format!(
            "cache_config.nvmCacheSizeMB: {} bytes are more than {} has ({}); --utilization 100% takes all of it",
            configured.flash_bytes, card.name, card.space.usable_bytes
        ));
    }
    Ok(share)
}

fn placements(
    arguments: &Arguments,
    configured: Option<&Configured>,
    card: &Card,
) -> Result<Vec<bool>, String> {
    let has_handles = card.placement.is_some();
    Ok(match (arguments.placement, configured) {
        (Some(PlacementName::On | PlacementName::Both), _) if !has_handles => {
            return Err(format!("--placement: {} has no placement handles", card.name));
        }
        (Some(PlacementName::On), _) => vec![true],
        (Some(PlacementName::Both), _) => vec![false, true],
        (Some(PlacementName::Off), _) => vec![false],
        (None, Some(configured)) if configured.placement && !has_handles => {
            return Err(format!(
                "cache_config.deviceEnableFDP: {} has no placement handles; --placement off predicts the config without",
                card.name
            ));
        }
        (None, Some(configured)) => vec![configured.placement],
        (None, None) if has_handles => vec![false, true],
        (None, None) => vec![false],
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
        "small": plan.small.iter().map(|it| it.name()).collect::<Vec<_>>(),
        "admission": plan.admissions,
        "placement": plan.placements,
        "warmup": match plan.warm_up {
            WarmUp::Share(share) => json!(share),
            WarmUp::Accesses(number) => json!({ "accesses": number }),
        },
        "ignore_ttl": plan.ignore_ttl,
        "system_years": plan.prices.system_years,
        "rated_dlwa": plan.prices.rated_dlwa,
        "dram_usd_per_gb": plan.prices.dram_usd_per_gb,
        "dram_kg_per_gb": plan.prices.dram_kg_per_gb,
    })
}

/// The accesses of the trace, or of the config.
fn accesses(
    arguments: &Arguments,
    configured: Option<&Configured>,
    plan: &Plan,
) -> Result<Box<dyn Accesses>, String> {
    let Some(configured) = configured else {
        let input = arguments.reading.input(arguments.traces.clone());
        return open(&input.paths, Some(&input.format), &input.options).map_err(|error| error.to_string());
    };
    configured.warnings.iter().for_each(|text| arguments.common.warn(text));
    let at_most = arguments.reading.limit.unwrap_or(REQUESTS_AT_MOST);
    let (wanted, limited) = (configured.requests(), arguments.reading.limit.is_some());
    if configured.is_generated() && wanted > at_most && !limited {
        arguments.common.warn(format_args!(
            "the first {} of the config's {} requests are predicted; --limit N for more",
            bench::report::numbers::grouped(at_most),
            bench::report::numbers::grouped(wanted)
        ));
    }
    let scale = plan.scale.unwrap_or(1);
    configured.accesses(scale, at_most, plan.seed).map_err(|error| error.to_string())
}

/// Warns if the default limit cut a replayed trace, whose length is unknown before.
fn warn_of_cut_replay(arguments: &Arguments, configured: Option<&Configured>, outcome: &Outcome) {
    let is_replay = configured.is_some_and(|it| !it.is_generated() && it.requests() > REQUESTS_AT_MOST);
    if is_replay && arguments.reading.limit.is_none() && outcome.totals.accesses == REQUESTS_AT_MOST {
        arguments.common.warn(format_args!(
            "only the first {} requests of the trace are predicted; --limit N for more",
            bench::report::numbers::grouped(REQUESTS_AT_MOST)
        ));
    }
}

fn predicted(arguments: &Arguments, configured: Option<&Configured>, plan: &Plan) -> Result<Finding, String> {
    let trace = accesses(arguments, configured, plan)?;
    let names = arguments.reading.input(arguments.traces.clone()).names();
    let stop = arguments.common.stop()?;
    let bar = Bar::new(Unit::Custom, arguments.common.quiet);
    let progress = |done, total: Option<u64>| {
        arguments.common.set_progress(done, total);
        bar.set(done, total.unwrap_or(0), format!("{} accesses", bench::report::numbers::grouped(done)));
        if total == Some(done) {
            bar.finish();
        }
    };
    let outcome = predict::run(plan, trace, &stop, arguments.common.quiet, progress);
    bar.finish();
    let outcome = outcome.map_err(|error| match error {
        PredictError::TooShort { .. } | PredictError::NothingCounted { .. } => format!("{names}: {error}"),
        other => other.to_string(),
    })?;
    outcome
        .read
        .remarks()
        .iter()
        .chain(&outcome.read.messages)
        .for_each(|message| arguments.common.warn(message));
    warn_of_cut_replay(arguments, configured, &outcome);
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
    write_parquet(arguments.parquet.as_ref(), &result, "points")?;
    Ok(Finding::new(result, text))
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
