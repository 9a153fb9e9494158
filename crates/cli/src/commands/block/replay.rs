//! `flashwright block replay`: simulates a cache for recorded requests, in virtual time.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bench::bar::{Bar, Unit};
use bench::block::source::{BLOCK_FORMATS, BlockFormat, BlockTraceOptions, InnodbConfig};
use bench::block::{DiskModel, Outcome, Source, Summary, heat, report, side_by_side};
use bench::chart::{Chart, Line};
use bench::trace::Events;
use block::sets::{Preset, SetPolicy, SetsConfig};
use clap::{Args, ValueEnum};
use daemon::settings::{self, Given};
use daemon::status::figures;
use device::size::parse_size;
use serde_json::{Value, json};

use super::shape::Shape;
use crate::choice::{Choice, name_of, one_of};
use crate::files::Files;
use crate::output::{Common, Finding, make_folder, names_of, write_picture};
use crate::quantity;
use crate::trace_flags::events;

/// Insertion points of a sweep.
const SWEEP: [u8; 13] = [0, 10, 25, 40, 50, 60, 65, 70, 75, 80, 85, 90, 95];
/// Default number of generated operations.
const OPERATIONS: u64 = 5_000_000;

/// Headings of the flags for requests and for caches.
const REQUESTS: &str = "Requests";
const CACHES: &str = "Caches";

/// The command line of `block replay`.
#[derive(Debug, Args)]
#[command(after_help = formats_help())]
pub struct Arguments {
    /// Trace files, merged by time (blktrace writes one per CPU); - is standard input
    #[arg(value_name = "TRACE", conflicts_with = "generate")]
    trace: Vec<PathBuf>,
    /// Generate the requests instead: mysql8 is eight MySQL servers on one volume
    #[arg(long, help_heading = REQUESTS, value_name = "WORKLOAD", value_enum)]
    generate: Option<Generator>,
    /// Trace format; auto detects it
    #[arg(long, help_heading = REQUESTS, value_name = "NAME", default_value = "auto", conflicts_with = "generate")]
    format: String,
    /// Device to replay, if the trace has several
    #[arg(long, help_heading = REQUESTS, value_name = "NAME", conflicts_with = "generate")]
    device: Option<String>,
    /// blktrace, blkparse: events that count as requests [default: queue; issue or complete if the recording lacks queue events]
    #[arg(long, help_heading = REQUESTS, value_name = "queue|issue|complete", conflicts_with = "generate", value_parser = events)]
    events: Option<Events>,
    /// Bad rows to skip before giving up
    #[arg(long, visible_alias = "bad-rows", help_heading = REQUESTS, value_name = "N", default_value_t = 0, conflicts_with = "generate", value_parser = quantity::number::<u64>)]
    wrong_rows: u64,
    /// Requests (or generated operations) that warm up the cache and are not counted [default: 0, or a third of --operations]
    #[arg(long, alias = "warmup", help_heading = REQUESTS, value_name = "N", value_parser = quantity::number::<u64>)]
    warm_up: Option<u64>,
    /// Number of operations to generate
    #[arg(long, help_heading = REQUESTS, value_name = "N", default_value_t = OPERATIONS, conflicts_with = "trace", value_parser = quantity::number::<u64>)]
    operations: u64,
    /// Size of the cache's data
    #[arg(long, help_heading = CACHES, value_name = "SIZE", default_value = "768MiB", value_parser = parse_size)]
    cache_size: u64,
    /// Settings to start from [default: both, side by side; v3 with --sweep]
    #[arg(long, help_heading = CACHES, value_parser = one_of(&PRESETS))]
    preset: Option<Preset>,
    #[command(flatten)]
    shape: Shape,
    /// Other settings; `block set` lists them
    #[arg(long = "set", help_heading = CACHES, value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Replay one cache for each value of this setting
    #[arg(long, help_heading = CACHES, value_name = "SETTING", value_enum)]
    sweep: Option<Sweep>,
    /// Directory for the plots: work by set and time, its distribution over sets, and the sweep
    #[arg(long, help_heading = None::<&'static str>, value_name = "DIRECTORY")]
    figures: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Generator {
    Mysql8,
}

const PRESETS: [Choice<Preset>; 2] = [("v2", None, Preset::V2), ("v3", None, Preset::V3)];

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Sweep {
    /// The insertion point, from 0 (LRU) to the 95th percentile
    HotPercent,
}

/// Runs `block replay`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let config = json!({
        "trace": names_of(&arguments.trace), "format": arguments.format, "device": arguments.device,
        "generate": arguments.generate.map(|_| "mysql8"), "operations": arguments.generate.map(|_| arguments.operations),
        "cache_size_bytes": arguments.cache_size, "settings": arguments.settings, "warm_up": arguments.warm_up,
        "events": arguments.events.map(Events::name),
    });
    arguments.common.conclude("block replay", &config, replay(arguments))
}

fn replay(arguments: &Arguments) -> Result<Finding, String> {
    let caches = caches(arguments)?;
    Files::reading(&arguments.trace).writing([arguments.common.result_file()]).check()?;
    let mut source = source(arguments)?;
    if let Some(directory) = &arguments.figures {
        make_folder("--figures", directory)?;
    }
    let stop = arguments.common.stop()?;
    let bar = Bar::new(Unit::Steps, arguments.common.quiet);
    let advance = |requests: u64| bar.set(requests, requests, "requests");
    let configs: Vec<SetsConfig> = caches.iter().map(|(_, config)| *config).collect();
    let outcomes = side_by_side(&configs, DiskModel::default(), &mut source, &stop, &advance)
        .map_err(|error| error.to_string())?;
    drop(bar);
    let figures = match &arguments.figures {
        Some(directory) if is_counted(&outcomes) => {
            draw(directory, &caches, &outcomes, arguments.sweep.is_some())?
        }
        _ => Vec::new(),
    };
    Ok(found(arguments, &caches, &outcomes, &source, &figures))
}

fn found(
    arguments: &Arguments,
    caches: &[(String, SetsConfig)],
    outcomes: &[Outcome],
    source: &Source,
    pictures: &[PathBuf],
) -> Finding {
    let named: Vec<(String, Summary)> = caches
        .iter()
        .zip(outcomes)
        .map(|((name, _), outcome)| (name.clone(), outcome.summary.clone()))
        .collect();
    let is_counted = is_counted(outcomes);
    // A table of zeros would look like a measurement.
    let mut text = if is_counted { report::text(&named) } else { String::new() };
    let odd = source.stats().map(report::oddities).unwrap_or_default();
    odd.iter().for_each(|odd| text += &format!("note: {odd}\n"));
    pictures.iter().for_each(|file| text += &format!("figure: {}\n", file.display()));
    let results: Vec<Value> = caches
        .iter()
        .zip(outcomes)
        .map(|((name, config), outcome)| {
            let mut result = report::json(name, &config.geometry, &outcome.summary);
            result["tuning"] = figures::of_tuning(&config.tuning);
            result
        })
        .collect();
    let trace = source.stats().map(report::trace_json);
    let result = json!({ "trace": trace, "caches": results, "figures": names_of(pictures), "notes": odd });
    let failures = if is_counted { Vec::new() } else { vec![nothing_counted(arguments, source)] };
    Finding { result, text, failures }
}

fn is_counted(outcomes: &[Outcome]) -> bool {
    outcomes.iter().any(|outcome| outcome.summary.requests > 0)
}

/// The error if no requests are counted.
fn nothing_counted(arguments: &Arguments, source: &Source) -> String {
    let files: Vec<_> = arguments.trace.iter().map(|path| path.display().to_string()).collect();
    let files = files.join(", ");
    match source.stats() {
        Some(stats) if stats.requests == 0 && stats.other_devices > 0 => {
            format!(
                "{files}: the trace has no requests for the named device; {} are for others: {}",
                stats.other_devices,
                stats.other_names.join(", ")
            )
        }
        Some(stats) if stats.requests == 0 => format!("{files}: the trace has no requests"),
        _ => "no request was counted: --warm-up leaves out all of them".to_owned(),
    }
}

fn source(arguments: &Arguments) -> Result<Source, String> {
    if arguments.generate.is_some() {
        let warm_up = arguments.warm_up.unwrap_or(arguments.operations / 3);
        let config = InnodbConfig::default();
        return Ok(Source::innodb(config, arguments.common.seed(), arguments.operations, warm_up));
    }
    if arguments.trace.is_empty() {
        return Err("nothing to replay: name a TRACE, or use --generate mysql8".into());
    }
    let format = match arguments.format.as_str() {
        "auto" => None,
        name => Some(BlockFormat::named(name).ok_or_else(|| unknown_format(name))?),
    };
    let options = BlockTraceOptions {
        format,
        device: arguments.device.clone(),
        wrong_rows: arguments.wrong_rows,
        events: arguments.events,
    };
    Source::trace(&arguments.trace, options, arguments.warm_up.unwrap_or(0))
        .map_err(|error| error.to_string())
}

fn unknown_format(name: &str) -> String {
    let names: Vec<&str> = BLOCK_FORMATS.iter().map(|format| format.name).collect();
    format!("--format: {}", settings::one_of(name, "format", &names))
}

/// The caches to compare, with their names.
fn caches(arguments: &Arguments) -> Result<Vec<(String, SetsConfig)>, String> {
    let presets = match arguments.preset {
        Some(one) => vec![one],
        None if arguments.sweep.is_some() => vec![Preset::V3],
        None => vec![Preset::V2, Preset::V3],
    };
    let mut caches = Vec::new();
    for preset in presets {
        let is_one_of_two = arguments.preset.is_none() && arguments.sweep.is_none();
        let config = cache(arguments, preset).map_err(|why| match is_one_of_two {
            true => format!(
                "{why} (in the preset {}, one of two that are replayed; --preset names one)",
                name(preset)
            ),
            false => why,
        })?;
        match arguments.sweep {
            None => caches.push((name(preset), config)),
            Some(Sweep::HotPercent) => caches.extend(SWEEP.map(|percent| swept(config, percent))),
        }
    }
    Ok(caches)
}

fn name(preset: Preset) -> String {
    name_of(&PRESETS, &preset).to_owned()
}

fn cache(arguments: &Arguments, preset: Preset) -> Result<SetsConfig, String> {
    let mut config = preset.config(arguments.cache_size);
    let (shape, geometry) = (&arguments.shape, &mut config.geometry);
    geometry.block_bytes = shape.block_size;
    geometry.ways = shape.associativity;
    geometry.placement = shape.placement(geometry.placement)?;
    shape.check(geometry.placement)?;
    let set_bytes = u64::from(shape.associativity) * u64::from(shape.block_size);
    let too_large = |_| {
        let most = u32::MAX;
        format!("--cache-size {}: is more than {most} sets of {set_bytes} bytes", arguments.cache_size)
    };
    geometry.sets = u32::try_from(arguments.cache_size / set_bytes).map_err(too_large)?;
    if geometry.sets == 0 {
        return Err(format!(
            "--cache-size {}: is less than a set of {set_bytes} bytes; lower --associativity",
            arguments.cache_size
        ));
    }
    let mut given = Given::to(&mut config.tuning);
    arguments.settings.iter().try_for_each(|setting| given.apply("--set ", setting))?;
    if let (Some(Sweep::HotPercent), Some(setting)) = (arguments.sweep, given.about_hot_list()) {
        return Err(format!("{setting}: contradicts --sweep hot-percent, which sets it; give one of them"));
    }
    if config.tuning.latency_gate_ms > 0 {
        return Err("--set latency_gate_ms: has no effect in a replay, in which requests do not wait".into());
    }
    config.check().map_err(|error| match error.setting {
        "sets" => {
            format!("--cache-size {}: makes {} sets; {}", arguments.cache_size, error.given, error.must)
        }
        _ => error.to_string(),
    })?;
    Ok(config)
}

fn swept(mut config: SetsConfig, hot_percent: u8) -> (String, SetsConfig) {
    let promote_hits = match config.tuning.policy {
        SetPolicy::Lru2q { promote_hits, .. } => promote_hits,
        SetPolicy::Fifo | SetPolicy::Lru => 2,
    };
    config.tuning.policy = SetPolicy::Lru2q { hot_percent, promote_hits };
    (format!("hot {hot_percent}"), config)
}

fn draw(
    directory: &Path,
    caches: &[(String, SetsConfig)],
    outcomes: &[Outcome],
    is_sweep: bool,
) -> Result<Vec<PathBuf>, String> {
    let mut pictures = Vec::new();
    let named = || caches.iter().zip(outcomes).map(|((name, _), outcome)| (name.as_str(), outcome));
    if is_sweep {
        pictures.push(("sweep".to_owned(), sweep_chart(outcomes).svg()));
    } else {
        let chart = heat::distribution(named().map(|(name, outcome)| (name, &outcome.summary)));
        pictures.push(("sets".to_owned(), chart.svg()));
        pictures.extend(named().map(|(name, outcome)| {
            let title = format!("Blocks missed and cleaned, by set and time: {name}");
            (format!("heat-{name}"), outcome.heat.svg(&title))
        }));
    }
    let mut files = Vec::new();
    for (name, svg) in pictures {
        let svg = svg.map_err(|error| format!("{name}: {error}"))?;
        files.extend(write_picture(directory, &name, &svg)?);
    }
    Ok(files)
}

fn sweep_chart(outcomes: &[Outcome]) -> Chart {
    let points = SWEEP.iter().zip(outcomes);
    let line = |name: &str, value: &dyn Fn(&Summary) -> f64| Line {
        name: name.to_owned(),
        points: points.clone().map(|(&percent, it)| (f64::from(percent), value(&it.summary))).collect(),
        is_marks: false,
    };
    Chart {
        title: "Hit rate over the insertion point".to_owned(),
        x: "insertion point, percentile from the front",
        y: "hits, %",
        lines: vec![
            line("reads and writes", &|it| it.counters.hit_percent()),
            line("reads", &|it| it.counters.read_hit_percent()),
        ],
    }
}

fn formats_help() -> String {
    let line = |format: &BlockFormat| format!("  {:<17} {}\n", format.name, format.about);
    format!("Formats:\n{}", BLOCK_FORMATS.iter().map(line).collect::<String>())
}
