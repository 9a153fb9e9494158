//! `flashwright bench`: run a CacheBench config.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bench::config::cachebench::{load, load_text};
use bench::config::{Config, ConfigError, DeviceSpec, Loaded, Override};
use bench::progress::{Progress, ProgressOptions};
use bench::report::text::{self, SizeForm, TextOptions};
use bench::report::{RunReport, json, plot, totals};
use bench::run::stop::Stop;
use bench::session::{Session, SessionOptions};
use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The config that runs when none is named.
const EXAMPLE: &str = include_str!("../../../../examples/hybrid.json");
const EXAMPLE_NAME: &str = "examples/hybrid.json";

const PASSED: u8 = 0;
const FAILED: u8 = 1;
const USAGE: u8 = 2;

/// The command line of `bench`. Flags may be written with one dash or two, with `-` or `_`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// CacheBench config; without one a built-in example runs
    config: Option<PathBuf>,
    /// The config, as CacheBench's own flag
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    json_test_config: Option<PathBuf>,
    /// Write the result as JSON to FILE, or to standard output for `-`
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw throughput, hit ratio and latencies as an SVG picture
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Seed of everything random; recorded in the result
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
    /// Check the config and stop
    #[arg(long)]
    validate: bool,
    #[arg(
        long,
        value_name = "KEY=VALUE",
        help = "Override a key, such as cache_config.cacheSizeMB=64 or [1].test_config.numOps=1000"
    )]
    set: Vec<Override>,
    /// Put flash here instead: `memory:`, `file:PATH`, `PATH`, or `sim:CARD`, a model drive in virtual time
    #[arg(long, value_name = "SPEC")]
    device: Option<DeviceSpec>,
    /// Divide the bytes of cache and model drive and the number of keys, as in 1/64
    #[arg(long, value_name = "1/N", default_value = "1", value_parser = crate::quantity::scale)]
    scale: u32,
    /// Stop after so many seconds with a full report; 0 is no limit
    #[arg(long, value_name = "N", default_value_t = 0)]
    timeout_seconds: u64,
    /// Seconds between progress lines; 0 is none
    #[arg(long, value_name = "N", default_value_t = 60)]
    progress: u64,
    /// Append detailed figures of each interval to FILE
    #[arg(long, value_name = "FILE")]
    progress_stats_file: Option<PathBuf>,
    /// Time every operation, not one in sixteen, and print percentiles of finds and allocations
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value_t = false, require_equals = true)]
    report_api_latency: bool,
    /// Print the memory of each size class
    #[arg(long, value_name = "FORM", num_args = 0..=1, default_missing_value = "human_readable")]
    report_ac_memory_usage_stats: Option<ClassMemory>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ClassMemory {
    /// In B, KB, MB and GB
    #[value(name = "human_readable")]
    HumanReadable,
    /// In bytes
    #[value(name = "raw")]
    Raw,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> ExitCode {
    match load_config(arguments) {
        Ok(Loaded::Part(kind, warnings)) => validated_part(arguments, kind, &warnings),
        Ok(Loaded::Config(config)) => {
            warn(&config, &config.warnings, arguments);
            if arguments.validate { validated(&config, arguments) } else { execute(&config, arguments) }
        }
        Err(error) => usage_error(&error),
    }
}

fn load_config(arguments: &Arguments) -> Result<Loaded, ConfigError> {
    let mut overrides = arguments.set.clone();
    let file = arguments.config.as_ref().or(arguments.json_test_config.as_ref());
    // The example must leave nothing behind where the user happens to stand.
    let example = file.is_none().then(|| DeviceSpec::Path(std::env::temp_dir()));
    overrides.extend(arguments.device.clone().or(example).map(Override::Device));
    match file {
        Some(file) => load(file, &overrides),
        None => load_text(Path::new(EXAMPLE_NAME), EXAMPLE, &overrides),
    }
}

fn execute(config: &Config, arguments: &Arguments) -> ExitCode {
    let stop = Stop::default();
    if let Err(error) = stop_on_signals(&stop) {
        return usage_error(&error);
    }
    let options = SessionOptions {
        seed: arguments.seed,
        timeout: (arguments.timeout_seconds > 0).then(|| Duration::from_secs(arguments.timeout_seconds)),
        time_all: arguments.report_api_latency,
        stop,
        scale: arguments.scale,
    };
    // A run of hours must not end with a result that cannot be written.
    let results = [&arguments.json, &arguments.plot];
    for file in results.into_iter().flatten().filter(|file| *file != Path::new("-")) {
        if let Err(error) = check_writable(file) {
            return usage_error(&error);
        }
    }
    let session = match Session::open(config, options) {
        Ok(session) => session,
        Err(error) => return usage_error(&error),
    };
    greet(config, arguments);
    warn(config, session.warnings(), arguments);
    match run_session(session, config, arguments) {
        Ok(report) if report.passed() => ExitCode::from(PASSED),
        Ok(_) => ExitCode::from(FAILED),
        Err(error) => usage_error(&*error),
    }
}

fn run_session(
    session: Session,
    config: &Config,
    arguments: &Arguments,
) -> Result<RunReport, Box<dyn std::error::Error>> {
    let options = ProgressOptions {
        interval: Duration::from_secs(arguments.progress),
        stats_file: arguments.progress_stats_file.clone(),
        quiet: arguments.quiet,
    };
    let lines = Lines { to_stderr: arguments.json_on_stdout() };
    let mut progress = Progress::new(options, config.instances.len(), lines)?;
    let report = session.run(config, &mut progress)?;
    let text_options = arguments.text_options();
    let results: Vec<String> = report.instances.iter().map(|it| text::results(it, text_options)).collect();
    progress.finish(&results)?;
    print_results(&report, &results, arguments, text_options);
    if let Some(file) = &arguments.json {
        write_json(file, &report)?;
    }
    if let Some(file) = &arguments.plot {
        write_file(file, plot::render(&report, &config.file.display().to_string())?.as_bytes())?;
    }
    Ok(report)
}

/// Signals that come so soon after the first are the same wish: `timeout` and some shells send two.
const ONE_WISH: Duration = Duration::from_millis(500);

/// The first signal ends the run with a full report; another one ends the process.
#[expect(
    clippy::disallowed_methods,
    reason = "the command line is the rim: it has signals, threads and the time"
)]
pub fn stop_on_signals(stop: &Stop) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let flag = stop.interrupt_flag();
    let wait = move || {
        let mut first = None;
        for signal in signals.forever() {
            match first {
                None => {
                    flag.store(true, Ordering::Relaxed);
                    first = Some(Instant::now());
                }
                Some(first) if first.elapsed() > ONE_WISH => std::process::exit(128 + signal),
                Some(_) => {}
            }
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
    Ok(())
}

fn greet(config: &Config, arguments: &Arguments) {
    if arguments.quiet {
        return;
    }
    let mut out = Lines { to_stderr: arguments.json_on_stdout() };
    let instances = config.instances.len();
    let ops: u64 =
        config.instances.iter().map(|it| it.test.ops_per_thread.saturating_mul(it.test.threads)).sum();
    let _ = writeln!(out, "===JSON Config===\n{}", config.text.trim_end());
    let _ = writeln!(out, "Running {instances} cachebench instance(s)");
    let _ = writeln!(out, "Total {:.2}M ops to be run", ops as f64 / 1e6);
}

fn print_results(report: &RunReport, results: &[String], arguments: &Arguments, options: TextOptions) {
    if arguments.quiet {
        return;
    }
    let mut out = Lines { to_stderr: arguments.json_on_stdout() };
    for (number, words) in results.iter().enumerate() {
        if results.len() > 1 {
            let _ = writeln!(out, "== Instance {number} ==");
        }
        let _ = write!(out, "{words}");
    }
    if results.len() > 1 {
        let _ = write!(out, "== All instances ==\n{}", text::results(&totals(&report.instances), options));
    }
    let _ = write!(out, "{}", text::verdict(report));
}

fn write_json(file: &Path, report: &RunReport) -> std::io::Result<()> {
    let mut words = serde_json::to_string_pretty(&json::render(report))?;
    words.push('\n');
    if file == Path::new("-") {
        return std::io::stdout().write_all(words.as_bytes());
    }
    write_file(file, words.as_bytes())
}

fn check_writable(file: &Path) -> std::io::Result<()> {
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(file);
    opened.map(drop).map_err(|error| cannot_write(file, &error))
}

fn cannot_write(file: &Path, error: &std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("writing {}: {error}", file.display()))
}

fn write_file(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    std::fs::write(file, bytes).map_err(|error| cannot_write(file, &error))
}

impl Arguments {
    fn text_options(&self) -> TextOptions {
        let class_memory = self.report_ac_memory_usage_stats.map(|form| match form {
            ClassMemory::HumanReadable => SizeForm::HumanReadable,
            ClassMemory::Raw => SizeForm::Raw,
        });
        TextOptions { api_latency: self.report_api_latency, class_memory }
    }

    /// Then everything for humans goes to standard error.
    fn json_on_stdout(&self) -> bool {
        self.json.as_deref() == Some(Path::new("-"))
    }
}

/// Where lines for humans go.
struct Lines {
    to_stderr: bool,
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.to_stderr { std::io::stderr().write(bytes) } else { std::io::stdout().write(bytes) }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        if self.to_stderr { std::io::stderr().flush() } else { std::io::stdout().flush() }
    }
}

fn warn(config: &Config, warnings: &[impl std::fmt::Display], arguments: &Arguments) {
    if arguments.quiet {
        return;
    }
    for warning in warnings {
        say_error(format_args!("warning: {}: {warning}", config.file.display()));
    }
}

fn validated(config: &Config, arguments: &Arguments) -> ExitCode {
    if !arguments.quiet {
        for feature in &config.later {
            say(format_args!(
                "{}: {}: a run needs {}, which is not here yet",
                config.file.display(),
                feature.at,
                feature.words
            ));
        }
        let instances = config.instances.len();
        say(format_args!(
            "{}: valid, {instances} instance(s), {} warning(s)",
            config.file.display(),
            config.warnings.len()
        ));
    }
    ExitCode::from(PASSED)
}

/// A popularity or size file: it can be checked, not run.
fn validated_part(arguments: &Arguments, kind: &str, warnings: &[bench::config::knob::Remark]) -> ExitCode {
    let file = arguments.config.as_ref().or(arguments.json_test_config.as_ref());
    let file = file.map_or_else(String::new, |file| file.display().to_string());
    if !arguments.validate {
        say_error(format_args!("{file}: this is a {kind}; a config names it, it cannot run by itself"));
        return ExitCode::from(USAGE);
    }
    if !arguments.quiet {
        for warning in warnings {
            say_error(format_args!("warning: {file}: {warning}"));
        }
        say(format_args!("{file}: valid, a {kind}"));
    }
    ExitCode::from(PASSED)
}

fn usage_error(error: &dyn std::error::Error) -> ExitCode {
    for line in error.to_string().lines() {
        say_error(format_args!("error: {line}"));
    }
    ExitCode::from(USAGE)
}

/// A closed pipe is nobody's error.
fn say(words: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{words}");
}

fn say_error(words: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{words}");
}
