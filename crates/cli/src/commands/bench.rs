//! `flashwright bench`: run a CacheBench config.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bench::binary_trace::{self, Made};
use bench::config::cachebench::{load, load_text};
use bench::config::findings::Diagnostic;
use bench::config::lower::{binary_traces, missing_traces, unsupported};
use bench::config::plan::ReplayPlan;
use bench::config::{Config, ConfigError, DeviceSpec, Loaded, Override};
use bench::picture::Format;
use bench::progress::{Progress, ProgressOptions, stats_files};
use bench::report::intervals::{self, IntervalFile, IntervalFormat};
use bench::report::live::{Live, LiveWatcher};
use bench::report::text::{self, SizeFormat, TextOptions};
use bench::report::{RunReport, json, plot};
use bench::run::Watcher;
use bench::session::{FlashCheck, Session, SessionError, SessionOptions};
use clap::Args;
use serde_json::{Value, json};
use server::metrics::Source;

use crate::arguments::repeatable;
use crate::choice::{Choice, one_of};
use crate::files::Files;
use crate::metrics;
use crate::output::{Common, FAILED, Failure, Finding, PASSED, USAGE, write_plot, write_rows};

/// The config that runs by default.
const EXAMPLE: &str = include_str!("../../../../examples/hybrid.json");
const EXAMPLE_NAME: &str = "examples/hybrid.json";

/// Heading of the reporting flags.
const REPORTING: &str = "Reporting";
/// Command of a result of `--validate`.
const VALIDATE: &str = "bench --validate";

/// The command line of `bench`. Flags can have one dash or two, and `-` or `_`; if a CacheBench flag is repeated, the last one counts, as
/// in CacheBench.
#[derive(Debug, Args)]
pub struct Arguments {
    /// CacheBench config file; without one, a built-in example runs
    config: Option<PathBuf>,
    /// CacheBench config file, by CacheBench's flag
    #[arg(long, value_name = "FILE", conflicts_with = "config", overrides_with = "json_test_config")]
    json_test_config: Option<PathBuf>,
    /// Plot throughput, hit ratio and latencies to FILE (.svg or .png)
    #[arg(long, value_name = "FILE", help_heading = REPORTING)]
    plot: Option<PathBuf>,
    /// Write the figures of each interval to FILE (.csv or .jsonl) as it ends, or of all at the end (.parquet)
    #[arg(long, value_name = "FILE", help_heading = REPORTING)]
    intervals: Option<PathBuf>,
    /// Check the config and exit; --json writes the findings
    #[arg(long)]
    validate: bool,
    #[arg(
        long,
        value_name = "KEY=VALUE",
        help = "Override a config key, such as cache_config.cacheSizeMB=64 or [1].test_config.numOps=1000; KEY=null removes it"
    )]
    set: Vec<Override>,
    /// Skip unknown keys of the config, such as those of a fork of CacheBench, with a warning
    #[arg(long)]
    ignore_unknown: bool,
    /// Flash device to use instead of the config's: memory:, file:PATH, PATH, or sim:CARD (a model drive in virtual time)
    #[arg(long, value_name = "SPEC")]
    device: Option<DeviceSpec>,
    /// Overwrite the flash device even if it holds other data: a file system, a block cache, an ordinary file
    #[arg(long)]
    force: bool,
    /// Divide the sizes of cache and model drive, and the number of keys, by N
    #[arg(long, value_name = "1/N", default_value = "1", value_parser = crate::quantity::scale)]
    scale: u32,
    /// Stop after N seconds with a full report; 0 is no limit
    #[arg(long, value_name = "N", default_value_t = 0, overrides_with = "timeout_seconds", value_parser = crate::quantity::number::<u64>)]
    timeout_seconds: u64,
    /// Seconds between progress lines; 0 turns them off
    #[arg(long, value_name = "N", default_value_t = 60, help_heading = REPORTING, overrides_with = "progress", value_parser = crate::quantity::number::<u64>)]
    progress: u64,
    /// Append detailed statistics of each interval to FILE
    #[arg(long, value_name = "FILE", help_heading = REPORTING, overrides_with = "progress_stats_file")]
    progress_stats_file: Option<PathBuf>,
    /// Time every operation instead of one in 16, and print latency percentiles of find and allocate
    #[arg(long, value_name = "BOOL", help_heading = REPORTING, num_args = 0..=1, default_missing_value = "true", default_value_t = false, require_equals = true, overrides_with = "report_api_latency")]
    report_api_latency: bool,
    /// Print memory usage by size class
    #[arg(long, value_name = "FORM", help_heading = REPORTING, num_args = 0..=1, default_missing_value = "human_readable", value_parser = one_of(&CLASS_MEMORY), overrides_with = "report_ac_memory_usage_stats")]
    report_ac_memory_usage_stats: Option<SizeFormat>,
    /// Serve /metrics for Prometheus, /health and a live page by HTTP on this address during the run, as 127.0.0.1:9150
    #[arg(long, value_name = "ADDRESS", help_heading = REPORTING)]
    metrics: Option<SocketAddr>,
    /// Allow --metrics on a non-loopback address: the page has no authentication
    #[arg(long, help_heading = REPORTING, requires = "metrics")]
    allow_remote: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

const CLASS_MEMORY: [Choice<SizeFormat>; 2] = [
    ("human_readable", Some("Sizes in B, KB, MB and GB"), SizeFormat::HumanReadable),
    ("raw", Some("Sizes in bytes"), SizeFormat::Raw),
];

/// Runs the command.
pub fn run(arguments: &Arguments) -> ExitCode {
    let common = &arguments.common;
    let config = match load_config(arguments) {
        Ok(Loaded::Config(config)) => config,
        Ok(Loaded::Part(kind, warnings)) => {
            return common.conclude(VALIDATE, &Value::Null, validated_part(arguments, kind, &warnings));
        }
        Err(error) => return common.refuse(&error),
    };
    warn(&config, &config.warnings, arguments);
    if arguments.validate {
        // The exit code is that of a run.
        return match validated(&config, arguments) {
            Ok(found) => common.conclude_as(VALIDATE, &config.as_run(), found, ("error", USAGE)),
            Err(error) => common.refuse(&*error),
        };
    }
    match binary_traces(&config) {
        Err(error) => common.refuse(&error),
        Ok(traces) if !traces.is_empty() => {
            common.conclude("bench", &config.as_run(), make_binary_traces(&config, &traces, arguments))
        }
        Ok(_) => match execute(&config, arguments) {
            Ok(report) if report.passed() => ExitCode::from(PASSED),
            Ok(report) => {
                // With --quiet the verdict was not printed.
                let failures = report.failures().into_iter().filter(|_| common.quiet);
                failures.for_each(|failure| common.say_failure("failed", &failure));
                ExitCode::from(FAILED)
            }
            Err(error) => common.refuse(&*error),
        },
    }
}

/// The result of `--validate`.
#[derive(Default)]
struct Checked {
    warnings: Vec<String>,
    /// Errors that would stop a run here: missing features, and traces, devices or memory that this machine lacks.
    stops: Vec<String>,
}

/// Checks everything that can be checked without running.
fn check(config: &Config, arguments: &Arguments) -> Result<Checked, Failure> {
    let file = config.file.display();
    let mut stops: Vec<String> = missing_traces(config).iter().map(|it| format!("{file}: {it}")).collect();
    if !config.later.is_empty() {
        stops.extend(config.later.iter().map(|later| format!("{file}: {}", unsupported(later))));
        return Ok(Checked { warnings: Vec::new(), stops });
    }
    let mut warnings = Vec::new();
    if stops.is_empty() {
        let traces = binary_traces(config)?;
        if !traces.is_empty() {
            let check = |(plan, path): &(ReplayPlan, PathBuf)| binary_trace::check(plan, path);
            let failed = |error: binary_trace::Error| format!("{}: {error}", config.file.display());
            let warnings = traces.iter().map(check).collect::<Result<Vec<_>, _>>().map_err(failed)?;
            return Ok(Checked { warnings: warnings.concat(), stops });
        }
        warnings.extend(Session::check(config, arguments.scale)?);
    } else {
        warnings.extend(Session::check_without_traces(config, arguments.scale)?);
    }
    let options = SessionOptions { scale: arguments.scale, force: arguments.force, ..Default::default() };
    let FlashCheck { warnings: of_flash, absent } = Session::check_flash(config, &options)?;
    warnings.extend(of_flash);
    stops.extend(absent);
    match Session::check_memory(config, arguments.scale) {
        Err(error @ SessionError::Memory { .. }) => stops.push(error.to_string()),
        checked => checked?,
    }
    Ok(Checked { warnings, stops })
}

fn load_config(arguments: &Arguments) -> Result<Loaded, ConfigError> {
    let mut overrides = arguments.set.clone();
    overrides.extend(arguments.ignore_unknown.then_some(Override::IgnoreUnknown));
    let file = arguments.config.as_ref().or(arguments.json_test_config.as_ref());
    // The example must not leave a file in the current directory.
    let example = file.is_none().then(|| DeviceSpec::Path(std::env::temp_dir()));
    overrides.extend(arguments.device.clone().or(example).map(Override::Device));
    match file {
        Some(file) => load(file, &overrides),
        None => load_text(Path::new(EXAMPLE_NAME), EXAMPLE, &overrides),
    }
}

fn execute(config: &Config, arguments: &Arguments) -> Result<RunReport, Failure> {
    let options = SessionOptions {
        seed: arguments.common.seed(),
        timeout: arguments.timeout(),
        time_all: arguments.report_api_latency,
        stop: arguments.common.stop()?,
        scale: arguments.scale,
        force: arguments.force,
    };
    // Checked before a run of hours ends with a result that cannot be written.
    check_results(config, arguments)?;
    let session = Session::open(config, options)?;
    print_header(config, arguments);
    warn(config, session.warnings(), arguments);
    run_session(session, config, arguments)
}

/// The config requests binary traces instead of a run.
fn make_binary_traces(
    config: &Config,
    traces: &[(ReplayPlan, PathBuf)],
    arguments: &Arguments,
) -> Result<Finding, String> {
    let (common, stop) = (&arguments.common, arguments.common.stop()?);
    check_results(config, arguments)?;
    let make = |(plan, path): &(ReplayPlan, PathBuf)| binary_trace::write(plan, path, &stop, common.quiet);
    let made = traces.iter().map(make).collect::<Result<Vec<_>, _>>();
    let made = made.map_err(|error| format!("{}: {error}", config.file.display()))?;
    let result = json!({ "binary_traces": made.iter().map(Made::json).collect::<Vec<_>>() });
    Ok(Finding::new(result, made.iter().map(Made::text).collect()))
}

fn check_results(config: &Config, arguments: &Arguments) -> Result<(), String> {
    metrics::permitted(arguments.metrics, arguments.allow_remote, "--allow-remote")?;
    if let Some(file) = arguments.intervals.as_ref().filter(|file| !is_parquet(file)) {
        interval_format(file)?;
    }
    if let Some(file) = &arguments.plot {
        Format::of(file).map_err(|error| error.to_string())?;
    }
    let instances = config.instances.len();
    let stats = arguments.progress_stats_file.as_ref().map(|file| stats_files(file, instances));
    let named = [arguments.common.result_file(), arguments.intervals.as_deref(), arguments.plot.as_deref()];
    let stats = stats.iter().flatten().map(|file| Some(file.as_path()));
    let own = || Files::reading(&config.own_files()).keeping("flash of the run", config.flash_paths());
    let (events, traces) = (config.event_files(), config.traces_written());
    // Checked separately for each: opening the files detects conflicts between instances and with traces.
    events.iter().try_for_each(|file| own().writing([Some(file.as_path())]).check_distinct())?;
    let beside_events = || own().keeping("events of the run", events.iter().cloned());
    traces.iter().try_for_each(|file| beside_events().writing([Some(file.as_path())]).check_distinct())?;
    let beside_all =
        beside_events().keeping("input", config.traces_read()).keeping("trace of the run", traces);
    beside_all.writing(named.into_iter().chain(stats)).check()
}

/// Whether the intervals are written as Parquet, at the end of the run.
fn is_parquet(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("parquet"))
}

fn interval_format(file: &Path) -> Result<IntervalFormat, String> {
    IntervalFormat::of(file)
        .ok_or_else(|| format!("{}: an interval file must end in .csv, .jsonl or .parquet", file.display()))
}

fn run_session(session: Session, config: &Config, arguments: &Arguments) -> Result<RunReport, Failure> {
    let options = ProgressOptions {
        interval: Duration::from_secs(arguments.progress),
        stats_file: arguments.progress_stats_file.clone(),
        timeout: arguments.timeout(),
        quiet: arguments.common.quiet,
    };
    let instances = config.instances.len();
    let mut progress = Progress::new(options, session.clock(), instances, arguments.common.lines())?;
    let (mut report, intervals) = watched(session, config, arguments, &mut progress)?;
    report.environment["arguments"] = repeatable(arguments.common.typed().into_iter()).into();
    let text_options = arguments.text_options();
    let results: Vec<String> = report.instances.iter().map(|it| text::results(it, text_options)).collect();
    // Each is written even if another fails, so that a full disk loses only the files that do not fit.
    let beside = [progress.finish(&results), intervals];
    report.unwritten.extend(beside.iter().filter_map(|it| it.as_ref().err()).map(ToString::to_string));
    let [stats, intervals] = beside;
    let kept = [
        stats.map_err(Into::into),
        intervals.map_err(Into::into),
        print_results(&report, &results, arguments, text_options).map_err(Into::into),
        arguments.common.write_json(&json::render(&report)).map_err(Into::into),
        draw(&report, config, arguments),
        report.lost_events().map_or(Ok(()), |text| Err(text.into())),
    ];
    kept.into_iter().collect::<Result<(), Failure>>()?;
    Ok(report)
}

/// Runs, with a metrics endpoint if requested.
fn watched(
    session: Session,
    config: &Config,
    arguments: &Arguments,
    progress: &mut dyn Watcher,
) -> Result<(RunReport, std::io::Result<()>), Failure> {
    let Some(address) = arguments.metrics else { return recorded(session, config, arguments, progress) };
    let live = Arc::new(Live::default());
    let endpoint = metrics::start(address, Arc::new(Figures(Arc::clone(&live))))?;
    let _ = writeln!(arguments.common.lines(), "metrics and a live page on http://{}/", endpoint.address());
    recorded(session, config, arguments, &mut LiveWatcher::new(progress, live, arguments.timeout()))
}

/// The figures of a run, for an endpoint.
struct Figures(Arc<Live>);

impl Source for Figures {
    fn text(&self) -> String {
        self.0.text()
    }

    fn health(&self) -> Result<(), String> {
        self.0.health()
    }
}

/// Runs, and writes the intervals if requested. An error in writing them is returned beside the report.
fn recorded(
    session: Session,
    config: &Config,
    arguments: &Arguments,
    progress: &mut dyn Watcher,
) -> Result<(RunReport, std::io::Result<()>), Failure> {
    let Some(file) = &arguments.intervals else { return Ok((session.run(config, progress)?, Ok(()))) };
    if is_parquet(file) {
        let report = session.run(config, progress)?;
        let rows: Vec<Value> = report.series.spans().map(|span| intervals::to_json(&span)).collect();
        return Ok((report, write_rows(file, &rows).map_err(std::io::Error::other)));
    }
    let mut intervals = IntervalFile::create(file, interval_format(file)?, progress)?;
    let report = session.run(config, &mut intervals)?;
    Ok((report, intervals.finish()))
}

fn draw(report: &RunReport, config: &Config, arguments: &Arguments) -> Result<(), Failure> {
    let Some(file) = &arguments.plot else { return Ok(()) };
    let svg = plot::render(report, &config.file.display().to_string())?;
    Ok(write_plot(file, svg)?)
}

fn print_header(config: &Config, arguments: &Arguments) {
    let mut out = arguments.common.lines();
    let instances = config.instances.len();
    let ops: u64 =
        config.instances.iter().map(|it| it.test.ops_per_thread.saturating_mul(it.test.threads)).sum();
    let _ = writeln!(out, "===JSON Config===\n{}", config.text.trim_end());
    let _ = writeln!(out, "Running {instances} cachebench instance(s)");
    let _ = writeln!(out, "Total {:.2}M ops to be run", ops as f64 / 1e6);
}

fn print_results(
    report: &RunReport,
    results: &[String],
    arguments: &Arguments,
    options: TextOptions,
) -> Result<(), String> {
    let mut out = String::new();
    for (number, text) in results.iter().enumerate() {
        if results.len() > 1 {
            let _ = writeln!(out, "== Instance {number} ==");
        }
        out += text;
    }
    if results.len() > 1 {
        let _ = write!(out, "== All instances ==\n{}", text::results(&report.totals(), options));
    }
    out += &report.drive.as_ref().map_or_else(String::new, |drive| drive.to_text());
    out += &text::verdict(report);
    arguments.common.print(&out).map(drop)
}

impl Arguments {
    fn timeout(&self) -> Option<Duration> {
        (self.timeout_seconds > 0).then(|| Duration::from_secs(self.timeout_seconds))
    }

    fn text_options(&self) -> TextOptions {
        let class_memory = self.report_ac_memory_usage_stats;
        TextOptions { api_latency: self.report_api_latency, class_memory }
    }
}

fn warn(config: &Config, warnings: &[impl std::fmt::Display], arguments: &Arguments) {
    for warning in warnings {
        arguments.common.warn(format_args!("{}: {warning}", config.file.display()));
    }
}

/// Reports a valid config, and whether it would run on this machine.
fn validated(config: &Config, arguments: &Arguments) -> Result<Finding, Failure> {
    let checked = check(config, arguments)?;
    warn(config, &checked.warnings, arguments);
    check_results(config, arguments)?;
    let file = config.file.display();
    let (instances, warnings) = (config.instances.len(), config.warnings.len() + checked.warnings.len());
    let would_run = checked.stops.is_empty();
    let here = if would_run { "" } else { ", but a run would stop here" };
    let text = format!("{file}: valid, {instances} instance(s), {warnings} warning(s){here}\n");
    let remarks = config.warnings.iter().map(ToString::to_string);
    let warnings: Vec<String> = remarks.chain(checked.warnings).collect();
    let later: Vec<String> =
        config.later.iter().map(|feature| format!("{}: {}", feature.at, feature.message)).collect();
    let world = if config.card.is_some() { "simulated" } else { "real" };
    let result = json!({ "valid": true, "would_run": would_run, "stops": checked.stops, "warnings": warnings,
        "not_supported_yet": later, "world": world });
    Ok(Finding { result, text, failures: checked.stops })
}

/// Reports a popularity or size file, which can be checked but not run.
fn validated_part(arguments: &Arguments, kind: &str, warnings: &[Diagnostic]) -> Result<Finding, String> {
    let file = arguments.config.as_ref().or(arguments.json_test_config.as_ref());
    let spared = Files::default().keeping("input", file.cloned()).writing([arguments.common.result_file()]);
    let file = file.map_or_else(String::new, |file| file.display().to_string());
    if !arguments.validate {
        return Err(format!("{file}: is a {kind}: it cannot run by itself, only a config can refer to it"));
    }
    for warning in warnings {
        arguments.common.warn(format_args!("{file}: {warning}"));
    }
    spared.check()?;
    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    let result = json!({ "valid": true, "warnings": warnings, "not_supported_yet": [] });
    Ok(Finding::new(result, format!("{file}: valid, a {kind}\n")))
}
